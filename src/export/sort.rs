//! Sorts rows, even more than fit in memory. A row is bytes that begin with a key.
//!
//! Workers collect rows in [`SortRun`]s. A full run is sorted, and written to a temporary file. At the
//! end, all runs are merged. The order depends only on the rows: not on memory, on threads, or on how
//! rows were divided among runs.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::hint::black_box;
use std::path::Path;

use parking_lot::Mutex;
use rayon::prelude::*;
use slotpress_base::{Error, Progress, Result, start_pool, to_usize};
use slotpress_read::Spill;

/// Limit on the length of keys: two addresses as text, a byte for each, and one for the state if
/// rows of two states are sorted. The order of rows with the same key is undefined.
const KEY_BYTES_MAX: usize = 2 * (1 + 44) + 1;
/// Bytes of a row that are compared, and held while runs in the file are merged. The file holds the
/// rest of a longer row separately.
const HEAD_BYTES_MAX: usize = 4096;
/// Number of rows that are loaded at a time. They are far apart in memory, and the processor waits
/// for all of them no longer than for one.
const LOADED_ROWS: usize = 16;
const LINE_BYTES: usize = 64;
/// Size at which a block of a run in the file is complete: enough for disks to read it well.
const BLOCK_BYTES: usize = 64 << 10;
/// Memory of a run in the file while it is merged: a block, which its last row may exceed, and the
/// heads of two rows.
const SOURCE_BYTES: u64 = (BLOCK_BYTES + 4 * HEAD_BYTES_MAX) as u64;
/// Limit on the runs that are merged at a time, whatever the memory: with more, each has few rows in
/// the processor's cache.
const SOURCES_MAX: u64 = 1024;
/// Limit on the bytes of a run, so that the position of a row has 32 bits.
const RUN_BYTES_MAX: u64 = 3 << 30;

/// Bytes of a row beyond its head: their offset in the file, and their number.
type RowTail = (u64, u32);

/// A row, or its head and where the rest is.
type SortRow = (Vec<u8>, RowTail);

type SortRows<'a> = Box<dyn Iterator<Item = Result<SortRow>> + Send + 'a>;

type Blocks = Vec<(u64, u32)>;

pub(super) fn changed_error() -> Error {
    Error::failed("sorted rows are not as they were written to the temporary file")
}

fn common_bytes(one: &[u8], other: &[u8]) -> usize {
    let words = one.chunks_exact(8).zip(other.chunks_exact(8)).take_while(|(one, other)| one == other).count();
    let rest = one.iter().zip(other).skip(words * 8);
    words * 8 + rest.take_while(|(one, other)| one == other).count()
}

/// Splits off bytes that follow their number, a `u32`.
pub(super) fn split_counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

fn push_counted(to: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = to.len() + 4;
    to.extend_from_slice(&[0; 4]);
    write(to);
    let length = (to.len() - start) as u32;
    to[start - 4..start].copy_from_slice(&length.to_le_bytes());
}

/// Rows in memory, each with its length before it.
pub(super) struct SortRun {
    bytes: Vec<u8>,
    /// Position of each row, and eight bytes by which it is sorted.
    rows: Vec<(u64, u32)>,
    bytes_max: usize,
    rows_max: usize,
}

impl SortRun {
    /// Creates a run that is full when rows, and what is sorted with them, take `bytes_max`, or when
    /// there are `rows_max`. Reserves [`SortRun::reserved_bytes`], since growing would copy all rows.
    pub fn new(bytes_max: u64, rows_max: usize, row_bytes_max: u64) -> Self {
        let bytes_max = to_usize(bytes_max.min(RUN_BYTES_MAX));
        let bytes = Vec::with_capacity(bytes_max + to_usize(row_bytes_max));
        Self { bytes, rows: Vec::with_capacity(bytes_max / 4 / size_of::<(u64, u32)>()), bytes_max, rows_max }
    }

    /// Memory of a run: for rows, for the last of them, and for their positions. Rows have at least
    /// 48 bytes.
    pub fn reserved_bytes(bytes_max: u64, row_bytes_max: u64) -> u64 {
        bytes_max + bytes_max / 4 + row_bytes_max
    }

    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.rows.push((0, self.bytes.len() as u32));
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
        self.bytes.len() + size_of_val(&self.rows[..]) >= self.bytes_max || self.rows.len() >= self.rows_max
    }

    fn sort(&mut self) {
        sort(&self.bytes, &mut self.rows, 0);
    }
}

