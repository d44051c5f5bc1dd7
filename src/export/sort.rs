//! Sorts rows, even more than fit in memory. A row is bytes that begin with a key. Keys must be unique.
//!
//! Workers collect rows in [`SortRun`]s. A full run is sorted, and written to a temporary file. At the
//! end, all runs are merged. The order depends only on the rows. It does not depend on memory, on
//! threads, or on how rows were divided among runs.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::path::Path;

use parking_lot::Mutex;
use rayon::prelude::*;
use slotpress_base::{Error, Progress, Result, start_pool, to_usize};
use slotpress_read::Spill;

use crate::archive::cluster::prefetch;

/// Limit on the length of keys: two addresses as text, each after a byte for its kind, and a byte that
/// tells the rows of two states apart.
const KEY_BYTES_MAX: usize = 2 * (1 + 44) + 1;
/// Maximum number of bytes of a row that are compared, and kept in memory, while runs in the file are
/// merged. The tail of a longer row stays in the file until the last merge.
const HEAD_BYTES_MAX: usize = 4096;
/// Number of rows that are prefetched together. Rows are far apart in memory, and loading these rows
/// together takes as long as loading one of them.
const PREFETCHED_ROWS: usize = 16;
/// Number of bytes that are prefetched per row: two cache lines.
const PREFETCHED_ROW_BYTES: usize = 128;
/// Size at which a block of a run in the file is complete. Disks read blocks of this size fast.
const BLOCK_BYTES: usize = 64 << 10;
/// Memory for merging a run in the file: a block, which may be longer by a head, and the heads of up to
/// three rows.
const MERGED_RUN_BYTES: u64 = (BLOCK_BYTES + 4 * HEAD_BYTES_MAX) as u64;
/// Limit on the runs that are merged at a time, even if memory allows more: otherwise, the processor's
/// cache would have few rows of each run.
const MERGED_RUNS_MAX: u64 = 1024;
/// Limit on the bytes of a run, so that the position of a row fits in 32 bits.
const RUN_BYTES_MAX: u64 = 3 << 30;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct SpillRange {
    offset: u64,
    length: u32,
}

/// A row. The tail is empty unless the row is longer than its head.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SortRow {
    head: Vec<u8>,
    tail: SpillRange,
}

/// Position of a row in memory, and the eight bytes by which it is currently sorted.
struct RowEntry {
    prefix: u64,
    position: u32,
}

type SortRows<'a> = Box<dyn Iterator<Item = Result<SortRow>> + Send + 'a>;

type RunBlocks = Vec<SpillRange>;

pub(super) fn corrupt_rows_error() -> Error {
    Error::failed("rows that were written to a temporary file for sorting have changed")
}

fn common_prefix_len(left: &[u8], right: &[u8]) -> usize {
    let words = left.chunks_exact(8).zip(right.chunks_exact(8)).take_while(|(left, right)| left == right).count();
    let rest = left.iter().zip(right).skip(words * 8);
    words * 8 + rest.take_while(|(left, right)| left == right).count()
}

/// Splits off bytes that are preceded by their length, a `u32`. Returns them and the bytes after them.
pub(super) fn split_counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

fn push_counted(bytes: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len() + 4;
    bytes.extend_from_slice(&[0; 4]);
    write(bytes);
    let length = (bytes.len() - start) as u32;
    bytes[start - 4..start].copy_from_slice(&length.to_le_bytes());
}

/// Rows in memory, each with its length before it.
pub(super) struct SortRun {
    bytes: Vec<u8>,
    rows: Vec<RowEntry>,
    bytes_max: usize,
    rows_max: usize,
}

impl SortRun {
    /// Creates a run that is full when rows and their entries have `bytes_max` bytes, or when there are
    /// `rows_max` rows. Reserves [`SortRun::reserved_bytes`], since growing would copy all rows.
    pub fn new(bytes_max: u64, rows_max: usize, row_bytes_max: u64) -> Self {
        let bytes_max = to_usize(bytes_max.min(RUN_BYTES_MAX));
        let bytes = Vec::with_capacity(bytes_max + to_usize(row_bytes_max));
        Self { bytes, rows: Vec::with_capacity(bytes_max / 4 / size_of::<RowEntry>()), bytes_max, rows_max }
    }

    /// Returns the memory of a run: for its rows, for their entries, and for a last row that exceeds the
    /// limit. A row has at least 48 bytes, so the entries need at most a quarter.
    pub fn reserved_bytes(bytes_max: u64, row_bytes_max: u64) -> u64 {
        bytes_max + bytes_max / 4 + row_bytes_max
    }

    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let position = self.bytes.len() as u32;
        self.rows.push(RowEntry { position, prefix: 0 });
        push_counted(&mut self.bytes, write);
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }

    pub fn is_full(&self) -> bool {
        let used_bytes = self.bytes.len() + size_of_val(&self.rows[..]);
        used_bytes >= self.bytes_max || self.rows.len() >= self.rows_max
    }

    fn sort(&mut self) {
        sort_entries(&self.bytes, &mut self.rows, 0);
    }
}

