//! Downloads that resume: an archive from one server or several into a partial file, which can be read while it
//! arrives.
//!
//! [`Download`] fetches one archive. [`PartialFile`] is where its bytes are; `ranged` and `in_order` are the two ways
//! to get them. Not here: how servers are spoken to ([`net`](crate)), and which archive is worth having.

mod in_order;
mod journal;
mod mirrors;
pub mod partial;
mod pieces;
mod ranged;
mod tail;

pub use {
    journal::Identity,
    partial::{PartialFile, remove_left_journal},
};

use {
    crate::{Client, NetError, NetErrorKind, Remote},
    derive_setters::Setters,
    mirrors::Mirror,
    serde::Serialize,
    slotpress_base::{
        bytes::range_bytes,
        error::{Error, ErrorKind, Result},
        progress::{self, Progress},
        quantity::bytes,
        text,
        threads::{guarded, panic_point, panicked, spawn},
    },
    slotpress_format::archive::frame_hashes::Root,
    std::{
        ops::ControlFlow,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering::Relaxed},
        },
        time::{Duration, Instant},
    },
};

/// Connections at a time, unless told otherwise.
pub const STREAMS_DEFAULT: usize = 8;

/// Connections at a time at most: more are an attack.
pub const STREAMS_MAX: usize = 64;

/// How often the journal is written while bytes come, at least: what a killed run fetched since is fetched again.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// How often the rate is looked at, and over how long.
const RATE_WINDOW: Duration = Duration::from_secs(15);

/// Of a file whose server does not say whether it has changed, so much is compared at each of so many places.
const SAMPLE_BYTES: u64 = 64 * 1024;
const SAMPLES_MAX: usize = 8;

/// What bounds a download.
#[derive(Clone, Debug, Setters)]
#[setters(strip_option)]
#[non_exhaustive]
pub struct Limits {
    /// Connections at a time.
    pub streams: usize,
    /// The longest archive.
    pub max_bytes: u64,
    /// An end that is longer than this is not fetched first.
    pub tail_bytes_max: u64,
    /// Slower than this over 15 seconds, the download is ended.
    pub min_rate_bytes_per_second: Option<u64>,
    /// The root that the archive must have.
    pub expect_root: Option<Root>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            streams: STREAMS_DEFAULT,
            // As Agave's bound on what an archive takes on disk.
            max_bytes: 4 << 40,
            // The most that a reader takes of an index and a seek table.
            tail_bytes_max: 512 << 20,
            min_rate_bytes_per_second: None,
            expect_root: None,
        }
    }
}

/// Why a download ended without the archive. What arrived is kept in the partial file.
#[derive(Debug)]
pub enum Ended {
    /// These bytes are not to be had any more: only another archive helps.
    Lost(Error),
    /// The server sends no ranges although it said so.
    NoRanges,
    /// Anything else; the same again may help.
    Failed(Error),
}

impl Ended {
    fn of_net(error: NetError) -> Self {
        match error.kind() {
            NetErrorKind::Gone | NetErrorKind::Changed => Self::Lost(error.into()),
            _ => Self::Failed(error.into()),
        }
    }

    /// As an error.
    pub fn error(&self) -> Error {
        match self {
            Self::Lost(error) | Self::Failed(error) => error.clone(),
            Self::NoRanges => Error::new(ErrorKind::Network, "the server sends no ranges although it said so"),
        }
    }
}

/// What was fetched.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Fetched {
    /// The archive's length.
    #[serde(rename = "file_bytes")]
    pub length_bytes: u64,
    /// Bytes that an earlier run had left.
    pub kept_bytes: u64,
    /// Where the archive has frame hashes, all of which were right.
    pub root: Option<Root>,
    /// The servers that gave bytes.
    pub servers: Vec<GivenBytes>,
    /// How long it took.
    #[serde(rename = "fetch_seconds", serialize_with = "text::seconds")]
    pub elapsed: Duration,
}

/// What a server gave of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GivenBytes {
    /// The server, without secrets.
    pub server: String,
    /// How many bytes.
    pub bytes: u64,
}

