//! Writes the files of tables under temporary names. Groups of rows are encoded on all cores: sorted
//! rows after all accounts are read, other rows immediately. One thread at a time appends to a table.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use arrow_array::RecordBatch;
use parking_lot::Mutex;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves,
};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use serde::Serialize;
use sha2::{Digest, Sha256};
use slotpress_base::{
    Error, IoContext, IoHint, KeptDir, Owner, Progress, Result, SpaceWatch, Stage, StreamWriter, panic_point,
    run_in_order, to_usize,
};

use super::ExportOptions;
use super::cells::decode_cells;
use super::changes::find_changes;
use super::column::{ColumnValues, push_csv};
use super::filter::to_hex;
use super::sort::{SortRun, Sorter, corrupt_rows_error, group_rows, split_counted};
use super::table::{Cell, Table, not_written_error};

/// Maximum number of rows in a row group. A query for a key reads one or two groups of each file, and
/// the Bloom filter of this many values fills 16 KiB.
pub(super) const GROUP_ROWS: usize = 13_500;
/// Limit on the bytes of a row group's rows, before they are encoded. The last row may exceed it.
pub(super) const GROUP_BYTES: usize = 4 << 20;
/// Rate of false positives of the Bloom filters.
const FALSE_POSITIVE_RATE: f64 = 0.01;
/// Memory for encoding a row group: its rows as bytes, as columns and as pages, with an account of
/// 10 MiB in each form.
pub(super) const ENCODER_BYTES: u64 = 48 << 20;
/// Size at which a file is completed and the next one begins. Engines read files of this size well,
/// and stores accept them as one upload.
pub(super) const FILE_BYTES: u64 = 896 << 20;

type RowKey = Vec<Option<String>>;

/// Keys of the first and the last row; empty if rows are not sorted.
#[derive(Default)]
struct KeyRange {
    least: RowKey,
    greatest: RowKey,
}

/// A complete file of a table.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ExportedFile {
    /// Path below the output directory or store.
    pub path: String,
    /// Number of rows in the file.
    pub rows: u64,
    /// Size of the file.
    pub bytes: u64,
    /// SHA-256 of the file, as hexadecimal digits.
    pub sha256: String,
    /// Key of the first row, if rows are sorted: a value for each column by which they are sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub least_key: Vec<Option<String>>,
    /// Key of the last row.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub greatest_key: Vec<Option<String>>,
    /// Name in the work directory.
    #[serde(skip)]
    pub(super) part: String,
}

pub(super) struct TableWriter<'a> {
    pub table: Table,
    options: &'a ExportOptions,
    dir: &'a KeptDir,
    watch: &'a SpaceWatch,
    pub footer: OnceLock<Vec<KeyValue>>,
    sorter: Option<Sorter>,
    encoder: ArrowRowGroupWriterFactory,
    files: Mutex<PartFiles<'a>>,
}

#[derive(Default)]
struct PartFiles<'a> {
    open: Option<OpenPart<'a>>,
    done: Vec<ExportedFile>,
}

struct OpenPart<'a> {
    file: SerializedFileWriter<PartFile<'a>>,
    rows: u64,
    keys: KeyRange,
}

struct EncodedGroup {
    chunks: Vec<ArrowColumnChunk>,
    rows: u64,
    keys: KeyRange,
}

impl<'a> TableWriter<'a> {
    pub fn new(table: Table, options: &'a ExportOptions, dir: &'a KeptDir, watch: &'a SpaceWatch) -> Result<Self> {
        let new_sorter = || Sorter::new(&options.verify.check.spill_dir(None));
        Ok(Self {
            table,
            options,
            dir,
            watch,
            footer: OnceLock::new(),
            sorter: options.is_sorted(table).then(new_sorter),
            encoder: parquet_writer(table, options, Vec::new(), io::sink())?.1,
            files: Mutex::default(),
        })
    }

    /// Writes the rows, or passes them to the sorter, and empties the run.
    pub fn write(&self, rows: &mut SortRun) -> Result<()> {
        if let Some(sorter) = &self.sorter {
            return sorter.add(rows);
        }
        let encoded = self.encode(rows.bytes());
        rows.clear();
        self.append(encoded?)
    }

    /// Completes all files. A table without rows is one file with the columns.
    pub fn finish(&self, progress: &dyn Progress) -> Result<Vec<ExportedFile>> {
        if let Some(sorter) = &self.sorter {
            self.write_sorted(sorter, progress)?;
        }
        let mut files = self.files.lock();
        if files.open.is_none() && files.done.is_empty() {
            files.open = Some(self.open_part(0)?);
        }
        let last = files.open.take().map(OpenPart::close).transpose()?;
        files.done.extend(last);
        Ok(std::mem::take(&mut files.done))
    }

