//! Confirmation of an archive by trusted servers: its name holds slot and hash of the state; a trusted server has an
//! archive of the same state, or one that contradicts it.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

use serde::{Serialize, Serializer};
use slotpress_base::{Error, ErrorKind, Progress, Result};
use slotpress_format::{ArchiveName, Hash};
use slotpress_net::{Client, NetError, NetErrorKind, Offer, Remote, SourceArg, Url, below, shown};

/// Confirmations of a state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Vouchers {
    /// Trusted servers that have the archive.
    #[serde(rename = "vouched_by")]
    pub servers: Vec<String>,
    /// True if the operator gave the hash (`--expect-hash`).
    pub is_expected: bool,
}

impl Vouchers {
    /// True if there is any confirmation.
    pub fn is_vouched(&self) -> bool {
        self.is_expected || !self.servers.is_empty()
    }

    /// Serializes the servers alone: `fetch` has no expected hash.
    pub(super) fn servers<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.servers.serialize(serializer)
    }
}

impl fmt::Display for Vouchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = self.is_expected.then_some("the expected hash".to_string());
        let names: Vec<String> = expected.into_iter().chain(self.servers.iter().cloned()).collect();
        match names.is_empty() {
            true => f.write_str("no other server: slot and hash are the claim of the source alone"),
            false => f.write_str(&names.join(", ")),
        }
    }
}

/// Least size of an archive: an empty tar stream, compressed. An error page may be longer, so the size alone proves
/// nothing.
const ARCHIVE_BYTES_MIN: u64 = 32;

/// Asks every trusted server for the archive, or another one of the same slot and hash. Returns those that have it.
///
/// # Errors
/// One of them has another hash for the slot: one of the two sources is wrong.
pub fn ask(client: &Client, trusted: &[Url], name: &ArchiveName, progress: &dyn Progress) -> Result<Vec<String>> {
    let mut vouching = Vec::new();
    for url in trusted {
        progress.check()?;
        // Names that the server tells by redirects or in its list.
        let offers: Vec<Offer> = client.offers(&SourceArg::Server(url.clone()), progress).unwrap_or_default();
        progress.check()?;
        // The state of a slot has one hash, in full and incremental archives.
        let contradicts = |offer: &&Offer| offer.name.slot == name.slot && offer.name.hash != name.hash;
        if let Some(other) = offers.iter().find(contradicts) {
            let message = format!("{} has {} of slot {}, not {name}", shown(url), other.name, name.slot);
            return Err(Error::damaged(message).with_hint("do not use it: the two sources contradict each other"));
        }
        let is_same_state = |offer: &Offer| (offer.name.slot, offer.name.hash) == (name.slot, name.hash);
        // A validator has no archive that was rebased, but the full one of that slot.
        let full = ArchiveName { base_slot: None, ..name.clone() };
        let has = match offers.iter().any(is_same_state) {
            true => Ok(true),
            false => match has_archive(client, url, name, progress)? {
                Ok(false) if *name != full => has_archive(client, url, &full, progress)?,
                has => has,
            },
        };
        match has {
            Ok(true) => vouching.push(shown(url)),
            Ok(false) => progress.warn(&format!("{} does not have {name}, so it cannot confirm it", shown(url))),
            Err(error) => progress.warn(&format!("cannot ask whether a trusted server has {name}: {error}")),
        }
    }
    Ok(vouching)
}

/// Same as [`ask`], and requires an answer, before a byte of the archive is downloaded: if there are trusted servers,
/// one must have it.
///
/// # Errors
/// Those of [`ask`]; or no trusted server has it.
pub fn require(client: &Client, trusted: &[Url], name: &ArchiveName, progress: &dyn Progress) -> Result<Vec<String>> {
    let vouching = ask(client, trusted, name, progress)?;
    if !trusted.is_empty() && vouching.is_empty() {
        return Err(Error::new(ErrorKind::Network, format!("no trusted server confirms {name}"))
            .with_hint("nothing of it was fetched: try again in a minute, or name another trusted server"));
    }
    Ok(vouching)
}

/// True if a server has the archive: it answers its name, and does not answer a random name, since some servers answer
/// every path with 200 and a page. The inner error tells why the server cannot be asked.
fn has_archive(
    client: &Client,
    url: &Url,
    name: &ArchiveName,
    progress: &dyn Progress,
) -> Result<Result<bool, NetError>> {
    let head = |name: &ArchiveName| match client.head(&below(url, &name.to_string()), progress) {
        Err(error) if error.kind() == NetErrorKind::Interrupted => Err(Error::from(error)),
        answer => Ok(answer),
    };
    let is_it = |remote: &Remote| {
        remote.archive_name().as_ref() == Some(name)
            && remote.length_bytes.is_some_and(|length_bytes| length_bytes >= ARCHIVE_BYTES_MIN)
    };
    match head(name)? {
        Ok(remote) if is_it(&remote) => {}
        Err(error) if !matches!(error.kind(), NetErrorKind::Gone | NetErrorKind::Status(400..=407)) => {
            return Ok(Err(error));
        }
        _ => return Ok(Ok(false)),
    }
    let made_up = ArchiveName { hash: Hash(*blake3::hash(&random_bytes()).as_bytes()), ..name.clone() };
    Ok(Ok(head(&made_up)?.is_err_and(|error| error.kind() == NetErrorKind::Gone)))
}

fn random_bytes() -> [u8; 8] {
    RandomState::new().build_hasher().finish().to_le_bytes()
}
