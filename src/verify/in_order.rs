//! An archive of any maker, in the order of its tar stream: decoded where its frames allow on all cores, parsed on the
//! calling thread, and its storages handed to workers in batches of whole records.
//!
//! A frame that does not decode, or a tar header that makes no sense, does not end the reading: where the next frame
//! starts is known from block headers, and the next entry is searched for.

use {
    crate::{
        error::{Error, ErrorKind, Result},
        format::{
            clients::Rule,
            entry::{EntryKind, Oddity, TarHeader},
            entry_parser::{EntryParser, TarEnd, TarEvent},
            header_search::HeaderSearch,
        },
        restore::{
            documents::DocumentReader,
            input::{Decoded, LostFrame},
        },
        verify::{
            batches::{Batch, Batcher, hash_batches},
            entries::EntryChecker,
            frames::FrameWatch,
            pass::{Pass, Passed},
            report::{Check, Findings, Place},
        },
    },
    crossbeam_channel::bounded,
    std::{
        borrow::Cow,
        collections::HashSet,
        sync::{Mutex, PoisonError},
    },
};

/// Reads an archive in order. `seen_slots` holds the slots of storages of all archives.
pub fn read_in_order(pass: &Pass<'_>, seen_slots: &mut HashSet<u64>) -> Result<Passed> {
    let archive = &pass.archive.file;
    let watch = Mutex::new(FrameWatch::new(pass.findings));
    let lock_watch = || watch.lock().unwrap_or_else(PoisonError::into_inner);
    let (batches, free) = (bounded::<Batch>(pass.threads), bounded::<Batch>(2 * pass.threads + 2));
    let mut reader = Reader {
        parser: EntryParser::tolerant(),
        search: None,
        has_lost: false,
        damaged_headers: 0,
        events: EventReader {
            pass,
            entries: EntryChecker::new(pass.archive.base_slot()),
            documents: DocumentReader::default(),
            storages: 0,
            seen_slots,
            batcher: None,
        },
    };
    let decoded = std::thread::scope(|scope| {
        for _ in 0..if pass.task.is_some() { pass.threads } else { 0 } {
            let (batches, free) = (batches.1.clone(), free.0.clone());
            scope.spawn(move || hash_batches(pass, &batches, &free));
        }
        reader.events.batcher = Some(Batcher::new(batches.0, free.1));
        drop((batches.1, free.0));
        let decoded = archive.decode_observed(
            pass.threads,
            pass.progress,
            Box::new(|frame| lock_watch().see(frame)),
            &mut |decoded| {
                pass.accounts.check()?;
                match decoded {
                    Decoded::Content(bytes) => reader.content(bytes),
                    Decoded::Lost(lost) => reader.lose_frame(&lost),
                }
                Ok(())
            },
        );
        reader.events.abandon();
        reader.events.batcher = None; // The workers end with it.
        decoded
    });
    pass.accounts.check()?;
    let Reader { parser, search, has_lost, events, .. } = reader;
    let EventReader { mut entries, documents, .. } = events;
    let mut passed = Passed { documents: documents.finish(), ..Passed::default() };
    passed.counts.input_bytes = archive.length_bytes;
    passed.counts.tar_bytes = parser.position() + search.as_ref().map_or(0, HeaderSearch::passed_bytes);
    passed.counts.frames = lock_watch().count();
    let is_whole = match decoded {
        Ok(_) => {
            if pass.is_first() {
                lock_watch().finish(archive.length_bytes);
                if search.is_none() {
                    check_end(&parser, pass.findings);
                }
            }
            search.is_none() && (parser.end() != TarEnd::Inside || parser.is_between_entries())
        }
        Err(error) if error.kind() == ErrorKind::Damaged => {
            let number = lock_watch().number_of(error.offset_bytes());
            report_unreadable(&error, number, archive.length_bytes, &parser, pass);
            parser.end() != TarEnd::Inside
        }
        Err(error) => return Err(error),
    };
    if pass.is_first() {
        if pass.task.is_none() {
            pass.findings.skip(Check::Records, "--quick");
        }
        entries.finish(is_whole && !has_lost, pass.findings);
    }
    passed.entries = entries;
    Ok(passed)
}

/// Everything behind the damage is unknown.
fn stop_at_damage(findings: &Findings) {
    for check in [Check::Entries, Check::Records] {
        findings.skip(check, "it ends at the damage");
    }
    findings.lose_accounts();
}

/// The frames cannot be told apart any more.
fn report_unreadable(error: &Error, number: Option<u64>, length_bytes: u64, parser: &EntryParser, pass: &Pass<'_>) {
    if !pass.is_first() {
        return; // Said in the first pass.
    }
    let place = Place::frame(number, error.offset_bytes());
    let header_bytes = crate::format::zstd_frame::FRAME_HEADER_BYTES_MAX as u64;
    let is_at_end = error.offset_bytes().is_some_and(|offset| offset + header_bytes >= length_bytes);
    if parser.end() != TarEnd::Inside {
        // Agave does not read on after the end of the tar stream.
        pass.findings.add_error(Check::Frames, Rule::TrailingBytes, place, error);
        return;
    }
    let rule = if is_at_end { Rule::CutOff } else { Rule::FrameDamaged };
    pass.findings.add_error(Check::Frames, rule, place, error);
    stop_at_damage(pass.findings);
}

