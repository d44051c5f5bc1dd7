//! One archive into files: what [`read`](slotpress_read::archive) decodes goes to its place, and every rule is kept.

use parking_lot::{Mutex, RwLock};
use slotpress_base::{Error, IoContext, Owner, Progress, Result, ShowPath, SpaceWatch, WriteBehind};
use slotpress_format::{BankFile, Entry, Root};
use slotpress_read::archive::Archive;
use slotpress_read::{
    ArchiveRules, Contents, EntrySink, Findings, FirstPass, HashCheck, JudgedArchive, Pass, PassingFrames, ReadError,
    Rule, SeenFrame, SeenSlots, SizeLimit, StateCheck,
};

use crate::restore::assign::{Assigner, Destination};
use crate::restore::place::{EntryWriter, PartialDir, Places};

/// Where to unpack, and with how many workers.
#[derive(Clone, Copy, Debug)]
pub struct UnpackOptions<'a> {
    /// The partial directories of the accounts paths.
    pub roots: &'a [PartialDir],
    /// The partial directory for version, status cache and bank file.
    pub bank_snapshot: &'a PartialDir,
    /// Who owns what is written.
    pub owner: Owner,
    /// Threads that work, 1 to 1024.
    pub threads: usize,
    /// Which frames are compared with their hashes.
    pub hashes: HashCheck,
    /// The rules whose breach ends it.
    pub refused: fn(Rule) -> bool,
}

/// What the archives of one state have in common.
pub struct Shared<'a> {
    /// The slots of their storages.
    pub seen_slots: &'a SeenSlots,
    /// What they may unpack to together.
    pub size_limit: &'a SizeLimit,
    /// The state in the making, where it is checked.
    pub state: Option<&'a StateCheck>,
}

/// An archive that has been unpacked.
pub struct Unpacked {
    /// Of one that was read as a stream, where that is asked for: what stands for all of its bytes.
    pub root: Option<Root>,
    /// Its bank.
    pub bank: BankFile,
    /// Its entries and its storage map.
    pub judged: JudgedArchive,
}

/// Whether a breach of the rule ends the restore of the tree of an archive, as it is there: also of one that only Firedancer loads.
pub fn is_refused_of_tree(rule: Rule) -> bool {
    rule.is_refused() && !rule.is_of_firedancer() && rule != Rule::EmptyStorage
}

/// Of those that are tolerated, the ones that an operator need not hear of: what the archive is called, and in what
/// format it is.
fn is_silent(rule: Rule) -> bool {
    use Rule::*;
    matches!(rule, Index | NameUnknown | ExtensionWrong | Lz4 | Plain | OldCompression)
}

/// Unpacks an archive: by its index where it has one, in order otherwise. An incremental archive builds on `base_slot`.
/// With a state, its records are hashed as they pass.
pub fn unpack(
    archive: &Archive,
    base_slot: Option<u64>,
    assigner: &mut Assigner,
    shared: &Shared<'_>,
    options: &UnpackOptions<'_>,
    progress: &dyn Progress,
) -> Result<Unpacked, ReadError> {
    let UnpackOptions { roots, bank_snapshot, owner, threads, hashes, refused } = *options;
    let Shared { seen_slots, size_limit, state } = *shared;
    let passing =
        (hashes != HashCheck::None && archive.tail.is_none()).then(|| PassingFrames::new(archive.source.as_ref()));
    let write_behind = &WriteBehind::new(archive.io_policy.io_hint);
    let findings = Findings::refusing(refused);
    let records = state.map(StateCheck::first_pass);
    let contents = Unpacking {
        assigner: Mutex::new(assigner),
        destinations: RwLock::default(),
        passing: passing.as_ref(),
        places: Places {
            roots,
            bank_snapshot,
            owner,
            is_shared: archive.tail.is_some(),
            watch: SpaceWatch::default(),
            write_behind,
        },
    };
    let reader = FirstPass {
        rules: ArchiveRules::of_archive(archive, base_slot, seen_slots, &findings),
        size_limit,
        records: records.as_ref(),
        contents,
    };
    let mut read = archive.read(&Pass { hashes, ..Pass::new(threads, progress) }, &reader)?;
    write_behind.finish().or_path("write to", &bank_snapshot.path)?;
    let judged = reader.rules.finish(archive, &mut read)?;
    let broken = findings.broken_rules();
    if let Some(rule) = broken.into_keys().find(|rule| !is_silent(*rule)) {
        let path = archive.path().shown();
        progress.warn(&format!("{path}: {}: verifying it shows where, and which clients refuse it", rule.what()));
    }
    match &judged.bank {
        Some((bank, _)) => {
            let bank = bank.clone();
            drop(reader);
            Ok(Unpacked { root: passing.map(PassingFrames::finish).transpose()?.flatten(), bank, judged })
        }
        // The rules see to it that there is one.
        None => Err(Error::damaged("the archive holds no bank file").into()),
    }
}

/// Unpacks while the archive is read.
struct Unpacking<'a> {
    assigner: Mutex<&'a mut Assigner>,
    destinations: RwLock<Vec<Destination>>,
    /// What hashes frames as they pass.
    passing: Option<&'a PassingFrames<'a>>,
    places: Places<'a>,
}

impl Contents for Unpacking<'_> {
    const ARE_FOR_SINK: bool = true;

    fn entry(&self, entry: &Entry) -> Result<()> {
        // Storages have the numbers of their assignment.
        let destination = self.assigner.lock().assign(entry)?;
        self.destinations.write().push(destination);
        Ok(())
    }

    fn frame(&self, frame: &SeenFrame<'_>) -> Result<()> {
        self.passing.map_or(Ok(()), |passing| passing.frame(frame))
    }

    fn new_sink(&self) -> Box<dyn EntrySink + '_> {
        Box::new(PlacedEntries { writer: EntryWriter::new(&self.places), destinations: &self.destinations })
    }
}

/// Writes entries to their places.
struct PlacedEntries<'a> {
    writer: EntryWriter<'a>,
    destinations: &'a RwLock<Vec<Destination>>,
}

impl EntrySink for PlacedEntries<'_> {
    fn begin(&mut self, number: u32, _: &Entry, _: u64) -> Result<()> {
        let destinations = self.destinations.read();
        let destination = destinations.get(number as usize).copied().unwrap_or(Destination::Nothing);
        drop(destinations);
        self.writer.begin(destination)
    }

    fn content(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        slotpress_base::threads::panic_point("unpacking");
        self.writer.content(offset_bytes, bytes)
    }

    fn end(&mut self, _: &Entry) -> Result<()> {
        self.writer.end()
    }
}
