//! Tables, and the width of the terminal. A column has a heading for people, a name for programs, or both, so
//! terminal, page, CSV and JSON show the same values.

use std::borrow::Cow;
use std::os::fd::AsFd;
use std::time::Duration;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use slotpress_base::TimeUnit;
use slotpress_base::quantity::{self};
use textwrap::{Options, WordSplitter};

const COLUMNS_DEFAULT: usize = 80;

pub fn progress_columns() -> usize {
    terminal_columns(std::io::stderr()).unwrap_or(COLUMNS_DEFAULT)
}

/// Returns the width of the terminal on stdout, but at most 80 columns, because longer lines are hard to read.
pub fn result_columns() -> usize {
    terminal_columns(std::io::stdout()).unwrap_or(COLUMNS_DEFAULT).min(COLUMNS_DEFAULT)
}

fn terminal_columns(terminal: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

pub fn wrap(sentence: &str, columns: usize) -> Vec<String> {
    // A flag that continues on the next line could not be pasted.
    let options = Options::new(columns).break_words(false).word_splitter(WordSplitter::NoHyphenation);
    textwrap::wrap(sentence, options).into_iter().map(Cow::into_owned).collect()
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unit {
    Text,
    Count,
    Bytes,
    /// A percentage without the sign, which is in the heading.
    Percent,
    Integer,
    /// Three decimals below 10, otherwise three significant digits.
    Ratio,
    /// Bytes per second, shown as a number of MiB/s; the heading names the unit.
    Rate,
    Time,
    Age,
    TimeIn(TimeUnit),
    Price,
}

impl Unit {
    fn show(self, value: &Value) -> String {
        let number = match value {
            Value::Null => return "-".to_string(),
            Value::String(text) => return text.clone(),
            _ => value.as_f64().unwrap_or_default(),
        };
        match self {
            Self::Text => value.to_string(),
            Self::Count => quantity::count(number.round().max(0.0) as u64),
            Self::Bytes => quantity::bytes(number.round() as u64),
            Self::Percent => format!("{number:.1}"),
            Self::Integer => format!("{number:.0}"),
            Self::Ratio if number >= 10.0 => quantity::significant(number),
            Self::Ratio => format!("{number:.3}"),
            Self::Rate => quantity::significant(number / f64::from(1 << 20)),
            // A stage that is not part of the run has a time of 0.
            Self::TimeIn(_) if number == 0.0 => "-".to_string(),
            Self::TimeIn(unit) => unit.show(number),
            Self::Time => quantity::time(number),
            Self::Age => quantity::age(Duration::from_secs_f64(number)),
            Self::Price => format!("{number:.2}"),
        }
    }
}

pub fn to_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// A column. An empty heading hides it from people, an empty name hides it from programs.
#[derive(Debug)]
pub struct Column {
    heading: String,
    unit: Unit,
    name: &'static str,
}

#[derive(Debug, Default)]
pub struct Table {
    pub id: &'static str,
    /// The `type` of its rows in JSON and CSV; empty for a table that only people see.
    pub kind: &'static str,
    pub title: String,
    pub notes: Vec<String>,
    pub best_row: Option<usize>,
    /// Indices of visible columns that a narrow terminal leaves out, in the order in which they are left out.
    pub optional_columns: &'static [usize],
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Value>>,
}

/// Makes a table with a row for each item. `add_column` adds a column for people and programs, `add_visible` one
/// only for people, and `add_data` one only for programs.
pub struct TableBuilder<'a, R> {
    items: Vec<&'a R>,
    table: Table,
}

impl<'a, R> TableBuilder<'a, R> {
    pub fn new(id: &'static str, kind: &'static str, items: impl IntoIterator<Item = &'a R>) -> Self {
        let items: Vec<&R> = items.into_iter().collect();
        let rows = items.iter().map(|_| Vec::new()).collect();
        let table = Table { id, kind, rows, ..Table::default() };
        Self { items, table }
    }

    pub fn add_column<V: Into<Value>>(
        mut self,
        heading: impl Into<String>,
        unit: Unit,
        name: &'static str,
        value: impl Fn(&R) -> V,
    ) -> Self {
        for (item, row) in self.items.iter().zip(&mut self.table.rows) {
            row.push(value(item).into());
        }
        let heading = heading.into();
        self.table.columns.push(Column { heading, unit, name });
        self
    }

    pub fn add_visible<V: Into<Value>>(self, heading: impl Into<String>, unit: Unit, value: impl Fn(&R) -> V) -> Self {
        self.add_column(heading, unit, "", value)
    }

    pub fn add_data<V: Into<Value>>(self, name: &'static str, value: impl Fn(&R) -> V) -> Self {
        self.add_column("", Unit::Text, name, value)
    }

    pub fn finish(self) -> Table {
        self.table
    }
}

impl Table {
    /// Returns the rows as JSON objects; empty for a table that only people see.
    pub fn json_lines(&self) -> Vec<JsonLine> {
        let mut lines = Vec::new();
        if self.kind.is_empty() {
            return lines;
        }
        for row in &self.rows {
            let mut line = vec![("type", self.kind.into())];
            for (column, value) in self.columns.iter().zip(row) {
                if !column.name.is_empty() {
                    line.push((column.name, value.clone()));
                }
            }
            lines.push(JsonLine(line));
        }
        lines
    }

    pub fn lines(&self, columns: usize) -> Vec<String> {
        let fits = |line: &String| line.chars().count() <= columns;
        let mut hidden_count = 0;
        while hidden_count < self.optional_columns.len()
            && !trim_lines(&self.build_grid(&self.optional_columns[..hidden_count])).iter().all(fits)
        {
            hidden_count += 1;
        }
        let mut lines = Vec::new();
        if !self.title.is_empty() {
            lines.extend(wrap(&self.title, columns));
        }
        if hidden_count > 0 {
            lines.push("(a wider terminal shows more columns)".to_string());
        }
        let mut grid = self.build_grid(&self.optional_columns[..hidden_count]);
        // If the table still does not fit, cells are broken into several lines. `trim_lines` removes the
        // padding of the last column, so the table may be wider by that padding.
        grid.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns as u16 + self.gap_columns());
        lines.extend(trim_lines(&grid));
        lines.extend(self.notes.iter().flat_map(|note| wrap(note, columns)));
        lines
    }

    /// Returns the number of spaces between columns: one in wide tables, which have optional columns.
    fn gap_columns(&self) -> u16 {
        if self.optional_columns.is_empty() { 2 } else { 1 }
    }

    fn build_grid(&self, hidden: &[usize]) -> comfy_table::Table {
        let visible = self.visible_columns().enumerate().filter(|(number, _)| !hidden.contains(number));
        let columns: Vec<(usize, &Column)> = visible.map(|(_, column)| column).collect();
        let mut grid = comfy_table::Table::new();
        grid.load_style(NOTHING).set_header(columns.iter().map(|(_, column)| &column.heading));
        for row in &self.rows {
            let cells = columns.iter().map(|(index, column)| column.unit.show(&row[*index]));
            grid.add_row(cells);
        }
        for (grid_column, (_, column)) in grid.column_iter_mut().zip(&columns) {
            let side = match column.unit {
                Unit::Text => CellAlignment::Left,
                _ => CellAlignment::Right,
            };
            grid_column.set_padding((0, self.gap_columns())).set_cell_alignment(side);
        }
        grid
    }

    fn visible_columns(&self) -> impl Iterator<Item = (usize, &Column)> {
        self.columns.iter().enumerate().filter(|(_, column)| !column.heading.is_empty())
    }

    /// Returns the values for the page's template: headings, and rows of cells with their sort keys.
    pub fn to_page_json(&self) -> Value {
        let keys: Vec<Vec<Value>> = self.visible_columns().map(|(index, _)| self.sort_keys(index)).collect();
        let mut rows = Vec::new();
        for (number, row) in self.rows.iter().enumerate() {
            let mut cells = Vec::new();
            for ((index, column), keys) in self.visible_columns().zip(&keys) {
                cells.push(json!([column.unit.show(&row[index]), keys[number]]));
            }
            rows.push(json!({ "is_best": self.best_row == Some(number), "cells": cells }));
        }
        let headings: Vec<&str> = self.visible_columns().map(|(_, column)| column.heading.as_str()).collect();
        json!({ "id": self.id, "title": self.title, "notes": self.notes, "headings": headings, "rows": rows })
    }

    /// Returns the sort keys of a column: its numbers (without a trailing `*`), or for text the order of the
    /// rows. The page sorts unknown values last.
    fn sort_keys(&self, column: usize) -> Vec<Value> {
        let key = |value: &Value| match value {
            Value::String(text) => text.trim_end_matches('*').parse::<f64>().ok().map(Value::from),
            Value::Null => Some("".into()),
            number => Some(number.clone()),
        };
        let keys: Option<Vec<Value>> = self.rows.iter().map(|row| key(&row[column])).collect();
        keys.unwrap_or_else(|| (0..self.rows.len()).map(Value::from).collect())
    }
}

fn trim_lines(grid: &comfy_table::Table) -> Vec<String> {
    grid.lines().map(|line| line.trim_end().to_string()).collect()
}

#[derive(Debug)]
pub struct JsonLine(Vec<(&'static str, Value)>);

impl Serialize for JsonLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl JsonLine {
    /// Flattens nested objects: the name of the object becomes a prefix of its fields' names.
    pub fn flatten(self) -> Vec<(String, String)> {
        let mut flat = Vec::new();
        for (name, value) in self.0 {
            match value {
                Value::Object(fields) => {
                    for (field, value) in &fields {
                        flat.push((format!("{name}_{field}"), flatten_value(value)));
                    }
                }
                value => flat.push((name.to_string(), flatten_value(&value))),
            }
        }
        flat
    }
}

fn flatten_value(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(flatten_value).collect::<Vec<_>>().join("; "),
        value => value.to_string(),
    }
}
