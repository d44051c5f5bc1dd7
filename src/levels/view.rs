//! The section of levels and codecs: chart, table, warnings, recommendation.

use slotpress_base::TimeUnit;
use slotpress_base::quantity::{self};

use super::doubts::doubts;
use super::recommend::{Choice, Recommendation, recommend};
use super::report::table::Emphasis;
use super::report::{Advice, Block, Cell, Column, Section, Table, Unit, Value};
use super::{LevelRow, codec_width, in_order, picture, reference_row};
use crate::levels::codec::label;

/// Marks times that are compared by CPU time.
const CPU_MARK: char = '*';

/// The table of rows, compared with a reference.
#[derive(Clone, Copy, Debug)]
pub struct LevelsView<'a> {
    reference: &'a LevelRow,
    /// Show codecs, whose names have at most so many characters, in place of the CPU load, which is the same for all.
    codec_width: Option<usize>,
}

impl<'a> LevelsView<'a> {
    /// Rows of codecs with names of at most `codec_width` characters, or of levels of zstd alone, compared with a reference.
    pub fn new(reference: &'a LevelRow, codec_width: Option<usize>) -> Self {
        Self { reference, codec_width }
    }

    /// The rows, in this order.
    pub fn table(&self, rows: &[&LevelRow]) -> Table {
        let Self { reference, codec_width } = *self;
        let has_codecs = codec_width.is_some();
        let name = match codec_width {
            Some(width) => Column::shown("codec", Unit::Text).wide(width.max(11)),
            None => Column::shown("level", Unit::Text).left(false).wide(5),
        };
        let against = if has_codecs { reference.label() } else { reference.level.to_string() };
        let versus = if has_codecs { "vs".to_string() } else { format!("vs {against}") };
        let load = Column::shown("CPU load", Unit::Percent(0));
        let compress_unit = Unit::TimeIn(TimeUnit::of_column(reference.compress.median));
        let decompress_unit = Unit::TimeIn(TimeUnit::of_column(reference.decompress.median));
        let sign = |row: &LevelRow| row.is_by_cpu_against(reference).then_some(CPU_MARK);
        let is_marked = rows.iter().any(|row| row.is_by_cpu_against(reference));
        Table::of(rows)
            .kind("level")
            .title(if has_codecs { format!("vs: against {against}") } else { String::new() })
            .footnote(if is_marked { by_cpu_time() } else { String::new() })
            .column(Column::named("codec"), |row: &LevelRow| row.codec.clone())
            .column(Column::named("level"), |row| row.level)
            .column(name, |row| match has_codecs {
                true => Value::from(row.label()),
                false => row.level.into(),
            })
            .column(Column::named("input_bytes"), |row| row.input_bytes)
            .column(Column::shown("size", Unit::Bytes).wide(8).name("output_bytes", 0), |row| row.output_bytes)
            .column(Column::shown("ratio", Unit::Ratio).wide(5).spare(4).name("ratio", 4), |row| {
                Cell::from(row.ratio()).with_error(row.size_error_percent)
            })
            .column(
                Column::shown(&format!("size vs {against}"), Unit::Percent(1))
                    .headed(&versus, 6)
                    .tight()
                    .spare(1)
                    .name("size_percent", 3),
                |row| row.size_percent_of(reference),
            )
            .column(
                Column::shown("compress", compress_unit)
                    .headed("time", 7)
                    .group("compress")
                    .name("compress_seconds", 6),
                |row| row.compress.median,
            )
            .column(Column::on_terminal("+-", Unit::Percent(0), 3).tight().spare(7).group("compress"), |row| {
                row.compress.deviation_percent()
            })
            .column(Column::named("compress_seconds_min").decimals(6), |row| row.compress.min)
            .column(Column::named("compress_seconds_max").decimals(6), |row| row.compress.max)
            .column(Column::named("compress_runs"), |row| row.compress.runs)
            .column(
                Column::shown("MiB/s", Unit::Rate).wide(5).spare(5).group("compress"),
                LevelRow::compress_bytes_per_second,
            )
            .column(Column::named("compress_mb_per_second").decimals(2), LevelRow::compress_mb_per_second)
            .column(
                Column::shown(&format!("time vs {against}"), Unit::Factor)
                    .headed(&versus, 5)
                    .spare(3)
                    .group("compress")
                    .name("compress_time_factor", 4),
                |row| Cell::from(row.time_factor_of(reference)).with_sign(sign(row)),
            )
            .column(if has_codecs { load } else { load.headed("CPU", 5).tight().spare(8).group("compress") }, |row| {
                row.cpu_percent
            })
            .column(
                Column::shown("decompress", decompress_unit)
                    .headed("time", 7)
                    .group("decompress")
                    .name("decompress_seconds", 6),
                |row| row.decompress.median,
            )
            .column(Column::named("decompress_seconds_min").decimals(6), |row| row.decompress.min)
            .column(Column::named("decompress_seconds_max").decimals(6), |row| row.decompress.max)
            .column(Column::named("decompress_runs"), |row| row.decompress.runs)
            .column(
                Column::shown("MiB/s", Unit::Rate).wide(5).spare(6).group("decompress"),
                LevelRow::decompress_bytes_per_second,
            )
            .column(Column::named("decompress_mb_per_second").decimals(2), LevelRow::decompress_mb_per_second)
            .column(Column::named("cpu_percent").decimals(1), |row| row.cpu_percent)
            .column(Column::named("decompress_cpu_percent").decimals(1), |row| row.decompress_cpu_percent)
            .column(Column::shown("memory", Unit::Bytes).wide(8).spare(9).name("peak_memory_bytes", 0), |row| {
                row.peak_memory_bytes
            })
            .column(Column::named("size_error_percent").decimals(3), |row| or_absent(row.size_error_percent))
            .column(Column::named("estimated_output_bytes"), |row| or_absent(row.estimated_output_bytes))
            .column(Column::named("warnings"), |row| {
                let texts: Vec<String> = row.warnings.iter().map(ToString::to_string).collect();
                Value::Nested(texts.into(), row.warnings.len().to_string())
            })
            .finish("levels-table")
    }
}

