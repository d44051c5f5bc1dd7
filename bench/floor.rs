//! Measures the floor of archiving and restoring: an archive's frames, already in memory, are
//! compressed (with checksums) and decompressed again by a number of threads, with nothing else
//! around it.
//!
//! `cargo run --release --example floor -- ARCHIVE [THREADS] [LEVEL]` prints the seconds of both.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use slotpress_read::{FrameDecoder, LocalFile, Tail};
use zstd::bulk::Compressor;
use zstd::zstd_safe::compress_bound;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: floor ARCHIVE [THREADS] [LEVEL]")?;
    let threads: usize = args.next().map_or(Ok(1), |text| text.parse())?;
    let level: i32 = args.next().map_or(Ok(1), |text| text.parse())?;
    let path = Path::new(&path);
    let file = File::open(path)?;
    let tail = Tail::read(&LocalFile::open(path)?)?.ok_or("the archive has no index")?;

    let mut decoder = FrameDecoder::new()?;
    let mut frames = Vec::new();
    for frame in &tail.frames {
        let mut compressed = vec![0; frame.compressed_bytes as usize];
        file.read_exact_at(&mut compressed, frame.offset_bytes)?;
        let mut content = Vec::new();
        decoder.decode(&compressed, frame.offset_bytes, u64::from(frame.content_bytes), &mut content)?;
        frames.push((compressed, content));
    }

    let compress_seconds = on_all(threads, frames.len(), || {
        let mut compressor = compressor(level);
        let frames = &frames;
        let mut to = vec![0; frames.iter().map(|(_, content)| compress_bound(content.len())).max().unwrap_or_default()];
        move |at: usize| compressor.compress_to_buffer(&frames[at].1, &mut to).is_ok()
    });
    let decompress_seconds = on_all(threads, frames.len(), || {
        let mut decoder = FrameDecoder::new().ok();
        let mut to = Vec::new();
        let frames = &frames;
        move |at: usize| {
            let (compressed, content) = &frames[at];
            decoder.as_mut().is_some_and(|decoder| {
                decoder.decode(compressed, 0, content.len() as u64, &mut to).is_ok() && to.len() == content.len()
            })
        }
    });
    println!("{compress_seconds:.4} {decompress_seconds:.4}");
    Ok(())
}

/// Processes all frames with a number of threads; returns the seconds.
fn on_all<W: FnMut(usize) -> bool>(threads: usize, count: usize, new_worker: impl Fn() -> W + Sync) -> f64 {
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut work = new_worker();
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    if at >= count {
                        break;
                    }
                    assert!(work(at), "frame {at}");
                }
            });
        }
    });
    start.elapsed().as_secs_f64()
}

#[allow(clippy::expect_used, reason = "without a context there is nothing to measure")]
fn compressor(level: i32) -> Compressor<'static> {
    let mut compressor = Compressor::new(level).expect("memory for a context");
    compressor.include_checksum(true).expect("zstd has checksums");
    compressor
}
