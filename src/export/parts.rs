//! Writes the files of tables: under temporary names, hashed as they are written, and a bounded
//! number at a time.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use serde::Serialize;
use sha2::{Digest, Sha256};
use slotpress_base::{Error, IoContext, IoHint, KeptDir, Owner, Progress, Result, SpaceWatch, StreamWriter};

use super::filter::hex;
use super::ordered::{self, Key};
use super::sort::Sorter;
use super::table::{Rows, Table, not_written};
use super::{ExportOptions, RowOrder};

/// Limit on the rows of a row group.
const ROW_GROUP_ROWS_MAX: usize = 1_000_000;
/// Limit on the size of a row group.
const ROW_GROUP_BYTES_MAX: u64 = 128 << 20;
/// Lower bound for the limit on row groups, whatever the memory: smaller ones slow readers down too
/// much.
const ROW_GROUP_BYTES_MIN: u64 = 8 << 20;
/// Memory of a writer besides its row group: pages and dictionaries of its columns, and one
/// compressed account of 10 MiB.
const WRITER_BYTES: u64 = 32 << 20;
/// Size at which a file is completed and the next one begins. Engines read files of this size well,
/// and stores send them in one piece.
pub(super) const FILE_BYTES: u64 = (1 << 30) - ROW_GROUP_BYTES_MAX;

/// Number of files that are written at a time, and the memory of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Number of writers per table.
    pub writers: usize,
    row_group_bytes: u64,
}

impl Room {
    /// Least memory: that of one file per table.
    pub fn bytes_min(tables: usize) -> u64 {
        tables.max(1) as u64 * (ROW_GROUP_BYTES_MIN + WRITER_BYTES)
    }

    /// Creates as many writers as fit into the memory, but no more than there are threads to feed
    /// them, and at least one per table.
    pub fn new(memory_bytes: u64, tables: usize, threads: usize) -> Self {
        let tables = tables.max(1) as u64;
        let fit = memory_bytes / (ROW_GROUP_BYTES_MAX + WRITER_BYTES) / tables;
        let writers = fit.clamp(1, threads.max(1) as u64);
        let each = memory_bytes / (writers * tables);
        let row_group_bytes = each.saturating_sub(WRITER_BYTES).clamp(ROW_GROUP_BYTES_MIN, ROW_GROUP_BYTES_MAX);
        Self { writers: writers as usize, row_group_bytes }
    }
}

/// A complete file of a table.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ExportedFile {
    /// Path below the output directory or store.
    pub path: String,
    /// Number of rows.
    pub rows: u64,
    /// Size of the file.
    pub bytes: u64,
    /// SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
    /// Key of the first row, if rows are in order: a value for each column by which they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub least_key: Vec<Option<String>>,
    /// Key of the last row.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub greatest_key: Vec<Option<String>>,
    /// Name in the work directory.
    #[serde(skip)]
    pub(super) part: String,
}

/// The files of one table.
pub(super) struct Parts<'a> {
    pub table: Table,
    pub(super) options: &'a ExportOptions,
    room: Room,
    pub(super) dir: &'a KeptDir,
    watch: &'a SpaceWatch,
    /// Metadata for the footer of every file.
    pub footer: OnceLock<Vec<(String, String)>>,
    writers: Vec<Mutex<Writer<'a>>>,
    /// Present if rows are sorted.
    sorter: Option<Sorter>,
}

#[derive(Default)]
struct Writer<'a> {
    open: Option<OpenPart<'a>>,
    done: Vec<ExportedFile>,
}

pub(super) struct OpenPart<'a> {
    pub(super) form: Form<'a>,
    pub(super) rows: u64,
    pub(super) keys: [Key; 2],
}

