//! Sets of records, with one bit per 136 bytes of storages: a record takes at least that much.

use roaring::RoaringBitmap;
use slotpress_format::RECORD_HEADER_BYTES;

/// Storage number of a record, and its bit in the storage's bitmap. A storage is at most 16 GiB
/// long, so the number fits.
pub type Mark = (u32, u32);

pub fn mark_of(storage: u32, offset_bytes: u64) -> Mark {
    (storage, (offset_bytes / RECORD_HEADER_BYTES as u64) as u32)
}

/// Memory of a storage's bitmap besides its marks.
const STORAGE_MARKS_BYTES: u64 = 128;

/// A set of records: a bitmap for each storage. Takes little more than 2 bytes for each record, and
/// at most a thousandth of the storages.
#[derive(Debug, Default)]
pub struct Marks(Vec<RoaringBitmap>);

impl Marks {
    pub fn insert(&mut self, (storage, bit): Mark) {
        let storage = storage as usize;
        if self.0.len() <= storage {
            self.0.resize_with(storage + 1, RoaringBitmap::new);
        }
        self.0[storage].insert(bit);
    }

    /// Marked records of one storage; `None` if there are none.
    pub fn of_storage(&self, storage: u32) -> Option<&RoaringBitmap> {
        self.0.get(storage as usize).filter(|marks| !marks.is_empty())
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(RoaringBitmap::len).sum()
    }

    /// Memory of the bitmaps besides the marks themselves, in bytes.
    pub fn overhead_bytes(&self) -> u64 {
        self.0.len() as u64 * STORAGE_MARKS_BYTES
    }
}

/// True if a record at this offset of a storage is marked.
pub fn is_marked(marks: Option<&RoaringBitmap>, offset_bytes: u64) -> bool {
    marks.is_some_and(|marks| marks.contains(mark_of(0, offset_bytes).1))
}
