//! Reads and writes pipes, terminals and sockets until the user interrupts. A system call that waits
//! for the process at the other end does not notice the interrupt, so these readers and writers check
//! for it regularly.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};

use crate::Progress;

/// Longest time until an interrupt is noticed, in nanoseconds.
const POLL_NANOSECONDS: i64 = 100_000_000;

/// Bytes that can be written without blocking once a pipe accepts any (`PIPE_BUF` in `pipe(7)`).
const PIPE_WRITE_BYTES: usize = 4096;

/// Waits until `fd` is readable or writable, or fails if the user interrupts.
fn wait_until_ready(fd: &impl AsFd, flags: PollFlags, progress: &dyn Progress) -> io::Result<()> {
    loop {
        if progress.is_interrupted() {
            // Not of the kind `Interrupted`, because callers would call again.
            return Err(io::Error::other("interrupted"));
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: POLL_NANOSECONDS };
        match poll(&mut [PollFd::new(fd, flags)], Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            // Reading or writing will report the end and errors.
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

pub struct InterruptibleReader<'a, R> {
    input: R,
    progress: &'a dyn Progress,
}

impl<'a, R: Read + AsFd> InterruptibleReader<'a, R> {
    /// Reads `input`, which must not be buffered, and checks `progress` while it waits.
    pub fn new(input: R, progress: &'a dyn Progress) -> Self {
        Self { input, progress }
    }
}

impl<R: Read + AsFd> Read for InterruptibleReader<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        wait_until_ready(&self.input, PollFlags::IN, self.progress)?;
        self.input.read(buf)
    }
}

/// Writes to a file, pipe or terminal until the user interrupts.
#[warn(missing_docs)]
pub struct InterruptibleWriter<'a> {
    output: File,
    /// Limit on the bytes of one write, so that it does not wait for another process; `None` for a
    /// regular file or a block device, where a write never does.
    write_bytes_max: Option<usize>,
    progress: &'a dyn Progress,
}

#[warn(missing_docs)]
impl<'a> InterruptibleWriter<'a> {
    /// Writes to a duplicate of `output`.
    ///
    /// # Errors
    /// The descriptor cannot be duplicated.
    pub fn new(output: &impl AsFd, progress: &'a dyn Progress) -> io::Result<Self> {
        let mut output = File::from(output.as_fd().try_clone_to_owned()?);
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&output)?.st_mode);
        let is_disk = matches!(kind, FileType::RegularFile | FileType::BlockDevice);
        let mut write_bytes_max = if is_disk { None } else { Some(PIPE_WRITE_BYTES) };
        // Opening the pipe again makes it non-blocking only for this process, not for others that
        // share the descriptor. A write then accepts as many bytes as fit.
        if kind == FileType::Fifo {
            let path = format!("/proc/self/fd/{}", output.as_raw_fd());
            let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            if let Ok(opened) = rustix::fs::open(path, flags, Mode::empty()) {
                output = opened.into();
                write_bytes_max = Some(usize::MAX);
            }
        }
        Ok(Self { output, write_bytes_max, progress })
    }
}

impl Write for InterruptibleWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(write_bytes_max) = self.write_bytes_max else { return self.output.write(bytes) };
        let bytes = &bytes[..bytes.len().min(write_bytes_max)];
        loop {
            wait_until_ready(&self.output, PollFlags::OUT, self.progress)?;
            match self.output.write(bytes) {
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
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::{CancelToken, NoProgress};

    /// A full pipe without a reader does not delay an interrupt.
    #[test]
    fn a_full_pipe_is_interrupted() {
        for is_blocking in [false, true] {
            let (read_end, write_end) = std::io::pipe().expect("a pipe");
            let stop = CancelToken::default();
            let (ended_tx, ended_rx) = mpsc::channel();
            std::thread::scope(|scope| {
                let stop = &stop;
                let write_end = &write_end;
                scope.spawn(move || {
                    let mut writer = InterruptibleWriter::new(write_end, stop).expect("a writer");
                    assert_eq!(writer.write_bytes_max, Some(usize::MAX), "not blocking");
                    if is_blocking {
                        let output = File::from(write_end.as_fd().try_clone_to_owned().expect("a duplicate"));
                        writer =
                            InterruptibleWriter { output, write_bytes_max: Some(PIPE_WRITE_BYTES), progress: stop };
                    }
                    ended_tx
                        .send(writer.write_all(&[0; 1 << 20]).map_err(|error| error.to_string()))
                        .expect("received");
                });
                let is_full = || {
                    let mut polled = [PollFd::new(write_end, PollFlags::OUT)];
                    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("polled") == 0
                };
                while !is_full() {
                    std::thread::yield_now();
                }
                stop.cancel();
                let result = ended_rx.recv_timeout(Duration::from_secs(60));
                // Ends a writer that still waits.
                drop(read_end);
                assert_eq!(result, Ok(Err("interrupted".to_string())), "blocking: {is_blocking}");
            });
        }
    }

    #[test]
    fn all_bytes_arrive() {
        let (mut read_end, write_end) = std::io::pipe().expect("a pipe");
        let content: Vec<u8> = (0..1_000_003u32).map(|at| (at % 251) as u8).collect();
        std::thread::scope(|scope| {
            let content = &content;
            scope.spawn(move || {
                let mut writer = InterruptibleWriter::new(&write_end, &NoProgress).expect("a writer");
                writer.write_all(content).expect("written");
            });
            let mut received = Vec::new();
            read_end.read_to_end(&mut received).expect("read");
            assert!(received == *content);
        });
    }
}
