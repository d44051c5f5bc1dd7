//! Asks trusted servers to confirm an archive. Its name contains the slot and the hash of its state. A trusted
//! server that has an archive of the same state confirms it. A trusted server that has a different hash for
//! the slot contradicts it.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use slotpress_base::{Error, ErrorKind, Result, random};
use slotpress_format::{ArchiveName, Hash};
use slotpress_net::{NetError, NetErrorKind, SourceLocation, Url, join_name, origin_of, show_url};

use super::context::FetchContext;

/// A trusted server that does not confirm a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Unconfirmed {
    /// URL of the server, without user and query.
    pub server: String,
    /// Reason, as a clause starting with "it".
    pub reason: String,
}

/// Trusted servers that confirm a state, and trusted servers that do not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Confirmations {
    /// Trusted servers that have an archive of the same state.
    pub confirmed_by: Vec<String>,
    /// The other trusted servers, and why they do not confirm the state.
    pub not_confirmed_by: Vec<Unconfirmed>,
    /// True if the caller passed the expected hash; `None` for a fetch, which needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_expected: Option<bool>,
}

impl fmt::Display for Confirmations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = self.confirmed_by.clone();
        if self.is_expected == Some(true) {
            names.insert(0, "the expected hash".to_string());
        }
        if names.is_empty() {
            names.push("no other server: slot and hash are only what the source claims".to_string());
        }
        f.write_str(&names.join(", "))?;
        for Unconfirmed { server, reason } in &self.not_confirmed_by {
            write!(f, "; not {server}: {reason}")?;
        }
        Ok(())
    }
}

/// Lower limit on the length of an archive, whose bank file alone is longer. An error page may be longer,
/// too, so the length alone proves nothing.
const ARCHIVE_BYTES_MIN: u64 = 32;

/// Checks that there are enough trusted servers for the quorum.
///
/// # Errors
/// There are trusted servers, but fewer than the quorum.
pub fn check_quorum(trusted: &[Url], quorum: usize) -> Result<()> {
    let count = trusted.len();
    if count > 0 && quorum > count {
        let message = format!("a quorum of {quorum} needs as many trusted servers, not {count}");
        return Err(Error::usage(message).with_hint("name more trusted servers, or ask for a smaller quorum"));
    }
    Ok(())
}

impl FetchContext<'_> {
    /// Asks every trusted server whether it has the archive, or another archive of the same slot and
    /// hash. The bytes may come from any source: the state check compares them with the hash.
    ///
    /// # Errors
    /// A server has a different hash for the slot, so the server or the source is wrong.
    pub fn ask_trusted_servers(&self, name: &ArchiveName) -> Result<Confirmations> {
        let mut confirmations = Confirmations::default();
        let mut asked_origins = BTreeSet::new();
        for url in &self.options.trusted {
            // Ask a server once, even if several URLs name it.
            if !asked_origins.insert(origin_of(url)) {
                continue;
            }
            self.progress.check()?;
            let answer = self.ask_server(url, name)?;
            let server = show_url(url);
            match answer {
                None => confirmations.confirmed_by.push(server),
                Some(reason) => {
                    self.progress.warn(&format!("{server} does not confirm {name}: {reason}"));
                    confirmations.not_confirmed_by.push(Unconfirmed { server, reason });
                }
            }
        }
        Ok(confirmations)
    }

    /// Returns an error if fewer servers than the quorum confirm the archive.
    pub fn too_few_error(&self, confirming: usize, name: &ArchiveName) -> Option<Error> {
        let message = match self.options.quorum.max(1) {
            quorum if confirming >= quorum => return None,
            1 => format!("no trusted server confirms {name}"),
            quorum => format!("fewer than {quorum} trusted servers confirm {name}"),
        };
        let hint = "none of it was fetched: try again in a minute, or name another trusted server";
        Some(Error::new(ErrorKind::Network, message).with_hint(hint))
    }

    /// Returns the reason why a trusted server does not confirm an archive; `None` if it confirms it.
    fn ask_server(&self, url: &Url, name: &ArchiveName) -> Result<Option<String>> {
        // The server names its archives in redirects or in a list.
        let source = SourceLocation::Server(url.clone());
        let answer = self.client.list_offers(&source, self.progress);
        self.progress.check()?;
        let error = answer.as_ref().err().and_then(NetError::find_in);
        let mut failure = error.filter(|error| !is_denial(error)).cloned();
        let mut offers = answer.unwrap_or_default();
        // A slot has only one state and hash, in full and in incremental archives.
        offers.retain(|offer| offer.name.slot == name.slot);
        if let Some(other) = offers.iter().find(|offer| offer.name.hash != name.hash) {
            let server = show_url(url);
            let other = &other.name;
            let message = format!("{server} has {other} of slot {}, not {name}", name.slot);
            return Err(Error::damaged(message).with_hint("do not use it: the two sources contradict each other"));
        }
        if !offers.is_empty() {
            return Ok(None);
        }
        let mut names = vec![name.clone()];
        if name.base_slot.is_some() {
            // A validator does not have a rebased archive, but may have the full one of the same slot.
            names.push(ArchiveName { base_slot: None, ..name.clone() });
        }
        for name in &names {
            match self.has_archive(url, name) {
                Ok(true) => return Ok(None),
                Ok(false) => {}
                Err(error) => {
                    self.progress.check()?;
                    failure = failure.or(Some(error));
                    break;
                }
            }
        }
        Ok(Some(match failure {
            None => "it does not have the archive".to_string(),
            Some(error) => format!("it cannot be asked: {error}"),
        }))
    }

    /// Returns true if a server has the archive. Also requests a random name, which must not exist: some
    /// servers answer every path with 200 and a page.
    ///
    /// # Errors
    /// The server cannot be asked, or the user asks to stop.
    fn has_archive(&self, url: &Url, name: &ArchiveName) -> Result<bool, NetError> {
        let head = |name: &ArchiveName| {
            let url = join_name(url, &name.to_string());
            self.client.head(&url, self.progress)
        };
        match head(name) {
            Err(error) if !is_denial(&error) => return Err(error),
            Ok(remote)
                if remote.archive_name().as_ref() == Some(name) && remote.length_bytes >= Some(ARCHIVE_BYTES_MIN) => {}
            _ => return Ok(false),
        }
        let hash = Hash(*blake3::hash(&random::from_system().to_le_bytes()).as_bytes());
        match head(&ArchiveName { hash, ..name.clone() }) {
            Err(error) if error.kind() == NetErrorKind::Interrupted => Err(error),
            answer => Ok(answer.is_err_and(|error| error.kind() == NetErrorKind::Gone)),
        }
    }
}

/// Returns true if the server answered that it does not have the file.
fn is_denial(error: &NetError) -> bool {
    matches!(error.kind(), NetErrorKind::Gone | NetErrorKind::Status(400..=407))
}
