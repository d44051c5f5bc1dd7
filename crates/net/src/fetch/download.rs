//! One download from start to end. Decides which bytes of an earlier run to keep, and fetches the other bytes
//! by ranges or in order. Walks the archive as it arrives, then accepts or rejects it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use slotpress_base::quantity::bytes;
use slotpress_base::{
    Arriving, Error, ErrorKind, Forward, Progress, ProgressEvent, Result, Until, catch_panic, hint, join_thread,
    panic_point, spawn,
};
use slotpress_read::{tail_read_offset, walk_shape};

use super::accept::accept;
use super::journal::{ArchiveIdentity, sum_bytes};
use super::mirrors::Mirror;
use super::partial::{PartialFile, UntimedReader};
use super::{BytesFromServer, DownloadFault, FetchLimits, Fetched, in_order};
use crate::{Client, NetError, NetErrorKind, Remote};

/// Maximum time between two writes of the journal while bytes arrive. After a kill, bytes that
/// arrived after the last write are fetched again.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// The journal is also written when it lacks 1/32 of the archive. A download of a few seconds then loses less
/// than a tenth of its bytes to two kills.
const UNSYNCED_DIVISOR: u64 = 32;

/// Lower bound for that part of the archive, in bytes. Fetching fewer bytes again takes less time than
/// syncing the journal.
const UNSYNCED_BYTES_MIN: u64 = 1024 * 1024;

const REPORT_INTERVAL: Duration = Duration::from_millis(500);

const RATE_WINDOW: Duration = Duration::from_secs(15);

/// The download of one archive from the servers that offer its name, best first.
#[derive(Debug)]
pub struct Download {
    pub(super) client: Client,
    pub file: Arc<PartialFile>,
    pub(super) mirrors: Vec<Mirror>,
    pub(super) limits: FetchLimits,
    /// Number of bytes that an earlier run left and that are not fetched again.
    pub(super) kept_bytes: AtomicU64,
    /// True if the earlier run is known to have fetched the first server's archive. Otherwise, only frames
    /// that match the archive's hashes are kept.
    pub(super) is_same_archive: bool,
}

impl Download {
    /// Prepares the partial file. Bytes of an earlier run are kept if they may belong to the archive that the
    /// first server has.
    ///
    /// # Errors
    /// `remotes` is empty, the archive is too long, the file cannot be written, or the disk has no space for it.
    pub fn begin(
        client: Client,
        file: Arc<PartialFile>,
        remotes: Vec<Remote>,
        limits: FetchLimits,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let Some(first) = remotes.first() else {
            let message = format!("{}: no known server has it", file.archive_name());
            return Err(Error::new(ErrorKind::Network, message).with_hint(hint::USE_FIND));
        };
        if let Some(length) = first.length_bytes
            && length > limits.max_bytes
        {
            return Err(in_order::too_long_error(first, limits.max_bytes));
        }
        let earlier_identity = file.identity();
        let identity = identity_of(first);
        let is_same_archive = earlier_identity.is_same_archive(&identity);
        let earlier_bytes = file.done_bytes();
        if earlier_bytes > 0 && (is_same_archive || earlier_identity.has_comparable_frames(&identity)) {
            // The kept bytes are not compared yet, so the journal still describes the archive of the earlier run.
            file.begin(earlier_identity, first.length_bytes)?;
        } else {
            if earlier_bytes > 0 {
                let why = if ranged_length_bytes(first).is_some() {
                    "the server now has a different archive of the same name"
                } else {
                    "the server sends no ranges"
                };
                progress.warn(&format!("discarding {} of an earlier download: {why}", bytes(earlier_bytes)));
            }
            file.restart(identity, first.length_bytes)?;
        }
        let mut kept_bytes = 0;
        if is_same_archive {
            kept_bytes = sum_bytes(&file.unchecked_ranges());
        } else {
            file.discard_unchecked_from(tail_read_offset(first.length_bytes.unwrap_or_default()));
        }
        let to_mirror = |remote| Mirror::new(remote, limits.give_up_after);
        let mirrors = remotes.into_iter().map(to_mirror).collect();
        Ok(Self { client, file, mirrors, limits, kept_bytes: kept_bytes.into(), is_same_archive })
    }

