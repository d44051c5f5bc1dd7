//! The visitor of all commands that read a whole archive. Applies the rules to frames, entries and damage
//! while the archive is read, and to documents at the end. Logs records for the state check.

use std::collections::HashSet;

use parking_lot::Mutex;
use slotpress_base::{Error, Result};
use slotpress_format::{
    AGAVE_WINDOW_BYTES_MAX, BankFile, Entry, EntryKind, EntryParser, FIREDANCER_WINDOW_BYTES_MAX,
    FRAME_HEADER_BYTES_MAX, FrameHeader, FrameStart, TarEnd,
};

use super::documents::{judge_documents, judge_name};
use super::entries::EntryChecker;
use super::failures::{FailurePlace, Failures, FailuresAt};
use super::rule::{Check, Rule};
use crate::archive::front::was_recompressed_from_firedancer;
use crate::{AccountsPass, ArchiveContents, EntryRole, OpenArchive, ReadFault, RecordVisitor, SeenFrame, Visitor};

/// Slots of all storages that were seen in the archives of a state.
pub type SeenSlots = Mutex<HashSet<u64>>;

pub struct ArchiveRules<'a> {
    failures: &'a Failures,
    seen_slots: &'a SeenSlots,
    /// True if frames come in any order, and skippable frames are not passed to [`Visitor::observe_frame`].
    is_by_index: bool,
    length_bytes: Option<u64>,
    entries: Mutex<EntryChecker>,
    frames: Mutex<FrameWatch>,
    records: Option<&'a AccountsPass<'a>>,
    has_sink: bool,
}

impl<'a> ArchiveRules<'a> {
    /// Creates the rules for an archive that is read in order. With a `base_slot`, the archive may hold only
    /// storages of newer slots.
    pub fn new(
        base_slot: Option<u64>,
        length_bytes: Option<u64>,
        seen_slots: &'a SeenSlots,
        failures: &'a Failures,
    ) -> Self {
        Self {
            failures,
            seen_slots,
            is_by_index: false,
            length_bytes,
            entries: Mutex::new(EntryChecker::new(base_slot)),
            frames: Mutex::default(),
            records: None,
            has_sink: false,
        }
    }

    pub fn from_archive(
        archive: &OpenArchive,
        base_slot: Option<u64>,
        seen_slots: &'a SeenSlots,
        failures: &'a Failures,
    ) -> Self {
        let is_by_index = archive.tail.is_some();
        Self { is_by_index, ..Self::new(base_slot, archive.source.length_bytes(), seen_slots, failures) }
    }

    #[must_use]
    pub fn with_records(self, records: Option<&'a AccountsPass<'a>>) -> Self {
        Self { records, ..self }
    }

    #[must_use]
    pub fn with_sink(self) -> Self {
        Self { has_sink: true, ..self }
    }

    fn judge_fault(&self, fault: ReadFault<'_>) -> Result<()> {
        let failures = self.failures;
        match fault {
            ReadFault::LostFrame { number, error, is_after_end } => {
                // Agave does not read beyond the end of the tar stream.
                let rule = if is_after_end { Rule::TrailingBytes } else { Rule::FrameDamaged };
                if !self.is_by_index {
                    // Some later frames have already been observed, because frames are read ahead.
                    // They are not counted.
                    let last_offset_bytes = error.offset_bytes().unwrap_or_default();
                    let frame_count = number.saturating_add(1);
                    *self.frames.lock() =
                        FrameWatch { frame_count, last_offset_bytes, has_index: false, has_ended: true };
                }
                failures.at(FailurePlace::frame(Some(number), error.offset_bytes())).add_error(rule, error)
            }
            ReadFault::WrongHash { number, offset_bytes } => {
                let place = FailurePlace::frame(Some(number), Some(offset_bytes));
                failures.at(place).add(Rule::FrameHash, "a frame with the recorded hash", "a different frame")
            }
            ReadFault::Unreadable { error, is_after_end } => self.judge_unreadable(error, is_after_end),
            ReadFault::DamagedHeader { error, offset_bytes } => {
                failures.at(FailurePlace::default().with_offset(offset_bytes)).add_error(Rule::TarDamaged, error)
            }
            ReadFault::End { parser } => self.judge_end(parser, &fault.into_error()),
        }
    }

    fn judge_unreadable(&self, error: &Error, is_after_end: bool) -> Result<()> {
        let offset_bytes = error.offset_bytes();
        let number = self.frames.lock().frame_number_at(offset_bytes);
        let end_bytes = offset_bytes.map(|offset| offset.saturating_add(FRAME_HEADER_BYTES_MAX as u64));
        let is_at_end = end_bytes.is_some_and(|end| end >= self.length_bytes.unwrap_or(u64::MAX));
        let rule = match (is_after_end, is_at_end) {
            (true, _) => Rule::TrailingBytes,
            (false, true) => Rule::CutOff,
            (false, false) => Rule::FrameDamaged,
        };
        self.failures.at(FailurePlace::frame(number, offset_bytes)).add_error(rule, error)
    }

    fn judge_end(&self, parser: &EntryParser, error: &Error) -> Result<()> {
        let failures = self.failures.at(FailurePlace::default().with_offset(parser.position()));
        let rule = match parser.end() {
            TarEnd::Clean => return Ok(()),
            TarEnd::Short => Rule::EndMissing,
            TarEnd::Long => Rule::EndLong,
            TarEnd::Junk => Rule::JunkAfterEnd,
            TarEnd::Inside if parser.is_between_entries() => Rule::EndMissing,
            TarEnd::Inside => Rule::CutOff,
        };
        if self.failures.refuses(rule) || rule == Rule::CutOff {
            return failures.add_error_to(Check::Entries, rule, error);
        }
        let found = match parser.end() {
            TarEnd::Junk => "other bytes".to_string(),
            TarEnd::Inside => "nothing".to_string(),
            _ => format!("{} zero bytes", parser.end_zero_bytes()),
        };
        failures.add(rule, "1024 zero bytes, then nothing", found)
    }

