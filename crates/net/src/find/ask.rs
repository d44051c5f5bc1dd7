//! Asks sources which archives they have, many at a time. Reads the bank files of a few archives to learn
//! their ages.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rayon::prelude::*;
use slotpress_base::{
    CancelToken, Error, ErrorKind, Forward, IoPolicy, Progress, ProgressEvent, Result, catch_panic, panic_point, spawn,
    start_pool,
};
use slotpress_format::{ArchiveName, BankFile, SlotTime, SlotTimeSource};
use slotpress_read::archive::front;
use slotpress_read::catalog::scan::scan;
use slotpress_read::{Catalog, OpenArchive, read_newest_bank_times};

use crate::retries::Retries;
use crate::{Client, NetError, NetErrorKind, Offer, OfferPlace, Remote, SourceLocation, UrlSource};

const CONCURRENT_SOURCES_MAX: usize = 64;

const ASKING_TIME_MAX: Duration = Duration::from_secs(60);

/// Time during which a busy source is asked again, as long as no other source has an archive.
const BUSY_TIME_MAX: Duration = Duration::from_secs(45);

/// Limit on the archives whose bank files are requested. If the bank file of the newest archive cannot be
/// read, the next newest archive is tried.
const BANK_FILES_MAX: usize = 2;

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Returns the time per slot according to the archives in the first directory where it is known.
pub fn read_local_slot_time(sources: &[SourceLocation]) -> Option<SlotTime> {
    sources.iter().find_map(|source| {
        let SourceLocation::Directory(dir) = source else { return None };
        let mut catalog = scan(std::slice::from_ref(dir)).ok()?;
        read_newest_bank_times(&mut catalog, &Catalog::default());
        Some(catalog.slot_time).filter(|slot_time| slot_time.source() != SlotTimeSource::Assumed)
    })
}

/// Reads the bank files of the newest offers until one can be read, and sets the `bank_time` of that
/// offer. Returns the time per slot according to this bank file. Stops at an offer that already has a
/// `bank_time`.
///
/// # Errors
/// `progress` is interrupted.
pub fn read_bank_time<'a>(
    client: &Client,
    offers: impl Iterator<Item = &'a mut Offer>,
    progress: &dyn Progress,
) -> Result<Option<SlotTime>> {
    let mut newest: Vec<&mut Offer> = offers.collect();
    newest.sort_by_key(|offer| Reverse(offer.name.slot));
    for offer in newest.into_iter().take(BANK_FILES_MAX) {
        if offer.bank_time.is_some() {
            return Ok(None);
        }
        let bank = match &offer.place {
            OfferPlace::Remote(remote) => read_bank_front(client, remote, &offer.name, progress)?,
            OfferPlace::Local(path) => {
                let archive = OpenArchive::open(path, &IoPolicy::default());
                archive.ok().and_then(|archive| front::read_bank(&archive).ok()?)
            }
        };
        if let Some(bank) = bank {
            offer.bank_time = bank.time();
            return Ok(bank.slot_time());
        }
    }
    Ok(None)
}

/// Reads the front of the bank file from an archive on a server, with a few requests. Returns `None` if the
/// archive has no index, or cannot be read.
fn read_bank_front(
    client: &Client,
    remote: &Remote,
    name: &ArchiveName,
    progress: &dyn Progress,
) -> Result<Option<BankFile>> {
    let io_policy = IoPolicy::default();
    let stop = CancelToken::default();
    let is_over = AtomicBool::new(false);
    let front = std::thread::scope(|scope| {
        // If this thread cannot be started, the read ends only at its own time limits.
        let _watcher = spawn(scope, || {
            while !is_over.load(Ordering::Relaxed) {
                if progress.is_interrupted() {
                    stop.cancel();
                }
                std::thread::sleep(POLL_INTERVAL);
            }
        });
        // Ignores archives that cannot be read: fetching them reports why.
        let front = catch_panic(|| {
            let source = UrlSource::from_remote(client, remote.clone(), stop.clone());
            let archive =
                source.and_then(|source| OpenArchive::from_source(Arc::new(source), Some(name.clone()), &io_policy));
            Ok(archive.ok().and_then(|archive| front::read_bank_by_index(&archive)))
        });
        is_over.store(true, Ordering::Relaxed);
        front
    })?;
    progress.check()?;
    Ok(front)
}

