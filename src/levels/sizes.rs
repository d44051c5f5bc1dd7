//! Measures, for each size class, what is saved by compressing each storage or record (unit) alone.
//!
//! First, all units are counted; then some of each size class, spread evenly, are measured on one
//! core. A class is timed as a whole, because a small unit takes less time than reading the clock.
//! In the names of classes, 1 KB is 1000 bytes, as in published measurements of transactions and
//! blocks.

use serde::Serialize;
use slotpress_base::{Error, Progress, Result};

use crate::levels::codec::FrameCodec;
use crate::levels::input::Input;
use crate::levels::measure::Bench;
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
const UNITS_MAX: u64 = 20_000;

/// Limit on bytes measured per class, unless one unit is larger: compressed copies are held in
/// memory, and codecs may be slow.
const CLASS_BYTES_MAX: u64 = 32 << 20;

/// Unit that is compressed alone.
#[allow(missing_docs, reason = "the names say it")]
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

/// Results of [`measure_sizes`] per size class.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct SizesReport {
    pub unit: SizeUnit,
    pub codec: FrameCodec,
    pub classes: Vec<SizeClassRow>,
    pub all: SizeClassRow,
}

#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SizeClassRow {
    pub class: String,
    pub from_bytes: u64,
    /// Upper bound of a unit's size in bytes, exclusive; `None` for the last class.
    pub below_bytes: Option<u64>,
    pub units: u64,
    pub unit_bytes: u64,
    pub measured_units: u64,
    pub row: LevelRow,
}

impl SizeClassRow {
    /// Divides a sum over the measured units by their number; `None` if none was measured.
    pub fn average(&self, sum: f64) -> Option<f64> {
        (self.measured_units > 0).then(|| sum / self.measured_units as f64)
    }

    /// Saving in percent; negative if the units grow, `None` if none was measured.
    pub fn saving_percent(&self) -> Option<f64> {
        (self.measured_units > 0).then(|| self.row.saving_percent())
    }

    fn count(&mut self, unit: &[u8]) {
        self.units += 1;
        self.unit_bytes += unit.len() as u64;
    }

    /// Adds a class. Its measurements are extrapolated from the measured units to all units.
    fn add(&mut self, class: &Self) {
        let scale = class.unit_bytes as f64 / (class.row.input_bytes as f64).max(1.0);
        self.measured_units += class.units;
        self.row.input_bytes += class.unit_bytes;
        self.row.output_bytes += (class.row.output_bytes as f64 * scale) as u64;
        self.row.compress.median += class.row.compress.median * scale;
        self.row.decompress.median += class.row.decompress.median * scale;
    }

    fn wanted_units(&self) -> u64 {
        let average_bytes = (self.unit_bytes / self.units.max(1)).max(1);
        self.units.min(UNITS_MAX).min((CLASS_BYTES_MAX / average_bytes).max(1))
    }
}

/// Compresses chosen units of each size class, each alone, on one core.
///
/// # Errors
/// If the input has no such units, if a unit is not restored to the same bytes, or if the user
/// interrupts it.
pub fn measure_sizes(
    input: &Input,
    unit: SizeUnit,
    codec: &FrameCodec,
    options: &MeasureOptions,
    progress: &dyn Progress,
) -> Result<SizesReport> {
    progress.stage("Counting", None);
    let options = options.clone().threads(1);
    let (mut classes, mut all) = count(input, unit, progress)?;
    if all.units == 0 {
        let unit = unit.as_str();
        return Err(Error::usage(format!("the input has no {unit}s: it is not a ledger or a snapshot archive"))
            .with_hint("`levels frames` measures any file, cut into pieces"));
    }
    let chosen = choose(input, unit, &classes, progress)?;
    for (row, units) in classes.iter_mut().zip(chosen).filter(|(_, units)| !units.is_empty()) {
        let stage = format!("{}s of {}", unit.as_str(), row.class);
        let measured = Bench::new(units, &options, progress).measure(codec, &stage)?;
        (row.measured_units, row.row) = (measured.pieces, measured.row);
        all.add(row);
    }
    Ok(SizesReport { unit, codec: *codec, classes, all })
}

fn class_of(bytes: u64) -> usize {
    CLASSES.partition_point(|(from, _)| *from <= bytes).saturating_sub(1)
}

fn empty_rows() -> Vec<SizeClassRow> {
    let below = CLASSES.iter().skip(1).map(|(from, _)| Some(*from)).chain([None]);
    let row = |((from, name), below_bytes): (&(u64, &str), Option<u64>)| SizeClassRow {
        class: name.to_string(),
        from_bytes: *from,
        below_bytes,
        ..SizeClassRow::default()
    };
    CLASSES.iter().zip(below).map(row).collect()
}