fn sorted_rows(run: impl Borrow<SortRun> + Send) -> impl Iterator<Item = Result<SortRow>> + Send {
    (0..run.borrow().rows.len()).map(move |number| {
        let SortRun { bytes, rows, .. } = run.borrow();
        if number.is_multiple_of(PREFETCHED_ROWS) {
            for row in rows[number..].iter().take(PREFETCHED_ROWS) {
                prefetch(bytes, row.position as usize, PREFETCHED_ROW_BYTES);
            }
        }
        let head = row_at(bytes, rows[number].position).to_vec();
        Ok(SortRow { head, tail: SpillRange::default() })
    })
}

fn row_at(bytes: &[u8], position: u32) -> &[u8] {
    let row = bytes.get(position as usize..).and_then(split_counted);
    row.map_or(&[], |(row, _)| row)
}

/// Sorts rows that begin with the same `depth` bytes. Sorts by the eight bytes after the common prefix
/// of the rows. Then sorts rows with equal prefixes by the following bytes.
fn sort_entries(bytes: &[u8], rows: &mut [RowEntry], depth: usize) {
    let remaining = |position: u32| row_at(bytes, position).get(depth..).unwrap_or_default();
    let Some((first, others)) = rows.split_first() else { return };
    if others.is_empty() || depth >= KEY_BYTES_MAX {
        return;
    }
    let first = remaining(first.position);
    let mut common = first.len();
    for other in others {
        common = common_prefix_len(&first[..common], remaining(other.position));
    }
    for row in rows.iter_mut() {
        let next = remaining(row.position)[common..].iter().chain(&[0; 8]).take(8);
        row.prefix = next.fold(0, |prefix, byte| prefix << 8 | u64::from(*byte));
    }
    rows.sort_unstable_by_key(|row| row.prefix);
    for equal in rows.chunk_by_mut(|row, next| row.prefix == next.prefix) {
        sort_entries(bytes, equal, depth + common + 8);
    }
}

fn spill_bytes(spill: &Spill, bytes: &[u8]) -> Result<SpillRange> {
    Ok(SpillRange { offset: spill.write(bytes)?, length: bytes.len() as u32 })
}

/// Writes a sorted run. Omits the prefix that a row's head has in common with the head of the previous
/// row.
fn write_run(spill: &Spill, rows: impl Iterator<Item = Result<SortRow>>) -> Result<RunBlocks> {
    let mut blocks = Vec::new();
    let mut block = Vec::new();
    let mut last = Vec::new();
    for row in rows {
        let SortRow { mut head, mut tail } = row?;
        if head.len() > HEAD_BYTES_MAX {
            tail = spill_bytes(spill, &head[HEAD_BYTES_MAX..])?;
            head.truncate(HEAD_BYTES_MAX);
        }
        let common = common_prefix_len(&last, &head).min(255);
        block.extend_from_slice(&[common as u8, u8::from(tail.length > 0)]);
        block.extend_from_slice(&((head.len() - common) as u16).to_le_bytes());
        block.extend_from_slice(&head[common..]);
        if tail.length > 0 {
            block.extend_from_slice(&tail.offset.to_le_bytes());
            block.extend_from_slice(&tail.length.to_le_bytes());
        }
        last = head;
        if block.len() >= BLOCK_BYTES {
            blocks.push(spill_bytes(spill, &block)?);
            block.clear();
        }
    }
    if !block.is_empty() {
        blocks.push(spill_bytes(spill, &block)?);
    }
    Ok(blocks)
}

fn read_run(spill: &Spill, blocks: RunBlocks) -> SortRows<'_> {
    let mut blocks = blocks.into_iter();
    let mut block = Vec::new();
    let mut offset = 0;
    let mut head = Vec::new();
    let mut next = move || -> Result<Option<SortRow>> {
        if offset == block.len() {
            let Some(next) = blocks.next() else { return Ok(None) };
            block.resize(next.length as usize, 0);
            spill.read(next.offset, &mut block)?;
            offset = 0;
        }
        let (tail, after) = next_row(&block[offset..], &mut head).ok_or_else(corrupt_rows_error)?;
        offset = block.len() - after;
        Ok(Some(SortRow { head: head.clone(), tail }))
    };
    Box::new(std::iter::from_fn(move || next().transpose()))
}

