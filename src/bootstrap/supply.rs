//! Supplies a reader with archives. The full one is read while it arrives. The newest incremental one is then downloaded whole
//! before it is read: sources replace theirs every minute or so, and one that vanishes half-way would spoil what was restored of
//! the full archive.

use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use slotpress_base::threads::{panicked, spawn};
use slotpress_base::{Error, ErrorKind, Forward, Progress, ProgressEvent, Result};
use slotpress_net::{Candidate, Download, Fetched};
use slotpress_read::{Publishable, Source};

use super::choose::Choice;
use super::fetcher::{Done, Failed, Fetcher, NotObtained, ObtainedArchive, Stopped, input_only, names_of};
use super::next::{Asked, Happened, Step, Taken};
use super::trust::{Confirmed, Vouchers};
use crate::restore::{Supplied, Supply};

/// The thread of a download; also returns the time of its end.
type Fetching<'scope> = ScopedJoinHandle<'scope, (Result<Fetched>, Instant)>;

/// The archives of one candidate: the download of the full one in the background, and those supplied so far.
pub struct ArchiveSupply<'scope, 'env, 'g, 'a> {
    scope: &'scope Scope<'scope, 'env>,
    progress: &'env dyn Progress,
    fetcher: &'g mut Fetcher<'a>,
    full: Choice,
    planned: Option<Choice>,
    running: Option<(Arc<Download>, Fetching<'scope>)>,
    obtained: Vec<ObtainedArchive>,
    confirmed: Confirmed,
    /// Where it stopped; the inner `None` after a failure of which it is decided already what follows.
    stopped: Option<Option<Box<Stopped>>>,
    last_byte_at: Option<Instant>,
}

impl<'scope, 'env, 'g, 'a> ArchiveSupply<'scope, 'env, 'g, 'a> {
    /// Supplies the full archive of a candidate, and then the newest incremental one on it.
    pub fn new(
        scope: &'scope Scope<'scope, 'env>,
        fetcher: &'g mut Fetcher<'a>,
        candidate: &Candidate,
        progress: &'env dyn Progress,
    ) -> Self {
        fetcher.keep_only(&names_of(candidate));
        let (full, planned) = fetcher.left.choices(candidate);
        let (running, obtained, confirmed) = (None, Vec::new(), Confirmed::default());
        Self {
            scope,
            progress,
            fetcher,
            full,
            planned,
            running,
            obtained,
            confirmed,
            stopped: None,
            last_byte_at: None,
        }
    }

    /// Ends the running download, whose bytes are kept. Returns where it stopped, if it did.
    pub fn end<R>(mut self, result: Result<R>) -> Result<Done<R>, Option<Box<Stopped>>> {
        if let Some((download, _)) = &self.running {
            download.file().stop();
        }
        drop(self.finish_running());
        let error = match result {
            Ok(result) => {
                let slot = self.obtained.last().map(|newest| newest.taken.name.slot);
                let given_up = self.fetcher.left.given_up.take().filter(|better| Some(better.slot) > slot);
                let archives = self.obtained.into_iter().map(|obtained| obtained.archive).collect();
                let vouchers = Vouchers { is_expected: false, confirmed: self.confirmed };
                return Ok(Done { result, archives, vouchers, given_up, last_byte_at: self.last_byte_at });
            }
            Err(error) => error,
        };
        if error.kind() == ErrorKind::Damaged {
            self.mark_failed(&error.to_string());
        }
        // The failure of a download says more than that of its reader, unless the reader stopped it.
        match self.stopped.take() {
            Some(Some(stopped)) if stopped.error.kind() == ErrorKind::Interrupted => {}
            Some(stopped) => return Err(stopped),
            None => {}
        }
        let mut taken = self.obtained.iter().map(|obtained| &obtained.taken);
        let (full, incremental) = (taken.next().cloned(), taken.next().cloned());
        let swapped = self.obtained.iter().find(|obtained| obtained.is_swapped()).map(|swapped| swapped.taken.clone());
        let full = full.unwrap_or_else(|| self.fetcher.taken(&self.full));
        let (asked, happened) = match swapped {
            Some(full) => (Asked { full, incremental: None }, Happened::Unusable(Vec::new())),
            None if error.kind() == ErrorKind::Damaged => (Asked { full, incremental }, Happened::Refused),
            // Of Firedancer, for example: it would be so with any other archive.
            None if error.kind() == ErrorKind::Unsupported => {
                (Asked { full, incremental }, Happened::Unusable(Vec::new()))
            }
            None => (Asked { full, incremental }, Happened::Final),
        };
        Err(Some(Box::new(Stopped { asked, happened, error })))
    }

