//! One download, from its beginning to its end: what an earlier run left is looked at, what is missing is fetched, by
//! ranges or in order, and all of it is walked while it arrives and accepted, or not.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rangemap::RangeSet;
use slotpress_base::quantity::bytes;
use slotpress_base::threads::{guarded, panicked, spawn};
use slotpress_base::{Error, ErrorKind, Progress, ProgressEvent, Result, panic_point, range_bytes};
use slotpress_read::walk_shape;

use super::accept::{Accepted, Wanted, accept};
use super::journal::Identity;
use super::mirrors::Mirror;
use super::partial::{PartialFile, Patient};
use super::{Ended, Fetched, GivenBytes, Limits, in_order, ranged};
use crate::{Client, Remote};

/// How often the journal is written while bytes come, at least: what a killed run fetched since is fetched again.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// How often the rate is looked at, and over how long.
const RATE_WINDOW: Duration = Duration::from_secs(15);

/// Of a file whose server does not say whether it has changed, so much is compared at each of so many places.
const SAMPLE_BYTES: u64 = 64 * 1024;
const SAMPLES_MAX: usize = 8;

/// One archive, and the servers that have it under its name, the best first.
#[derive(Debug)]
pub struct Download {
    client: Client,
    file: Arc<PartialFile>,
    mirrors: Vec<Mirror>,
    limits: Limits,
    kept_bytes: u64,
}

impl Download {
    /// Looks at what an earlier run left: it is kept where it is of the archive that the first of the servers has.
    ///
    /// # Errors
    /// The archive is too long, there is no room for it, or the network fails.
    pub fn begin(
        client: Client,
        file: Arc<PartialFile>,
        remotes: Vec<Remote>,
        limits: Limits,
        progress: &dyn Progress,
    ) -> Result<Self, Ended> {
        let Some(first) = remotes.first() else {
            return Err(Ended::Failed(Error::failed("no server to fetch from")));
        };
        if let Some(length_bytes) = first.length_bytes.filter(|length| *length > limits.max_bytes) {
            let error = in_order::too_long(limits.max_bytes);
            return Err(Ended::Lost(error.within(bytes(length_bytes))));
        }
        let before = file.identity();
        let now = Identity {
            length_bytes: first.length_bytes,
            etag: first.etag.clone(),
            last_modified: first.last_modified.clone(),
            root: None,
        };
        let keeps = match (file.done_bytes() > 0, before.may_be(&now), first.accepts_ranges) {
            (false, ..) | (_, false, _) => false,
            // What comes is compared with all of it.
            (true, true, false) => true,
            (true, true, true) => before.is_surely(&now) || is_same(&client, &file, first, &limits, progress)?,
        };
        let lost_bytes = if keeps { 0 } else { file.done_bytes() };
        if lost_bytes > 0 {
            progress.warn(&format!(
                "discarding {} of an earlier download: the server now has another archive of the same name",
                bytes(lost_bytes)
            ));
        }
        // What comes in order is not compared with hashes before all of it is there.
        let root = before.root.filter(|_| keeps && is_ranged(first));
        file.begin(Identity { root, ..now }, keeps).map_err(Ended::Failed)?;
        let (left, failed_check) = file.unchecked();
        let kept_bytes =
            if failed_check.is_none() { left.iter().map(range_bytes).fold(0, u64::saturating_add) } else { 0 };
        if !is_ranged(first) {
            file.set_in_order();
            // What comes is compared with all of it.
            file.keep_checked(left);
        }
        let mirrors = remotes.into_iter().map(|remote| Mirror::new(remote, limits.give_up_after)).collect();
        Ok(Self { client, file, mirrors, limits, kept_bytes })
    }

    /// Bytes that an earlier run left and that are not fetched again.
    pub fn kept_bytes(&self) -> u64 {
        match self.mirrors.first() {
            Some(first) if is_ranged(&first.remote) => self.kept_bytes,
            _ => 0,
        }
    }

    /// The archive's length, where the server says it.
    pub fn length_bytes(&self) -> Option<u64> {
        self.mirrors.first()?.remote.length_bytes
    }

