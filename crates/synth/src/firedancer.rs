//! Archives a synthetic ledger in the layout of Firedancer's producer
//! (docs/snapshot-format.md#firedancer), to test at any size how such archives are handled.
//!
//! Each compressor collects accounts as they come, and writes a storage of the snapshot's slot for
//! every 32 MiB. So the order differs between runs.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use slotpress_base::{Error, IoContext, Progress, Result};
use slotpress_format::ledger::names::Extension;
use slotpress_format::{
    ArchiveName, Entry, EntryKind, Hash, LedgerPaths, RecordHeader, padding_bytes, read_bank_file, skippable_frame,
};
use slotpress_read::{Account, AccountVisitor, AccountsInput, VisitError, VisitOptions, visit_accounts};
use zstd_safe::{CCtx, CParameter, compress_bound};

use super::accounts::header as record_header;

/// Limit on the bytes of records in a storage.
const STORAGE_BYTES: usize = 32 * 1024 * 1024;

/// Distance between two ids of a compressor.
const ID_STEP: u32 = 64;

const ALIGNMENT_BYTES: u64 = 4096;

/// Archives the state of a synthetic ledger in `out_dir`, with 1 to 64 compressors. Returns the
/// archive's path.
///
/// # Errors
/// The ledger cannot be read, or the archive cannot be written.
pub fn archive_like_firedancer(
    ledger: &Path,
    slot: u64,
    hash: Hash,
    out_dir: &Path,
    compressors: usize,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    fs::create_dir_all(out_dir).or_path("create", out_dir)?;
    let name = ArchiveName { base_slot: None, slot, hash, extension: Extension::TarZstd };
    let path = name.path_in(out_dir);
    let file = File::create_new(&path).or_path("create", &path)?;
    let archive = Output { slot, path: &path, file: Mutex::new((file, 0)), next_compressor: AtomicU32::default() };
    let bank_path = ledger.join("snapshots").join(slot.to_string()).join(slot.to_string());
    let (bank, last_blockhash) = bank_file(&bank_path)?;
    let entry = |kind, content_bytes| header(&Entry { kind, content_bytes });
    let mut front = entry(EntryKind::Version, 5);
    front.extend_from_slice(b"1.2.0");
    pad(&mut front, 5);
    front.extend_from_slice(&entry(EntryKind::SnapshotsDir, 0));
    front.extend_from_slice(&entry(EntryKind::SlotDir(slot), 0));
    front.extend_from_slice(&entry(EntryKind::BankFile(slot), bank.len() as u64));
    let bank_bytes = bank.len() as u64;
    let mut bank = bank;
    pad(&mut bank, bank_bytes);
    archive.put(&[compress(&front)?, compress(&bank)?], true)?;

    let paths = LedgerPaths { ledger: ledger.to_path_buf(), ..LedgerPaths::default() };
    let options = VisitOptions::default().threads(compressors.clamp(1, ID_STEP as usize));
    let visit = visit_accounts(AccountsInput::Ledger(&paths, Some(slot)), &options, progress, || archive.compressor());
    let (compressors, _) = visit.map_err(|error| match error {
        VisitError::Read(error) | VisitError::Visitor(error) => error,
    })?;
    compressors.into_iter().try_for_each(|mut compressor| compressor.write_storage())?;

    // The status cache has one slot, in which no transaction used the last blockhash.
    let mut cache: Vec<u8> = [1, slot].iter().flat_map(|number: &u64| number.to_le_bytes()).collect();
    cache.push(1);
    cache.extend_from_slice(&1u64.to_le_bytes());
    cache.extend_from_slice(&last_blockhash.0);
    cache.extend_from_slice(&[0; 8 + 8]);
    let mut end = entry(EntryKind::StatusCache, cache.len() as u64);
    end.extend_from_slice(&cache);
    pad(&mut end, cache.len() as u64);
    archive.put(&[compress(&end)?, compress(&[0; 1024])?], false)?;
    Ok(path)
}

/// Removes from a bank file what Firedancer does not write: vote accounts, delegations, stake
/// history and storage map. Also returns the bank's last blockhash.
fn bank_file(path: &Path) -> Result<(Vec<u8>, Hash)> {
    let bank = read_bank_file(path, &mut |_| Ok(()))?;
    let bytes = fs::read(path).or_path("read", path)?;
    let places = bank.places;
    let map = places.is_delta + 1;
    // The map has a count of storages; then, for each one, its slot, a count of one, its id and
    // its length.
    let map_end = map + 8 + 32 * bank.storage_count;
    let part = |from: u64, to: u64| bytes.get(from as usize..to as usize).unwrap_or_default();
    let no_stakes: Vec<u8> = [0, 0, 0, bank.stakes_epoch, 0].iter().flat_map(|it: &u64| it.to_le_bytes()).collect();
    let parts =
        [part(0, places.stakes), &no_stakes, part(places.stakes_end, map), &[0; 8], part(map_end, bytes.len() as u64)];
    let last = bank.blockhashes.last.ok_or_else(|| Error::failed("the bank file has no last blockhash"))?;
    Ok((parts.concat(), last))
}

