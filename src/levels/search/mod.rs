//! Searching zstd's parameters on one's own data: settings that are no larger and no slower than a stock level, and
//! better in one.
//!
//! [`space`] says what settings there are, [`propose`] which to try next, [`judge`] what follows from numbers: all pure.
//! [`measure`] compresses frames with one setting. [`search`] puts them together: stock levels and candidates on one half
//! of the frames, then the best of them against the stock levels on the other half, which the search has not seen.
//! What does not hold there is left out. `view` makes a report of it.

pub mod draws;
pub mod front;
pub mod judge;
pub mod measure;
pub mod picture;
pub mod propose;
mod run;
pub mod space;
pub mod view;

pub use run::search;

use {
    self::space::{PRESETS, Params, Space},
    crate::{
        archive::{
            encode::{Codec, Format},
            layout::RecordLayout,
        },
        levels::{flags::flags_of, search::judge::Point},
    },
    slotpress_base::error::Result,
    std::time::Duration,
};

/// What to search, and for how long.
#[derive(Clone, Debug)]
pub struct SearchOptions {
    /// Stock levels to beat, from 1 to 19.
    pub levels: Vec<i32>,
    /// Layouts of records to try; stock levels are always verbatim.
    pub layouts: Vec<RecordLayout>,
    /// What the draws start from.
    pub seed: u64,
    /// No more candidates than this.
    pub evaluations_max: Option<u64>,
    /// No more time than this, without reading the input.
    pub budget: Option<Duration>,
    /// Threads that work, 1 to 1024.
    pub threads: usize,
}

/// What a contestant compresses with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settings {
    /// A level as zstd means it.
    Level(i32),
    /// All parameters.
    Params(Params),
}

/// Settings, and how records lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// How records lie.
    pub layout: RecordLayout,
    /// How frames are compressed.
    pub settings: Settings,
}

impl Variant {
    /// A level, verbatim.
    pub fn stock(level: i32) -> Self {
        Self { layout: RecordLayout::Verbatim, settings: Settings::Level(level) }
    }

    /// The level, where it is a stock one.
    pub fn stock_level(&self) -> Option<i32> {
        match (self.layout, self.settings) {
            (RecordLayout::Verbatim, Settings::Level(level)) => Some(level),
            _ => None,
        }
    }

    /// As an archive is made with it.
    pub fn codec(&self) -> Result<Codec> {
        let codec = match self.settings {
            Settings::Level(level) => Codec::zstd(level),
            Settings::Params(params) => {
                Codec { format: Format::Zstd { level: 1, params: params.zstd_params()? }, ..Codec::zstd(1) }
            }
        };
        Ok(Codec { layout: self.layout, ..codec })
    }

    /// The preset of which these are the settings.
    pub fn preset(&self, space: &Space) -> Option<&'static str> {
        let Settings::Params(params) = self.settings else { return None };
        PRESETS.into_iter().find(|(_, preset)| space.preset(*preset) == params).map(|(name, _)| name)
    }

    /// The flags of `archive` and `recompress` that ask for it.
    pub fn flags(&self, space: &Space) -> String {
        // What a search tries are parameters that zstd has.
        self.codec().map(|codec| flags_of(&codec, self.preset(space))).unwrap_or_default()
    }
}

/// How a layout is called.
pub fn layout_name(layout: RecordLayout) -> &'static str {
    match layout {
        RecordLayout::Verbatim => "verbatim",
        RecordLayout::Clustered => "clustered",
    }
}

/// A candidate that was tried, as soon as it was.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    /// What it is.
    pub variant: Variant,
    /// The how manyth candidate, from 1; 0 for stock levels.
    pub number: u64,
    /// Frames that were compressed: all that are searched, or the first ones where these did not promise enough.
    pub frames: usize,
    /// Their content.
    pub input_bytes: u64,
    /// What they became.
    pub output_bytes: u64,
    /// What that took of the workers' CPU time, clustering included.
    pub cpu_seconds: f64,
    /// And by the clock.
    pub elapsed_seconds: f64,
}

/// What came of a search.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What settings there were.
    pub space: Space,
    /// Stock levels, and candidates that hold what they promise; measured on the held-out frames.
    pub points: Vec<Point>,
    /// Frames that were searched.
    pub searched_frames: usize,
    /// Frames on which claims were checked.
    pub held_out_frames: usize,
    /// Frames in which nothing could be clustered: of other content, or inside one large storage.
    pub unclustered_frames: usize,
    /// Candidates that were tried, and how many of them on all frames.
    pub tried: u64,
    /// As it says.
    pub tried_in_full: u64,
    /// Claims (of settings, to beat a level) before they were checked.
    pub claims: usize,
    /// Claims that held.
    pub claims_held: usize,
    /// Rounds over the held-out frames.
    pub rounds: usize,
    /// Levels for which the budget was too short.
    pub levels_left_out: Vec<i32>,
    /// Whether the user ended it.
    pub is_interrupted: bool,
    /// What it took, without reading the input.
    pub elapsed: Duration,
}

impl Outcome {
    /// Stock levels and candidates together, the largest first.
    pub fn in_order(&self) -> Vec<&Point> {
        let mut points: Vec<&Point> = self.points.iter().collect();
        points.sort_by(|a, b| b.output_bytes.cmp(&a.output_bytes).then(b.time_ratio.total_cmp(&a.time_ratio)));
        points
    }
}