/// Checks how the tar stream ends.
pub fn check_end(parser: &EntryParser, findings: &Findings) {
    let place = || Place::default().at(parser.position());
    let zeros = parser.end_zero_bytes();
    let expected = "1024 zero bytes, then nothing";
    let found = format!("{zeros} zero bytes");
    match parser.end() {
        TarEnd::Clean => {}
        TarEnd::Short => findings.add(Check::Entries, Rule::EndMissing, place(), expected, found),
        TarEnd::Long => findings.add(Check::Entries, Rule::EndLong, place(), expected, found),
        TarEnd::Junk => findings.add(Check::Entries, Rule::JunkAfterEnd, place(), expected, "other bytes"),
        TarEnd::Inside if parser.is_between_entries() => {
            findings.add(Check::Entries, Rule::EndMissing, place(), expected, "nothing");
        }
        TarEnd::Inside => {
            if let Err(error) = parser.finish() {
                findings.add_error(Check::Entries, Rule::CutOff, place(), &error);
            }
            stop_at_damage(findings);
        }
    }
}

/// The tar stream, and what to do where a part of it is lost.
struct Reader<'a> {
    parser: EntryParser,
    /// Where the parser has lost its place: for the entry to go on with.
    search: Option<HeaderSearch>,
    /// Whether anything was ever lost.
    has_lost: bool,
    damaged_headers: u64,
    events: EventReader<'a>,
}

/// Damaged headers after which a stream is given up: one is damage, so many are somebody's intention.
const DAMAGED_HEADERS_MAX: u64 = 50;

impl Reader<'_> {
    fn content(&mut self, bytes: &[u8]) {
        let mut bytes = Cow::Borrowed(bytes);
        while self.damaged_headers < DAMAGED_HEADERS_MAX {
            if let Some(search) = &mut self.search {
                let Some(found) = search.look_into(&bytes) else { return };
                self.parser.restart_after(search.passed_bytes());
                self.search = None;
                bytes = Cow::Owned(found);
            }
            let Some(used) = self.parse(&bytes) else { return };
            bytes = Cow::Owned(bytes[used..].to_vec());
        }
    }

    /// Hands bytes to the parser. Where a header makes no sense, returns how many bytes lie in front of it.
    fn parse(&mut self, bytes: &[u8]) -> Option<usize> {
        let start = self.parser.position();
        let result = self.parser.feed(bytes, &mut |event| {
            self.events.event(event);
            Ok(())
        });
        for (oddity, header) in self.parser.take_oddities() {
            self.events.odd(oddity, &header);
        }
        let error = result.err()?;
        if self.events.pass.is_first() {
            let place = Place::default().at(self.parser.position());
            self.events.pass.findings.add_error(Check::Entries, Rule::TarDamaged, place, &error);
        }
        let used = self.parser.position() - start;
        self.damaged_headers += 1;
        if self.parser.is_full() {
            self.damaged_headers = DAMAGED_HEADERS_MAX;
        }
        self.lose(match self.damaged_headers {
            ..DAMAGED_HEADERS_MAX => "not those behind a damaged header, up to the next entry",
            _ => "it ends at the damage",
        });
        // The header may have begun before these bytes; the next one does not.
        Some((used as usize).min(bytes.len()))
    }

    /// A frame does not decode: what was in it is unknown, and what follows must be found again.
    fn lose_frame(&mut self, lost: &LostFrame) {
        let findings = self.events.pass.findings;
        let is_over = self.parser.end() != TarEnd::Inside;
        if self.events.pass.is_first() {
            // Agave does not read on after the end of the tar stream.
            let rule = if is_over { Rule::TrailingBytes } else { Rule::FrameDamaged };
            let place = Place::frame(Some(lost.number), lost.error.offset_bytes());
            findings.add_error(Check::Frames, rule, place, &lost.error);
        }
        if !is_over {
            self.lose("not those in frames that do not decode, up to the next entry");
            self.parser.restart_after(lost.content_bytes.unwrap_or_default());
        }
    }

    fn lose(&mut self, why: &str) {
        for check in [Check::Entries, Check::Records] {
            self.events.pass.findings.skip(check, why);
        }
        self.events.pass.findings.lose_accounts();
        self.events.abandon();
        self.has_lost = true;
        let passed_bytes = self.search.replace(HeaderSearch::default()).map_or(0, |search| search.passed_bytes());
        self.parser.restart_after(passed_bytes);
    }
}

struct EventReader<'a> {
    pass: &'a Pass<'a>,
    entries: EntryChecker,
    documents: DocumentReader,
    storages: u32,
    seen_slots: &'a mut HashSet<u64>,
    batcher: Option<Batcher>,
}

impl EventReader<'_> {
    fn odd(&mut self, oddity: Oddity, header: &TarHeader) {
        if self.pass.is_first() {
            self.entries.odd(oddity, header, self.pass.findings);
        }
    }

    fn event(&mut self, event: TarEvent<'_>) {
        let findings = self.pass.findings;
        let Some(batcher) = &mut self.batcher else { return };
        match event {
            TarEvent::Begin(entry) => {
                if self.pass.is_first() {
                    self.entries.entry(&entry, self.seen_slots, findings);
                }
                match entry.kind {
                    EntryKind::Storage { slot, id } => {
                        let storage = self.pass.storage_ref(self.storages, slot, id);
                        self.storages += 1;
                        batcher.begin(Some(storage).filter(|storage| self.pass.is_wanted(*storage)));
                    }
                    _ if self.pass.is_first() => self.documents.begin(&entry),
                    _ => {}
                }
            }
            TarEvent::Content { bytes, .. } if self.documents.is_reading() => self.documents.content(bytes),
            TarEvent::Content { bytes, .. } => batcher.content(bytes),
            TarEvent::End(_) if self.documents.is_reading() => self.documents.end(),
            TarEvent::End(_) => batcher.end(),
        }
    }

    /// The stream ends inside an entry, or after one.
    fn abandon(&mut self) {
        self.documents.abandon();
        if let Some(batcher) = &mut self.batcher {
            batcher.abandon();
        }
    }
}