pub(super) enum Form<'a> {
    Parquet(Box<ArrowWriter<PartFile<'a>>>),
    /// A file of row groups that are encoded elsewhere.
    RowGroups(Box<SerializedFileWriter<PartFile<'a>>>),
}

impl<'a> Parts<'a> {
    pub fn new(table: Table, options: &'a ExportOptions, room: Room, dir: &'a KeptDir, watch: &'a SpaceWatch) -> Self {
        let writers = (0..room.writers).map(|_| Mutex::default()).collect();
        let is_sorted = options.order_of(table) == RowOrder::Clustered;
        let sorter = is_sorted.then(|| Sorter::new(&options.visit.check.spill_dir(None)));
        Self { table, options, room, dir, watch, footer: OnceLock::new(), writers, sorter }
    }

    /// True if rows are sorted before they are written.
    pub fn is_sorted(&self) -> bool {
        self.sorter.is_some()
    }

    /// Writes rows with the first idle writer.
    pub fn write(&self, rows: Rows, count: u64) -> Result<()> {
        let rows = match (rows, &self.sorter) {
            (Rows::Run(run), Some(sorter)) => return sorter.add(run),
            (rows, _) => rows,
        };
        let idle = self.writers.iter().enumerate().find_map(|(number, writer)| Some((number, writer.try_lock()?)));
        let waited = || self.writers.first().map(|writer| (0, writer.lock()));
        let Some((number, mut writer)) = idle.or_else(waited) else { return Ok(()) };
        let mut part = match writer.open.take() {
            Some(part) => part,
            None => self.open(&format!("{}-{number}-{}", self.table.name(), writer.done.len()))?,
        };
        part.rows += count;
        let written = match (&mut part.form, rows) {
            (Form::Parquet(to), Rows::Batch(batch)) => {
                to.write(&batch).map_err(|error| of_parquet(&error))?;
                to.bytes_written() as u64 + to.in_progress_size() as u64
            }
            _ => return Err(Error::failed("rows of one format came to a file of another")),
        };
        match written >= self.options.file_bytes {
            true => writer.done.push(part.close()?),
            false => writer.open = Some(part),
        }
        Ok(())
    }

    pub(super) fn open(&self, name: &str) -> Result<OpenPart<'a>> {
        let file = PartFile::create(self.dir, name, self.watch)?;
        let form = match (self.parquet_writer(file)?, &self.sorter) {
            (writer, None) => Form::Parquet(Box::new(writer)),
            (writer, Some(_)) => {
                Form::RowGroups(Box::new(writer.into_serialized_writer().map_err(|error| of_parquet(&error))?.0))
            }
        };
        Ok(OpenPart { form, rows: 0, keys: Default::default() })
    }

    pub(super) fn parquet_writer<W: Write + Send>(&self, to: W) -> Result<ArrowWriter<W>> {
        let options = ArrowWriterOptions::new().with_properties(self.properties()?).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(to, self.table.schema(self.options), options);
        writer.map_err(|error| of_parquet(&error))
    }

    fn properties(&self) -> Result<WriterProperties> {
        let zstd = |level| ZstdLevel::try_new(level).map(Compression::ZSTD).map_err(|error| of_parquet(&error));
        let footer = self.footer.get().into_iter().flatten();
        let footer = footer.map(|(key, value)| KeyValue::new(key.clone(), value.clone())).collect();
        let mut properties = WriterProperties::builder()
            .set_writer_version(WriterVersion::PARQUET_1_0)
            .set_created_by(format!("slotpress {}", env!("CARGO_PKG_VERSION")))
            .set_compression(zstd(3)?)
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS_MAX))
            .set_max_row_group_bytes(usize::try_from(self.room.row_group_bytes).ok())
            .set_key_value_metadata(Some(footer));
        // Nearly all values of these columns differ. A dictionary would be discarded, and minimum
        // and maximum of the data would be useless.
        for name in ["address", "data"] {
            properties = properties.set_column_dictionary_enabled(ColumnPath::from(name), false);
        }
        // Nothing in these columns repeats: level 2 makes them as small, in half of the time.
        for name in ["address", "owner"] {
            properties = properties.set_column_compression(ColumnPath::from(name), zstd(2)?);
        }
        properties = properties.set_column_statistics_enabled(ColumnPath::from("data"), EnabledStatistics::None);
        if self.is_sorted() {
            properties = ordered::properties(self.table, properties);
        }
        Ok(properties.build())
    }

    /// Completes all files. A table without rows gets one file, which has the columns.
    pub fn finish(&self, progress: &dyn Progress) -> Result<Vec<ExportedFile>> {
        let mut files = match &self.sorter {
            Some(sorter) => self.write_sorted(sorter, progress)?,
            None => Vec::new(),
        };
        for writer in &self.writers {
            let mut writer = writer.lock();
            if let Some(part) = writer.open.take() {
                writer.done.push(part.close()?);
            }
            files.append(&mut writer.done);
        }
        if files.is_empty() {
            files.push(self.open(&format!("{}-empty", self.table.name()))?.close()?);
        }
        Ok(files)
    }
}

