//! Downloads the genesis of a cluster, unpacks it in memory, compares its hash with the expected
//! one, and writes it where Agave looks for it.

// This file reads input from other machines: arithmetic must not overflow or panic.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use slotpress_base::{Error, ErrorKind, EscapePath, IoContext, KeptDir, Progress, Result, open_file, to_usize};
use slotpress_format::archive::genesis_archive::unpack;
use slotpress_format::{GENESIS_ARCHIVE_NAME, GENESIS_BYTES_MAX, GENESIS_FILE_NAME, Genesis, Hash};
use slotpress_net::{Client, NetErrorKind, Url, join_name, show_url};
use slotpress_read::StagedFile;

pub struct FoundGenesis {
    /// Hash of the ledger's genesis.
    pub hash: Option<Hash>,
    /// If the ledger has none, the genesis blocks of servers, each once. The state shows which one is
    /// right.
    pub fetched: Vec<FetchedGenesis>,
}

pub struct GenesisServer {
    pub directory: Url,
    pub has_archives: bool,
}

pub struct FetchedGenesis {
    pub genesis: Genesis,
    pub hash: Hash,
    /// URL of its archive, without secrets.
    pub url: String,
    archive: Vec<u8>,
    file: Vec<u8>,
}

impl FetchedGenesis {
    fn from_archive(url: &Url, archive: Vec<u8>) -> Result<Self> {
        let file = unpack(&archive)?;
        let genesis = Genesis::from_bytes(&file)?;
        Ok(Self { genesis, hash: hash_of(&file), url: show_url(url), archive, file })
    }

    /// Writes the genesis to the ledger.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn place(&self, ledger: &Path) -> Result<()> {
        place(ledger, GENESIS_ARCHIVE_NAME, &self.archive)?;
        place(ledger, GENESIS_FILE_NAME, &self.file)
    }
}

/// Returns the genesis of the ledger or, if it has none, each different genesis of the servers, which
/// may be of other chains; with an expected hash, only that one. Servers without archives are asked
/// only if the other servers have no genesis.
///
/// # Errors
/// The hash is not the expected one, or a hash is expected and no genesis was found.
pub fn find(
    client: &Client,
    servers: impl Iterator<Item = GenesisServer>,
    ledger: &Path,
    expected: Option<Hash>,
    progress: &dyn Progress,
) -> Result<FoundGenesis> {
    let path = ledger.join(GENESIS_FILE_NAME);
    if path.exists() {
        let mut bytes = Vec::new();
        open_file(&path)?.take(GENESIS_BYTES_MAX + 1).read_to_end(&mut bytes).or_path("read", &path)?;
        let hash = hash_of(&bytes);
        check_hash(hash, expected).map_err(|error| error.within(path.escaped()))?;
        return Ok(FoundGenesis { hash: Some(hash), fetched: Vec::new() });
    }
    let mut fetched: Vec<FetchedGenesis> = Vec::new();
    let mut failed = None;
    for GenesisServer { directory, has_archives } in servers {
        if !fetched.is_empty() && (!has_archives || expected.is_some()) {
            continue;
        }
        let url = join_name(&directory, GENESIS_ARCHIVE_NAME);
        let archive = match client.get_document(&url, to_usize(GENESIS_BYTES_MAX), progress) {
            Ok(archive) => archive,
            Err(error) if error.kind() == NetErrorKind::Interrupted => return Err(error.into()),
            Err(error) => {
                failed = failed.or(Some(error));
                continue;
            }
        };
        match FetchedGenesis::from_archive(&url, archive) {
            Ok(genesis) => {
                check_hash(genesis.hash, expected).map_err(|error| error.within(&genesis.url))?;
                if !fetched.iter().any(|known| known.hash == genesis.hash) {
                    fetched.push(genesis);
                }
            }
            Err(error) => progress.warn(&format!("{}: {error}", show_url(&url))),
        }
    }
    let is_missing = fetched.is_empty();
    if is_missing && let Some(expected) = expected {
        let why = failed.map_or(String::new(), |error| format!(" ({error})"));
        let message = format!("no source has a genesis to compare with the expected hash {expected}{why}");
        return Err(Error::new(ErrorKind::Network, message)
            .with_hint("give a source that has genesis.tar.bz2, or put the cluster's genesis.bin into the ledger"));
    }
    if is_missing {
        progress.status("No source has a genesis; the validator will fetch it.");
    }
    Ok(FoundGenesis { hash: None, fetched })
}

fn hash_of(genesis: &[u8]) -> Hash {
    Hash(Sha256::digest(genesis).into())
}

fn check_hash(hash: Hash, expected: Option<Hash>) -> Result<()> {
    if let Some(expected) = expected.filter(|expected| *expected != hash) {
        let message = format!("the genesis hash is {hash}, not {expected}");
        let hint = "the genesis is of another cluster: give sources of the expected one";
        return Err(Error::damaged(message).with_hint(hint));
    }
    Ok(())
}

fn place(dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let file = StagedFile::create_in(&Arc::new(KeptDir::open(dir)?))?;
    file.file().write_all(bytes).or_path("write", file.path())?;
    match file.publish(name, false) {
        Err(error) if error.kind() == ErrorKind::Exists => Ok(()),
        published => published.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_compared() {
        let hash = hash_of(b"abc");
        assert!(check_hash(hash, None).is_ok());
        assert!(check_hash(hash, Some(hash)).is_ok());
        assert!(check_hash(hash, Some(Hash([0; 32]))).expect_err("another").to_string().contains("genesis hash"));
    }
}
