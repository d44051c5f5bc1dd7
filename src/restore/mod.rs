//! Archive to ledger: check the target, unpack beside it, check what came out, move it into place.
//!
//! Everything is written under temporary directories, and synced, before anything gets its final name; the mark of
//! completeness, `fastboot_version`, comes last of all. A restore that fails, or is killed, leaves nothing that a
//! validator would take for a ledger.

pub mod assign;
pub mod check;
pub mod documents;
mod finish;
pub mod input;
mod peeker;
pub mod place;
mod space;
pub mod streams;
pub mod tail;
mod target;
pub mod unpack;
pub mod walk;

use {
    crate::{
        error::{Error, Result},
        io::Manners,
        ledger::{
            bank_file::{BankFile, read_bank_file},
            directory::{BankSnapshot, LedgerPaths},
            names::{ArchiveName, Hash},
        },
        progress::Progress,
        read_back::ReadBack,
        restore::{
            assign::Assigner,
            check::{MissingStorages, check_bank},
            finish::{ArchiveCopy, finish_archive_layout, finish_boot_layout},
            input::{ArchiveFile, Compression},
            place::{BANK_FILE_PARTIAL, PartialDir},
            space::SpaceNeeded,
            tail::Tail,
            target::Target,
            unpack::{UnpackOptions, unpack},
        },
        stopwatch::{Stopwatch, Taken},
    },
    std::{
        fs,
        path::{Path, PathBuf},
        sync::Arc,
    },
};

/// What a restore leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestoreLayout {
    /// A ledger from which a validator boots at once.
    #[default]
    Boot,
    /// The tree as it is in the archive.
    Archive,
}

/// What to restore, and where to.
#[derive(Clone, Debug)]
pub struct RestoreOptions {
    /// A full archive; or any archive, for [`RestoreLayout::Archive`].
    pub archive: PathBuf,
    /// An incremental archive on top of it.
    pub incremental: Option<PathBuf>,
    /// The target: ledger, snapshots directory, accounts paths.
    pub paths: LedgerPaths,
    /// What is left there.
    pub layout: RestoreLayout,
    /// Workers.
    pub threads: usize,
    /// Read archives by their frames and headers alone.
    pub ignore_index: bool,
    /// Makes, in the archives directory, what Agave reads of an archive that it does not read; without it, such an
    /// archive cannot be restored into a ledger that boots.
    pub convert: Option<ConvertArchive>,
    /// Read everything back before the ledger is complete.
    pub read_back: Option<Arc<dyn ReadBack>>,
    /// How to behave towards whoever else uses the machine.
    pub manners: Manners,
}

/// Turns an archive into one that Agave reads, in a directory, with so many workers; returns its path.
pub type ConvertArchive =
    fn(archive: &Path, dir: &Path, threads: usize, manners: &Manners, progress: &dyn Progress) -> Result<PathBuf>;

/// What was restored.
#[derive(Clone, Debug)]
pub struct RestoreReport {
    /// The bank snapshot that a validator will boot from; for [`RestoreLayout::Archive`], the tree.
    pub path: PathBuf,
    /// The slot of the state.
    pub slot: u64,
    /// The slot of the full archive, when there is an incremental one.
    pub base_slot: Option<u64>,
    /// The snapshot hash of the state.
    pub hash: Hash,
    /// Storages written.
    pub storages: u64,
    /// Bytes of archives read.
    pub input_bytes: u64,
    /// Bytes of storages written.
    pub output_bytes: u64,
    /// The archives in the archives directory.
    pub archives: Vec<PathBuf>,
    /// The accounts paths.
    pub accounts: Vec<PathBuf>,
    /// Time from the start until everything was on disk.
    pub taken: Taken,
}

