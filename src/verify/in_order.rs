//! An archive of any maker, in the order of its tar stream: decoded where its frames allow on all cores, parsed on the
//! calling thread, and its storages handed to workers in batches of whole records.

use {
    crate::{
        error::{Error, ErrorKind, Result},
        format::{
            clients::Rule,
            entry::{EntryKind, Oddity, TarHeader},
            entry_parser::{EntryParser, TarEnd, TarEvent},
        },
        ledger::record::{ACCOUNT_DATA_BYTES_MAX, RECORD_HEADER_BYTES, RecordHeader},
        verify::{
            accounts::{AccountsWorker, StorageRef},
            documents::DocumentReader,
            entries::EntryChecker,
            frames::FrameWatch,
            pass::{Pass, Passed},
            records::RecordWalker,
            report::{Check, Findings, Place},
        },
    },
    crossbeam_channel::{Receiver, Sender, bounded},
    std::{
        collections::HashSet,
        ops::Range,
        sync::{Mutex, PoisonError},
    },
};

/// A batch is handed on when it is this long: large enough to cost nothing, small enough to stay in the caches.
const BATCH_BYTES: usize = 512 * 1024;

/// Reads an archive in order. `seen_slots` holds the slots of storages of all archives.
pub fn read_in_order(pass: &Pass<'_>, seen_slots: &mut HashSet<u64>) -> Result<Passed> {
    let archive = &pass.archive.file;
    let watch = Mutex::new(FrameWatch::new(pass.findings));
    let lock_watch = || watch.lock().unwrap_or_else(PoisonError::into_inner);
    let mut parser = EntryParser::tolerant();
    let mut tar_error = None;
    let mut reader = Reader {
        pass,
        entries: EntryChecker::new(pass.archive.base_slot()),
        documents: DocumentReader::default(),
        storages: 0,
        seen_slots,
        batcher: None,
    };
    let (batches, free) = (bounded::<Batch>(pass.threads), bounded::<Batch>(2 * pass.threads + 2));
    let decoded = std::thread::scope(|scope| {
        for _ in 0..if pass.task.is_some() { pass.threads } else { 0 } {
            let (batches, free) = (batches.1.clone(), free.0.clone());
            scope.spawn(move || hash_batches(pass, &batches, &free));
        }
        reader.batcher = Some(Batcher { batches: batches.0, free: free.1, batch: Batch::default(), current: None });
        drop((batches.1, free.0));
        let decoded = archive.decode_observed(
            pass.threads,
            pass.progress,
            Box::new(|frame| lock_watch().see(frame)),
            &mut |content| {
                let result = parser.feed(content, &mut |event| reader.event(event));
                for (oddity, header) in parser.take_oddities() {
                    reader.odd(oddity, &header);
                }
                if let Err(error) = &result {
                    tar_error = Some(error.clone());
                }
                result
            },
        );
        reader.abandon();
        reader.batcher = None; // The workers end with it.
        decoded
    });
    pass.accounts.check()?;
    let mut passed = Passed::default();
    passed.counts.input_bytes = archive.length_bytes;
    passed.counts.tar_bytes = parser.position();
    if pass.is_first() {
        if pass.task.is_none() {
            pass.findings.skip(Check::Records, "--quick");
        }
        match (decoded, tar_error) {
            (Ok(_), _) => {
                lock_watch().finish(archive.length_bytes);
                check_end(&parser, pass.findings);
                if parser.end() == TarEnd::Clean || parser.is_between_entries() {
                    reader.entries.finish(pass.findings);
                }
            }
            (Err(error), None) if error.kind() == ErrorKind::Damaged => {
                let number = lock_watch().number_of(error.offset_bytes());
                report_undecodable(&error, number, archive.length_bytes, &parser, pass.findings);
                if parser.end() != TarEnd::Inside {
                    reader.entries.finish(pass.findings);
                }
            }
            (Err(error), Some(_)) if error.kind() == ErrorKind::Damaged => {
                let place = Place::default().at(parser.position());
                pass.findings.add_error(Check::Entries, Rule::TarDamaged, place, &error);
                stop_at_damage(pass.findings);
            }
            (Err(error), _) => return Err(error),
        }
    }
    passed.counts.frames = lock_watch().count();
    passed.documents = reader.documents.finish();
    passed.entries = reader.entries;
    Ok(passed)
}

/// Everything behind the damage is unknown.
fn stop_at_damage(findings: &Findings) {
    for check in [Check::Entries, Check::Records] {
        findings.skip(check, "it ends at the damage");
    }
    findings.lose_accounts();
}

fn report_undecodable(
    error: &Error,
    number: Option<u64>,
    length_bytes: u64,
    parser: &EntryParser,
    findings: &Findings,
) {
    let place = Place::frame(number, error.offset_bytes());
    let header_bytes = crate::format::zstd_frame::FRAME_HEADER_BYTES_MAX as u64;
    let is_at_end = error.offset_bytes().is_some_and(|offset| offset + header_bytes >= length_bytes);
    if parser.end() != TarEnd::Inside {
        // Agave does not read on after the end of the tar stream.
        findings.add_error(Check::Frames, Rule::TrailingBytes, place, error);
        return;
    }
    let rule = if is_at_end { Rule::CutOff } else { Rule::FrameDamaged };
    findings.add_error(Check::Frames, rule, place, error);
    stop_at_damage(findings);
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

struct Reader<'a> {
    pass: &'a Pass<'a>,
    entries: EntryChecker,
    documents: DocumentReader,
    storages: u32,
    seen_slots: &'a mut HashSet<u64>,
    batcher: Option<Batcher>,
}

