//! Files with reports. They are replaced as a whole, so that they are complete at any time.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use slotpress_base::{Error, IoContext, Result, ShowPath};

use super::{Section, Subject, csv, html};

/// A format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values.
    Csv,
    /// A page to look at.
    Html,
}

/// A file that is rewritten after each row.
#[derive(Clone, Debug)]
pub struct ExportFile {
    format: Format,
    path: PathBuf,
}

impl ExportFile {
    /// Checks that the file can be written before anything is measured, without touching it. `input` is never
    /// replaced.
    pub fn new(format: Format, path: &Path, input: &Path) -> Result<Self> {
        if path.is_dir() {
            return Err(Error::usage(format!("{} is a directory, not a file to write to", path.shown())));
        }
        if let (Ok(path), Ok(input)) = (path.canonicalize(), input.canonicalize())
            && path == input
        {
            return Err(Error::usage(format!("{} is the input; it is not replaced", path.shown())));
        }
        let export = Self { format, path: path.to_path_buf() };
        if export.is_replaced() {
            export.new_temporary()?;
        }
        Ok(export)
    }

    /// Writes a section in the file's format.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, subject: &Subject, section: &Section) -> Result<()> {
        match self.format {
            Format::Csv => self.write_text(&csv::csv(section.tables())?),
            Format::Html => self.write_text(&html::page(subject, section)),
        }
    }

    /// Replaces what the file holds.
    fn write_text(&self, text: &str) -> Result<()> {
        if !self.is_replaced() {
            return fs::write(&self.path, text).or_path("write", &self.path);
        }
        let mut temporary = self.new_temporary()?;
        temporary.write_all(text.as_bytes()).or_path("write", &self.path)?;
        temporary.persist(&self.path).map_err(|error| Error::io("write", &self.path, &error.error))?;
        Ok(())
    }

    /// Files are replaced whole; a terminal or a pipe can only be written to.
    fn is_replaced(&self) -> bool {
        fs::metadata(&self.path).map_or(true, |metadata| metadata.is_file())
    }

    fn new_temporary(&self) -> Result<tempfile::NamedTempFile> {
        let dir = match self.path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        tempfile::Builder::new()
            .prefix(".slotpress-levels-")
            // As any other new file: what the umask leaves of it.
            .permissions(fs::Permissions::from_mode(0o666))
            .tempfile_in(dir)
            .or_path("write into", dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("levels.csv");
        let export = ExportFile::new(Format::Csv, &path, Path::new("/nowhere")).expect("can be written");
        assert!(!path.exists(), "checking does not touch it");
        for text in ["longer", "short"] {
            export.write_text(text).expect("written");
            assert_eq!(fs::read_to_string(&path).expect("read"), text);
        }
        assert_eq!(fs::read_dir(dir.path()).expect("there").count(), 1, "no temporary file is left");
        assert!(ExportFile::new(Format::Csv, &path, &path).is_err(), "the input is not replaced");
        assert!(ExportFile::new(Format::Csv, dir.path(), &path).is_err(), "a directory");
        assert!(ExportFile::new(Format::Csv, &dir.path().join("no/such"), &path).is_err());
        ExportFile::new(Format::Csv, Path::new("/dev/null"), &path)
            .and_then(|export| export.write_text("text"))
            .expect("written to");
        assert!(!fs::metadata("/dev/null").expect("there").is_file(), "devices are written to, not replaced");
    }
}
