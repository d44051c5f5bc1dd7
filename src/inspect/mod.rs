//! What is in an archive or a ledger, without unpacking or changing anything.
//!
//! An archive of slotpress tells almost everything by its tail; only the frames that hold the bank file are decoded.
//! Any other is decoded once, in order.

pub mod account;
pub mod accounts;
pub mod owners;
mod readers;
pub mod scan;
pub mod superseded;

use {
    crate::{
        archive::plan::Plan,
        error::{IoContext, Result},
        format::{
            entry::{Entry, EntryKind},
            entry_parser::{EntryParser, TarEvent},
            frames::FrameSpan,
        },
        ledger::{
            bank_file::BankFile,
            directory::{Layout, LedgerPaths, find_bank_snapshot},
            lock::LedgerLock,
            names::ArchiveName,
            storages::StorageFile,
        },
        progress::Progress,
        restore::{
            documents::DocumentReader,
            input::{ArchiveFile, Compression, FrameDecoder},
            tail::{DataFrame, Tail},
            walk::FrameStatistics,
        },
    },
    std::{
        os::unix::fs::FileExt,
        path::{Path, PathBuf},
    },
};

pub use readers::{ClientVerdict, client_verdicts};

/// What an archive holds.
#[derive(Clone, Debug)]
pub struct ArchiveInspection {
    /// The file.
    pub path: PathBuf,
    /// What its name says, where that is the name of an archive.
    pub name: Option<ArchiveName>,
    /// How it is compressed.
    pub compression: Compression,
    /// What wrote it, and how, where an index tells: writer, settings, bytes of tar in a frame.
    pub writer: Option<(String, String, u64)>,
    /// The bank.
    pub bank: BankFile,
    /// The snapshot version.
    pub version: String,
    /// What the entries are.
    pub entries: EntrySummary,
    /// Length of the file in bytes.
    pub file_bytes: u64,
    /// What the frames are like.
    pub frames: FrameStatistics,
    /// Who can read it.
    pub clients: Vec<ClientVerdict>,
}

/// The entries of an archive, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntrySummary {
    /// Storages.
    pub storages: u64,
    /// Bytes of storages.
    pub storage_bytes: u64,
    /// The largest storage, in bytes.
    pub storage_bytes_max: u64,
    /// The highest slot of a storage.
    pub storage_slot_max: u64,
    /// Bytes of the bank file.
    pub bank_file_bytes: u64,
    /// Bytes of the status cache.
    pub status_cache_bytes: u64,
    /// Bytes of the whole tar stream.
    pub tar_bytes: u64,
    /// Whether a storage comes before the bank file.
    pub is_bank_file_late: bool,
}

impl EntrySummary {
    fn add(&mut self, entry: &Entry) {
        self.tar_bytes += entry.tar_bytes();
        match entry.kind {
            EntryKind::Storage { slot, .. } => {
                self.storages += 1;
                self.storage_bytes += entry.content_bytes;
                self.storage_bytes_max = self.storage_bytes_max.max(entry.content_bytes);
                self.storage_slot_max = self.storage_slot_max.max(slot);
            }
            EntryKind::BankFile(_) => {
                self.bank_file_bytes = entry.content_bytes;
                self.is_bank_file_late = self.storages > 0;
            }
            EntryKind::StatusCache => self.status_cache_bytes = entry.content_bytes,
            _ => {}
        }
    }
}

/// What a ledger holds.
#[derive(Debug)]
pub struct LedgerInspection {
    /// The bank snapshot's directory.
    pub path: PathBuf,
    /// How its storages are found.
    pub layout: Layout,
    /// The bank.
    pub bank: BankFile,
    /// Storages that an archive would hold.
    pub storages: u64,
    /// Storages on disk that are split files, which an archive would hold as append vecs.
    pub split_storages: u64,
    /// Bytes of storage files on disk.
    pub file_bytes: u64,
    /// Bytes of storages that an archive would hold: without obsolete records.
    pub storage_bytes: u64,
    /// Storages of which nothing remains.
    pub emptied_storages: u64,
    /// Whether somebody, such as a validator, holds the ledger's lock.
    pub is_in_use: bool,
}

/// Looks into an archive.
pub fn inspect_archive(path: &Path, threads: usize, progress: &dyn Progress) -> Result<ArchiveInspection> {
    let file = ArchiveFile::open(path)?;
    let tail = match Tail::read(&file.file, path, file.length_bytes) {
        Ok(tail) => tail,
        Err(error) => {
            progress.warn(&format!("{}: {error}; reading it without its index", path.display()));
            None
        }
    };
    let mut head = DocumentReader::of_head();
    let (entries, frames) = match &tail {
        Some(tail) => inspect_by_index(&file, tail, &mut head, progress)?,
        None => inspect_in_order(&file, threads, &mut head, progress)?,
    };
    let (bank, version) = head.finish().into_head().map_err(|error| error.within(path.display()))?;
    let bank = bank.bank;
    let clients = client_verdicts(file.compression, &entries, &frames, bank.slot);
    Ok(ArchiveInspection {
        path: path.to_path_buf(),
        name: ArchiveName::of_path(path),
        compression: file.compression,
        writer: tail.map(|tail| (tail.index.writer, tail.index.settings, tail.index.frame_size_bytes)),
        bank,
        version: String::from_utf8_lossy(&version).trim().to_string(),
        entries,
        file_bytes: file.length_bytes,
        frames,
        clients,
    })
}

