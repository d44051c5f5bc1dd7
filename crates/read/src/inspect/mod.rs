//! Inspects an archive or ledger without unpacking or changing anything.
//!
//! In an archive with an index, only the frames that hold version and bank file are decoded. An archive
//! without an index is decoded once, in order.

pub mod account;
pub mod accounts;
pub mod owners;
pub mod visit;

use std::path::PathBuf;

use derive_setters::Setters;
use serde::{Serialize, Serializer};
use slotpress_base::{
    Error, EscapePath, IoPolicy, Progress, Result, Stage, available_threads, saturating_add_to, text,
};
use slotpress_format::{
    ArchiveName, ArchiveRoot, BankFields, Entry, EntryKind, LedgerPaths, LockState, StorageFile, find_bank_snapshot,
    ledger_lock_state,
};

use crate::archive::front;
use crate::archive::walk::FrameStatistics;
use crate::{
    ArchiveContents, ArchiveInput, ArchivePass, ArchiveRules, EntryRole, Failures, OpenArchive, PairMember, Plan,
    PlanOptions, ReadFault, SeenFrame, SeenSlots, SnapshotClient, Visitor, judge_pair,
};

/// Contents of an archive.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename = "archive")]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct ArchiveInspection {
    /// Path of the file, or the name of another source.
    #[serde(serialize_with = "text::path")]
    pub path: PathBuf,
    /// The bank, as the bank file describes it.
    #[serde(flatten)]
    pub bank: BankFields,
    /// Parsed name of the archive. Serializes as the base slot only.
    #[serde(rename = "base_slot", serialize_with = "serialize_base_slot")]
    pub name: Option<ArchiveName>,
    /// True if the slot and the hash in the name are the bank's; `None` if the file is not named like an
    /// archive.
    pub name_matches: Option<bool>,
    /// Snapshot version, the content of the entry `version`.
    pub version: String,
    /// Compression according to the first bytes: `zstd`, `lz4`, `bzip2`, `gzip` or `none`.
    pub format: &'static str,
    /// The program that wrote the archive. This field and the next two are `None` without an index.
    pub writer: Option<String>,
    /// Settings of that program.
    pub settings: Option<String>,
    /// Frame size that the program was set to, in bytes of tar.
    #[serde(skip)]
    pub frame_size_bytes: Option<u64>,
    /// True if Firedancer wrote the archive, or the archive from which it was recompressed.
    pub is_from_firedancer: bool,
    /// Numbers and lengths of the entries.
    #[serde(flatten)]
    pub entries: EntrySummary,
    /// Length of the archive, in bytes.
    pub file_bytes: u64,
    #[doc(hidden)]
    #[serde(flatten)]
    pub frames: FrameStatistics,
    /// Root of the archive; `None` if it has no frame hashes.
    pub root: Option<ArchiveRoot>,
    /// For each client, the reasons why it refuses the archive. Accounts were not examined.
    #[doc(hidden)]
    pub clients: Vec<ClientReading>,
}

fn serialize_base_slot<S: Serializer>(
    name: &Option<ArchiveName>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    let base_slot = name.as_ref().and_then(|name| name.base_slot);
    base_slot.serialize(serializer)
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ClientReading {
    pub client: SnapshotClient,
    pub reads: bool,
    pub refusals: Vec<&'static str>,
}

/// Numbers and lengths of an archive's entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct EntrySummary {
    /// Number of storages in the archive.
    pub storages: u64,
    /// Length of all storages, in bytes.
    pub storage_bytes: u64,
    /// Length of the longest storage, in bytes.
    pub storage_bytes_max: u64,
    /// Length of the bank file, in bytes.
    pub bank_file_bytes: u64,
    /// Length of the status cache, in bytes.
    pub status_cache_bytes: u64,
    /// Length of the tar stream, in bytes.
    pub tar_bytes: u64,
}

impl EntrySummary {
    fn add(&mut self, entry: &Entry) {
        match entry.kind {
            EntryKind::Storage { .. } => {
                saturating_add_to(&mut self.storages, 1);
                saturating_add_to(&mut self.storage_bytes, entry.content_bytes);
                self.storage_bytes_max = self.storage_bytes_max.max(entry.content_bytes);
            }
            EntryKind::BankFile(_) => self.bank_file_bytes = entry.content_bytes,
            EntryKind::StatusCache => self.status_cache_bytes = entry.content_bytes,
            _ => {}
        }
    }
}

