//! What follows from numbers: which candidates promise to beat a level, and which of those promises hold. Pure.

use {
    super::{Variant, front::front, measure::Pass},
    crate::levels::statistics::median,
};

/// A contestant on the frames that were searched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// What it is.
    pub variant: Variant,
    /// Bytes of the frames.
    pub output_bytes: u64,
    /// What they took.
    pub cpu_seconds: f64,
    /// And by the clock, with all workers.
    pub elapsed_seconds: f64,
}

/// Settings that promise to beat levels.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The settings.
    pub variant: Variant,
    /// The levels.
    pub levels: Vec<i32>,
}

/// A candidate must be faster by this much in its one run to be worth a check; times of one run differ by about that.
const TIME_MARGIN: f64 = 0.01;

/// No more settings than this are checked.
pub const CLAIMS_MAX: usize = 16;

/// The candidates that are worth a check: for each level, the fastest one that is no larger, the smallest one that is
/// no slower, and the one that saves most of both.
pub fn claims(stock: &[Found], candidates: &[Found]) -> Vec<Claim> {
    let promises = |candidate: &Found, level: &Found| {
        candidate.output_bytes <= level.output_bytes && candidate.cpu_seconds <= level.cpu_seconds * (1.0 - TIME_MARGIN)
    };
    let size = |found: &Found| found.output_bytes as f64;
    let orders: [fn(&Found) -> f64; 3] = [
        |found| found.cpu_seconds,
        |found| found.output_bytes as f64,
        |found| found.output_bytes as f64 * found.cpu_seconds,
    ];
    let mut picked: Vec<&Found> = Vec::new();
    // What is best in one way for every level comes before what is second.
    for order in orders {
        for level in stock {
            let best = candidates
                .iter()
                .filter(|candidate| promises(candidate, level))
                .min_by(|a, b| order(a).total_cmp(&order(b)).then(size(a).total_cmp(&size(b))));
            if let Some(best) = best
                && !picked.iter().any(|known| known.variant == best.variant)
            {
                picked.push(best);
            }
        }
    }
    picked.truncate(CLAIMS_MAX);
    let levels = |candidate: &Found| {
        stock
            .iter()
            .filter(|level| promises(candidate, level))
            .filter_map(|level| level.variant.stock_level())
            .collect()
    };
    picked.into_iter().map(|candidate| Claim { variant: candidate.variant, levels: levels(candidate) }).collect()
}

/// A level that settings beat on frames that were not searched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beaten {
    /// The level.
    pub level: i32,
    /// Size against the level's.
    pub size_ratio: f64,
    /// CPU time against the level's in the same round: the median of the rounds.
    pub time_ratio: f64,
}

/// A contestant on the frames that were not searched.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// What it is.
    pub variant: Variant,
    /// Bytes of the frames, before and after.
    pub input_bytes: u64,
    /// As it says.
    pub output_bytes: u64,
    /// Size against that of the reference, the first stock level.
    pub size_ratio: f64,
    /// CPU time against the reference's in the same round: the median of the rounds.
    pub time_ratio: f64,
    /// The same of decompressing.
    pub decompress_time_ratio: f64,
    /// Levels that it beats; never empty unless it is a stock level.
    pub beats: Vec<Beaten>,
    /// Whether no other point beats it.
    pub is_on_front: bool,
}

/// A claim about time holds when it did in so many of four rounds.
const ROUNDS_OF_FOUR: usize = 3;

/// What holds of the claims. `rounds` has the passes of all contestants for each round: the stock levels first, in
/// order, then the claims'. The first stock level is the reference.
pub fn judge(stock: &[i32], claims: &[Claim], input_bytes: u64, rounds: &[Vec<Pass>]) -> Vec<Point> {
    let variants: Vec<Variant> =
        stock.iter().map(|level| Variant::stock(*level)).chain(claims.iter().map(|claim| claim.variant)).collect();
    let Some(sizes) = rounds.first() else { return Vec::new() };
    let size_ratio =
        |at: usize, other: usize| sizes[at].output_bytes as f64 / (sizes[other].output_bytes as f64).max(1.0);
    let ratios = |at: usize, other: usize, seconds: fn(&Pass) -> f64| -> Vec<f64> {
        rounds.iter().map(|round| seconds(&round[at]) / seconds(&round[other]).max(1e-9)).collect()
    };
    let mut points = Vec::new();
    for (at, variant) in variants.into_iter().enumerate() {
        let claimed = at.checked_sub(stock.len()).map(|number| claims[number].levels.as_slice());
        let mut beats = Vec::new();
        for level in claimed.unwrap_or_default() {
            let Some(other) = stock.iter().position(|known| known == level) else { continue };
            let times = ratios(at, other, |pass| pass.cpu_seconds);
            let held = times.iter().filter(|ratio| **ratio <= 1.0).count();
            let is_faster = held * 4 >= times.len() * ROUNDS_OF_FOUR && median(&times) <= 1.0;
            let (size_ratio, time_ratio) = (size_ratio(at, other), median(&times));
            if is_faster && size_ratio <= 1.0 && (size_ratio < 1.0 || time_ratio < 1.0) {
                beats.push(Beaten { level: *level, size_ratio, time_ratio });
            }
        }
        if claimed.is_some() && beats.is_empty() {
            continue;
        }
        points.push(Point {
            variant,
            input_bytes,
            output_bytes: sizes[at].output_bytes,
            size_ratio: size_ratio(at, 0),
            time_ratio: median(&ratios(at, 0, |pass| pass.cpu_seconds)),
            decompress_time_ratio: median(&ratios(at, 0, |pass| pass.decompress_cpu_seconds)),
            beats,
            is_on_front: false,
        });
    }
    let places: Vec<(f64, f64)> = points.iter().map(|point| (point.output_bytes as f64, point.time_ratio)).collect();
    for at in front(&places) {
        points[at].is_on_front = true;
    }
    points
}