    pub fn first_remote(&self) -> Option<&Remote> {
        self.mirrors.first().map(|mirror| &mirror.remote)
    }

    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes.load(Relaxed)
    }

    pub fn length_bytes(&self) -> Option<u64> {
        self.mirrors.first()?.remote.length_bytes
    }

    /// Fetches the missing bytes, accepts the archive, and reports the result to readers of the file. After a
    /// failure, the bytes that the next run may keep have been synced, and the journal lists them.
    ///
    /// # Errors
    /// [`DownloadFault::classify`] tells what an error means for the source.
    pub fn run(&self, progress: &dyn Progress) -> Result<Fetched> {
        // Readers wait for the result, so they must learn of a panic too.
        let result = catch_panic(|| self.run_to_end(progress));
        self.file.end(result.as_ref().map(drop).map_err(Clone::clone));
        result
    }

    fn run_to_end(&self, progress: &dyn Progress) -> Result<Fetched> {
        panic_point("download");
        let started = Instant::now();
        let is_slow = AtomicBool::new(false);
        let is_damaged = AtomicBool::new(false);
        let is_over = || self.file.is_cancelled() || is_slow.load(Relaxed) || is_damaged.load(Relaxed);
        let stopping = Forward::until(progress, is_over);
        let (fetched, journaled, walked) = std::thread::scope(|scope| {
            let journal = spawn(scope, || catch_panic(|| self.keep_journal(progress, &is_slow)));
            // Walks the archive as its bytes arrive, while they are in memory.
            let walker = spawn(scope, || {
                let walked = catch_panic(|| walk_shape(&UntimedReader(&self.file), &stopping));
                let is_wrong = matches!(&walked, Err(error) if error.kind() == ErrorKind::Damaged);
                is_damaged.store(is_wrong, Relaxed);
                walked
            });
            let fetched = catch_panic(|| self.fetch(&stopping));
            // Ends the journal's thread, and tells readers that no more bytes will arrive.
            self.file.end(fetched.as_ref().map(drop).map_err(Clone::clone));
            (fetched, journal.and_then(join_thread), walker.and_then(join_thread))
        });
        let is_minor = |error: &Error| matches!(DownloadFault::classify(error), None | Some(DownloadFault::Failed));
        let result = match (fetched, walked) {
            // The damage may have caused the failure, and explains more.
            (Err(error), Err(damage)) if is_damaged.load(Relaxed) && is_minor(&error) => Err(damage),
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            (Ok(compared_bytes), Ok(shape)) => journaled.and_then(|()| {
                // The bytes were counted when they arrived.
                let until = Until(|| progress.is_interrupted());
                let name = self.file.archive_name();
                accept(&*self.file, &shape, name, self.limits.expect_root, compared_bytes, &until)
            }),
        };
        let result = result.map_err(|error| match error.kind() {
            ErrorKind::Damaged => error,
            _ if is_slow.load(Relaxed) => self.too_slow_error(),
            // The reader of the file gave up, and so cancelled the download. Its own error explains more.
            ErrorKind::Failed if self.file.is_cancelled() => Error::interrupted(),
            _ => error,
        });
        let synced = match &result {
            Err(error) if DownloadFault::classify(error) == Some(DownloadFault::Wrong) => self.file.distrust(),
            _ => self.file.sync(),
        };
        let root = result?;
        synced?;
        self.file.accept();
        let servers = self.bytes_by_server().filter(|server| server.bytes > 0);
        Ok(Fetched {
            file_bytes: self.file.done_bytes(),
            kept_bytes: self.kept_bytes(),
            root,
            servers: servers.collect(),
            elapsed: started.elapsed(),
        })
    }

    fn too_slow_error(&self) -> Error {
        let rate = bytes(self.limits.min_rate_bytes_per_second.unwrap_or_default());
        let name = self.file.archive_name();
        let time = RATE_WINDOW.as_secs();
        Error::new(ErrorKind::Network, format!("{name} arrived at less than the minimum rate, {rate}/s, for {time} s"))
    }

    /// Fetches the missing bytes. Returns the length of the part that was compared with frame hashes, which is
    /// 0 if the archive was fetched in order.
    fn fetch(&self, progress: &dyn Progress) -> Result<u64> {
        let Some(first) = self.mirrors.first() else { return Ok(0) };
        let remote = &first.remote;
        if let Some(length_bytes) = ranged_length_bytes(remote) {
            match self.fetch_ranges(first, length_bytes, progress) {
                Err(error) if self.sends_no_ranges(&error) => {
                    progress.warn(&format!("{error}: using one connection, from the beginning"));
                    let identity = ArchiveIdentity { length_bytes: None, ..identity_of(remote) };
                    self.file.restart(identity, remote.length_bytes)?;
                    self.kept_bytes.store(0, Relaxed);
                }
                fetched => return fetched,
            }
        }
        self.fetch_in_order(first, progress).map(|()| 0)
    }

    /// True if the first server announced ranges but does not send them, and no bytes have been marked yet.
    fn sends_no_ranges(&self, error: &Error) -> bool {
        NetError::find_in(error).is_some_and(|error| error.kind() == NetErrorKind::NoRanges)
            && self.file.done_bytes() == 0
    }

    /// Syncs the file and writes the journal every second while bytes arrive, or sooner after many bytes.
    /// Reports progress and watches the rate. Returns when the download ends.
    fn keep_journal(&self, progress: &dyn Progress, is_slow: &AtomicBool) -> Result<()> {
        let mut last_sync = Instant::now();
        let mut window_start = Instant::now();
        let mut window_start_bytes = self.useful_bytes();
        let unsynced_max = match self.length_bytes() {
            Some(length) => (length / UNSYNCED_DIVISOR).max(UNSYNCED_BYTES_MIN),
            None => u64::MAX,
        };
        loop {
            panic_point("journal");
            let Some(unsynced_bytes) = self.file.wait_for_unsynced(unsynced_max, REPORT_INTERVAL) else {
                return Ok(());
            };
            self.report(progress);
            if unsynced_bytes >= unsynced_max || (last_sync.elapsed() >= SYNC_INTERVAL && unsynced_bytes > 0) {
                self.file.sync()?;
                last_sync = Instant::now();
            }
            if let Some(min_rate) = self.limits.min_rate_bytes_per_second
                && window_start.elapsed() >= RATE_WINDOW
            {
                let useful_bytes = self.useful_bytes();
                let min_bytes = min_rate as f64 * window_start.elapsed().as_secs_f64();
                if (useful_bytes.saturating_sub(window_start_bytes) as f64) < min_bytes {
                    is_slow.store(true, Relaxed);
                }
                (window_start_bytes, window_start) = (useful_bytes, Instant::now());
            }
        }
    }

    fn report(&self, progress: &dyn Progress) {
        let servers: Vec<(String, u64)> = self.bytes_by_server().map(|server| (server.server, server.bytes)).collect();
        progress.event(ProgressEvent::Arriving(Arriving {
            arrived_bytes: self.file.done_bytes(),
            length_bytes: self.length_bytes(),
            servers: &servers,
            waited: self.file.reader_wait(),
        }));
    }

    pub fn useful_bytes(&self) -> u64 {
        self.mirrors.iter().map(Mirror::useful_bytes).sum()
    }

    fn bytes_by_server(&self) -> impl Iterator<Item = BytesFromServer> {
        self.mirrors.iter().map(|mirror| BytesFromServer { server: mirror.display_url(), bytes: mirror.useful_bytes() })
    }

    /// Returns the servers that sent wrong bytes.
    pub fn rejected_servers(&self) -> Vec<String> {
        let is_wrong =
            |mirror: &&Mirror| mirror.exclusion_reason().is_some_and(|error| error.kind() == ErrorKind::Damaged);
        self.mirrors.iter().filter(is_wrong).map(Mirror::display_url).collect()
    }
}

/// Returns the identity of a server's archive. It has no length if the archive is fetched in order.
pub(super) fn identity_of(remote: &Remote) -> ArchiveIdentity {
    ArchiveIdentity {
        length_bytes: ranged_length_bytes(remote),
        etag: remote.etag.clone(),
        last_modified: remote.last_modified.clone(),
        root: None,
    }
}

/// Returns the length of an archive that is fetched by ranges; `None` if it is fetched in order.
fn ranged_length_bytes(remote: &Remote) -> Option<u64> {
    if remote.accepts_ranges { remote.length_bytes.filter(|length| *length > 0) } else { None }
}