    fn write_sorted(&self, sorter: &Sorter, progress: &dyn Progress) -> Result<()> {
        // The check of the state has ended, so its memory is free. Tables are finished one after another, so
        // each may use all of it.
        let verify = &self.options.verify;
        let memory_bytes = self.options.memory_bytes / 2 + verify.check.memory_bytes;
        let encoders = (memory_bytes - memory_bytes / 8) / ENCODER_BYTES;
        let encoders = to_usize(encoders).clamp(1, verify.threads.max(1));
        progress.stage(Stage::Writing, None);
        let rows = sorter.take_sorted_rows(memory_bytes / 8, verify.threads, progress)?;
        let rows: Box<dyn Iterator<Item = Result<Vec<u8>>> + Send> = if self.options.since.is_some() {
            Box::new(find_changes(self.table, rows, progress))
        } else {
            Box::new(rows)
        };
        let groups = group_rows(rows, GROUP_ROWS, GROUP_BYTES);
        let new_encoder = || Ok(|group: Vec<u8>, _: &mut Vec<u8>| self.encode(&group));
        let append = &mut |_: &[u8], encoded| self.append(encoded);
        run_in_order(groups, encoders, &new_encoder, progress, append)
    }

    fn append(&self, encoded: EncodedGroup) -> Result<()> {
        let mut files = self.files.lock();
        let mut open = match files.open.take() {
            Some(open) => open,
            None => self.open_part(files.done.len())?,
        };
        if open.append(encoded)? >= self.options.file_bytes {
            files.done.push(open.close()?)
        } else {
            files.open = Some(open)
        }
        Ok(())
    }

    fn open_part(&self, number: usize) -> Result<OpenPart<'a>> {
        let name = format!("{}-{number}", self.table.name());
        let file = PartFile::create(self.dir, &name, self.watch)?;
        let footer = self.footer.get().cloned().unwrap_or_default();
        let file = parquet_writer(self.table, self.options, footer, file)?.0;
        Ok(OpenPart { file, rows: 0, keys: KeyRange::default() })
    }

    fn encode(&self, group: &[u8]) -> Result<EncodedGroup> {
        panic_point("row encoder");
        let schema = self.table.schema(self.options);
        let columns = self.table.exported_columns(self.options);
        let mut columns = Vec::from_iter(columns.iter().map(|column| ColumnValues::new(column.kind)));
        let mut rest = group;
        let mut rows = 0;
        let mut last = None;
        while let Some((row, after)) = split_counted(rest) {
            for (column, cell) in columns.iter_mut().zip(decode_cells(row)) {
                column.push(cell?)?;
            }
            last = Some(row);
            rest = after;
            rows += 1;
        }
        let (Some((first, _)), Some(last)) = (split_counted(group), last) else { return Err(corrupt_rows_error()) };
        let mut keys = KeyRange::default();
        if self.sorter.is_some() {
            keys = KeyRange { least: self.row_key(first)?, greatest: self.row_key(last)? };
        }
        let arrays = columns.iter_mut().map(ColumnValues::finish).collect();
        let batch = RecordBatch::try_new(schema, arrays).map_err(|error| not_written_error(&error))?;
        let chunks = encode_columns(&batch, &self.encoder).map_err(parquet_error)?;
        Ok(EncodedGroup { chunks, rows, keys })
    }

    fn row_key(&self, row: &[u8]) -> Result<RowKey> {
        let text = |cell: Cell<'_>| match cell {
            Cell::Text(text) => Some(text.to_string()),
            _ => None,
        };
        let cells = decode_cells(row).take(self.table.key_column_count());
        cells.map(|cell| cell.map(text)).collect()
    }
}

pub(super) fn to_csv(mut rows: &[u8]) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    while let Some((row, after)) = split_counted(rows) {
        for (column, cell) in decode_cells(row).enumerate() {
            text.extend((column > 0).then_some(b','));
            push_csv(&mut text, cell?);
        }
        text.push(b'\n');
        rows = after;
    }
    Ok(text)
}

fn parquet_writer<W: Write + Send>(
    table: Table,
    options: &ExportOptions,
    footer: Vec<KeyValue>,
    output: W,
) -> Result<(SerializedFileWriter<W>, ArrowRowGroupWriterFactory)> {
    let zstd = |level| ZstdLevel::try_new(level).map(Compression::ZSTD).map_err(parquet_error);
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(format!("slotpress {}", env!("CARGO_PKG_VERSION")))
        .set_compression(zstd(3)?)
        .set_key_value_metadata(Some(footer));
    // Nearly all values of these columns differ, so a dictionary would be discarded.
    for name in ["address", "data"] {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(name), false);
    }
    // Addresses are random bytes in base58: level 2 compresses them as well as level 3, in half of the time.
    for name in ["address", "owner"] {
        properties = properties.set_column_compression(ColumnPath::from(name), zstd(2)?);
    }
    // No query uses the minimum and maximum of data.
    properties = properties.set_column_statistics_enabled(ColumnPath::from("data"), EnabledStatistics::None);
    if options.is_sorted(table) {
        properties = set_order(table, properties);
    }
    let settings = ArrowWriterOptions::new().with_skip_arrow_metadata(true);
    let settings = settings.with_properties(properties.build());
    let writer = ArrowWriter::try_new_with_options(output, table.schema(options), settings);
    writer.and_then(ArrowWriter::into_serialized_writer).map_err(parquet_error)
}

