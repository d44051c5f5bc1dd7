//! Supplies a reader with the archives of one candidate.
//!
//! The full archive is read while it arrives. The newest incremental one is then downloaded
//! completely before it is read: sources replace incremental archives every minute or so, and if
//! one vanished half-way, the restored full archive would be useless.

use slotpress_base::{Error, ErrorKind, Result};
use slotpress_net::Candidate;
use slotpress_read::Source;

use super::choose::ChosenArchive;
use super::next::{Attempt, Left, On, Reason};
use super::run::{Done, Failed, ObtainedArchive, World, record, remove, tell};
use crate::restore::{Supplied, Supply};

/// Why a supply stops: a failure to be recorded when the reader has let go of the files; `None` if all
/// is recorded, and another candidate is next.
type Stop = Option<Box<(Attempt, Failed)>>;

/// Supply of the archives of one candidate.
pub struct ArchiveSupply<'r> {
    world: &'r mut dyn World,
    left: &'r mut Left,
    full: ChosenArchive,
    /// The incremental archive that was the newest at first.
    planned: Option<ChosenArchive>,
    /// Archives supplied so far.
    obtained: Vec<ObtainedArchive>,
    stopped: Option<Stop>,
}

impl<'r> ArchiveSupply<'r> {
    /// Creates a supply of the candidate's full archive, and then of the newest incremental one on
    /// it. Removes partial files of other archives.
    pub fn new(world: &'r mut dyn World, left: &'r mut Left, candidate: &Candidate) -> Self {
        remove(world, left, |name| !candidate.offers().any(|offer| offer.name == *name));
        let (full, planned) = left.choices(candidate);
        let (full, planned) = (world.placed(full), planned.map(|planned| world.placed(planned)));
        Self { world, left, full, planned, obtained: Vec::new(), stopped: None }
    }

    /// Ends the supply with the reader's result. Stops a running download, and keeps its bytes.
    /// Returns `None` if another candidate is next.
    ///
    /// # Errors
    /// A failure ends the run.
    pub fn end<R>(mut self, result: Result<R>) -> Result<Option<Done<R>>> {
        if let Some(download) = self.obtained.last().and_then(|last| last.download.as_ref()) {
            download.file().stop();
        }
        let finished = self.finish_last();
        let error = match result {
            Ok(result) => {
                let slot = self.obtained.last().map(|newest| newest.choice.name.slot);
                let given_up = self.left.given_up.take().filter(|better| Some(better.slot) > slot);
                let archives = self.obtained.into_iter().map(|obtained| obtained.archive).collect();
                return Ok(Some(Done { result, archives, given_up }));
            }
            Err(error) => error,
        };
        if error.kind() == ErrorKind::Damaged {
            self.mark_failed();
        }
        let swapped = self.obtained.iter().find(|obtained| obtained.is_swapped());
        let reason = match error.kind() {
            // For example, the state is one that only Firedancer loads.
            _ if swapped.is_some() => Some(Reason::Unusable(Vec::new())),
            ErrorKind::Unsupported => Some(Reason::Unusable(Vec::new())),
            ErrorKind::Damaged => Some(Reason::Refused),
            _ => None,
        };
        let full = swapped.map_or(&self.full, |swapped| &swapped.choice).clone();
        let incremental = self.obtained.get(1).filter(|_| swapped.is_none()).map(|newest| newest.choice.clone());
        // A partial file can be removed when nothing holds it.
        drop(self.obtained);
        let stop = match (self.stopped, finished) {
            (Some(stop), _) => stop,
            // The download's failure says more than the reader's, unless the reader stopped the
            // download.
            (None, Err(failed)) if failed.error.kind() != ErrorKind::Interrupted => {
                Some(Box::new((Attempt::of_full(self.full), *failed)))
            }
            (None, _) => Some(Box::new((Attempt { full, incremental }, Failed { reason, error }))),
        };
        if let Some(stop) = stop {
            record(self.world, self.left, &stop.0, &stop.1)?;
        }
        Ok(None)
    }

    /// Records in partial files that their content failed a check, so that the next run checks the
    /// kept bytes.
    fn mark_failed(&self) {
        let downloads = self.obtained.iter().filter_map(|obtained| obtained.download.as_ref());
        let files = downloads.map(|download| download.file());
        // An error is ignored: at worst, the next run fails at the same bytes.
        files.filter(|file| Source::path(&***file).exists()).for_each(|file| drop(file.distrust()));
    }

    /// Ends the run with an error, which is no archive's fault.
    fn ended(&self, error: Error) -> Stop {
        Some(Box::new((Attempt::of_full(self.full.clone()), Failed { reason: None, error })))
    }

