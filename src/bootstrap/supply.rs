//! Supplies a reader with the archives of one candidate.
//!
//! The full archive is read while it arrives. The newest incremental archive is then downloaded
//! completely before it is read: sources replace incremental archives every minute or so, and if the
//! download failed halfway, the restored full archive would be useless.

use slotpress_base::{Error, ErrorKind, Result};
use slotpress_format::ArchiveName;
use slotpress_net::Candidate;
use slotpress_read::Source;

use super::choose::ChosenArchive;
use super::next::{Attempt, FaultReason, NextStep, Selection};
use super::run::{
    ArchiveFault, FaultResult, FinishedRun, ObtainedArchive, World, record_fault, remove_partials, warn_of_last_failure,
};
use crate::restore::{SuppliedArchive, Supply};

pub struct ArchiveSupply<'r> {
    world: &'r mut dyn World,
    selection: &'r mut Selection,
    planned: Attempt,
    /// Archives that are being obtained or read. A failure concerns the newest of them.
    current: Attempt,
    obtained: Vec<ObtainedArchive>,
    /// Fault that ended the supply. [`end`](Self::end) records it, after the reader has closed the files.
    fault: Option<Box<ArchiveFault>>,
    /// True if the fault has been recorded, and another candidate is next.
    is_fault_recorded: bool,
}

impl<'r> ArchiveSupply<'r> {
    /// Creates a supply of the candidate's full archive and of the newest incremental archive on it.
    /// Removes partial files of other archives.
    pub fn new(world: &'r mut dyn World, selection: &'r mut Selection, candidate: &Candidate) -> Self {
        let is_other = |name: &ArchiveName| candidate.offers().all(|offer| offer.name != *name);
        remove_partials(world, selection, is_other);
        let Attempt { full, incremental } = selection.choose_archives(candidate);
        let planned = Attempt {
            full: world.prefer_local_file(full),
            incremental: incremental.map(|archive| world.prefer_local_file(archive)),
        };
        let current = planned.clone();
        Self { world, selection, planned, current, obtained: Vec::new(), fault: None, is_fault_recorded: false }
    }

    /// Ends the supply with the reader's result. Stops a running download, and keeps its bytes.
    /// Returns `None` if another candidate is next.
    ///
    /// # Errors
    /// The failure ends the run.
    pub fn end<R>(mut self, result: Result<R>) -> Result<Option<FinishedRun<R>>> {
        if let Some(download) = self.obtained.last().and_then(|last| last.download.as_ref()) {
            download.file.cancel();
        }
        let finished = self.finish_last();
        let error = match result {
            Ok(result) => {
                let slot = self.obtained.last().map(|newest| newest.choice.name.slot);
                let abandoned = self.selection.abandoned.take();
                let abandoned = abandoned.filter(|better| Some(better.slot) > slot);
                let archives = self.obtained.into_iter().map(|obtained| obtained.archive);
                return Ok(Some(FinishedRun { result, archives: archives.collect(), abandoned }));
            }
            Err(error) => error,
        };
        if error.kind() == ErrorKind::Damaged {
            self.distrust_partials();
        }
        let replaced = self.obtained.iter().find(|obtained| obtained.is_replaced());
        let replaced_attempt = replaced.map(|replaced| Attempt { full: replaced.choice.clone(), incremental: None });
        // A partial file can be removed only when nothing has it open.
        self.obtained.clear();
        if self.is_fault_recorded {
            return Ok(None);
        }
        let fault = match (self.fault.take(), finished) {
            (Some(fault), _) => fault,
            // The download's failure says more than the reader's, unless the reader stopped the
            // download.
            (None, Err(fault)) if fault.error.kind() != ErrorKind::Interrupted => fault,
            (None, _) => {
                let reason = match error.kind() {
                    // For example, only Firedancer loads the state.
                    ErrorKind::Unsupported => Some(FaultReason::Unusable(Vec::new())),
                    _ if replaced_attempt.is_some() => Some(FaultReason::Unusable(Vec::new())),
                    ErrorKind::Damaged => Some(FaultReason::Refused),
                    _ => None,
                };
                self.current = replaced_attempt.unwrap_or(self.current);
                Box::new(ArchiveFault { reason, error })
            }
        };
        record_fault(self.world, self.selection, &self.current, &fault)?;
        Ok(None)
    }

