//! Cuts a tar stream into frames. An entry that fits into a frame is not cut.

use std::iter::Enumerate;

/// Default size of a frame: bytes of tar in one independent zstd frame. Measured archives
/// were 0.06% larger than with a single frame. A worker's buffers take tens of megabytes.
pub const FRAME_SIZE_BYTES_DEFAULT: u64 = 8 * 1024 * 1024;

/// Smallest frame size. With smaller frames, frame headers and the seek table become a noticeable
/// part of the archive.
pub const FRAME_SIZE_BYTES_MIN: u64 = 64 * 1024;

/// Largest frame size. Both clients accept the window that such a frame needs.
pub const FRAME_SIZE_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Part of the tar stream in one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSpan {
    /// Number of the entry in which the frame starts.
    pub first_entry: u64,
    /// Offset in that entry's tar bytes at which the frame starts; the entry's header is at 0.
    pub offset_bytes: u64,
    /// Bytes of tar in the frame, from 1 to the frame size.
    pub length_bytes: u64,
}

/// Cuts entries into frames, given their lengths in the tar stream. The result depends only on the
/// lengths and the frame size.
///
/// A frame contains as many whole entries as fit. An entry that is larger than a frame starts a new frame
/// and is cut at the frame size. Its last part shares a frame with the entries after it.
pub struct FrameCutter<I> {
    entry_lengths: Enumerate<I>,
    frame_size_bytes: u64,
    /// The entry, or the rest of an entry, that did not fit into the last frame.
    pending: Option<FrameSpan>,
}

impl<I: Iterator<Item = u64>> FrameCutter<I> {
    pub fn new(entry_lengths: I, frame_size_bytes: u64) -> Self {
        Self { entry_lengths: entry_lengths.enumerate(), frame_size_bytes: frame_size_bytes.max(1), pending: None }
    }

    fn next_part(&mut self) -> Option<FrameSpan> {
        self.pending.take().or_else(|| {
            let (number, length_bytes) = self.entry_lengths.next()?;
            Some(FrameSpan { first_entry: number as u64, offset_bytes: 0, length_bytes })
        })
    }
}

impl<I: Iterator<Item = u64>> Iterator for FrameCutter<I> {
    type Item = FrameSpan;

    fn next(&mut self) -> Option<FrameSpan> {
        let mut span = self.next_part()?;
        if span.length_bytes > self.frame_size_bytes {
            let mut rest = span;
            rest.offset_bytes = rest.offset_bytes.saturating_add(self.frame_size_bytes);
            rest.length_bytes = rest.length_bytes.saturating_sub(self.frame_size_bytes);
            self.pending = Some(rest);
            span.length_bytes = self.frame_size_bytes;
            return Some(span);
        }
        while let Some(part) = self.next_part() {
            let total_bytes = span.length_bytes.saturating_add(part.length_bytes);
            if total_bytes > self.frame_size_bytes {
                self.pending = Some(part);
                break;
            }
            span.length_bytes = total_bytes;
        }
        Some(span)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Frames cover the stream without gap or overlap, respect their size, and cut only entries
        /// that do not fit.
        #[test]
        fn frames_cover_the_stream(lengths in proptest::collection::vec(1u64..300, 0..60), size in 1u64..200) {
            let mut covered_bytes = 0;
            for span in FrameCutter::new(lengths.iter().copied(), size) {
                let first_entry = span.first_entry as usize;
                let entry_start = lengths[..first_entry].iter().sum::<u64>();
                prop_assert_eq!(entry_start + span.offset_bytes, covered_bytes);
                prop_assert!(span.length_bytes >= 1);
                prop_assert!(span.length_bytes <= size);
                prop_assert!(span.offset_bytes == 0 || lengths[first_entry] > size);
                covered_bytes += span.length_bytes;
            }
            prop_assert_eq!(covered_bytes, lengths.iter().sum::<u64>());
        }
    }

    #[test]
    fn a_large_entry_is_cut_and_its_rest_shares_a_frame() {
        let spans: Vec<_> = FrameCutter::new([10, 250, 20, 90].into_iter(), 100)
            .map(|span| (span.first_entry, span.offset_bytes, span.length_bytes))
            .collect();
        assert_eq!(spans, [(0, 0, 10), (1, 0, 100), (1, 100, 100), (1, 200, 70), (3, 0, 90)]);
    }
}