fn inspect_by_index(
    file: &ArchiveFile,
    tail: &Tail,
    head: &mut DocumentReader,
    progress: &dyn Progress,
) -> Result<(EntrySummary, FrameStatistics)> {
    let mut summary = EntrySummary::default();
    tail.index.entries.iter().for_each(|entry| summary.add(entry));
    summary.tar_bytes = tail.index.tar_bytes();
    // Frames are wanted up to the one in which the last file that is not a storage ends.
    let wanted = |entry: &Entry| matches!(entry.kind, EntryKind::Version | EntryKind::BankFile(_));
    let last = tail.index.entries.iter().rposition(wanted).map_or(0, |last| last as u64 + 1);
    progress.stage("Inspecting", Some(summary.bank_file_bytes));
    let mut parser = EntryParser::new();
    let mut decoder = FrameDecoder::new()?;
    let mut content = Vec::new();
    let mut statistics = FrameStatistics {
        frames: tail.frames.len() as u64,
        skippable_bytes: tail.skippable_bytes,
        ..FrameStatistics::default()
    };
    for (frame, span) in tail.spans() {
        statistics.content_bytes_max = statistics.content_bytes_max.max(u64::from(frame.content_bytes));
        if span.first_entry >= last {
            continue;
        }
        progress.check()?;
        decode_frame(file, &frame, &span, &mut decoder, &mut content)?;
        parser.feed(&content, &mut |event| {
            head.look_at(&event);
            Ok(())
        })?;
        progress.advance(span.length_bytes, 0);
    }
    // slotpress states the size of every frame, so that the window is never larger.
    statistics.frames_with_content_size = statistics.frames;
    statistics.window_bytes_max = statistics.content_bytes_max;
    if !tail.index.settings.contains("no-checksum") {
        statistics.frames_with_checksum = statistics.frames;
    }
    Ok((summary, statistics))
}

fn decode_frame(
    file: &ArchiveFile,
    frame: &DataFrame,
    span: &FrameSpan,
    decoder: &mut FrameDecoder,
    content: &mut Vec<u8>,
) -> Result<()> {
    let mut compressed = vec![0; frame.compressed_bytes as usize];
    file.file.read_exact_at(&mut compressed, frame.offset_bytes).or_path("read", &file.path)?;
    decoder.decode(&compressed, frame.offset_bytes, span.length_bytes, content)
}

fn inspect_in_order(
    file: &ArchiveFile,
    threads: usize,
    head: &mut DocumentReader,
    progress: &dyn Progress,
) -> Result<(EntrySummary, FrameStatistics)> {
    progress.stage("Inspecting", Some(file.length_bytes));
    let mut summary = EntrySummary::default();
    let mut parser = EntryParser::new();
    let statistics = file.decode_in_order(threads, progress, &mut |content| {
        parser.feed(content, &mut |event| {
            if let TarEvent::Begin(entry) = &event {
                summary.add(entry);
            }
            head.look_at(&event);
            Ok(())
        })
    })?;
    parser.finish().map_err(|error| error.within(file.path.display()))?;
    summary.tar_bytes = parser.position();
    Ok((summary, statistics))
}

/// Looks into a ledger. A validator may be running on it; then what is found may be gone a moment later.
pub fn inspect_ledger(paths: &LedgerPaths, slot: Option<u64>, progress: &dyn Progress) -> Result<LedgerInspection> {
    progress.stage("Inspecting", None);
    let is_in_use = paths.ledger.join("ledger.lock").exists() && LedgerLock::acquire(&paths.ledger).is_err();
    let snapshot = find_bank_snapshot(paths, slot)?;
    let (path, layout) = (snapshot.dir.clone(), snapshot.layout);
    let file_bytes = snapshot.storages.iter().map(StorageFile::disk_bytes).sum();
    let split_storages = snapshot.storages.iter().filter(|storage| storage.is_split()).count() as u64;
    let listed = snapshot.storages.len() as u64;
    let plan = Plan::new(snapshot, None, progress)?;
    Ok(LedgerInspection {
        path,
        layout,
        split_storages,
        storages: plan.storages.len() as u64,
        file_bytes,
        storage_bytes: plan.storages.iter().map(|storage| storage.content_bytes).sum(),
        emptied_storages: listed - plan.storages.len() as u64,
        is_in_use,
        bank: plan.bank,
    })
}