impl Fetched {
    /// Bytes that came from servers.
    pub fn fetched_bytes(&self) -> u64 {
        self.servers.iter().map(|given| given.bytes).sum()
    }
}

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
            (true, true, true) => before.is_surely(&now) || is_same(&client, &file, first, progress)?,
        };
        let lost_bytes = if keeps { 0 } else { file.done_bytes() };
        if lost_bytes > 0 {
            progress.warn(&format!(
                "discarding {} of an earlier download: the server now has another archive of the same name",
                bytes(lost_bytes)
            ));
        }
        file.begin(Identity { root: before.root.filter(|_| keeps), ..now }, keeps).map_err(Ended::Failed)?;
        let kept_bytes = file.done_bytes();
        if !is_ranged(first) {
            file.set_in_order();
        }
        let mirrors = remotes.into_iter().map(Mirror::new).collect();
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
        let too_slow = AtomicBool::new(false);
        let stopping = Stopping { progress, file: &self.file, too_slow: &too_slow };
        let result = std::thread::scope(|scope| {
            let clerk = spawn(scope, || guarded(|| self.keep_journal(&is_over, &too_slow)));
            let result = guarded_ended(|| self.fetch(&stopping));
            is_over.store(true, Relaxed);
            let kept = clerk.map(|clerk| clerk.join().unwrap_or_else(|payload| Err(panicked(payload.as_ref()))));
            match kept {
                Ok(Err(error)) | Err(error) if result.is_ok() => Err(Ended::Failed(error)),
                _ => result,
            }
        });
        let result = match result {
            Err(_) if too_slow.load(Relaxed) => {
                let rate = bytes(self.limits.min_rate_bytes_per_second.unwrap_or_default());
                let message =
                    format!("slower than `min_rate_bytes_per_second`, {rate}/s, for {} s", RATE_WINDOW.as_secs());
                Err(Ended::Failed(Error::new(ErrorKind::Network, message)))
            }
            other => other,
        };
        let synced = self.file.sync();
        let result = match (result, synced) {
            (Ok(_), Err(error)) => Err(Ended::Failed(error)),
            (result, _) => result,
        };
        let root = result?;
        let servers = self.mirrors.iter().filter(|mirror| mirror.given_bytes() > 0);
        Ok(Fetched {
            length_bytes: self.file.done_bytes(),
            kept_bytes: self.kept_bytes(),
            root,
            servers: servers.map(|mirror| GivenBytes { server: mirror.shown(), bytes: mirror.given_bytes() }).collect(),
            elapsed: started.elapsed(),
        })
    }

    fn fetch(&self, progress: &dyn Progress) -> Result<Option<Root>, Ended> {
        let Some(first) = self.mirrors.first() else {
            return Err(Ended::Failed(Error::failed("no server to fetch from")));
        };
        match first.remote.length_bytes {
            Some(length_bytes) if is_ranged(&first.remote) => {
                ranged::fetch_ranges(&self.client, &self.file, &self.mirrors, length_bytes, &self.limits, progress)
            }
            _ => {
                in_order::fetch_in_order(&self.client, &self.file, first, &self.limits, progress)?;
                Ok(None)
            }
        }
    }

    /// Syncs and writes the journal, every second or when much has come, and watches the rate.
    fn keep_journal(&self, is_over: &AtomicBool, too_slow: &AtomicBool) -> Result<()> {
        let (mut synced, mut window) = (Instant::now(), Instant::now());
        let mut bytes_before = self.given_bytes();
        // What is not in the journal is fetched again after a kill: no more than about one request of each connection.
        let piece_bytes = ranged::piece_bytes(self.length_bytes().unwrap_or_default(), self.limits.streams);
        let unsynced_max = piece_bytes.saturating_mul(self.limits.streams as u64) / 2;
        while !is_over.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
            panic_point("journal");
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
        Ok(())
    }

    fn given_bytes(&self) -> u64 {
        self.mirrors.iter().map(Mirror::given_bytes).sum()
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
fn is_same(client: &Client, file: &PartialFile, remote: &Remote, progress: &dyn Progress) -> Result<bool, Ended> {
    let done = file.done();
    let ends = done.iter().flat_map(|range| {
        let bytes = SAMPLE_BYTES.min(range_bytes(range));
        [range.start..range.start.saturating_add(bytes), range.end.saturating_sub(bytes)..range.end]
    });
    let mut buffer = Vec::new();
    for range in ends.take(SAMPLES_MAX) {
        let mut is_same = true;
        let transfer = client.get(remote, Some(range), progress, &mut |offset_bytes, bytes| {
            is_same &= file.compare(offset_bytes, bytes, &mut buffer).is_ok_and(|same| same == bytes.len());
            if is_same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        match transfer {
            Ok(transfer) if transfer.were_ranges_ignored => return Ok(false),
            Ok(_) if !is_same => return Ok(false),
            Ok(_) => {}
            Err(error) => return Err(Ended::of_net(error)),
        }
    }
    Ok(true)
}

/// Waits, unless the user asks to stop.
fn pause(time: Duration, progress: &dyn Progress) -> Result<()> {
    progress::wait(progress, time);
    progress.check()
}

/// Ends transfers when nobody wants the file any more, or when they are too slow.
struct Stopping<'a> {
    progress: &'a dyn Progress,
    file: &'a PartialFile,
    too_slow: &'a AtomicBool,
}

impl Progress for Stopping<'_> {
    fn advance(&self, input_bytes: u64, output_bytes: u64) {
        self.progress.advance(input_bytes, output_bytes);
    }

    fn warn(&self, message: &str) {
        self.progress.warn(message);
    }

    fn is_interrupted(&self) -> bool {
        self.progress.is_interrupted() || self.file.is_unwanted() || self.too_slow.load(Relaxed)
    }
}
