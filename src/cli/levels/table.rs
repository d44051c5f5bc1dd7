//! `slotpress levels`: the table of levels, and what follows from it.

use {
    super::{
        frames::default_sizes,
        input::{InputArgs, MEMORY_BYTES_MAX, RepeatArgs},
    },
    crate::{
        ErrorKind,
        cli::{lines, ui::Ui},
        error::{Error, Result},
        levels::{
            LevelRow, REFERENCE_CODEC, REFERENCE_LEVEL, RepeatOptions,
            codec::{FrameCodec, ZstdLevel, label, list::CodecList},
            content::InputKind,
            end_to_end::{EndToEnd, EndToEndOptions},
            export::{
                ExportFile, Format, Subject,
                json::{LevelLine, RecommendationLine},
                page::Page,
                show_bytes,
                table::{self, Shape},
                warnings::warning_lines,
                zstd_style::zstd_line,
            },
            frames::measure::{FramesOptions, PIECES_MAX, UnitChoice, measure_frames},
            input::Input,
            link::report::{LinkQuestion, LinkReport},
            list::LevelList,
            measure::measure_levels,
            measuring_order,
            recommend::{Recommendation, recommend},
            reference_row,
            sizes::{SizeUnit, measure::measure_sizes},
        },
        progress::Progress,
    },
    clap::{Args, ValueEnum},
    std::{path::PathBuf, time::Duration},
};

/// Flags of the table.
#[derive(Debug, Args)]
pub struct TableArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Levels of zstd and ranges: 1-10, or 1,3,-5--1 [default: 1-10]
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    levels: Option<String>,
    /// Codecs to compare, with levels: zstd,lz4,zlib:1,6,9 [default: zstd]
    ///
    /// zstd (levels of --levels, or its own), lz4 (as `archive --format lz4`), zlib (1 to 9; default 1, 6
    /// and 9), bzip2 (1 to 9; 9), none (a copy in memory); where they are built in, lz4hc (3 to 12; 9) and lzo.
    #[arg(long, value_name = "LIST", default_value = "zstd", hide_default_value = true)]
    codec: String,
    #[command(flatten)]
    repeat: RepeatArgs,
    /// Measure whole archives and restores on disk instead
    #[arg(long, conflicts_with = "sample")]
    end_to_end: bool,
    /// Directory for the temporary archives and ledgers of --end-to-end [default: TMPDIR, or /tmp]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Also write the rows as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also write the rows as a Markdown table
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Also write a chart of size against time
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Also write a page with tables and charts, in one file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// How to print the rows
    #[arg(long, value_enum, default_value_t)]
    style: Style,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
enum Style {
    /// A table, and a recommendation
    #[default]
    Table,
    /// Lines as `zstd -b` prints them
    Zstd,
}

pub fn run(args: &TableArgs, ui: &Ui) -> Result<()> {
    let list = codecs(args)?;
    args.input.check()?;
    let exports = exports(args)?;
    let planned = args.input.plan(MEMORY_BYTES_MAX, &list.codecs(), ui)?;
    let repeat = args.repeat.options(planned.threads);
    if args.scratch.is_some() && !args.end_to_end {
        return Err(Error::usage("--scratch goes with --end-to-end").hint("add --end-to-end"));
    }
    if args.end_to_end {
        let options = EndToEndOptions {
            paths: args.input.paths(),
            slot: args.input.source.slot,
            base_slot: args.input.source.base_slot,
            frame_size_bytes: args.input.frame_size,
            scratch_dir: args.scratch.clone().unwrap_or_else(std::env::temp_dir),
            repeat,
        };
        let levels: Vec<i32> = list.entries().iter().map(|(_, level)| *level).collect();
        let levels = measuring_order(&levels);
        let bench = EndToEnd::prepare(&options, ui)?;
        let mut screen = {
            let subject = Subject { provenance: args.input.source.provenance(), ..bench.subject() };
            Screen::new(args.style, Shape::Levels, subject, exports, ui)
        };
        let result = bench.measure(&levels, ui, &mut |row| screen.row(row));
        return screen.finish(result);
    }
    let (input, subject) = args.input.read(planned, ui)?;
    let shape = if list.is_zstd() { Shape::Levels } else { Shape::Codecs };
    let codecs = list.measuring_order().codecs();
    let codecs: Vec<&dyn FrameCodec> = codecs.iter().map(Box::as_ref).collect();
    let mut screen = Screen::new(args.style, shape, subject, exports, ui);
    let result = measure_levels(&input, &codecs, &repeat, ui, &mut |row| screen.row(row))
        .and_then(|()| screen.complete_page(&input, &repeat));
    screen.finish(result)
}

/// What `--codec` and `--levels` ask for.
pub(super) fn codecs_of(codec: &str, levels: Option<&str>) -> Result<CodecList> {
    let zstd_levels: LevelList = levels.unwrap_or(LEVELS_DEFAULT).parse()?;
    let list = CodecList::parse(codec, zstd_levels.levels())?;
    let names_zstd = |item: &str| item.trim() == REFERENCE_CODEC;
    if levels.is_some() && !codec.split(',').any(names_zstd) {
        return Err(Error::usage("--levels are those of zstd, which --codec does not name without levels of its own")
            .hint("give levels behind the codec: --codec zlib:1,9"));
    }
    Ok(list)
}

/// Which codecs, at which levels; refuses what cannot be done with them.
fn codecs(args: &TableArgs) -> Result<CodecList> {
    let list = codecs_of(&args.codec, args.levels.as_deref())?;
    if list.is_zstd() {
        return Ok(list);
    }
    if args.end_to_end {
        return Err(Error::usage("--end-to-end makes archives with zstd").hint("leave out --codec or --end-to-end"));
    }
    if args.style == Style::Zstd {
        return Err(Error::usage("--style zstd prints lines of zstd only").hint("leave out --codec or --style"));
    }
    Ok(list)
}

