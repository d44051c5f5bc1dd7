//! `slotpress levels`: the table of levels, and what follows from it.

use {
    super::{
        exports::{ExportArgs, Exports},
        frames::default_sizes,
        input::{InputArgs, RepeatArgs},
    },
    crate::{
        cli::ui::Ui,
        levels::{
            LevelRow, REFERENCE_CODEC, REFERENCE_LEVEL, RepeatOptions,
            codec::{FrameCodec, ZstdLevel, list::CodecList},
            content::{InputKind, MEMORY_BYTES_MAX},
            doubts::doubts,
            end_to_end::{EndToEnd, EndToEndOptions},
            frames::{
                bundle::UnitChoice,
                measure::{FramesOptions, PIECES_MAX, measure_frames},
                view as frames_view,
            },
            input::Input,
            link::{question::LinkQuestion, report::LinkReport, view as link_view},
            list::LevelList,
            measure::measure_levels,
            measuring_order, picture,
            recommend::{Recommendation, recommend},
            reference_row,
            report::{Block, Section, Subject, html, json, terminal},
            sizes::{SizeUnit, measure::measure_sizes, view as sizes_view},
            view::{self, LevelsView},
            zstd_style::zstd_line,
        },
    },
    clap::{Args, ValueEnum},
    slotpress_base::{
        error::{Error, ErrorKind, Result},
        progress::Progress,
    },
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
    /// and 9), bzip2 (1 to 9; 9), none (a copy in memory); where it is built in, lz4hc (3 to 12; 9).
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
    #[command(flatten)]
    exports: ExportArgs,
    /// Also write a chart of size against time
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
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
    let exports = args.exports.files(&args.svg, args.input.path())?;
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
            Screen::new(args.style, false, subject, exports, ui)
        };
        let result = bench.measure(&levels, ui, &mut |row| screen.row(row));
        return screen.finish(result);
    }
    let (input, subject) = args.input.read(planned, ui)?;
    let has_codecs = !list.is_zstd();
    let codecs = list.measuring_order().codecs();
    let codecs: Vec<&dyn FrameCodec> = codecs.iter().map(Box::as_ref).collect();
    let mut screen = Screen::new(args.style, has_codecs, subject, exports, ui);
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
        return Err(Error::usage("--levels applies to zstd, but --codec has no zstd without its own levels")
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

/// For each of the measurements that only the page shows, since they are many.
const PAGE_TIME: Duration = Duration::from_millis(200);

/// Shows rows as they come, and what follows from them.
struct Screen<'a> {
    style: Style,
    has_codecs: bool,
    subject: Subject,
    exports: Exports,
    rows: Vec<LevelRow>,
    ui: &'a Ui,
}

impl<'a> Screen<'a> {
    fn new(style: Style, has_codecs: bool, subject: Subject, exports: Exports, ui: &'a Ui) -> Self {
        Self { style, has_codecs, subject, exports, rows: Vec::new(), ui }
    }

    fn is_table(&self) -> bool {
        self.style == Style::Table && !self.ui.is_json() && !self.ui.is_quiet()
    }

    fn row(&mut self, row: LevelRow) -> Result<()> {
        self.rows.push(row);
        let (Some(row), Some(reference)) = (self.rows.last(), reference_row(&self.rows)) else { return Ok(()) };
        let (table, columns) = (LevelsView::new(reference, self.has_codecs).table(&[row]), self.ui.columns());
        if self.is_table() && self.rows.len() == 1 {
            self.ui.print(&self.subject.name);
            self.ui.print(&format!("  {}", self.subject.describe()));
            terminal::header_lines(&table, columns).iter().for_each(|line| self.ui.print_verbatim(line));
        }
        match self.style {
            _ if self.ui.is_json() => json::lines(&table).iter().for_each(|line| self.ui.print_json(line)),
            _ if self.ui.is_quiet() => {}
            Style::Zstd => self.ui.print(&zstd_line(&self.subject.name, row)),
            Style::Table => {
                terminal::row_lines(&table, 0, columns).iter().for_each(|line| self.ui.print_verbatim(line))
            }
        }
        if let Some(section) = view::section(&self.rows).filter(|_| !self.exports.is_empty()) {
            self.exports.write(&self.subject, &section, || picture::svg(&self.subject, &self.rows))?;
        }
        // Nobody reads on, and nothing else is made: there is no use in going on.
        if self.ui.is_pipe_broken() && self.exports.is_empty() { Err(Error::interrupted()) } else { Ok(()) }
    }

    /// Puts everything else that can be measured on the page, where one is asked for.
    fn complete_page(&self, input: &Input, repeat: &RepeatOptions) -> Result<()> {
        let Some(file) = self.exports.page() else { return Ok(()) };
        let question = LinkQuestion::usual(self.subject.frame_size_bytes, self.subject.threads);
        let link = LinkReport::new(question, self.subject.total_bytes, &self.rows);
        let mut sections: Vec<Section> = view::section(&self.rows).into_iter().collect();
        if self.rows.len() > 1 {
            sections.push(link_view::section(&link));
        }
        let write = |sections: &[Section]| file.write_text(&html::page(&self.subject, sections));
        write(&sections)?;
        let repeat = RepeatOptions { min_time: repeat.min_time.min(PAGE_TIME), threads: 1, ..*repeat };
        if input.kind != InputKind::File {
            let sizes = measure_sizes(input, SizeUnit::Record, &ZstdLevel(REFERENCE_LEVEL), &repeat, self.ui)?;
            sections.push(sizes_view::section(&sizes));
            write(&sections)?;
        }
        let options = FramesOptions {
            sizes: default_sizes(),
            bundles: vec![1, 2, 5, 10, 175],
            unit: UnitChoice::Any,
            min_time: PAGE_TIME,
            pieces_max: PIECES_MAX,
            first_pass_max: PAGE_TIME * 5,
        };
        let (frames, result) = measure_frames(input, &ZstdLevel(REFERENCE_LEVEL), &options, self.ui);
        if !frames.sizes.is_empty() {
            sections.push(frames_view::section(&frames));
            write(&sections)?;
        }
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
        if self.is_table() && self.rows.iter().any(LevelRow::has_waited) {
            self.ui.print(&view::by_cpu_time());
        }
        // What is doubtful comes before the advice that is built on it.
        doubts(&self.rows).iter().for_each(|line| self.ui.warn(line));
        if let Some(recommendation) = recommend(&self.rows) {
            if self.ui.is_json() {
                self.ui.print_json(&recommendation);
            } else if self.is_table() {
                self.print_recommendation(&recommendation);
            }
        }
        result
    }

    fn print_recommendation(&self, recommendation: &Recommendation) {
        let blocks = match self.rows.as_slice() {
            // There is nothing to choose from.
            [_] => {
                let estimate = view::estimate(&self.rows, |_| true);
                let text = estimate.trim_start_matches("; ").to_string();
                vec![Block::Text(Some(text).filter(|text| !text.is_empty()).into_iter().collect())]
            }
            rows => {
                self.ui.print("");
                vec![Block::Advice(view::advice(recommendation, rows))]
            }
        };
        let section = Section { blocks, ..Section::default() };
        terminal::lines(&section, self.ui.columns()).iter().for_each(|line| self.ui.print_verbatim(line));
    }
}
