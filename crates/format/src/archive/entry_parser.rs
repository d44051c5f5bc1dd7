//! Parses a tar stream that arrives in pieces of any size, without copying contents.
//!
//! `EntryParser::default()` starts at the beginning of a stream, or at the header of an entry;
//! [`EntryParser::inside`] starts in the middle of an entry, as frames inside an archive do.

use slotpress_base::{Error, Result, split_at_most, to_usize};

use crate::archive::entry::{is_firedancer_header, padded_bytes};
use crate::{BLOCK, BLOCK_BYTES, END_OF_ARCHIVE_BYTES, ENTRIES_MAX, Entry, padding_bytes};

const CUT_OFF: &str = "the archive was cut off, or its maker stopped early: get it again";

#[derive(Debug, PartialEq, Eq)]
pub enum TarEvent<'a> {
    Begin(Entry),
    Content { offset_bytes: u64, bytes: &'a [u8] },
    End(Entry),
}

/// Receives the events of a parser, whose bytes live for `'b`.
pub type OnEvent<'a, 'b> = dyn FnMut(TarEvent<'b>) -> Result<()> + 'a;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TarEnd {
    /// The stream has not ended: a header or the rest of an entry is missing.
    Inside,
    /// Exactly the zero bytes that both clients accept.
    Clean,
    Short,
    Long,
    Junk,
}

#[derive(Debug, Default)]
pub struct EntryParser {
    state: ParserState,
    position: u64,
    /// Beginning of a block whose rest is in the next piece.
    block: Vec<u8>,
    entries: u64,
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
        left_bytes: u64,
    },
    End,
}

impl ParserState {
    fn padding(left_bytes: u64) -> Self {
        match left_bytes {
            0 => Self::Header,
            left_bytes => Self::Padding { left_bytes },
        }
    }
}

