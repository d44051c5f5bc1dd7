//! `slotpress levels`

use {
    super::{ui::Ui, values},
    crate::{
        ErrorKind,
        archive::check_frame_size,
        error::{Error, Result},
        levels::{
            LevelRow, RepeatOptions,
            codec::{FrameCodec, ZstdLevel},
            end_to_end::{EndToEnd, EndToEndOptions},
            export::{
                ExportFile, Format, Subject,
                json::{LevelLine, RecommendationLine},
                show_bytes, table,
                zstd_style::zstd_line,
            },
            input::{Input, InputOptions},
            list::LevelList,
            measure::measure_levels,
            measuring_order,
            recommend::{Recommendation, recommend},
            reference_row,
        },
        progress::Progress,
    },
    clap::{Args, ValueEnum},
    std::{
        path::{Path, PathBuf},
        time::Duration,
    },
};

/// Measure what each zstd level costs and saves on your own data, and choose one
///
/// INPUT is a ledger, an archive of any maker, an unpacked archive, or any file. Frames of it are compressed and
/// decompressed in memory, exactly as `archive` and `restore` do, and every level must bring back the same bytes.
#[derive(Debug, Args)]
pub struct LevelsArgs {
    /// A ledger directory, an archive, an unpacked archive, or any file
    input: PathBuf,
    /// Levels and ranges: 1-10, or 1,3,-5--1
    #[arg(long, value_name = "LIST", default_value = "1-10", allow_hyphen_values = true)]
    levels: String,
    /// Worker threads [default: all cores that the process may use]
    #[arg(long, value_name = "N", value_parser = values::threads)]
    threads: Option<usize>,
    /// Runs of each measurement, at least
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: u32,
    /// Seconds for the runs of each measurement, at least
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    min_time: Duration,
    /// Measure a sample of so much, spread evenly over the input, and state its error [default: all, up to 1 GiB]
    #[arg(long, value_name = "SIZE", value_parser = values::size, conflicts_with = "end_to_end")]
    sample: Option<u64>,
    /// What the draws of the sample start from
    #[arg(long, value_name = "N", default_value_t = 0, hide_short_help = true)]
    seed: u64,
    /// Bytes of content in one frame, 64KiB to 32MiB
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = values::size)]
    frame_size: u64,
    /// Make and restore whole archives on disk instead
    #[arg(long)]
    end_to_end: bool,
    /// Where --end-to-end puts archives and ledgers, which it removes [default: the directory for temporary files]
    #[arg(long, value_name = "DIR", requires = "end_to_end")]
    scratch: Option<PathBuf>,
    /// Also write the rows as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also write the rows as a Markdown table
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Also draw size against time
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// How to print the rows
    #[arg(long, value_enum, default_value_t)]
    style: Style,
    /// The bank snapshot of a ledger [default: the newest complete one]
    #[arg(long)]
    slot: Option<u64>,
    /// Take a ledger as its incremental archive on the full archive of this slot
    #[arg(long, value_name = "SLOT")]
    base_slot: Option<u64>,
    /// The validator's --snapshots directory [default: the ledger]
    #[arg(long, value_name = "DIR")]
    snapshots: Option<PathBuf>,
    /// The validator's --accounts paths; may be given more than once [default: LEDGER/accounts]
    #[arg(long, value_name = "DIR")]
    accounts: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
enum Style {
    /// A table, and a recommendation
    #[default]
    Table,
    /// Lines as `zstd -b` prints them
    Zstd,
}

/// What is held in memory unless more is asked for: at 8 MiB frames, a sample of 128, which is within about 1 % of the
/// size of a ledger (docs/levels.md).
const MEMORY_BYTES_MAX: u64 = 1 << 30;

fn seconds(text: &str) -> Result<Duration, String> {
    /// A day: longer is a slip of the keyboard.
    const SECONDS_MAX: f64 = 86_400.0;
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("0 to {SECONDS_MAX} seconds")),
    }
}

