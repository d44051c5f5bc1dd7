//! What the network does while a restore reads: counted, and told beside the restore's own figures.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use slotpress_base::{Progress, ProgressEvent, rate_of};
use slotpress_net::{Download, GivenBytes, PartialFile};

/// How often an operator is told.
const NOTE_EVERY: Duration = Duration::from_millis(500);

/// Between two looks at whether it is over.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The progress of downloads, beside that of the restore, which has the bar.
pub struct Network<'a> {
    progress: &'a (dyn Progress + Sync),
    fetched_bytes: AtomicU64,
    now: Mutex<Option<Watched>>,
}

/// Servers whose rates are told.
const SERVERS_MAX: usize = 4;

/// The download that is under way.
struct Watched {
    file: Arc<PartialFile>,
    download: Arc<Download>,
}

impl<'a> Network<'a> {
    /// Tells `progress`.
    pub fn new(progress: &'a (dyn Progress + Sync)) -> Self {
        Self { progress, fetched_bytes: AtomicU64::default(), now: Mutex::default() }
    }

    /// A download begins.
    pub fn watch(&self, file: &Arc<PartialFile>, download: &Arc<Download>) {
        let watched = Watched { file: file.clone(), download: download.clone() };
        *self.now.lock() = Some(watched);
    }

    /// Says how fast bytes arrive, how many are there, and which side waits for the other, until it is over.
    pub fn note(&self, is_over: &AtomicBool) {
        let (mut before, mut given_before, mut since) = (0, Vec::new(), Instant::now());
        let (mut looks, mut waits) = (0u32, 0u32);
        while !is_over.load(Relaxed) {
            std::thread::sleep(LOOK_AGAIN);
            let now = self.now.lock();
            let Some(Watched { file, download }) = &*now else { continue };
            looks += 1;
            waits += u32::from(file.is_waited_for());
            if since.elapsed() < NOTE_EVERY {
                continue;
            }
            let (done_bytes, length_bytes, given) = (file.done_bytes(), download.length_bytes(), download.given());
            drop(now);
            let bytes = self.fetched_bytes.load(Relaxed);
            let elapsed = since.elapsed();
            let rate = rate_of(bytes - before, elapsed) + &by_server(&given, &given_before, elapsed);
            let fetched = match length_bytes.filter(|length| *length > 0) {
                Some(length) if done_bytes >= length => "fetched".to_string(),
                Some(length) => format!("{:.0} % fetched, {rate}", 100.0 * done_bytes as f64 / length as f64),
                None => rate,
            };
            let slower = if waits * 2 > looks { "network" } else { "restore" };
            self.progress.note(&format!("{fetched}, the {slower} is slower"));
            (before, given_before, since, looks, waits) = (bytes, given, Instant::now(), 0, 0);
        }
    }
}

/// ` (a.example 60.1 MiB/s, b.example 0 B/s)`, where there are several servers: the fastest of them.
fn by_server(given: &[GivenBytes], before: &[GivenBytes], elapsed: Duration) -> String {
    if given.len() < 2 {
        return String::new();
    }
    let bytes_before = |server: &str| before.iter().find(|one| one.server == server).map_or(0, |one| one.bytes);
    let mut came: Vec<(u64, &str)> =
        given.iter().map(|one| (one.bytes.saturating_sub(bytes_before(&one.server)), host_of(&one.server))).collect();
    came.sort_by_key(|(bytes, _)| Reverse(*bytes));
    let more = if came.len() > SERVERS_MAX { ", …" } else { "" };
    let told = came.iter().take(SERVERS_MAX).map(|(bytes, host)| format!("{host} {}", rate_of(*bytes, elapsed)));
    format!(" ({}{more})", Vec::from_iter(told).join(", "))
}

/// Host and port of a URL.
fn host_of(url: &str) -> &str {
    url.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or(url)
}

impl Progress for Network<'_> {
    fn event(&self, event: ProgressEvent<'_>) {
        match event {
            ProgressEvent::Bytes { input, .. } => drop(self.fetched_bytes.fetch_add(input, Relaxed)),
            event => self.progress.event(event),
        }
    }

    fn is_interrupted(&self) -> bool {
        self.progress.is_interrupted()
    }
}
