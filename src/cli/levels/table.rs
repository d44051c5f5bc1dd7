//! `slotpress levels`: the table of levels, and what follows from it.

use std::time::Duration;

use clap::Args;
use slotpress::levels::codec::FrameCodec;
use slotpress::levels::codec::list::CodecList;
use slotpress::levels::content::{InputKind, MEMORY_BYTES_MAX};
use slotpress::levels::doubts::doubts;
use slotpress::levels::measure::measure_levels;
use slotpress::levels::recommend::recommend;
use slotpress::levels::report::{Section, Subject, json, terminal};
use slotpress::levels::view::LevelsView;
use slotpress::levels::{LevelRow, RepeatOptions, reference_row, view};
use slotpress::machine::LoadWatch;
use slotpress::{Error, Progress, Result};

use super::exports::{ExportArgs, Exports};
use super::input::{CodecArgs, InputArgs, RepeatArgs};
use super::{is_interrupted, print_name};
use crate::cli::ui::Ui;
use crate::cli::values;

/// Flags of the table.
#[derive(Debug, Args)]
pub struct TableArgs {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    codecs: CodecArgs,
    #[command(flatten)]
    repeat: RepeatArgs,
    /// Time for measuring all levels, besides reading the input
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::duration)]
    budget: Duration,
    #[command(flatten)]
    exports: ExportArgs,
}

pub fn run(args: &TableArgs, ui: &Ui) -> Result<()> {
    let mut list = args.codecs.list()?;
    let is_clustered_too = !args.codecs.is_named();
    if is_clustered_too {
        list.add_clustered();
    }
    args.input.check()?;
    let exports = args.exports.files(&args.input.source.path)?;
    let planned = args.input.plan(MEMORY_BYTES_MAX, list.codecs(), ui)?;
    let repeat = args.repeat.options(planned.threads);
    let (input, subject) = args.input.read(planned, ui)?;
    if is_clustered_too && input.kind == InputKind::File {
        list.remove_clustered();
    }
    let levels = values::count_of(list.codecs().len() as u64, "level");
    let budget = values::show_age(args.budget);
    ui.tell(&format!("measuring {levels} for at most {budget} (--budget)"));
    let repeat = RepeatOptions { budget: Some(args.budget), ..repeat };
    let mut screen = Screen::new(&list, subject, exports, ui);
    let codecs = list.measuring_order();
    let result = measure_levels(&input, &codecs, &repeat, ui, &mut |row| screen.row(row)).map(|left| {
        let labels: Vec<String> = left.iter().map(FrameCodec::label).collect();
        if !labels.is_empty() {
            let labels = labels.join(", ");
            ui.warn(&format!("not measured within {budget}: {labels}; give a larger --budget, or a smaller --sample"));
        }
    });
    screen.finish(result)
}

/// Shows rows as they come, and what follows from them.
struct Screen<'a> {
    codec_width: Option<usize>,
    subject: Subject,
    exports: Exports,
    rows: Vec<LevelRow>,
    load: Option<LoadWatch>,
    ui: &'a Ui,
}

impl<'a> Screen<'a> {
    fn new(list: &CodecList, subject: Subject, exports: Exports, ui: &'a Ui) -> Self {
        Self { codec_width: list.width(), subject, exports, rows: Vec::new(), load: LoadWatch::start(), ui }
    }

    fn is_table(&self) -> bool {
        !self.ui.is_json() && !self.ui.is_quiet()
    }

    fn print(&self, lines: Vec<String>) {
        lines.iter().for_each(|line| self.ui.print_verbatim(line));
    }

    fn row(&mut self, row: LevelRow) -> Result<()> {
        self.rows.push(row);
        let (Some(row), Some(reference)) = (self.rows.last(), reference_row(&self.rows)) else { return Ok(()) };
        let (table, columns) = (LevelsView::new(reference, self.codec_width).table(&[row]), self.ui.columns());
        if self.is_table() && self.rows.len() == 1 {
            print_name(&self.subject, self.ui);
            self.print(terminal::header_lines(&table, columns));
        }
        if self.is_table() {
            self.ui.print_verbatim(&terminal::row_line(&table, 0, columns));
        } else if self.ui.is_json() {
            json::lines(&table).iter().for_each(|line| self.ui.print_json(line));
        }
        if let Some(section) = view::section(&self.rows).filter(|_| !self.exports.is_empty()) {
            self.exports.write(&self.subject, &section)?;
        }
        // Results are no longer read, and no file is written.
        if self.ui.is_pipe_broken() && self.exports.is_empty() { Err(Error::interrupted()) } else { Ok(()) }
    }

    /// Warnings and the recommendation; also of what an interruption left.
    fn finish(mut self, result: Result<()>) -> Result<()> {
        if is_interrupted(&result) && self.ui.is_pipe_broken() {
            return Ok(());
        }
        if result.is_err() && !is_interrupted(&result) {
            return result;
        }
        if self.is_table() && self.rows.iter().any(LevelRow::has_waited) {
            self.ui.print(&view::by_cpu_time());
        }
        // Warnings come before the advice that depends on them.
        doubts(&self.rows).iter().for_each(|line| self.ui.warn(line));
        let load = self.load.and_then(|load| load.others());
        if let Some(load) = load {
            self.subject.provenance.push(("load", format!("{load} meanwhile")));
            if let Some(section) = view::section(&self.rows).filter(|_| !self.exports.is_empty()) {
                self.exports.write(&self.subject, &section)?;
            }
            if self.is_table() {
                self.ui.print(&format!("{load} meanwhile"));
            }
        }
        if let Some(mut recommendation) = recommend(&self.rows) {
            recommendation.other_load_cores = load.map(|load| load.used_cores);
            if self.ui.is_json() {
                self.ui.print_json(&recommendation);
            } else if self.is_table() {
                if self.rows.len() > 1 {
                    self.ui.print("");
                }
                let section = Section { blocks: view::conclusion(&recommendation, &self.rows), ..Section::default() };
                self.print(terminal::lines(&section, self.ui.columns()));
            }
        }
        result
    }
}