pub fn run(args: &LevelsArgs, ui: &Ui) -> Result<()> {
    let list: LevelList = args.levels.parse()?;
    check_frame_size(args.frame_size)?;
    let exports = exports(args)?;
    let levels = measuring_order(list.levels());
    let repeat = RepeatOptions {
        repeat: args.repeat as usize,
        min_time: args.min_time,
        threads: values::threads_or_all(args.threads),
    };
    let paths = values::ledger_paths(&args.input, &args.snapshots, &args.accounts);
    if args.end_to_end {
        let options = EndToEndOptions {
            paths,
            slot: args.slot,
            base_slot: args.base_slot,
            frame_size_bytes: args.frame_size,
            scratch_dir: args.scratch.clone().unwrap_or_else(std::env::temp_dir),
            repeat,
        };
        let bench = EndToEnd::prepare(&options, ui)?;
        let mut screen = Screen::new(args.style, bench.subject(), exports, ui);
        let result = bench.measure(&levels, ui, &mut |row| screen.row(row));
        return screen.finish(result);
    }
    let options = InputOptions {
        paths,
        slot: args.slot,
        base_slot: args.base_slot,
        frame_size_bytes: args.frame_size,
        sample_bytes: args.sample,
        seed: args.seed,
        memory_bytes_max: MEMORY_BYTES_MAX,
        threads: repeat.threads,
    };
    let input = Input::read(&options, ui)?;
    let subject = Subject {
        name: input_name(&args.input),
        kind: input.kind.as_str(),
        total_bytes: input.total_bytes,
        measured_bytes: input.content_bytes(),
        frame_size_bytes: args.frame_size,
        threads: repeat.threads,
        is_end_to_end: false,
    };
    if input.is_sampled() && args.sample.is_none() {
        ui.warn(&format!(
            "the input has {}; a sample of {} is measured (--sample takes another size)",
            show_bytes(subject.total_bytes),
            show_bytes(subject.measured_bytes)
        ));
    }
    let codecs: Vec<ZstdLevel> = levels.into_iter().map(ZstdLevel).collect();
    let codecs: Vec<&dyn FrameCodec> = codecs.iter().map(|codec| codec as &dyn FrameCodec).collect();
    let mut screen = Screen::new(args.style, subject, exports, ui);
    let result = measure_levels(&input, &codecs, &repeat, ui, &mut |row| screen.row(row));
    screen.finish(result)
}

fn exports(args: &LevelsArgs) -> Result<Vec<ExportFile>> {
    [(Format::Csv, &args.csv), (Format::Markdown, &args.markdown), (Format::Svg, &args.svg)]
        .into_iter()
        .filter_map(|(format, path)| Some((format, path.as_ref()?)))
        .map(|(format, path)| ExportFile::new(format, path, &args.input))
        .collect()
}

fn input_name(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    path.file_name().map_or_else(|| "/".to_string(), |name| name.to_string_lossy().into_owned())
}

/// Shows rows as they come, and what follows from them.
struct Screen<'a> {
    style: Style,
    subject: Subject,
    exports: Vec<ExportFile>,
    rows: Vec<LevelRow>,
    ui: &'a Ui,
}

impl<'a> Screen<'a> {
    fn new(style: Style, subject: Subject, exports: Vec<ExportFile>, ui: &'a Ui) -> Self {
        Self { style, subject, exports, rows: Vec::new(), ui }
    }

    fn is_table(&self) -> bool {
        self.style == Style::Table && !self.ui.is_json()
    }

    fn row(&mut self, row: LevelRow) -> Result<()> {
        self.rows.push(row);
        let (Some(row), Some(reference)) = (self.rows.last(), reference_row(&self.rows)) else { return Ok(()) };
        if self.is_table() && self.rows.len() == 1 {
            self.ui.print(&self.subject.name);
            self.ui.print(&format!("  {}", self.subject.describe()));
            table::header_lines(reference.level).iter().for_each(|line| self.ui.print(line));
        }
        match self.style {
            _ if self.ui.is_json() => self.ui.print_json(&LevelLine::new(row, reference)),
            Style::Zstd => self.ui.print(&zstd_line(&self.subject.name, row)),
            Style::Table => self.ui.print(&table::row_line(row, reference)),
        }
        for export in &self.exports {
            export.write(&self.subject, &self.rows)?;
        }
        // Nobody reads on, and nothing else is made: there is no use in going on.
        if self.ui.is_pipe_broken() && self.exports.is_empty() { Err(Error::interrupted()) } else { Ok(()) }
    }

