//! Archives that Agave does not read, once they are unpacked: what those of Firedancer lack is made of their accounts, their
//! storages get their places, and archives that Agave reads are made of what was unpacked.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use slotpress_base::{Error, IoContext, Result};
use slotpress_format::ledger::names::Extension;
use slotpress_format::{ArchiveName, BankFile, FieldReader, Genesis, RentEpochs, StorageFile, parse_status_cache};
use slotpress_read::archive::Archive;
use slotpress_read::archive::documents::parse_bank;
use slotpress_read::archive::front::FIREDANCER_BANK_BYTES_MAX;
use slotpress_read::archive::source::written;
use slotpress_read::conversion::{CONVERTED, ForAgave, ReadOfFiredancer, RentEpochPlace, STATUS_CACHE_COUNT_BYTES};
use slotpress_read::{
    CheckOptions, Client, Documents, Findings, FoundAccounts, NamedArchive, Plan, StateCheck, Unpublished,
    judge_documents, read_back_archive_on,
};

use crate::archive::sink::OpenSink;
use crate::archive::{ArchiveOptions, write_planned};
use crate::restore::assign::{AssignedStorage, Placed};
use crate::restore::copies::{ArchiveCopy, copy_in_pieces};
use crate::restore::place::{BANK_FILE_PARTIAL, PartialDir};
use crate::restore::unpack::Unpacked;
use crate::restore::{RestoreTarget, Run, unpacked_snapshot};

pub struct Part {
    pub unpacked: Unpacked,
    pub bank_snapshot: PartialDir,
    pub storages: Range<u32>,
    /// Final places of the storages, if the archive is Firedancer's and is converted.
    pub placed: Option<Vec<Placed>>,
    /// Accounts of the state from which stakes follow, if an incremental archive is to change them.
    pub accounts: Option<FoundAccounts>,
}

impl Part {
    pub fn is_merged(&self) -> bool {
        self.placed.iter().flatten().any(|placed| placed.parts.len() > 1)
    }

    pub fn final_storages(&self, unpacked: &[AssignedStorage]) -> Vec<AssignedStorage> {
        match &self.placed {
            Some(placed) => placed.iter().map(|placed| placed.storage).collect(),
            None => unpacked[self.storages.start as usize..self.storages.end as usize].to_vec(),
        }
    }
}

pub struct Conversion<'a> {
    pub run: Run<'a>,
    pub roots: &'a [PartialDir],
    pub unpacked: &'a [AssignedStorage],
}