    /// Fetches what is missing. However it ends, readers of the file are told, and what has arrived is on disk, with a
    /// journal that says so.
    pub fn run(&self, progress: &dyn Progress) -> Result<Fetched, Ended> {
        // Readers wait until they are told how it ended, even by a panic.
        let result = guarded_ended(|| self.run_to_end(progress));
        self.file.end(result.as_ref().map(drop).map_err(Ended::error));
        result
    }

    fn run_to_end(&self, progress: &dyn Progress) -> Result<Fetched, Ended> {
        panic_point("download");
        let started = Instant::now();
        let is_over = AtomicBool::new(false);
        let stopping =
            Stopping { progress, file: &self.file, too_slow: AtomicBool::new(false), damage: OnceLock::new() };
        let result = std::thread::scope(|scope| {
            let clerk = spawn(scope, || guarded(|| self.keep_journal(&is_over, &stopping.too_slow)));
            // Right behind what arrives, while it is in memory.
            let walker = spawn(scope, || {
                let walked = guarded(|| walk_shape(&Patient(&self.file), &stopping));
                if let Err(error) = &walked
                    && error.kind() == ErrorKind::Damaged
                {
                    drop(stopping.damage.set(error.clone()));
                }
                walked
            });
            let fetched = guarded_ended(|| self.fetch(&stopping));
            is_over.store(true, Relaxed);
            if let Ok(clerk) = &clerk {
                clerk.thread().unpark();
            }
            // Who reads to the end waits until it is told that this is it.
            self.file.end(fetched.as_ref().map(drop).map_err(Ended::error));
            let kept = clerk.and_then(|clerk| clerk.join().unwrap_or_else(|payload| Err(panicked(payload.as_ref()))));
            let walked =
                walker.and_then(|walker| walker.join().unwrap_or_else(|payload| Err(panicked(payload.as_ref()))));
            let compared = fetched?;
            kept.map_err(Ended::Failed)?;
            let shape = walked.map_err(|error| match error.kind() {
                // It waited for bytes when its reader ended with an error of its own, which says more.
                ErrorKind::Failed if self.file.is_unwanted() => Ended::Failed(Error::interrupted()),
                _ => Ended::of_check(error),
            })?;
            let wanted = Wanted { name: self.file.archive_name(), root: self.limits.expect_root };
            accept(&*self.file, &shape, wanted, &compared, progress).map_err(Ended::of_check)
        });
        let result = match (result, stopping.damage.into_inner()) {
            (Err(Ended::Failed(_)), Some(damage)) => Err(Ended::Wrong(damage)),
            (Err(_), _) if stopping.too_slow.load(Relaxed) => {
                let rate = bytes(self.limits.min_rate_bytes_per_second.unwrap_or_default());
                let message = format!("slower than the least rate, {rate}/s, for {} s", RATE_WINDOW.as_secs());
                Err(Ended::Failed(Error::new(ErrorKind::Network, message)))
            }
            (other, _) => other,
        };
        let synced = match &result {
            Err(Ended::Wrong(error)) => self.file.check_failed(&error.to_string()),
            _ => self.file.sync(),
        };
        let accepted: Accepted = match (result, synced) {
            (Ok(_), Err(error)) => return Err(Ended::Failed(error)),
            (result, _) => result?,
        };
        self.file.accept(accepted);
        Ok(Fetched {
            length_bytes: self.file.done_bytes(),
            kept_bytes: self.kept_bytes(),
            root: accepted.root,
            servers: self.given().into_iter().filter(|given| given.bytes > 0).collect(),
            elapsed: started.elapsed(),
        })
    }

    /// Fetches all of it; returns what was compared with frame hashes.
    fn fetch(&self, progress: &dyn Progress) -> Result<RangeSet<u64>, Ended> {
        let Some(first) = self.mirrors.first() else {
            return Err(Ended::Failed(Error::failed("no server to fetch from")));
        };
        match first.remote.length_bytes {
            Some(length_bytes) if is_ranged(&first.remote) => {
                ranged::fetch_ranges(&self.client, &self.file, &self.mirrors, length_bytes, &self.limits, progress)
            }
            _ => {
                in_order::fetch_in_order(&self.client, &self.file, first, &self.limits, progress)?;
                Ok(RangeSet::new())
            }
        }
    }

