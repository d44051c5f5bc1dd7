//! Looks at the validator's directories, the pins and the journal.

use std::collections::BTreeSet;
use std::time::Duration;

use slotpress_base::clock::{now, since_1970};
use slotpress_base::{Error, Result, ShowPath};
use slotpress_read::catalog::Archive;
use slotpress_read::{Catalog, Fault, judge_file, look_for_times, scan_names, unix_ns};

use super::Run;
use super::index::Ready;
use super::pins::Pinned;
use crate::publish::decide::Facts;

/// A file modified within this time may be incomplete because it is being written.
pub const WRITTEN_WITHIN: Duration = Duration::from_secs(60);

/// Looks at the directories, and remembers what it need not read again next time.
#[derive(Debug, Default)]
pub struct Eye {
    ready: Catalog,
}

impl Eye {
    pub fn look(&mut self, run: &Run<'_>) -> Result<Facts> {
        let seen = scan_names(&run.options.validator_dirs())?.archives().to_vec();
        let (pinned, journal) = (run.pins.pinned()?, &run.pins.journal);
        let mut ready = run.pins.ready(&self.ready)?;
        look_for_times(&mut ready, &self.ready);
        ready.unusable().iter().for_each(|unusable| run.progress.warn(&unusable.to_string()));
        self.ready = ready;
        let names: BTreeSet<String> = pinned.iter().map(|archive| archive.name.to_string()).collect();
        let begun = journal.change(|entries| {
            entries.pins.retain(|name, _| names.contains(name));
            entries.incremental_unix_seconds
        })?;
        let Catalog { slot_time, epoch_schedule, .. } = self.ready;
        let ready = |archive: &Archive| Ready { archive: archive.clone(), slot_time, epoch_schedule };
        Ok(Facts {
            // A time in the future was written before the clock jumped back, and is ignored.
            since_incremental: begun
                .and_then(|begun| since_1970(now()).as_secs().checked_sub(begun))
                .map(Duration::from_secs),
            ready: self.ready.archives().iter().map(ready).collect(),
            seen,
            pinned,
        })
    }
}

/// Pins an archive, unless a few reads tell that it is not whole.
pub fn pin(archive: &Archive, run: &Run<'_>) -> Result<Pinned> {
    match judge_file(archive).err() {
        None | Some(Fault::Unreadable) => run.pins.pin(archive, run.options.writer),
        Some(_) if archive.age(unix_ns(now())) < WRITTEN_WITHIN => Ok(Pinned::NotNow),
        Some(fault) => Ok(Pinned::Damaged(Error::damaged(format!("{}: {fault}", archive.path().shown())))),
    }
}