/// Replaces the head of the previous row in `head` with the head of the next row. Returns the tail of the
/// next row, and the number of bytes that follow in the block.
fn next_row(block: &[u8], head: &mut Vec<u8>) -> Option<(SpillRange, usize)> {
    let ([common, has_tail, length @ ..], block) = block.split_first_chunk::<4>()?;
    let (bytes, block) = block.split_at_checked(u16::from_le_bytes(*length).into())?;
    head.truncate((*common).into());
    head.extend_from_slice(bytes);
    if *has_tail == 0 {
        return Some((SpillRange::default(), block.len()));
    }
    let (offset, block) = block.split_first_chunk()?;
    let (length, block) = block.split_first_chunk()?;
    let tail = SpillRange { offset: u64::from_le_bytes(*offset), length: u32::from_le_bytes(*length) };
    Some((tail, block.len()))
}

fn merge_runs(mut merged: Vec<SortRows<'_>>) -> Result<SortRows<'_>> {
    let mut heap = BinaryHeap::new();
    for (number, run) in merged.iter_mut().enumerate() {
        if let Some(row) = run.next() {
            heap.push(Reverse((row?, number)));
        }
    }
    Ok(Box::new(std::iter::from_fn(move || {
        let mut top = heap.peek_mut()?;
        let Reverse((row, number)) = &mut *top;
        Some(match merged[*number].next() {
            Some(next) => next.map(|next| std::mem::replace(row, next)),
            None => {
                let Reverse((row, _)) = PeekMut::pop(top);
                Ok(row)
            }
        })
    })))
}

pub(super) struct Sorter {
    spill: Spill,
    runs: Mutex<Vec<SortRun>>,
    spilled: Mutex<Vec<RunBlocks>>,
}

impl Sorter {
    /// Creates a sorter. Its temporary file is created in `dir` once a run is full.
    pub fn new(dir: &Path) -> Self {
        Self { spill: Spill::with_unknown_size(dir, "sorting rows"), runs: Mutex::default(), spilled: Mutex::default() }
    }

    /// Sorts a full run and writes it to the file. Keeps a run that is not full, such as a worker's last
    /// run, in memory. Leaves `run` empty.
    pub fn add(&self, run: &mut SortRun) -> Result<()> {
        if !run.is_full() {
            let empty = SortRun { bytes: Vec::new(), rows: Vec::new(), ..*run };
            self.runs.lock().push(std::mem::replace(run, empty));
            return Ok(());
        }
        run.sort();
        // Empty the run even after a failure, because rows keep coming until reading ends.
        let blocks = write_run(&self.spill, sorted_rows(&*run));
        run.clear();
        self.spilled.lock().push(blocks?);
        Ok(())
    }

    /// Removes all rows, and returns them in order. Sorts runs in memory on `threads` threads. Merges
    /// runs in the file within `memory_bytes`. If there are too many runs, first merges some of them into
    /// longer runs.
    pub fn take_sorted_rows(
        &self,
        memory_bytes: u64,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<impl Iterator<Item = Result<Vec<u8>>> + Send + use<'_>> {
        let spill = &self.spill;
        let mut spilled = std::mem::take(&mut *self.spilled.lock());
        let mut runs = std::mem::take(&mut *self.runs.lock());
        start_pool(threads)?.install(|| runs.par_iter_mut().for_each(SortRun::sort));
        let merged_max = to_usize((memory_bytes / MERGED_RUN_BYTES).clamp(2, MERGED_RUNS_MAX));
        while spilled.len() > merged_max {
            let merged = Vec::from_iter(spilled.drain(..merged_max).map(|run| read_run(spill, run)));
            let rows = merge_runs(merged)?.map(|row| progress.check().and(row));
            spilled.push(write_run(spill, rows)?);
        }
        let mut merged = Vec::from_iter(spilled.into_iter().map(|run| read_run(spill, run)));
        for run in runs {
            merged.push(Box::new(sorted_rows(run)));
        }
        Ok(merge_runs(merged)?.map(|row| {
            let mut row = row?;
            let start = row.head.len();
            row.head.resize(start + row.tail.length as usize, 0);
            if row.tail.length > 0 {
                spill.read(row.tail.offset, &mut row.head[start..])?;
            }
            Ok(row.head)
        }))
    }
}

/// Groups rows, each preceded by its length. A group is complete when it has `rows_max` rows or
/// `bytes_max` bytes.
pub(super) fn group_rows<'a>(
    mut rows: impl Iterator<Item = Result<Vec<u8>>> + Send + 'a,
    rows_max: usize,
    bytes_max: usize,
) -> impl Iterator<Item = Result<Vec<u8>>> + Send + 'a {
    let mut next = move || -> Result<Option<Vec<u8>>> {
        let mut group = Vec::new();
        let mut count = 0;
        while count < rows_max && group.len() < bytes_max {
            let Some(row) = rows.next().transpose()? else { break };
            count += 1;
            push_counted(&mut group, |group| group.extend_from_slice(&row));
        }
        Ok((count > 0).then_some(group))
    };
    std::iter::from_fn(move || next().transpose())
}

#[cfg(test)]
#[path = "sort_tests.rs"]
mod tests;
