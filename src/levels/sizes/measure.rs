//! Measuring size classes: units are counted, then some of each class, evenly spread, are measured on one core.
//!
//! A class is timed as a whole, because one small unit takes less time than reading the clock.

use slotpress_base::{Error, Progress, Result};

use super::class::{CLASSES, class_of, empty_rows};
use super::{SizeClassRow, SizeUnit, SizesReport};
use crate::levels::RepeatOptions;
use crate::levels::codec::FrameCodec;
use crate::levels::input::Input;
use crate::levels::measure::Bench;
use crate::levels::units::{records, storages};

/// Maximum number of units that are measured of a class: fewer give the average to a percent.
const UNITS_MAX: u64 = 20_000;

/// Maximum bytes of these, unless one unit is larger: their compressed copies are held in memory, and codecs may be
/// slow.
const CLASS_BYTES_MAX: u64 = 32 << 20;

/// Measures the units of an input with a codec.
///
/// # Errors
/// The input has no units, a unit does not come back as it was, or the user asked to stop.
pub fn measure_sizes(
    input: &Input,
    unit: SizeUnit,
    codec: &FrameCodec,
    options: &RepeatOptions,
    progress: &dyn Progress,
) -> Result<SizesReport> {
    progress.stage("Counting", None);
    let mut report = count(input, unit, codec, progress)?;
    if report.all.units == 0 {
        let unit = unit.as_str();
        return Err(Error::usage(format!("the input has no {unit}s: it is not a ledger or a snapshot archive"))
            .with_hint("`levels frames` measures any file, cut into pieces"));
    }
    let chosen = choose(input, unit, &report.classes, progress)?;
    for (row, units) in report.classes.iter_mut().zip(chosen).filter(|(_, units)| !units.is_empty()) {
        let stage = format!("{}s of {}", unit.as_str(), row.class);
        let measured = Bench::new(units, RepeatOptions { threads: 1, ..*options }, progress).measure(codec, &stage)?;
        (row.measured_units, row.row) = (measured.pieces, measured.row);
        report.all.add(row);
    }
    Ok(report)
}

/// Counts the units of each class.
fn count(input: &Input, unit: SizeUnit, codec: &FrameCodec, progress: &dyn Progress) -> Result<SizesReport> {
    let mut classes = empty_rows();
    let mut all = SizeClassRow { class: "all".to_string(), ..SizeClassRow::default() };
    for_each_unit(input, unit, progress, &mut |unit| {
        if let Some(row) = classes.get_mut(class_of(unit.len() as u64)) {
            row.units += 1;
            row.unit_bytes += unit.len() as u64;
        }
        all.units += 1;
        all.unit_bytes += unit.len() as u64;
    })?;
    Ok(SizesReport { unit, codec: *codec, classes, all })
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

/// Of each class, units that are spread evenly over those that were counted.
fn choose<'a>(
    input: &'a Input,
    unit: SizeUnit,
    classes: &[SizeClassRow],
    progress: &dyn Progress,
) -> Result<Vec<Vec<&'a [u8]>>> {
    let wanted: Vec<u64> = classes.iter().map(wanted_units).collect();
    let mut chosen: Vec<Vec<&[u8]>> = vec![Vec::new(); CLASSES.len()];
    let mut seen = vec![0u64; CLASSES.len()];
    for_each_unit(input, unit, progress, &mut |unit| {
        let class = class_of(unit.len() as u64);
        let Some(row) = classes.get(class) else { return };
        // The first unit of each of `wanted` equal parts is taken.
        let part = |number: u64| u128::from(number) * u128::from(wanted[class]) / u128::from(row.units.max(1));
        let is_first = seen[class] == 0 || part(seen[class]) != part(seen[class] - 1);
        if is_first && (chosen[class].len() as u64) < wanted[class] {
            chosen[class].push(unit);
        }
        seen[class] += 1;
    })?;
    Ok(chosen)
}

/// The number of units of a class that are measured.
fn wanted_units(row: &SizeClassRow) -> u64 {
    let average_bytes = (row.unit_bytes / row.units.max(1)).max(1);
    row.units.min(UNITS_MAX).min((CLASS_BYTES_MAX / average_bytes).max(1))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use slotpress_base::{ErrorKind, NoProgress};
    use slotpress_format::{Entry, EntryKind};

    use super::*;
    use crate::levels::content::{ContentFrame, InputKind};

    fn options() -> RepeatOptions {
        RepeatOptions { repeat: 2, min_time: Duration::ZERO, threads: 1, budget: None }
    }

    fn input(frames: Vec<ContentFrame>) -> Input {
        let total_bytes = frames.iter().map(|frame| frame.content.len() as u64).sum();
        Input { kind: InputKind::Archive, total_bytes, total_frames: 9, frame_size_bytes: 1 << 25, frames }
    }

    /// A frame of storages, each with records of these data lengths.
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
    fn what_is_chosen_is_spread_evenly() {
        let lengths: Vec<usize> = (0..50_000).map(|number| number % 2).collect();
        let input = input(vec![frame(&[&lengths])]);
        let classes = count(&input, SizeUnit::Record, &FrameCodec::zstd(1), &NoProgress).expect("counted").classes;
        let chosen = choose(&input, SizeUnit::Record, &classes, &NoProgress).expect("chosen");
        assert_eq!(chosen[0].len() as u64, UNITS_MAX);
        let from = input.frames[0].content.as_ptr() as usize;
        let middle = (chosen[0][UNITS_MAX as usize / 2].as_ptr() as usize - from) as f64;
        assert!((middle / input.frames[0].content.len() as f64 - 0.5).abs() < 0.01, "{middle}");
        let large = SizeClassRow { units: 10, unit_bytes: 10 << 30, ..SizeClassRow::default() };
        assert_eq!(wanted_units(&large), 1);
    }
}
