//! Parses a tar stream that arrives in pieces of any size, without copying contents.
//!
//! `EntryParser::default()` starts at the beginning of a stream, or at the header of an entry.
//! [`EntryParser::resume`] starts in the middle of an entry, where a frame of an archive may begin.

use slotpress_base::{Error, Result, split_at_most, to_usize};

use crate::archive::entry::{is_firedancer_header, padded_bytes};
use crate::{BLOCK_LEN, END_OF_ARCHIVE_BYTES, ENTRIES_MAX, Entry, padding_bytes};

const TRUNCATED_HINT: &str = "the archive was truncated, or the program that wrote it stopped early: fetch it again";

#[derive(Debug, PartialEq, Eq)]
pub enum TarEvent<'a> {
    Begin(Entry),
    Content { offset_bytes: u64, bytes: &'a [u8] },
    End(Entry),
}

/// Receives the events of a parser. The bytes in an event live for `'b`.
pub type OnEvent<'a, 'b> = dyn FnMut(TarEvent<'b>) -> Result<()> + 'a;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TarEnd {
    /// The stream has not ended: a header, or the rest of an entry, is missing.
    Inside,
    /// The archive ends with exactly the zero bytes that both clients accept.
    Clean,
    /// There are fewer zero bytes.
    Short,
    /// There are more zero bytes.
    Long,
    /// Other bytes follow the first zero bytes.
    Junk,
}

#[derive(Debug, Default)]
pub struct EntryParser {
    state: ParserState,
    position: u64,
    /// Beginning of a block whose rest is in the next piece.
    block: Vec<u8>,
    entry_count: u64,
    is_from_firedancer: bool,
    end_zero_bytes: u64,
    has_junk: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ParserState {
    #[default]
    Header,
    Content {
        entry: Entry,
        offset_bytes: u64,
    },
    Padding {
        remaining_bytes: u64,
    },
    End,
}

impl ParserState {
    fn after_content(padding_bytes: u64) -> Self {
        match padding_bytes {
            0 => Self::Header,
            remaining_bytes => Self::Padding { remaining_bytes },
        }
    }
}

impl EntryParser {
    /// Starts `offset_bytes` after the start of an entry's header. Returns `None` if this is inside the
    /// header, or after the entry.
    pub fn resume(entry: Entry, offset_bytes: u64) -> Option<Self> {
        let mut parser = Self::default();
        if offset_bytes == 0 {
            return Some(parser);
        }
        let content_offset = offset_bytes.checked_sub(BLOCK_LEN as u64)?;
        parser.state = if content_offset < entry.content_bytes {
            ParserState::Content { entry, offset_bytes: content_offset }
        } else {
            ParserState::Padding { remaining_bytes: padded_bytes(entry.content_bytes).checked_sub(content_offset)? }
        };
        Some(parser)
    }

    /// True if Firedancer wrote the first header.
    pub fn is_from_firedancer(&self) -> bool {
        self.is_from_firedancer
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    pub fn end_zero_bytes(&self) -> u64 {
        self.end_zero_bytes
    }

    pub fn end(&self) -> TarEnd {
        match self.end_zero_bytes {
            _ if self.state != ParserState::End => TarEnd::Inside,
            _ if self.has_junk => TarEnd::Junk,
            END_OF_ARCHIVE_BYTES => TarEnd::Clean,
            fewer if fewer < END_OF_ARCHIVE_BYTES => TarEnd::Short,
            _ => TarEnd::Long,
        }
    }

    pub fn feed<'b>(&mut self, mut bytes: &'b [u8], on_event: &mut OnEvent<'_, 'b>) -> Result<()> {
        while !bytes.is_empty() {
            let wanted = match self.state {
                ParserState::Header => BLOCK_LEN.saturating_sub(self.block.len()),
                ParserState::Content { entry, offset_bytes } => {
                    to_usize(entry.content_bytes.saturating_sub(offset_bytes))
                }
                ParserState::Padding { remaining_bytes } => to_usize(remaining_bytes),
                ParserState::End => bytes.len(),
            };
            let (part, rest) = split_at_most(bytes, wanted);
            self.parse_part(part, on_event)?;
            self.position = self.position.saturating_add(part.len() as u64);
            bytes = rest;
        }
        Ok(())
    }

    /// Parses bytes that all belong to the same header, content, padding, or end.
    fn parse_part<'b>(&mut self, bytes: &'b [u8], on_event: &mut OnEvent<'_, 'b>) -> Result<()> {
        let length_bytes = bytes.len() as u64;
        match self.state {
            ParserState::Header => self.parse_header_part(bytes, on_event)?,
            ParserState::Content { entry, offset_bytes } => {
                on_event(TarEvent::Content { offset_bytes, bytes })?;
                self.continue_content(entry, offset_bytes.saturating_add(length_bytes), on_event)?;
            }
            ParserState::Padding { remaining_bytes } => {
                self.state = ParserState::after_content(remaining_bytes.saturating_sub(length_bytes))
            }
            ParserState::End => {
                let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
                if !self.has_junk {
                    self.end_zero_bytes = self.end_zero_bytes.saturating_add(zeros as u64);
                }
                self.has_junk |= zeros < bytes.len();
            }
        }
        Ok(())
    }

    /// Checks that the tar stream is complete. Call this at the end of the input.
    pub fn finish(&self) -> Result<()> {
        match self.state {
            ParserState::End if self.end_zero_bytes >= END_OF_ARCHIVE_BYTES => Ok(()),
            ParserState::Content { entry, offset_bytes } => Err(Error::damaged(format!(
                "the tar stream ends inside {}, after {offset_bytes} of {} bytes",
                entry.kind, entry.content_bytes
            ))
            .with_hint(TRUNCATED_HINT)),
            _ => Err(Error::damaged(format!(
                "the tar stream ends without its {END_OF_ARCHIVE_BYTES} bytes of zeros, after {} bytes",
                self.position
            ))
            .with_hint(TRUNCATED_HINT)),
        }
    }

    /// True at the start of an entry or after the end, where a new frame can begin.
    pub fn is_between_entries(&self) -> bool {
        matches!(self.state, ParserState::Header | ParserState::End) && self.block.is_empty()
    }

    fn parse_header_part(&mut self, bytes: &[u8], on_event: &mut OnEvent<'_, '_>) -> Result<()> {
        self.block.extend_from_slice(bytes);
        let Ok(block) = <&[u8; BLOCK_LEN]>::try_from(self.block.as_slice()) else { return Ok(()) };
        if block.iter().all(|byte| *byte == 0) {
            self.state = ParserState::End;
            self.end_zero_bytes = BLOCK_LEN as u64;
        } else {
            let offset = self.position.saturating_add(bytes.len() as u64).saturating_sub(BLOCK_LEN as u64);
            let entry = Entry::parse_header(block)
                .map_err(|error| error.with_place(format!("at offset {offset} of the tar stream")))?;
            self.is_from_firedancer |= self.entry_count == 0 && is_firedancer_header(block);
            self.entry_count = self.entry_count.saturating_add(1);
            if self.entry_count > ENTRIES_MAX {
                return Err(Error::damaged(format!("more than {ENTRIES_MAX} entries, which Agave refuses")));
            }
            on_event(TarEvent::Begin(entry))?;
            self.continue_content(entry, 0, on_event)?;
        }
        self.block.clear();
        Ok(())
    }

    fn continue_content(&mut self, entry: Entry, offset_bytes: u64, on_event: &mut OnEvent<'_, '_>) -> Result<()> {
        self.state = ParserState::Content { entry, offset_bytes };
        if offset_bytes == entry.content_bytes {
            on_event(TarEvent::End(entry))?;
            self.state = ParserState::after_content(padding_bytes(entry.content_bytes));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::EntryKind;

    fn tar_entry(kind: EntryKind, content: &[u8]) -> Vec<u8> {
        let entry = Entry { kind, content_bytes: content.len() as u64 };
        let mut tar = [&entry.header()[..], content].concat();
        tar.resize(tar.len().next_multiple_of(BLOCK_LEN), 0);
        tar
    }

    fn version_entry() -> Vec<u8> {
        tar_entry(EntryKind::Version, b"1.2.0")
    }

    #[test]
    fn ends_of_streams_are_distinguished() {
        let parse_end = |bytes: &[u8]| {
            let mut parser = EntryParser::default();
            parser.feed(&version_entry(), &mut |_| Ok(())).expect("an entry");
            parser.feed(bytes, &mut |_| Ok(())).expect("an end");
            (parser.end(), parser.end_zero_bytes(), parser.finish().is_ok())
        };
        assert_eq!(parse_end(&[]), (TarEnd::Inside, 0, false));
        assert_eq!(parse_end(&[0; 512]), (TarEnd::Short, 512, false));
        assert_eq!(parse_end(&[0; 1024]), (TarEnd::Clean, 1024, true));
        assert_eq!(parse_end(&[0; 1536]), (TarEnd::Long, 1536, true));
        let junk = [vec![0; 1024], vec![1], vec![0; 512]].concat();
        assert_eq!(parse_end(&junk), (TarEnd::Junk, 1024, true));
    }

    #[test]
    fn streams_are_cut_between_entries() {
        let tar = [version_entry(), vec![0; 1024]].concat();
        let mut parser = EntryParser::default();
        let mut offsets_between = Vec::new();
        for (offset, byte) in tar.iter().enumerate() {
            if parser.is_between_entries() {
                offsets_between.push(offset);
            }
            parser.feed(&[*byte], &mut |_| Ok(())).expect("a good stream");
        }
        assert_eq!(offsets_between.first(), Some(&0));
        assert_eq!(offsets_between.get(1), Some(&1024), "after the entry, not inside it or a header");
        assert_eq!(offsets_between.get(2), Some(&1536), "after the first block of zeros");
    }

    #[test]
    fn too_many_entries_are_refused() {
        let mut parser = EntryParser { entry_count: ENTRIES_MAX - 1, ..EntryParser::default() };
        let tar = tar_entry(EntryKind::Version, b"");
        parser.feed(&tar, &mut |_| Ok(())).expect("the last one");
        assert!(parser.feed(&tar, &mut |_| Ok(())).is_err());
    }

    #[test]
    fn a_parser_can_start_at_the_end_of_an_entry() {
        let entry = Entry { kind: EntryKind::StatusCache, content_bytes: 512 };
        assert!(EntryParser::resume(entry, 511).is_none());
        assert!(EntryParser::resume(entry, 1025).is_none());
        let mut parser = EntryParser::resume(entry, 1024).expect("at its end");
        let mut entries = Vec::new();
        parser
            .feed(&version_entry(), &mut |event| {
                if let TarEvent::Begin(entry) | TarEvent::End(entry) = event {
                    entries.push(entry);
                }
                Ok(())
            })
            .expect("an entry");
        assert_eq!(entries, [Entry { kind: EntryKind::Version, content_bytes: 5 }; 2], "its beginning and its end");
    }

    fn storage_kind(slot: u64) -> EntryKind {
        EntryKind::Storage { slot, id: 1 }
    }

    /// Makes a whole tar stream. The contents become storages of the slots from 0.
    fn tar_of_storages(contents: &[Vec<u8>]) -> Vec<u8> {
        let entries = (0..).zip(contents).flat_map(|(slot, content)| tar_entry(storage_kind(slot), content));
        entries.chain([0; 1024]).collect()
    }

    fn any_contents() -> impl Strategy<Value = Vec<Vec<u8>>> {
        proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..1500), 0..6)
    }

    proptest! {
        #[test]
        fn streams_are_parsed_in_pieces_of_any_size(contents in any_contents(), piece_bytes in 1usize..2000) {
            let tar = tar_of_storages(&contents);
            let mut parser = EntryParser::default();
            let mut started = Vec::new();
            let mut found_contents: Vec<Vec<u8>> = Vec::new();
            let mut ended = Vec::new();
            for piece in tar.chunks(piece_bytes) {
                parser.feed(piece, &mut |event| {
                    match event {
                        TarEvent::Begin(entry) => {
                            started.push(entry);
                            found_contents.push(Vec::new());
                        }
                        TarEvent::Content { offset_bytes, bytes } => {
                            let content = found_contents.last_mut().expect("an entry has started");
                            assert_eq!(content.len() as u64, offset_bytes);
                            content.extend_from_slice(bytes);
                        }
                        TarEvent::End(entry) => ended.push(entry),
                    }
                    Ok(())
                }).expect("a good stream");
            }
            parser.finish().expect("complete");
            let entries = (0..).zip(&contents).map(|(slot, content)| {
                Entry { kind: storage_kind(slot), content_bytes: content.len() as u64 }
            });
            prop_assert_eq!(parser.position(), tar.len() as u64);
            prop_assert_eq!(&started, &entries.collect::<Vec<_>>());
            prop_assert_eq!(ended, started);
            prop_assert_eq!(found_contents, contents);
        }

        #[test]
        fn truncated_streams_are_refused(contents in any_contents(), end in any::<prop::sample::Index>()) {
            let tar = tar_of_storages(&contents);
            let mut parser = EntryParser::default();
            parser.feed(&tar[..end.index(tar.len())], &mut |_| Ok(())).expect("a good beginning");
            prop_assert!(parser.finish().is_err());
        }

        #[test]
        fn a_parser_that_starts_inside_an_entry_finds_the_rest(
            content in proptest::collection::vec(any::<u8>(), 1..2000), cut in any::<prop::sample::Index>(),
        ) {
            let tar = tar_of_storages(std::slice::from_ref(&content));
            let entry = Entry { kind: storage_kind(0), content_bytes: content.len() as u64 };
            let start = BLOCK_LEN + cut.index(tar.len() - 1024 - BLOCK_LEN);
            let content_start = (start - BLOCK_LEN).min(content.len());
            let mut parser = EntryParser::resume(entry, start as u64).expect("inside");
            let mut rest = Vec::new();
            parser.feed(&tar[start..], &mut |event| {
                if let TarEvent::Content { offset_bytes, bytes } = event {
                    assert_eq!((content_start + rest.len()) as u64, offset_bytes);
                    rest.extend_from_slice(bytes);
                }
                Ok(())
            }).expect("a good stream");
            parser.finish().expect("complete");
            prop_assert_eq!(&rest[..], &content[content_start..]);
        }
    }
}