/// Declares the order of rows, and adds Bloom filters for the addresses and owners that statistics do
/// not cover.
fn set_order(table: Table, properties: WriterPropertiesBuilder) -> WriterPropertiesBuilder {
    let sorting = (0..table.key_column_count() as i32).map(|number| SortingColumn {
        column_idx: number,
        descending: false,
        nulls_first: true,
    });
    let mut properties = properties.set_sorting_columns(Some(sorting.collect()));
    // Statistics suffice for the columns of the key before the address.
    let columns = table.columns().iter().skip(table.key_column_count() - 1);
    for column in columns.filter(|column| ["address", "owner"].contains(&column.name)) {
        let column = ColumnPath::from(column.name);
        properties = properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_bloom_filter_fpp(column.clone(), FALSE_POSITIVE_RATE)
            .set_column_bloom_filter_max_ndv(column, GROUP_ROWS as u64);
    }
    properties
}

fn encode_columns(
    rows: &RecordBatch,
    factory: &ArrowRowGroupWriterFactory,
) -> Result<Vec<ArrowColumnChunk>, ParquetError> {
    let mut writers = factory.create_column_writers(0)?;
    let mut next = writers.iter_mut();
    for (field, column) in rows.schema_ref().fields().iter().zip(rows.columns()) {
        for (leaf, writer) in compute_leaves(field, column)?.iter().zip(&mut next) {
            writer.write(leaf)?;
        }
    }
    writers.into_iter().map(ArrowColumnWriter::close).collect()
}

impl OpenPart<'_> {
    fn append(&mut self, encoded: EncodedGroup) -> Result<u64> {
        if self.rows == 0 {
            self.keys.least = encoded.keys.least;
        }
        self.keys.greatest = encoded.keys.greatest;
        self.rows += encoded.rows;
        append_group(&mut self.file, encoded.chunks).map_err(parquet_error)
    }

    fn close(self) -> Result<ExportedFile> {
        let KeyRange { least, greatest } = self.keys;
        let file = self.file.into_inner().map_err(parquet_error)?;
        Ok(ExportedFile { least_key: least, greatest_key: greatest, ..file.close(self.rows)? })
    }
}

fn append_group<W: Write + Send>(
    file: &mut SerializedFileWriter<W>,
    chunks: Vec<ArrowColumnChunk>,
) -> Result<u64, ParquetError> {
    let mut group = file.next_row_group()?;
    chunks.into_iter().try_for_each(|chunk| chunk.append_to_row_group(&mut group))?;
    group.close()?;
    Ok(file.bytes_written() as u64)
}

/// Converts an error of the Parquet library. Returns the I/O error that caused it, if there is one.
fn parquet_error(error: ParquetError) -> Error {
    if let ParquetError::External(source) = &error
        && let Some(source) = source.downcast_ref::<io::Error>()
    {
        return Error::io("write", Path::new("the table"), source);
    }
    not_written_error(&error)
}

pub(super) struct PartFile<'a> {
    name: String,
    dir: &'a KeptDir,
    watch: &'a SpaceWatch,
    file: Arc<File>,
    out: StreamWriter<Arc<File>>,
    hasher: Sha256,
    pub(super) bytes: u64,
}

impl<'a> PartFile<'a> {
    pub fn create(dir: &'a KeptDir, name: &str, watch: &'a SpaceWatch) -> Result<Self> {
        let file = dir.create_file(name, 0o666)?;
        Owner::from_dir(dir)?.apply_to(&file, &dir.path_of(name))?;
        let file = Arc::new(file);
        let out = StreamWriter::new(file.clone(), IoHint::Gentle);
        Ok(Self { name: name.to_string(), dir, watch, file, out, hasher: Sha256::new(), bytes: 0 })
    }

    /// Completes and syncs the file, which contains `rows` rows.
    pub fn close(mut self, rows: u64) -> Result<ExportedFile> {
        let path = self.dir.path_of(&self.name);
        self.out.finish().or_path("write", &path)?;
        self.file.sync_all().or_path("write", &path)?;
        Ok(ExportedFile {
            path: String::new(),
            rows,
            bytes: self.bytes,
            sha256: to_hex(&self.hasher.finalize()),
            least_key: Vec::new(),
            greatest_key: Vec::new(),
            part: self.name,
        })
    }
}

impl Write for PartFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.watch.check_before_writing(bytes.len() as u64, &*self.file, self.dir.path()).map_err(io::Error::other)?;
        let written = self.out.write(bytes)?;
        self.hasher.update(bytes.get(..written).unwrap_or_default());
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
