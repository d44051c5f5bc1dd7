//! Asks trusted servers to confirm an archive. The archive's name contains slot and hash of the
//! state. A trusted server that has an archive of the same state confirms it; one that has another
//! hash for the slot contradicts it.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use slotpress_base::{Error, ErrorKind, Progress, Result, random};
use slotpress_format::{ArchiveName, Hash};
use slotpress_net::{Client, NetError, NetErrorKind, Offer, Remote, SourceArg, Url, below, origin_of, shown};

use super::choose::ChosenArchive;

/// A trusted server that does not confirm a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Unconfirmed {
    /// URL of the server, without user and query.
    pub server: String,
    /// Reason, as a clause starting with "it".
    #[serde(rename = "reason")]
    pub why: String,
}

/// Servers that confirm a state, and those that do not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Vouchers {
    /// Trusted servers that have an archive of the same state.
    #[serde(rename = "vouched_by")]
    pub by: Vec<String>,
    /// The other trusted servers, and why they do not confirm the state.
    #[serde(rename = "not_vouched_by")]
    pub not_by: Vec<Unconfirmed>,
    /// True if the caller gave the expected hash; `None` for a fetch, which takes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_expected: Option<bool>,
}

impl fmt::Display for Vouchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = (self.is_expected == Some(true)).then_some("the expected hash".to_string());
        let names: Vec<String> = expected.into_iter().chain(self.by.iter().cloned()).collect();
        if names.is_empty() {
            f.write_str("no other server: slot and hash are only what the source claims")?
        } else {
            f.write_str(&names.join(", "))?
        }
        self.not_by.iter().try_for_each(|Unconfirmed { server, why }| write!(f, "; not {server}: {why}"))
    }
}

/// Least size of an archive: the size of an empty, compressed tar stream. An error page may be
/// longer, so the size alone proves nothing.
const ARCHIVE_BYTES_MIN: u64 = 32;

/// Servers that the operator trusts.
#[derive(Clone, Copy)]
pub struct Trust<'a> {
    pub client: &'a Client,
    pub trusted: &'a [Url],
    /// Number of servers that must confirm a state.
    quorum: usize,
}

impl<'a> Trust<'a> {
    /// # Errors
    /// There are fewer servers than the quorum, so that they could never confirm a state.
    pub fn new(client: &'a Client, trusted: &'a [Url], quorum: usize) -> Result<Self> {
        if trusted.is_empty() || quorum <= trusted.len() {
            Ok(Self { client, trusted, quorum })
        } else {
            Err(Error::usage(format!("a quorum of {quorum} needs as many trusted servers, not {}", trusted.len()))
                .with_hint("name more trusted servers, or ask for a smaller quorum"))
        }
    }

    /// Asks every trusted server whether it has the archive, or another one of the same slot and
    /// hash. Whoever trusts a server takes its word for these two, whoever sends the bytes: the
    /// state check compares the bytes with the hash.
    ///
    /// # Errors
    /// A server has another hash for the slot: either it or the source is wrong.
    pub fn confirm(&self, choice: &ChosenArchive, progress: &dyn Progress) -> Result<Vouchers> {
        let name = &choice.name;
        let mut confirmed = Vouchers::default();
        let mut asked = BTreeSet::new();
        // Counts a server once, even if several URLs name it.
        for url in self.trusted.iter().filter(|url| asked.insert(origin_of(url))) {
            progress.check()?;
            let why = self.why_not(url, name, progress)?;
            let server = shown(url);
            match why {
                None => confirmed.by.push(server),
                Some(why) => {
                    progress.warn(&format!("{server} does not vouch for {name}: {why}"));
                    confirmed.not_by.push(Unconfirmed { server, why });
                }
            }
        }
        Ok(confirmed)
    }

    /// Returns an error if fewer servers than the quorum confirm the archive.
    pub fn too_few(&self, confirmed: &Vouchers, name: &ArchiveName) -> Option<Error> {
        let message = match self.quorum.max(1) {
            quorum if confirmed.by.len() >= quorum => return None,
            1 => format!("no trusted server confirms {name}"),
            quorum => format!("fewer than {quorum} trusted servers confirm {name}"),
        };
        let hint = "nothing of it was fetched: try again in a minute, or name another trusted server";
        Some(Error::new(ErrorKind::Network, message).with_hint(hint))
    }

    /// Returns why a trusted server does not confirm an archive; `None` if it does.
    fn why_not(&self, url: &Url, name: &ArchiveName, progress: &dyn Progress) -> Result<Option<String>> {
        let client = self.client;
        // The server names its archives by redirects, or in a list.
        let answer = client.offers(&SourceArg::Place(url.clone()), progress);
        progress.check()?;
        let (offers, mut failed): (Vec<Offer>, _) = match answer {
            Ok(offers) => (offers, None),
            Err(error) => (Vec::new(), NetError::in_error(&error).filter(|error| !is_no(error)).cloned()),
        };
        // A slot has only one state and hash, in full and in incremental archives.
        let contradicts = |offer: &&Offer| offer.name.slot == name.slot && offer.name.hash != name.hash;
        if let Some(other) = offers.iter().find(contradicts) {
            let message = format!("{} has {} of slot {}, not {name}", shown(url), other.name, name.slot);
            return Err(Error::damaged(message).with_hint("do not use it: the two sources contradict each other"));
        }
        let is_same_state = |offer: &Offer| (offer.name.slot, offer.name.hash) == (name.slot, name.hash);
        if offers.iter().any(is_same_state) {
            return Ok(None);
        }
        // A validator does not have a rebased archive, but may have the full one of the same slot.
        let full = ArchiveName { base_slot: None, ..name.clone() };
        let names = if full == *name { vec![name] } else { vec![name, &full] };
        for name in names {
            match has_archive(client, url, name, progress) {
                Ok(true) => return Ok(None),
                Ok(false) => {}
                Err(error) => {
                    progress.check()?;
                    failed = failed.or(Some(error));
                    break;
                }
            }
        }
        Ok(Some(match failed {
            None => "it does not have the archive".to_string(),
            Some(error) => format!("it cannot be asked: {error}"),
        }))
    }
}

/// True if a server has the archive. Also asks for a random name, which must not exist, since some
/// servers answer every path with 200 and a page.
///
/// # Errors
/// The server cannot be asked, or the user asks to stop.
fn has_archive(client: &Client, url: &Url, name: &ArchiveName, progress: &dyn Progress) -> Result<bool, NetError> {
    let head = |name: &ArchiveName| client.head(&below(url, &name.to_string()), progress);
    let is_it = |remote: &Remote| remote.archive_name().as_ref() == Some(name);
    match head(name) {
        Ok(remote) if is_it(&remote) && remote.length_bytes >= Some(ARCHIVE_BYTES_MIN) => {}
        Err(error) if !is_no(&error) => return Err(error),
        _ => return Ok(false),
    }
    let hash = Hash(*blake3::hash(&random::of_system().to_le_bytes()).as_bytes());
    let made_up = ArchiveName { hash, ..name.clone() };
    match head(&made_up) {
        Err(error) if error.kind() == NetErrorKind::Interrupted => Err(error),
        answer => Ok(answer.is_err_and(|error| error.kind() == NetErrorKind::Gone)),
    }
}

/// True if a server has answered that it does not have something.
fn is_no(error: &NetError) -> bool {
    matches!(error.kind(), NetErrorKind::Gone | NetErrorKind::Status(400..=407))
}
