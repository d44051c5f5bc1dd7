//! Downloads the genesis of a cluster, unpacks it in memory, compares its hash with the expected hash,
//! and writes it where Agave looks for it.

// This file reads input from other machines: arithmetic must not overflow or panic.
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use slotpress_base::{
    Error, ErrorKind, EscapePath, IoContext, KeptDir, Progress, Result, open_file, read_at_most, to_usize,
};
use slotpress_format::archive::genesis_archive::unpack;
use slotpress_format::{GENESIS_ARCHIVE_NAME, GENESIS_BYTES_MAX, GENESIS_FILE_NAME, Genesis, Hash};
use slotpress_net::{NetErrorKind, Offer, SourceLocation, Url, join_name, show_url};
use slotpress_read::StagedFile;

use super::context::FetchContext;
use crate::restore::RestoreReport;

/// Genesis of the ledger, or of the sources.
pub struct FoundGenesis {
    /// Hash of the ledger's genesis, if the ledger has one.
    hash: Option<Hash>,
    /// If the ledger has no genesis: the different genesis blocks of the sources. The restored state shows
    /// which of them is right.
    pub fetched: Vec<FetchedGenesis>,
}

pub struct FetchedGenesis {
    pub genesis: Genesis,
    hash: Hash,
    /// URL of the genesis archive, without secrets.
    url: String,
    archive: Vec<u8>,
    file: Vec<u8>,
}

impl FoundGenesis {
    /// Writes the fetched genesis that matches the restored state to the ledger, and warns of others.
    /// Returns the hash of the ledger's genesis.
    pub fn write_matching(&self, restored: &RestoreReport, ledger: &Path, progress: &dyn Progress) -> Option<Hash> {
        let mut hash = self.hash;
        for fetched in &self.fetched {
            if restored.genesis != Some(fetched.genesis) {
                let why = "the genesis is from a different chain than the state: it is not used";
                progress.warn(&format!("{}: {why}", fetched.url));
            } else if hash.is_none() {
                hash = Some(fetched.hash);
                // The ledger is complete without its genesis: Agave fetches a missing one.
                if let Err(error) = fetched.write_to(ledger) {
                    progress.warn(&format!("{error}; the validator will fetch the genesis"));
                }
            }
        }
        hash
    }
}

impl FetchedGenesis {
    fn from_archive(url: &Url, archive: Vec<u8>) -> Result<Self> {
        let file = unpack(&archive)?;
        let genesis = Genesis::from_bytes(&file)?;
        Ok(Self { genesis, hash: hash_genesis(&file), url: show_url(url), archive, file })
    }

    fn write_to(&self, ledger: &Path) -> Result<()> {
        write_if_missing(ledger, GENESIS_ARCHIVE_NAME, &self.archive)?;
        write_if_missing(ledger, GENESIS_FILE_NAME, &self.file)
    }
}

impl FetchContext<'_> {
    /// Finds the genesis of the ledger or, if it has none, the different genesis blocks of the sources,
    /// which may be of other chains. With an expected hash, finds only that genesis. A source without
    /// archives is asked only if no source before it had a genesis.
    ///
    /// # Errors
    /// The hash is not the expected one, or a hash is expected and no genesis was found.
    pub fn find_genesis(&self, offers: &[Offer], ledger: &Path) -> Result<FoundGenesis> {
        let expected = self.options.find.expect_genesis_hash;
        let progress = self.progress;
        let path = ledger.join(GENESIS_FILE_NAME);
        if path.exists() {
            let bytes = read_at_most(open_file(&path)?, GENESIS_BYTES_MAX + 1, &path)?;
            let hash = hash_genesis(&bytes);
            check_hash(hash, expected).map_err(|error| error.with_place(path.escaped()))?;
            return Ok(FoundGenesis { hash: Some(hash), fetched: Vec::new() });
        }
        let mut fetched: Vec<FetchedGenesis> = Vec::new();
        let mut first_error = None;
        let bytes_max = to_usize(GENESIS_BYTES_MAX);
        let sources = self.options.find.sources.iter().filter_map(SourceLocation::url);
        for source in sources.chain(&self.options.find.rpc) {
            let has_archives = offers.iter().any(|offer| offer.source == show_url(source));
            if !fetched.is_empty() && (!has_archives || expected.is_some()) {
                continue;
            }
            let url = join_name(&directory_of(source), GENESIS_ARCHIVE_NAME);
            let archive = match self.client.get_document(&url, bytes_max, progress) {
                Ok(archive) => archive,
                Err(error) if error.kind() == NetErrorKind::Interrupted => return Err(error.into()),
                Err(error) => {
                    first_error = first_error.or(Some(error));
                    continue;
                }
            };
            match FetchedGenesis::from_archive(&url, archive) {
                Ok(genesis) => {
                    check_hash(genesis.hash, expected).map_err(|error| error.with_place(&genesis.url))?;
                    if !fetched.iter().any(|known| known.hash == genesis.hash) {
                        fetched.push(genesis);
                    }
                }
                Err(error) => progress.warn(&format!("{}: {error}", show_url(&url))),
            }
        }
        let is_missing = fetched.is_empty();
        if is_missing && let Some(expected) = expected {
            let why = first_error.map_or(String::new(), |error| format!(" ({error})"));
            let message = format!("no source has a genesis to compare with the expected hash {expected}{why}");
            let hint = "name a source that has genesis.tar.bz2, or put the cluster's genesis.bin into the ledger";
            return Err(Error::new(ErrorKind::Network, message).with_hint(hint));
        }
        if is_missing {
            progress.status("No source has a genesis; the validator will fetch it.");
        }
        Ok(FoundGenesis { hash: None, fetched })
    }
}

/// Returns the URL of the directory that contains an archive. Returns any other URL unchanged.
fn directory_of(source: &Url) -> Url {
    let mut url = source.clone();
    let last = source.path_segments().and_then(|mut segments| segments.next_back());
    if last.is_some_and(|last| last.contains(".tar"))
        && let Ok(mut segments) = url.path_segments_mut()
    {
        segments.pop();
    }
    url
}

fn hash_genesis(genesis: &[u8]) -> Hash {
    Hash(Sha256::digest(genesis).into())
}

fn check_hash(hash: Hash, expected: Option<Hash>) -> Result<()> {
    if let Some(expected) = expected.filter(|expected| *expected != hash) {
        let message = format!("the genesis hash is {hash}, not {expected}");
        let hint = "the genesis is from a different cluster: use sources of the expected one";
        return Err(Error::damaged(message).with_hint(hint));
    }
    Ok(())
}

fn write_if_missing(dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let file = StagedFile::create_in(&Arc::new(KeptDir::open(dir)?))?;
    file.file().write_all(bytes).or_path("write", file.path())?;
    match file.publish(name) {
        Err(error) if error.kind() == ErrorKind::Exists => Ok(()),
        published => published.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_expected_hash_is_accepted() {
        let hash = hash_genesis(b"abc");
        assert!(check_hash(hash, None).is_ok());
        assert!(check_hash(hash, Some(hash)).is_ok());
        assert!(
            check_hash(hash, Some(Hash([0; 32]))).expect_err("a different one").to_string().contains("genesis hash")
        );
    }
}
