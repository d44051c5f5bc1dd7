//! The settings that are searched: zstd's seven parameters, which of them matter to a strategy, how one leads to
//! another, and about what each costs. Pure.
//!
//! Settings are kept in one form: what has no effect has the value that level 1 gives it, so that settings which make the
//! same frames are the same settings.

use {
    crate::{
        archive::zstd_params::{Preset, ZstdParams},
        levels::search::draws::Draws,
    },
    slotpress_base::error::Result,
    std::fmt::Write,
};

/// The parameters in the order of zstd's own tables, and where each stands.
pub const NAMES: [&str; 7] = ["wlog", "clog", "hlog", "slog", "mml", "tlen", "strat"];
const WLOG: usize = 0;
const CLOG: usize = 1;
const HLOG: usize = 2;
const SLOG: usize = 3;
const MML: usize = 4;
const TLEN: usize = 5;
const STRAT: usize = 6;

const FAST: u32 = 1;
const DFAST: u32 = 2;
const GREEDY: u32 = 3;
const LAZY2: u32 = 5;
const BTLAZY2: u32 = 6;
const BTOPT: u32 = 7;
const BTULTRA2: u32 = 9;

/// One value for each of [`NAMES`]; a strategy is a number from 1 (fast) to 9 (btultra2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Params(pub [u32; 7]);

/// What levels 1 to 19 choose for frames above 256 KiB (zstd 1.5.7, `clevels.h`); a test compares what they make.
pub const LEVELS: [Params; 19] = [
    Params([19, 13, 14, 1, 7, 0, 1]),
    Params([20, 15, 16, 1, 6, 0, 1]),
    Params([21, 16, 17, 1, 5, 0, 2]),
    Params([21, 18, 18, 1, 5, 0, 2]),
    Params([21, 18, 19, 3, 5, 2, 3]),
    Params([21, 18, 19, 3, 5, 4, 4]),
    Params([21, 19, 20, 4, 5, 8, 4]),
    Params([21, 19, 20, 4, 5, 16, 5]),
    Params([22, 20, 21, 4, 5, 16, 5]),
    Params([22, 21, 22, 5, 5, 16, 5]),
    Params([22, 21, 22, 6, 5, 16, 5]),
    Params([22, 22, 23, 6, 5, 32, 5]),
    Params([22, 22, 22, 4, 5, 32, 6]),
    Params([22, 22, 23, 5, 5, 32, 6]),
    Params([22, 23, 23, 6, 5, 32, 6]),
    Params([22, 22, 22, 5, 5, 48, 7]),
    Params([23, 23, 22, 5, 4, 64, 7]),
    Params([23, 23, 22, 6, 3, 64, 8]),
    Params([23, 24, 22, 7, 3, 256, 9]),
];

/// The least content for which levels choose as [`LEVELS`] says.
pub const LEVELS_CONTENT_BYTES_MIN: u64 = 256 * 1024 + 1;

/// Presets by the names that `--preset` knows.
pub const PRESETS: [(&str, Preset); 3] =
    [("fast", Preset::Fast), ("balanced", Preset::Balanced), ("small", Preset::Small)];

impl Params {
    /// As `--zstd-params` takes them: those that have an effect.
    pub fn to_flag(self) -> String {
        let mut text = String::new();
        for at in effective(self.0[STRAT]).iter().chain([&STRAT]) {
            // Writing to a string cannot fail.
            let _ = write!(text, "{}{}={}", if text.is_empty() { "" } else { "," }, NAMES[*at], self.0[*at]);
        }
        // The names of strategies are the parser's.
        ZstdParams::parse(&text).map_or(text, |params| params.to_string())
    }

    /// For the encoder.
    pub fn zstd_params(self) -> Result<ZstdParams> {
        ZstdParams::parse(&self.to_flag())
    }
}

/// Parameters that have an effect on what a strategy makes (zstd 1.5.7): the fast ones look at one place or two, those
/// in between search rows of the hash table, which have no chains.
fn effective(strategy: u32) -> &'static [usize] {
    match strategy {
        FAST => &[WLOG, HLOG, MML, TLEN],
        DFAST => &[WLOG, CLOG, HLOG, MML],
        GREEDY..=LAZY2 => &[WLOG, HLOG, SLOG, MML],
        BTLAZY2 => &[WLOG, CLOG, HLOG, SLOG, MML],
        _ => &[WLOG, CLOG, HLOG, SLOG, MML, TLEN],
    }
}

/// What may be proposed.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// The largest window: what a frame holds, and no more than both clients read.
    window_log_max: u32,
    /// Nothing that is expected to take longer than so many times level 1 is proposed.
    cost_max: f64,
}

