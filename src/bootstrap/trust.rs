//! Who vouches for an archive: its name holds slot and hash of the state, and a server that the operator trusts has an
//! archive of the same name, or one that says otherwise.

use {
    serde::Serialize,
    slotpress_base::{
        error::{Error, Result},
        progress::Progress,
    },
    slotpress_format::ledger::names::ArchiveName,
    slotpress_net::{
        Client, NetErrorKind, Url, below,
        servers::{Offer, SourceArg},
        shown,
    },
    std::fmt,
};

/// What vouches for a state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Vouchers {
    /// The operator, by `--expect-hash`.
    pub is_expected: bool,
    /// Servers that the operator trusts, and that have the archive.
    pub servers: Vec<String>,
}

impl Vouchers {
    /// Whether anything does.
    pub fn is_vouched(&self) -> bool {
        self.is_expected || !self.servers.is_empty()
    }
}

impl fmt::Display for Vouchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = self.is_expected.then_some("`expect_hash`".to_string());
        let names: Vec<String> = expected.into_iter().chain(self.servers.iter().cloned()).collect();
        match names.is_empty() {
            true => f.write_str("none: slot and hash are what the source claims"),
            false => f.write_str(&names.join(", ")),
        }
    }
}

/// Asks every trusted server for an archive.
///
/// # Errors
/// One of them has another archive of the same slots: then one of the two lies.
pub fn ask(client: &Client, trusted: &[Url], name: &ArchiveName, progress: &dyn Progress) -> Result<Vec<String>> {
    let mut vouching = Vec::new();
    for url in trusted {
        progress.check()?;
        match client.head(&below(url, &name.to_string()), progress) {
            Ok(remote) if remote.archive_name().as_ref() == Some(name) => {
                vouching.push(shown(url));
                continue;
            }
            Err(error) if error.kind() == NetErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        // One that has other archives may have one that contradicts.
        let source = SourceArg::Server(url.clone());
        let offers: Vec<Offer> = client.offers(&source, progress).unwrap_or_default();
        progress.check()?;
        let contradicts = |other: &ArchiveName| {
            // The state at a slot has one hash, whatever the archive's kind is.
            other.slot == name.slot && other.hash != name.hash
        };
        match offers.iter().find(|offer| contradicts(&offer.name)) {
            Some(other) => {
                let message = format!("{} has {} of slot {}, not {name}", shown(url), other.name, name.slot);
                return Err(Error::damaged(message).hint("do not use it: the two sources contradict each other"));
            }
            None => progress.warn(&format!("{} does not have {name}, so it cannot confirm it", shown(url))),
        }
    }
    Ok(vouching)
}