const LEVELS_DEFAULT: &str = "1-10";

fn exports(args: &TableArgs) -> Result<Vec<ExportFile>> {
    [(Format::Csv, &args.csv), (Format::Markdown, &args.markdown), (Format::Svg, &args.svg), (Format::Html, &args.html)]
        .into_iter()
        .filter_map(|(format, path)| Some((format, path.as_ref()?)))
        .map(|(format, path)| ExportFile::new(format, path, args.input.path()))
        .collect()
}

/// For each of the measurements that only the page shows, since they are many.
const PAGE_TIME: Duration = Duration::from_millis(200);

/// Shows rows as they come, and what follows from them.
struct Screen<'a> {
    style: Style,
    shape: Shape,
    subject: Subject,
    exports: Vec<ExportFile>,
    rows: Vec<LevelRow>,
    ui: &'a Ui,
}

impl<'a> Screen<'a> {
    fn new(style: Style, shape: Shape, subject: Subject, exports: Vec<ExportFile>, ui: &'a Ui) -> Self {
        Self { style, shape, subject, exports, rows: Vec::new(), ui }
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
            table::header_lines(self.shape, reference).iter().for_each(|line| self.ui.print(line));
        }
        match self.style {
            _ if self.ui.is_json() => self.ui.print_json(&LevelLine::new(row, reference)),
            Style::Zstd => self.ui.print(&zstd_line(&self.subject.name, row)),
            Style::Table => self.ui.print(&table::row_line(self.shape, row, reference)),
        }
        for export in &self.exports {
            export.write(&self.subject, &self.rows)?;
        }
        // Nobody reads on, and nothing else is made: there is no use in going on.
        if self.ui.is_pipe_broken() && self.exports.is_empty() { Err(Error::interrupted()) } else { Ok(()) }
    }

    /// Puts everything else that can be measured on the page, where one is asked for.
    fn complete_page(&self, input: &Input, repeat: &RepeatOptions) -> Result<()> {
        let Some(file) = self.exports.iter().find(|export| export.format() == Format::Html) else { return Ok(()) };
        let question = LinkQuestion::usual(self.subject.frame_size_bytes, self.subject.threads);
        let link = LinkReport::new(question, self.subject.total_bytes, &self.rows);
        let mut page = Page { link: Some(&link), ..Page::of_levels(&self.subject, &self.rows) };
        file.write_text(&page.html())?;
        let repeat = RepeatOptions { min_time: repeat.min_time.min(PAGE_TIME), threads: 1, ..*repeat };
        let sizes = match input.kind {
            InputKind::File => None,
            _ => Some(measure_sizes(input, SizeUnit::Record, &ZstdLevel(REFERENCE_LEVEL), &repeat, self.ui)?),
        };
        page.sizes = sizes.as_ref();
        file.write_text(&page.html())?;
        let options = FramesOptions {
            sizes: default_sizes(),
            bundles: vec![1, 2, 5, 10, 175],
            unit: UnitChoice::Any,
            min_time: PAGE_TIME,
            pieces_max: PIECES_MAX,
            first_pass_max: PAGE_TIME * 5,
        };
        let (frames, result) = measure_frames(input, &ZstdLevel(REFERENCE_LEVEL), &options, self.ui);
        page.frames = Some(&frames);
        file.write_text(&page.html())?;
        result
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
        if self.is_table()
            && let Some(line) = table::mark_line(&self.rows)
        {
            self.ui.print(&line);
        }
        // What is doubtful comes before the advice that is built on it.
        warning_lines(&self.rows).iter().for_each(|line| self.ui.warn(line));
        if let Some(recommendation) = recommend(&self.rows) {
            if self.ui.is_json() {
                self.ui.print_json(&RecommendationLine { recommendation: &recommendation });
            } else if self.is_table() {
                self.print_recommendation(&recommendation);
            }
        }
        result
    }

    fn print_recommendation(&self, recommendation: &Recommendation) {
        let Recommendation { shortest_time, smallest_size, knee, others } = recommendation;
        if let [_] = self.rows.as_slice() {
            // There is nothing to choose from.
            let estimate = self.estimate(|_| true);
            if !estimate.is_empty() {
                self.ui.print(estimate.trim_start_matches("; "));
            }
            return;
        }
        self.ui.print("");
        for (what, choice) in
            [("shortest time", shortest_time), ("smallest size", smallest_size), ("best of both", knee)]
        {
            let text = format!("{}{}", choice.reason, self.estimate(|row| choice.is_of(row)));
            print_wrapped(self.ui, &format!("{what:<13}  {}: ", choice.flag()), &text);
        }
        for other in others {
            print_wrapped(self.ui, &format!("no archive     {}: ", label(&other.codec, other.level)), &other.reason);
        }
    }

    /// For a sample: the size of the whole.
    fn estimate(&self, is_wanted: impl Fn(&LevelRow) -> bool) -> String {
        let row = self.rows.iter().find(|row| is_wanted(row));
        let Some((bytes, error)) = row.and_then(|row| Some((row.estimated_output_bytes?, row.size_error_percent?)))
        else {
            return String::new();
        };
        format!("; the whole becomes {} +- {error:.1} %", show_bytes(bytes))
    }
}

/// Prints lines of at most 80 characters; the ones after the first are indented below the text.
fn print_wrapped(ui: &Ui, label: &str, text: &str) {
    wrap(label, text).iter().for_each(|line| ui.print(line));
}

/// Lines of at most 80 characters; the ones after the first are indented below the text.
pub(super) fn wrap(label: &str, text: &str) -> Vec<String> {
    lines::wrap(label, text, 80)
}
