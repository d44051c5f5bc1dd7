//! Targets: each runs a parser on any bytes, and checks what must hold for its result. The property
//! tests here and `fuzz/` share them. A parser must not panic, and no message may be longer than a
//! line.

#[path = "wrapped.rs"]
pub mod wrapped;

use std::io::BufReader;

use slotpress_base::{Error, NoProgress, Result};
use slotpress_format::archive::genesis_archive;
use slotpress_format::ledger::sysvars;
use slotpress_format::{
    ArchiveName, BREACHES_PER_DEMAND_MAX, BankStakes, Entry, EntryParser, FieldReader, Genesis, Index, MetaRange,
    MetaWalk, ObsoleteFormat, Record, RecordFault, RecordSink, RecordWalker, Root, TarEvent, TokenData,
    parse_bank_file, parse_bank_file_lenient, parse_block_header, parse_frame_start, parse_seek_table,
    parse_status_cache, parse_storage_name, parse_storages_list, parse_tagged_storages_list, scan_obsolete_accounts,
};
use slotpress_read::{CheckOptions, NamedArchive, Snapshot, VerifyOptions};

/// A function that panics if the parser misbehaves.
pub type Target = fn(&[u8]);

/// Limit on a message, which quotes at most a line.
const MESSAGE_BYTES_MAX: usize = 2048;

fn check<T>(result: Result<T>) -> Option<T> {
    result.inspect_err(|error: &Error| assert!(error.to_string().len() < MESSAGE_BYTES_MAX, "a long message")).ok()
}

fn fields(bytes: &[u8]) -> FieldReader<&[u8]> {
    FieldReader::new(bytes, bytes.len() as u64, "the file")
}

/// Checks that a tar stream gives the same events in pieces of any size.
pub fn tar(bytes: &[u8]) {
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
        let is_error = check(fed.and_then(|()| parser.finish())).is_none();
        Parsed { events, content_bytes, is_error }
    };
    let whole = read(bytes.len());
    assert!(whole.content_bytes <= bytes.len());
    for piece_bytes in [1, 511, 513] {
        let parsed = read(piece_bytes);
        assert_eq!(parsed.events, whole.events, "pieces of {piece_bytes} bytes");
        assert_eq!(parsed.is_error, whole.is_error, "pieces of {piece_bytes} bytes");
        // The content of a piece with an error may be delivered or not.
        if !parsed.is_error {
            assert_eq!(parsed.content_bytes, whole.content_bytes, "pieces of {piece_bytes} bytes");
        }
    }
}

/// Parses frame headers and block headers.
pub fn frame(bytes: &[u8]) {
    let _ = check(parse_frame_start(bytes));
    if let Some(start) = bytes.first_chunk() {
        let _ = check(parse_block_header(*start));
    }
}

/// Checks that an index that parses is unchanged after it is written and read again.
pub fn index(bytes: &[u8]) {
    if let Some(index) = check(Index::parse_frame(bytes)).flatten() {
        let frame = check(index.to_frame()).expect("what was read can be written");
        assert_eq!(check(Index::parse_frame(&frame)).expect("what was written can be read"), Some(index));
    }
}

/// Checks that a seek table has no more items than bytes.
pub fn seek_table(bytes: &[u8]) {
    if let Some(items) = check(parse_seek_table(bytes)) {
        assert!(items.len() <= bytes.len());
    }
}

/// Checks that a bank file gives the same values in pieces, and is complete only at its last byte.
/// Reports of broken demands must fit in bounded memory.
pub fn bank_file(bytes: &[u8]) {
    let mut storages = 0;
    let mut on_storage = |_| {
        storages += 1;
        Ok(())
    };
    let bank = check(parse_bank_file_lenient(fields(bytes), &mut on_storage, BankStakes::Keep));
    assert!(storages <= bytes.len());
    let in_pieces = FieldReader::new(BufReader::with_capacity(7, bytes), bytes.len() as u64, "the file");
    let again = check(parse_bank_file_lenient(in_pieces, &mut |_| Ok(()), BankStakes::Keep));
    assert_eq!(format!("{again:?}"), format!("{bank:?}"), "pieces of 7 bytes");
    let Some((bank, end_error)) = bank else { return };
    for breach in &bank.breaches {
        let same_demand = bank.breaches.iter().filter(|other| other.demand == breach.demand).count();
        assert!(same_demand <= BREACHES_PER_DEMAND_MAX);
        assert!(breach.offset_bytes <= bytes.len() as u64);
        assert!(breach.expected.len() + breach.found.len() < MESSAGE_BYTES_MAX);
    }
    if end_error.is_none() {
        let map = bank.storage_map_range;
        let map_ends = [map.start, map.end].map(|offset| offset as usize);
        for end in map_ends.into_iter().chain([bytes.len() - 33, bytes.len() - 1]) {
            // Older versions write no block id, so the file may also end before the block id's flag.
            let block_id_bytes = if bank.block_id.is_some() { 33 } else { 1 };
            if parse_bank_file(fields(&bytes[..end]), &mut |_| Ok(())).is_ok() {
                assert_eq!(bytes.len() - end, block_id_bytes, "a file that is cut off parses");
            }
        }
    }
}

/// Parses the data of sysvars and features.
pub fn sysvars(bytes: &[u8]) {
    check(sysvars::parse_stake_history(bytes));
    check(sysvars::parse_block_time(bytes));
    check(sysvars::parse_feature(bytes));
    assert!(check(sysvars::parse_newest_slots(bytes, 9)).is_none_or(|slots| slots.len() <= 9));
}

