//! By frame size: what it costs and saves to compress units of 32 B to 32 MiB each alone, how long one takes at worst,
//! and what bundling small units saves.
//!
//! The types of the report are here; [`measure`] fills it, a view turns it into a report.

pub mod bundle;
pub mod explain;
pub mod measure;
pub mod pass;
pub mod timing;
pub mod view;

use serde::Serialize;

/// What frames of each size cost and save.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FramesReport {
    /// The codec.
    pub codec: String,
    /// Its level; 0 where it has none.
    pub level: i32,
    /// What reading the clock twice takes; every single time below contains it.
    pub timer_seconds: f64,
    /// Bytes of the whole input.
    pub total_bytes: u64,
    /// Bytes that were cut into frames.
    pub content_bytes: u64,
    /// From the smallest to the largest size.
    pub sizes: Vec<FrameSizeRow>,
    /// What is bundled; `None` where the input has no units.
    pub bundle_unit: Option<BundleUnit>,
    /// From one unit per frame to many.
    pub bundles: Vec<BundleRow>,
}

/// Frames of one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrameSizeRow {
    /// Bytes of content in a frame.
    pub frame_size_bytes: u64,
    /// Different frames that were compressed.
    pub frames: u64,
    /// Their bytes.
    pub input_bytes: u64,
    /// What they compress to.
    pub output_bytes: u64,
    /// Times to compress one frame.
    pub compress: Latency,
    /// Times to decompress one frame.
    pub decompress: Latency,
    /// What a worker holds while it compresses: its context, one frame and the room for its result.
    pub worker_memory_bytes: u64,
}

impl FrameSizeRow {
    /// Content for each byte of output.
    pub fn ratio(&self) -> f64 {
        self.input_bytes as f64 / (self.output_bytes as f64).max(1.0)
    }

    /// What compressing saves, in percent; negative where frames grow.
    pub fn saving_percent(&self) -> f64 {
        saving_percent(self.input_bytes, self.output_bytes)
    }

    /// Megabytes (10^6 bytes) of content per second of one core.
    pub fn compress_mb_per_second(&self) -> f64 {
        self.mb_per_second(&self.compress)
    }

    /// The same for decompressing.
    pub fn decompress_mb_per_second(&self) -> f64 {
        self.mb_per_second(&self.decompress)
    }

    fn mb_per_second(&self, latency: &Latency) -> f64 {
        let frame_bytes = self.input_bytes as f64 / (self.frames as f64).max(1.0);
        frame_bytes / 1e6 / latency.average_seconds.max(1e-12)
    }
}

/// Times of single frames, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// How many times were taken.
    pub samples: u64,
    /// The average.
    pub average_seconds: f64,
    /// The standard deviation.
    pub deviation_seconds: f64,
    /// The shortest.
    pub min_seconds: f64,
    /// The longest.
    pub max_seconds: f64,
    /// As many take longer as take less.
    pub p50_seconds: Option<f64>,
    /// One in 10 takes longer. Like every percentile, `None` where there are too few samples for one to lie above it.
    pub p90_seconds: Option<f64>,
    /// One in 100 takes longer.
    pub p99_seconds: Option<f64>,
    /// One in 10,000 takes longer.
    pub p99_99_seconds: Option<f64>,
    /// One in 1,000,000 takes longer.
    pub p99_9999_seconds: Option<f64>,
}

/// What is put together into one frame.
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
    /// So many bytes.
    Piece,
}

/// So many units per frame.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BundleRow {
    /// Units in a frame.
    pub units_per_frame: u64,
    /// Frames.
    pub frames: u64,
    /// Bytes of content.
    pub input_bytes: u64,
    /// What they compress to.
    pub output_bytes: u64,
    /// The same units, each in a frame of its own, compress to this.
    pub alone_bytes: u64,
    /// Seconds to compress all of the frames.
    pub compress_seconds: f64,
    /// Seconds to decompress them.
    pub decompress_seconds: f64,
}

impl BundleRow {
    /// What compressing saves, in percent of the content; negative where frames grow.
    pub fn saving_percent(&self) -> f64 {
        saving_percent(self.input_bytes, self.output_bytes)
    }

    /// What is saved against one unit per frame, in percent of what that takes.
    pub fn saving_against_one_percent(&self) -> f64 {
        saving_percent(self.alone_bytes, self.output_bytes)
    }
}

fn saving_percent(before_bytes: u64, after_bytes: u64) -> f64 {
    100.0 * (1.0 - after_bytes as f64 / (before_bytes as f64).max(1.0))
}
