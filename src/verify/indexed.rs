//! An archive with an index: every worker reads, decodes, parses and hashes on its own.
//!
//! A worker takes a run of frames that starts with an entry and ends where another run starts, so that a storage that
//! is cut by the ends of frames is walked by one worker, in order. The headers that are decoded must be those that the
//! index promised; where they are not, the index is worthless and the archive is read in order instead.

use {
    crate::{
        error::{ErrorKind, IoContext, Result},
        format::{
            clients::Rule,
            entry::{Entry, EntryKind},
            entry_parser::{EntryParser, TarEnd, TarEvent},
            frames::FrameSpan,
            zstd_frame::FRAME_HEADER_BYTES_MAX,
        },
        pipeline::run_in_order,
        restore::{
            documents::{DocumentReader, Documents},
            input::FrameDecoder,
            tail::{DataFrame, Tail},
            unpack::{disagree, entries_begun_by},
        },
        verify::{
            accounts::{AccountsWorker, StorageRef},
            entries::EntryChecker,
            frames::{check_indexed_frame, check_tail, gap_bytes},
            pass::{Pass, Passed},
            records::RecordWalker,
            report::{Check, Findings, Place},
        },
    },
    std::{collections::HashSet, ops::Range, os::unix::fs::FileExt},
};

/// Reads an archive by its index. An error of the kind [`ErrorKind::Damaged`]: the index is worthless.
pub fn read_indexed(pass: &Pass<'_>, tail: &Tail, seen_slots: &mut HashSet<u64>) -> Result<Passed> {
    let mut passed = Passed { entries: EntryChecker::new(pass.archive.base_slot()), ..Passed::default() };
    let mut storages = Vec::with_capacity(tail.index.entries.len());
    let mut count = 0;
    for entry in &tail.index.entries {
        storages.push(match entry.kind {
            EntryKind::Storage { slot, id } => {
                count += 1;
                Some(pass.storage_ref(count - 1, slot, id))
            }
            _ => None,
        });
    }
    let frames: Vec<(DataFrame, FrameSpan)> = tail.spans().collect();
    let plan = IndexedPlan { pass, tail, storages, frames };
    let runs = plan.runs();
    let new_worker = || {
        let mut decoder = FrameDecoder::new()?;
        let mut buffers = Buffers::default();
        let plan = &plan;
        Ok(move |run: Range<usize>, _: &mut Vec<u8>| plan.read_run(run, &mut decoder, &mut buffers))
    };
    run_in_order(runs.into_iter().map(Ok), pass.threads, &new_worker, pass.progress, &mut |_, documents| {
        passed.documents.merge(documents);
        Ok(())
    })?;
    pass.accounts.check()?;
    passed.counts.frames = tail.frames.len() as u64;
    passed.counts.input_bytes = pass.archive.file.length_bytes;
    passed.counts.tar_bytes = tail.index.tar_bytes();
    if pass.is_first() {
        check_tail(&pass.archive.file, tail, pass.findings)?;
        for entry in &tail.index.entries {
            passed.entries.entry(entry, seen_slots, pass.findings);
        }
        passed.entries.finish(true, pass.findings);
        if pass.task.is_none() {
            pass.findings.skip(Check::Records, "--quick");
            pass.findings.skip(Check::Frames, "--quick: all headers, and the content of the first");
            pass.findings.skip(Check::Entries, "--quick: as the index gives them");
        }
    }
    Ok(passed)
}

struct IndexedPlan<'a> {
    pass: &'a Pass<'a>,
    tail: &'a Tail,
    /// For each entry that is a storage, which one.
    storages: Vec<Option<StorageRef>>,
    frames: Vec<(DataFrame, FrameSpan)>,
}

#[derive(Default)]
struct Buffers {
    compressed: Vec<u8>,
    content: Vec<u8>,
    walker: RecordWalker,
}

