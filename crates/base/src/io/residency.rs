//! Which parts of a file were in the page cache before it was read, so that only the others are dropped afterwards.

use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;

use rustix::fs::{Advice, fadvise};

use super::calls::{cached_pages, page_bytes, resident_pages};

/// At most this much of a file is mapped at a time to look at its pages, to bound the table.
const MAP_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// The parts of a range of a file that were not in the page cache, in whole pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cold {
    runs: Vec<Range<u64>>,
    is_all: bool,
}

impl Cold {
    /// Looks at a range of a file of the given length, which is about to be read. One system call, unless the range is
    /// resident in part.
    pub fn look(file: &File, range: &Range<u64>, file_bytes: u64) -> Self {
        let page = page_bytes();
        let inner = inner_pages(range, file_bytes, page);
        if inner.is_empty() {
            return Self::default();
        }
        let outer = outer_pages(range, page);
        let pages = (inner.end - inner.start) / page;
        let runs = match cached_pages(file, &inner) {
            Some(0) => return Self { runs: vec![outer], is_all: true },
            Some(cached) if cached >= pages => return Self::default(),
            _ => cold_runs(file, &inner, page),
        };
        let is_all = runs.first() == Some(&inner);
        Self { runs: widened(runs, &inner, &outer), is_all }
    }

    /// Whether nothing of the range was resident.
    #[cfg(test)]
    pub fn is_all(&self) -> bool {
        self.is_all
    }

    /// Asks the kernel to read the range now, and to read no further on its own: pages beyond it would stay.
    pub fn prefetch(&self, file: &File) {
        // Hints: where they are not taken, reading is a little slower, or leaves a little more behind.
        let _ = fadvise(file, 0, None, Advice::Random);
        for run in &self.runs {
            let _ = fadvise(file, run.start, NonZeroU64::new(run.end - run.start), Advice::WillNeed);
        }
    }

    /// Drops the pages that were not resident. Dirty pages, and those that a process has mapped, stay.
    pub fn drop_from(&self, file: &File) {
        for run in &self.runs {
            let _ = fadvise(file, run.start, NonZeroU64::new(run.end - run.start), Advice::DontNeed);
        }
    }
}

/// The pages of a range by which it is judged. Pages at its ends that belong in part to what lies before and after may be
/// resident only because another worker reads that: they follow their neighbours. Where a warm and a cold stretch meet right
/// there, one page is judged wrongly.
fn inner_pages(range: &Range<u64>, file_bytes: u64, page: u64) -> Range<u64> {
    let outer = outer_pages(range, page);
    let start = range.start.next_multiple_of(page);
    let end = if range.end >= file_bytes { outer.end } else { range.end / page * page };
    if start < end || range.is_empty() { start..end.max(start) } else { outer }
}

fn outer_pages(range: &Range<u64>, page: u64) -> Range<u64> {
    range.start / page * page..range.end.next_multiple_of(page)
}

fn cold_runs(file: &File, range: &Range<u64>, page: u64) -> Vec<Range<u64>> {
    let mut runs = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let end = range.end.min(start + MAP_BYTES_MAX);
        // A file that cannot be looked at counts as resident: rather leave too much than drop a validator's pages.
        if let Some(map) = resident_pages(file, &(start..end)) {
            add_runs(&mut runs, &map, start, page);
        }
        start = end;
    }
    runs
}

/// Appends the runs of pages that are not resident; a run that goes on from the last one joins it.
fn add_runs(runs: &mut Vec<Range<u64>>, map: &[bool], start: u64, page: u64) {
    for (number, _) in map.iter().enumerate().filter(|(_, is_resident)| !**is_resident) {
        let at = start + number as u64 * page;
        match runs.last_mut() {
            Some(last) if last.end == at => last.end = at + page,
            _ => runs.push(at..at + page),
        }
    }
}

/// Lets the pages at the ends follow their neighbours.
fn widened(mut runs: Vec<Range<u64>>, inner: &Range<u64>, outer: &Range<u64>) -> Vec<Range<u64>> {
    if let Some(first) = runs.first_mut().filter(|first| first.start == inner.start) {
        first.start = outer.start;
    }
    if let Some(last) = runs.last_mut().filter(|last| last.end == inner.end) {
        last.end = outer.end;
    }
    runs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn shared_pages_follow_their_neighbours() {
        assert_eq!(inner_pages(&(0..10_000), 10_000, PAGE), 0..12_288, "a whole file");
        assert_eq!(inner_pages(&(100..10_000), 20_000, PAGE), 4096..8192, "inside a file");
        assert_eq!(inner_pages(&(100..200), 20_000, PAGE), 0..4096, "less than a page");
        assert!(inner_pages(&(0..0), 0, PAGE).is_empty());
        let widen = |runs: Vec<Range<u64>>| widened(runs, &(4096..16_384), &(0..20_480));
        assert_eq!(widen(vec![4096..8192, 12_288..16_384]), [0..8192, 12_288..20_480]);
        let middle = 8192..12_288;
        assert_eq!(widen(vec![middle.clone()]), [middle]);
        assert!(widen(Vec::new()).is_empty());
    }

    proptest! {
        /// Runs are the pages that are not resident, each once, in order, never touching.
        #[test]
        fn runs_are_the_cold_pages(map in proptest::collection::vec(any::<bool>(), 0..200), cut in 0usize..200) {
            let cut = cut.min(map.len());
            let mut runs = Vec::new();
            add_runs(&mut runs, &map[..cut], 0, PAGE);
            add_runs(&mut runs, &map[cut..], cut as u64 * PAGE, PAGE);
            let pages = runs.iter().flat_map(|run| run.start / PAGE..run.end / PAGE).collect::<Vec<_>>();
            let cold = (0..map.len() as u64).filter(|page| !map[*page as usize]).collect::<Vec<_>>();
            prop_assert_eq!(pages, cold);
            prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
        }

        /// Pieces of a file, cut anywhere: every page is judged, and dropped when everything is cold.
        #[test]
        fn pieces_cover_the_file(cuts in proptest::collection::btree_set(1u64..100_000, 0..8)) {
            let ends = cuts.iter().copied().chain([100_000]);
            let pieces: Vec<Range<u64>> = [0].into_iter().chain(cuts.iter().copied()).zip(ends).map(|(a, b)| a..b).collect();
            let mut reached = 0;
            for piece in pieces {
                let (inner, outer) = (inner_pages(&piece, 100_000, PAGE), outer_pages(&piece, PAGE));
                prop_assert!(!inner.is_empty() && outer.start <= inner.start && inner.end <= outer.end);
                prop_assert!(outer.start <= reached);
                reached = outer.end;
            }
            prop_assert!(reached >= 100_000);
        }
    }
}
