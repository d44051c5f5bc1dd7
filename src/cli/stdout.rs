//! Standard output: whether what was written has arrived. Every line is flushed, so that a full disk is an error of the
//! run and not of its end.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use slotpress::machine::InterruptibleWriter;
use slotpress::{Error, Progress, Result};

/// Whether the program was started without a standard output (`>&-`).
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Run by the loader. Before `main`, the standard library opens `/dev/null` in place of a closed standard output, and
/// afterwards everything that is written seems to arrive.
#[cfg(target_os = "linux")]
#[used]
// SAFETY: the section holds pointers to functions without arguments that matter; this one calls nothing but `fcntl`.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = {
    extern "C" fn look() {
        IS_CLOSED.store(rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err(), Relaxed);
    }
    look
};

fn check_open() -> io::Result<()> {
    match IS_CLOSED.load(Relaxed) {
        true => Err(io::Error::from_raw_os_error(rustix::io::Errno::BADF.raw_os_error())),
        false => Ok(()),
    }
}

/// Prints a line.
pub fn print(line: &str) -> io::Result<()> {
    check_open()?;
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

/// The error of standard output.
pub fn error(error: &io::Error) -> Error {
    Error::io("write", Path::new("standard output"), error)
}

/// Standard output for an archive. Writing to it ends when the user asks to stop.
pub fn for_data(progress: &dyn Progress) -> Result<InterruptibleWriter<'_>> {
    check_open().and_then(|()| InterruptibleWriter::new(&io::stdout(), progress)).map_err(|cause| error(&cause))
}
