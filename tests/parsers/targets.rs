//! Targets of the property tests and of `fuzz/`. Each target runs a parser on any bytes, and checks properties of
//! the result. A parser must not panic, and its messages may quote at most a line.

#[path = "wrapped.rs"]
pub mod wrapped;

use std::io::BufReader;

use slotpress_base::{Error, NoProgress, Result};
use slotpress_format::archive::genesis_archive;
use slotpress_format::ledger::sysvars;
use slotpress_format::{
    ArchiveName, ArchiveRoot, BREACHES_PER_DEMAND_MAX, BankStakes, Entry, EntryParser, FieldReader, Genesis, Index,
    MetaWalk, ObsoleteFormat, Record, RecordFault, RecordSink, RecordWalker, TarEvent, TokenData, WalkBounds,
    parse_bank_file, parse_bank_file_lenient, parse_block_header, parse_frame_start, parse_seek_table,
    parse_status_cache, parse_storage_name, parse_storages_list, parse_tagged_storages_list, scan_obsolete_accounts,
};
use slotpress_read::{CheckOptions, Snapshot, VerifyOptions};

/// A function that panics if the parser misbehaves.
pub type Target = fn(&[u8]);

/// Limit on the length of a message. A message may quote a line.
const MESSAGE_BYTES_MAX: usize = 2048;

fn expect_short_message<T>(result: Result<T>) -> Option<T> {
    result.inspect_err(|error: &Error| assert!(error.to_string().len() < MESSAGE_BYTES_MAX, "a long message")).ok()
}

fn fields(bytes: &[u8]) -> FieldReader<&[u8]> {
    FieldReader::new(bytes, bytes.len() as u64, "the file")
}

/// Checks that a tar stream has the same events in pieces of any size.
pub fn check_tar(bytes: &[u8]) {
    #[derive(PartialEq, Debug)]
    enum Event {
        Begin(Entry),
        End(Entry),
    }
    struct Parsed {
        events: Vec<Event>,
        content_bytes: usize,
        is_error: bool,
    }
    let read = |piece_bytes: usize| {
        let mut parser = EntryParser::default();
        let mut events = Vec::new();
        let mut content_bytes = 0;
        let mut fed = Ok(());
        for piece in bytes.chunks(piece_bytes.max(1)) {
            fed = parser.feed(piece, &mut |event| {
                match event {
                    TarEvent::Begin(entry) => events.push(Event::Begin(entry)),
                    TarEvent::Content { bytes, .. } => content_bytes += bytes.len(),
                    TarEvent::End(entry) => events.push(Event::End(entry)),
                }
                Ok(())
            });
            if fed.is_err() {
                break;
            }
        }
        let is_error = expect_short_message(fed.and_then(|()| parser.finish())).is_none();
        Parsed { events, content_bytes, is_error }
    };
    let whole = read(bytes.len());
    assert!(whole.content_bytes <= bytes.len());
    for piece_bytes in [1, 511, 513] {
        let parsed = read(piece_bytes);
        assert_eq!(parsed.events, whole.events, "pieces of {piece_bytes} bytes");
        assert_eq!(parsed.is_error, whole.is_error, "pieces of {piece_bytes} bytes");
        // The parser may pass on a part of the content before an error.
        if !parsed.is_error {
            assert_eq!(parsed.content_bytes, whole.content_bytes, "pieces of {piece_bytes} bytes");
        }
    }
}

/// Parses frame headers and block headers.
pub fn check_frame(bytes: &[u8]) {
    let _ = expect_short_message(parse_frame_start(bytes));
    if let Some(start) = bytes.first_chunk() {
        let _ = expect_short_message(parse_block_header(*start));
    }
}

/// Checks that an index that parses is unchanged after it is written and read again.
pub fn check_index(bytes: &[u8]) {
    if let Some(index) = expect_short_message(Index::parse_frame(bytes)).flatten() {
        let frame = expect_short_message(index.to_frame()).expect("what was read can be written");
        assert_eq!(
            expect_short_message(Index::parse_frame(&frame)).expect("what was written can be read"),
            Some(index)
        );
    }
}

/// Checks that a seek table has no more items than bytes.
pub fn check_seek_table(bytes: &[u8]) {
    if let Some(items) = expect_short_message(parse_seek_table(bytes)) {
        assert!(items.len() <= bytes.len());
    }
}

