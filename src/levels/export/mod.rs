//! Rows in the formats that people and programs read: one file per format, all pure. Files are replaced whole after
//! each row, so that they are complete at any time.

pub mod chart;
pub mod csv;
pub mod json;
pub mod markdown;
pub mod page;
pub mod svg;
pub mod table;
pub mod warnings;
pub mod zstd_style;

use {
    crate::{
        error::{Error, IoContext, Result},
        levels::LevelRow,
    },
    std::{
        fs,
        io::Write,
        os::unix::fs::PermissionsExt,
        path::{Path, PathBuf},
    },
};

/// What was measured, for headings.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// The input's file name.
    pub name: String,
    /// What it is: `ledger`, `archive`, …
    pub kind: &'static str,
    /// Bytes of the whole input.
    pub total_bytes: u64,
    /// Bytes that were measured.
    pub measured_bytes: u64,
    /// Bytes in a frame, at most; 0 where frames of several sizes are measured.
    pub frame_size_bytes: u64,
    /// Workers.
    pub threads: usize,
    /// Whether whole archives were made and restored on disk.
    pub is_end_to_end: bool,
    /// Where the numbers come from, for who gets the page without them: what, and its value.
    pub provenance: Vec<(&'static str, String)>,
}

impl Subject {
    /// In a few words, for a line of at most 80 characters where the name is short.
    pub fn describe(&self) -> String {
        let Self { kind, total_bytes, measured_bytes, frame_size_bytes, threads, .. } = self;
        let amount = match measured_bytes == total_bytes {
            true => show_bytes(*total_bytes),
            false => format!("sample of {} from {}", show_bytes(*measured_bytes), show_bytes(*total_bytes)),
        };
        let plural = if *threads == 1 { "" } else { "s" };
        let place = if self.is_end_to_end { "on disk" } else { "in memory" };
        let frames = match frame_size_bytes {
            0 => String::new(),
            bytes => format!(", frames of {}", show_bytes(*bytes)),
        };
        format!("{kind}, {amount}{frames}, {threads} worker{plural}, {place}")
    }
}

/// A format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values.
    Csv,
    /// A Markdown table.
    Markdown,
    /// A picture of size against time.
    Svg,
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
            return Err(Error::usage(format!("{} is a directory, not a file to write to", path.display())));
        }
        if let (Ok(path), Ok(input)) = (path.canonicalize(), input.canonicalize())
            && path == input
        {
            return Err(Error::usage(format!("{} is the input; it is not replaced", path.display())));
        }
        let export = Self { format, path: path.to_path_buf() };
        if export.is_replaced() {
            export.new_temporary()?;
        }
        Ok(export)
    }

    /// Writes what is known so far.
    pub fn write(&self, subject: &Subject, rows: &[LevelRow]) -> Result<()> {
        let text = match self.format {
            Format::Csv => csv::csv(rows),
            Format::Markdown => markdown::markdown(subject, rows),
            Format::Svg => svg::svg(subject, rows),
            Format::Html => page::Page::of_levels(subject, rows).html(),
        };
        self.write_text(&text)
    }

    /// The format that was asked for.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Replaces what the file holds.
    pub fn write_text(&self, text: &str) -> Result<()> {
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

/// `86.4 GiB`, `987 MiB`, `12 B`: at most 8 characters.
pub fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // Below 999.5, three digits are enough for what is shown.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let number = if value.fract() == 0.0 { format!("{value}") } else { three_digits(value) };
    format!("{number} {}", UNITS[unit])
}

/// `0.04 s`, `12.3 s`, `1234 s`: seconds only, so that rows can be compared.
pub fn show_seconds(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 0.1 => format!("{:.1} ms", seconds * 1e3),
        seconds => format!("{} s", three_digits(seconds)),
    }
}

/// Times down to nanoseconds: `85 ns`, `12.3 µs`, `4.5 ms`.
pub fn show_short(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 999.5e-9 => format!("{:.0} ns", seconds * 1e9),
        seconds if seconds < 999.5e-6 => format!("{} µs", three_digits(seconds * 1e6)),
        seconds => show_seconds(seconds),
    }
}

/// At least three significant digits, no more than needed.
fn three_digits(value: f64) -> String {
    match value {
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use {super::*, crate::levels::statistics::Summary};

    /// A row with fixed numbers, which follow from the level.
    pub(crate) fn row(level: i32) -> LevelRow {
        let step = f64::from(level);
        let summary =
            |median: f64| Summary { median, min: median * 0.99, max: median * 1.02, deviation: median * 0.01, runs: 3 };
        LevelRow {
            codec: "zstd".to_string(),
            level,
            input_bytes: 1_000_000_000,
            output_bytes: (300_000_000.0 - 1e7 * step.max(0.0).sqrt() - 1e6 * step) as u64,
            compress: summary(1.5 * 1.4f64.powf(step)),
            decompress: summary(0.6),
            cpu_percent: 198.4,
            compress_cpu_seconds: 1.984 * 1.5 * 1.4f64.powf(step),
            decompress_cpu_percent: 199.0,
            peak_memory_bytes: 64 << 20,
            size_error_percent: None,
            estimated_output_bytes: None,
            warnings: Vec::new(),
        }
    }

    pub(crate) fn rows() -> Vec<LevelRow> {
        [1, -1, 2, 3, 4].map(row).into()
    }

    pub(crate) fn subject() -> Subject {
        Subject {
            name: "ledger".to_string(),
            kind: "ledger",
            total_bytes: 1_000_000_000,
            measured_bytes: 1_000_000_000,
            frame_size_bytes: 8 << 20,
            threads: 2,
            is_end_to_end: false,
            provenance: vec![("input", "/mnt/ledger".to_string())],
        }
    }

    #[test]
    fn bytes_and_seconds_in_few_characters() {
        let shown: Vec<String> =
            [0, 999, 1000, 1023, 999 << 20, 1000 << 20, 92_771_293_593, u64::MAX].map(show_bytes).into();
        assert_eq!(shown, ["0 B", "999 B", "0.98 KiB", "1.00 KiB", "999 MiB", "0.98 GiB", "86.4 GiB", "16 EiB"]);
        assert!(shown.iter().all(|text| text.len() <= 8));
        assert_eq!([0.0123, 0.5, 12.34, 4212.76].map(show_seconds), ["12.3 ms", "0.50 s", "12.3 s", "4213 s"]);
    }

    #[test]
    fn files_are_replaced_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("levels.csv");
        let export = ExportFile::new(Format::Csv, &path, Path::new("/nowhere")).expect("can be written");
        assert!(!path.exists(), "checking does not touch it");
        for rows in [&rows()[..1], &rows()[..]] {
            export.write(&subject(), rows).expect("written");
            assert_eq!(fs::read_to_string(&path).expect("there").lines().count(), 1 + rows.len());
        }
        assert_eq!(fs::read_dir(dir.path()).expect("there").count(), 1, "no temporary file is left");
        assert!(ExportFile::new(Format::Csv, &path, &path).is_err(), "the input is not replaced");
        assert!(ExportFile::new(Format::Csv, dir.path(), &path).is_err(), "a directory");
        assert!(ExportFile::new(Format::Csv, &dir.path().join("no/such"), &path).is_err());
        ExportFile::new(Format::Svg, Path::new("/dev/null"), &path)
            .and_then(|export| export.write(&subject(), &rows()))
            .expect("written to");
        assert!(!fs::metadata("/dev/null").expect("there").is_file(), "devices are written to, not replaced");
    }
}