fn sorted_rows(run: impl Borrow<SortRun> + Send) -> impl Iterator<Item = Result<SortRow>> + Send {
    (0..run.borrow().rows.len()).map(move |at| {
        let SortRun { bytes, rows, .. } = run.borrow();
        if at.is_multiple_of(LOADED_ROWS) {
            load(bytes, &rows[at..]);
        }
        Ok((row_at(bytes, rows[at].1).to_vec(), (0, 0)))
    })
}

/// Loads the first of these rows into the processor's cache.
fn load(bytes: &[u8], rows: &[(u64, u32)]) {
    let starts = rows.iter().take(LOADED_ROWS).map(|(_, position)| *position as usize);
    let lines = starts.flat_map(|start| [start, start + LINE_BYTES]);
    black_box(lines.filter_map(|at| bytes.get(at)).fold(0, |sum: u8, byte| sum ^ byte));
}

fn row_at(bytes: &[u8], position: u32) -> &[u8] {
    bytes.get(position as usize..).and_then(split_counted).map_or(&[], |(row, _)| row)
}

/// Sorts rows whose first `depth` bytes are equal: by the eight bytes after all equal ones, which lie
/// beside their positions, and rows that are equal there too, by their following bytes.
fn sort(bytes: &[u8], rows: &mut [(u64, u32)], depth: usize) {
    let rest = |position: u32| row_at(bytes, position).get(depth..).unwrap_or_default();
    let Some(((_, first), others)) = rows.split_first() else { return };
    if others.is_empty() || depth >= KEY_BYTES_MAX {
        return;
    }
    let first = rest(*first);
    let common = others.iter().fold(first.len(), |common, (_, other)| common_bytes(&first[..common], rest(*other)));
    for (word, position) in rows.iter_mut() {
        let next = rest(*position)[common..].iter().chain(&[0; 8]).take(8);
        *word = next.fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    rows.sort_unstable_by_key(|(word, _)| *word);
    rows.chunk_by_mut(|(one, _), (other, _)| one == other).for_each(|equal| sort(bytes, equal, depth + common + 8));
}

/// Writes a sorted run. The first bytes of a row's head are left out if the row before begins with
/// them.
fn write_run(spill: &Spill, rows: impl Iterator<Item = Result<SortRow>>) -> Result<Blocks> {
    let mut blocks = Vec::new();
    let mut block = Vec::new();
    let mut last = Vec::new();
    for row in rows {
        let (mut head, mut tail) = row?;
        if head.len() > HEAD_BYTES_MAX {
            let rest = &head[HEAD_BYTES_MAX..];
            tail = (spill.write(rest)?, rest.len() as u32);
            head.truncate(HEAD_BYTES_MAX);
        }
        let common = common_bytes(&last, &head).min(255);
        block.extend_from_slice(&[common as u8, u8::from(tail.1 > 0)]);
        block.extend_from_slice(&((head.len() - common) as u16).to_le_bytes());
        block.extend_from_slice(&head[common..]);
        if tail.1 > 0 {
            block.extend_from_slice(&tail.0.to_le_bytes());
            block.extend_from_slice(&tail.1.to_le_bytes());
        }
        last = head;
        if block.len() >= BLOCK_BYTES {
            blocks.push((spill.write(&block)?, block.len() as u32));
            block.clear();
        }
    }
    if !block.is_empty() {
        blocks.push((spill.write(&block)?, block.len() as u32));
    }
    Ok(blocks)
}

fn read_run(spill: &Spill, blocks: Blocks) -> SortRows<'_> {
    let mut blocks = blocks.into_iter();
    let mut block = Vec::new();
    let mut at = 0;
    let mut head = Vec::new();
    let mut next = move || -> Result<Option<SortRow>> {
        if at == block.len() {
            let Some((offset, length)) = blocks.next() else { return Ok(None) };
            block.resize(length as usize, 0);
            spill.read(offset, &mut block)?;
            at = 0;
        }
        let (tail, after) = next_row(&block[at..], &mut head).ok_or_else(changed_error)?;
        at = block.len() - after;
        Ok(Some((head.clone(), tail)))
    };
    Box::new(std::iter::from_fn(move || next().transpose()))
}

