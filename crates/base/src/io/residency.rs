//! Records which parts of a file are in the page cache before it is read, so that only the other
//! parts are dropped afterwards.

use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;

use rustix::fs::{Advice, fadvise};

use super::calls::{cached_pages, page_bytes, resident_pages};

/// Limit on the bytes of a file that are mapped at a time to examine pages. It bounds the memory for the
/// state of these pages.
const MAP_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Pages of a range that were not in the page cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColdPages {
    runs: Vec<Range<u64>>,
    /// True if at most a sixteenth of the range's pages was in the page cache. A few may be there because a header
    /// was read. They are ignored: if the rest were also read through the page cache, the kernel
    /// would read ahead, and later ranges would seem to be cached.
    pub covers_nearly_all: bool,
}

impl ColdPages {
    /// Examines a range of a file of the given length before it is read. One system call suffices if the
    /// kernel supports `cachestat`, and either all pages are in the page cache or none.
    pub fn find(file: &File, range: &Range<u64>, file_bytes: u64) -> Self {
        let page_bytes = page_bytes();
        let inner = inner_pages(range, file_bytes, page_bytes);
        if inner.is_empty() {
            return Self::default();
        }
        let outer = outer_pages(range, page_bytes);
        let inner_bytes = inner.end - inner.start;
        let runs = match cached_pages(file, &inner) {
            Some(0) => return Self { runs: vec![outer], covers_nearly_all: true },
            Some(cached) if cached * page_bytes >= inner_bytes => return Self::default(),
            _ => cold_runs(file, &inner, page_bytes),
        };
        let cold_bytes: u64 = runs.iter().map(|run| run.end - run.start).sum();
        let covers_nearly_all = cold_bytes > 0 && inner_bytes - cold_bytes <= inner_bytes / 16;
        Self { runs: widen(runs, &inner, &outer), covers_nearly_all }
    }

    /// Asks the kernel to read these pages now. Turns read-ahead off, which would leave pages beyond the
    /// range in the page cache.
    pub fn prefetch(&self, file: &File) {
        if self.runs.is_empty() {
            return;
        }
        // These are hints: if the kernel ignores them, reading is slower, or leaves more pages.
        let _ = fadvise(file, 0, None, Advice::Random);
        for run in &self.runs {
            let _ = fadvise(file, run.start, NonZeroU64::new(run.end - run.start), Advice::WillNeed);
        }
    }

    /// Drops the pages that were not resident. Dirty and mapped pages stay.
    pub fn drop_from(&self, file: &File) {
        for run in &self.runs {
            let _ = fadvise(file, run.start, NonZeroU64::new(run.end - run.start), Advice::DontNeed);
        }
    }
}

/// Returns the pages that are examined, which are those inside the range. The first and last page may
/// be shared with neighboring ranges, and be resident only because another worker reads those ranges.
/// Each is treated like the inner page next to it, which may be wrong for that one page.
fn inner_pages(range: &Range<u64>, file_bytes: u64, page_bytes: u64) -> Range<u64> {
    let outer = outer_pages(range, page_bytes);
    let start = range.start.next_multiple_of(page_bytes);
    let end = if range.end >= file_bytes { outer.end } else { range.end / page_bytes * page_bytes };
    if start < end || range.is_empty() { start..end.max(start) } else { outer }
}

fn outer_pages(range: &Range<u64>, page_bytes: u64) -> Range<u64> {
    range.start / page_bytes * page_bytes..range.end.next_multiple_of(page_bytes)
}

fn cold_runs(file: &File, range: &Range<u64>, page_bytes: u64) -> Vec<Range<u64>> {
    let mut runs = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let end = range.end.min(start + MAP_BYTES_MAX);
        // A file that cannot be examined counts as resident: it is better to leave too many pages
        // than to drop a validator's.
        if let Some(map) = resident_pages(file, &(start..end)) {
            add_runs(&mut runs, &map, start, page_bytes);
        }
        start = end;
    }
    runs
}

/// Appends runs of non-resident pages, joining a run that continues the last one.
fn add_runs(runs: &mut Vec<Range<u64>>, map: &[bool], start: u64, page_bytes: u64) {
    for (number, _) in map.iter().enumerate().filter(|(_, is_resident)| !**is_resident) {
        let run_start = start + number as u64 * page_bytes;
        match runs.last_mut() {
            Some(last) if last.end == run_start => last.end += page_bytes,
            _ => runs.push(run_start..run_start + page_bytes),
        }
    }
}

fn widen(mut runs: Vec<Range<u64>>, inner: &Range<u64>, outer: &Range<u64>) -> Vec<Range<u64>> {
    for run in &mut runs {
        if run.start == inner.start {
            run.start = outer.start;
        }
        if run.end == inner.end {
            run.end = outer.end;
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn shared_pages_follow_their_neighbors() {
        assert_eq!(inner_pages(&(0..10_000), 10_000, PAGE), 0..12_288, "a whole file");
        assert_eq!(inner_pages(&(100..10_000), 20_000, PAGE), 4096..8192, "inside a file");
        assert_eq!(inner_pages(&(100..200), 20_000, PAGE), 0..4096, "less than a page");
        assert!(inner_pages(&(0..0), 0, PAGE).is_empty());
        let widen = |runs: Vec<Range<u64>>| widen(runs, &(4096..16_384), &(0..20_480));
        assert_eq!(widen(vec![4096..8192, 12_288..16_384]), [0..8192, 12_288..20_480]);
        let middle = 8192..12_288;
        assert_eq!(widen(vec![middle.clone()]), [middle]);
        assert!(widen(Vec::new()).is_empty());
    }

    proptest! {
        /// Runs contain each non-resident page once, in order, and are never adjacent.
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

        /// The pages of all pieces cover the file, wherever it is cut.
        #[test]
        fn pieces_cover_the_file(cuts in proptest::collection::btree_set(1u64..100_000, 0..8)) {
            let ends = cuts.iter().copied().chain([100_000]);
            let pieces: Vec<Range<u64>> = [0].into_iter().chain(cuts.iter().copied()).zip(ends).map(|(a, b)| a..b).collect();
            let mut reached = 0;
            for piece in pieces {
                let inner = inner_pages(&piece, 100_000, PAGE);
                let outer = outer_pages(&piece, PAGE);
                prop_assert!(!inner.is_empty() && outer.start <= inner.start && inner.end <= outer.end);
                prop_assert!(outer.start <= reached);
                reached = outer.end;
            }
            prop_assert!(reached >= 100_000);
        }
    }
}