impl IndexedPlan<'_> {
    /// Runs of frames that start with an entry.
    fn runs(&self) -> Vec<Range<usize>> {
        let starts =
            || self.frames.iter().enumerate().filter(|(_, (_, span))| span.offset_bytes == 0).map(|(at, _)| at);
        let ends = starts().skip(1).chain([self.frames.len()]);
        let is_interesting = |run: &Range<usize>| self.pass.is_first() || self.is_wanted(run);
        starts().zip(ends).map(|(start, end)| start..end).filter(is_interesting).collect()
    }

    /// Whether a run holds anything that must be decoded.
    fn is_wanted(&self, run: &Range<usize>) -> bool {
        self.frames[run.clone()].iter().any(|(_, span)| {
            let first = span.first_entry as usize;
            let end = entries_begun_by(span, &self.tail.index.entries);
            (first..end).any(|number| match self.storages[number] {
                Some(storage) => self.pass.is_wanted(storage),
                None => self.pass.is_first(),
            })
        })
    }

    fn read_run(&self, run: Range<usize>, decoder: &mut FrameDecoder, buffers: &mut Buffers) -> Result<Documents> {
        let pass = self.pass;
        let is_decoded = self.is_wanted(&run) || (pass.is_first() && pass.task.is_some());
        let mut reader = RunReader {
            plan: self,
            accounts: pass.task.map(|task| AccountsWorker::new(pass.accounts, pass.findings, task)),
            walker: &mut buffers.walker,
            documents: DocumentReader::default(),
            number: self.frames[run.start].1.first_entry as usize,
            storage: None,
        };
        let mut parser = Some(EntryParser::new());
        for number in run {
            pass.progress.check()?;
            pass.accounts.check()?;
            let (frame, span) = &self.frames[number];
            if !self.read_frame(number, is_decoded, decoder, &mut buffers.compressed, &mut buffers.content)? {
                parser = None;
                reader.lose();
                continue;
            }
            if is_decoded {
                if buffers.content.len() as u64 != span.length_bytes {
                    return Err(disagree(format!("the frame at offset {}", frame.offset_bytes)));
                }
                let parser = match &mut parser {
                    Some(parser) => parser,
                    none => match reader.resume(span) {
                        Some(parser) => none.insert(parser),
                        None => continue,
                    },
                };
                reader.feed(parser, &buffers.content, span)?;
            }
            pass.progress.advance(u64::from(frame.compressed_bytes), u64::from(frame.content_bytes));
        }
        Ok(reader.documents.finish())
    }

    /// Reads and checks one frame; `false` when its content is lost.
    fn read_frame(
        &self,
        number: usize,
        is_decoded: bool,
        decoder: &mut FrameDecoder,
        compressed: &mut Vec<u8>,
        content: &mut Vec<u8>,
    ) -> Result<bool> {
        let archive = &self.pass.archive.file;
        let frame = &self.frames[number].0;
        let gap_bytes = gap_bytes(&self.tail.frames, number);
        let frame_bytes = frame.compressed_bytes as usize;
        let wanted = gap_bytes + if is_decoded { frame_bytes } else { frame_bytes.min(FRAME_HEADER_BYTES_MAX) };
        compressed.resize(wanted, 0);
        let start = frame.offset_bytes - gap_bytes as u64;
        archive.file.read_exact_at(compressed, start).or_path("read", &archive.path)?;
        let is_first = self.pass.is_first();
        if is_first && !check_indexed_frame(number as u64, frame, gap_bytes, compressed, self.pass.findings) {
            return Ok(false);
        }
        if !is_decoded {
            return Ok(true);
        }
        let bytes = &compressed[gap_bytes..];
        let content_bytes = u64::from(frame.content_bytes);
        let result = decoder.decode(bytes, frame.offset_bytes, content_bytes, content);
        let place = Place::frame(Some(number as u64), Some(frame.offset_bytes));
        match result {
            Err(error) if error.kind() == ErrorKind::Damaged => {
                if is_first {
                    self.pass.findings.add_error(Check::Frames, Rule::FrameDamaged, place, &error);
                }
                Ok(false)
            }
            Err(error) => Err(error),
            Ok(()) => match zstd_safe::find_frame_compressed_size(bytes) {
                Ok(length) if length == bytes.len() => Ok(true),
                _ => Err(disagree(format!("the frame at offset {} is of another length", frame.offset_bytes))),
            },
        }
    }
}

/// Takes what the parser finds in one run.
struct RunReader<'a> {
    plan: &'a IndexedPlan<'a>,
    accounts: Option<AccountsWorker<'a>>,
    walker: &'a mut RecordWalker,
    documents: DocumentReader,
    /// The entry that begins next.
    number: usize,
    /// Whether a storage is being walked.
    storage: Option<StorageRef>,
}

impl RunReader<'_> {
    fn findings(&self) -> &Findings {
        self.plan.pass.findings
    }

    /// A frame is lost, and with it what it held.
    fn lose(&mut self) {
        self.documents.abandon();
        self.storage = None;
        self.findings().lose_accounts();
        self.findings().skip(Check::Records, "not those in frames that do not decode");
    }

    /// A parser for a frame after a lost one. What is left of a storage that was cut there cannot be walked.
    fn resume(&mut self, span: &FrameSpan) -> Option<EntryParser> {
        self.number = span.first_entry as usize;
        if span.offset_bytes == 0 {
            return Some(EntryParser::new());
        }
        let entry = self.plan.tail.index.entries.get(self.number)?;
        self.number += 1;
        EntryParser::inside(*entry, span.offset_bytes)
    }

    fn feed(&mut self, parser: &mut EntryParser, content: &[u8], span: &FrameSpan) -> Result<()> {
        parser.feed(content, &mut |event| self.event(event)).map_err(|error| match error.kind() {
            ErrorKind::Damaged => error.within("in an indexed frame"),
            _ => error,
        })?;
        let entries = &self.plan.tail.index.entries;
        let begun = entries_begun_by(span, entries);
        // Zeros in place of a header end a tar stream: entries after them would silently be missing.
        let is_over = parser.end() != TarEnd::Inside;
        let may_be_over = begun == entries.len();
        if self.number != begun || (is_over && !may_be_over) || parser.end() == TarEnd::Junk {
            return Err(disagree("the tar stream ends early".into()));
        }
        Ok(())
    }

    fn event(&mut self, event: TarEvent<'_>) -> Result<()> {
        match event {
            TarEvent::Begin(entry) => self.begin(&entry)?,
            TarEvent::Content { bytes, .. } => {
                self.documents.content(bytes);
                if let (Some(accounts), Some(_)) = (&mut self.accounts, self.storage) {
                    self.walker.feed(bytes, accounts);
                }
            }
            TarEvent::End(_) => {
                self.documents.end();
                if let (Some(accounts), Some(_)) = (&mut self.accounts, self.storage.take()) {
                    self.walker.finish(accounts);
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, entry: &Entry) -> Result<()> {
        let pass = self.plan.pass;
        if self.plan.tail.index.entries.get(self.number) != Some(entry) {
            return Err(disagree(format!("{} is not where the index says", entry.kind)));
        }
        self.storage = self.plan.storages[self.number].filter(|storage| pass.is_wanted(*storage));
        self.number += 1;
        match (self.storage, &mut self.accounts) {
            (Some(storage), Some(accounts)) => {
                accounts.begin(storage);
                self.walker.restart();
            }
            _ if pass.is_first() => self.documents.begin(entry),
            _ => {}
        }
        Ok(())
    }
}