    /// Warnings and the recommendation; also of what an interruption left.
    fn finish(self, result: Result<()>) -> Result<()> {
        let is_interrupted = matches!(&result, Err(error) if error.kind() == ErrorKind::Interrupted);
        if is_interrupted && self.ui.is_pipe_broken() {
            return Ok(());
        }
        if result.is_err() && !is_interrupted {
            return result;
        }
        if let Some(recommendation) = recommend(&self.rows) {
            if self.ui.is_json() {
                self.ui.print_json(&RecommendationLine { recommendation: &recommendation });
            } else if self.is_table() {
                self.print_recommendation(&recommendation);
            }
        }
        self.warn();
        result
    }

    fn print_recommendation(&self, recommendation: &Recommendation) {
        let Recommendation { shortest_time, smallest_size, knee } = recommendation;
        if let [row] = self.rows.as_slice() {
            // There is nothing to choose from.
            let estimate = self.estimate(row.level);
            if !estimate.is_empty() {
                self.ui.print(estimate.trim_start_matches("; "));
            }
            return;
        }
        self.ui.print("");
        for (what, choice) in
            [("shortest time", shortest_time), ("smallest size", smallest_size), ("best of both", knee)]
        {
            let text = format!("{}{}", choice.reason, self.estimate(choice.level));
            print_wrapped(self.ui, &format!("{what}  --zstd-level {}: ", choice.level), &text);
        }
    }

    /// For a sample: the size of the whole.
    fn estimate(&self, level: i32) -> String {
        let row = self.rows.iter().find(|row| row.level == level);
        let Some((bytes, error)) = row.and_then(|row| Some((row.estimated_output_bytes?, row.size_error_percent?)))
        else {
            return String::new();
        };
        format!("; the whole becomes {} +- {error:.1} %", show_bytes(bytes))
    }

    /// Each kind of warning once, with the levels that it is about.
    fn warn(&self) {
        let mut told: Vec<std::mem::Discriminant<_>> = Vec::new();
        for warning in self.rows.iter().flat_map(|row| &row.warnings) {
            let kind = std::mem::discriminant(warning);
            if told.contains(&kind) {
                continue;
            }
            told.push(kind);
            let is_same = |row: &&LevelRow| row.warnings.iter().any(|other| std::mem::discriminant(other) == kind);
            let levels: Vec<String> = self.rows.iter().filter(is_same).map(|row| row.level.to_string()).collect();
            let text = match levels.len() {
                1 => format!("level {}: {warning}", levels[0]),
                count if count == self.rows.len() => format!("all levels: {warning}"),
                _ => format!("levels {}: {warning}", levels.join(", ")),
            };
            self.ui.warn(&text);
        }
    }
}

/// Prints lines of at most 80 characters; the ones after the first are indented below the text.
fn print_wrapped(ui: &Ui, label: &str, text: &str) {
    wrap(label, text).iter().for_each(|line| ui.print(line));
}

fn wrap(label: &str, text: &str) -> Vec<String> {
    const WIDTH: usize = 80;
    let indent = " ".repeat(label.chars().count().min(WIDTH / 2));
    let mut lines = vec![label.to_string()];
    let mut is_line_start = true;
    for word in text.split_whitespace() {
        let length = lines.last().map_or(0, |line| line.chars().count());
        if !is_line_start && length + 1 + word.chars().count() > WIDTH {
            lines.push(indent.clone());
            is_line_start = true;
        }
        if let Some(line) = lines.last_mut() {
            if !is_line_start {
                line.push(' ');
            }
            line.push_str(word);
        }
        is_line_start = false;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_the_screen() {
        let text = "no measured level is smaller (8.0 % smaller than level 1 in 6.78 times its time)".repeat(3);
        let lines = wrap("smallest size  --zstd-level 10: ", &text);
        assert!(lines.len() > 3 && lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
        assert_eq!(wrap("", "two words"), ["two words"]);
        assert_eq!(wrap("label: ", ""), ["label: "]);
    }

    #[test]
    fn times() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "-1", "nan", "inf", "1e99", "x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
