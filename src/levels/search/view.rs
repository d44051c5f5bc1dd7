//! The view of a search: stock levels, and the settings that beat them.

use {
    super::{Outcome, Settings, Tried, Variant, judge::Point, layout_name, picture, space::Space},
    crate::levels::report::{
        Block, Column, Section, Table, Unit, Value,
        table::{Emphasis, TableOf},
    },
    serde::Serialize,
    slotpress_base::quantity,
};

/// All that is known.
pub fn section(outcome: &Outcome, seed: u64) -> Section {
    let Outcome { searched_frames, held_out_frames, tried, tried_in_full, .. } = outcome;
    let mut blocks = vec![Block::Facts(vec![
        format!(
            "{} searched, {held_out_frames} held out; {} tried, {tried_in_full} in full",
            quantity::count_of(*searched_frames as u64, "frame"),
            quantity::count_of(*tried, "setting"),
        ),
        format!("seed {seed}, {}", quantity::duration(outcome.elapsed)),
    ])];
    if !outcome.points.is_empty() {
        let caption = format!(
            "Further left is faster, further down is smaller. The line joins what nothing beats in both; {}.",
            picture::COLORS
        );
        blocks.push(Block::Chart { svg: picture::in_page(outcome), caption });
        blocks.extend([Block::Table(table(outcome)), Block::Text(below(outcome))]);
    }
    Section { id: "search", heading: "Search", blocks }
}

fn table(outcome: &Outcome) -> Table {
    let rows = outcome.in_order();
    let variant = |point: &Point| point.variant;
    let is_stock = |point: &Point| point.variant.stock_level().is_some();
    let table = Table::of(&rows)
        .kind("search_point")
        .footnote(format!(
            "* nothing shown is both smaller and faster. Size, CPU time to compress (and to cluster) and to restore are \
             against the first level's, on the held-out frames: medians of {} rounds, in each of which all were measured \
             in turn.",
            outcome.rounds
        ))
        .column(Column::on_terminal("", Unit::Text, 1), |point: &Point| point.is_on_front)
        .column(Column::shown("flags", Unit::Code).name("flags", 0), |point| variant(point).flags(&outcome.space))
        .column(Column::named("is_stock"), is_stock);
    variant_fields(table, &outcome.space, variant)
        .column(Column::named("input_bytes"), |point| point.input_bytes)
        .column(Column::named("output_bytes"), |point| point.output_bytes)
        .column(Column::shown("size", Unit::Percent(1)).wide(7).tight().name("size_percent", 3), |point| {
            100.0 * point.size_ratio
        })
        .column(Column::shown("CPU", Unit::Factor).wide(6).name("compress_time_factor", 4), |point| point.time_ratio)
        .column(Column::shown("restore", Unit::Factor).wide(8).name("decompress_time_factor", 4), |point| {
            point.decompress_time_ratio
        })
        .column(Column::named("is_on_front"), |point| point.is_on_front)
        .column(Column::on_terminal("beats", Unit::Text, 9), |point| match is_stock(point) {
            true => "-".to_string(),
            false => show_beats(point),
        })
        .column(Column::shown("beats", Unit::Text).name("beats", 0), |point| {
            let beats: Vec<BeatenFields> = point.beats.iter().map(BeatenFields::from).collect();
            Value::Nested(serde_json::to_value(beats).unwrap_or_default(), show_beats(point))
        })
        .column(Column::shown("front", Unit::Text), |point| point.is_on_front)
        .column(Column::on_terminal("flags", Unit::Code, 0), |point| variant(point).flags(&outcome.space))
        .emphasis(|point| if point.is_on_front { Emphasis::Best } else { Emphasis::Plain })
        .finish("search-table")
}

/// A setting that was tried, as soon as it was.
pub fn tried_table(tried: &Tried, space: &Space) -> Table {
    let rows = [tried];
    let table = Table::of(&rows)
        .kind("search_tried")
        .column(Column::named("number"), |tried: &Tried| tried.number)
        .column(Column::named("flags"), |tried| tried.variant.flags(space));
    variant_fields(table, space, |tried| tried.variant)
        .column(Column::named("frames"), |tried| tried.frames)
        .column(Column::named("input_bytes"), |tried| tried.input_bytes)
        .column(Column::named("output_bytes"), |tried| tried.output_bytes)
        .column(Column::named("cpu_seconds").decimals(6), |tried| tried.cpu_seconds)
        .finish("search-tried")
}

fn variant_fields<'a, R>(table: TableOf<'a, R>, space: &Space, of: impl Fn(&R) -> Variant) -> TableOf<'a, R> {
    table
        .column(Column::named("layout"), |row| layout_name(of(row).layout))
        .column(Column::named("level"), |row| match of(row).settings {
            Settings::Level(level) => Some(level),
            Settings::Params(_) => None,
        })
        .column(Column::named("zstd_params"), |row| match of(row).settings {
            Settings::Level(_) => None,
            Settings::Params(params) => Some(params.to_flag()),
        })
        .column(Column::named("preset"), |row| of(row).preset(space))
}

#[derive(Debug, Serialize)]
struct BeatenFields {
    level: i32,
    size_percent: f64,
    compress_time_factor: f64,
}

impl From<&super::judge::Beaten> for BeatenFields {
    fn from(beaten: &super::judge::Beaten) -> Self {
        Self { level: beaten.level, size_percent: 100.0 * beaten.size_ratio, compress_time_factor: beaten.time_ratio }
    }
}