/// Turns `head` from the head of the row before into the head of the next row. Returns the row's
/// tail, and the number of bytes that follow in the block.
fn next_row(block: &[u8], head: &mut Vec<u8>) -> Option<(RowTail, usize)> {
    let ([common, has_tail, length @ ..], block) = block.split_first_chunk::<4>()?;
    let (bytes, block) = block.split_at_checked(u16::from_le_bytes(*length).into())?;
    head.truncate((*common).into());
    head.extend_from_slice(bytes);
    if *has_tail == 0 {
        return Some(((0, 0), block.len()));
    }
    let (offset, block) = block.split_first_chunk()?;
    let (length, block) = block.split_first_chunk()?;
    Some(((u64::from_le_bytes(*offset), u32::from_le_bytes(*length)), block.len()))
}

fn merge(mut sources: Vec<SortRows<'_>>) -> Result<SortRows<'_>> {
    let mut heap = BinaryHeap::new();
    for (number, source) in sources.iter_mut().enumerate() {
        if let Some(row) = source.next() {
            heap.push(Reverse((row?, number)));
        }
    }
    Ok(Box::new(std::iter::from_fn(move || {
        let mut top = heap.peek_mut()?;
        let Reverse((row, number)) = &mut *top;
        Some(match sources[*number].next() {
            Some(next) => next.map(|next| std::mem::replace(row, next)),
            None => Ok(PeekMut::pop(top).0.0),
        })
    })))
}

pub(super) struct Sorter {
    spill: Spill,
    held: Mutex<Vec<SortRun>>,
    spilled: Mutex<Vec<Blocks>>,
}

impl Sorter {
    /// Creates a sorter that makes its temporary file in `dir`, once it needs one.
    pub fn new(dir: &Path) -> Self {
        Self { spill: Spill::growing(dir, "sorting rows"), held: Mutex::default(), spilled: Mutex::default() }
    }

    /// Sorts a run that is full, and writes it to the file. Keeps any other, such as the last one of a
    /// worker, in memory. Leaves an empty run.
    pub fn add(&self, run: &mut SortRun) -> Result<()> {
        if !run.is_full() {
            let empty = SortRun { bytes: Vec::new(), rows: Vec::new(), ..*run };
            self.held.lock().push(std::mem::replace(run, empty));
            return Ok(());
        }
        run.sort();
        // Also after a failure: until the reading ends, further rows come.
        let blocks = write_run(&self.spill, sorted_rows(&*run));
        run.clear();
        self.spilled.lock().push(blocks?);
        Ok(())
    }

    /// Takes all rows in their order. Sorts runs in memory on `threads` threads. Merges runs in the
    /// file in `memory_bytes`; if they are too many, some of them to longer ones first.
    pub fn rows(
        &self,
        memory_bytes: u64,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<impl Iterator<Item = Result<Vec<u8>>> + Send + use<'_>> {
        let spill = &self.spill;
        let mut spilled = std::mem::take(&mut *self.spilled.lock());
        let mut held = std::mem::take(&mut *self.held.lock());
        start_pool(threads)?.install(|| held.par_iter_mut().for_each(SortRun::sort));
        let sources_max = to_usize((memory_bytes / SOURCE_BYTES).clamp(2, SOURCES_MAX));
        while spilled.len() > sources_max {
            let sources = spilled.drain(..sources_max).map(|run| read_run(spill, run)).collect();
            spilled.push(write_run(spill, merge(sources)?.map(|row| progress.check().and(row)))?);
        }
        let mut sources: Vec<SortRows<'_>> = spilled.into_iter().map(|run| read_run(spill, run)).collect();
        sources.extend(held.into_iter().map(|run| Box::new(sorted_rows(run)) as SortRows<'_>));
        Ok(merge(sources)?.map(|row| {
            let (mut row, (offset, length)) = row?;
            if length > 0 {
                let start = row.len();
                row.resize(start + length as usize, 0);
                spill.read(offset, &mut row[start..])?;
            }
            Ok(row)
        }))
    }
}

/// Puts rows in groups, each row with its length: `rows_max` of them, or fewer if these have
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
