//! The result of a `levels` command: tables, a chart, sentences, advice.

use serde::Serialize;
use slotpress::{Error, Result};

use super::chart::Chart;
use crate::cli::tables::{JsonLine, Table, wrap};

#[derive(Debug, Default)]
pub struct LevelsReport {
    pub facts: Vec<String>,
    pub chart: Option<Chart>,
    pub tables: Vec<Table>,
    /// Sentences for the page. On the terminal, the command prints them itself.
    pub warnings: Vec<String>,
    pub advice: Vec<Advice>,
}

#[derive(Debug, Serialize)]
pub struct Advice {
    /// The goal, for example `shortest time`.
    pub goal: String,
    /// The flags of `archive`, or the name of a codec that `archive` does not have.
    pub choice: String,
    pub reason: String,
}

impl LevelsReport {
    /// Lays out the report for a terminal, without warnings.
    pub fn lines(&self, columns: usize) -> Vec<String> {
        let wrap_all = |sentences: &[String]| sentences.iter().flat_map(|sentence| wrap(sentence, columns)).collect();
        let mut blocks: Vec<Vec<String>> = vec![wrap_all(&self.facts)];
        blocks.extend(self.tables.iter().map(|table| table.lines(columns)));
        let advice = self.advice.iter().map(|Advice { goal, choice, reason }| format!("{goal}: {choice}: {reason}"));
        blocks.push(wrap_all(&advice.collect::<Vec<_>>()));
        blocks.retain(|block| !block.is_empty());
        blocks.join(&String::new())
    }

    pub fn csv(&self) -> Result<String> {
        let rows: Vec<Vec<(String, String)>> =
            self.tables.iter().flat_map(Table::json_lines).map(JsonLine::flatten).collect();
        let mut writer = csv::Writer::from_writer(Vec::new());
        let csv_error = |error: csv::Error| Error::failed(format!("comma-separated values cannot be made: {error}"));
        writer.write_record(rows.iter().take(1).flatten().map(|(name, _)| name)).map_err(csv_error)?;
        for row in &rows {
            writer.write_record(row.iter().map(|(_, value)| value)).map_err(csv_error)?;
        }
        let bytes = writer.into_inner().map_err(|error| Error::failed(error.to_string()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