    /// Marks partial files as distrusted, so that the next run checks the kept bytes.
    fn distrust_partials(&self) {
        for obtained in &self.obtained {
            if let Some(download) = &obtained.download
                && Source::path(&*download.file).exists()
            {
                // An error is ignored: at worst, the next run fails at the same bytes.
                let _ = download.file.distrust();
            }
        }
    }

    fn finish_last(&mut self) -> FaultResult<()> {
        let Some(last) = self.obtained.last_mut() else { return Ok(()) };
        self.world.finish(last)?;
        if let Some(fetched) = &last.archive.fetched {
            let node = &mut self.selection.node;
            node.record_kept(&last.archive.name, fetched.file_bytes);
        }
        Ok(())
    }

    fn begin_full(&mut self) -> FaultResult<ObtainedArchive> {
        // Trusted servers are asked before anything is downloaded.
        self.world.confirm(self.planned.newest())?;
        self.current.incremental = None;
        self.world.begin(self.selection, &self.current.full)
    }

    /// Obtains the newest incremental archive on the full one. Returns `None` if the full archive is
    /// used alone.
    fn obtain_incremental(&mut self) -> FaultResult<Option<ObtainedArchive>> {
        let full = self.current.full.clone();
        let planned = self.planned.incremental.as_ref();
        let planned_slot = planned.map(|planned| planned.name.slot);
        let mut has_failed = false;
        while self.selection.wants_incremental_on(&full) {
            if std::mem::take(&mut self.selection.is_outdated) || !has_failed {
                self.world.find_incremental(self.selection, &full)?;
            }
            let next = self.selection.choose_next(&full, planned_slot, has_failed);
            if !has_failed && planned_slot.is_some() && !matches!(next, NextStep::Incremental(_)) {
                self.selection.record_vanished(&self.planned);
            }
            let choice = match next {
                NextStep::Incremental(choice) => self.world.prefer_local_file(choice),
                NextStep::FullAlone => break,
                NextStep::OtherFull => {
                    self.is_fault_recorded = true;
                    return Err(self.selection.last_error().into());
                }
            };
            warn_of_last_failure(self.world, self.selection, "");
            self.current.incremental = Some(choice.clone());
            match self.try_incremental(&choice) {
                Ok(obtained) => return Ok(Some(obtained)),
                Err(fault) => record_fault(self.world, self.selection, &self.current, &fault)?,
            }
            self.current.incremental = None;
            has_failed = true;
        }
        let name = &full.name;
        let consequence = format!(": no incremental archive could be fetched; this is the state of {name}");
        warn_of_last_failure(self.world, self.selection, &consequence);
        // The trusted servers were asked about the planned incremental archive, not about the full one.
        if planned_slot.is_some() {
            self.world.confirm(&full)?;
        }
        Ok(None)
    }

    fn try_incremental(&mut self, choice: &ChosenArchive) -> FaultResult<ObtainedArchive> {
        if self.planned.newest().name != choice.name
            && let Err(mut fault) = self.world.confirm(choice)
        {
            if fault.reason.is_some() {
                let name = &choice.name;
                let message = format!("{name} has appeared in the meantime, and is left out: {}", fault.error);
                fault.error = Error::new(ErrorKind::Network, message);
            }
            return Err(fault);
        }
        let full = &self.current.full.name;
        let is_unneeded = |name: &ArchiveName| name != full && *name != choice.name;
        remove_partials(self.world, self.selection, is_unneeded);
        let mut obtained = self.world.begin(self.selection, choice)?;
        self.world.finish(&mut obtained)?;
        Ok(obtained)
    }

    fn supply_next(&mut self) -> FaultResult<Option<SuppliedArchive>> {
        self.finish_last()?;
        let obtained = match self.obtained.len() {
            0 => Some(self.begin_full()?),
            1 => self.obtain_incremental()?,
            _ => None,
        };
        let Some(obtained) = obtained else { return Ok(None) };
        let supplied = obtained.to_supplied();
        self.obtained.push(obtained);
        Ok(Some(supplied))
    }
}

impl Supply for ArchiveSupply<'_> {
    fn next(&mut self) -> Result<Option<SuppliedArchive>> {
        self.supply_next().map_err(|fault| {
            let error = fault.error.clone();
            self.fault = Some(fault);
            error
        })
    }
}
