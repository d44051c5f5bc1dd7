//! Supplies a restore with archives. The full one is read while it arrives. The newest incremental one is then downloaded whole
//! before it is read: sources replace theirs every minute or so, and one that vanishes half-way would spoil what was restored of
//! the full archive.

use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use slotpress_base::threads::{panicked, spawn};
use slotpress_base::{Elapsed, Error, Forward, Progress, ProgressEvent, Result};
use slotpress_net::{Download, Fetched};
use slotpress_read::{Publishable, Source};

use super::BootstrapReport;
use super::archives::FetchedArchive;
use super::fetcher::{ArchiveRequest, Fetcher, ObtainedArchive};
use super::trust::Vouchers;
use crate::restore::{RestoreReport, Supplied, Supply};

/// The thread of a download; also returns the time of its end.
type Fetching<'scope> = ScopedJoinHandle<'scope, (Result<Fetched>, Instant)>;

/// The download of the full archive in the background, and the archives supplied so far.
pub struct ArchiveSupply<'scope, 'env, 'g, 'a> {
    scope: &'scope Scope<'scope, 'env>,
    progress: &'env dyn Progress,
    fetcher: &'g mut Fetcher<'a>,
    running: Option<(Arc<Download>, Fetching<'scope>)>,
    pub obtained: Vec<ObtainedArchive>,
    /// The error of the full archive's download, if it failed.
    pub failure: Option<Error>,
    /// True after an error of the incremental archive or of the choice, which ends the run.
    pub is_final: bool,
    /// Time at which the last download was complete on disk.
    pub last_byte_at: Option<Instant>,
}

impl<'scope, 'env, 'g, 'a> ArchiveSupply<'scope, 'env, 'g, 'a> {
    /// Supplies the best full archive, and then the newest incremental one on it.
    pub fn new(scope: &'scope Scope<'scope, 'env>, fetcher: &'g mut Fetcher<'a>, progress: &'env dyn Progress) -> Self {
        let obtained = Vec::new();
        Self { scope, progress, fetcher, running: None, obtained, failure: None, is_final: false, last_byte_at: None }
    }

    /// Stops the running download, and waits for its end. Its bytes are kept.
    pub fn stop(&mut self) {
        if let Some((download, _)) = &self.running {
            download.file().stop();
        }
        drop(self.finish_running());
    }

    /// Records that the restored state failed a check, so that the next run checks the kept bytes.
    pub fn mark_failed(&self, why: &str) {
        let files =
            self.obtained.iter().filter_map(|obtained| obtained.download.as_ref()).map(|download| download.file());
        // A failure is ignored: the same bytes would only fail again.
        files.filter(|file| Source::path(&***file).exists()).for_each(|file| drop(file.check_failed(why)));
    }

    fn finish_running(&mut self) -> Result<()> {
        let Some((_, thread)) = self.running.take() else { return Ok(()) };
        let (result, at) = thread.join().unwrap_or_else(|payload| (Err(panicked(payload.as_ref())), Instant::now()));
        match result {
            Ok(fetched) => {
                self.last_byte_at = Some(at);
                if let Some(full) = self.obtained.last_mut() {
                    (full.archive.root, full.archive.fetched) = (fetched.root, Some(fetched));
                }
                Ok(())
            }
            Err(error) => {
                self.failure = Some(error.clone());
                Err(error)
            }
        }
    }

    pub fn into_report(self, restore: RestoreReport, is_expected: bool) -> BootstrapReport {
        // The newest archive is the state.
        let servers = self.obtained.last().map(|obtained| obtained.vouching.clone()).unwrap_or_default();
        let archives = self.obtained.into_iter().map(|obtained| FetchedArchive { path: None, ..obtained.archive });
        BootstrapReport {
            after_last_byte: self.last_byte_at.map(|at| at.elapsed()),
            restore,
            archives: archives.collect(),
            vouchers: Vouchers { is_expected, servers },
            genesis_hash: None,
            elapsed: Elapsed::default(),
        }
    }

    fn begin_full(&mut self) -> Result<Option<ObtainedArchive>> {
        let begun = self.fetcher.begin(ArchiveRequest::Full);
        if let Ok(Some(ObtainedArchive { download: Some(download), .. })) = &begun {
            let (running, progress) = (download.clone(), self.progress);
            let run = move || (running.run(&Forward::new(progress, beside_restore)), Instant::now());
            self.running = Some((download.clone(), spawn(self.scope, run)?));
        }
        begun.inspect_err(|error| match self.fetcher.has_asked() {
            true => self.failure = Some(error.clone()),
            false => self.is_final = true,
        })
    }

    fn next_incremental(&mut self) -> Result<Option<ObtainedArchive>> {
        let Some(full) = self.obtained.first().filter(|_| self.obtained.len() == 1) else { return Ok(None) };
        let obtained = self.fetcher.incremental_on(full).inspect_err(|_| self.is_final = true)?;
        if obtained.as_ref().is_some_and(|obtained| obtained.download.is_some()) {
            self.last_byte_at = Some(Instant::now());
        }
        Ok(obtained)
    }
}

impl Supply for ArchiveSupply<'_, '_, '_, '_> {
    fn next(&mut self) -> Result<Option<Supplied>> {
        self.finish_running()?;
        let obtained = if self.obtained.is_empty() { self.begin_full()? } else { self.next_incremental()? };
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

fn beside_restore(event: ProgressEvent<'_>) -> Option<ProgressEvent<'_>> {
    (!matches!(event, ProgressEvent::Bytes { .. })).then_some(event)
}
