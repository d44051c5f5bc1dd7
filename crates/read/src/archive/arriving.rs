//! Source of an archive that is still arriving (on standard input). Its bytes are appended to a file, and
//! readers wait for bytes that have not arrived.
//!
//! The length is unknown until a reader has reached the end, even if all bytes have arrived, because readers
//! must not behave differently if the sender is fast.
//!
//! Readers read from the file, so a slow reader does not delay others, and any part can be read again.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use parking_lot::{Condvar, Mutex};
use slotpress_base::{
    Error, InterruptibleReader, IoContext, Progress, Result, Until, catch_panic, panic_point, prefix_mut,
    saturating_add_to, split_at_most, to_usize,
};

use super::source::{SOURCE_PIECE_BYTES, Source};

#[derive(Debug)]
pub struct ArrivingSource {
    path: PathBuf,
    file: File,
    arrived: Mutex<ArrivedBytes>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ArrivedBytes {
    bytes: u64,
    is_complete: bool,
    /// True once a reader has asked for bytes beyond the end of the input.
    is_end_seen: bool,
    error: Option<Error>,
    is_stopped: bool,
}

impl ArrivingSource {
    /// Creates a source that has no bytes yet. `file` must be readable and writable. Errors name `path`.
    pub fn new(file: File, path: PathBuf) -> Self {
        Self { path, file, arrived: Mutex::default(), changed: Condvar::new() }
    }

    /// Appends `input` to the file until the input ends, the run is interrupted, or [`stop`](Self::stop) is
    /// called. If this fails, readers receive the error too.
    pub fn receive(&self, input: &mut (impl Read + AsFd), progress: &dyn Progress) -> Result<()> {
        // Readers wait for the end, so they must also learn of a panic.
        let result = catch_panic(|| self.append(input, progress));
        let mut arrived = self.arrived.lock();
        match &result {
            Ok(()) => arrived.is_complete = true,
            Err(error) => arrived.error = Some(error.clone()),
        }
        self.changed.notify_all();
        result
    }

    fn append(&self, input: &mut (impl Read + AsFd), progress: &dyn Progress) -> Result<()> {
        let stop = Until(|| progress.is_interrupted() || self.arrived.lock().is_stopped);
        let mut input = InterruptibleReader::new(input, &stop);
        let mut piece = vec![0; SOURCE_PIECE_BYTES];
        let mut bytes = 0;
        while !self.arrived.lock().is_stopped {
            panic_point("standard input");
            let read = match input.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) if self.arrived.lock().is_stopped => return Ok(()),
                Err(error) => {
                    progress.check()?;
                    return Err(Error::io("read", &self.path, &error));
                }
            };
            self.file.write_all_at(split_at_most(&piece, read).0, bytes).or_path("write", &self.path)?;
            saturating_add_to(&mut bytes, read as u64);
            self.arrived.lock().bytes = bytes;
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Tells [`receive`](Self::receive) that no reader needs more bytes.
    pub fn stop(&self) {
        self.arrived.lock().is_stopped = true;
    }
}

impl Source for ArrivingSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn length_bytes(&self) -> Option<u64> {
        let arrived = self.arrived.lock();
        arrived.is_end_seen.then_some(arrived.bytes)
    }

    fn read_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        let mut arrived = self.arrived.lock();
        loop {
            let available = arrived.bytes.saturating_sub(offset_bytes);
            if available > 0 {
                drop(arrived);
                return self.file.read_at(prefix_mut(buf, to_usize(available)), offset_bytes);
            }
            if let Some(error) = &arrived.error {
                return Err(io::Error::other(error.to_string()));
            }
            if buf.is_empty() {
                return Ok(0);
            }
            if arrived.is_complete {
                arrived.is_end_seen = true;
                return Ok(0);
            }
            self.changed.wait(&mut arrived);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use slotpress_base::{ErrorKind, NoProgress};

    use super::*;
    use crate::archive::source::SourceStream;

    fn empty_source() -> ArrivingSource {
        ArrivingSource::new(tempfile::tempfile().expect("a file"), PathBuf::from("standard input"))
    }

    /// Bytes from a pipe can be read at any offset, and more than once. The length is known at the end.
    #[test]
    fn readers_wait_for_bytes_from_a_pipe() {
        let content: Vec<u8> = (0..3_000_000u32).map(|number| (number % 251) as u8).collect();
        let (mut read_end, mut write_end) = std::io::pipe().expect("a pipe");
        let arriving = empty_source();
        std::thread::scope(|scope| {
            scope.spawn(|| arriving.receive(&mut read_end, &NoProgress).expect("received"));
            let content = &content;
            scope.spawn(move || content.chunks(70_000).for_each(|part| write_end.write_all(part).expect("written")));
            let mut middle = vec![0; 1_000_000];
            arriving.read_exact_at(&mut middle, 1_500_000).expect("waited for");
            assert_eq!(arriving.length_bytes(), None, "before a reader reaches the end");
            assert!(middle == content[1_500_000..2_500_000]);
            let mut whole = Vec::new();
            SourceStream::new(&arriving).read_to_end(&mut whole).expect("read");
            assert!(whole == *content);
            assert_eq!(arriving.length_bytes(), Some(content.len() as u64));
        });
    }

    #[test]
    fn an_idle_pipe_is_interrupted() {
        struct Interrupted;
        impl Progress for Interrupted {
            fn is_interrupted(&self) -> bool {
                true
            }
        }
        let (mut read_end, _write_end) = std::io::pipe().expect("a pipe");
        let arriving = empty_source();
        let error = arriving.receive(&mut read_end, &Interrupted).expect_err("interrupted");
        assert_eq!(error.kind(), ErrorKind::Interrupted);
        assert!(arriving.read_at(&mut [0], 0).is_err());
    }
}
