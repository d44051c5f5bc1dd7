//! zstd's parameters by the names that the `zstd` command gives them, beyond what a level chooses.

use std::fmt;
use std::str::FromStr;

use slotpress_base::{Error, Result};
use zstd_safe::{CParameter, Strategy};

/// Parameters that replace what the level would choose; the default replaces none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZstdParams {
    values: [Option<u32>; PARAMETERS.len()],
}

/// A parameter: its name, the least and the greatest value.
struct Parameter {
    name: &'static str,
    min: u32,
    max: u32,
}

/// The largest window that both clients read.
const WINDOW_LOG_MAX: u32 = 25;

const STRATEGIES: [(&str, Strategy); 9] = [
    ("fast", Strategy::ZSTD_fast),
    ("dfast", Strategy::ZSTD_dfast),
    ("greedy", Strategy::ZSTD_greedy),
    ("lazy", Strategy::ZSTD_lazy),
    ("lazy2", Strategy::ZSTD_lazy2),
    ("btlazy2", Strategy::ZSTD_btlazy2),
    ("btopt", Strategy::ZSTD_btopt),
    ("btultra", Strategy::ZSTD_btultra),
    ("btultra2", Strategy::ZSTD_btultra2),
];

const STRATEGY: usize = 6;

/// In the order in which they are applied and shown. Tables end at 2^28: 1 GiB per worker.
const PARAMETERS: [Parameter; 12] = [
    Parameter { name: "wlog", min: 10, max: WINDOW_LOG_MAX },
    Parameter { name: "clog", min: 6, max: 28 },
    Parameter { name: "hlog", min: 6, max: 28 },
    Parameter { name: "slog", min: 1, max: 28 },
    Parameter { name: "mml", min: 3, max: 7 },
    Parameter { name: "tlen", min: 0, max: 131_072 },
    Parameter { name: "strat", min: 1, max: STRATEGIES.len() as u32 },
    Parameter { name: "ldm", min: 0, max: 1 },
    Parameter { name: "lhlog", min: 6, max: 28 },
    Parameter { name: "lmml", min: 4, max: 4096 },
    Parameter { name: "lblog", min: 1, max: 8 },
    Parameter { name: "lhrlog", min: 0, max: 25 },
];

impl ZstdParams {
    /// No parameter is replaced: a level as zstd means it.
    pub const STOCK: Self = Self { values: [None; PARAMETERS.len()] };

    /// Whether no parameter is replaced.
    pub fn is_stock(&self) -> bool {
        *self == Self::STOCK
    }

    /// These parameters, with `others` in place of those that both name.
    #[must_use]
    pub fn with(mut self, others: &Self) -> Self {
        for (value, other) in self.values.iter_mut().zip(others.values) {
            *value = other.or(*value);
        }
        self
    }

    /// As the library calls them, in the order in which they are to be set.
    pub(crate) fn settings(&self) -> impl Iterator<Item = CParameter> + '_ {
        self.values.iter().enumerate().filter_map(|(at, value)| Some(setting(PARAMETERS[at].name, (*value)?)))
    }
}

/// From `wlog=21,hlog=16,strat=fast`. A strategy is a name or a number from 1 to 9.
impl FromStr for ZstdParams {
    type Err = Error;

    /// An error is of [`ErrorKind::Usage`](slotpress_base::error::ErrorKind::Usage): a parameter that zstd does not have, or a value
    /// out of its range.
    fn from_str(text: &str) -> Result<Self> {
        let known = || {
            let names: Vec<&str> = PARAMETERS.iter().map(|parameter| parameter.name).collect();
            format!("zstd's parameters look like wlog=21,hlog=16,strat=fast; known are {}", names.join(", "))
        };
        let mut params = Self::STOCK;
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| Error::usage(format!("the zstd parameter {pair:?} has no value")).with_hint(known()))?;
            let at = PARAMETERS
                .iter()
                .position(|parameter| parameter.name == name)
                .ok_or_else(|| Error::usage(format!("there is no zstd parameter {name:?}")).with_hint(known()))?;
            let Parameter { min, max, .. } = PARAMETERS[at];
            let named = STRATEGIES.iter().position(|(strategy, _)| at == STRATEGY && *strategy == value);
            let number = named.map_or_else(|| value.parse().ok(), |place| Some(place as u32 + 1));
            let number = number.filter(|number| (min..=max).contains(number)).ok_or_else(|| {
                let why = match name {
                    "wlog" => "; the clients read no larger windows",
                    "strat" => ", or a name from fast to btultra2",
                    _ => "",
                };
                Error::usage(format!("the zstd parameter {name} takes {min} to {max}{why}; not {value:?}"))
            })?;
            if params.values[at].replace(number).is_some() {
                return Err(Error::usage(format!("the zstd parameter {name} is given twice")));
            }
        }
        Ok(params)
    }
}