#[cfg(test)]
mod tests {
    use {
        super::*,
        crate::{
            archive::layout::RecordLayout,
            levels::search::{
                Settings,
                front::beats,
                space::{LEVELS, Params},
            },
        },
        proptest::prelude::*,
    };

    fn variant(number: u32) -> Variant {
        let Params(mut values) = LEVELS[0];
        values[5] = number;
        Variant { layout: RecordLayout::Verbatim, settings: Settings::Params(Params(values)) }
    }

    fn pass(output_bytes: u64, cpu_seconds: f64) -> Pass {
        Pass { output_bytes, cpu_seconds, elapsed_seconds: 1.0, decompress_cpu_seconds: 0.1 }
    }

    #[test]
    fn claims_that_do_not_hold_are_left_out() {
        let claims =
            [Claim { variant: variant(1), levels: vec![1, 3] }, Claim { variant: variant(2), levels: vec![3] }];
        // Levels 1 and 3; the first candidate is faster than 1 in two rounds of four only, the second is larger than 3.
        let round = |first: f64| vec![pass(100, 1.0), pass(90, 2.0), pass(89, first), pass(91, 0.5)];
        let points = judge(&[1, 3], &claims, 400, &[round(0.9), round(1.1), round(0.9), round(1.1)]);
        let shown: Vec<_> = points.iter().map(|point| (point.variant, point.beats.len(), point.is_on_front)).collect();
        assert_eq!(shown, [(Variant::stock(1), 0, false), (Variant::stock(3), 0, false), (variant(1), 1, true)]);
        assert_eq!(points[2].beats[0].level, 3);
        assert_eq!((points[2].size_ratio, points[2].time_ratio), (0.89, 1.0));
        assert!(judge(&[1], &[], 0, &[]).is_empty());
    }

    #[test]
    fn what_is_worth_a_check() {
        let found = |variant, output_bytes, cpu_seconds| Found {
            variant,
            output_bytes,
            cpu_seconds,
            elapsed_seconds: cpu_seconds,
        };
        let stock = [found(Variant::stock(1), 100, 1.0), found(Variant::stock(3), 90, 2.0)];
        let candidates = [
            found(variant(1), 100, 0.8),
            found(variant(2), 99, 0.9),
            found(variant(3), 89, 1.5),
            found(variant(4), 120, 0.1),
            found(variant(5), 100, 0.995),
        ];
        let claims = claims(&stock, &candidates);
        let shown: Vec<_> = claims.into_iter().map(|claim| (claim.variant, claim.levels)).collect();
        assert_eq!(shown, [(variant(1), vec![1]), (variant(3), vec![3]), (variant(2), vec![1])]);
    }

    proptest! {
        /// Whatever is shown beats a level by the numbers of most rounds, and what is on the front is not beaten.
        #[test]
        fn what_is_shown_holds(
            sizes in proptest::collection::vec(1u64..50, 6),
            times in proptest::collection::vec(proptest::collection::vec(0.1f64..9.0, 6), 3..8),
        ) {
            let claims: Vec<Claim> = (1..5).map(|number| Claim { variant: variant(number), levels: vec![1, 2] }).collect();
            let rounds: Vec<Vec<Pass>> = times
                .iter()
                .map(|times| times.iter().zip(&sizes).map(|(time, size)| pass(*size, *time)).collect())
                .collect();
            let points = judge(&[1, 2], &claims, 100, &rounds);
            for point in &points {
                prop_assert_eq!(point.beats.is_empty(), point.variant.stock_level().is_some());
                prop_assert!(point.beats.iter().all(|beaten| beaten.size_ratio <= 1.0 && beaten.time_ratio <= 1.0));
                let is_beaten = points.iter().any(|other| beats(
                    (other.output_bytes as f64, other.time_ratio),
                    (point.output_bytes as f64, point.time_ratio),
                ));
                prop_assert!(!(point.is_on_front && is_beaten));
            }
        }
    }
}
