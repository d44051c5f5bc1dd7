//! Size classes: how much storages, or single records, save when each is compressed alone.
//!
//! [`measure`] takes them out of frames and measures some of each class, [`view`] shows the result.

pub mod class;
pub mod measure;
pub mod view;

use serde::Serialize;

use crate::levels::LevelRow;
use crate::levels::codec::FrameCodec;

/// The unit that is compressed alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SizeUnit {
    /// A storage file, as an archive holds it.
    Storage,
    /// A record of a storage: its header and its data, without padding.
    Record,
}

impl SizeUnit {
    /// For people, in the singular.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Storage => "storage",
            Self::Record => "record",
        }
    }
}

/// What each size class saves.
#[derive(Clone, Debug)]
pub struct SizesReport {
    /// The unit that was compressed alone.
    pub unit: SizeUnit,
    /// The codec.
    pub codec: FrameCodec,
    /// From the smallest to the largest; those without units too.
    pub classes: Vec<SizeClassRow>,
    /// All classes together, each weighted by all of its units.
    pub all: SizeClassRow,
}

/// One size class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SizeClassRow {
    /// The name: `250-500 B`.
    pub class: String,
    /// The smallest unit has at least this many bytes.
    pub from_bytes: u64,
    /// Units have fewer bytes than this; `None` for the last class.
    pub below_bytes: Option<u64>,
    /// The number of units in what was read.
    pub units: u64,
    /// Their bytes.
    pub unit_bytes: u64,
    /// The number of units that were measured.
    pub measured_units: u64,
    /// The measured units; times are those of all of them, on one core.
    pub row: LevelRow,
}

impl SizeClassRow {
    /// A sum over the measured units, per unit; `None` if none was measured.
    pub fn average(&self, sum: f64) -> Option<f64> {
        (self.measured_units > 0).then(|| sum / self.measured_units as f64)
    }

    /// Saving in percent of the bytes; negative if they grow; `None` if none was measured.
    pub fn saving_percent(&self) -> Option<f64> {
        (self.measured_units > 0).then(|| self.row.saving_percent())
    }

    /// Adds a class, each of its units as its measured ones are on average.
    fn add(&mut self, class: &Self) {
        let scale = class.unit_bytes as f64 / (class.row.input_bytes as f64).max(1.0);
        self.measured_units += class.units;
        self.row.input_bytes += class.unit_bytes;
        self.row.output_bytes += (class.row.output_bytes as f64 * scale) as u64;
        self.row.compress.median += class.row.compress.median * scale;
        self.row.decompress.median += class.row.decompress.median * scale;
    }
}
