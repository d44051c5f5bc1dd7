//! The files that every command of `levels` can write.

use std::path::{Path, PathBuf};

use clap::Args;
use slotpress::Result;
use slotpress::levels::report::file::{ExportFile, Format};
use slotpress::levels::report::{Section, Subject};

/// Files in formats that every command has.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Also write the rows as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also write a page with tables and charts, in one file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Files that can be written to.
#[derive(Debug)]
pub struct Exports(Vec<ExportFile>);

impl ExportArgs {
    /// The files. Refuses what cannot be written to, before anything is measured.
    pub fn files(&self, input: &Path) -> Result<Exports> {
        let Self { csv, html } = self;
        let paths = [(Format::Csv, csv), (Format::Html, html)];
        let files = paths.into_iter().filter_map(|(format, path)| Some((format, path.as_ref()?)));
        files.map(|(format, path)| ExportFile::new(format, path, input)).collect::<Result<_>>().map(Exports)
    }
}

impl Exports {
    /// Whether none was asked for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes all files.
    pub fn write(&self, subject: &Subject, section: &Section) -> Result<()> {
        self.0.iter().try_for_each(|file| file.write(subject, section))
    }
}
