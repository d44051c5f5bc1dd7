//! Measures, for each size class, what is saved by compressing each storage or record (unit) alone.
//!
//! Some units of each size class, spread evenly, are measured on one core. A class is timed as a
//! whole, because a small unit takes less time than reading the clock. In the names of classes, 1 KB
//! is 1000 bytes, as in published measurements of transactions and blocks.

#![allow(missing_docs, reason = "the names say it")]

use serde::Serialize;
use slotpress_base::{Error, Progress, Result, Stage};

use crate::levels::codec::FrameCodec;
use crate::levels::input::Input;
use crate::levels::measure::{Batch, Bench};
use crate::levels::units::{records, storages};
use crate::levels::{LevelRow, MeasureOptions};

/// Lower bound of each class in bytes, and its name.
const CLASSES: [(u64, &str); 16] = [
    (0, "0-250 B"),
    (250, "250-500 B"),
    (500, "500 B-1 KB"),
    (1_000, "1-10 KB"),
    (10_000, "10-100 KB"),
    (100_000, "100-200 KB"),
    (200_000, "200-300 KB"),
    (300_000, "300-400 KB"),
    (400_000, "400-500 KB"),
    (500_000, "500-600 KB"),
    (600_000, "600-700 KB"),
    (700_000, "700-800 KB"),
    (800_000, "800-900 KB"),
    (900_000, "900 KB-1 MB"),
    (1_000_000, "1-2 MB"),
    (2_000_000, "larger"),
];

/// Limit on units measured per class: enough for an average within 1 %.
const UNITS_MAX: usize = 20_000;

/// Limit on bytes measured per class, unless one unit is larger: compressed copies are held in
/// memory, and codecs may be slow.
const CLASS_BYTES_MAX: usize = 32 << 20;

/// Unit that is compressed alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SizeUnit {
    Storage,
    Record,
}

impl SizeUnit {
    /// Name of the unit in the singular.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Storage => "storage",
            Self::Record => "record",
        }
    }
}

/// Units of a size class, or of all classes, and what was measured of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SizeClassRow {
    pub class: &'static str,
    pub from_bytes: u64,
    /// Upper bound of a unit's size in bytes, exclusive; `None` for the last class.
    pub below_bytes: Option<u64>,
    pub units: u64,
    pub unit_bytes: u64,
    pub measured_units: u64,
    pub row: LevelRow,
}

impl SizeClassRow {
    /// Adds a class. Its measurements are extrapolated from the measured units to all units.
    fn add(&mut self, class: &Self) {
        let scale = class.unit_bytes as f64 / (class.row.input_bytes as f64).max(1.0);
        self.units += class.units;
        self.unit_bytes += class.unit_bytes;
        self.measured_units += class.units;
        self.row.input_bytes += class.unit_bytes;
        self.row.output_bytes += (class.row.output_bytes as f64 * scale) as u64;
        self.row.compress.median += class.row.compress.median * scale;
        self.row.decompress.median += class.row.decompress.median * scale;
    }
}

/// Compresses chosen units of each size class, each alone, on one core. Returns a row for each class
/// that has units, then one for all.
///
/// # Errors
/// If the input has no such units, if a unit is not restored to the same bytes, or if the user
/// interrupts it.
pub fn measure_sizes(
    input: &Input,
    unit: SizeUnit,
    codec: FrameCodec,
    options: &MeasureOptions,
    progress: &dyn Progress,
) -> Result<Vec<SizeClassRow>> {
    progress.stage(Stage::Counting, None);
    let options = options.clone().threads(1);
    let mut units: Vec<Vec<&[u8]>> = vec![Vec::new(); CLASSES.len()];
    for frame in &input.frames {
        progress.check()?;
        for storage in storages(frame) {
            match unit {
                SizeUnit::Storage => units[class_of(storage.len() as u64)].push(storage),
                SizeUnit::Record => records(storage).for_each(|it| units[class_of(it.len() as u64)].push(it)),
            }
        }
    }
    let mut rows = Vec::new();
    let mut all = SizeClassRow { class: "all", ..SizeClassRow::default() };
    let below = CLASSES.iter().skip(1).map(|(from, _)| Some(*from)).chain([None]);
    let classes = CLASSES.iter().zip(below).zip(units).filter(|(_, units)| !units.is_empty());
    for ((&(from_bytes, class), below_bytes), units) in classes {
        let mut bench = Bench::new(Batch::of(&spread(&units)), &options, progress);
        let (row, _) = bench.measure(codec, format!("{}s of {class}", unit.as_str()))?;
        let unit_bytes = units.iter().map(|unit| unit.len() as u64).sum();
        let (units, measured_units) = (units.len() as u64, bench.pieces());
        let row = SizeClassRow { class, from_bytes, below_bytes, units, unit_bytes, measured_units, row };
        all.add(&row);
        rows.push(row);
    }
    if rows.is_empty() {
        let unit = unit.as_str();
        return Err(Error::usage(format!("the input has no {unit}s: it is not a ledger or a snapshot archive"))
            .with_hint("`levels frames` measures any file, cut into pieces"));
    }
    rows.push(all);
    Ok(rows)
}

