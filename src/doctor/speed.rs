//! Measures how fast the disk reads the accounts, and how fast all cores together compress.
//! Each measurement takes about two seconds.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use slotpress::archive::{Codec, ZSTD_LEVEL_DEFAULT};
use slotpress::program::FrameCompressor;
use slotpress::{Progress, Result};
use slotpress_base::{available_threads, quantity};

use super::Finding;

const MEASURING_TIME: Duration = Duration::from_secs(2);

/// Number of concurrent readers: enough to keep an NVMe disk busy.
const READERS: usize = 8;

/// Length of the content that each core compresses again and again: one frame of the default size.
const CONTENT_BYTES: u64 = 8 << 20;

/// Minimum total length of the files for a measurement of the disk. With less, opening the files
/// would dominate.
const FILES_BYTES_MIN: u64 = 64 << 20;

/// Measures disk and cores, and reports which of the two limits archiving.
pub fn examine(files: &[(PathBuf, u64)], progress: &dyn Progress) -> Result<Vec<Finding>> {
    let disk = measure_disk(files, progress);
    progress.check()?;
    let cores = measure_cores(&read_content(files), progress)?;
    progress.check()?;
    let time_of_100_gib = |rate: f64| {
        let seconds = 100.0 * (1u64 << 30) as f64 / rate;
        let time = quantity::age(Duration::from_secs_f64(seconds));
        format!("reading 100 GiB takes at least {time}")
    };
    let mut findings = Vec::new();
    findings.push(match disk {
        Some(rate) => {
            let found = format!("reads {}, bypassing the page cache", quantity::rate(rate));
            Finding::good("disk", found, time_of_100_gib(rate))
        }
        None => Finding::note("disk", "not measured", "this needs a ledger of 64 MiB or more, and O_DIRECT"),
    });
    if let Some(rate) = cores {
        let meaning = match disk {
            Some(disk) if disk < rate => {
                "the disk bounds archiving at level 1: a higher --zstd-level may take no longer"
            }
            Some(_) => "the cores bound archiving at level 1: a higher --zstd-level takes longer",
            None => "archiving at level 1 reaches this rate if the disk is as fast",
        };
        let found = format!("compress {} at level 1, all together", quantity::rate(rate));
        findings.push(Finding::good("cores", found, meaning));
    }
    Ok(findings)
}

/// Measures how many bytes per second the disk reads, bypassing the page cache. Returns `None` if the
/// files are too small, or if the file system has no `O_DIRECT`.
fn measure_disk(files: &[(PathBuf, u64)], progress: &dyn Progress) -> Option<f64> {
    if files.iter().map(|(_, length)| length).sum::<u64>() < FILES_BYTES_MIN {
        return None;
    }
    let next = AtomicUsize::new(0);
    let reader = |count_and_check_time: &dyn Fn(usize) -> bool| {
        let (path, _) = &files[next.fetch_add(1, Relaxed) % files.len()];
        read_direct(path, count_and_check_time).is_ok()
    };
    measure_rate((0..READERS).map(|_| reader).collect(), progress)
}

/// Reads a file with `O_DIRECT`, until its end or until `count_and_check_time` returns false. Fails if
/// the file system does not support it.
fn read_direct(path: &Path, count_and_check_time: &dyn Fn(usize) -> bool) -> io::Result<()> {
    // `O_DIRECT` needs address, offset and length at multiples of the disk's block size.
    const ALIGN: usize = 4096;
    const PIECE_BYTES: usize = 4 << 20;
    let file = OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path)?;
    let mut memory = vec![0; PIECE_BYTES + ALIGN];
    let start = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
    let mut position = 0;
    let mut read_bytes = PIECE_BYTES;
    let mut has_time = true;
    while read_bytes == PIECE_BYTES && has_time {
        read_bytes = file.read_at(&mut memory[start..start + PIECE_BYTES], position)?;
        has_time = count_and_check_time(read_bytes);
        position += read_bytes as u64;
    }
    Ok(())
}

/// Calls each worker repeatedly on a thread of its own, until [`MEASURING_TIME`] is over. Returns the bytes
/// per second of all workers together, or `None` if they counted none. A worker passes the number of bytes
/// that it has processed to the given function, and must return when that function returns false. A worker
/// that returns false is not called again.
fn measure_rate<W>(workers: Vec<W>, progress: &dyn Progress) -> Option<f64>
where
    W: FnMut(&dyn Fn(usize) -> bool) -> bool + Send,
{
    let bytes = AtomicU64::new(0);
    let start = Instant::now();
    let count_and_check_time = |done_bytes: usize| {
        bytes.fetch_add(done_bytes as u64, Relaxed);
        start.elapsed() < MEASURING_TIME && !progress.is_interrupted()
    };
    std::thread::scope(|scope| {
        for mut worker in workers {
            let check = &count_and_check_time;
            // If a thread cannot be started, the others measure without it.
            let _ = std::thread::Builder::new().spawn_scoped(scope, move || while check(0) && worker(check) {});
        }
    });
    let bytes = bytes.load(Relaxed);
    let seconds = start.elapsed().as_secs_f64();
    (bytes > 0).then(|| bytes as f64 / seconds)
}

/// Reads content to compress: the beginning of the largest storages. If they are too short, this
/// program's own file follows.
fn read_content(files: &[(PathBuf, u64)]) -> Vec<u8> {
    let mut content = Vec::new();
    for path in files.iter().map(|(path, _)| path.as_path()).chain([Path::new("/proc/self/exe")]) {
        let missing_bytes = CONTENT_BYTES.saturating_sub(content.len() as u64);
        // Skip files that cannot be read.
        let _ = File::open(path).and_then(|file| file.take(missing_bytes).read_to_end(&mut content));
    }
    content
}

fn measure_cores(content: &[u8], progress: &dyn Progress) -> Result<Option<f64>> {
    if content.is_empty() {
        return Ok(None);
    }
    let codec = Codec::zstd(ZSTD_LEVEL_DEFAULT);
    let mut workers = Vec::new();
    for _ in 0..available_threads() {
        let mut compressor = FrameCompressor::new(&codec)?;
        let mut compressed = Vec::new();
        workers.push(move |count_and_check_time: &dyn Fn(usize) -> bool| {
            compressor.compress(content, &mut compressed).is_ok() && count_and_check_time(content.len())
        });
    }
    Ok(measure_rate(workers, progress))
}
