//! Sets of records, which are identified by their places.

use roaring::RoaringBitmap;

/// Place of a record: the number of its storage, and its offset in units of 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    pub storage: u32,
    pub offset_units: u32,
}

impl Mark {
    pub fn new(storage: u32, offset_bytes: u64) -> Self {
        Self { storage, offset_units: (offset_bytes / UNIT_BYTES) as u32 }
    }
}

/// Records start at multiples of 8 bytes, so an offset in a storage (at most 16 GiB) fits in 32
/// bits.
pub const UNIT_BYTES: u64 = 8;

/// Memory of a storage's bitmap, in addition to its marks, in bytes.
const STORAGE_MARKS_BYTES: u64 = 128;

/// A set of records: a bitmap for each storage, which takes little more than 2 bytes per record.
#[derive(Debug, Default)]
pub struct Marks(Vec<RoaringBitmap>);

impl Marks {
    pub fn insert(&mut self, mark: Mark) {
        let storage = mark.storage as usize;
        if self.0.len() <= storage {
            self.0.resize_with(storage + 1, RoaringBitmap::new);
        }
        self.0[storage].insert(mark.offset_units);
    }

    pub fn contains(&self, mark: Mark) -> bool {
        self.storage_marks(mark.storage).is_some_and(|marks| marks.contains(mark.offset_units))
    }

    pub fn storage_marks(&self, storage: u32) -> Option<&RoaringBitmap> {
        self.0.get(storage as usize).filter(|marks| !marks.is_empty())
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(RoaringBitmap::len).sum()
    }

    pub fn overhead_bytes(&self) -> u64 {
        self.0.len() as u64 * STORAGE_MARKS_BYTES
    }
}

impl Extend<Mark> for Marks {
    fn extend<T: IntoIterator<Item = Mark>>(&mut self, marks: T) {
        marks.into_iter().for_each(|mark| self.insert(mark));
    }
}

pub fn is_marked(marks: Option<&RoaringBitmap>, offset_bytes: u64) -> bool {
    marks.is_some_and(|marks| marks.contains(Mark::new(0, offset_bytes).offset_units))
}