impl Conversion<'_> {
    /// Converts those archives that are Firedancer's, of which the state has been checked.
    ///
    /// # Errors
    /// Something that Agave asks for cannot be had; the disk fails.
    pub fn convert(&self, parts: &mut [Part], state: &StateCheck) -> Result<()> {
        if parts.iter().all(|part| part.placed.is_none()) {
            return Ok(());
        }
        let newest = parts.len().saturating_sub(1);
        // Vote accounts get the rent epochs that Agave's incremental archive expects.
        let rent_epochs = match parts.last().filter(|part| part.placed.is_none()) {
            Some(part) => RentEpochs::of_stakes(&part.unpacked.bank.stakes),
            None => RentEpochs::default(),
        };
        let genesis = self.run.options.genesis().as_deref().map(Genesis::read).transpose()?;
        for (number, part) in parts.iter_mut().enumerate() {
            let Some(placed) = part.placed.take() else { continue };
            slotpress_base::threads::panic_point("converting");
            self.run.progress.check()?;
            let is_base = number < newest;
            let accounts = match part.accounts.take() {
                Some(accounts) => accounts,
                None => state.found_accounts()?,
            };
            let read = ReadOfFiredancer {
                bank_file: read_bank_file(&part.bank_snapshot)?,
                bank: &part.unpacked.bank,
                accounts,
                storages: part.storages.clone(),
                rent_epochs: rent_epochs.clone(),
                genesis: genesis.as_ref(),
                is_base,
            };
            let ForAgave { bank, status_cache_front, rent_epochs: places } = read.convert(self.run.progress)?;
            self.replace(&part.bank_snapshot, BANK_FILE_PARTIAL, &mut |to| {
                bank.write(&mut |bytes| to.write_all(bytes).or_path("write", &part.bank_snapshot.path))
            })?;
            drop(bank);
            self.replace(&part.bank_snapshot, STATUS_CACHE, &mut |to| {
                let path = &part.bank_snapshot.path;
                let mut source = part.bank_snapshot.open_file(STATUS_CACHE)?;
                source.seek(SeekFrom::Start(STATUS_CACHE_COUNT_BYTES as u64)).or_path("read", path)?;
                to.write_all(&status_cache_front).or_path("write", path)?;
                std::io::copy(&mut source, to).or_path("copy", path).map(drop)
            })?;
            part.unpacked.bank = judge(&part.bank_snapshot, part.unpacked.bank.slot)?;
            if !is_base {
                state.judge(&part.unpacked.bank)?;
            }
            self.set_rent_epochs(&places)?;
            placed.iter().try_for_each(|placed| self.place(placed))?;
            let left_out = part.storages.len() - placed.iter().map(|placed| placed.parts.len()).sum::<usize>();
            if left_out > 0 {
                self.remove_empty(&part.storages)?;
                self.run
                    .progress
                    .warn(&format!("storages without a record were left out, which no client loads: {left_out}"));
            }
            part.placed = Some(placed);
        }
        Ok(())
    }

    /// Replaces a file while the old content is still being read.
    fn replace(
        &self,
        dir: &PartialDir,
        name: &str,
        write: &mut dyn FnMut(&mut BufWriter<File>) -> Result<()>,
    ) -> Result<()> {
        const NEW: &str = "made-anew";
        let mut to = BufWriter::new(dir.create_file(NEW, &self.run.target.owner, false)?);
        write(&mut to)?;
        to.flush().or_path("write", &dir.path.join(NEW))?;
        dir.rename_within(NEW, dir.dir(), name)
    }

    fn set_rent_epochs(&self, places: &[RentEpochPlace]) -> Result<()> {
        for places in places.chunk_by(|one, other| one.storage == other.storage) {
            let Some((storage, root)) = places.first().and_then(|place| self.found(place.storage)) else { continue };
            let name = storage.file_name();
            let file = root.create_file(&name, &self.run.target.owner, true)?;
            for place in places {
                file.write_all_at(&place.epoch.to_le_bytes(), place.offset_bytes)
                    .or_path("write", &root.path.join(&name))?;
            }
        }
        Ok(())
    }

    /// Gives a storage its name; where it has several parts, they are appended to the first.
    fn place(&self, Placed { storage, parts }: &Placed) -> Result<()> {
        let mut first: Option<File> = None;
        for number in parts {
            let missing = || Error::failed(format!("storage number {number} was not unpacked"));
            let (part, root) = self.found(*number).ok_or_else(missing)?;
            let name = part.file_name();
            let path = root.path.join(&name);
            match &mut first {
                None if parts.len() == 1 => {}
                None => {
                    let mut file = root.create_file(&name, &self.run.target.owner, true)?;
                    file.seek(SeekFrom::End(0)).or_path("write", &path)?;
                    first = Some(file);
                }
                Some(to) => {
                    let from = root.open_file(&name)?;
                    copy_in_pieces(&from, to, part.content_bytes, &self.run.options.io_policy, self.run.progress)
                        .or_path("copy", &path)?;
                    root.dir().remove_file(&name).or_path("remove", &path)?;
                }
            }
        }
        let Some((part, root)) = parts.first().and_then(|number| self.found(*number)) else { return Ok(()) };
        root.rename_within(&part.file_name(), root.dir(), &storage.file_name())
    }

    fn remove_empty(&self, storages: &Range<u32>) -> Result<()> {
        for (storage, root) in storages.clone().filter_map(|number| self.found(number)) {
            if storage.content_bytes == 0 {
                let name = storage.file_name();
                root.dir().remove_file(&name).or_path("remove", &root.path.join(&name))?;
            }
        }
        Ok(())
    }

    fn found(&self, number: u32) -> Option<(&AssignedStorage, &PartialDir)> {
        let storage = self.unpacked.get(number as usize)?;
        Some((storage, self.roots.get(usize::from(storage.root))?))
    }

    /// Makes archives that Agave reads of those that it does not, still without their names.
    ///
    /// # Errors
    /// The disk fails; records of one account have come together in one storage.
    pub fn make_archives(
        &self,
        parts: &[Part],
        archives: &[Archive],
        copies: &mut [ArchiveCopy],
        names: &mut [ArchiveName],
    ) -> Result<()> {
        let RestoreTarget { threads, check, .. } = self.run.options;
        let mut base: Option<NamedArchive> = None;
        for (((part, archive), copy), name) in parts.iter().zip(archives).zip(copies).zip(names) {
            let mut source = archive.source.clone();
            if copy.is_made() {
                let file = self.make_archive(part)?;
                source = written(&file)?;
                name.extension = Extension::TarZstd;
                if part.is_merged() {
                    let spill_dir = check.spill_dir(Some(self.run.target.snapshots_dir.path()));
                    let check = CheckOptions::default().memory_bytes(check.memory_bytes).temporary_dir(spill_dir);
                    let made = NamedArchive::from_source(source.clone(), Some(name.clone()));
                    read_back_archive_on(&check, &made, base.as_ref(), &Client::AGAVE, *threads, self.run.progress)?;
                }
                copy.set_made(file);
            }
            base = Some(NamedArchive::from_source(source, Some(name.clone())));
        }
        Ok(())
    }

    fn make_archive(&self, part: &Part) -> Result<Unpublished> {
        slotpress_base::threads::panic_point("making the archive");
        let RestoreTarget { threads, io_policy, .. } = self.run.options;
        let snapshot = unpacked_snapshot(part.unpacked.bank.slot, &part.bank_snapshot, self.roots, *threads)?;
        let ids: HashMap<(u64, u32), u32> = part
            .final_storages(self.unpacked)
            .iter()
            .map(|storage| ((storage.slot, storage.id), storage.archive_id))
            .collect();
        let id_of = |file: &StorageFile| ids.get(&(file.slot, file.id)).copied();
        let plan = Plan::of_unpacked(part.unpacked.bank.clone(), snapshot, &id_of, io_policy.io_hint)?;
        self.run.progress.stage("Archiving", Some(plan.tar_bytes()));
        let options = ArchiveOptions::new(self.run.target.ledger.path()).threads(*threads).io_policy(io_policy.clone());
        let file = Unpublished::create_in(&self.run.target.snapshots_dir)?;
        let note = part.placed.as_ref().map(|_| CONVERTED);
        write_planned(&plan, &options, *threads, note, &mut OpenSink::Unnamed(&file), self.run.progress)?;
        Ok(file)
    }
}