/// Chooses the units of a class to measure, spread evenly over all of them.
fn spread<'a>(units: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let bytes: usize = units.iter().map(|unit| unit.len()).sum();
    let average_bytes = (bytes / units.len().max(1)).max(1);
    let wanted = units.len().min(UNITS_MAX).min((CLASS_BYTES_MAX / average_bytes).max(1));
    (0..wanted).filter_map(|number| units.get(number * units.len() / wanted).copied()).collect()
}

fn class_of(bytes: u64) -> usize {
    CLASSES.partition_point(|(from, _)| *from <= bytes).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use slotpress_base::{ErrorKind, NoProgress};
    use slotpress_format::{Entry, EntryKind};

    use super::*;
    use crate::levels::input::{ContentFrame, InputKind};

    fn options() -> MeasureOptions {
        MeasureOptions::new("").repeat(2)
    }

    fn input(frames: Vec<ContentFrame>) -> Input {
        let total_bytes = frames.iter().map(|frame| frame.content.len() as u64).sum();
        Input { kind: InputKind::Archive, total_bytes, total_frames: 9, frames }
    }

    fn frame(storages: &[&[usize]]) -> ContentFrame {
        let mut content = Vec::new();
        for (number, lengths) in storages.iter().enumerate() {
            let mut storage = Vec::new();
            for length in *lengths {
                let mut record = vec![0; 136 + length];
                record[8..16].copy_from_slice(&(*length as u64).to_le_bytes());
                record[16] = 1 + number as u8;
                storage.extend_from_slice(&record);
                storage.resize(storage.len().next_multiple_of(8), 0);
            }
            let kind = EntryKind::Storage { slot: 5, id: number as u32 };
            content.extend_from_slice(&Entry { kind, content_bytes: storage.len() as u64 }.header());
            content.extend_from_slice(&storage);
            content.resize(content.len().next_multiple_of(512), 0);
        }
        ContentFrame::new(content)
    }

    #[test]
    fn records_in_their_classes() {
        let input = input(vec![frame(&[&[0, 0, 165, 900], &[5000]]), frame(&[&[0]])]);
        let rows =
            measure_sizes(&input, SizeUnit::Record, FrameCodec::zstd(1), &options(), &NoProgress).expect("measured");
        let units: Vec<(&str, u64, u64)> = rows.iter().map(|row| (row.class, row.units, row.measured_units)).collect();
        assert_eq!(units, [("0-250 B", 3, 3), ("250-500 B", 1, 1), ("1-10 KB", 2, 2), ("all", 6, 6)]);
        let (all, classes) = rows.split_last().expect("rows");
        assert_eq!(all.row.input_bytes, 3 * 136 + 301 + 1036 + 5136);
        let sum: u64 = classes.iter().map(|row| row.row.output_bytes).sum();
        assert!(all.row.output_bytes == sum && sum > 0 && sum < all.row.input_bytes);
        assert!(all.row.compress.median > 0.0 && all.row.saving_percent() > 50.0);
    }

    #[test]
    fn storages_as_they_are() {
        let input = input(vec![frame(&[&[0, 0, 165, 900], &[5000]])]);
        let rows =
            measure_sizes(&input, SizeUnit::Storage, FrameCodec::zstd(3), &options(), &NoProgress).expect("measured");
        let all = rows.last().expect("rows");
        assert_eq!((all.units, rows[0].row.codec.level), (2, 3));
    }

    #[test]
    fn a_file_has_no_units() {
        let input = input(vec![ContentFrame::new(vec![1; 5000])]);
        let error = measure_sizes(&input, SizeUnit::Record, FrameCodec::zstd(1), &options(), &NoProgress);
        assert_eq!(error.expect_err("no units").kind(), ErrorKind::Usage);
    }

    #[test]
    fn chosen_units_are_spread_evenly() {
        let lengths: Vec<usize> = (0..50_000).map(|number| number % 2).collect();
        let input = input(vec![frame(&[&lengths])]);
        let units: Vec<&[u8]> = storages(&input.frames[0]).into_iter().flat_map(records).collect();
        let chosen = spread(&units);
        assert_eq!((units.len(), chosen.len()), (50_000, UNITS_MAX));
        let from = input.frames[0].content.as_ptr() as usize;
        let middle = (chosen[UNITS_MAX / 2].as_ptr() as usize - from) as f64;
        assert!((middle / input.frames[0].content.len() as f64 - 0.5).abs() < 0.01, "{middle}");
        let large = vec![0; CLASS_BYTES_MAX * 2];
        assert_eq!(spread(&[&large[..], &large[..]]).len(), 1);
    }

    proptest! {
        #[test]
        fn every_size_has_its_class(bytes in 0u64..3_000_000) {
            let class = class_of(bytes);
            prop_assert!(CLASSES[class].0 <= bytes && CLASSES.get(class + 1).is_none_or(|next| bytes < next.0));
        }
    }

    #[test]
    fn the_ends() {
        assert_eq!((class_of(0), class_of(249), class_of(250), class_of(u64::MAX)), (0, 0, 1, CLASSES.len() - 1));
    }
}