impl OpenPart<'_> {
    pub(super) fn close(self) -> Result<ExportedFile> {
        let file = match self.form {
            Form::Parquet(writer) => writer.into_inner().map_err(|error| of_parquet(&error))?,
            Form::RowGroups(writer) => writer.into_inner().map_err(|error| of_parquet(&error))?,
        };
        let [least_key, greatest_key] = self.keys;
        Ok(ExportedFile { least_key, greatest_key, ..file.close(self.rows)? })
    }
}

/// Converts an error of the Parquet library. If an I/O error caused it, reports that one.
pub(super) fn of_parquet(error: &ParquetError) -> Error {
    let source = match error {
        ParquetError::External(source) => source.downcast_ref::<io::Error>(),
        _ => None,
    };
    source.map_or_else(|| not_written(error), |source| Error::io("write", std::path::Path::new("the table"), source))
}

/// A file in the work directory.
pub(super) struct PartFile<'a> {
    name: String,
    dir: &'a KeptDir,
    watch: &'a SpaceWatch,
    file: Arc<File>,
    to: StreamWriter<Arc<File>>,
    hasher: Sha256,
    pub(super) bytes: u64,
}

impl<'a> PartFile<'a> {
    pub fn create(dir: &'a KeptDir, name: &str, watch: &'a SpaceWatch) -> Result<Self> {
        let file = dir.create_file(name, 0o666)?;
        Owner::of(dir)?.take(&file).or_path("change the owner of", &dir.path_of(name))?;
        let file = Arc::new(file);
        let to = StreamWriter::new(file.clone(), IoHint::Gentle);
        Ok(Self { name: name.to_string(), dir, watch, file, to, hasher: Sha256::new(), bytes: 0 })
    }

    /// Syncs the file. `rows` is the number of rows in it.
    pub fn close(mut self, rows: u64) -> Result<ExportedFile> {
        self.to.flush().and_then(|()| self.file.sync_all()).or_path("write", &self.dir.path_of(&self.name))?;
        Ok(ExportedFile {
            path: String::new(),
            rows,
            bytes: self.bytes,
            sha256: hex(&self.hasher.finalize()),
            least_key: Vec::new(),
            greatest_key: Vec::new(),
            part: self.name,
        })
    }
}

impl Write for PartFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.watch.before_writing(bytes.len() as u64, &*self.file, self.dir.path()).map_err(io::Error::other)?;
        let written = self.to.write(bytes)?;
        self.hasher.update(bytes.get(..written).unwrap_or_default());
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn writers_keep_to_their_memory(memory in 0u64..1 << 42, tables in 1usize..3, threads in 1usize..1024) {
            let room = Room::new(memory, tables, threads);
            let taken = (room.writers * tables) as u64 * (room.row_group_bytes + WRITER_BYTES);
            let least = Room::bytes_min(tables);
            proptest::prop_assert!(taken <= memory.max(least) && room.writers >= 1 && room.writers <= threads);
        }
    }
}
