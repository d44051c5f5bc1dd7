//! By size class of what is compressed: how much storages, or single records, save when each is compressed alone.
//!
//! [`measure`] takes them out of frames and compresses them one by one, `view` makes a report of what came out.

pub mod class;
pub mod measure;
pub mod view;

use serde::Serialize;

/// What is compressed alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SizeUnit {
    /// A storage file, as an archive holds it.
    Storage,
    /// A record of a storage: its header and its data, without padding.
    Record,
}

impl SizeUnit {
    /// In words, one of them.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Storage => "storage",
            Self::Record => "record",
        }
    }
}

/// What each size class saves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizesReport {
    /// What was compressed alone.
    pub unit: SizeUnit,
    /// The codec.
    pub codec: String,
    /// Its level; 0 where it has none.
    pub level: i32,
    /// Bytes of the whole input.
    pub total_bytes: u64,
    /// Bytes that were read: all, or a sample.
    pub read_bytes: u64,
    /// From the smallest to the largest; those without units too.
    pub classes: Vec<SizeClassRow>,
    /// All classes together, each by its units: not only by those that were measured.
    pub all: SizeClassRow,
}

/// One size class.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SizeClassRow {
    /// Its name: `250-500 B`.
    pub class: String,
    /// The least bytes that its units have.
    pub from_bytes: u64,
    /// Units have fewer bytes than this; `None` of the last class.
    pub below_bytes: Option<u64>,
    /// Units that are in it, of those that were read.
    pub units: u64,
    /// Their bytes.
    pub unit_bytes: u64,
    /// Units of it that were measured.
    pub measured_units: u64,
    /// Bytes of the measured units.
    pub input_bytes: u64,
    /// Bytes that they compress to.
    pub output_bytes: u64,
    /// Seconds that compressing them takes, all together, on one core.
    pub compress_seconds: f64,
    /// Seconds that decompressing them takes.
    pub decompress_seconds: f64,
}

impl SizeClassRow {
    /// Average bytes of a unit; `None` where none was measured, as of all that follow.
    pub fn average_input_bytes(&self) -> Option<f64> {
        self.average(self.input_bytes as f64)
    }

    /// Average bytes that a unit compresses to.
    pub fn average_output_bytes(&self) -> Option<f64> {
        self.average(self.output_bytes as f64)
    }

    /// Average seconds to compress a unit.
    pub fn average_compress_seconds(&self) -> Option<f64> {
        self.average(self.compress_seconds)
    }

    /// Average seconds to decompress a unit.
    pub fn average_decompress_seconds(&self) -> Option<f64> {
        self.average(self.decompress_seconds)
    }

    /// What compressing saves, in percent of the bytes; negative where they grow.
    pub fn saving_percent(&self) -> Option<f64> {
        let saving = 100.0 * (1.0 - self.output_bytes as f64 / (self.input_bytes as f64).max(1.0));
        (self.measured_units > 0).then_some(saving)
    }

    /// Adds a class, each of its units as its measured ones are on average.
    fn add(&mut self, class: &Self) {
        let scale = class.unit_bytes as f64 / (class.input_bytes as f64).max(1.0);
        self.measured_units += class.units;
        self.input_bytes += class.unit_bytes;
        self.output_bytes += (class.output_bytes as f64 * scale) as u64;
        self.compress_seconds += class.compress_seconds * scale;
        self.decompress_seconds += class.decompress_seconds * scale;
    }

    fn average(&self, sum: f64) -> Option<f64> {
        (self.measured_units > 0).then(|| sum / self.measured_units as f64)
    }
}