impl EntryParser {
    /// Starts inside an entry, `offset_bytes` after the start of its header. Returns `None` if that
    /// is inside the header or after the entry.
    pub fn inside(entry: Entry, offset_bytes: u64) -> Option<Self> {
        let mut parser = Self::default();
        if offset_bytes == 0 {
            return Some(parser);
        }
        let content_offset = offset_bytes.checked_sub(BLOCK_BYTES)?;
        parser.state = if content_offset < entry.content_bytes {
            ParserState::Content { entry, offset_bytes: content_offset }
        } else {
            ParserState::Padding { left_bytes: padded_bytes(entry.content_bytes).checked_sub(content_offset)? }
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
                ParserState::Header => BLOCK.saturating_sub(self.block.len()),
                ParserState::Content { entry, offset_bytes } => {
                    to_usize(entry.content_bytes.saturating_sub(offset_bytes))
                }
                ParserState::Padding { left_bytes } => to_usize(left_bytes),
                ParserState::End => bytes.len(),
            };
            let (part, rest) = split_at_most(bytes, wanted);
            self.take(part, on_event)?;
            self.position = self.position.saturating_add(part.len() as u64);
            bytes = rest;
        }
        Ok(())
    }

    fn take<'b>(&mut self, bytes: &'b [u8], on_event: &mut OnEvent<'_, 'b>) -> Result<()> {
        let length_bytes = bytes.len() as u64;
        match self.state {
            ParserState::Header => self.take_header(bytes, on_event)?,
            ParserState::Content { entry, offset_bytes } => {
                on_event(TarEvent::Content { offset_bytes, bytes })?;
                self.continue_content(entry, offset_bytes.saturating_add(length_bytes), on_event)?;
            }
            ParserState::Padding { left_bytes } => {
                self.state = ParserState::padding(left_bytes.saturating_sub(length_bytes))
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

    /// Checks that the stream may end here: after the end of the archive.
    pub fn finish(&self) -> Result<()> {
        match self.state {
            ParserState::End if self.end_zero_bytes >= END_OF_ARCHIVE_BYTES => Ok(()),
            ParserState::Content { entry, offset_bytes } => Err(Error::damaged(format!(
                "the tar stream ends inside {}, after {offset_bytes} of {} bytes",
                entry.kind, entry.content_bytes
            ))
            .with_hint(CUT_OFF)),
            _ => Err(Error::damaged(format!(
                "the tar stream ends without its {END_OF_ARCHIVE_BYTES} bytes of zeros, after {} bytes",
                self.position
            ))
            .with_hint(CUT_OFF)),
        }
    }

    /// True at the start of an entry or after the end, where a new frame can begin.
    pub fn is_between_entries(&self) -> bool {
        matches!(self.state, ParserState::Header | ParserState::End) && self.block.is_empty()
    }

    fn take_header(&mut self, bytes: &[u8], on_event: &mut OnEvent<'_, '_>) -> Result<()> {
        self.block.extend_from_slice(bytes);
        let Ok(block) = <&[u8; BLOCK]>::try_from(self.block.as_slice()) else { return Ok(()) };
        if block.iter().all(|byte| *byte == 0) {
            self.state = ParserState::End;
            self.end_zero_bytes = BLOCK_BYTES;
        } else {
            let offset = self.position.saturating_add(bytes.len() as u64).saturating_sub(BLOCK_BYTES);
            let entry = Entry::parse_header(block)
                .map_err(|error| error.within(format!("at offset {offset} of the tar stream")))?;
            self.is_from_firedancer |= self.entries == 0 && is_firedancer_header(block);
            self.entries = self.entries.saturating_add(1);
            if self.entries > ENTRIES_MAX {
                return Err(Error::damaged(format!("more than {ENTRIES_MAX} entries, which no client reads")));
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
            self.state = ParserState::padding(padding_bytes(entry.content_bytes));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::EntryKind;

    const VERSION: Entry = Entry { kind: EntryKind::Version, content_bytes: 5 };

    fn found_by(parser: &mut EntryParser, tar: &[u8]) -> Result<Vec<(bool, Entry)>> {
        let mut found = Vec::new();
        parser.feed(tar, &mut |event| {
            match event {
                TarEvent::Begin(entry) => found.push((true, entry)),
                TarEvent::End(entry) => found.push((false, entry)),
                TarEvent::Content { .. } => {}
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn tar_entry(path: &str, flag: u8, content: &[u8]) -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        header.set_path(path).expect("short");
        header.set_entry_type(tar::EntryType::new(flag));
        header.set_size(content.len() as u64);
        header.set_cksum();
        let mut tar = header.as_bytes().to_vec();
        tar.extend_from_slice(content);
        tar.resize(tar.len().next_multiple_of(512), 0);
        tar
    }

    #[test]
    fn ends_of_streams_are_told_apart() {
        let end_of = |bytes: &[u8]| {
            let mut parser = EntryParser::default();
            parser.feed(&tar_entry("version", b'0', b"1.2.0"), &mut |_| Ok(())).expect("an entry");
            parser.feed(bytes, &mut |_| Ok(())).expect("an end");
            (parser.end(), parser.end_zero_bytes(), parser.finish().is_ok())
        };
        assert_eq!(end_of(&[]), (TarEnd::Inside, 0, false));
        assert_eq!(end_of(&[0; 512]), (TarEnd::Short, 512, false));
        assert_eq!(end_of(&[0; 1024]), (TarEnd::Clean, 1024, true));
        assert_eq!(end_of(&[0; 1536]), (TarEnd::Long, 1536, true));
        let junk = [vec![0; 1024], vec![1], vec![0; 512]].concat();
        assert_eq!(end_of(&junk), (TarEnd::Junk, 1024, true));
    }

    #[test]
    fn streams_are_cut_between_entries() {
        let tar = [tar_entry("version", b'0', b"1.2.0"), vec![0; 1024]].concat();
        let mut parser = EntryParser::default();
        let mut between = Vec::new();
        for (at, byte) in tar.iter().enumerate() {
            if parser.is_between_entries() {
                between.push(at);
            }
            parser.feed(&[*byte], &mut |_| Ok(())).expect("a good stream");
        }
        assert_eq!(between.first(), Some(&0));
        assert_eq!(between.get(1), Some(&1024), "after the entry, not inside it or a header");
        assert_eq!(between.get(2), Some(&1536), "after the first block of zeros");
    }

    #[test]
    fn too_many_entries_are_refused() {
        let mut parser = EntryParser { entries: ENTRIES_MAX - 1, ..EntryParser::default() };
        let tar = tar_entry("version", b'0', b"");
        parser.feed(&tar, &mut |_| Ok(())).expect("the last one");
        assert!(parser.feed(&tar, &mut |_| Ok(())).is_err());
    }

    #[test]
    fn a_parser_can_start_at_the_end_of_an_entry() {
        let entry = Entry { kind: EntryKind::StatusCache, content_bytes: 512 };
        assert!(EntryParser::inside(entry, 511).is_none());
        assert!(EntryParser::inside(entry, 1025).is_none());
        let mut parser = EntryParser::inside(entry, 1024).expect("at its end");
        let found = found_by(&mut parser, &tar_entry("version", b'0', b"1.2.0")).expect("an entry");
        assert_eq!(found, [(true, VERSION), (false, VERSION)]);
    }

    fn tar_with(contents: &[Vec<u8>]) -> (Vec<u8>, Vec<(Entry, Vec<u8>)>) {
        let mut tar = Vec::new();
        let mut expected = Vec::new();
        for (number, content) in contents.iter().enumerate() {
            let kind = EntryKind::Storage { slot: number as u64, id: 1 };
            let entry = Entry { kind, content_bytes: content.len() as u64 };
            tar.extend_from_slice(&entry.header());
            tar.extend_from_slice(content);
            tar.resize(tar.len().next_multiple_of(512), 0);
            expected.push((entry, content.clone()));
        }
        tar.resize(tar.len() + 1024, 0);
        (tar, expected)
    }

    fn contents() -> impl Strategy<Value = Vec<Vec<u8>>> {
        proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..1500), 0..6)
    }

    proptest! {
        /// The result does not depend on how the stream is cut into pieces.
        #[test]
        fn pieces_do_not_matter(contents in contents(), piece in 1usize..2000) {
            let (tar, expected) = tar_with(&contents);
            let mut parser = EntryParser::default();
            let mut found: Vec<(Entry, Vec<u8>)> = Vec::new();
            let mut ended = 0;
            for piece in tar.chunks(piece) {
                parser.feed(piece, &mut |event| {
                    match event {
                        TarEvent::Begin(entry) => found.push((entry, Vec::new())),
                        TarEvent::Content { offset_bytes, bytes } => {
                            let content = &mut found.last_mut().expect("begun").1;
                            assert_eq!(content.len() as u64, offset_bytes);
                            content.extend_from_slice(bytes);
                        }
                        TarEvent::End(_) => ended += 1,
                    }
                    Ok(())
                }).expect("a good stream");
            }
            parser.finish().expect("complete");
            prop_assert_eq!(parser.position(), tar.len() as u64);
            prop_assert_eq!(ended, expected.len());
            prop_assert_eq!(found, expected);
        }

        /// A stream that is cut off anywhere is refused.
        #[test]
        fn truncation_is_found(contents in contents(), at in any::<prop::sample::Index>()) {
            let (tar, _) = tar_with(&contents);
            let mut parser = EntryParser::default();
            parser.feed(&tar[..at.index(tar.len())], &mut |_| Ok(())).expect("a good beginning");
            prop_assert!(parser.finish().is_err());
        }

        /// A parser that starts inside an entry finds the rest of it.
        #[test]
        fn a_parser_can_start_inside_an_entry(content in proptest::collection::vec(any::<u8>(), 1..2000), cut in any::<prop::sample::Index>()) {
            let (tar, expected) = tar_with(std::slice::from_ref(&content));
            let entry = expected[0].0;
            let at = 512 + cut.index(tar.len() - 1024 - 512);
            let mut parser = EntryParser::inside(entry, at as u64).expect("inside");
            let mut rest = vec![0; content.len().min(at - 512)];
            parser.feed(&tar[at..], &mut |event| {
                if let TarEvent::Content { offset_bytes, bytes } = event {
                    assert_eq!(rest.len() as u64, offset_bytes);
                    rest.extend_from_slice(bytes);
                }
                Ok(())
            }).expect("a good stream");
            parser.finish().expect("complete");
            prop_assert_eq!(&rest[(at - 512).min(content.len())..], &content[(at - 512).min(content.len())..]);
        }
    }
}
