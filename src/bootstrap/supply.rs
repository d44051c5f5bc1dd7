//! Supplies a reader with the archives of one candidate.
//!
//! The full archive is read while it arrives. The newest incremental one is then downloaded
//! completely before it is read: sources replace incremental archives every minute or so, and if
//! one vanished half-way, the restored full archive would be useless.

use slotpress_base::{Error, ErrorKind, Result};
use slotpress_format::ArchiveName;
use slotpress_net::Candidate;
use slotpress_read::Source;

use super::choose::ChosenArchive;
use super::next::{Attempt, Next, Reason, Selection};
use super::run::{ArchiveFault, Attempted, Finished, ObtainedArchive, World, record, remove, warn_of_last_failure};
use crate::restore::{Supplied, Supply};

pub struct ArchiveSupply<'r> {
    world: &'r mut dyn World,
    selection: &'r mut Selection,
    /// Archives that were the best at first.
    planned: Attempt,
    /// Archives that a failure concerns.
    trying: Attempt,
    obtained: Vec<ObtainedArchive>,
    /// Failure that ended the supply. It is recorded when the reader has closed the files.
    failed: Option<Box<ArchiveFault>>,
    /// True if that failure has been recorded, and another candidate is next.
    is_recorded: bool,
}

impl<'r> ArchiveSupply<'r> {
    /// Creates a supply of the candidate's full archive, and then of the newest incremental one on
    /// it. Removes partial files of other archives.
    pub fn new(world: &'r mut dyn World, selection: &'r mut Selection, candidate: &Candidate) -> Self {
        remove(world, selection, |name| candidate.offers().all(|offer| offer.name != *name));
        let mut planned = selection.choose_archives(candidate);
        planned.full = world.prefer_local_file(planned.full);
        planned.incremental = planned.incremental.map(|incremental| world.prefer_local_file(incremental));
        let trying = planned.clone();
        Self { world, selection, planned, trying, obtained: Vec::new(), failed: None, is_recorded: false }
    }

    /// Ends the supply with the reader's result. Stops a running download, and keeps its bytes.
    /// Returns `None` if another candidate is next.
    ///
    /// # Errors
    /// A failure ends the run.
    pub fn end<R>(mut self, result: Result<R>) -> Result<Option<Finished<R>>> {
        if let Some(download) = self.obtained.last().and_then(|last| last.download.as_ref()) {
            download.file.cancel();
        }
        let finished = self.finish_last();
        let error = match result {
            Ok(result) => {
                let slot = self.obtained.last().map(|newest| newest.choice.name.slot);
                let given_up = self.selection.given_up.take();
                let given_up = given_up.filter(|better| Some(better.slot) > slot);
                let archives = self.obtained.into_iter().map(|obtained| obtained.archive);
                return Ok(Some(Finished { result, archives: archives.collect(), given_up }));
            }
            Err(error) => error,
        };
        if error.kind() == ErrorKind::Damaged {
            self.mark_failed();
        }
        let swapped = self.obtained.iter().find(|obtained| obtained.is_swapped());
        let swapped = swapped.map(|swapped| Attempt { full: swapped.choice.clone(), incremental: None });
        // A partial file can be removed when nothing holds it.
        self.obtained.clear();
        if self.is_recorded {
            return Ok(None);
        }
        let failed = match (self.failed.take(), finished) {
            (Some(failed), _) => failed,
            // The download's failure says more than the reader's, unless the reader stopped the
            // download.
            (None, Err(failed)) if failed.error.kind() != ErrorKind::Interrupted => failed,
            (None, _) => {
                let reason = match error.kind() {
                    // For example, the state is one that only Firedancer loads.
                    ErrorKind::Unsupported => Some(Reason::Unusable(Vec::new())),
                    _ if swapped.is_some() => Some(Reason::Unusable(Vec::new())),
                    ErrorKind::Damaged => Some(Reason::Refused),
                    _ => None,
                };
                self.trying = swapped.unwrap_or(self.trying);
                Box::new(ArchiveFault { reason, error })
            }
        };
        record(self.world, self.selection, &self.trying, &failed)?;
        Ok(None)
    }