fn setting(name: &str, value: u32) -> CParameter {
    match name {
        "wlog" => CParameter::WindowLog(value),
        "clog" => CParameter::ChainLog(value),
        "hlog" => CParameter::HashLog(value),
        "slog" => CParameter::SearchLog(value),
        "mml" => CParameter::MinMatch(value),
        "tlen" => CParameter::TargetLength(value),
        "strat" => CParameter::Strategy(strategy(value).1),
        "ldm" => CParameter::EnableLongDistanceMatching(value == 1),
        "lhlog" => CParameter::LdmHashLog(value),
        "lmml" => CParameter::LdmMinMatch(value),
        "lblog" => CParameter::LdmBucketSizeLog(value),
        _ => CParameter::LdmHashRateLog(value),
    }
}

fn strategy(value: u32) -> (&'static str, Strategy) {
    STRATEGIES[(value as usize).clamp(1, STRATEGIES.len()) - 1]
}

/// As they are given: `wlog=21,hlog=16,strat=fast`.
impl fmt::Display for ZstdParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for (at, Parameter { name, .. }) in PARAMETERS.iter().enumerate() {
            let Some(value) = self.values[at] else { continue };
            match at {
                STRATEGY => write!(f, "{comma}{name}={}", strategy(value).0)?,
                _ => write!(f, "{comma}{name}={value}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

/// The level and the parameters of the preset for small archives, in the time of a middle level; `docs/compression.md` holds the
/// figures.
pub const PRESET_SMALL: (i32, &str) = (9, "wlog=23,clog=18,hlog=20,slog=2,mml=5,strat=lazy");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::encode::{Codec, Format, FrameCompressor};

    fn compress(level: i32, params: ZstdParams, content: &[u8]) -> Vec<u8> {
        let codec = Codec { format: Format::Zstd { level, params }, ..Codec::zstd(level) };
        let mut to = Vec::new();
        FrameCompressor::new(&codec).expect("a compressor").compress(content, &mut to).expect("compressed");
        to
    }

    #[test]
    fn names_and_ranges() {
        let text = "wlog=21,clog=14,hlog=16,slog=1,mml=7,tlen=2,strat=fast,ldm=1,lhlog=20,lmml=64,lblog=3,lhrlog=7";
        let params = ZstdParams::from_str(text).expect("good");
        assert_eq!(params.to_string(), text);
        assert_eq!(ZstdParams::from_str("strat=1").expect("good").to_string(), "strat=fast");
        assert!(ZstdParams::from_str("").expect("nothing").is_stock());
        for bad in
            ["wlog=26", "wlog=9", "mml=8", "mml", "window=3", "strat=slow", "strat=0", "hlog=-1", "slog=1,slog=2"]
        {
            assert_eq!(
                ZstdParams::from_str(bad).expect_err(bad).kind(),
                slotpress_base::error::ErrorKind::Usage,
                "{bad}"
            );
        }
    }

    /// Every value of every range is accepted by zstd, what is compressed decompresses, and stock is stock.
    #[test]
    fn zstd_takes_what_we_take() {
        let content: Vec<u8> = (0..100_000u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
        for Parameter { name, min, max } in &PARAMETERS {
            // Large tables are refused by no one, but take memory.
            let max = if name.ends_with("log") { (*max).min(20) } else { *max };
            for value in [*min, max] {
                let params = ZstdParams::from_str(&format!("{name}={value}")).expect("in range");
                let compressed = compress(3, params, &content);
                assert_eq!(zstd::bulk::decompress(&compressed, content.len()).expect("decompresses"), content);
            }
        }
        let (level, params) = PRESET_SMALL;
        let params = ZstdParams::from_str(params).expect("presets are good");
        let compressed = compress(level, params, &content);
        assert_eq!(zstd::bulk::decompress(&compressed, content.len()).expect("decompresses"), content);
    }
}