/// Checks that a bank file has the same values in pieces, and is complete only at its last byte.
/// Reports of broken demands must fit in bounded memory.
pub fn check_bank_file(bytes: &[u8]) {
    let mut storages = 0;
    let mut on_storage = |_| {
        storages += 1;
        Ok(())
    };
    let bank = expect_short_message(parse_bank_file_lenient(fields(bytes), &mut on_storage, BankStakes::Keep));
    assert!(storages <= bytes.len());
    let in_pieces = FieldReader::new(BufReader::with_capacity(7, bytes), bytes.len() as u64, "the file");
    let bank_in_pieces = expect_short_message(parse_bank_file_lenient(in_pieces, &mut |_| Ok(()), BankStakes::Keep));
    assert_eq!(format!("{bank_in_pieces:?}"), format!("{bank:?}"), "pieces of 7 bytes");
    let Some((bank, end_error)) = bank else { return };
    for breach in &bank.breaches {
        let count = bank.breaches.iter().filter(|other| other.demand == breach.demand).count();
        assert!(count <= BREACHES_PER_DEMAND_MAX);
        assert!(breach.offset_bytes <= bytes.len() as u64);
        assert!(breach.expected.len() + breach.found.len() < MESSAGE_BYTES_MAX);
    }
    if end_error.is_none() {
        let map = bank.storage_map_range;
        let map_ends = [map.start, map.end].map(|offset| offset as usize);
        for end in map_ends.into_iter().chain([bytes.len() - 33, bytes.len() - 1]) {
            // Agave up to 4.0 writes no block id, so a file may also end before the flag of the block id.
            let block_id_bytes = if bank.block_id.is_some() { 33 } else { 1 };
            if parse_bank_file(fields(&bytes[..end]), &mut |_| Ok(())).is_ok() {
                assert_eq!(bytes.len() - end, block_id_bytes, "a file that is truncated parses");
            }
        }
    }
}

/// Parses the data of sysvars and features.
pub fn check_sysvars(bytes: &[u8]) {
    expect_short_message(sysvars::parse_stake_history(bytes));
    expect_short_message(sysvars::parse_block_time(bytes));
    expect_short_message(sysvars::parse_feature(bytes));
    assert!(expect_short_message(sysvars::parse_newest_slots(bytes, 9)).is_none_or(|slots| slots.len() <= 9));
}

/// Parses a status cache.
pub fn check_status_cache(bytes: &[u8]) {
    expect_short_message(parse_status_cache(fields(bytes), 26));
}

/// Parses lists of obsolete records in both formats. The storages do not exist.
pub fn check_obsolete(bytes: &[u8]) {
    for format in [ObsoleteFormat::Wide, ObsoleteFormat::Compact] {
        let mut storages = 0;
        let scanned = scan_obsolete_accounts(fields(bytes), format, &|_, _| None, &mut |_| {
            storages += 1;
            Ok(())
        });
        expect_short_message(scanned);
        assert!(storages <= bytes.len());
    }
}

/// Checks that a list of storages, in both formats, has no more items than bytes allow.
pub fn check_storages_list(bytes: &[u8]) {
    if let Some(list) = expect_short_message(parse_storages_list(fields(bytes))) {
        assert_eq!(8 + 12 * list.len(), bytes.len());
    }
    if let Some(list) = expect_short_message(parse_tagged_storages_list(fields(bytes))) {
        assert!(8 + 16 * list.len() <= bytes.len());
    }
}

/// Checks that the `.meta` file of a split storage has the same entries for reads of any size, with
/// and without a `.data` file.
pub fn check_split(bytes: &[u8]) {
    for data_bytes in [None, Some(1 << 30)] {
        let walk = |window_bytes| {
            let meta_bytes = bytes.len() as u64;
            let bounds = WalkBounds { meta_bytes, data_bytes, start: 64, read_ahead_end: u64::MAX, window_bytes };
            let mut read = |buffer: &mut [u8], offset: u64| {
                let start = offset as usize;
                buffer.copy_from_slice(bytes.get(start..start + buffer.len()).expect("within the file"));
                Ok(())
            };
            let mut window = Vec::new();
            let mut entries = 0;
            let mut walk = MetaWalk::new(bounds, &mut window, &mut read);
            let is_error = loop {
                match walk.next_entry() {
                    Ok(Some(_)) => entries += 1,
                    result => break expect_short_message(result).is_none(),
                }
            };
            assert!(entries <= bytes.len());
            (entries, is_error)
        };
        assert_eq!(walk(64), walk(1 << 16));
    }
}

/// Checks that a storage has the same records in pieces of any size.
pub fn check_records(bytes: &[u8]) {
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
        let mut walker = RecordWalker::default();
        let mut seen = Seen::default();
        bytes.chunks(piece_bytes.max(1)).for_each(|piece| walker.feed(piece, &mut seen));
        walker.finish(&mut seen);
        seen
    };
    let whole = walk(bytes.len());
    for piece_bytes in [7, 136, 4096] {
        assert_eq!(walk(piece_bytes), whole, "pieces of {piece_bytes} bytes");
    }
}