pub struct AskedSource {
    pub source: SourceLocation,
    pub named_by_operator: bool,
}

/// Asks all sources, many at a time, within a time limit. Returns, in the order of the sources, the offers of
/// each source or the reason why it has none.
pub fn ask_all(
    client: &Client,
    sources: &[AskedSource],
    progress: &dyn Progress,
) -> Result<Vec<Result<Vec<Offer>, String>>> {
    let start = Instant::now();
    let in_time = Forward::until(progress, || start.elapsed() >= ASKING_TIME_MAX);
    // Responses are not part of an archive, so their bytes are not reported as progress.
    let until = Forward::new(&in_time, |event| (!matches!(event, ProgressEvent::Bytes { .. })).then_some(event));
    let peer_client = client.for_untrusted_urls();
    let asker = Asker { client, peer_client, progress: &until, has_offers: AtomicBool::new(false) };
    let ask_each = || {
        // Takes sources in their order, so the sources that the operator named are asked first.
        let numbered = sources.iter().enumerate().par_bridge();
        numbered.map(|(index, source)| catch_panic(|| Ok((index, asker.ask(source))))).collect()
    };
    let answers: Result<BTreeMap<usize, _>> = start_pool(CONCURRENT_SOURCES_MAX.min(sources.len()))?.install(ask_each);
    progress.check()?;
    Ok(answers?.into_values().collect())
}

struct Asker<'a> {
    client: &'a Client,
    peer_client: Client,
    progress: &'a dyn Progress,
    /// True once a server has offers. Busy sources are then not asked again.
    has_offers: AtomicBool,
}

impl Asker<'_> {
    /// Returns the offers of a source, or the reason why it has none.
    fn ask(&self, asked: &AskedSource) -> Result<Vec<Offer>, String> {
        panic_point("asking");
        let source = &asked.source;
        let answer = if self.progress.is_interrupted() {
            Err(Error::interrupted())
        } else if asked.named_by_operator {
            let waiting = Forward::until(self.progress, || self.has_offers.load(Ordering::Relaxed));
            ask_patiently(self.client, source, BUSY_TIME_MAX, &waiting, self.progress)
        } else {
            self.peer_client.list_offers(source, self.progress)
        };
        if answer.is_ok() && source.url().is_some() {
            self.has_offers.store(true, Ordering::Relaxed);
        }
        answer.map_err(|error| match error.kind() {
            ErrorKind::Interrupted => "did not answer in time".to_string(),
            _ => error.to_string(),
        })
    }
}

/// Asks a source for its offers, and asks again while the source is busy. The attempts end after `time_max`,
/// or when `waiting` is interrupted. An interruption of `stop` also ends a running request.
///
/// # Errors
/// The source does not answer, stays busy, or has no archive.
pub fn ask_patiently(
    client: &Client,
    source: &SourceLocation,
    time_max: Duration,
    waiting: &dyn Progress,
    stop: &dyn Progress,
) -> Result<Vec<Offer>> {
    let mut busy_error = None;
    let answer = Retries::new(time_max).run(waiting, || match client.list_offers(source, stop) {
        Err(error) if NetError::find_in(&error).is_some_and(is_busy) => {
            busy_error = Some(error.clone());
            Err(error)
        }
        // Ends the attempts. Only a busy source is asked again.
        answer => Ok(answer),
    });
    match (answer, busy_error) {
        (Err(error), Some(busy_error)) if error.kind() == ErrorKind::Interrupted && !stop.is_interrupted() => {
            Err(busy_error)
        }
        (answer, _) => answer?,
    }
}

fn is_busy(error: &NetError) -> bool {
    error.is_retryable() && matches!(error.kind(), NetErrorKind::Status(_))
}