/// Parses a status cache.
pub fn status_cache(bytes: &[u8]) {
    check(parse_status_cache(fields(bytes), 26));
}

/// Parses lists of obsolete records in both formats. The storages do not exist.
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

/// Checks that a list of storages, in both formats, has no more items than bytes allow.
pub fn storages_list(bytes: &[u8]) {
    if let Some(list) = check(parse_storages_list(fields(bytes))) {
        assert_eq!(8 + 12 * list.len(), bytes.len());
    }
    if let Some(list) = check(parse_tagged_storages_list(fields(bytes))) {
        assert!(8 + 16 * list.len() <= bytes.len());
    }
}

/// Checks that the `.meta` file of a split storage gives the same entries for reads of any size, with
/// and without a `.data` file.
pub fn split(bytes: &[u8]) {
    for data_bytes in [None, Some(1 << 30)] {
        let walk = |window_bytes| {
            let range =
                MetaRange { meta_bytes: bytes.len() as u64, data_bytes, first: 64, limit: u64::MAX, window_bytes };
            let mut read = |buffer: &mut [u8], offset: u64| {
                let start = offset as usize;
                buffer.copy_from_slice(bytes.get(start..start + buffer.len()).expect("within the file"));
                Ok(())
            };
            let mut window = Vec::new();
            let mut entries = 0;
            let mut walk = MetaWalk::new(range, &mut window, &mut read);
            let is_error = loop {
                match walk.next_entry() {
                    Ok(Some(_)) => entries += 1,
                    end => break check(end).is_none(),
                }
            };
            assert!(entries <= bytes.len());
            (entries, is_error)
        };
        assert_eq!(walk(64), walk(1 << 16));
    }
}

/// Checks that a storage gives the same records in pieces of any size.
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
        let mut walker = RecordWalker::default();
        let mut seen = Seen::default();
        bytes.chunks(piece_bytes.max(1)).for_each(|piece| walker.feed(piece, &mut seen));
        walker.finish(&mut seen);
        (seen.records.len(), seen.records.iter().map(|(_, length)| length).sum::<usize>(), seen.faults)
    };
    let whole = walk(bytes.len());
    for piece_bytes in [7, 136, 4096] {
        assert_eq!(walk(piece_bytes), whole, "pieces of {piece_bytes} bytes");
    }
}

/// Checks that names of archives and storages, and roots, are unchanged after parsing.
pub fn names(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(name) = ArchiveName::parse(&text) {
        assert_eq!(ArchiveName::parse(&name.to_string()), Some(name));
    }
    if let Ok(root) = text.parse::<Root>() {
        assert_eq!(root.to_string().parse::<Root>().ok(), Some(root));
    }
    if let Some((slot, id)) = parse_storage_name(&text) {
        assert_eq!(format!("{slot}.{id}"), text);
    }
}

/// Checks that a server's list of archives has no more items than bytes.
pub fn listing(bytes: &[u8]) {
    if let Some(listed) = slotpress_read::catalog::list_parser::parse_list(bytes, "") {
        assert!(listed.archives().len() <= bytes.len());
    }
}

/// Parses a genesis file, a genesis archive, and a genesis archive of any tar.
pub fn genesis(bytes: &[u8]) {
    check(Genesis::parse(fields(bytes)));
    check(genesis_archive::unpack(bytes));
    let mut compressed = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    std::io::Write::write_all(&mut compressed, &wrapped::with_checksums(bytes.to_vec())).expect("compressed");
    check(genesis_archive::unpack(&compressed.finish().expect("compressed")));
}

/// Verifies any bytes as an archive. The result is a report or an error.
pub fn archive(bytes: &[u8]) {
    verify(bytes);
}

/// Verifies any tar stream, in one frame, and in many frames with an index. The first three bytes set
/// the size of the frames and the change of the index.
pub fn entries(bytes: &[u8]) {
    let Some((&[frame_blocks, number, change], tar)) = bytes.split_first_chunk() else { return };
    let tar = wrapped::with_checksums(tar.to_vec());
    verify(&wrapped::in_one_frame(&tar));
    verify(&wrapped::with_index(&tar, 512 * (1 + usize::from(frame_blocks)), &|entries| {
        let index = usize::from(number) % entries.len().max(1);
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
    if let Some(report) =
        check(slotpress_read::verify(Snapshot::Archive(&NamedArchive::from_path(&path)), &options, &NoProgress))
    {
        assert!(report.failures.iter().all(|failure| failure.message.len() < MESSAGE_BYTES_MAX));
    }
}

/// Checks that an account of a token program has no more extensions and texts than bytes allow.
pub fn tokens(bytes: &[u8]) {
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
        let extensions = extensions.count();
        assert!(extensions <= bytes.len() / 4);
        assert!(is_token_2022 || extensions == 0, "extensions of the older program");
    }
}

/// All targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("tar", tar),
    ("frame", frame),
    ("index", index),
    ("seek_table", seek_table),
    ("bank_file", bank_file),
    ("status_cache", status_cache),
    ("sysvars", sysvars),
    ("tokens", tokens),
    ("storages_list", storages_list),
    ("obsolete", obsolete),
    ("split", split),
    ("records", records),
    ("names", names),
    ("listing", listing),
    ("genesis", genesis),
    ("archive", archive),
    ("entries", entries),
];