fn count(input: &Input, unit: SizeUnit, progress: &dyn Progress) -> Result<(Vec<SizeClassRow>, SizeClassRow)> {
    let mut classes = empty_rows();
    let mut all = SizeClassRow { class: "all".to_string(), ..SizeClassRow::default() };
    for_each_unit(input, unit, progress, &mut |unit| {
        classes[class_of(unit.len() as u64)].count(unit);
        all.count(unit);
    })?;
    Ok((classes, all))
}

fn for_each_unit<'a>(
    input: &'a Input,
    unit: SizeUnit,
    progress: &dyn Progress,
    visit: &mut dyn FnMut(&'a [u8]),
) -> Result<()> {
    for frame in &input.frames {
        progress.check()?;
        for storage in storages(frame) {
            match unit {
                SizeUnit::Storage => visit(storage),
                SizeUnit::Record => records(storage).for_each(&mut *visit),
            }
        }
    }
    Ok(())
}

/// Chooses the units of each class to measure, spread evenly over all of them.
fn choose<'a>(
    input: &'a Input,
    unit: SizeUnit,
    classes: &[SizeClassRow],
    progress: &dyn Progress,
) -> Result<Vec<Vec<&'a [u8]>>> {
    let wanted: Vec<u64> = classes.iter().map(SizeClassRow::wanted_units).collect();
    let mut chosen: Vec<Vec<&[u8]>> = vec![Vec::new(); CLASSES.len()];
    let mut seen = vec![0u64; CLASSES.len()];
    for_each_unit(input, unit, progress, &mut |unit| {
        let class = class_of(unit.len() as u64);
        // Divide the class into `wanted` equal parts, and take the first unit of each.
        let parts = u128::from(classes[class].units.max(1));
        let part = |number: u64| u128::from(number) * u128::from(wanted[class]) / parts;
        let is_first = seen[class] == 0 || part(seen[class]) != part(seen[class] - 1);
        if is_first && (chosen[class].len() as u64) < wanted[class] {
            chosen[class].push(unit);
        }
        seen[class] += 1;
    })?;
    Ok(chosen)
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
        let report =
            measure_sizes(&input, SizeUnit::Record, &FrameCodec::zstd(1), &options(), &NoProgress).expect("measured");
        let units: Vec<(&str, u64)> =
            report.classes.iter().filter(|row| row.units > 0).map(|row| (row.class.as_str(), row.units)).collect();
        assert_eq!(units, [("0-250 B", 3), ("250-500 B", 1), ("1-10 KB", 2)]);
        assert_eq!((report.all.units, report.all.measured_units), (6, 6));
        assert_eq!(report.all.row.input_bytes, 3 * 136 + 301 + 1036 + 5136);
        let sum: u64 = report.classes.iter().map(|row| row.row.output_bytes).sum();
        assert!(report.all.row.output_bytes == sum && sum > 0 && sum < report.all.row.input_bytes);
        assert!(report.all.row.compress.median > 0.0 && report.all.saving_percent() > Some(50.0));
    }

    #[test]
    fn storages_as_they_are() {
        let input = input(vec![frame(&[&[0, 0, 165, 900], &[5000]])]);
        let report =
            measure_sizes(&input, SizeUnit::Storage, &FrameCodec::zstd(3), &options(), &NoProgress).expect("measured");
        assert_eq!((report.all.units, report.codec.level), (2, 3));
    }

    #[test]
    fn a_file_has_no_units() {
        let input = input(vec![ContentFrame::new(vec![1; 5000])]);
        let error = measure_sizes(&input, SizeUnit::Record, &FrameCodec::zstd(1), &options(), &NoProgress);
        assert_eq!(error.expect_err("no units").kind(), ErrorKind::Usage);
    }

    #[test]
    fn chosen_units_are_spread_evenly() {
        let lengths: Vec<usize> = (0..50_000).map(|number| number % 2).collect();
        let input = input(vec![frame(&[&lengths])]);
        let (classes, _) = count(&input, SizeUnit::Record, &NoProgress).expect("counted");
        let chosen = choose(&input, SizeUnit::Record, &classes, &NoProgress).expect("chosen");
        assert_eq!(chosen[0].len() as u64, UNITS_MAX);
        let from = input.frames[0].content.as_ptr() as usize;
        let middle = (chosen[0][UNITS_MAX as usize / 2].as_ptr() as usize - from) as f64;
        assert!((middle / input.frames[0].content.len() as f64 - 0.5).abs() < 0.01, "{middle}");
        let large = SizeClassRow { units: 10, unit_bytes: 10 << 30, ..SizeClassRow::default() };
        assert_eq!(large.wanted_units(), 1);
    }

    proptest! {
        #[test]
        fn every_size_has_its_class(bytes in 0u64..3_000_000) {
            let row = &empty_rows()[class_of(bytes)];
            prop_assert!(row.from_bytes <= bytes && row.below_bytes.is_none_or(|below| bytes < below));
        }
    }

    #[test]
    fn the_ends() {
        assert_eq!((class_of(0), class_of(249), class_of(250), class_of(u64::MAX)), (0, 0, 1, CLASSES.len() - 1));
    }
}
