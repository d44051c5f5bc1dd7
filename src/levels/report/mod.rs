//! A report: sections of tables, sentences, advice and charts. What each view of `levels` found becomes one (its
//! `view`), and each format shows any report: [`terminal`], [`markdown`], [`csv`], [`json`], [`html`].
//!
//! A column says what its values are, how people are shown them (heading, unit, width on the terminal), and how
//! programs find them (name, decimals); it may be there for only one of the two. Everything here is pure; [`mod@file`]
//! writes.

pub mod chart;
pub mod csv;
pub mod file;
pub mod html;
pub mod json;
pub mod markdown;
pub mod table;
pub mod terminal;

pub use table::{Cell, Column, Table, Unit, Value};

use slotpress_base::quantity;

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
    /// Threads that work, 1 to 1024.
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
        let [total, measured] = [*total_bytes, *measured_bytes].map(quantity::bytes);
        let amount = match measured_bytes == total_bytes {
            true => total,
            false => format!("sample of {measured} from {total}"),
        };
        let workers = quantity::count_of(*threads as u64, "worker");
        let place = if self.is_end_to_end { "on disk" } else { "in memory" };
        let frames = match frame_size_bytes {
            0 => String::new(),
            bytes => format!(", frames of {}", quantity::bytes(*bytes)),
        };
        format!("{kind}, {amount}{frames}, {workers}, {place}")
    }
}

/// What a view found, in the order in which it is read.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Its name in the addresses of a page.
    pub id: &'static str,
    /// Its heading on a page.
    pub heading: &'static str,
    /// What it holds.
    pub blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Clone, Debug)]
pub enum Block {
    /// How it was measured: a line each.
    Facts(Vec<String>),
    /// Rows of numbers.
    Table(Table),
    /// What makes numbers doubtful. The terminal shows these as warnings, which is not up to this module.
    Doubts(Vec<String>),
    /// What to do.
    Advice(Vec<Advice>),
    /// Sentences.
    Text(Vec<String>),
    /// A picture; only pages have it.
    Chart {
        /// As it stands in a page.
        svg: String,
        /// What it shows, in words.
        caption: String,
    },
}

/// A flag to give, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What one gets with it: `shortest time`.
    pub what: String,
    /// The flag of `archive`, or the name of what has none.
    pub choice: String,
    /// Why.
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
