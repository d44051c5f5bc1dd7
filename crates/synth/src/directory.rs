//! Writes the directories that Agave leaves when it stops gracefully.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use slotpress_base::{Error, EscapePath, IoContext, KeptDir, Result};
use slotpress_format::StorageMapItem;

use super::SynthState;
use super::bank::Bank;
use super::fields::FieldWriter;
use super::genesis::write_genesis;
use super::layout::SynthLayout;
use super::status_cache::write_status_cache;
use super::storage::{Storage, Sums};
use super::version::{AgaveVersion, write_startup_hints};

const WRITE_BUFFER_BYTES: usize = 256 * 1024;

pub struct StateDirectory {
    agave: AgaveVersion,
    ledger: PathBuf,
    bank_snapshot: PathBuf,
    obsolete: BufWriter<File>,
    obsolete_path: PathBuf,
    /// Length of each storage without its obsolete records.
    lengths: Vec<u64>,
    storage_bytes: u64,
}

impl StateDirectory {
    /// Makes the directories of a state with `storage_count` storages, and starts the list of
    /// obsolete records.
    pub fn create(ledger: &Path, agave: AgaveVersion, storage_count: u64) -> Result<Self> {
        let slot = SynthLayout::slot(storage_count - 1);
        let bank_snapshot = ledger.join(format!("snapshots/{slot}"));
        let mut directories = vec![bank_snapshot.clone(), ledger.join("accounts/run")];
        if agave != AgaveVersion::V4_5 {
            directories.push(ledger.join("accounts/snapshot"));
        }
        for directory in directories {
            fs::create_dir_all(&directory).or_path("create", &directory)?;
        }
        let obsolete_path = bank_snapshot.join("obsolete_accounts");
        let mut obsolete = create_file(&obsolete_path)?;
        obsolete.write_all(&storage_count.to_le_bytes()).or_path("write", &obsolete_path)?;
        Ok(Self {
            agave,
            ledger: ledger.to_path_buf(),
            bank_snapshot,
            obsolete,
            obsolete_path,
            lengths: Vec::with_capacity(storage_count as usize),
            storage_bytes: 0,
        })
    }

    pub fn storage_path(ledger: &Path, slot: u64, id: u32) -> PathBuf {
        ledger.join(format!("accounts/run/{slot}.{id}"))
    }

    pub fn add(&mut self, slot: u64, id: u32, length: u64, obsolete: &CutRecords) -> Result<()> {
        let CutRecords { cut_bytes, list } = obsolete;
        let mut item = Vec::with_capacity(32 + list.len());
        for field in [slot, u64::from(id), *cut_bytes, (list.len() / self.agave.obsolete_record_bytes()) as u64] {
            item.extend_from_slice(&field.to_le_bytes());
        }
        item.extend_from_slice(list);
        self.obsolete.write_all(&item).or_path("write", &self.obsolete_path)?;
        self.lengths.push(length - cut_bytes);
        self.storage_bytes += length;
        Ok(())
    }

    /// Writes all files that depend on the sums, and last the mark of completeness, as Agave does.
    /// Returns the state, and the number of bytes written.
    pub fn finish(mut self, layout: &SynthLayout, sums: &Sums) -> Result<(SynthState, u64)> {
        self.obsolete.flush().or_path("write", &self.obsolete_path)?;
        let last = self.lengths.len() as u64 - 1;
        let storages = (0..self.lengths.len()).map(|at| (SynthLayout::slot(at as u64), layout.id(at as u64)));
        let path = |name: &str| self.bank_snapshot.join(name);
        let slot = SynthLayout::slot(last);
        let height = SynthLayout::height(last);
        let universe = &layout.universe;
        let genesis = self.ledger.join("genesis.bin");
        write_file(&genesis, |file| write_genesis(universe, file))?;
        write_file(&path("storages_list"), |file| self.agave.write_storages_list(file, storages.clone()))?;
        let bank = Bank {
            universe,
            height,
            capitalization: sums.capitalization,
            data_bytes: sums.data_bytes,
            lattice: &sums.lattice,
            stakes: layout.stakes(last),
        };
        let mapped_count = if self.agave == AgaveVersion::V4_2 { self.lengths.len() } else { 0 };
        write_file(&path(&slot.to_string()), |file| {
            let storage_map = storages.clone().zip(&self.lengths).take(mapped_count);
            bank.write(
                file,
                storage_map.map(|((slot, id), length)| StorageMapItem { slot, id: id.into(), length_bytes: *length }),
            )
        })?;
        write_file(&path("status_cache"), |file| write_status_cache(universe, height, self.storage_bytes, file))?;
        write_file(&path("version"), |file| file.write_all(b"1.2.0"))?;
        if self.agave != AgaveVersion::V4_2 {
            write_file(&path("startup_hints"), |file| write_startup_hints(file, sums.accounts))?;
        }
        write_file(&path("fastboot_version"), |file| file.write_all(self.agave.fastboot_version().as_bytes()))?;

        let mut bytes = fs::metadata(&genesis).or_path("read", &genesis)?.len();
        for entry in fs::read_dir(&self.bank_snapshot).or_path("read", &self.bank_snapshot)? {
            let entry = entry.or_path("read", &self.bank_snapshot)?;
            bytes += entry.metadata().or_path("read", &entry.path())?.len();
        }
        let state = SynthState {
            ledger_dir: self.ledger.clone(),
            slot,
            hash: sums.lattice.snapshot_hash(),
            capitalization: sums.capitalization,
            accounts: sums.accounts,
            storages: last + 1,
            storage_bytes: self.storage_bytes,
        };
        Ok((state, bytes))
    }
}

pub struct PlacedStorage {
    pub length: u64,
    pub full: CutRecords,
    pub newer: CutRecords,
}

/// Obsolete records of a storage in one state: the number of bytes that they take, and their list in
/// the format on disk.
#[derive(Default)]
pub struct CutRecords {
    cut_bytes: u64,
    list: Vec<u8>,
}

impl PlacedStorage {
    /// Encodes a storage's obsolete records for the lists. Does not keep the storage's bytes.
    pub fn place(storage: &Storage, agave: AgaveVersion, has_two_states: bool) -> std::io::Result<Self> {
        let cut = |is_full: bool| {
            let mut cut_bytes = 0;
            let mut out = FieldWriter(Vec::new());
            for record in storage.obsolete.iter().filter(|record| record.in_full || !is_full) {
                cut_bytes += storage.cut_bytes(record);
                agave.write_obsolete(&mut out, record)?;
            }
            Ok::<_, std::io::Error>(CutRecords { cut_bytes, list: out.0 })
        };
        let newer = if has_two_states { cut(false)? } else { CutRecords::default() };
        Ok(Self { length: storage.length, full: cut(true)?, newer })
    }
}

fn create_file(path: &Path) -> Result<BufWriter<File>> {
    let file = File::create_new(path).or_path("create", path)?;
    Ok(BufWriter::with_capacity(WRITE_BUFFER_BYTES, file))
}

fn write_file(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<()> {
    let mut file = create_file(path)?;
    write(&mut file).and_then(|()| file.flush()).or_path("write", path)
}

pub fn claim_empty(directory: &Path) -> Result<()> {
    KeptDir::open_or_create(directory, &mut |_, _| {})?;
    if fs::read_dir(directory).or_path("read", directory)?.next().is_some() {
        return Err(Error::failed(format!("{} is not empty", directory.escaped()))
            .with_hint("choose a directory that does not exist yet; slotpress never overwrites files"));
    }
    Ok(())
}
