//! A temporary file for data that does not fit in memory. The file has no name, so it vanishes with the
//! process. It is created at the first use, after the free space has been checked.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use slotpress_base::{Error, EscapePath, IoContext, Result, Space, SpaceWatch, hint, quantity};

#[derive(Debug)]
pub struct Spill {
    dir: PathBuf,
    pub(super) space_bytes: u64,
    file: Mutex<Option<Arc<File>>>,
    bytes: AtomicU64,
    purpose: &'static str,
    /// Watches the free space, if the length of the file is not known in advance.
    watch: Option<SpaceWatch>,
}

impl Spill {
    /// Prepares a file in `dir`, where `space_bytes` must be free when the file is created.
    pub fn new(dir: &Path, space_bytes: u64) -> Self {
        Self {
            dir: dir.to_path_buf(),
            space_bytes,
            file: Mutex::default(),
            bytes: AtomicU64::new(0),
            purpose: "finding superseded records",
            watch: None,
        }
    }

    /// Prepares a file in `dir` whose free space is checked while it grows.
    pub fn with_unknown_size(dir: &Path, purpose: &'static str) -> Self {
        Self { purpose, watch: Some(SpaceWatch::default()), ..Self::new(dir, 0) }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub fn write(&self, block: &[u8]) -> Result<u64> {
        let file = self.file()?;
        if let Some(watch) = &self.watch {
            let watched = watch.check_before_writing(block.len() as u64, &*file, &self.dir);
            watched.map_err(|error| error.with_hint(hint::MORE_MEMORY))?;
        }
        let offset = self.bytes.fetch_add(block.len() as u64, Relaxed);
        file.write_all_at(block, offset).map_err(|error| self.io_error("write", &error))?;
        Ok(offset)
    }

    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.file()?.read_exact_at(buf, offset).map_err(|error| self.io_error("read", &error))
    }

    fn file(&self) -> Result<Arc<File>> {
        let mut file = self.file.lock();
        if let Some(file) = &*file {
            return Ok(file.clone());
        }
        self.check_space()?;
        let created =
            tempfile::tempfile_in(&self.dir).map_err(|error| self.io_error("create a temporary file in", &error))?;
        Ok(file.insert(Arc::new(created)).clone())
    }

    /// Checks that the directory has enough free space and is not in memory, where spilling would
    /// free nothing.
    pub(super) fn check_space(&self) -> Result<()> {
        if is_in_memory(&self.dir)? {
            let needed = quantity::bytes(self.space_bytes);
            let dir = self.dir.escaped();
            let estimate = if self.watch.is_none() { format!("about {needed}, ") } else { String::new() };
            let purpose = self.purpose;
            let message = format!("{purpose} takes {estimate}more than the memory limit, and {dir} is in memory too");
            return Err(Error::failed(message).with_hint(hint::SPILL_TO_DISK));
        }
        Space::new(&self.dir, self.space_bytes)?.check().map_err(|error| error.with_hint(hint::MORE_MEMORY))
    }

    fn io_error(&self, action: &str, error: &io::Error) -> Error {
        Error::io(action, &self.dir, error).with_hint(hint::MORE_MEMORY)
    }
}

/// Chooses a directory for spilling: the first of the output directory, the system's directory for temporary
/// files, and `/var/tmp` that is on a disk. If none is on a disk, returns the first, which the error of
/// spilling then names.
pub fn choose_spill_dir(output_dir: Option<&Path>) -> PathBuf {
    let others = [std::env::temp_dir(), PathBuf::from("/var/tmp")];
    let mut dirs: Vec<PathBuf> = output_dir.map(Path::to_path_buf).into_iter().chain(others).collect();
    let on_disk = dirs.iter().position(|dir| dir.is_dir() && is_in_memory(dir).is_ok_and(|is_in_memory| !is_in_memory));
    dirs.swap_remove(on_disk.unwrap_or(0))
}

fn is_in_memory(dir: &Path) -> Result<bool> {
    /// `TMPFS_MAGIC` and `RAMFS_MAGIC` of `statfs(2)`.
    const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
    let stat = rustix::fs::statfs(dir).or_path("read the file system of", dir)?;
    Ok(IN_MEMORY.contains(&(stat.f_type as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_checked_before_anything_is_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let spill = Spill::new(dir.path(), u64::MAX);
        let error = spill.write(b"something").expect_err("no disk has that much space");
        assert!(error.to_string().contains("not enough space"), "{error}");
        assert_eq!(spill.bytes(), 0);
    }

    #[test]
    fn nothing_is_spilled_into_memory() {
        let memory = Path::new("/dev/shm");
        if !is_in_memory(memory).unwrap_or(false) {
            return; // No such file system here.
        }
        for spill in [Spill::new(memory, 0), Spill::with_unknown_size(memory, "a test")] {
            let error = spill.write(b"something").expect_err("refused");
            assert!(error.to_string().contains("/dev/shm is in memory too"), "{error}");
            assert_eq!(error.hint(), Some(hint::SPILL_TO_DISK));
        }
        let on_disk = |dir: &Path| !is_in_memory(dir).expect("known");
        let chosen = choose_spill_dir(Some(memory));
        assert!(on_disk(&chosen) || !on_disk(Path::new("/var/tmp")), "{}", chosen.escaped());
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(!on_disk(here) || choose_spill_dir(Some(here)) == here);
    }

    #[test]
    fn blocks_are_read_back_and_no_file_remains() {
        let dir = tempfile::tempdir().expect("a directory");
        let spill = Spill::new(dir.path(), 0);
        let offsets = [b"one", b"two"].map(|block| spill.write(block).expect("written"));
        for (offset, block) in offsets.into_iter().zip([b"one", b"two"]) {
            let mut buf = [0; 3];
            spill.read(offset, &mut buf).expect("read");
            assert_eq!(&buf, block);
        }
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0);
    }
}