    /// Records in partial files that their content failed a check, so that the next run checks the
    /// kept bytes.
    fn mark_failed(&self) {
        for obtained in &self.obtained {
            if let Some(download) = &obtained.download
                && Source::path(&*download.file).exists()
            {
                // An error is ignored: at worst, the next run fails at the same bytes.
                let _ = download.file.distrust();
            }
        }
    }

    fn finish_last(&mut self) -> Attempted<()> {
        let Some(last) = self.obtained.last_mut() else { return Ok(()) };
        self.world.finish(last)?;
        if let Some(fetched) = &last.archive.fetched {
            let node = &mut self.selection.node;
            node.record_kept(&last.archive.name, fetched.length_bytes);
        }
        Ok(())
    }

    fn begin_full(&mut self) -> Attempted<ObtainedArchive> {
        // Trusted servers are asked before anything is downloaded.
        self.world.confirm(self.planned.newest())?;
        self.trying.incremental = None;
        self.world.begin(self.selection, &self.trying.full)
    }

    /// Fetches the newest incremental archive on the full one. Returns `None` if the full one is
    /// used alone.
    fn next_incremental(&mut self) -> Attempted<Option<ObtainedArchive>> {
        let full = self.trying.full.clone();
        let planned = self.planned.incremental.as_ref();
        let planned_slot = planned.map(|planned| planned.name.slot);
        let mut has_failed = false;
        while self.selection.ranking.wants_incremental_on(&full.name, &self.selection.node) {
            if std::mem::take(&mut self.selection.is_outdated) || !has_failed {
                self.world.look_for_newest(self.selection, &full)?;
            }
            let next = self.selection.next_on(&full, planned_slot, has_failed);
            if !has_failed && planned_slot.is_some() && !matches!(next, Next::Take(_)) {
                self.selection.record_lost(&self.planned);
            }
            let choice = match next {
                Next::Take(choice) => self.world.prefer_local_file(choice),
                Next::Alone => break,
                Next::Leave => {
                    self.is_recorded = true;
                    return Err(self.selection.last_error().into());
                }
            };
            warn_of_last_failure(self.world, self.selection, "");
            self.trying.incremental = Some(choice.clone());
            match self.try_incremental(&choice) {
                Ok(obtained) => return Ok(Some(obtained)),
                Err(failed) => record(self.world, self.selection, &self.trying, &failed)?,
            }
            self.trying.incremental = None;
            has_failed = true;
        }
        let name = &full.name;
        let alone = format!(": no incremental archive could be fetched; this is the state of {name}");
        warn_of_last_failure(self.world, self.selection, &alone);
        // The trusted servers were asked for the planned incremental archive, not for the full one.
        if planned_slot.is_some() {
            self.world.confirm(&full)?;
        }
        Ok(None)
    }

    fn try_incremental(&mut self, choice: &ChosenArchive) -> Attempted<ObtainedArchive> {
        if self.planned.newest().name != choice.name {
            let confirmed = self.world.confirm(choice);
            confirmed.map_err(|failed| explain_late(&choice.name, failed))?;
        }
        let full = &self.trying.full.name;
        let is_useless = |name: &ArchiveName| name != full && *name != choice.name;
        remove(self.world, self.selection, is_useless);
        let mut obtained = self.world.begin(self.selection, choice)?;
        self.world.finish(&mut obtained)?;
        Ok(obtained)
    }

    fn supply_next(&mut self) -> Attempted<Option<Supplied>> {
        self.finish_last()?;
        let obtained = match self.obtained.len() {
            0 => Some(self.begin_full()?),
            1 => self.next_incremental()?,
            _ => None,
        };
        let Some(obtained) = obtained else { return Ok(None) };
        let supplied = obtained.to_supplied();
        self.obtained.push(obtained);
        Ok(Some(supplied))
    }
}

/// Adds to the failure of an unconfirmed archive that the archive has appeared meanwhile.
fn explain_late(name: &ArchiveName, mut failed: Box<ArchiveFault>) -> Box<ArchiveFault> {
    if failed.reason.is_some() {
        let error = &failed.error;
        let message = format!("{name} has appeared meanwhile, and is left out: {error}");
        failed.error = Error::new(ErrorKind::Network, message);
    }
    failed
}

impl Supply for ArchiveSupply<'_> {
    fn next(&mut self) -> Result<Option<Supplied>> {
        self.supply_next().map_err(|failed| {
            let error = failed.error.clone();
            self.failed = Some(failed);
            error
        })
    }
}
