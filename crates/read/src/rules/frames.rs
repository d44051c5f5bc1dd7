//! Checks the frames of one archive.

use slotpress_base::Result;
use slotpress_format::{AGAVE_WINDOW_BYTES_MAX, FIREDANCER_WINDOW_BYTES_MAX, FrameHeader, FrameStart};

use super::findings::{FindingPlace, Findings};
use super::rule::Rule;
use crate::SeenFrame;

/// Checks the window of a frame, even if the frame states less content: Agave 4.2 was seen to
/// allocate the whole window.
pub fn check_window(header: &FrameHeader, place: FindingPlace, findings: &Findings) -> Result<()> {
    let (rule, limit) = match header.window_bytes {
        window if window > AGAVE_WINDOW_BYTES_MAX => (Rule::WindowRefused, AGAVE_WINDOW_BYTES_MAX),
        window if window > FIREDANCER_WINDOW_BYTES_MAX => (Rule::WindowLarge, FIREDANCER_WINDOW_BYTES_MAX),
        _ => return Ok(()),
    };
    findings.add_at(rule, &place, format!("at most {limit} bytes"), header.window_bytes)
}

#[derive(Debug, Default)]
pub struct FrameWatch {
    count: u64,
    last_offset_bytes: u64,
    has_index: bool,
    /// True if reading ended with a damaged frame.
    is_over: bool,
}

impl FrameWatch {
    pub fn see(&mut self, frame: SeenFrame, findings: &Findings) -> Result<()> {
        if self.is_over {
            return Ok(());
        }
        match frame.start {
            FrameStart::Zstd(header) => {
                check_window(&header, FindingPlace::frame(Some(self.count), Some(frame.offset_bytes)), findings)?;
                self.count = self.count.saturating_add(1);
                self.last_offset_bytes = frame.offset_bytes;
            }
            FrameStart::Skippable { .. } => self.has_index |= frame.is_index,
        }
        Ok(())
    }

    /// Reports an index that could not be used as damaged, except in a stream, where no index is
    /// searched for.
    pub fn finish(&self, is_stream: bool, findings: &Findings) -> Result<()> {
        if self.has_index && !is_stream && !findings.has(Rule::Index) {
            let found = "an index without a seek table that fits";
            findings.add(Rule::Index, "an index and its seek table", found)?;
        }
        Ok(())
    }

    /// Ends the watch with a frame that does not decode. What was read ahead of it does not count.
    pub fn end_at(&mut self, number: u64) {
        (self.count, self.has_index, self.is_over) = (number.saturating_add(1), false, true);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Number of the frame at an offset; `None` if the offset is before the last frame seen.
    pub fn number_of(&self, offset_bytes: Option<u64>) -> Option<u64> {
        self.count.checked_sub(1).filter(|_| offset_bytes.is_some_and(|offset| offset >= self.last_offset_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_frame_is_the_one_that_is_damaged() {
        let watch = FrameWatch { count: 3, last_offset_bytes: 700, ..FrameWatch::default() };
        let numbers = [None, Some(699), Some(700), Some(9000)].map(|offset_bytes| watch.number_of(offset_bytes));
        assert_eq!(numbers, [None, None, Some(2), Some(2)]);
        assert_eq!(FrameWatch::default().number_of(Some(0)), None);
    }
}
