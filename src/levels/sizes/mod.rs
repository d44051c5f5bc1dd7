//! By size class of what is compressed: how much storages, or single records, save when each is compressed alone.
//!
//! Read out of a ledger or an archive, compressed one by one, and turned into text.

pub mod class;
pub mod measure;
pub mod show;

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
    /// Units that the input has; of records, those of the storages that were read.
    pub total_units: u64,
    /// Their bytes.
    pub total_bytes: u64,
    /// Storages that the input has.
    pub total_storages: u64,
    /// Storages that were read.
    pub read_storages: u64,
    /// From the smallest to the largest; those without units too.
    pub classes: Vec<SizeClassRow>,
    /// All classes together.
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
    /// Units that are in it.
    pub units: u64,
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

    fn average(&self, sum: f64) -> Option<f64> {
        (self.measured_units > 0).then(|| sum / self.measured_units as f64)
    }
}
