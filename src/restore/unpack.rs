//! Unpacks an archive: checks every entry against the rules, and writes it to its assigned place.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use parking_lot::{Mutex, RwLock};
use slotpress_base::{
    Error, ErrorKind, EscapePath, Flushers, IoContext, Progress, Result, SpaceWatch, Stage, flusher_memory_bytes,
};
use slotpress_format::{ArchiveRoot, BankFile, Entry, EntryKind};
use slotpress_read::archive::tail::check_hashes;
use slotpress_read::{
    AccountsPass, ArchivePass, ArchiveRules, EntryRole, EntrySink, Failures, OpenArchive, ReadFault, RecordVisitor,
    Rule, SeenFrame, SeenSlots, StateBuilder, Tail, Task, Visitor,
};

use crate::restore::RestoreJob;
use crate::restore::assign::{AssignedStorage, Assigner};
use crate::restore::check::check_chain;
use crate::restore::input::ArchiveToRestore;
use crate::restore::place::{BANK_FILE_PARTIAL, PartialDir};

pub struct Unpacker<'a> {
    pub job: RestoreJob<'a>,
    pub run_dirs: &'a [PartialDir],
    pub assigner: Assigner,
    pub seen_slots: SeenSlots,
    pub state: Option<StateBuilder>,
}

pub struct UnpackedArchive {
    pub base_slot: Option<u64>,
    pub bank: BankFile,
    /// Directory of bank file, status cache and version.
    pub bank_snapshot: PartialDir,
}

/// True for rules that may be broken without a warning, because they concern only name and format.
fn is_silent(rule: Rule) -> bool {
    use Rule::*;
    matches!(rule, Index | NameUnknown | ExtensionWrong | Lz4)
}

impl Unpacker<'_> {
    /// Unpacks and checks an archive, which builds on `full` if there is one. `is_base` is true if an
    /// incremental archive is known to follow.
    pub fn unpack_checked(
        &mut self,
        opened: &ArchiveToRestore,
        full: Option<(&ArchiveToRestore, &UnpackedArchive)>,
        is_base: bool,
    ) -> Result<UnpackedArchive> {
        opened.judge_pair(full, None)?;
        let base_slot = full.map(|(_, full)| full.bank.slot);
        let unpacked = self.unpack(opened, base_slot.or(opened.archive.base_slot()), is_base)?;
        opened.judge_pair(full, Some(&unpacked.bank))?;
        check_chain(&unpacked.bank, self.job.options)?;
        if opened.expect_root.is_some() && opened.is_judged_at_end {
            opened.judge_root(compare_frames(&opened.archive, self.job.progress)?)?;
        }
        Ok(unpacked)
    }

    /// Unpacks an archive, using its index if it has one, otherwise in order. Writes version, status cache
    /// and bank file to a separate directory. If the state is checked, hashes records while they are written.
    fn unpack(&mut self, opened: &ArchiveToRestore, base_slot: Option<u64>, is_base: bool) -> Result<UnpackedArchive> {
        let job = self.job;
        let archive = &opened.archive;
        let bank_snapshot = PartialDir::create(&job.target.snapshots_dir, "bank", job.target.owner)?;
        job.progress.stage(Stage::Restoring, archive.source.length_bytes());
        let memory_bytes = flusher_memory_bytes(job.options.check.memory_bytes);
        let flushers = &Flushers::start(archive.io_policy.io_hint, memory_bytes)?;
        let failures = Failures::with_refused(Rule::is_refused).for_base(is_base);
        let accounts = self.state.as_ref();
        let records = accounts.map(|accounts| AccountsPass::new(accounts, &failures, Task::HashAndLog(None)));
        let rules = ArchiveRules::from_archive(archive, base_slot, &self.seen_slots, &failures)
            .with_records(records.as_ref())
            .with_sink();
        let visitor = UnpackVisitor {
            rules,
            run_dirs: self.run_dirs,
            bank_snapshot: &bank_snapshot,
            assigner: Mutex::new(&mut self.assigner),
            storages: RwLock::default(),
            space: SpaceWatch::default(),
            flushers,
        };
        let pass = ArchivePass::new(job.options.threads, job.progress).check_hashes(opened.expect_root.is_some());
        let mut read = archive.read(&pass, &visitor)?;
        flushers.finish()?;
        let (_, bank) = visitor.rules.finish(archive, &mut read)?;
        let broken = failures.broken_rules();
        if let Some(rule) = broken.into_keys().find(|rule| !is_silent(*rule)) {
            let path = archive.path().escaped();
            let rule = rule.description();
            job.progress.warn(&format!("{path}: {rule}: verifying it shows where, and which clients refuse it"));
        }
        // The rules require a bank file.
        let bank = bank.ok_or_else(|| Error::damaged("the archive holds no bank file"))?;
        drop(visitor);
        Ok(UnpackedArchive { base_slot, bank, bank_snapshot })
    }
}