/// Restores one archive, or a full and an incremental one. Holds the target ledger's lock all the while.
pub fn restore(options: &RestoreOptions, progress: &dyn Progress) -> Result<RestoreReport> {
    let stopwatch = Stopwatch::start();
    let hint = options.manners.io_hint;
    let _watch = hint.watch([Some(&options.archive), options.incremental.as_ref()].into_iter().flatten());
    let archives = open_archives(options, progress)?;
    let mut target = Target::prepare(&options.paths, options.layout)?;

    let mut copies = Vec::new();
    if options.layout == RestoreLayout::Boot {
        for archive in &archives {
            copies.push(ArchiveCopy::begin(&archive.file, &target.snapshots_dir, options)?);
        }
    }
    space_needed(&archives, &target, &copies)?.check()?;

    let roots = target.create_partial_roots()?;
    let bank_snapshot = PartialDir::create(&target.partial_bank, &target.owner)?;
    let unpack_options =
        UnpackOptions { roots: &roots, bank_snapshot: &bank_snapshot, owner: target.owner, threads: options.threads };
    let mut assigner = Assigner::new(roots.len() as u16, options.layout == RestoreLayout::Archive);
    let mut banks: Vec<BankFile> = Vec::new();
    let mut names = Vec::new();
    for archive in &archives {
        let base_slot = match banks.last() {
            Some(full) => Some(full.slot),
            None => archive.name.as_ref().and_then(|name| name.base_slot),
        };
        check_base(archive, base_slot)?;
        progress.stage("Restoring", Some(archive.file.length_bytes));
        assigner.begin_archive(base_slot);
        // The bank file, status cache and version of the newer archive are the ones that stay.
        bank_snapshot.clear()?;
        unpack(&archive.file, archive.tail.as_ref(), &mut assigner, &unpack_options, progress)?;
        // An incremental archive alone, as its tree, holds only what is newer than its base.
        let elsewhere_up_to = base_slot.filter(|_| banks.is_empty());
        let bank = check_unpacked(archive, elsewhere_up_to, &mut assigner, &bank_snapshot)
            .map_err(|error| error.within(archive.file.path.display()))?;
        names.push(archive.final_name(&bank, base_slot));
        banks.push(bank);
    }

    progress.stage("Syncing", None);
    progress.check()?;
    let bank = banks.pop().ok_or_else(|| Error::failed("no archive"))?;
    let base_slot = banks.pop().map(|full| full.slot);
    let storages = assigner.into_storages();
    if let Some(read_back) = &options.read_back {
        let snapshot = unpacked_snapshot(bank.slot, &bank_snapshot, &roots, options.threads)?;
        // An incremental archive alone is restored as its tree only.
        let partial_on = archives[0].name.as_ref().and_then(|name| name.base_slot);
        read_back.check_snapshot(snapshot, partial_on, options.threads, progress)?;
    }
    let (path, archives_placed) = match options.layout {
        RestoreLayout::Boot => {
            let copies = copies.into_iter().zip(names).collect();
            finish_boot_layout(&target, bank.slot, &storages, roots, bank_snapshot, copies, progress)?
        }
        RestoreLayout::Archive => (finish_archive_layout(&target, bank.slot, roots, bank_snapshot)?, Vec::new()),
    };
    target.keep();
    // Read back to check it, or written by the way.
    hint.settle_dir(&path);
    Ok(RestoreReport {
        path,
        slot: bank.slot,
        base_slot,
        hash: bank.snapshot_hash(),
        storages: storages.len() as u64,
        input_bytes: archives.iter().map(|archive| archive.file.length_bytes).sum(),
        output_bytes: storages.iter().map(|storage| storage.content_bytes).sum(),
        archives: archives_placed,
        accounts: target.accounts.clone(),
        taken: stopwatch.taken(),
    })
}

/// What was unpacked, while it is still in its partial directories.
fn unpacked_snapshot(
    slot: u64,
    bank_snapshot: &PartialDir,
    roots: &[PartialDir],
    threads: usize,
) -> Result<BankSnapshot> {
    let dir = &bank_snapshot.path;
    let files = [BANK_FILE_PARTIAL, "status_cache", "version"].map(|name| dir.join(name));
    BankSnapshot::of_parts(slot, dir.clone(), files, roots.iter().map(|root| root.path.clone()), threads)
}

/// An archive to restore, with what its name and its tail say.
struct SourceArchive {
    file: ArchiveFile,
    name: Option<ArchiveName>,
    tail: Option<Tail>,
}

impl SourceArchive {
    /// The name under which a validator finds it: its own, or for a file of another name the one that its content asks
    /// for.
    fn final_name(&self, bank: &BankFile, base_slot: Option<u64>) -> ArchiveName {
        let extension = self.file.compression.extension();
        ArchiveName { base_slot, slot: bank.slot, hash: bank.snapshot_hash(), extension }
    }
}