struct Output<'a> {
    slot: u64,
    path: &'a Path,
    file: Mutex<(File, u64)>,
    next_compressor: AtomicU32,
}

impl Output<'_> {
    /// Appends frames. If `is_aligned`, also appends a skippable frame of zeros up to
    /// the alignment.
    fn put(&self, frames: &[Vec<u8>], is_aligned: bool) -> Result<()> {
        let mut guard = self.file.lock();
        let (file, length_bytes) = &mut *guard;
        for frame in frames {
            file.write_all(frame).or_path("write", self.path)?;
            *length_bytes += frame.len() as u64;
        }
        if is_aligned {
            let content_bytes = (*length_bytes + 8).next_multiple_of(ALIGNMENT_BYTES) - *length_bytes - 8;
            let padding = skippable_frame(0, &vec![0; content_bytes as usize]);
            let padding = padding.ok_or_else(|| Error::failed("too much padding"))?;
            file.write_all(&padding).or_path("write", self.path)?;
            *length_bytes += padding.len() as u64;
        }
        Ok(())
    }

    fn compressor(&self) -> Compressor<'_> {
        Compressor { output: self, next_id: self.next_compressor.fetch_add(1, Relaxed), records: Vec::new() }
    }
}

struct Compressor<'a> {
    output: &'a Output<'a>,
    next_id: u32,
    records: Vec<u8>,
}

impl Compressor<'_> {
    fn write_storage(&mut self) -> Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        let kind = EntryKind::Storage { slot: self.output.slot, id: self.next_id };
        let content_bytes = self.records.len() as u64;
        pad(&mut self.records, content_bytes);
        let frames = [raw_frame(&header(&Entry { kind, content_bytes })), compress(&self.records)?];
        self.output.put(&frames, true)?;
        self.next_id += ID_STEP;
        self.records.clear();
        Ok(())
    }
}

impl AccountVisitor for Compressor<'_> {
    type Error = Error;

    fn account(&mut self, account: &Account<'_>) -> Result<()> {
        let data_len = account.data.len() as u64;
        let header = RecordHeader {
            rent_epoch: 0,
            executable: u8::from(account.is_executable),
            ..record_header(account.address.0, account.owner.0, account.lamports, data_len)
        };
        let record_bytes = (header.to_bytes().len() + account.data.len()).next_multiple_of(8);
        if self.records.len() + record_bytes > STORAGE_BYTES {
            self.write_storage()?;
        }
        let end = self.records.len() + record_bytes;
        self.records.extend_from_slice(&header.to_bytes());
        self.records.extend_from_slice(account.data);
        self.records.resize(end, 0);
        Ok(())
    }
}

fn pad(to: &mut Vec<u8>, content_bytes: u64) {
    to.resize(to.len() + padding_bytes(content_bytes) as usize, 0);
}

/// Makes a tar header as Firedancer does: no time, a short mode, a checksum of seven digits.
fn header(entry: &Entry) -> Vec<u8> {
    let mut header = entry.header().to_vec();
    let is_dir = header[156] == b'5';
    for (field, text) in
        [(100..108, if is_dir { "755" } else { "644" }), (108..116, "0"), (116..124, "0"), (136..148, "")]
    {
        header[field.clone()].fill(0);
        header[field.start..field.start + text.len()].copy_from_slice(text.as_bytes());
    }
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:07o}\0").as_bytes());
    header
}

fn raw_frame(content: &[u8]) -> Vec<u8> {
    let length = content.len() as u32;
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x60];
    frame.extend_from_slice(&(length - 256).to_le_bytes()[..2]);
    frame.extend_from_slice(&(length << 3 | 1).to_le_bytes()[..3]);
    frame.extend_from_slice(content);
    frame
}

/// Compresses into a frame that has neither content size nor checksum.
fn compress(content: &[u8]) -> Result<Vec<u8>> {
    let failed = |code| Error::failed(format!("zstd cannot compress: {}", zstd_safe::get_error_name(code)));
    let mut context = CCtx::create();
    for parameter in [CParameter::CompressionLevel(1), CParameter::ContentSizeFlag(false)] {
        context.set_parameter(parameter).map_err(failed)?;
    }
    let mut frame = Vec::with_capacity(compress_bound(content.len()));
    context.compress2(&mut frame, content).map_err(failed)?;
    Ok(frame)
}