    /// Runs the checks at the end of the archive, and returns its entries and its bank file. Completes
    /// `contents.is_from_firedancer` and, if the archive was read in order, the number of frames.
    pub fn finish(
        &self,
        archive: &OpenArchive,
        contents: &mut ArchiveContents,
    ) -> Result<(Vec<Entry>, Option<BankFile>)> {
        if !self.is_by_index {
            let watch = self.frames.lock();
            // The index of a stream is not read.
            if watch.has_index && !archive.source.is_stream() && !self.failures.has(Rule::Index) {
                let found = "an index without a seek table that fits";
                self.failures.add(Rule::Index, "an index and its seek table", found)?;
            }
            contents.frames.frames = watch.frame_count;
        }
        let (entries, bank) = self.finish_entries(contents)?;
        judge_name(archive, bank.as_ref(), self.failures)?;
        contents.is_from_firedancer |= archive.tail.as_ref().is_some_and(was_recompressed_from_firedancer);
        Ok((entries, bank))
    }

    /// Runs the checks of [`finish`](Self::finish) except the checks of frames and name, which do not
    /// apply to a stream without a name.
    pub fn finish_entries(&self, contents: &mut ArchiveContents) -> Result<(Vec<Entry>, Option<BankFile>)> {
        let entries = std::mem::take(&mut *self.entries.lock());
        entries.finish(contents.has_all_entries, self.failures)?;
        let bank = judge_documents(std::mem::take(&mut contents.documents), entries.bank_slot, self.failures)?;
        entries.judge_shared_slot(bank.as_ref(), self.failures)?;
        contents.is_from_firedancer |= bank.as_ref().is_some_and(BankFile::lacks_stakes);
        Ok((entries.entries, bank))
    }
}

impl Visitor for ArchiveRules<'_> {
    fn visit_entry(&self, entry: &Entry) -> Result<EntryRole> {
        self.entries.lock().judge_entry(entry, &mut self.seen_slots.lock(), self.failures)?;
        let is_for_sink = self.has_sink;
        let EntryKind::Storage { slot, id } = entry.kind else {
            return Ok(EntryRole { is_document: true, is_for_sink, storage: None });
        };
        // An empty storage has no number: `recompress` leaves it out.
        let records = if entry.content_bytes > 0 { self.records } else { None };
        let storage = records.map(|records| records.state.add_storage(slot, id));
        Ok(EntryRole { is_document: false, is_for_sink, storage })
    }

    fn observe_frame(&self, frame: SeenFrame) -> Result<()> {
        let mut watch = self.frames.lock();
        match frame.start {
            _ if watch.has_ended => Ok(()),
            FrameStart::Zstd(header) => {
                watch.frame_count = frame.number.map_or(0, |number| number.saturating_add(1));
                watch.last_offset_bytes = frame.offset_bytes;
                drop(watch);
                check_window(&header, &self.failures.at(FailurePlace::frame(frame.number, Some(frame.offset_bytes))))
            }
            FrameStart::Skippable { .. } => {
                watch.has_index |= frame.is_index;
                Ok(())
            }
        }
    }

    fn handle_fault(&self, fault: ReadFault<'_>, lost: Option<&'static str>) -> Result<()> {
        self.judge_fault(fault)?;
        if let Some(reason) = lost {
            if !self.is_by_index {
                self.failures.skip(Check::Entries, reason);
            }
            self.failures.skip(Check::Records, reason);
            self.failures.set_lost_accounts();
        }
        Ok(())
    }

    fn records(&self) -> Option<&dyn RecordVisitor> {
        self.records.map(|records| records as &dyn RecordVisitor)
    }
}

/// Checks the window of a frame, even if the frame states that its content is shorter, because Agave 4.2 was
/// seen to allocate the whole window.
fn check_window(header: &FrameHeader, failures: &FailuresAt<'_>) -> Result<()> {
    let (rule, limit) = match header.window_bytes {
        window if window > AGAVE_WINDOW_BYTES_MAX => (Rule::WindowRefused, AGAVE_WINDOW_BYTES_MAX),
        window if window > FIREDANCER_WINDOW_BYTES_MAX => (Rule::WindowLarge, FIREDANCER_WINDOW_BYTES_MAX),
        _ => return Ok(()),
    };
    failures.add(rule, format!("at most {limit} bytes"), header.window_bytes)
}

/// Facts about the frames with tar data that have been seen, while an archive is read in order.
#[derive(Debug, Default)]
struct FrameWatch {
    frame_count: u64,
    last_offset_bytes: u64,
    has_index: bool,
    has_ended: bool,
}

impl FrameWatch {
    /// Returns the number of the last frame, unless the offset is before that frame.
    fn frame_number_at(&self, offset_bytes: Option<u64>) -> Option<u64> {
        let last = self.frame_count.checked_sub(1)?;
        if offset_bytes? >= self.last_offset_bytes { Some(last) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_after_the_start_of_the_last_frame_is_in_that_frame() {
        let watch = FrameWatch { frame_count: 3, last_offset_bytes: 700, ..FrameWatch::default() };
        let numbers = [None, Some(699), Some(700), Some(9000)].map(|offset_bytes| watch.frame_number_at(offset_bytes));
        assert_eq!(numbers, [None, None, Some(2), Some(2)]);
        assert_eq!(FrameWatch::default().frame_number_at(Some(0)), None);
    }
}