/// The largest window that both clients read.
const CLIENT_WINDOW_LOG_MAX: u32 = 25;
/// Rows are searched in windows above this one (2^14 with vector instructions, 2^17 without): the same everywhere.
const WINDOW_LOG_MIN: u32 = 18;
/// A table of 2^24 places takes 64 MiB per worker: what the levels take, and more than pays in frames of at most 32 MiB.
const TABLE_LOG_MAX: u32 = 24;
const TABLE_LOG_MIN: u32 = 12;
/// A row has at most 2^6 places.
const ROW_SEARCH_LOG_MAX: u32 = 6;
const TREE_SEARCH_LOG_MAX: u32 = 8;
/// With the fastest strategy: steps. With the strongest: a length that is good enough.
const STEP_MAX: u32 = 8;
const GOOD_LENGTH_MIN: u32 = 8;
const GOOD_LENGTH_MAX: u32 = 256;

impl Space {
    /// For frames of a size, up to the cost of the strongest level that is to be beaten.
    pub fn new(frame_size_bytes: u64, cost_max: f64) -> Self {
        let frame_log = frame_size_bytes.max(2).next_power_of_two().trailing_zeros();
        Self { window_log_max: frame_log.clamp(WINDOW_LOG_MIN, CLIENT_WINDOW_LOG_MAX), cost_max }
    }

    /// Within the ranges, and in the one form that settings have.
    pub fn canonical(&self, params: Params) -> Params {
        let Params([wlog, clog, hlog, slog, mml, tlen, strat]) = params;
        let strat = strat.clamp(FAST, BTULTRA2);
        let wlog = wlog.clamp(WINDOW_LOG_MIN, self.window_log_max);
        // zstd makes no larger tables than the window has use for.
        let table = |log: u32, max: u32| log.clamp(TABLE_LOG_MIN, TABLE_LOG_MAX.min(max));
        let clog_max = if strat >= BTLAZY2 { wlog + 1 } else { wlog };
        let (slog_max, mml_min, mml_max) = match strat {
            FAST | DFAST => (1, 4, 7),
            GREEDY..=LAZY2 => (ROW_SEARCH_LOG_MAX, 4, 6),
            BTLAZY2 => (TREE_SEARCH_LOG_MAX, 4, 6),
            _ => (TREE_SEARCH_LOG_MAX, 3, 6),
        };
        let stock = LEVELS[0].0;
        let has = |at: usize| effective(strat).contains(&at);
        Params([
            wlog,
            if has(CLOG) { table(clog, clog_max) } else { stock[CLOG] },
            table(hlog, wlog + 1),
            if has(SLOG) { slog.clamp(1, slog_max) } else { stock[SLOG] },
            mml.clamp(mml_min, mml_max),
            match strat {
                FAST => tlen.min(STEP_MAX),
                BTOPT.. => tlen.clamp(GOOD_LENGTH_MIN, GOOD_LENGTH_MAX),
                _ => stock[TLEN],
            },
            strat,
        ])
    }

    /// Whether these may be proposed.
    pub fn allows(&self, params: Params) -> bool {
        self.canonical(params) == params && cost(params) <= self.cost_max
    }

    /// What a preset means.
    pub fn preset(&self, preset: Preset) -> Params {
        let (level, text) = preset.level_and_params();
        let mut params = LEVELS[level.clamp(1, LEVELS.len() as i32) as usize - 1];
        for (name, value) in text.split(',').filter_map(|pair| pair.split_once('=')) {
            if let Some(at) = NAMES.iter().position(|known| *known == name) {
                let value = value.parse().ok().or_else(|| strategy_number(value));
                params.0[at] = value.unwrap_or(params.0[at]);
            }
        }
        self.canonical(params)
    }

    /// A step from these: one or two parameters changed a little, or the strategy beside.
    pub fn step(&self, params: Params, draws: &mut Draws) -> Params {
        let mut next = params;
        if draws.one_in(8) {
            let strat = if draws.one_in(2) { params.0[STRAT] + 1 } else { params.0[STRAT].saturating_sub(1) };
            next.0[STRAT] = strat.clamp(FAST, BTULTRA2);
            // What had no effect before starts where the first level of that strategy has it.
            let level = LEVELS.iter().find(|level| level.0[STRAT] == next.0[STRAT]).unwrap_or(&LEVELS[0]);
            for at in effective(next.0[STRAT]) {
                if !effective(params.0[STRAT]).contains(at) || *at == TLEN {
                    next.0[*at] = level.0[*at];
                }
            }
            return self.canonical(next);
        }
        let changes = if draws.one_in(4) { 2 } else { 1 };
        for _ in 0..changes {
            let places = effective(params.0[STRAT]);
            let at = places[draws.below(places.len() as u64) as usize];
            let by = if draws.one_in(4) { 2 } else { 1 };
            let is_up = draws.one_in(2);
            let value = next.0[at];
            next.0[at] = match (at == TLEN && params.0[STRAT] >= BTOPT, is_up) {
                (true, true) => value << by,
                (true, false) => value >> by,
                (false, true) => value + by,
                (false, false) => value.saturating_sub(by),
            };
        }
        self.canonical(next)
    }

    /// Each parameter from one of two.
    pub fn cross(&self, one: Params, other: Params, draws: &mut Draws) -> Params {
        let mut child = one;
        for (at, value) in child.0.iter_mut().enumerate() {
            if at != STRAT && effective(other.0[STRAT]).contains(&at) && draws.one_in(2) {
                *value = other.0[at];
            }
        }
        self.canonical(child)
    }
}

