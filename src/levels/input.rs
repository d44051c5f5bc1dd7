//! The input of a measurement, held in memory: frames of the tar stream, cut as `archive` cuts them, or
//! frames of the bytes of any other file.
//!
//! Memory is bounded: an input larger than the limit is sampled. From a ledger, an archive with an
//! index or a plain file, only the sampled frames are read. An archive without an index is first
//! read in full, to check it and to find the lengths of its entries.

#![allow(missing_docs, reason = "the names suffice")]

use std::ops::Range;

use slotpress_base::{Error, EscapePath, Progress, Result, Stage, quantity};
use slotpress_format::{BLOCK_LEN, Entry, FrameCutter, FrameSpan};

use crate::archive::layout::CarriedPosition;
use crate::levels::MeasureOptions;
use crate::levels::sample::choose_frames;
use crate::levels::source::{ChosenFrame, OpenInput};

/// Default length of the content in memory: 128 frames of 8 MiB. From such a sample, the size of a
/// ledger's archive is estimated to within about 1% (docs/levels.md).
pub const SAMPLE_BYTES_DEFAULT: u64 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    Ledger,
    UnpackedArchive,
    Archive,
    /// Any other file; a compressed one is decompressed.
    File,
}

impl InputKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ledger => "ledger",
            Self::UnpackedArchive => "unpacked archive",
            Self::Archive => "archive",
            Self::File => "file",
        }
    }
}

#[derive(Debug)]
pub struct ContentFrame {
    pub content: Vec<u8>,
    /// Ranges of the storages that the frame holds completely; empty if the content is not a snapshot's.
    pub storages: Vec<Range<usize>>,
    /// Position of the records at the frame's start, for clustering; only if the frame begins
    /// inside an entry.
    pub carry: Option<CarriedPosition>,
}

impl ContentFrame {
    pub fn new(content: Vec<u8>) -> Self {
        Self { content, storages: Vec::new(), carry: None }
    }

    pub fn storages(&self) -> impl Iterator<Item = &[u8]> {
        self.storages.iter().filter_map(|range| self.content.get(range.clone()))
    }
}

#[derive(Debug)]
pub struct Input {
    pub kind: InputKind,
    /// Length in bytes of the whole input: of the tar stream, or of the file's content.
    pub total_bytes: u64,
    pub total_frames: u64,
    pub(super) frames: Vec<ContentFrame>,
}

impl Input {
    /// Returns the total length of the frames to be measured, in bytes.
    pub fn content_bytes(&self) -> u64 {
        self.frames.iter().map(|frame| frame.content.len() as u64).sum()
    }

    pub fn is_sampled(&self) -> bool {
        (self.frames.len() as u64) < self.total_frames
    }

    /// Reads the input, or a sample of it, into memory.
    ///
    /// # Errors
    /// The input cannot be read, is damaged or holds nothing, or the sample is too small.
    pub fn read(options: &MeasureOptions, progress: &dyn Progress) -> Result<Self> {
        progress.stage(Stage::Reading, None);
        let source = OpenInput::open(options, progress)?;
        let total_bytes: u64 = source.entry_lengths().sum();
        let spans = || FrameCutter::new(source.entry_lengths(), options.frame_size_bytes);
        let total_frames = spans().count() as u64;
        let sampled_frames = sample_frame_count(options.sample_bytes, total_bytes, total_frames)?;
        let indices = choose_frames(total_frames, sampled_frames, options.seed);
        let chosen = ChosenFrame::from_spans(spans(), &indices);
        let mut frames = source.load(&chosen, options.threads, progress)?;
        for (frame, ChosenFrame { span, .. }) in frames.iter_mut().zip(chosen) {
            let first_entry = usize::try_from(span.first_entry).unwrap_or(usize::MAX);
            let entries = source.entries.get(first_entry..).unwrap_or_default();
            frame.storages = find_whole_storages(entries, &span);
            if span.offset_bytes > 0
                && let Some(entry) = entries.first()
            {
                let position = CarriedPosition::find(*entry, span.offset_bytes, &frame.content);
                frame.carry = Some(position);
            }
        }
        if frames.iter().all(|frame| frame.content.is_empty()) {
            let path = options.input.ledger.escaped();
            return Err(Error::usage(format!("{path} holds nothing to measure")));
        }
        Ok(Self { kind: source.kind, total_bytes, total_frames, frames })
    }
}

/// Finds the storages that a frame holds completely. `entries` begins with the frame's first entry.
fn find_whole_storages(entries: &[Entry], span: &FrameSpan) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut end = 0;
    for (number, entry) in entries.iter().enumerate() {
        let skipped_bytes = if number == 0 { span.offset_bytes } else { 0 };
        let content_start = end + BLOCK_LEN as u64;
        end += entry.tar_bytes().saturating_sub(skipped_bytes);
        if end > span.length_bytes {
            break;
        }
        if entry.is_storage() && skipped_bytes == 0 {
            ranges.push(content_start as usize..(content_start + entry.content_bytes) as usize);
        }
    }
    ranges
}

/// Returns the number of frames in the sample; all of them if the whole input is measured.
fn sample_frame_count(sample_bytes: u64, total_bytes: u64, total_frames: u64) -> Result<u64> {
    if sample_bytes >= total_bytes {
        return Ok(total_frames);
    }
    // Frames are cut between entries, so on average they are shorter than their nominal size.
    let frames = (u128::from(sample_bytes) * u128::from(total_frames) / u128::from(total_bytes)) as u64;
    if frames < 2 {
        let sample = quantity::bytes(sample_bytes);
        let message = format!(
            "a sample of {sample} holds fewer than two of the {total_frames} frames: its error cannot be estimated"
        );
        return Err(Error::usage(message).with_hint("use a larger sample, or smaller frames where there is a choice"));
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use slotpress_format::EntryKind;

    use super::*;

    #[test]
    fn whole_storages_of_a_frame_are_found() {
        let entry = |kind, content_bytes| Entry { kind, content_bytes };
        let storage = |id, content_bytes| entry(EntryKind::Storage { slot: 3, id }, content_bytes);
        let entries = [entry(EntryKind::Version, 5), storage(1, 700), storage(2, 0), storage(3, 9000), storage(4, 8)];
        let ranges = |first: usize, offset_bytes, length_bytes| {
            find_whole_storages(&entries[first..], &FrameSpan { first_entry: first as u64, offset_bytes, length_bytes })
        };
        // The last of three entries continues in the next frame.
        assert_eq!(ranges(0, 0, 4000), [1536..2236, 3072..3072]);
        let whole = ranges(3, 1000, 9728 - 1000 + 1024);
        assert_eq!(whole.len(), 1, "not the storage that began before: {whole:?}");
        assert_eq!(whole[0], 8728 + 512..8728 + 520);
        assert!(ranges(4, 0, 512).is_empty());
        assert!(find_whole_storages(&[], &FrameSpan { first_entry: 9, offset_bytes: 0, length_bytes: 9 }).is_empty());
    }
}
