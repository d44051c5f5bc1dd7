//! Writes the files of a table whose rows are sorted: row groups are encoded on all cores, and
//! written one after another.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::errors::ParquetError;
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::WriterPropertiesBuilder;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use slotpress_base::pipeline::run_in_order;
use slotpress_base::{Progress, Result, panic_point, to_usize};

use super::ExportOptions;
use super::cells::cells;
use super::changes::changes;
use super::parts::{ExportedFile, Form, OpenPart, Parts, of_parquet};
use super::sort::{Sorter, changed, groups, split_counted};
use super::table::{Batch, Cell, Rows, Table};

/// Rows of a row group. A query for a key reads one or two groups of each file, and a Bloom filter
/// of so many values takes all of 16 KiB.
const GROUP_ROWS: usize = 13_500;
/// Limit on the bytes of a row group's rows, as they are sorted. One row may come on top.
const GROUP_BYTES: usize = 4 << 20;
/// Share of row groups without an address whose Bloom filters do not tell that.
const FALSE_POSITIVES: f64 = 0.01;
/// Memory for encoding a row group: rows as they are sorted, columns and pages, and in each form one
/// account of 10 MiB.
const ENCODER_BYTES: u64 = 48 << 20;

/// Key of a row: a value for each column by which rows are sorted.
pub(super) type Key = Vec<Option<String>>;

/// An encoded row group.
struct Encoded {
    chunks: Vec<ArrowColumnChunk>,
    rows: u64,
    /// Keys of the first row and of the last.
    keys: [Key; 2],
}

/// Tells readers of Parquet files of the order, and helps them to find addresses, and wallets.
pub(super) fn properties(table: Table, properties: WriterPropertiesBuilder) -> WriterPropertiesBuilder {
    let sorting = (0..table.key_columns() as i32).map(|at| SortingColumn {
        column_idx: at,
        descending: false,
        nulls_first: true,
    });
    let mut properties = properties.set_sorting_columns(Some(sorting.collect()));
    // Statistics suffice for the column by which rows are sorted first.
    let columns = table.columns(false, false).skip(table.key_columns() - 1);
    for (name, ..) in columns.filter(|(name, ..)| ["address", "owner"].contains(name)) {
        let column = ColumnPath::from(name);
        properties = properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_bloom_filter_fpp(column.clone(), FALSE_POSITIVES)
            .set_column_bloom_filter_max_ndv(column, GROUP_ROWS as u64);
    }
    properties
}

impl Parts<'_> {
    /// Merges the runs, and writes all files.
    pub(super) fn write_sorted(&self, sorter: &Sorter, progress: &dyn Progress) -> Result<Vec<ExportedFile>> {
        // The state was checked, so that memory is free.
        let ExportOptions { visit, .. } = self.options;
        let memory_bytes = self.options.table_bytes() / 2 + visit.check.memory_bytes;
        let encoders = (memory_bytes - memory_bytes / 8) / ENCODER_BYTES;
        let encoders = to_usize(encoders).clamp(1, visit.threads.max(1));
        progress.stage("Writing", None);
        let rows = sorter.rows(memory_bytes / 8, visit.threads, progress)?;
        let rows: Box<dyn Iterator<Item = Result<Vec<u8>>> + Send> = match self.options.changes {
            true => Box::new(changes(self.table, rows, progress)),
            false => Box::new(rows),
        };
        let groups = groups(rows, GROUP_ROWS, GROUP_BYTES);
        let factory = self.parquet_writer(io::sink())?.into_serialized_writer().map_err(|error| of_parquet(&error))?.1;
        let new_encoder = || {
            panic_point("row encoder");
            let mut batch = Batch::new(self.table, self.options);
            let factory = &factory;
            Ok(move |group: Vec<u8>, _: &mut Vec<u8>| self.encode(&mut batch, group, factory))
        };
        let (mut files, mut open) = (Vec::new(), None);
        run_in_order(groups, encoders, &new_encoder, progress, &mut |_, encoded| {
            let mut part = match open.take() {
                Some(part) => part,
                None => self.open(&format!("{}-{}", self.table.name(), files.len()))?,
            };
            match part.append(encoded)? >= self.options.file_bytes {
                true => files.push(part.close()?),
                false => open = Some(part),
            }
            Ok(())
        })?;
        files.extend(open.map(OpenPart::close).transpose()?);
        Ok(files)
    }

    fn encode(&self, batch: &mut Batch, group: Vec<u8>, factory: &ArrowRowGroupWriterFactory) -> Result<Encoded> {
        let (mut rest, mut ends) = (&group[..], None);
        while let Some((row, after)) = split_counted(rest) {
            batch.push_cells(cells(row))?;
            ends = Some((ends.map_or(row, |(first, _)| first), row));
            rest = after;
        }
        let (first, last) = ends.ok_or_else(changed)?;
        let keys = [self.key_of(first)?, self.key_of(last)?];
        drop(group);
        let Some((Rows::Batch(batch), rows)) = batch.take()? else { return Err(changed()) };
        let chunks = row_group(&batch, factory).map_err(|error| of_parquet(&error))?;
        Ok(Encoded { chunks, rows, keys })
    }

    fn key_of(&self, row: &[u8]) -> Result<Key> {
        let text = |cell: Cell<'_>| match cell {
            Cell::Text(text) => Some(text.to_string()),
            _ => None,
        };
        cells(row).take(self.table.key_columns()).map(|cell| cell.map(text)).collect()
    }
}

fn row_group(rows: &RecordBatch, factory: &ArrowRowGroupWriterFactory) -> Result<Vec<ArrowColumnChunk>, ParquetError> {
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
    /// Appends a row group. Returns the size of the file.
    fn append(&mut self, encoded: Encoded) -> Result<u64> {
        let [first, last] = encoded.keys;
        self.keys = [if self.rows == 0 { first } else { std::mem::take(&mut self.keys[0]) }, last];
        self.rows += encoded.rows;
        match &mut self.form {
            Form::RowGroups(file) => append_group(file, encoded.chunks).map_err(|error| of_parquet(&error)),
            Form::Parquet(_) => Err(changed()),
        }
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