impl Reader<'_> {
    fn odd(&mut self, oddity: Oddity, header: &TarHeader) {
        if self.pass.is_first() {
            self.entries.odd(oddity, header, self.pass.findings);
        }
    }

    fn event(&mut self, event: TarEvent<'_>) -> Result<()> {
        let findings = self.pass.findings;
        let Some(batcher) = &mut self.batcher else { return Ok(()) };
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
        Ok(())
    }

    /// The stream ends inside an entry, or after one.
    fn abandon(&mut self) {
        self.documents.abandon();
        if let Some(batcher) = &mut self.batcher {
            batcher.send();
        }
    }
}

/// Whole records of one or more storages.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    parts: Vec<Part>,
}

/// Records of one storage in a batch.
struct Part {
    storage: StorageRef,
    range: Range<usize>,
    /// Where in the storage they start.
    offset_bytes: u64,
    /// Whether the storage ends with them.
    is_last: bool,
}

struct Batcher {
    batches: Sender<Batch>,
    free: Receiver<Batch>,
    batch: Batch,
    current: Option<CurrentStorage>,
}

/// The storage that is coming in.
#[derive(Clone, Copy)]
struct CurrentStorage {
    storage: StorageRef,
    /// Where in the batch it starts, and where in the storage that is.
    start: usize,
    offset_bytes: u64,
    /// Where in the batch the next record starts, as far as is known.
    next_record: usize,
    /// What follows cannot be told apart, and is left to nobody.
    is_broken: bool,
}

impl Batcher {
    fn begin(&mut self, storage: Option<StorageRef>) {
        let start = self.batch.bytes.len();
        self.current = storage.map(|storage| CurrentStorage {
            storage,
            start,
            offset_bytes: 0,
            next_record: start,
            is_broken: false,
        });
    }

    fn content(&mut self, mut bytes: &[u8]) {
        while let Some(current) = self.current.filter(|current| !current.is_broken && !bytes.is_empty()) {
            // A part at a time, so that a batch does not grow with the piece.
            let take = bytes.len().min(BATCH_BYTES);
            self.batch.bytes.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
            if self.batch.bytes.len() >= BATCH_BYTES {
                self.cut(current);
            }
        }
    }

    /// Hands on all records that are complete; what is left of the last stays for the next batch.
    fn cut(&mut self, mut current: CurrentStorage) {
        let bytes = &self.batch.bytes;
        let mut at = current.next_record;
        while let Some(header) = bytes.get(at..).and_then(|rest| rest.first_chunk::<RECORD_HEADER_BYTES>()) {
            let header = RecordHeader::parse(header);
            if header.is_end() || header.data_len > ACCOUNT_DATA_BYTES_MAX {
                // The walker says what is wrong with it; nothing after it can be read.
                current.is_broken = true;
                at = bytes.len();
                break;
            }
            let end = at + header.stored_bytes() as usize;
            if end > bytes.len() {
                break;
            }
            at = end;
        }
        current.next_record = at;
        if at > current.start || current.start > 0 {
            let rest = self.batch.bytes.split_off(at);
            if at > current.start {
                let CurrentStorage { storage, start, offset_bytes, is_broken, .. } = current;
                self.batch.parts.push(Part { storage, range: start..at, offset_bytes, is_last: is_broken });
                current.offset_bytes += (at - start) as u64;
            }
            self.send();
            self.batch.bytes.extend_from_slice(&rest);
            (current.start, current.next_record) = (0, 0);
        }
        self.current = Some(current);
    }

    fn end(&mut self) {
        let Some(CurrentStorage { storage, start, offset_bytes, is_broken, .. }) = self.current.take() else { return };
        if !is_broken {
            let range = start..self.batch.bytes.len();
            self.batch.parts.push(Part { storage, range, offset_bytes, is_last: true });
        }
        if self.batch.bytes.len() >= BATCH_BYTES {
            self.send();
        }
    }

    fn send(&mut self) {
        let mut next = self.free.try_recv().unwrap_or_default();
        next.bytes.clear();
        next.parts.clear();
        let batch = std::mem::replace(&mut self.batch, next);
        if !batch.parts.is_empty() {
            // Fails only when all workers have ended, which they do after this.
            let _ = self.batches.send(batch);
        }
    }
}

fn hash_batches(pass: &Pass<'_>, batches: &Receiver<Batch>, free: &Sender<Batch>) {
    let Some(task) = pass.task else { return };
    let mut worker = AccountsWorker::new(pass.accounts, pass.findings, task);
    let mut walker = RecordWalker::default();
    for batch in batches {
        for part in &batch.parts {
            worker.begin(part.storage);
            walker.restart_at(part.offset_bytes);
            walker.feed(&batch.bytes[part.range.clone()], &mut worker);
            if part.is_last {
                walker.finish(&mut worker);
            }
        }
        // A full store of free batches has enough.
        let _ = free.try_send(batch);
    }
}
