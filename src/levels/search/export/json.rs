//! JSON lines: every setting as soon as it was tried, then the points, then one line about the search. Field names are
//! stable.

use {
    super::in_order,
    crate::levels::search::{Outcome, Settings, Tried, Variant, judge::Point, layout_name, space::Space},
    serde::Serialize,
};

#[derive(Debug, Serialize)]
struct VariantFields {
    layout: &'static str,
    level: Option<i32>,
    zstd_params: Option<String>,
    preset: Option<&'static str>,
    flags: String,
}

impl VariantFields {
    fn new(variant: &Variant, space: &Space) -> Self {
        let (level, zstd_params) = match variant.settings {
            Settings::Level(level) => (Some(level), None),
            Settings::Params(params) => (None, Some(params.to_flag())),
        };
        Self {
            layout: layout_name(variant.layout),
            level,
            zstd_params,
            preset: variant.preset(space),
            flags: variant.flags(space),
        }
    }
}

/// A setting that was tried.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "search_tried")]
pub struct TriedLine {
    number: u64,
    #[serde(flatten)]
    variant: VariantFields,
    frames: usize,
    input_bytes: u64,
    output_bytes: u64,
    cpu_seconds: f64,
}

impl TriedLine {
    /// The line of a setting.
    pub fn new(tried: &Tried, space: &Space) -> Self {
        let Tried { variant, number, frames, input_bytes, output_bytes, cpu_seconds, .. } = *tried;
        Self { number, variant: VariantFields::new(&variant, space), frames, input_bytes, output_bytes, cpu_seconds }
    }
}

#[derive(Debug, Serialize)]
struct BeatenFields {
    level: i32,
    size_percent: f64,
    compress_time_factor: f64,
}

/// A stock level, or settings that hold what they promise.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "search_point")]
pub struct PointLine {
    #[serde(flatten)]
    variant: VariantFields,
    is_stock: bool,
    input_bytes: u64,
    output_bytes: u64,
    size_percent: f64,
    compress_time_factor: f64,
    decompress_time_factor: f64,
    is_on_front: bool,
    beats: Vec<BeatenFields>,
}

impl PointLine {
    fn new(point: &Point, space: &Space) -> Self {
        let beats = point.beats.iter().map(|beaten| BeatenFields {
            level: beaten.level,
            size_percent: 100.0 * beaten.size_ratio,
            compress_time_factor: beaten.time_ratio,
        });
        Self {
            variant: VariantFields::new(&point.variant, space),
            is_stock: point.variant.stock_level().is_some(),
            input_bytes: point.input_bytes,
            output_bytes: point.output_bytes,
            size_percent: 100.0 * point.size_ratio,
            compress_time_factor: point.time_ratio,
            decompress_time_factor: point.decompress_time_ratio,
            is_on_front: point.is_on_front,
            beats: beats.collect(),
        }
    }
}

/// The lines of all points.
pub fn point_lines(outcome: &Outcome) -> Vec<PointLine> {
    in_order(outcome).into_iter().map(|point| PointLine::new(point, &outcome.space)).collect()
}

/// About the search.
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
mod tests {
    use {super::*, crate::levels::search::export::tests::outcome};

    #[test]
    fn fixed_numbers() {
        let outcome = outcome();
        let tried = Tried {
            variant: outcome.points[4].variant,
            number: 7,
            frames: 2,
            input_bytes: 16_000_000,
            output_bytes: 4_000_000,
            cpu_seconds: 0.25,
            elapsed_seconds: 0.13,
        };
        let mut lines = vec![serde_json::to_string(&TriedLine::new(&tried, &outcome.space)).expect("plain")];
        lines.extend(point_lines(&outcome).iter().map(|line| serde_json::to_string(line).expect("plain")));
        lines.push(serde_json::to_string(&SearchLine::new(&outcome, 3)).expect("plain"));
        insta::assert_snapshot!(lines.join("\n"));
    }
}