/// The footnote for the mark.
pub fn by_cpu_time() -> String {
    format!("{CPU_MARK} compared by CPU time: workers had to wait for a core (another load runs)")
}

fn or_absent<V: Into<Value>>(value: Option<V>) -> Value {
    value.map_or(Value::Absent, Into::into)
}

/// The section of some rows; `None` if there are none.
pub fn section(rows: &[LevelRow]) -> Option<Section> {
    let reference = reference_row(rows)?;
    let recommendation = recommend(rows);
    let mut table = LevelsView::new(reference, codec_width(rows)).table(&in_order(rows));
    if let Some(recommendation) = recommendation.as_ref().filter(|found| rows.len() > 1 && found.measured_well_enough) {
        for (row, (emphasis, _)) in in_order(rows).into_iter().zip(&mut table.rows) {
            if recommendation.knee.is_of(row) {
                *emphasis = Emphasis::Best;
            }
        }
    }
    let mut blocks = Vec::new();
    if rows.len() > 1 {
        let caption = "Further left is faster, further down is smaller. The line joins what nothing beats in both size and \
                       time; the ring is the best of both. Whiskers reach from the fastest to the slowest run.";
        blocks.push(Block::Chart { svg: picture::picture(rows), caption: caption.to_string() });
    }
    blocks.push(Block::Table(table));
    blocks.push(Block::Doubts(doubts(rows)));
    blocks.extend(recommendation.into_iter().flat_map(|found| conclusion(&found, rows)));
    Some(Section { id: "levels", heading: "Levels", blocks })
}

/// What follows: the recommendation, or of a single row of a sample, the size of the whole.
pub fn conclusion(recommendation: &Recommendation, rows: &[LevelRow]) -> Vec<Block> {
    match rows {
        [row] => estimate(row).map(|text| Block::Text(vec![text])).into_iter().collect(),
        rows => vec![Block::Advice(advice(recommendation, rows))],
    }
}

fn advice(recommendation: &Recommendation, rows: &[LevelRow]) -> Vec<Advice> {
    let Recommendation { shortest_time, smallest_size, knee, others, .. } = recommendation;
    let of = |what: &str, choice: &Choice, flag: String| Advice {
        what: what.to_string(),
        choice: flag,
        reason: match rows.iter().find(|row| choice.is_of(row)).and_then(estimate) {
            Some(estimate) => format!("{}; {estimate}", choice.reason),
            None => choice.reason.clone(),
        },
    };
    let named = [("shortest time", shortest_time), ("smallest size", smallest_size)];
    let named = named.into_iter().map(|(what, choice)| of(what, choice, choice.flag()));
    let best = match recommendation.measured_well_enough {
        true => of("best of both", knee, knee.flag()),
        false => Advice {
            what: "best of both".to_string(),
            choice: "not measured well enough".to_string(),
            reason: format!(
                "single runs give {}; stop other programs, or measure for longer (--min-time 5 --budget 5min)",
                recommendation.knees_of_runs.join(" or ")
            ),
        },
    };
    let others = others.iter().map(|other| of("no archive", other, label(&other.codec, other.level)));
    named.chain([best]).chain(others).collect()
}

/// The size of the whole, if a sample was measured.
fn estimate(row: &LevelRow) -> Option<String> {
    let (bytes, error) = (row.estimated_output_bytes?, row.size_error_percent?);
    Some(format!("the whole becomes {} ± {}", quantity::bytes(bytes), quantity::percent(error)))
}
