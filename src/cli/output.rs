//! Destination of a new archive: a directory, a store or standard output.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use slotpress::archive::{DirSink, EncodingOptions, NewArchive, Sink, StoreSink, StreamSink};
use slotpress::stores::Store;
use slotpress::{Error, ErrorKind, Progress, Result};
use slotpress_base::{EscapePath, InterruptibleWriter};
use slotpress_read::check_output_dir;

use super::arguments::{IoPolicyArgs, ResourceArgs};
use super::codec::{EncodingArgs, set_workers};
use super::network::ConnectionArgs;
use super::stdout;
use super::ui::Ui;

#[derive(Debug, Args)]
pub struct NewArchiveArgs {
    #[command(flatten)]
    pub encoding: EncodingArgs,
    /// Replace an archive of the same name
    #[arg(long)]
    force: bool,
    /// Leave an existing archive of the same name as it is, unchecked, and end with exit code 0
    #[arg(long, conflicts_with = "force")]
    skip_existing: bool,
    #[command(flatten)]
    pub resources: ResourceArgs,
    #[command(flatten)]
    io_policy: IoPolicyArgs,
}

impl NewArchiveArgs {
    /// Returns options for writing to an output, with as many workers as fit into memory together with
    /// `other_bytes`.
    pub fn options(&self, output: &Output<'_>, other_bytes: u64, ui: &Ui) -> Result<EncodingOptions> {
        let upload_bytes = output.memory_bytes();
        let mut options = self.encoding.options(ui)?;
        options.memory_bytes = self.resources.memory.map(|bytes| bytes.saturating_sub(upload_bytes));
        let other_bytes = other_bytes + upload_bytes;
        let options = set_workers(options, other_bytes, &self.resources.workers, ui)?;
        Ok(options.io_policy(self.io_policy.apply(ui)))
    }

    /// Makes an archive. Returns `None` if one of the same name exists and is left as it is.
    pub fn write<R>(
        &self,
        output: &mut Output<'_>,
        ui: &Ui,
        make: impl FnOnce(&mut dyn Sink) -> Result<R>,
    ) -> Result<Option<R>> {
        let mut sink = output.sink(self.force)?;
        let error = match make(&mut *sink) {
            Ok(report) => return Ok(Some(report)),
            // An interrupted run may fail with a broken pipe: report the interruption instead.
            Err(error) if error.kind() == ErrorKind::Failed => ui.check().err().unwrap_or(error),
            Err(error) => error,
        };
        if !self.skip_existing {
            return Err(error);
        }
        skip_existing(error, ui).map(|()| None)
    }
}

/// Returns the path of a new archive, or its name if it was not written into a directory.
pub fn path_or_name(archive: &NewArchive) -> PathBuf {
    archive.path.clone().unwrap_or_else(|| PathBuf::from(archive.name.to_string()))
}

/// Prints a notice instead of the error that an output already exists. Returns every other error.
pub fn skip_existing(error: Error, ui: &Ui) -> Result<()> {
    let Some(path) = error.existing_path() else { return Err(error) };
    let skipped = json!({ "path": path.to_string_lossy(), "reason": "already exists" });
    let row = "skipped: {reason}, and was neither read nor changed";
    ui.print_report("skipped", &path.escaped(), &skipped, &[row]);
    Ok(())
}

pub enum Output<'a> {
    Dir(PathBuf),
    Store(Store),
    Stdout(InterruptibleWriter<'a>),
    /// Discards the output of a dry run.
    Discard(io::Sink),
}

impl<'a> Output<'a> {
    /// Checks a directory, prepares a store without sending a request, or reserves standard output (`-`). An
    /// upload may use at most half of `memory_bytes`.
    pub fn open(output: &Path, memory_bytes: Option<u64>, args: &ConnectionArgs, ui: &'a Ui) -> Result<Self> {
        if stdout::reserve_for_data(output, ui)? {
            return Ok(Self::Stdout(stdout::open_data(ui)?));
        }
        if let Some(store) = super::stores::open_store(output, memory_bytes, args)? {
            return Ok(Self::Store(store));
        }
        check_output_dir(output)?;
        Ok(Self::Dir(output.to_path_buf()))
    }

    fn memory_bytes(&self) -> u64 {
        match self {
            Self::Store(store) => store.options().memory_bytes,
            _ => 0,
        }
    }

    fn sink(&mut self, replace: bool) -> Result<Box<dyn Sink + '_>> {
        Ok(match self {
            Self::Dir(dir) => Box::new(DirSink::open(dir)?.replace(replace)),
            Self::Store(store) => Box::new(StoreSink::new(store).replace(replace)),
            Self::Stdout(stdout) => Box::new(StreamSink::new(stdout, "standard output")),
            Self::Discard(sink) => Box::new(StreamSink::new(sink, "the output of a dry run")),
        })
    }
}
