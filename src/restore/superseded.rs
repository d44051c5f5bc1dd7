//! Reads superseded records again from the unpacked storages, in each storage in the order of their offsets.

// The files may have been changed in the meantime, so this module must not panic on any content.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

use std::fs::File;
use std::os::unix::fs::FileExt;

use slotpress_base::{Error, IoContext, Result, run_in_order, split_at_most, to_usize};
use slotpress_format::{ACCOUNT_DATA_BYTES_MAX, RECORD_HEADER_BYTES, Record, RecordHeader};
use slotpress_read::{AccountsPass, RecordVersion, RecordVisitor, StorageRef, Superseded};

use crate::restore::unpack::Unpacker;

/// Number of bytes in the first read: enough for the header and the data of most accounts.
const FIRST_READ_BYTES: usize = 512;

impl Unpacker<'_> {
    /// Passes superseded records to `records`. Each worker reads one storage at a time.
    pub fn read_superseded(&self, superseded: &Superseded, records: &AccountsPass<'_>) -> Result<()> {
        let options = self.job.options;
        let new_worker = || {
            let mut worker = records.new_worker();
            Ok(move |versions: &[RecordVersion], buffer: &mut Vec<u8>| {
                let number = versions.first().map(RecordVersion::storage).unwrap_or_default();
                let missing_error = || Error::failed(format!("storage number {number} was not placed"));
                let storage = self.assigner.storages.get(number as usize).ok_or_else(missing_error)?;
                let run_dir = self.run_dirs.get(usize::from(storage.accounts_path_index)).ok_or_else(missing_error)?;
                let name = storage.file_name();
                let path = run_dir.path.join(&name);
                let file = run_dir.dir().open_file(&name)?;
                worker.begin(StorageRef { number, slot: storage.slot, id: storage.id });
                let mut offsets: Vec<u64> = versions.iter().map(RecordVersion::offset_bytes).collect();
                offsets.sort_unstable();
                for offset_bytes in offsets {
                    let (header, data) = read_record(&file, offset_bytes, buffer).or_path("read", &path)?;
                    worker.record(Record { offset_bytes, header: &header, data });
                }
                // Nothing else reads the file, so this drops its pages from the page cache.
                options.io_policy.io_hint.flush_range(&file, &(0..storage.content_bytes)).or_path("write", &path)
            })
        };
        let by_storage = superseded.records.chunk_by(|version, next| version.storage() == next.storage());
        let mut check = |_: &[u8], ()| records.state.check();
        run_in_order(by_storage.map(Ok), options.threads, &new_worker, self.job.progress, &mut check)
    }
}

fn read_record<'a>(
    file: &File,
    offset_bytes: u64,
    buffer: &'a mut Vec<u8>,
) -> std::io::Result<(RecordHeader, &'a [u8])> {
    let changed = || std::io::Error::other("it has changed since it was written");
    buffer.resize(FIRST_READ_BYTES, 0);
    let read = file.read_at(buffer, offset_bytes)?;
    let header = split_at_most(buffer, read).0.first_chunk::<RECORD_HEADER_BYTES>();
    let header = header.map(RecordHeader::parse).ok_or_else(changed)?;
    if header.data_len > ACCOUNT_DATA_BYTES_MAX {
        return Err(changed());
    }
    let end = to_usize(header.data_len).saturating_add(RECORD_HEADER_BYTES);
    if end > read {
        buffer.resize(end, 0);
        let rest = buffer.get_mut(read..).unwrap_or_default();
        file.read_exact_at(rest, offset_bytes.saturating_add(read as u64))?;
    }
    Ok((header, buffer.get(RECORD_HEADER_BYTES..end).ok_or_else(changed)?))
}