/// Compares the frames of an archive with their hashes, after the archive was read without its tail. Returns
/// the archive's root; `None` if the archive has no valid hashes.
fn compare_frames(archive: &OpenArchive, progress: &dyn Progress) -> Result<Option<ArchiveRoot>> {
    let source = archive.source.as_ref();
    let tail = match Tail::read(source) {
        Err(error) if error.kind() == ErrorKind::Damaged => return Ok(None),
        tail => tail?,
    };
    let Some(tail) = tail else { return Ok(None) };
    progress.stage(Stage::Checking, source.length_bytes());
    check_hashes(source, &tail, &|_| false, progress)
}

struct UnpackVisitor<'a> {
    rules: ArchiveRules<'a>,
    run_dirs: &'a [PartialDir],
    bank_snapshot: &'a PartialDir,
    assigner: Mutex<&'a mut Assigner>,
    /// For each entry, its place if it is a storage.
    storages: RwLock<Vec<Option<AssignedStorage>>>,
    space: SpaceWatch,
    flushers: &'a Flushers,
}

impl Visitor for UnpackVisitor<'_> {
    fn visit_entry(&self, entry: &Entry) -> Result<EntryRole> {
        let role = self.rules.visit_entry(entry)?;
        // The order of assignments determines the storages' numbers.
        let storage = self.assigner.lock().assign(entry)?;
        self.storages.write().push(storage);
        Ok(role)
    }

    fn observe_frame(&self, frame: SeenFrame) -> Result<()> {
        self.rules.observe_frame(frame)
    }

    fn handle_fault(&self, fault: ReadFault<'_>, lost: Option<&'static str>) -> Result<()> {
        self.rules.handle_fault(fault, lost)
    }

    fn records(&self) -> Option<&dyn RecordVisitor> {
        self.rules.records()
    }

    fn new_sink(&self) -> Option<Box<dyn EntrySink + '_>> {
        Some(Box::new(EntryWriter { visitor: self, current: None, written: 0..0 }))
    }
}

/// Writes entries to their places. An entry that spans several frames may be written by several writers.
struct EntryWriter<'w, 'a> {
    visitor: &'w UnpackVisitor<'a>,
    current: Option<(File, PathBuf)>,
    written: Range<u64>,
}

impl EntryWriter<'_, '_> {
    /// Closes the current file: it is complete, or another writer writes the rest.
    fn end_current(&mut self) -> Result<()> {
        let Some((file, path)) = self.current.take() else { return Ok(()) };
        let written = std::mem::take(&mut self.written);
        self.visitor.flushers.add(file, path, written)
    }
}

impl EntrySink for EntryWriter<'_, '_> {
    fn begin(&mut self, number: u32, entry: &Entry) -> Result<()> {
        self.end_current()?;
        let visitor = self.visitor;
        let storage = visitor.storages.read().get(number as usize).copied();
        let (dir, name) = match (entry.kind, storage.flatten()) {
            (EntryKind::Version, _) => (visitor.bank_snapshot, "version".to_string()),
            (EntryKind::StatusCache, _) => (visitor.bank_snapshot, "status_cache".to_string()),
            (EntryKind::BankFile(_), _) => (visitor.bank_snapshot, BANK_FILE_PARTIAL.to_string()),
            (_, Some(storage)) => {
                let run_dir = &visitor.run_dirs[usize::from(storage.accounts_path_index)];
                (run_dir, storage.file_name())
            }
            _ => return Ok(()),
        };
        self.current = Some((dir.create_file(&name)?, dir.path.join(&name)));
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        slotpress_base::threads::panic_point("unpacking");
        let Some((file, path)) = &self.current else { return Ok(()) };
        let UnpackVisitor { space, bank_snapshot, .. } = self.visitor;
        space.check_before_writing(bytes.len() as u64, file, &bank_snapshot.path)?;
        let written = file.write_all_at(bytes, offset_bytes);
        written.or_path("write", path)?;
        if self.written.is_empty() {
            self.written.start = offset_bytes;
        }
        self.written.end = offset_bytes + bytes.len() as u64;
        Ok(())
    }

    fn end(&mut self, _: &Entry) -> Result<()> {
        self.end_current()
    }
}
