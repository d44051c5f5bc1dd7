//! Frame sizes: ratio, speed and worst-case times of frames of 32 B to 32 MiB, and what bundling small units saves.
//!
//! [`measure`] makes the report whose types are here, [`view`] shows it.

pub mod bundle;
pub mod explain;
pub mod measure;
pub mod view;

use serde::Serialize;

use crate::levels::codec::FrameCodec;
use crate::levels::latency::Latency;
use crate::levels::{LevelRow, saving_percent};

/// What frames of each size cost and save.
#[derive(Clone, Debug)]
pub struct FramesReport {
    /// The codec.
    pub codec: FrameCodec,
    /// Seconds to read the clock twice, which every time of a single frame contains.
    pub timer_seconds: f64,
    /// Bytes of the whole input.
    pub total_bytes: u64,
    /// From the smallest to the largest size.
    pub sizes: Vec<FrameSizeRow>,
    /// What was bundled; `None` if the input has no units.
    pub bundle_unit: Option<BundleUnit>,
    /// From one unit per frame to many.
    pub bundles: Vec<BundleRow>,
}

/// Frames of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameSizeRow {
    /// Bytes of content in a frame.
    pub frame_size_bytes: u64,
    /// The number of different frames that were compressed.
    pub frames: u64,
    /// All of them together. Memory is that of one worker that compresses.
    pub row: LevelRow,
    /// Times to compress one frame.
    pub compress: Latency,
    /// Times to decompress one frame.
    pub decompress: Latency,
}

impl FrameSizeRow {
    /// Bytes of content per second of one core, at a latency of this row.
    pub fn bytes_per_second(&self, latency: &Latency) -> f64 {
        self.row.input_bytes as f64 / (self.frames as f64).max(1.0) / latency.average_seconds.max(1e-12)
    }
}

/// The units that were bundled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BundleUnit {
    /// `record`, `line` or `piece`.
    pub kind: UnitKind,
    /// Units that were bundled.
    pub units: u64,
    /// Their bytes on average.
    pub average_bytes: f64,
}

/// What a unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitKind {
    /// A record of a storage: header and data.
    Record,
    /// A line, with its end.
    Line,
    /// A fixed number of bytes.
    Piece,
}

/// Bundles of one number of units.
#[derive(Clone, Debug, PartialEq)]
pub struct BundleRow {
    /// Units in a frame.
    pub units_per_frame: u64,
    /// The number of frames.
    pub frames: u64,
    /// All of them together.
    pub row: LevelRow,
    /// Bytes that the same units compress to, each in a frame of its own.
    pub alone_bytes: u64,
}

impl BundleRow {
    /// Saving against one unit per frame, in percent.
    pub fn saving_against_one_percent(&self) -> f64 {
        saving_percent(self.alone_bytes, self.row.output_bytes)
    }
}