/// Checks that names of archives and storages, and roots, are the same after they are parsed and written.
pub fn check_names(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(name) = ArchiveName::parse(&text) {
        assert_eq!(ArchiveName::parse(&name.to_string()), Some(name));
    }
    if let Ok(root) = text.parse::<ArchiveRoot>() {
        assert_eq!(root.to_string().parse::<ArchiveRoot>().ok(), Some(root));
    }
    if let Some((slot, id)) = parse_storage_name(&text) {
        assert_eq!(format!("{slot}.{id}"), text);
    }
}

/// Checks that a server's list of archives has no more items than bytes.
pub fn check_listing(bytes: &[u8]) {
    if let Some(listed) = slotpress_read::catalog::list_parser::parse_list(bytes, "") {
        assert!(listed.archives().len() <= bytes.len());
    }
}

/// Parses a genesis file, a genesis archive, and a genesis archive of any tar.
pub fn check_genesis(bytes: &[u8]) {
    expect_short_message(Genesis::parse(fields(bytes)));
    expect_short_message(genesis_archive::unpack(bytes));
    let mut compressed = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    std::io::Write::write_all(&mut compressed, &wrapped::fix_checksums(bytes.to_vec())).expect("compressed");
    expect_short_message(genesis_archive::unpack(&compressed.finish().expect("compressed")));
}

/// Verifies any bytes as an archive.
pub fn check_archive(bytes: &[u8]) {
    verify(bytes);
}

/// Verifies any tar stream in one frame, and in many frames with an index. The first three bytes determine the
/// size of the frames and the change of the index.
pub fn check_entries(bytes: &[u8]) {
    let Some((&[frame_blocks, entry_number, change], tar)) = bytes.split_first_chunk() else { return };
    let tar = wrapped::fix_checksums(tar.to_vec());
    verify(&wrapped::compress_to_one_frame(&tar));
    verify(&wrapped::archive_with_index(&tar, 512 * (1 + usize::from(frame_blocks)), &|entries| {
        let index = usize::from(entry_number) % entries.len().max(1);
        match (entries.get_mut(index), change) {
            (_, 0) | (None, _) => {}
            (Some(_), 1) => entries.truncate(index),
            (Some(entry), change) if !entry.kind.is_dir() => entry.content_bytes ^= 1 << (change % 34),
            _ => entries.reverse(),
        }
    }));
}

fn verify(bytes: &[u8]) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("snapshot-26-5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt.tar.zst");
    std::fs::write(&path, bytes).expect("written");
    let options = VerifyOptions::default()
        .threads(1)
        .check(CheckOptions::default().memory_bytes(8 << 20).temporary_dir(dir.path().to_path_buf()));
    if let Some(report) = expect_short_message(slotpress_read::verify(&Snapshot::archive(&path), &options, &NoProgress))
    {
        assert!(report.failures.iter().all(|failure| failure.message.len() < MESSAGE_BYTES_MAX));
    }
}

/// Checks that an account of a token program has no more extensions and texts than bytes allow.
pub fn check_tokens(bytes: &[u8]) {
    for is_token_2022 in [false, true] {
        let extensions = match TokenData::parse(bytes, is_token_2022) {
            TokenData::Account(account) => account.extensions,
            TokenData::Mint(mint) => {
                let text_bytes = mint
                    .metadata()
                    .map_or(0, |metadata| metadata.name.len() + metadata.symbol.len() + metadata.uri.len());
                assert!(text_bytes <= bytes.len());
                mint.extensions
            }
            TokenData::Other | TokenData::Unknown => continue,
        };
        let extension_count = extensions.count();
        assert!(extension_count <= bytes.len() / 4);
        assert!(is_token_2022 || extension_count == 0, "the older program has no extensions");
    }
}

/// All targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("tar", check_tar),
    ("frame", check_frame),
    ("index", check_index),
    ("seek_table", check_seek_table),
    ("bank_file", check_bank_file),
    ("status_cache", check_status_cache),
    ("sysvars", check_sysvars),
    ("tokens", check_tokens),
    ("storages_list", check_storages_list),
    ("obsolete", check_obsolete),
    ("split", check_split),
    ("records", check_records),
    ("names", check_names),
    ("listing", check_listing),
    ("genesis", check_genesis),
    ("archive", check_archive),
    ("entries", check_entries),
];