/// What the numbers are.
fn below(outcome: &Outcome) -> Vec<String> {
    let mut lines = vec![match outcome.claims {
        0 => "No tried setting promised to beat a level.".to_string(),
        claims => format!("Of {claims} claims to beat a level, {} held on the held-out frames.", outcome.claims_held),
    }];
    if outcome.unclustered_frames > 0 {
        lines.push(format!(
            "{} frames begin inside a storage, or hold none: they were not clustered here.",
            outcome.unclustered_frames
        ));
    }
    lines
}

/// Which levels the budget was too short for, and what to do about it.
pub fn left_out(outcome: &Outcome) -> Option<String> {
    // Without any point, that is an error.
    if outcome.is_interrupted || outcome.points.is_empty() {
        return None;
    }
    let levels = show_levels(&outcome.levels_left_out);
    (!levels.is_empty()).then(|| {
        format!("not reached: --levels {levels}; give a larger --budget, a smaller --sample or fewer --levels")
    })
}

/// Levels as a list with ranges: `1,3-5`.
fn show_levels(levels: &[i32]) -> String {
    let mut ranges: Vec<(i32, i32)> = Vec::new();
    for level in levels {
        match ranges.last_mut() {
            Some((_, to)) if *to + 1 == *level => *to = *level,
            _ => ranges.push((*level, *level)),
        }
    }
    let show = |(from, to): (i32, i32)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    ranges.into_iter().map(show).collect::<Vec<_>>().join(",")
}

/// The levels that a point beats.
fn show_beats(point: &Point) -> String {
    show_levels(&point.beats.iter().map(|beaten| beaten.level).collect::<Vec<_>>())
}

/// About the search, as a line of JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "search")]
pub struct SearchLine<'a> {
    seed: u64,
    searched_frames: usize,
    held_out_frames: usize,
    unclustered_frames: usize,
    tried: u64,
    tried_in_full: u64,
    claims: usize,
    claims_held: usize,
    rounds: usize,
    levels_left_out: &'a [i32],
    is_interrupted: bool,
    elapsed_seconds: f64,
}

impl<'a> SearchLine<'a> {
    /// The line of a result.
    pub fn new(outcome: &'a Outcome, seed: u64) -> Self {
        Self {
            seed,
            searched_frames: outcome.searched_frames,
            held_out_frames: outcome.held_out_frames,
            unclustered_frames: outcome.unclustered_frames,
            tried: outcome.tried,
            tried_in_full: outcome.tried_in_full,
            claims: outcome.claims,
            claims_held: outcome.claims_held,
            rounds: outcome.rounds,
            levels_left_out: &outcome.levels_left_out,
            is_interrupted: outcome.is_interrupted,
            elapsed_seconds: outcome.elapsed.as_secs_f64(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use {
        super::*,
        crate::{
            archive::layout::RecordLayout,
            levels::search::{
                Settings, Variant,
                judge::Beaten,
                space::{LEVELS, PRESETS, Params, Space},
            },
        },
        std::time::Duration,
    };

    /// A result with fixed numbers: three levels, and three candidates of which one is not on the front.
    pub(crate) fn outcome() -> Outcome {
        let space = Space::new(8 << 20, 8.0);
        let point = |variant: Variant, output_bytes: u64, time_ratio: f64, beats: &[i32]| Point {
            variant,
            input_bytes: 400_000_000,
            output_bytes,
            size_ratio: output_bytes as f64 / 1e8,
            time_ratio,
            decompress_time_ratio: 0.97,
            beats: beats.iter().map(|level| Beaten { level: *level, size_ratio: 0.98, time_ratio: 0.9 }).collect(),
            is_on_front: true,
        };
        let of = |layout, params: Params| Variant { layout, settings: Settings::Params(params) };
        let long = of(RecordLayout::Clustered, Params([23, 22, 21, 5, 5, 13, 6]));
        let beaten = of(RecordLayout::Verbatim, LEVELS[1]);
        Outcome {
            points: vec![
                Point { is_on_front: false, ..point(Variant::stock(1), 100_000_000, 1.0, &[]) },
                Point { is_on_front: false, ..point(Variant::stock(3), 94_900_000, 1.69, &[]) },
                Point { is_on_front: false, ..point(Variant::stock(10), 91_400_000, 7.2, &[]) },
                point(of(RecordLayout::Verbatim, space.preset(PRESETS[0].1)), 98_700_000, 0.88, &[1]),
                point(long, 90_500_000, 6.4, &[10]),
                Point { is_on_front: false, ..point(beaten, 98_900_000, 0.95, &[1, 2, 3]) },
            ],
            space,
            searched_frames: 8,
            held_out_frames: 8,
            unclustered_frames: 2,
            tried: 143,
            tried_in_full: 61,
            claims: 9,
            claims_held: 5,
            rounds: 7,
            levels_left_out: Vec::new(),
            is_interrupted: false,
            elapsed: Duration::from_millis(58_200),
        }
    }

    #[test]
    fn lists_of_levels() {
        assert_eq!([show_levels(&[]), show_levels(&[1, 3, 4, 5, 7, 8])], ["", "1,3-5,7-8"]);
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut outcome = outcome();
        assert_eq!(left_out(&outcome), None);
        outcome.levels_left_out = vec![9, 10];
        assert!(left_out(&outcome).is_some_and(|text| text.starts_with("not reached: --levels 9-10;")));
        outcome.points.clear();
        assert_eq!(left_out(&outcome), None, "that is an error");
        assert_eq!(section(&outcome, 3).blocks.len(), 1);
    }
}
