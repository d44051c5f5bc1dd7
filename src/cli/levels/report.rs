//! The result of a `levels` command: tables, a chart, sentences, advice.

use serde::Serialize;
use slotpress::{Error, Result};

use super::chart::Chart;
use crate::cli::tables::{JsonLine, Table, wrapped};

#[derive(Debug, Default)]
pub struct Report {
    pub facts: Vec<String>,
    pub chart: Option<Chart>,
    pub tables: Vec<Table>,
    pub text: Vec<String>,
    /// Shown on pages; on the terminal, the command prints them itself.
    pub warnings: Vec<String>,
    pub advice: Vec<Advice>,
}

#[derive(Debug, Serialize)]
pub struct Advice {
    /// The goal, for example `shortest time`.
    pub what: String,
    /// The flag of `archive`, or the name of a codec that `archive` does not have.
    pub choice: String,
    pub reason: String,
}

impl Report {
    /// Lays out the report for a terminal, without warnings.
    pub fn lines(&self, columns: usize) -> Vec<String> {
        let sentences = |lines: &[String]| lines.iter().flat_map(|line| wrapped(line, columns)).collect();
        let mut blocks: Vec<Vec<String>> = vec![sentences(&self.facts)];
        blocks.extend(self.tables.iter().map(|table| table.lines(columns)));
        let advice = self.advice.iter().map(|Advice { what, choice, reason }| format!("{what}: {choice}: {reason}"));
        blocks.extend([sentences(&self.text), sentences(&advice.collect::<Vec<_>>())]);
        blocks.retain(|block| !block.is_empty());
        blocks.join(&String::new())
    }

    /// Formats the rows as CSV. All types of rows share one header; fields that a type does not
    /// have are empty.
    pub fn csv(&self) -> Result<String> {
        let rows: Vec<Vec<(String, String)>> =
            self.tables.iter().flat_map(Table::json_lines).map(JsonLine::flat).collect();
        let mut header: Vec<&str> = Vec::new();
        for (name, _) in rows.iter().flatten() {
            if !header.contains(&name.as_str()) {
                header.push(name);
            }
        }
        let mut writer = csv::Writer::from_writer(Vec::new());
        let failed = |error: csv::Error| Error::failed(format!("comma-separated values cannot be made: {error}"));
        writer.write_record(&header).map_err(failed)?;
        for row in &rows {
            let value = |name: &&str| row.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value);
            writer.write_record(header.iter().map(value)).map_err(failed)?;
        }
        let bytes = writer.into_inner().map_err(|error| Error::failed(error.to_string()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
