//! What parses bytes that others wrote, each with what must hold for any bytes. Shared by the property tests here and
//! by `fuzz/`. Nothing may panic, and nothing may be said at more length than a line.

use slotpress::{
    Error, Result,
    format::{
        entry_parser::{EntryParser, TarEvent},
        index::Index,
        seek_table::parse_seek_table,
        zstd_frame::{parse_block_header, parse_frame_start},
    },
    ledger::{
        bank_file::parse_bank_file_and_end,
        fields::FieldReader,
        lists::{ObsoleteFormat, scan_obsolete_accounts},
        names::{ArchiveName, parse_storage_name},
        records::{Record, RecordFault, RecordSink, RecordWalker},
        status_cache::parse_status_cache,
    },
    progress::NoProgress,
    verify::{NamedArchive, VerifyOptions, verify_archives},
};

/// A target: takes any bytes.
pub type Target = fn(&[u8]);

/// Longer than any message that quotes at most a line.
const MESSAGE_BYTES_MAX: usize = 2048;

fn check<T>(result: Result<T>) -> Option<T> {
    result.inspect_err(|error: &Error| assert!(error.to_string().len() < MESSAGE_BYTES_MAX, "a long message")).ok()
}

fn fields(bytes: &[u8]) -> FieldReader<&[u8]> {
    FieldReader::new(bytes, bytes.len() as u64, "the file")
}

/// A tar stream: the same events, whatever the pieces are that it comes in; by the strict rules and the tolerant ones.
pub fn tar(bytes: &[u8]) {
    for new in [EntryParser::new as fn() -> EntryParser, EntryParser::tolerant] {
        let read = |piece_bytes: usize| {
            let (mut parser, mut events, mut content_bytes) = (new(), Vec::new(), 0);
            let mut fed = Ok(());
            for piece in bytes.chunks(piece_bytes.max(1)) {
                fed = parser.feed(piece, &mut |event| {
                    match event {
                        TarEvent::Begin(entry) => events.push((true, entry)),
                        TarEvent::Content { bytes, .. } => content_bytes += bytes.len(),
                        TarEvent::End(entry) => events.push((false, entry)),
                    }
                    Ok(())
                });
                if fed.is_err() {
                    break;
                }
            }
            let error = check(fed.and_then(|()| parser.finish())).is_none();
            (events, content_bytes, error)
        };
        let whole = read(bytes.len());
        assert!(whole.1 <= bytes.len());
        for piece_bytes in [1, 511, 513] {
            // A piece that is cut off by an error has given its content or not: only what begins and ends must agree.
            let (events, content_bytes, error) = read(piece_bytes);
            assert_eq!((&events, error), (&whole.0, whole.2), "pieces of {piece_bytes} bytes");
            assert!(error || content_bytes == whole.1);
        }
    }
}

/// Frame headers and block headers.
pub fn frame(bytes: &[u8]) {
    let _ = check(parse_frame_start(bytes));
    if let Some(start) = bytes.first_chunk() {
        let _ = check(parse_block_header(*start));
    }
}

/// An index: one that parses is written as it would be written anew.
pub fn index(bytes: &[u8]) {
    if let Some(index) = check(Index::parse_frame(bytes)) {
        let frame = check(index.to_frame()).expect("what was read can be written");
        let again = check(Index::parse_frame(&frame)).expect("what was written can be read");
        assert_eq!(again.entries, index.entries);
    }
}

/// A seek table.
pub fn seek_table(bytes: &[u8]) {
    if let Some(items) = check(parse_seek_table(bytes)) {
        assert!(items.len() <= bytes.len());
    }
}

/// A bank file.
pub fn bank_file(bytes: &[u8]) {
    let mut storages = 0;
    let parsed = parse_bank_file_and_end(fields(bytes), &mut |_| {
        storages += 1;
        Ok(())
    });
    check(parsed);
    assert!(storages <= bytes.len());
}

/// A status cache.
pub fn status_cache(bytes: &[u8]) {
    check(parse_status_cache(fields(bytes), 26));
}

/// Obsolete records, of both formats, for storages that are not there.
pub fn obsolete(bytes: &[u8]) {
    for format in [ObsoleteFormat::Wide, ObsoleteFormat::Compact] {
        let mut storages = 0;
        let scanned = scan_obsolete_accounts(fields(bytes), format, &|_, _| None, &mut |_| {
            storages += 1;
            Ok(())
        });
        check(scanned);
        assert!(storages <= bytes.len());
    }
}

/// The records of a storage: the same in whatever pieces they come.
pub fn records(bytes: &[u8]) {
    #[derive(Default, PartialEq, Debug)]
    struct Seen {
        records: Vec<(u64, usize)>,
        faults: usize,
    }
    impl RecordSink for Seen {
        fn record(&mut self, record: Record<'_>) {
            self.records.push((record.offset_bytes, record.data.len()));
        }
        fn fault(&mut self, fault: RecordFault) {
            assert!(fault.expected.len() + fault.found.len() < MESSAGE_BYTES_MAX);
            self.faults += 1;
        }
    }
    let walk = |piece_bytes: usize| {
        let (mut walker, mut seen) = (RecordWalker::default(), Seen::default());
        bytes.chunks(piece_bytes.max(1)).for_each(|piece| walker.feed(piece, &mut seen));
        walker.finish(&mut seen);
        (seen.records.len(), seen.records.iter().map(|(_, length)| length).sum::<usize>(), seen.faults)
    };
    let whole = walk(bytes.len());
    for piece_bytes in [7, 136, 4096] {
        assert_eq!(walk(piece_bytes), whole, "pieces of {piece_bytes} bytes");
    }
}

/// Names of archives and storages: one that parses is shown as it was.
pub fn names(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(name) = ArchiveName::parse(&text) {
        assert_eq!(ArchiveName::parse(&name.to_string()), Some(name));
    }
    if let Some((slot, id)) = parse_storage_name(&text) {
        assert_eq!(format!("{slot}.{id}"), text);
    }
}

/// A whole archive through `verify`: a report or an error, whatever is in it.
pub fn archive(bytes: &[u8]) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("snapshot-26-5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt.tar.zst");
    std::fs::write(&path, bytes).expect("written");
    let options = VerifyOptions {
        clients: Vec::new(),
        is_quick: false,
        threads: 1,
        memory_bytes: 8 << 20,
        temporary_dir: dir.path().to_path_buf(),
        expect_hash: None,
        expect_slot: None,
        expect_roots: Vec::new(),
    };
    if let Some(report) = check(verify_archives(&NamedArchive::of_path(&path), None, &options, &NoProgress)) {
        assert!(report.failures.iter().all(|failure| failure.message.len() < MESSAGE_BYTES_MAX));
    }
}

/// All of them by name.
pub const TARGETS: [(&str, Target); 10] = [
    ("tar", tar),
    ("frame", frame),
    ("index", index),
    ("seek_table", seek_table),
    ("bank_file", bank_file),
    ("status_cache", status_cache),
    ("obsolete", obsolete),
    ("records", records),
    ("names", names),
    ("archive", archive),
];