    /// Syncs and writes the journal, every second or when much has come, and watches the rate.
    fn keep_journal(&self, is_over: &AtomicBool, too_slow: &AtomicBool) -> Result<()> {
        let (mut synced, mut window) = (Instant::now(), Instant::now());
        let mut bytes_before = self.given_bytes();
        // What is not in the journal is fetched again after a kill: no more than about one request of each connection.
        let piece_bytes = ranged::piece_bytes(self.length_bytes().unwrap_or_default(), &self.limits);
        let unsynced_max = piece_bytes.saturating_mul(self.limits.streams as u64) / 2;
        loop {
            panic_point("journal");
            if is_over.load(Relaxed) {
                return Ok(());
            }
            std::thread::park_timeout(Duration::from_millis(20));
            let unsynced_bytes = self.file.unsynced_bytes();
            if unsynced_bytes >= unsynced_max || (synced.elapsed() >= SYNC_EVERY && unsynced_bytes > 0) {
                self.file.sync()?;
                synced = Instant::now();
            }
            if let Some(min_rate) = self.limits.min_rate_bytes_per_second
                && window.elapsed() >= RATE_WINDOW
            {
                let bytes = self.given_bytes();
                if (bytes.saturating_sub(bytes_before) as f64) < min_rate as f64 * window.elapsed().as_secs_f64() {
                    too_slow.store(true, Relaxed);
                }
                (bytes_before, window) = (bytes, Instant::now());
            }
        }
    }

    /// Bytes of servers that were kept.
    pub fn given_bytes(&self) -> u64 {
        self.mirrors.iter().map(Mirror::given_bytes).sum()
    }

    /// The same by server.
    pub fn given(&self) -> Vec<GivenBytes> {
        let given = |mirror: &Mirror| GivenBytes { server: mirror.shown(), bytes: mirror.given_bytes() };
        self.mirrors.iter().map(given).collect()
    }

    /// Servers whose bytes failed a check.
    pub fn rejected(&self) -> Vec<String> {
        self.mirrors.iter().filter(|mirror| mirror.is_wrong()).map(Mirror::shown).collect()
    }
}

/// Whether ranges of it can be fetched.
fn is_ranged(remote: &Remote) -> bool {
    remote.accepts_ranges && remote.length_bytes.is_some_and(|length| length > 0)
}

fn guarded_ended<R>(work: impl FnOnce() -> Result<R, Ended>) -> Result<R, Ended> {
    let mut ended = None;
    let result = guarded(|| {
        work().map_err(|why| {
            let error = why.error();
            ended = Some(why);
            error
        })
    });
    result.map_err(|error| ended.unwrap_or(Ended::Failed(error)))
}

/// Whether what is there is what a server has that does not say whether its file has changed: samples are compared.
fn is_same(
    client: &Client,
    file: &PartialFile,
    remote: &Remote,
    limits: &Limits,
    progress: &dyn Progress,
) -> Result<bool, Ended> {
    let mirror = Mirror::new(remote.clone(), limits.give_up_after);
    let done = file.done();
    let ends = done.iter().flat_map(|range| {
        let bytes = SAMPLE_BYTES.min(range_bytes(range));
        [range.start..range.start.saturating_add(bytes), range.end.saturating_sub(bytes)..range.end]
    });
    let mut buffer = Vec::new();
    for range in ends.take(SAMPLES_MAX) {
        let mut is_same = true;
        let transfer = mirror.patiently(progress, || {
            client.get(remote, Some(range.clone()), progress, &mut |offset_bytes, bytes| {
                is_same &= file.compare(offset_bytes, bytes, &mut buffer).is_ok_and(|same| same == bytes.len());
                if is_same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
        })?;
        if transfer.were_ranges_ignored || !is_same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Ends transfers when the file is no longer wanted, when they are too slow, or when what came is no archive.
struct Stopping<'a> {
    progress: &'a dyn Progress,
    file: &'a PartialFile,
    too_slow: AtomicBool,
    damage: OnceLock<Error>,
}

impl Progress for Stopping<'_> {
    fn event(&self, event: ProgressEvent<'_>) {
        self.progress.event(event);
    }

    fn is_interrupted(&self) -> bool {
        self.progress.is_interrupted()
            || self.file.is_unwanted()
            || self.too_slow.load(Relaxed)
            || self.damage.get().is_some()
    }
}
