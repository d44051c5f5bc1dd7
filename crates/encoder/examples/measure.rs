//! Measures size and CPU time of frames against zstd level 1: one thread, in memory, alternating, medians.
//!
//! `cargo run --release -p slotpress-encoder --example measure -- [ROUNDS] FILE.tar...`, with archives of
//! `slotpress archive --format none`, verbatim or clustered. Frames are of 8 MiB, or of what `--frame BYTES` says. `--base FILE.tar` before a file compares it with
//! level 1 on that one: clustered records with verbatim ones; the time of clustering is not in it.

use std::error::Error;
use std::hint::black_box;
use std::{env, fs};

use rustix::time::{ClockId, clock_gettime};
use slotpress_encoder::{Effort, Encoder, Way};
use zstd_safe::{CCtx, CParameter, compress_bound};

const HEADER_BYTES: usize = 136;

struct Frame {
    content: Vec<u8>,
    starts: Vec<u32>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut rounds = 5;
    let mut base = None;
    let mut frame_bytes = 8 << 20;
    let mut arguments = env::args().skip(1);
    println!(
        "| content | effort | size | CPU | decoding | frames from records | worst frame: size | CPU |\n|---|---|--:|--:|--:|--:|--:|--:|"
    );
    while let Some(argument) = arguments.next() {
        if argument == "--frame" {
            frame_bytes = arguments.next().unwrap_or_default().parse()?;
        } else if let Ok(number) = argument.parse() {
            rounds = number;
        } else if argument == "--base" {
            base = arguments.next();
        } else {
            measure(&argument, base.take().as_deref(), frame_bytes, rounds)?;
        }
    }
    Ok(())
}

fn measure(path: &str, base: Option<&str>, frame_bytes: usize, rounds: usize) -> Result<(), Box<dyn Error>> {
    let frames = frames(&fs::read(path)?, frame_bytes);
    let base = base.map(fs::read).transpose()?.map(|tar| self::frames(&tar, frame_bytes));
    let base = base.as_ref().unwrap_or(&frames);
    let mut context = CCtx::create();
    for parameter in [CParameter::CompressionLevel(1), CParameter::ChecksumFlag(true)] {
        context.set_parameter(parameter).map_err(zstd_safe::get_error_name)?;
    }
    let mut to = Vec::with_capacity(compress_bound(frames[0].content.len()) * 2);
    for effort in [Effort::Fast, Effort::Balanced] {
        let mut encoder = Encoder::new(effort, true)?;
        let (mut ratios, mut decodings, mut of_frames) = (Vec::new(), Vec::new(), vec![Vec::new(); frames.len()]);
        let (mut stock_bytes, mut bytes, mut from_records, mut largest) = (0, 0, 0, 0f64);
        for _ in 0..rounds {
            (stock_bytes, bytes, from_records) = (0, 0, 0);
            let (mut stock_seconds, mut seconds) = (0.0, 0.0);
            let (mut stock_decoding, mut decoding) = (0.0, 0.0);
            let mut room = vec![0; compress_bound(frames[0].content.len())];
            for ((frame, base), ratios) in frames.iter().zip(base).zip(&mut of_frames) {
                let before = cpu_seconds();
                let written = context.compress2(&mut room[..], &base.content).map_err(zstd_safe::get_error_name)?;
                let stock = cpu_seconds() - before;
                stock_seconds += stock;
                stock_bytes += written;
                stock_decoding += decode(&room[..written], &base.content)?;
                let before = cpu_seconds();
                let way = encoder.encode(black_box(&frame.content), &frame.starts, &mut to)?;
                let taken = cpu_seconds() - before;
                seconds += taken;
                ratios.push(taken / stock);
                bytes += to.len();
                // Frames of clustered records end at other places than those that they are compared with.
                largest = largest.max(to.len() as f64 / written as f64);
                from_records += usize::from(way == Way::Records);
                decoding += decode(&to, &frame.content)?;
            }
            ratios.push(seconds / stock_seconds);
            decodings.push(decoding / stock_decoding);
        }
        let size = bytes as f64 / stock_bytes as f64;
        let (cpu, decoding, of) = (median(ratios), median(decodings), frames.len());
        let slowest = of_frames.into_iter().map(median).fold(0.0, f64::max);
        println!(
            "| {path} | {effort:?} | {size:.4} | {cpu:.3} | {decoding:.2} | {from_records} of {of} | {largest:.4} | {slowest:.3} |"
        );
    }
    Ok(())
}

/// Seconds that decoding takes; the result is compared.
fn decode(frame: &[u8], content: &[u8]) -> Result<f64, Box<dyn Error>> {
    let mut decoded = vec![0; content.len()];
    let before = cpu_seconds();
    zstd_safe::decompress(&mut decoded[..], frame).map_err(zstd_safe::get_error_name)?;
    let seconds = cpu_seconds() - before;
    if decoded == content { Ok(seconds) } else { Err("a frame does not decode to its content".into()) }
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Frames of a tar file, with the records of `accounts/`.
fn frames(tar: &[u8], frame_bytes: usize) -> Vec<Frame> {
    let mut starts: Vec<usize> = Vec::new();
    let mut at = 0;
    while let Some(header) = tar.get(at..at + 512) {
        let text = String::from_utf8_lossy(&header[124..135]);
        let length = usize::from_str_radix(text.trim_matches(['\0', ' ']), 8).unwrap_or(0);
        at += 512;
        if header.starts_with(b"accounts/") {
            let mut record = at;
            while record + HEADER_BYTES <= (at + length).min(tar.len()) {
                starts.push(record);
                let mut word = [0; 8];
                word.copy_from_slice(&tar[record + 8..record + 16]);
                record = record.saturating_add(HEADER_BYTES + u64::from_le_bytes(word) as usize).next_multiple_of(8);
            }
        }
        at += length.next_multiple_of(512);
    }
    let frame = |(number, content): (usize, &[u8])| {
        let range = number * frame_bytes..(number + 1) * frame_bytes;
        let inside = starts.iter().filter(|start| range.contains(start));
        Frame { content: content.to_vec(), starts: inside.map(|start| (start - range.start) as u32).collect() }
    };
    tar.chunks(frame_bytes).enumerate().map(frame).collect()
}