/// The name of the status cache in a bank snapshot.
const STATUS_CACHE: &str = "status_cache";

fn read_bank_file(dir: &PartialDir) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = dir.open_file(BANK_FILE_PARTIAL)?;
    file.take(FIREDANCER_BANK_BYTES_MAX as u64).read_to_end(&mut bytes).or_path("read", &dir.path)?;
    Ok(bytes)
}

/// Parses the new bank file and applies the rules of every Agave version in use.
fn judge(dir: &PartialDir, slot: u64) -> Result<BankFile> {
    let length_of = |file: &File| Ok::<_, Error>(file.metadata().or_path("read", &dir.path)?.len());
    let bank = dir.open_file(BANK_FILE_PARTIAL)?;
    let length_bytes = length_of(&bank)?;
    let bank = parse_bank(FieldReader::new(std::io::BufReader::new(bank), length_bytes, "the bank file"));
    let cache = dir.open_file(STATUS_CACHE)?;
    let length_bytes = length_of(&cache)?;
    let fields = FieldReader::new(std::io::BufReader::new(cache), length_bytes, "the status cache");
    let documents =
        Documents { bank: Some(bank), status_cache: Some(parse_status_cache(fields, u64::MAX)), version: None };
    let findings = Findings::refusing(|rule| {
        rule.is_refused() || Client::AGAVE.iter().any(|client| !rule.is_tolerated_by(*client))
    });
    let judged = judge_documents(documents, Some(slot), &findings)?;
    judged.map(|(bank, _)| bank).ok_or_else(|| Error::failed("no bank file was made"))
}