fn open_archives(options: &RestoreOptions, progress: &dyn Progress) -> Result<Vec<SourceArchive>> {
    let mut archives = Vec::new();
    for path in [Some(&options.archive), options.incremental.as_ref()].into_iter().flatten() {
        let mut file = ArchiveFile::open(path)?;
        file.manners = options.manners.clone();
        let name = ArchiveName::of_path(path);
        let is_tail_wanted = file.compression == Compression::Zstd && !options.ignore_index;
        let tail = match is_tail_wanted.then(|| Tail::read(&file.file, path, file.length_bytes)) {
            Some(Ok(tail)) => tail,
            Some(Err(error)) => {
                progress.warn(&format!("{}: {error}; reading it without its index", path.display()));
                None
            }
            None => None,
        };
        archives.push(SourceArchive { file, name, tail });
    }
    let base_of = |at: usize| archives.get(at).and_then(|archive: &SourceArchive| archive.name.as_ref()?.base_slot);
    let full_slot = archives[0].name.as_ref().map(|name| name.slot);
    match (options.layout, archives.len(), base_of(0), base_of(1)) {
        (RestoreLayout::Archive, 2, ..) => Err(Error::usage("--tree archive unpacks one archive")
            .hint("unpack the incremental archive on its own, into another directory")),
        (RestoreLayout::Boot, _, Some(base), _) => {
            Err(Error::usage(format!("an incremental archive alone does not make a ledger: it builds on slot {base}"))
                .hint(format!("slotpress restore FULL_ARCHIVE_OF_SLOT_{base} INCREMENTAL_ARCHIVE --ledger DIR")))
        }
        (_, 2, _, None) if archives[1].name.is_some() => {
            Err(Error::usage("the second archive is a full one")
                .hint("give the full archive first, then the incremental"))
        }
        (_, _, _, Some(base)) if full_slot.is_some_and(|slot| slot != base) => Err(Error::usage(format!(
            "the incremental archive builds on slot {base}, but the full archive is of slot {}",
            full_slot.unwrap_or_default()
        ))
        .hint("give the full archive that the incremental one names")),
        _ => Ok(archives),
    }
}

/// The name of an incremental archive must not contradict the full archive, whose own name may tell nothing.
fn check_base(archive: &SourceArchive, base_slot: Option<u64>) -> Result<()> {
    match (archive.name.as_ref().and_then(|name| name.base_slot), base_slot) {
        (Some(named), Some(slot)) if named != slot => Err(Error::usage(format!(
            "the incremental archive builds on slot {named}, but the full archive is of slot {slot}"
        ))
        .hint("give the full archive that the incremental one names")),
        _ => Ok(()),
    }
}

/// Bytes that will be written, by file system. Where no index tells, the archive's own length is the least they can be.
fn space_needed(archives: &[SourceArchive], target: &Target, copies: &[ArchiveCopy]) -> Result<SpaceNeeded> {
    let mut needed = SpaceNeeded::default();
    for archive in archives {
        let unpacked_bytes = archive.tail.as_ref().map_or(archive.file.length_bytes, |tail| tail.index.tar_bytes());
        let dirs = &target.partial_roots;
        for dir in dirs.iter().filter_map(|dir| dir.parent()) {
            needed.add(dir, unpacked_bytes / dirs.len() as u64)?;
        }
    }
    for copy in copies {
        needed.add(&target.snapshots_dir, copy.bytes_to_copy())?;
    }
    Ok(needed)
}

/// Checks an unpacked archive as a whole: everything there, the bank file sound and what the name says, no storage of
/// its storage map missing, but for those that are `elsewhere_up_to` a slot.
fn check_unpacked(
    archive: &SourceArchive,
    elsewhere_up_to: Option<u64>,
    assigner: &mut Assigner,
    bank_snapshot: &PartialDir,
) -> Result<BankFile> {
    let slot = assigner.end_archive()?;
    let has_slot = |slot| assigner.has_slot(slot);
    let mut missing = MissingStorages::new(&has_slot, elsewhere_up_to);
    let bank = read_bank_file(&bank_snapshot.path.join(BANK_FILE_PARTIAL), &mut |item| {
        missing.look_at(&item);
        Ok(())
    })?;
    let version = fs::read(bank_snapshot.path.join("version")).unwrap_or_default();
    check_bank(&bank, &version, slot, archive.name.as_ref())?;
    missing.check()?;
    Ok(bank)
}