    /// Waits for the download of the last archive.
    fn finish_last(&mut self) -> Result<(), Box<Failed>> {
        let Some(last) = self.obtained.last_mut() else { return Ok(()) };
        self.world.finish(last)?;
        if let Some(fetched) = &last.archive.fetched {
            self.left.node.keeps(&last.archive.name, fetched.length_bytes);
        }
        Ok(())
    }

    fn begin_full(&mut self) -> Result<ObtainedArchive, Stop> {
        let planned = Attempt { full: self.full.clone(), incremental: self.planned.clone() };
        // Asks trusted servers before anything is downloaded.
        self.require_confirmed(&planned)?;
        match self.world.begin(self.left, &self.full, false) {
            Ok(obtained) => Ok(obtained),
            Err(failed) => Err(Some(Box::new((Attempt::of_full(planned.full), *failed)))),
        }
    }

    fn require_confirmed(&mut self, tried: &Attempt) -> Result<(), Stop> {
        let reason = Some(Reason::Unconfirmed);
        match self.world.confirm(tried.newest()).map_err(|error| self.ended(error))? {
            None => Ok(()),
            Some(error) => Err(Some(Box::new((tried.clone(), Failed { reason, error })))),
        }
    }

    /// Fetches the newest incremental archive on the full one. Returns `None` if the full one is
    /// used alone.
    fn next_incremental(&mut self) -> Result<Option<ObtainedArchive>, Stop> {
        let full = self.full.clone();
        let (planned_slot, mut has_failed) = (self.planned.as_ref().map(|planned| planned.name.slot), false);
        while self.left.wants_incremental(&full.name) {
            if std::mem::take(&mut self.left.is_outdated) || !has_failed {
                self.world.look_for_newest(self.left, &full).map_err(|error| self.ended(error))?;
            }
            let on = self.left.on(&full, planned_slot, has_failed);
            if !has_failed
                && !matches!(on, On::Take(_))
                && let Some(planned) = &self.planned
            {
                self.left.record_lost(&Attempt { full: full.clone(), incremental: Some(planned.clone()) });
            }
            let choice = match on {
                On::Take(choice) => self.world.placed(choice),
                On::Alone => break,
                On::Leave => return Err(None),
            };
            tell(self.world, self.left, "");
            match self.try_incremental(&choice) {
                Ok(obtained) => return Ok(Some(obtained)),
                Err(failed) => {
                    let tried = Attempt { full: full.clone(), incremental: Some(choice) };
                    record(self.world, self.left, &tried, &failed).map_err(|error| self.ended(error))?;
                    has_failed = true;
                }
            }
        }
        let alone = format!(": no incremental archive could be fetched; this is the state of {}", full.name);
        tell(self.world, self.left, &alone);
        // The trusted servers were asked for the planned incremental archive, not for the full one.
        if self.planned.is_some() {
            self.require_confirmed(&Attempt::of_full(full))?;
        }
        Ok(None)
    }

    fn try_incremental(&mut self, choice: &ChosenArchive) -> Result<ObtainedArchive, Box<Failed>> {
        let is_confirmed = self.planned.as_ref().is_some_and(|planned| planned.name == choice.name);
        if !is_confirmed && let Some(too_few) = self.world.confirm(choice)? {
            let message = format!("{} has appeared meanwhile, and is left out: {too_few}", choice.name);
            let error = Error::new(ErrorKind::Network, message);
            return Err(Box::new(Failed { reason: Some(Reason::Unconfirmed), error }));
        }
        let full = &self.full.name;
        remove(self.world, self.left, |name| name != full && *name != choice.name);
        let mut obtained = self.world.begin(self.left, choice, true)?;
        self.world.finish(&mut obtained)?;
        Ok(obtained)
    }

    fn supply_next(&mut self) -> Result<Option<Supplied>, Stop> {
        self.finish_last().map_err(|failed| Some(Box::new((Attempt::of_full(self.full.clone()), *failed))))?;
        let obtained = match self.obtained.len() {
            0 => Some(self.begin_full()?),
            1 => self.next_incremental()?,
            _ => None,
        };
        let Some(obtained) = obtained else { return Ok(None) };
        let supplied = obtained.supplied().map_err(|error| self.ended(error))?;
        self.obtained.push(obtained);
        Ok(Some(supplied))
    }
}

impl Supply for ArchiveSupply<'_> {
    fn next(&mut self) -> Result<Option<Supplied>> {
        self.supply_next().map_err(|stop| {
            let error = stop.as_ref().map_or_else(|| self.left.last_error(), |stop| stop.1.error.clone());
            self.stopped = Some(stop);
            error
        })
    }
}
