//! Writes the files that Agave leaves in a ledger when it stops gracefully, except for the storages.

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
use super::storage::{ObsoleteRecord, Sums};
use super::version::{AgaveVersion, write_startup_hints};

const WRITE_BUFFER_BYTES: usize = 256 * 1024;

/// Writes a ledger with one state.
pub struct LedgerWriter {
    agave: AgaveVersion,
    ledger: PathBuf,
    bank_snapshot: PathBuf,
    obsolete_list: BufWriter<File>,
    obsolete_path: PathBuf,
    /// Storages of the state, with their lengths without obsolete records.
    storage_map: Vec<StorageMapItem>,
    storage_bytes: u64,
}

impl LedgerWriter {
    /// Makes the directories of a ledger with `storage_count` storages, and begins the list of obsolete
    /// records.
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
        let mut obsolete_list = create_file(&obsolete_path)?;
        obsolete_list.write_all(&storage_count.to_le_bytes()).or_path("write", &obsolete_path)?;
        Ok(Self {
            agave,
            ledger: ledger.to_path_buf(),
            bank_snapshot,
            obsolete_list,
            obsolete_path,
            storage_map: Vec::with_capacity(storage_count as usize),
            storage_bytes: 0,
        })
    }

    pub fn storage_path(ledger: &Path, slot: u64, id: u32) -> PathBuf {
        ledger.join(format!("accounts/run/{slot}.{id}"))
    }

    /// Adds a storage, and writes its obsolete records to the list. The length in `item` includes them.
    pub fn add_storage<'a>(
        &mut self,
        mut item: StorageMapItem,
        obsolete_records: impl Iterator<Item = &'a ObsoleteRecord>,
    ) -> Result<()> {
        let obsolete: Vec<_> = obsolete_records.collect();
        let cut_bytes: u64 = obsolete.iter().map(|record| record.cut_bytes(item.length_bytes)).sum();
        let mut out = FieldWriter(&mut self.obsolete_list);
        out.u64s(&[item.slot, item.id, cut_bytes, obsolete.len() as u64])
            .and_then(|()| obsolete.iter().try_for_each(|record| self.agave.write_obsolete_record(&mut out, record)))
            .or_path("write", &self.obsolete_path)?;
        self.storage_bytes += item.length_bytes;
        item.length_bytes -= cut_bytes;
        self.storage_map.push(item);
        Ok(())
    }

    /// Writes all files that depend on the sums. Like Agave, writes `fastboot_version` last. Returns the state,
    /// and the number of bytes written.
    pub fn finish(mut self, layout: &SynthLayout, sums: &Sums) -> Result<(SynthState, u64)> {
        self.obsolete_list.flush().or_path("write", &self.obsolete_path)?;
        let last_storage = self.storage_map.len() as u64 - 1;
        let storages = self.storage_map.iter().map(|item| (item.slot, item.id as u32));
        let path = |name: &str| self.bank_snapshot.join(name);
        let slot = SynthLayout::slot(last_storage);
        let height = SynthLayout::height(last_storage);
        let universe = &layout.universe;
        let genesis = self.ledger.join("genesis.bin");
        write_file(&genesis, |file| write_genesis(universe, file))?;
        write_file(&path("storages_list"), |file| self.agave.write_storages_list(file, storages))?;
        let bank = Bank {
            universe,
            height,
            capitalization: sums.capitalization,
            data_bytes: sums.data_bytes,
            lattice: &sums.lattice,
            stakes: layout.stakes(last_storage),
        };
        let storage_map = if self.agave == AgaveVersion::V4_2 { &self.storage_map[..] } else { &[] };
        write_file(&path(&slot.to_string()), |file| bank.write(file, storage_map))?;
        write_file(&path("status_cache"), |file| write_status_cache(universe, height, self.storage_bytes, file))?;
        write_file(&path("version"), |file| file.write_all(b"1.2.0"))?;
        if self.agave != AgaveVersion::V4_2 {
            write_file(&path("startup_hints"), |file| write_startup_hints(file, sums.accounts))?;
        }
        write_file(&path("fastboot_version"), |file| file.write_all(self.agave.fastboot_version().as_bytes()))?;

        let mut written_bytes = fs::metadata(&genesis).or_path("read", &genesis)?.len();
        for entry in fs::read_dir(&self.bank_snapshot).or_path("read", &self.bank_snapshot)? {
            let entry = entry.or_path("read", &self.bank_snapshot)?;
            written_bytes += entry.metadata().or_path("read", &entry.path())?.len();
        }
        let state = SynthState {
            path: self.ledger.clone(),
            slot,
            hash: sums.lattice.snapshot_hash(),
            capitalization_lamports: sums.capitalization,
            accounts: sums.accounts,
            storages: last_storage + 1,
            storage_bytes: self.storage_bytes,
        };
        Ok((state, written_bytes))
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

pub fn create_or_require_empty(directory: &Path) -> Result<()> {
    KeptDir::open_or_create(directory, &mut |_, _| {})?;
    if fs::read_dir(directory).or_path("read", directory)?.next().is_some() {
        return Err(Error::failed(format!("{} is not empty", directory.escaped()))
            .with_hint("choose an empty directory, or one that does not exist yet"));
    }
    Ok(())
}
