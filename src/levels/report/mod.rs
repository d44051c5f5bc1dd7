//! A report: a section of tables, sentences, advice and charts. Each command of `levels` makes one (its `view`), and
//! each format renders any: [`terminal`], [`csv`], [`json`], [`html`].
//!
//! A column has a unit; for people a heading and a width on the terminal; for programs a name and decimals. It may be
//! for only one of the two. Everything here is pure, except [`mod@file`].

pub mod chart;
pub mod csv;
pub mod file;
pub mod html;
pub mod json;
pub mod table;
pub mod terminal;

use slotpress_base::quantity;
pub use table::{Cell, Column, Table, Unit, Value};

/// The description of the input, for headings.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// The input's file name.
    pub name: String,
    /// The kind of input: `ledger`, `archive`, …
    pub kind: &'static str,
    /// Bytes of the whole input.
    pub total_bytes: u64,
    /// Bytes that were measured.
    pub measured_bytes: u64,
    /// Bytes in a frame, at most; 0 where frames of several sizes are measured.
    pub frame_size_bytes: u64,
    /// Threads that work, 1 to 1024.
    pub threads: usize,
    /// The origin of the numbers, for readers of the page: input, date, CPU and so on, each with its value.
    pub provenance: Vec<(&'static str, String)>,
}

impl Subject {
    /// One line of at most 80 characters.
    pub fn describe(&self) -> String {
        let Self { kind, total_bytes, measured_bytes, frame_size_bytes, threads, .. } = self;
        let [total, measured] = [*total_bytes, *measured_bytes].map(quantity::bytes);
        let amount = match measured_bytes == total_bytes {
            true => total,
            false => format!("sample of {measured} from {total}"),
        };
        let workers = quantity::count_of(*threads as u64, "worker");
        let frames = match frame_size_bytes {
            0 => String::new(),
            bytes => format!(", frames of {}", quantity::bytes(*bytes)),
        };
        format!("{kind}, {amount}{frames}, {workers}, in memory")
    }
}

/// The result of a command, in reading order.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// The anchor on a page.
    pub id: &'static str,
    /// Its heading on a page.
    pub heading: &'static str,
    /// The contents.
    pub blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Clone, Debug)]
pub enum Block {
    /// Conditions of the measurement, one per line.
    Facts(Vec<String>),
    /// Rows of numbers.
    Table(Table),
    /// Warnings. On the terminal, the command prints these.
    Doubts(Vec<String>),
    /// Recommendations.
    Advice(Vec<Advice>),
    /// Sentences.
    Text(Vec<String>),
    /// A picture; only pages have it.
    Chart {
        /// The SVG element.
        svg: String,
        /// The caption.
        caption: String,
    },
}

/// A recommended flag, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The goal: `shortest time`.
    pub what: String,
    /// The flag of `archive`, or the name of a codec that `archive` does not have.
    pub choice: String,
    /// The reason.
    pub reason: String,
}

impl Section {
    /// Its tables.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Table(table) => Some(table),
            _ => None,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
