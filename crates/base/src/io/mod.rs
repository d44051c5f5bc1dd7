//! Good io_policy on a machine that runs something more important: a validator's pages stay in the page cache, its disk is
//! not flooded, its processors are left alone.
//!
//! [`IoPolicy`] is what the features take. How pages are judged is in [`residency`], how fast may be read in [`pace`],
//! both without a system call in their rules; the system calls are in `calls`. Nothing here changes a byte of any result.

mod calls;
pub mod pace;
pub mod pipes;
pub mod priority;
pub mod reader;
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
use residency::Cold;

use crate::{Pace, Progress};

/// How files are read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoHint {
    /// Pages that were not in the page cache before are dropped behind the reader and the writer.
    #[default]
    Gentle,
    /// As any program does.
    None,
}

/// Whether the kernel tells with one call how much of a file is in the page cache (`cachestat`, Linux 6.5).
pub fn has_cachestat(file: &File) -> bool {
    calls::cached_pages(file, &(0..1)).is_some()
}

/// How to read and write beside other programs.
#[derive(Clone, Debug, Default, Setters)]
#[non_exhaustive]
pub struct IoPolicy {
    /// How files are read and written.
    pub io_hint: IoHint,
    /// How fast at most; shared by everything that reads.
    #[setters(into)]
    pub pace: Option<Arc<Pace>>,
}

impl IoPolicy {
    /// Waits until `bytes` may be read. Returns early when the user asked to stop.
    pub fn wait(&self, bytes: u64, progress: &dyn Progress) {
        if let Some(pace) = &self.pace {
            pace.wait(bytes, progress);
        }
    }

    /// Reads from `inner` no faster than allowed.
    #[doc(hidden)]
    pub fn paced<'a, R: Read>(&self, inner: R, progress: &'a dyn Progress) -> PacedReader<'a, R> {
        PacedReader { inner, pace: self.pace.clone(), progress }
    }
}

/// A reader that waits its turn.
pub struct PacedReader<'a, R> {
    inner: R,
    pace: Option<Arc<Pace>>,
    progress: &'a dyn Progress,
}

impl<R: Read> Read for PacedReader<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(to)?;
        if let Some(pace) = &self.pace {
            pace.wait(read as u64, self.progress);
        }
        Ok(read)
    }
}

impl IoHint {
    /// As the flag has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gentle => "gentle",
            Self::None => "none",
        }
    }

    /// Gets ready to read a range of a file of the given length. When the result is dropped, the pages that were not in
    /// the page cache before are dropped too.
    #[doc(hidden)]
    pub fn read_behind<'a>(self, file: &'a File, range: &Range<u64>, file_bytes: u64) -> ReadBehind<'a> {
        let mut cold = Cold::default();
        if self != Self::None {
            cold = Cold::look(file, range, file_bytes);
            cold.prefetch(file);
        }
        ReadBehind { file, cold }
    }

    /// Reads a range of a file of the given length through `buffer`, which is best used again; on any thread, in any order.
    pub fn read_range<'b>(
        self,
        file: &File,
        range: &Range<u64>,
        file_bytes: u64,
        buffer: &'b mut Vec<u8>,
    ) -> std::io::Result<&'b [u8]> {
        let _behind = self.read_behind(file, range, file_bytes);
        buffer.resize((range.end - range.start) as usize, 0);
        file.read_exact_at(buffer, range.start)?;
        Ok(buffer)
    }

    /// A range of a new file was written, and all before it: unless told otherwise, waits until it is on disk, and drops
    /// its pages.
    ///
    /// # Errors
    /// The disk could not write what was written before.
    pub fn write_behind(self, file: &File, range: &Range<u64>) -> std::io::Result<()> {
        if self == Self::None { Ok(()) } else { writer::write_out(file, range) }
    }

    /// Notes what of some files is in the page cache. When the result is dropped, so are the pages that came since: for
    /// files that are read more than once, or by those who know nothing of io_policy. Files that are missing are left out.
    #[doc(hidden)]
    pub fn watch<P: AsRef<Path>>(self, paths: impl IntoIterator<Item = P>) -> Watch {
        let look = |path: P| {
            // A pipe would block in open until another process writes to it.
            std::fs::metadata(&path).ok().filter(|metadata| metadata.is_file())?;
            let file = File::open(path).ok()?;
            let length = file.metadata().ok().filter(|metadata| metadata.is_file())?.len();
            let cold = Cold::look(&file, &(0..length), length);
            Some((file, cold))
        };
        Watch(if self == Self::None { Vec::new() } else { paths.into_iter().filter_map(look).collect() })
    }

    /// Watches the files in the directories inside a directory.
    #[doc(hidden)]
    pub fn watch_dirs(self, dir: PathBuf) -> Watch {
        let inside = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        if self == Self::None { Watch::default() } else { self.watch(inside(dir).flat_map(inside)) }
    }

    /// Writes the files of a new directory to disk, and drops their pages. Best effort: the code that made them syncs them.
    #[doc(hidden)]
    pub fn write_out_dir(self, dir: &Path) {
        let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
        if self != Self::None {
            files.for_each(|entry| write_out_file(&entry.path()));
        }
    }
}

fn write_out_file(path: &PathBuf) {
    if let Ok(file) = File::open(path)
        && let Ok(metadata) = file.metadata()
        && metadata.is_file()
    {
        let _ = writer::write_out(&file, &(0..metadata.len()));
    }
}

/// See [`IoHint::read_behind`].
#[derive(Debug)]
pub struct ReadBehind<'a> {
    file: &'a File,
    cold: Cold,
}

impl Drop for ReadBehind<'_> {
    fn drop(&mut self) {
        self.cold.drop_from(self.file);
    }
}

/// See [`IoHint::watch`].
#[derive(Debug, Default)]
pub struct Watch(Vec<(File, Cold)>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.iter().for_each(|(file, cold)| cold.drop_from(file));
    }
}
