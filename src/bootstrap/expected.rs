//! The slot or hash that the operator asked for. Names tell both before a byte is downloaded.

use slotpress_base::{Error, Hint, Result};
use slotpress_format::{ArchiveName, Hash};
use slotpress_net::Candidate;
use slotpress_read::CheckOptions;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    slot: Option<u64>,
    hash: Option<Hash>,
}

impl Expected {
    /// Takes them from the options that also check the restored state.
    pub fn of_check(check: &CheckOptions) -> Self {
        Self { slot: check.expect_slot, hash: check.expect_hash }
    }

    pub fn is_any(self) -> bool {
        self != Self::default()
    }

    pub fn is_named(self, name: &ArchiveName) -> bool {
        self.slot.is_none_or(|slot| slot == name.slot) && self.hash.is_none_or(|hash| hash == name.hash)
    }

    /// Removes candidates that cannot lead to the state. A full archive below its slot can, with an incremental one.
    ///
    /// # Errors
    /// No candidate is left.
    pub fn choose_from(self, candidates: &mut Vec<Candidate>) -> Result<()> {
        if !self.is_any() || candidates.is_empty() {
            return Ok(());
        }
        let found: Vec<String> = candidates.iter().take(8).map(|one| one.slot().to_string()).collect();
        candidates.retain(|candidate| {
            let incremental = candidate.incremental.as_ref().map(|offer| &offer.name);
            std::iter::once(&candidate.full.name).chain(incremental).any(|name| self.is_named(name))
        });
        if !candidates.is_empty() {
            return Ok(());
        }
        let slot = self.slot.map(|slot| format!("slot {slot}"));
        let hash = self.hash.map(|hash| format!("hash {hash}"));
        let asked: Vec<String> = slot.into_iter().chain(hash).collect();
        Err(Error::damaged(format!(
            "no source has the state of {} (found: slots {})",
            asked.join(", "),
            found.join(", ")
        ))
        .with_hint(Hint::UseFind))
    }
}
