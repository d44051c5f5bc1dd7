//! `slotpress levels search`: settings that beat the stock levels on one's own data.

use {
    super::{
        exports::ExportArgs,
        input::{InputArgs, seconds},
        show,
    },
    crate::{
        archive::layout::RecordLayout,
        cli::ui::Ui,
        levels::{
            codec::list::CodecList,
            list::LevelList,
            report::json,
            search::{
                SearchOptions, picture, search,
                space::{LEVELS, Space},
                view,
            },
        },
    },
    clap::{Args, ValueEnum},
    slotpress_base::{
        error::{Error, Result},
        progress::Progress,
    },
    std::{path::PathBuf, time::Duration},
};

/// Flags of the search.
#[derive(Debug, Args)]
pub struct SearchArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Stock levels to beat, 1 to 19: 1-10, or 1,3,5
    #[arg(long, value_name = "LIST", default_value = "1-10")]
    levels: String,
    /// Layout of the records; the stock levels always use verbatim
    #[arg(long, value_enum, default_value_t)]
    layout: LayoutArg,
    /// Time for the search and its check: 60s, 10m, 1h [default: 60s, or none with --evaluations]
    #[arg(long, value_name = "TIME", value_parser = budget)]
    budget: Option<Duration>,
    /// Number of settings to try; the same --seed tries the same settings
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    evaluations: Option<u64>,
    #[command(flatten)]
    exports: ExportArgs,
    /// Also write a chart of size against CPU time
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum LayoutArg {
    /// As in the ledger
    #[default]
    Verbatim,
    /// Ordered for compression
    Clustered,
    /// Both, in turn
    Both,
}

impl LayoutArg {
    fn layouts(self) -> Vec<RecordLayout> {
        match self {
            Self::Verbatim => vec![RecordLayout::Verbatim],
            Self::Clustered => vec![RecordLayout::Clustered],
            Self::Both => vec![RecordLayout::Verbatim, RecordLayout::Clustered],
        }
    }
}

/// Enough for a few hundred fast settings on one ledger's sample.
const BUDGET_DEFAULT: Duration = Duration::from_secs(60);

/// Frames in a sample, for each worker, and at least: half of them are searched, half held out.
const FRAMES_PER_WORKER: u64 = 4;
const FRAMES_MIN: u64 = 16;

pub fn run(args: &SearchArgs, ui: &Ui) -> Result<()> {
    let levels: LevelList = args.levels.parse()?;
    let levels = levels.levels().to_vec();
    if let Some(level) = levels.iter().find(|level| !(1..=LEVELS.len() as i32).contains(level)) {
        return Err(Error::usage(format!("level {level} is not searched: levels are 1 to {}", LEVELS.len())));
    }
    args.input.check()?;
    let exports = args.exports.files(&args.svg, args.input.path())?;
    let budget = args.budget.or(args.evaluations.is_none().then_some(BUDGET_DEFAULT));
    let frames = (args.input.threads_asked() as u64 * FRAMES_PER_WORKER).max(FRAMES_MIN);
    let codecs = CodecList::parse("zstd", &levels)?.codecs();
    let planned = args.input.plan(args.input.frame_size.saturating_mul(frames), &codecs, ui)?;
    let (input, subject) = args.input.read(planned, ui)?;
    let options = SearchOptions {
        levels,
        layouts: args.layout.layouts(),
        seed: args.input.source.seed,
        evaluations_max: args.evaluations,
        budget,
        threads: planned.threads,
    };
    let space = Space::new(args.input.frame_size, f64::INFINITY);
    let outcome = search(&input, &options, ui, &mut |tried| {
        if ui.is_json() {
            json::lines(&view::tried_table(&tried, &space)).iter().for_each(|line| ui.print_json(line));
        }
        Ok(())
    })?;
    let section = view::section(&outcome, args.input.source.seed);
    show(&section, &subject, ui);
    if ui.is_json() {
        ui.print_json(&view::SearchLine::new(&outcome, args.input.source.seed));
    }
    if let Some(text) = view::left_out(&outcome) {
        ui.warn(&text);
    }
    if outcome.points.is_empty() && !outcome.is_interrupted {
        let unwritten = if exports.is_empty() { "" } else { ", and no file was written" };
        return Err(Error::failed(format!("the budget ended before anything was checked{unwritten}"))
            .hint("give a larger --budget, a smaller --sample or fewer --levels"));
    }
    if !outcome.points.is_empty() {
        exports.write(&subject, &section, || picture::svg(&subject, &outcome))?;
    }
    if outcome.is_interrupted { Err(Error::interrupted()) } else { Ok(()) }
}

/// Reads `60s`, `10m`, `1h`; a plain number is seconds.
fn budget(text: &str) -> Result<Duration, String> {
    let (number, factor) = match text.trim().strip_suffix(['s', 'm', 'h']) {
        Some(number) if text.trim().ends_with('m') => (number, 60.0),
        Some(number) if text.trim().ends_with('h') => (number, 3600.0),
        Some(number) => (number, 1.0),
        None => (text.trim(), 1.0),
    };
    let wrong = || "a time looks like 60s, 10m or 1h, and is 1 second to a day".to_string();
    let value: f64 = number.trim().parse().map_err(|_| wrong())?;
    match seconds(&(value * factor).to_string()) {
        Ok(time) if time >= Duration::from_secs(1) => Ok(time),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets() {
        let shown = ["60s", "90", "1.5m", "1h", "1"].map(|text| budget(text).map(|time| time.as_secs()));
        assert_eq!(shown, [Ok(60), Ok(90), Ok(90), Ok(3600), Ok(1)]);
        for text in ["", "s", "0", "0.5s", "-1m", "25h", "1d", "nan", "inf"] {
            assert!(budget(text).is_err(), "{text}");
        }
    }
}