/// Contents of a ledger.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename = "ledger")]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct LedgerInspection {
    /// Directory of the bank snapshot.
    #[serde(serialize_with = "text::path")]
    pub path: PathBuf,
    /// The bank, as the bank file describes it.
    #[serde(flatten)]
    pub bank: BankFields,
    /// Number of storages that an archive of the ledger would hold.
    pub storages: u64,
    /// Length of these storages in the archive, in bytes.
    pub storage_bytes: u64,
    /// Fastboot version and layout, in words.
    pub layout: &'static str,
    /// Number of split storages on disk, which an archive would hold as append vecs.
    pub split_storages: u64,
    /// Length of the storages' files on disk, in bytes.
    pub file_bytes: u64,
    /// Number of storages in which all records are obsolete.
    pub emptied_storages: u64,
    /// True if a process such as a validator holds the ledger's lock; `None` if unknown.
    #[serde(rename = "in_use")]
    pub is_in_use: Option<bool>,
}

/// Refuses two archives that are not a pair according to their names, their indexes and the first fields of
/// their bank files. If an archive can be read only once, only the names are compared.
///
/// # Errors
/// Those of [`judge_pair`]; or an archive cannot be read.
pub fn check_pair(full: &ArchiveInput, incremental: &ArchiveInput) -> Result<()> {
    let failures = Failures::strict();
    judge_pair(full.into(), incremental.into(), &failures)?;
    let full = full.open(&IoPolicy::default())?;
    let incremental = incremental.open(&IoPolicy::default())?;
    if full.source.is_stream() || incremental.source.is_stream() {
        return Ok(());
    }
    let full_bank = front::read_bank(&full)?;
    let incremental_bank = front::read_bank(&incremental)?;
    // The snapshot hash is at the end of the bank file, which was not read, so the hash in the name is used.
    let hash = full.name.as_ref().map(|name| name.hash);
    let full = PairMember { hash, ..PairMember::from_archive(&full, full_bank.as_ref()) };
    let incremental = PairMember::from_archive(&incremental, incremental_bank.as_ref());
    judge_pair(full, incremental, &failures)
}

/// Settings for inspecting an archive or a ledger.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct InspectOptions {
    /// Threads that decode, 1 to 1024. Default: one per core.
    pub threads: usize,
}

impl Default for InspectOptions {
    fn default() -> Self {
        Self { threads: available_threads() }
    }
}

/// Inspects an archive written by any client. With an index, reads only the frames that hold version and bank
/// file. Without an index, decodes the whole archive once.
///
/// # Errors
/// The archive cannot be read, is damaged, or does not hold a bank file.
pub fn inspect_archive(
    input: &ArchiveInput,
    options: &InspectOptions,
    progress: &dyn Progress,
) -> Result<ArchiveInspection> {
    let archive = input.open(&IoPolicy::default())?;
    archive.warn_of_damaged_index(progress);
    inspect_open(&archive, options.threads, progress).map_err(|error| error.with_place_if_damaged(input.path.escaped()))
}

fn inspect_open(archive: &OpenArchive, threads: usize, progress: &dyn Progress) -> Result<ArchiveInspection> {
    let failures = Failures::new();
    let seen_slots = SeenSlots::default();
    let rules = ArchiveRules::from_archive(archive, archive.base_slot(), &seen_slots, &failures);
    let inspector = Inspector { rules, has_index: archive.tail.is_some() };
    let total_bytes = if archive.tail.is_none() { archive.source.length_bytes() } else { None };
    progress.stage(Stage::Inspecting, total_bytes);
    let pass = ArchivePass::new(threads, progress).wanted_only(true);
    let mut contents = archive.read(&pass, &inspector)?;
    let frames = frame_statistics(archive, &contents);
    let version = contents.documents.version.clone().unwrap_or_default();
    let bank_error = match &contents.documents.bank {
        Some(Ok(parsed)) => parsed.end_error.as_ref(),
        Some(Err(error)) => Some(error),
        None => None,
    };
    if let Some(error) = bank_error {
        return Err(error.clone());
    }
    let (entries, bank) = inspector.rules.finish(archive, &mut contents)?;
    let mut summary = EntrySummary { tar_bytes: contents.tar_bytes, ..EntrySummary::default() };
    entries.iter().for_each(|entry| summary.add(entry));
    let bank = bank.ok_or_else(|| Error::damaged("the archive holds no bank file"))?;
    let hash = bank.snapshot_hash();
    let index = archive.tail.as_ref().map(|tail| &tail.index);
    let matches_bank = |name: &ArchiveName| name.slot == bank.slot && name.hash == hash;
    Ok(ArchiveInspection {
        path: archive.path().to_path_buf(),
        name_matches: archive.name.as_ref().map(matches_bank),
        is_from_firedancer: contents.is_from_firedancer,
        name: archive.name.clone(),
        format: archive.compression.name(),
        writer: index.map(|index| index.writer.clone()),
        settings: index.map(|index| index.settings.clone()),
        frame_size_bytes: index.map(|index| index.frame_size_bytes),
        root: archive.root(),
        bank: BankFields::from_bank(&bank),
        version: text::one_line(String::from_utf8_lossy(&version).trim()),
        entries: summary,
        file_bytes: archive.source.length_bytes().unwrap_or_default(),
        frames,
        clients: client_readings(&failures),
    })
}

