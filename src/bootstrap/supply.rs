//! Supplies a reader with the archives of one candidate.
//!
//! The full archive is read while it arrives. The newest incremental one is then downloaded
//! completely before it is read: sources replace incremental archives every minute or so, and if
//! one vanished half-way, the restored full archive would be useless.

use slotpress_base::{Error, ErrorKind, Result};
use slotpress_net::Candidate;
use slotpress_read::Source;

use super::choose::ChosenArchive;
use super::next::{Asked, Happened, Left, Step, Taken};
use super::run::{Done, Failed, ObtainedArchive, World, follow, remove};
use crate::restore::{Supplied, Supply};

/// Why a supply stopped.
#[derive(Clone, Debug)]
pub enum Stop {
    /// An archive failed.
    Failed(Box<Asked>, Box<Failed>),
    /// The failure has been recorded already, and the next step has been decided.
    Decided(Error),
}

impl Stop {
    fn of(asked: Asked, failed: Box<Failed>) -> Self {
        Self::Failed(Box::new(asked), failed)
    }

    fn error(&self) -> &Error {
        match self {
            Self::Failed(_, failed) => &failed.error,
            Self::Decided(error) => error,
        }
    }
}

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
        Self { world, left, full, planned, obtained: Vec::new(), stopped: None }
    }

    /// Ends the supply with the reader's result. Stops a running download, and keeps its bytes.
    ///
    /// # Errors
    /// The reader or a download failed.
    pub fn end<R>(mut self, result: Result<R>) -> Result<Done<R>, Stop> {
        if let Some(download) = self.obtained.last().and_then(|last| last.download.as_ref()) {
            download.file().stop();
        }
        if let Err(stop) = self.finish_last() {
            self.stopped = Some(stop);
        }
        let error = match result {
            Ok(result) => {
                let slot = self.obtained.last().map(|newest| newest.taken.name.slot);
                let given_up = self.left.given_up.take().filter(|better| Some(better.slot) > slot);
                let archives = self.obtained.into_iter().map(|obtained| obtained.archive).collect();
                return Ok(Done { result, archives, given_up });
            }
            Err(error) => error,
        };
        if error.kind() == ErrorKind::Damaged {
            self.mark_failed();
        }
        // The download's failure says more than the reader's, unless the reader stopped the
        // download.
        match self.stopped.take() {
            Some(Stop::Failed(_, failed)) if failed.error.kind() == ErrorKind::Interrupted => {}
            Some(stop) => return Err(stop),
            None => {}
        }
        let swapped = self.obtained.iter().find(|obtained| obtained.is_swapped()).map(|swapped| swapped.taken.clone());
        let mut taken = self.obtained.into_iter().map(|obtained| obtained.taken);
        let (full, incremental) = (taken.next(), taken.next());
        let asked = Asked { full: full.unwrap_or_else(|| self.world.taken(&self.full)), incremental };
        let (asked, happened) = match (swapped, error.kind()) {
            (Some(full), _) => (Asked { full, incremental: None }, Happened::Unusable(Vec::new())),
            (None, ErrorKind::Damaged) => (asked, Happened::Refused),
            // For example, the state is one that only Firedancer loads.
            (None, ErrorKind::Unsupported) => (asked, Happened::Unusable(Vec::new())),
            (None, _) => (asked, Happened::Final),
        };
        Err(Stop::of(asked, Box::new(Failed { happened, error })))
    }

    /// Records in partial files that their content failed a check, so that the next run checks the
    /// kept bytes.
    fn mark_failed(&self) {
        let downloads = self.obtained.iter().filter_map(|obtained| obtained.download.as_ref());
        let files = downloads.map(|download| download.file());
        // An error is ignored: at worst, the next run fails at the same bytes.
        files.filter(|file| Source::path(&***file).exists()).for_each(|file| drop(file.distrust()));
    }

    /// Waits for the download of the last archive.
    fn finish_last(&mut self) -> Result<(), Stop> {
        let Some(last) = self.obtained.last_mut() else { return Ok(()) };
        let asked = Asked { full: last.taken.clone(), incremental: None };
        self.world.finish(last).map_err(|failed| Stop::of(asked, failed))?;
        if let Some(fetched) = &last.archive.fetched {
            self.left.node.keeps(&last.archive.name, fetched.length_bytes);
        }
        Ok(())
    }

    fn begin_full(&mut self) -> Result<ObtainedArchive, Stop> {
        let mut taken = self.world.taken(&self.full);
        let planned = self.planned.as_ref().map(|choice| self.world.taken(choice));
        // Asks trusted servers before anything is downloaded.
        self.require_confirmed(Asked { full: taken.clone(), incremental: planned })?;
        let begun = self.world.begin(self.left, &self.full, &mut taken, false);
        begun.map_err(|failed| Stop::of(Asked { full: taken, incremental: None }, failed))
    }

    fn require_confirmed(&mut self, asked: Asked) -> Result<(), Stop> {
        let choice = self.planned.as_ref().filter(|_| asked.incremental.is_some()).unwrap_or(&self.full);
        let failed = match self.world.confirm(choice) {
            Ok(None) => return Ok(()),
            Ok(Some(error)) => Box::new(Failed { happened: Happened::Unconfirmed, error }),
            Err(error) => error.into(),
        };
        Err(Stop::of(asked, failed))
    }

    /// Wraps an error that ends the run, since it is not an archive's fault.
    fn ended(&self, error: Error) -> Stop {
        Stop::of(Asked { full: self.world.taken(&self.full), incremental: None }, error.into())
    }

    /// Fetches the newest incremental archive on the full one. Returns `None` if the full one is
    /// used alone.
    fn next_incremental(&mut self, full: &Taken) -> Result<Option<ObtainedArchive>, Stop> {
        let planned = self.planned.as_ref().map(|choice| self.world.taken(choice));
        let is_planned = planned.is_some();
        let mut asked = Asked { full: full.clone(), incremental: planned };
        let (mut asks_again, mut has_failed) = (true, false);
        while self.left.wants_incremental(&full.name) {
            let answer = if asks_again { self.world.look_for_newest(self.left, full) } else { Ok(()) };
            let silent = match answer {
                Err(error) if error.kind() != ErrorKind::Network => return Err(self.ended(error)),
                answer => answer.err(),
            };
            let failed = match (self.left.newest_on(full), silent) {
                (Some(choice), _) if self.left.is_beaten(&choice, &asked, has_failed) => {
                    let what = format!("{} is not used any more; the next best is fetched", full.place);
                    self.world.progress().warn(&what);
                    return Err(Stop::Decided(Error::new(ErrorKind::Network, what)));
                }
                (Some(choice), _) => match self.try_incremental(&choice, &mut asked) {
                    Ok(obtained) => return Ok(Some(obtained)),
                    Err(failed) => failed,
                },
                (None, silent) if asked.incremental.is_none() => {
                    if let Some(error) = silent {
                        let slot = full.name.slot;
                        let what = format!("{error}: no incremental archive on slot {slot} is known");
                        self.world.progress().warn(&what);
                    }
                    break;
                }
                (None, silent) => {
                    let vanished = format!("no source has an incremental archive on {} any more", full.place);
                    let error = silent.unwrap_or_else(|| Error::new(ErrorKind::Network, vanished));
                    Box::new(Failed { happened: Happened::Vanished, error })
                }
            };
            let step = follow(self.world, self.left, &asked, &failed).map_err(|error| self.ended(error))?;
            (asks_again, has_failed) = (matches!(step, Step::AskAgain), true);
            let is_over = failed.happened == Happened::Vanished || !self.left.is_best_on(full);
            match step {
                Step::FullAlone => break,
                Step::WithoutBase | Step::NextArchive if is_over => return Err(Stop::Decided(failed.error)),
                _ => {}
            }
        }
        // The trusted servers were asked for the planned incremental archive, not for the full one.
        if is_planned {
            self.require_confirmed(Asked { full: full.clone(), incremental: None })?;
        }
        Ok(None)
    }

    fn try_incremental(&mut self, choice: &ChosenArchive, asked: &mut Asked) -> Result<ObtainedArchive, Box<Failed>> {
        let taken = asked.incremental.insert(self.world.taken(choice));
        let is_confirmed = self.planned.as_ref().is_some_and(|planned| planned.name == choice.name);
        if !is_confirmed && let Some(too_few) = self.world.confirm(choice)? {
            let message = format!("{} has appeared meanwhile, and is left out: {too_few}", choice.name);
            let error = Error::new(ErrorKind::Network, message);
            return Err(Box::new(Failed { happened: Happened::Unconfirmed, error }));
        }
        let full = &asked.full.name;
        remove(self.world, self.left, |name| name != full && *name != choice.name);
        let mut obtained = self.world.begin(self.left, choice, taken, true)?;
        self.world.finish(&mut obtained)?;
        Ok(obtained)
    }

    fn supply_next(&mut self) -> Result<Option<Supplied>, Stop> {
        self.finish_last()?;
        let full = self.obtained.first().map(|full| full.taken.clone());
        let obtained = match full {
            None => Some(self.begin_full()?),
            Some(full) if self.obtained.len() == 1 => self.next_incremental(&full)?,
            Some(_) => None,
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
            let error = stop.error().clone();
            self.stopped = Some(stop);
            error
        })
    }
}
