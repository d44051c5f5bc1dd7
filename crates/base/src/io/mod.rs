//! Reduces the impact on a machine that runs a validator: the validator's pages stay in the page cache, its
//! disk is not flooded, and its threads run first.
//!
//! Commands pass an [`IoPolicy`]. [`residency`] decides which pages to drop, and [`pace`] limits the
//! rate of reading. [`direct`] bypasses the page cache. [`writer`] writes one new file, [`flushers`]
//! many. `calls` contains the system calls. This module never changes the bytes that are read or written.

mod calls;
pub mod direct;
pub mod flushers;
pub mod pace;
pub mod pipes;
pub mod priority;
pub mod residency;
pub mod space;
pub mod writer;

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use derive_setters::Setters;
use direct::DirectFile;
use residency::ColdPages;

use crate::{Pace, Progress, open_file};

/// Largest file that is watched. No file of a bank snapshot is larger, and checking the pages of 90
/// GiB takes a second.
const WATCH_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;

/// Page cache policy for reading and writing files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[warn(missing_docs)]
pub enum IoHint {
    /// After reading or writing pages, drops those that were not in the page cache before.
    #[default]
    Gentle,
    /// Leaves the page cache to the kernel.
    None,
}

/// I/O policy that limits the impact on other programs.
#[derive(Clone, Debug, Default, Setters)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct IoPolicy {
    /// Page cache policy for files.
    pub io_hint: IoHint,
    /// Limit on the rate of reading, shared by all readers.
    #[setters(skip)]
    #[doc(hidden)]
    pub pace: Option<Arc<Pace>>,
}

#[warn(missing_docs)]
impl IoPolicy {
    /// Limits reading to this many bytes per second, in total for all clones of this policy.
    #[must_use]
    pub fn rate(self, bytes_per_second: u64) -> Self {
        Self { pace: Some(Arc::new(Pace::new(bytes_per_second))), ..self }
    }

    /// Waits until `bytes` may be read under the rate limit, or the user interrupts.
    pub fn wait(&self, bytes: u64, progress: &dyn Progress) {
        if let Some(pace) = &self.pace {
            pace.wait(bytes, progress);
        }
    }

    #[doc(hidden)]
    pub fn pace<'a, R: Read>(&self, inner: R, progress: &'a dyn Progress) -> PacedReader<'a, R> {
        PacedReader { inner, policy: self.clone(), progress }
    }
}

pub struct PacedReader<'a, R> {
    inner: R,
    policy: IoPolicy,
    progress: &'a dyn Progress,
}

impl<R: Read> Read for PacedReader<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buf)?;
        self.policy.wait(read as u64, self.progress);
        Ok(read)
    }
}

#[warn(missing_docs)]
impl IoHint {
    /// Returns the value of the command-line flag.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gentle => "gentle",
            Self::None => "none",
        }
    }

    fn find_cold(self, file: &File, range: &Range<u64>, file_bytes: u64) -> ColdPages {
        match self {
            Self::Gentle => ColdPages::find(file, range, file_bytes),
            Self::None => ColdPages::default(),
        }
    }

    /// Reads a range of a file of the given length into `buffer`, which the caller should reuse. Any
    /// thread may read any range.
    pub fn read_range<'b>(
        self,
        file: &File,
        range: &Range<u64>,
        file_bytes: u64,
        buffer: &'b mut Vec<u8>,
    ) -> std::io::Result<&'b [u8]> {
        buffer.resize((range.end - range.start) as usize, 0);
        self.open_range(file, range, file_bytes).read_exact_at(buffer, range.start)?;
        Ok(buffer)
    }

    /// Waits until a range of a new file is on disk, and drops its pages. Does nothing with
    /// [`None`](Self::None).
    ///
    /// # Errors
    /// The disk failed to write earlier data.
    pub fn flush_range(self, file: &File, range: &Range<u64>) -> std::io::Result<()> {
        match self {
            Self::Gentle => writer::write_out(file, range),
            Self::None => Ok(()),
        }
    }
}

