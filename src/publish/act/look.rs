//! Looks at the validator's directories, the pins and the journal.

use slotpress_base::clock::{now, since_1970};
use slotpress_base::{Error, Progress, Result, ShowPath};
use slotpress_format::{ArchiveName, BankFile};
use slotpress_read::catalog::Archive;
use slotpress_read::{Catalog, Fault, judge_file, look_for_times, scan_names, unix_ns};

use super::index::Ready;
use super::pins::{PinDir, Pinned, Writers, WrittenBy};
use crate::publish::PublishOptions;
use crate::publish::decide::choose::{epoch_ends, key};
use crate::publish::decide::{Facts, Judged};
use crate::publish::remember::{Journal, StateCheck};

use std::collections::BTreeSet;
use std::time::Duration;

/// A file modified within this time may still be being written.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);

/// Remembers what need not be read again at each look.
#[derive(Debug, Default)]
pub struct Eye {
    ready: Catalog,
    writers: Writers,
    /// A bank file, for the cluster's epoch schedule; only read if the ends of epochs are kept.
    bank: Option<BankFile>,
}

impl Eye {
    pub fn look(
        &mut self,
        options: &PublishOptions,
        pins: &PinDir,
        journal: &Journal,
        progress: &dyn Progress,
    ) -> Result<Facts> {
        let seen = scan_names(&options.validator_dirs())?.archives().to_vec();
        if options.keeps_epoch_ends && self.bank.is_none() {
            self.bank = self.writers.any_bank(&seen);
        }
        let pinned = pins.pinned()?;
        let mut ready = pins.ready(&self.ready)?;
        look_for_times(&mut ready, &self.ready);
        ready.unusable().iter().for_each(|unusable| progress.warn(&unusable.to_string()));
        self.ready = ready;
        let newest = seen.iter().map(|archive| archive.name.slot).max();
        let names: BTreeSet<String> = pinned.iter().map(|archive| archive.name.to_string()).collect();
        let (first_slot, begun) = journal.change(|entries| {
            entries.first_slot = entries.first_slot.or(newest);
            entries.pins.retain(|name, _| names.contains(name));
            (entries.first_slot, entries.incremental_unix_seconds)
        })?;
        let ends_for = |(bank, newest): (&BankFile, u64)| {
            epoch_ends(&bank.slots_of_epoch_of(newest), first_slot.unwrap_or(newest))
        };
        let refused = |archive: &&Archive| journal.read(|entries| entries.has_refused(archive));
        Ok(Facts {
            refused: seen.iter().filter(refused).map(|archive| key(&archive.name)).collect(),
            epoch_ends: self.bank.as_ref().zip(newest).map(ends_for).unwrap_or_default(),
            // A time ahead was written before the clock jumped back: it says nothing.
            since_incremental: begun
                .and_then(|begun| since_1970(now()).as_secs().checked_sub(begun))
                .map(Duration::from_secs),
            ready: self.ready.archives().to_vec(),
            seen,
            pinned,
        })
    }

    /// Pins an archive. If that can never be, looks into the file: a few reads detect a damaged one.
    pub fn pin(
        &mut self,
        archive: &Archive,
        seen: &[Archive],
        options: &PublishOptions,
        pins: &PinDir,
    ) -> Result<(Pinned, Judged)> {
        let written_by = self.writers.written_by(options, seen, archive);
        let pinned = pins.pin(archive, written_by)?;
        let is_judged = matches!(pinned, Pinned::Never(_)) && written_by != WrittenBy::Agave;
        let fault = Some(archive).filter(|_| is_judged).and_then(|it| judge_file(it).err());
        let judged = match fault.filter(|fault| *fault != Fault::Unreadable) {
            Some(fault) if archive.age(unix_ns(now())) >= WRITTEN_WITHIN => {
                Judged::Damaged(Error::damaged(format!("{}: {fault}", archive.path().shown())))
            }
            Some(_) => Judged::Unfinished,
            None => Judged::Sound,
        };
        Ok((pinned, judged))
    }

    /// A ready archive, as of the last look.
    pub fn ready(&self, name: &ArchiveName, journal: &Journal) -> Option<Ready> {
        let archive = self.ready.find(&name.to_string())?.clone();
        let state = journal.read(|entries| entries.states.get(&name.to_string()).copied());
        Some(Ready { archive, state: state.unwrap_or(StateCheck::Unchecked), slot_time: self.ready.slot_time })
    }
}
