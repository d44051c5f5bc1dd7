//! Comma-separated values: one line per row, exact bytes, times in seconds. Tables whose rows are of several types
//! share one header and are distinguished by the column `type`; fields that a type does not have are empty.

use std::collections::HashMap;

use slotpress_base::{Error, Result};

use super::{Column, Table, Value};

const KIND: &str = "type";

/// The rows of all tables that programs find.
///
/// # Errors
/// None in practice: memory is written to.
pub fn csv<'a>(tables: impl Iterator<Item = &'a Table>) -> Result<String> {
    let tables: Vec<&Table> = tables.filter(|table| !table.kind.is_empty()).collect();
    let header = header(&tables);
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    let failed = |error: ::csv::Error| Error::failed(format!("comma-separated values cannot be made: {error}"));
    writer.write_record(&header).map_err(failed)?;
    for table in tables {
        for row in 0..table.rows.len() {
            let mut values: HashMap<String, String> =
                table.named_cells(row).map(|(name, column, value)| (flat(name), show(column, value))).collect();
            values.insert(KIND.to_string(), table.kind.to_string());
            let record = header.iter().map(|name| values.get(name).map_or("", String::as_str));
            writer.write_record(record).map_err(failed)?;
        }
    }
    let bytes = writer.into_inner().map_err(|error| Error::failed(error.to_string()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The columns of all tables: those that only a later one has stand behind the one that they follow there.
fn header(tables: &[&Table]) -> Vec<String> {
    let mut header: Vec<String> = Vec::new();
    for table in tables {
        let mut place = 0;
        let kind = table.has_kind_column.then(|| KIND.to_string());
        for name in kind.into_iter().chain(table.columns.iter().filter_map(|column| column.name.as_deref().map(flat))) {
            place = match header.iter().position(|known| *known == name) {
                Some(at) => at + 1,
                None => {
                    header.insert(place, name);
                    place + 1
                }
            };
        }
    }
    header
}

/// A field of an object as a column.
fn flat(name: &str) -> String {
    name.replace('.', "_")
}

fn show(column: &Column, value: &Value) -> String {
    match value {
        Value::Absent | Value::Unknown => String::new(),
        Value::Text(text) | Value::Nested(_, text) | Value::Class(text, _) => text.clone(),
        Value::Whole(number) => number.to_string(),
        Value::Number(number) => format!("{number:.*}", column.decimals),
    }
}
