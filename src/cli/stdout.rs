//! Standard output. Every line is flushed, so a full disk is reported at once, and not ignored at the end.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use slotpress::{Error, Progress, Result};
use slotpress_base::InterruptibleWriter;

use super::ui::Ui;

/// True if the program was started with standard output closed (`>&-`).
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// The loader calls this function before the standard library starts. The library opens `/dev/null` in place of
/// a closed standard output, so writing would seem to succeed.
#[cfg(target_os = "linux")]
#[used]
// SAFETY: the loader calls every pointer in this section; the function uses none of the arguments
// passed, and calls only `fcntl`.
#[unsafe(link_section = ".init_array")]
static RECORD_IF_CLOSED: extern "C" fn() = {
    extern "C" fn record_if_closed() {
        IS_CLOSED.store(rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err(), Relaxed);
    }
    record_if_closed
};

fn check_open() -> io::Result<()> {
    if IS_CLOSED.load(Relaxed) {
        Err(io::Error::from_raw_os_error(rustix::io::Errno::BADF.raw_os_error()))
    } else {
        Ok(())
    }
}

/// Prints and flushes a line; fails if standard output is closed or full.
pub fn print(line: &str) -> io::Result<()> {
    check_open()?;
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

pub fn write_error(error: &io::Error) -> Error {
    Error::io("write", Path::new("standard output"), error)
}

/// Standard output for rows, which a reader may close when it has read enough of them.
#[cfg(feature = "export")]
pub struct RowOutput<'a> {
    writer: InterruptibleWriter<'a>,
    pub is_closed: bool,
}

#[cfg(feature = "export")]
pub fn open_rows(progress: &dyn Progress) -> Result<RowOutput<'_>> {
    Ok(RowOutput { writer: open_data(progress)?, is_closed: false })
}

#[cfg(feature = "export")]
impl Write for RowOutput<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.writer.write(bytes);
        self.is_closed |= written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Opens standard output for data. Writing ends with an error when the user interrupts the run.
pub fn open_data(progress: &dyn Progress) -> Result<InterruptibleWriter<'_>> {
    check_open().and_then(|()| InterruptibleWriter::new(&io::stdout(), progress)).map_err(|cause| write_error(&cause))
}

/// Reserves standard output for data if the output is `-`: everything else is then printed to stderr.
/// Returns true if the output is `-`. Fails if standard output is a terminal.
pub fn reserve_for_data(output: &Path, ui: &Ui) -> Result<bool> {
    if output.as_os_str() != "-" {
        return Ok(false);
    }
    if io::stdout().is_terminal() {
        return Err(Error::usage("cannot write data to a terminal").with_hint("redirect it to a program or a file"));
    }
    ui.keep_stdout_for_data();
    Ok(true)
}