fn client_readings(failures: &Failures) -> Vec<ClientReading> {
    let broken = failures.broken_rules();
    let reading = |client| {
        let refusing = broken.keys().filter(|rule| !rule.is_tolerated_by(client));
        let refusals: Vec<&str> = refusing.map(|rule| rule.refusal_reason(client)).collect();
        ClientReading { client, reads: refusals.is_empty(), refusals }
    };
    SnapshotClient::JUDGED_BY_DEFAULT.map(reading).to_vec()
}

/// Returns statistics of the frames. With an index, they come from the seek table and the settings, because
/// not all frames were read.
fn frame_statistics(archive: &OpenArchive, contents: &ArchiveContents) -> FrameStatistics {
    let mut statistics = contents.frames;
    if let Some(tail) = &archive.tail {
        let lengths = tail.frames.iter().map(|frame| u64::from(frame.content_bytes));
        statistics.frame_bytes_max = lengths.max().unwrap_or_default();
        if !tail.index.settings.contains("no-checksum") {
            statistics.frames_with_checksum = statistics.frames;
        }
    }
    statistics
}

struct Inspector<'a> {
    rules: ArchiveRules<'a>,
    has_index: bool,
}

impl Visitor for Inspector<'_> {
    fn visit_entry(&self, entry: &Entry) -> Result<EntryRole> {
        self.rules.visit_entry(entry)?;
        let is_document = match entry.kind {
            EntryKind::Version | EntryKind::BankFile(_) => true,
            // With an index, the frames that hold the status cache are skipped to save time.
            EntryKind::StatusCache => !self.has_index,
            _ => false,
        };
        Ok(EntryRole { is_document, ..EntryRole::default() })
    }

    fn observe_frame(&self, frame: SeenFrame) -> Result<()> {
        self.rules.observe_frame(frame)
    }

    fn handle_fault(&self, fault: ReadFault<'_>, lost: Option<&'static str>) -> Result<()> {
        match fault {
            // A wrong end is reported as a reason why clients refuse the archive. Other faults are errors.
            ReadFault::End { .. } => self.rules.handle_fault(fault, lost),
            fault => Err(fault.into_error()),
        }
    }
}

/// Inspects a ledger without taking its lock. A validator may be running, so the result may soon be outdated.
///
/// # Errors
/// There is no complete bank snapshot (at this slot), or one of its files cannot be read.
pub fn inspect_ledger(
    paths: &LedgerPaths,
    slot: Option<u64>,
    options: &InspectOptions,
    progress: &dyn Progress,
) -> Result<LedgerInspection> {
    let threads = options.threads;
    progress.stage(Stage::Inspecting, None);
    let is_in_use = match ledger_lock_state(&paths.ledger) {
        LockState::Free => Some(false),
        LockState::Held(_) => Some(true),
        LockState::Unknown => None,
    };
    let snapshot = find_bank_snapshot(paths, slot, threads)?;
    let path = snapshot.dir.clone();
    let layout = snapshot.layout.description();
    let file_bytes = snapshot.storages.iter().map(StorageFile::disk_bytes).sum();
    let split = snapshot.storages.iter().filter(|storage| storage.is_split());
    let split_storages = split.count() as u64;
    let listed_storages = snapshot.storages.len() as u64;
    let plan = Plan::new(snapshot, &PlanOptions::new(None, threads), progress)?;
    let lengths = plan.storages.iter().map(|storage| storage.content_bytes);
    Ok(LedgerInspection {
        path,
        layout,
        split_storages,
        storages: plan.storages.len() as u64,
        file_bytes,
        storage_bytes: lengths.sum(),
        emptied_storages: listed_storages.saturating_sub(plan.storages.len() as u64),
        is_in_use,
        bank: BankFields::from_bank(&plan.bank),
    })
}