// Only the crates of the workspace use these functions.
#[doc(hidden)]
impl IoHint {
    /// Asks the kernel to read a range of a file of the given length, which the caller reads by other
    /// means. Dropping the result drops the pages that were not in the page cache before.
    pub fn prefetch_range<'a>(self, file: &'a File, range: &Range<u64>, file_bytes: u64) -> RangeReader<'a> {
        let cold = self.find_cold(file, range, file_bytes);
        cold.prefetch(file);
        RangeReader { file, cold, direct: None }
    }

    /// Prepares to read a range of a file of the given length with [`RangeReader::read_exact_at`]. If hardly
    /// any page of the range is in the page cache, the range is read directly where that is supported.
    pub fn open_range<'a>(self, file: &'a File, range: &Range<u64>, file_bytes: u64) -> RangeReader<'a> {
        let cold = self.find_cold(file, range, file_bytes);
        let direct =
            if cold.covers_nearly_all { DirectFile::open_for_reading(file, range.end - range.start) } else { None };
        if direct.is_none() {
            cold.prefetch(file);
        }
        RangeReader { file, cold, direct }
    }

    /// True if hardly any page of a range is in the page cache, as far as the kernel reports. Always
    /// false with [`None`](Self::None).
    pub fn is_cold(self, file: &File, range: &Range<u64>, file_bytes: u64) -> bool {
        self.find_cold(file, range, file_bytes).covers_nearly_all
    }

    /// Records which pages of files are in the page cache; dropping the result drops all other pages of
    /// the files. Meant for files that are read repeatedly, or by code without this policy. Skips files
    /// that cannot be opened, and files of more than 16 GiB.
    pub fn watch<P: AsRef<Path>>(self, paths: impl IntoIterator<Item = P>) -> PageCacheWatch {
        if self == Self::None {
            return PageCacheWatch::default();
        }
        let find_cold = |path: P| {
            let file = open_file(path.as_ref()).ok()?;
            let length = file.metadata().ok()?.len();
            if length > WATCH_BYTES_MAX {
                return None;
            }
            let cold = ColdPages::find(&file, &(0..length), length);
            Some((file, cold))
        };
        PageCacheWatch(paths.into_iter().filter_map(find_cold).collect())
    }

    /// Watches all files in the subdirectories of a directory, see [`watch`](Self::watch).
    pub fn watch_subdirs(self, dir: PathBuf) -> PageCacheWatch {
        let list = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        self.watch(list(dir).flat_map(list))
    }

    /// Writes the files of a new directory to disk and drops their pages. Ignores errors, because the
    /// code that wrote the files syncs them.
    pub fn write_out_dir(self, dir: &Path) {
        if self == Self::None {
            return;
        }
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if let Ok(file) = open_file(&entry.path())
                && let Ok(metadata) = file.metadata()
            {
                let _ = writer::write_out(&file, &(0..metadata.len()));
            }
        }
    }
}

#[derive(Debug)]
pub struct RangeReader<'a> {
    file: &'a File,
    cold: ColdPages,
    direct: Option<DirectFile>,
}

impl RangeReader<'_> {
    /// Fills `buf` with the bytes at `offset` of the file, which are in the range.
    ///
    /// # Errors
    /// The disk fails, or the file ends before `buf` is full.
    pub fn read_exact_at(&mut self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        if let Some(direct) = &self.direct {
            let is_read = direct.read_exact_at(buf, offset)?;
            if !is_read || !direct.has_bypassed_cache(&(offset..offset + buf.len() as u64)) {
                self.direct = None;
            }
            if is_read {
                return Ok(());
            }
        }
        self.file.read_exact_at(buf, offset)
    }
}

impl Drop for RangeReader<'_> {
    fn drop(&mut self) {
        if self.direct.is_none() {
            self.cold.drop_from(self.file);
        }
    }
}

#[derive(Debug, Default)]
pub struct PageCacheWatch(Vec<(File, ColdPages)>);

impl Drop for PageCacheWatch {
    fn drop(&mut self) {
        self.0.iter().for_each(|(file, cold)| cold.drop_from(file));
    }
}