    /// Records that what was read failed a check, so that the next run checks the kept bytes.
    fn mark_failed(&self, why: &str) {
        let files =
            self.obtained.iter().filter_map(|obtained| obtained.download.as_ref()).map(|download| download.file());
        // A failure is ignored: the same bytes would only fail again.
        files.filter(|file| Source::path(&***file).exists()).for_each(|file| drop(file.check_failed(why)));
    }

    /// Waits for the download of the full archive. Where nobody does it later, the last archive gets its name.
    fn finish_running(&mut self) -> Result<()> {
        let Some(last) = self.obtained.last_mut() else { return Ok(()) };
        if let Some((download, thread)) = self.running.take() {
            let (result, at) =
                thread.join().unwrap_or_else(|payload| (Err(panicked(payload.as_ref())), Instant::now()));
            match result {
                Ok(fetched) => {
                    self.last_byte_at = Some(at);
                    self.fetcher.left.node.keeps(&last.archive.name, fetched.length_bytes);
                    (last.archive.root, last.archive.fetched) = (fetched.root, Some(fetched));
                }
                Err(error) => {
                    let failed = self.fetcher.failed_download(error, &download, &self.full, last.had_bytes);
                    let full = last.taken.clone();
                    return Err(self.stop(full, None, *failed));
                }
            }
        }
        match &last.download {
            Some(download) if self.fetcher.context.accepts_files && last.archive.path.is_none() => {
                last.archive.path = Some(download.file().publish(&last.archive.name.to_string())?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Notes where it stopped; returns the error.
    fn stop(&mut self, full: Taken, incremental: Option<Taken>, failed: Failed) -> Error {
        let Failed { happened, error } = failed;
        let asked = Asked { full, incremental };
        self.stopped = Some(Some(Box::new(Stopped { asked, happened, error: error.clone() })));
        error
    }

    fn begin_full(&mut self) -> Result<ObtainedArchive> {
        let (newest, progress) = (self.planned.as_ref().unwrap_or(&self.full), self.progress);
        // Before a byte is downloaded.
        self.confirmed = self.fetcher.context.trust.require(newest, progress)?;
        let obtained = self.fetcher.begin(&self.full).map_err(|not| self.stop(not.0, None, not.1))?;
        if let Some(download) = &obtained.download {
            let (running, is_shown) = (download.clone(), self.fetcher.context.accepts_files);
            if is_shown {
                progress.stage("Fetching", download.length_bytes());
                progress.advance(download.kept_bytes(), 0);
            }
            let shown = if is_shown { input_only } else { beside_restore };
            let run = move || (running.run(&Forward::new(progress, shown)), Instant::now());
            self.running = Some((download.clone(), spawn(self.scope, run)?));
        }
        Ok(obtained)
    }

    /// The newest incremental archive on the full one; `None` if the full one alone is the state.
    fn next_incremental(&mut self, full: &Taken) -> Result<Option<ObtainedArchive>> {
        let mut asked = self.planned.as_ref().map(|choice| self.fetcher.taken(choice));
        let is_planned = asked.is_some();
        let (mut asks_again, mut has_failed) = (true, false);
        while self.fetcher.left.wants_incremental(&full.name) {
            let answer = match asks_again {
                true => self.fetcher.ask_for_newest(full),
                false => Ok(self.fetcher.left.newest_on(full)),
            };
            let planned = Asked { full: full.clone(), incremental: asked.clone() };
            if let Ok(Some(choice)) = &answer
                && self.fetcher.left.is_beaten(choice, &planned, has_failed)
            {
                let what = format!("{} is not used any more; the next best is fetched", full.place);
                self.progress.warn(&what);
                self.stopped = Some(None);
                return Err(Error::new(ErrorKind::Network, what));
            }
            let failed = match answer {
                Ok(Some(choice)) => match self.try_incremental(full, &choice) {
                    Ok(obtained) => return Ok(Some(obtained)),
                    Err(not_obtained) => {
                        let (taken, failed) = *not_obtained;
                        asked = Some(taken);
                        failed
                    }
                },
                Err(error) if error.kind() != ErrorKind::Network => return Err(error),
                Err(error) if asked.is_none() => {
                    let slot = full.name.slot;
                    self.progress.warn(&format!("{error}: no incremental archive is known on that of slot {slot}"));
                    break;
                }
                Ok(None) if asked.is_none() => break,
                none => {
                    let vanished = format!("no source has an incremental archive on {} any more", full.place);
                    let error = none.err().unwrap_or_else(|| Error::new(ErrorKind::Network, vanished));
                    Failed { happened: Happened::Vanished, error }
                }
            };
            let Failed { happened, error } = failed;
            let is_vanished = happened == Happened::Vanished;
            let of = Asked { full: full.clone(), incremental: asked.clone() };
            let step = self.fetcher.follow(Stopped { asked: of, happened, error: error.clone() })?;
            asks_again = matches!(step, Step::AskAgain);
            has_failed = true;
            match step {
                Step::FullAlone => break,
                Step::WithoutBase | Step::NextArchive if is_vanished || !self.fetcher.left.is_best_on(&full.name) => {
                    self.stopped = Some(None);
                    return Err(error);
                }
                _ => {}
            }
        }
        // If another one was to come, no one was asked for the full one.
        if is_planned {
            self.confirmed = self.fetcher.context.trust.require(&self.full, self.progress)?;
        }
        Ok(None)
    }

    fn try_incremental(&mut self, full: &Taken, choice: &Choice) -> Result<ObtainedArchive, NotObtained> {
        let taken = self.fetcher.taken(choice);
        let is_confirmed = self.planned.as_ref().is_some_and(|planned| planned.name == choice.name);
        if !is_confirmed {
            let trust = &self.fetcher.context.trust;
            let confirmed = trust
                .confirm(choice, self.progress)
                .map_err(|error| Box::new((taken.clone(), Failed { happened: Happened::Final, error })))?;
            if !trust.is_enough(&confirmed) {
                let message = format!("{} has appeared meanwhile, and is left out: {}", choice.name, trust.too_few());
                let error = Error::new(ErrorKind::Network, message);
                return Err(Box::new((taken, Failed { happened: Happened::Unconfirmed, error })));
            }
            self.confirmed = confirmed;
        }
        self.fetcher.keep_only(&[&full.name, &choice.name]);
        let obtained = self.fetcher.fetch_whole(choice)?;
        if obtained.download.is_some() {
            self.last_byte_at = Some(Instant::now());
        }
        Ok(obtained)
    }
}

impl ArchiveSupply<'_, '_, '_, '_> {
    fn supply_next(&mut self) -> Result<Option<Supplied>> {
        self.finish_running()?;
        let full = self.obtained.first().map(|full| full.taken.clone());
        let obtained = match full {
            None => Some(self.begin_full()?),
            Some(full) if self.obtained.len() == 1 => self.next_incremental(&full)?,
            Some(_) => None,
        };
        let Some(obtained) = obtained else { return Ok(None) };
        let supplied = match (&obtained.download, &obtained.archive.path) {
            (Some(download), _) => {
                let (source, file): (Arc<dyn Source>, Arc<dyn Publishable>) =
                    (download.file().clone(), download.file().clone());
                Supplied::Arriving { source, name: Some(obtained.archive.name.clone()), file }
            }
            (None, Some(path)) => Supplied::File(path.clone()),
            (None, None) => return Err(Error::failed("an archive is nowhere")),
        };
        self.obtained.push(obtained);
        Ok(Some(supplied))
    }
}

impl Supply for ArchiveSupply<'_, '_, '_, '_> {
    fn next(&mut self) -> Result<Option<Supplied>> {
        let supplied = self.supply_next();
        match supplied {
            // What is no failure of an archive ends the run.
            Err(error) if self.stopped.is_none() => {
                let full = self.fetcher.taken(&self.full);
                Err(self.stop(full, None, Failed { happened: Happened::Final, error }))
            }
            supplied => supplied,
        }
    }
}

fn beside_restore(event: ProgressEvent<'_>) -> Option<ProgressEvent<'_>> {
    (!matches!(event, ProgressEvent::Bytes { .. })).then_some(event)
}
