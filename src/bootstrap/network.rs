//! What the network does while a restore reads: counted, and told beside the restore's own figures.

use {
    slotpress_base::progress::Progress,
    slotpress_net::fetch::{Download, PartialFile},
    std::{
        sync::{
            Arc, Mutex, PoisonError,
            atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        },
        time::{Duration, Instant},
    },
};

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

/// The download that is under way.
struct Watched {
    file: Arc<PartialFile>,
    length_bytes: Option<u64>,
}

impl<'a> Network<'a> {
    /// Tells `progress`.
    pub fn new(progress: &'a (dyn Progress + Sync)) -> Self {
        Self { progress, fetched_bytes: AtomicU64::default(), now: Mutex::default() }
    }

    /// A download begins.
    pub fn watch(&self, file: &Arc<PartialFile>, download: &Download) {
        let watched = Watched { file: file.clone(), length_bytes: download.length_bytes() };
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = Some(watched);
    }

    /// Says how fast bytes arrive, how many are there, and which side waits for the other, until it is over.
    pub fn note(&self, is_over: &AtomicBool) {
        let (mut before, mut since) = (0, Instant::now());
        let (mut looks, mut waits) = (0u32, 0u32);
        while !is_over.load(Relaxed) {
            std::thread::sleep(LOOK_AGAIN);
            let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(Watched { file, length_bytes }) = &*now else { continue };
            looks += 1;
            waits += u32::from(file.is_waited_for());
            if since.elapsed() < NOTE_EVERY {
                continue;
            }
            let (done_bytes, length_bytes) = (file.done_bytes(), *length_bytes);
            drop(now);
            let bytes = self.fetched_bytes.load(Relaxed);
            let rate = (bytes - before) as f64 / since.elapsed().as_secs_f64() / (1024.0 * 1024.0);
            let fetched = match length_bytes.filter(|length| *length > 0) {
                Some(length) if done_bytes >= length => "fetched".to_string(),
                Some(length) => format!("{:.0} % fetched, {rate:.1} MiB/s", 100.0 * done_bytes as f64 / length as f64),
                None => format!("{rate:.1} MiB/s"),
            };
            let slower = if waits * 2 > looks { "network" } else { "restore" };
            self.progress.note(&format!("{fetched}, the {slower} is slower"));
            (before, since, looks, waits) = (bytes, Instant::now(), 0, 0);
        }
    }
}

impl Progress for Network<'_> {
    fn advance(&self, input_bytes: u64, _: u64) {
        self.fetched_bytes.fetch_add(input_bytes, Relaxed);
    }
    fn stage(&self, name: &str, total_bytes: Option<u64>) {
        self.progress.stage(name, total_bytes);
    }
    fn tell(&self, message: &str) {
        self.progress.tell(message);
    }
    fn warn(&self, message: &str) {
        self.progress.warn(message);
    }
    fn is_interrupted(&self) -> bool {
        self.progress.is_interrupted()
    }
}