fn strategy_number(name: &str) -> Option<u32> {
    (FAST..=BTULTRA2).find(|number| {
        ZstdParams::parse(&format!("strat={number}")).is_ok_and(|params| params.to_string() == format!("strat={name}"))
    })
}

/// About how long settings take, as a multiple of level 1's CPU time. A rough rule, fitted to measurements of synthetic
/// ledgers; it steers the search and is never shown. Since no measured time steers it, the same seed
/// proposes the same settings on every machine.
pub fn cost(params: Params) -> f64 {
    let [wlog, clog, hlog, slog, mml, tlen, _] = params.0.map(f64::from);
    // Tables that leave a core's caches cost more with each doubling.
    let table = |log: f64, at: f64| (0.06 * (log - at)).exp() * (0.05 * (log - 17.0).max(0.0)).exp();
    let window = (0.006 * (wlog - 19.0)).exp();
    let shape = match params.0[STRAT] {
        FAST => {
            let literals = if tlen > 0.0 { 0.93 - 0.012 * tlen } else { 1.0 };
            table(hlog, 14.0) * literals * (1.0 + 0.02 * (7.0 - mml))
        }
        DFAST => 1.65 * table(hlog, 17.0) * table(clog, 16.0) * (1.0 + 0.02 * (5.0 - mml)),
        GREEDY..=LAZY2 => {
            let base = [2.6, 3.4, 4.4][(params.0[STRAT] - GREEDY) as usize];
            base * (0.25 * (slog - 4.0)).exp() * (0.05 * (hlog - 19.0)).exp()
        }
        _ => {
            let base = [9.0, 14.0, 20.0, 30.0][(params.0[STRAT] - BTLAZY2) as usize];
            base * (0.3 * (slog - 5.0)).exp() * (0.05 * (clog - 20.0)).exp() * (1.0 + 0.05 * (5.0 - mml))
        }
    };
    shape * window
}

#[cfg(test)]
mod tests {
    use {
        super::*,
        crate::archive::encode::{Codec, Format, FrameCompressor},
        proptest::prelude::*,
    };

    fn compress(level: i32, params: ZstdParams, content: &[u8]) -> Vec<u8> {
        let codec = Codec { format: Format::Zstd { level, params }, ..Codec::zstd(level) };
        let mut to = Vec::new();
        FrameCompressor::new(&codec).expect("a compressor").compress(content, &mut to).expect("compressed");
        to
    }

    /// Something like records: fields that repeat beside ones that do not.
    fn content() -> Vec<u8> {
        let mut draws = Draws::new(7);
        let mut content = Vec::new();
        while (content.len() as u64) < LEVELS_CONTENT_BYTES_MIN + 200_000 {
            let kind = draws.below(5) as u8;
            content.extend_from_slice(&[kind; 24]);
            content.extend_from_slice(&draws.below(3000).to_le_bytes());
            content.extend_from_slice(&draws.below(u64::MAX).to_le_bytes());
        }
        content
    }

    /// Levels are what the table says, and the parameters that a flag leaves out have no effect.
    #[test]
    fn flags_make_what_levels_and_presets_make() {
        let content = content();
        let space = Space::new(content.len() as u64, f64::INFINITY);
        for (number, level) in LEVELS.iter().enumerate().take(13) {
            let flag = Params(level.0).zstd_params().expect("in range");
            let number = number as i32 + 1;
            assert!(
                compress(1, flag, &content) == compress(number, ZstdParams::STOCK, &content),
                "level {number}: {flag}"
            );
        }
        for (name, preset) in PRESETS {
            let (level, text) = preset.level_and_params();
            let made = compress(level, ZstdParams::parse(text).expect("good"), &content);
            let flag = space.preset(preset).zstd_params().expect("in range");
            assert!(compress(1, flag, &content) == made, "{name}: {flag}");
        }
    }

    fn params() -> impl Strategy<Value = Params> {
        let value = || 0u32..30;
        [value(), value(), value(), value(), value(), 0..999, 0..12u32].prop_map(Params)
    }

    proptest! {
        /// Whatever is proposed is in one form, is taken by the encoder, and never has a window that a client refuses.
        #[test]
        fn steps_stay_inside(one in params(), other in params(), frame_log in 16u32..26, seed in any::<u64>()) {
            let space = Space::new(1 << frame_log, f64::INFINITY);
            let mut draws = Draws::new(seed);
            let (one, other) = (space.canonical(one), space.canonical(other));
            for next in [one, space.step(one, &mut draws), space.cross(one, other, &mut draws)] {
                prop_assert_eq!(space.canonical(next), next);
                prop_assert!(next.0[WLOG] <= CLIENT_WINDOW_LOG_MAX);
                prop_assert!(next.zstd_params().is_ok(), "{:?}", next);
                prop_assert!(cost(next).is_finite() && cost(next) > 0.0);
            }
        }
    }
}
