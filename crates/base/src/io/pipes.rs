//! Pipes, terminals and sockets: reading and writing them waits for the process at the other end. A system call that
//! waits does not notice that the user asks to stop; these look now and then.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};

use crate::Progress;

/// How long a wait may keep an interrupt waiting, in nanoseconds.
const POLL_NANOSECONDS: i64 = 100_000_000;

/// What can be written without waiting once a pipe takes anything at all (`PIPE_BUF` in `pipe(7)`).
const PIPE_WRITE_BYTES: usize = 4096;

/// What a wait that the user ends returns. Not `Interrupted`, after which everybody tries again.
fn interrupted() -> io::Error {
    io::Error::other("interrupted")
}

/// Waits until something can be read, or written; an error when the user asks to stop.
fn wait(fd: BorrowedFd<'_>, flags: PollFlags, progress: &dyn Progress) -> io::Result<()> {
    loop {
        if progress.is_interrupted() {
            return Err(interrupted());
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: POLL_NANOSECONDS };
        match poll(&mut [PollFd::new(&fd, flags)], Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            // The end and errors are told by reading or writing.
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads a pipe or a terminal, and gives up when the user asks to stop.
pub struct Interruptible<'a, R> {
    input: R,
    progress: &'a dyn Progress,
}

impl<'a, R: Read + AsFd> Interruptible<'a, R> {
    /// Reads `input`, which must not be buffered, looking at `progress` while there is nothing to read.
    pub fn new(input: R, progress: &'a dyn Progress) -> Self {
        Self { input, progress }
    }
}

impl<R: Read + AsFd> Read for Interruptible<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        wait(self.input.as_fd(), PollFlags::IN, self.progress)?;
        self.input.read(to)
    }
}

/// Writes to a file, a pipe or a terminal, and gives up when the user asks to stop.
pub struct InterruptibleWriter<'a> {
    output: File,
    way: Way,
    progress: &'a dyn Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// An ordinary file or a device: no other process is waited for.
    Plain,
    /// A write takes what there is room for.
    NonBlocking,
    /// A write waits until everything is taken: a piece at a time that is surely taken at once.
    Pieces,
}

impl<'a> InterruptibleWriter<'a> {
    /// Writes to a duplicate of `output`.
    pub fn new(output: &impl AsFd, progress: &'a dyn Progress) -> io::Result<Self> {
        let output = File::from(output.as_fd().try_clone_to_owned()?);
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&output)?.st_mode);
        Ok(match kind {
            FileType::RegularFile | FileType::BlockDevice => Self { output, way: Way::Plain, progress },
            // Opened anew, a pipe can be told not to wait without telling those that it is shared with.
            FileType::Fifo => {
                let path = format!("/proc/self/fd/{}", output.as_raw_fd());
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                match rustix::fs::open(path, flags, Mode::empty()) {
                    Ok(output) => Self { output: output.into(), way: Way::NonBlocking, progress },
                    Err(_) => Self { output, way: Way::Pieces, progress },
                }
            }
            _ => Self { output, way: Way::Pieces, progress },
        })
    }
}

impl Write for InterruptibleWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.way == Way::Plain {
            return self.output.write(bytes);
        }
        loop {
            wait(self.output.as_fd(), PollFlags::OUT, self.progress)?;
            let piece = match self.way {
                Way::Pieces => &bytes[..bytes.len().min(PIPE_WRITE_BYTES)],
                _ => bytes,
            };
            match self.output.write(piece) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::{Duration, Instant};

    use super::*;

    #[derive(Default)]
    struct Stop(AtomicBool);

    impl Progress for Stop {
        fn is_interrupted(&self) -> bool {
            self.0.load(Relaxed)
        }
    }

    /// A full pipe without a reader: the writer is stopped all the same.
    #[test]
    fn a_full_pipe_is_interrupted() {
        for is_piecewise in [false, true] {
            let (_read_end, write_end) = std::io::pipe().expect("a pipe");
            let stop = Stop::default();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(100));
                    stop.0.store(true, Relaxed);
                });
                let start = Instant::now();
                let mut writer = InterruptibleWriter::new(&write_end, &stop).expect("a writer");
                assert_eq!(writer.way, Way::NonBlocking);
                if is_piecewise {
                    let output = File::from(write_end.as_fd().try_clone_to_owned().expect("a duplicate"));
                    writer = InterruptibleWriter { output, way: Way::Pieces, progress: &stop };
                }
                let error = writer.write_all(&[0; 1 << 20]).expect_err("interrupted");
                assert_eq!(error.to_string(), "interrupted");
                assert!(start.elapsed() < Duration::from_secs(2));
            });
        }
    }

    /// Everything arrives, whatever the pipe holds at a time.
    #[test]
    fn all_bytes_arrive() {
        let (mut read_end, write_end) = std::io::pipe().expect("a pipe");
        let content: Vec<u8> = (0..1_000_003u32).map(|at| (at % 251) as u8).collect();
        let stop = Stop::default();
        std::thread::scope(|scope| {
            let (content, stop) = (&content, &stop);
            scope.spawn(move || {
                let mut writer = InterruptibleWriter::new(&write_end, stop).expect("a writer");
                writer.write_all(content).expect("written");
            });
            let mut found = Vec::new();
            read_end.read_to_end(&mut found).expect("read");
            assert!(found == *content);
        });
    }
}
