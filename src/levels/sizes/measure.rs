//! Compressing the units of each size class alone, on one core.
//!
//! Units are timed in batches that stay in a core's caches, so that reading the clock does not count. A class is measured
//! until all of its units were, or its time is up; its units are taken in an order that is spread over the input.

use {
    super::{
        SizeClassRow, SizeUnit, SizesReport,
        class::{class_of, empty_rows},
    },
    crate::{
        error::Result,
        levels::{
            codec::{FrameCodec, label},
            solo::{Solo, scattered},
            units::{UnitRef, Units},
        },
        progress::Progress,
    },
    std::time::{Duration, Instant},
};

/// A batch ends when it has so many bytes, which stay in a second-level cache,
const BATCH_BYTES: usize = 256 * 1024;

/// or so many units, each of which has buffers.
const BATCH_UNITS: usize = 1024;

/// Measures what each size class saves; `time_per_class` bounds the time for each.
pub fn measure_sizes(
    units: &Units,
    codec: &dyn FrameCodec,
    time_per_class: Duration,
    progress: &dyn Progress,
) -> Result<SizesReport> {
    let total_bytes = units.unit_bytes();
    progress.stage(&label(codec.name(), codec.level()), Some(total_bytes));
    let mut classes = empty_rows();
    let mut by_class: Vec<Vec<UnitRef>> = vec![Vec::new(); classes.len()];
    units.refs.iter().for_each(|unit| by_class[class_of(unit.len() as u64)].push(*unit));
    let mut solo = Solo::new(codec)?;
    for (number, (row, class)) in classes.iter_mut().zip(&by_class).enumerate() {
        row.units = match units.unit {
            SizeUnit::Storage => units.storages[number],
            SizeUnit::Record => class.len() as u64,
        };
        measure_class(&mut solo, row, class, units, time_per_class, progress)?;
    }
    let storages: u64 = units.storages.iter().sum();
    let (total_units, total_bytes) = match units.unit {
        SizeUnit::Storage => (storages, units.storage_bytes),
        SizeUnit::Record => (units.refs.len() as u64, total_bytes),
    };
    Ok(SizesReport {
        unit: units.unit,
        codec: codec.name().to_string(),
        level: codec.level(),
        total_units,
        total_bytes,
        total_storages: storages,
        read_storages: units.contents.len() as u64,
        all: all_of(&classes),
        classes,
    })
}

fn measure_class(
    solo: &mut Solo<'_>,
    row: &mut SizeClassRow,
    class: &[UnitRef],
    units: &Units,
    time: Duration,
    progress: &dyn Progress,
) -> Result<()> {
    let Some(first) = class.first() else { return Ok(()) };
    // The first one also takes what it takes to map memory.
    solo.batch(&[first.bytes(&units.contents)])?;
    let start = Instant::now();
    let mut order = scattered(class.len()).peekable();
    while order.peek().is_some() && (row.measured_units == 0 || start.elapsed() < time) {
        progress.check()?;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(number) = order.next_if(|_| bytes < BATCH_BYTES && batch.len() < BATCH_UNITS) {
            let unit = class[number].bytes(&units.contents);
            bytes += unit.len();
            batch.push(unit);
        }
        let spent = solo.batch(&batch)?;
        row.measured_units += batch.len() as u64;
        row.input_bytes += bytes as u64;
        row.output_bytes += spent.output_bytes;
        row.compress_seconds += spent.compress.as_secs_f64();
        row.decompress_seconds += spent.decompress.as_secs_f64();
        progress.advance(bytes as u64, 0);
    }
    Ok(())
}

/// All classes together. Each counts by its units, however many of them were measured: the sums are those that as many
/// measured units would have, were they drawn from all.
fn all_of(classes: &[SizeClassRow]) -> SizeClassRow {
    let measured = || classes.iter().filter(|row| row.measured_units > 0);
    let measured_units: u64 = measured().map(|row| row.measured_units).sum();
    let known_units: u64 = measured().map(|row| row.units).sum();
    let share = measured_units as f64 / (known_units as f64).max(1.0);
    let sum = |value: &dyn Fn(&SizeClassRow) -> f64| -> f64 {
        measured().map(|row| value(row) * row.units as f64 / row.measured_units as f64).sum::<f64>() * share
    };
    SizeClassRow {
        class: "all".to_string(),
        from_bytes: 0,
        below_bytes: None,
        units: classes.iter().map(|row| row.units).sum(),
        measured_units,
        input_bytes: sum(&|row| row.input_bytes as f64).round() as u64,
        output_bytes: sum(&|row| row.output_bytes as f64).round() as u64,
        compress_seconds: sum(&|row| row.compress_seconds),
        decompress_seconds: sum(&|row| row.decompress_seconds),
    }
}

#[cfg(test)]
mod tests {
    use {
        super::*,
        crate::{
            levels::{codec::ZstdLevel, input::InputKind, sizes::class::CLASSES},
            progress::NoProgress,
        },
    };

    fn row(units: u64, measured_units: u64, input_bytes: u64, output_bytes: u64) -> SizeClassRow {
        SizeClassRow { units, measured_units, input_bytes, output_bytes, ..SizeClassRow::default() }
    }

    #[test]
    fn classes_count_by_their_units() {
        let all = all_of(&[row(10, 10, 1000, 900), row(90, 10, 10_000, 1000), row(5, 0, 0, 0)]);
        assert_eq!((all.units, all.measured_units), (105, 20));
        // (1000 + 90,000) and (900 + 9,000), of 20 instead of 100 units.
        assert_eq!((all.input_bytes, all.output_bytes), (18_200, 1980));
        assert_eq!(all_of(&[]).saving_percent(), None);
    }

    #[test]
    fn every_unit_is_in_its_class() {
        let sizes = [10usize, 300, 300, 5000, 150_000, 2_500_000];
        let contents: Vec<Vec<u8>> = sizes.iter().map(|size| (0..*size).map(|at| (at / 50) as u8).collect()).collect();
        let refs = (0..sizes.len()).filter_map(|at| UnitRef::new(at, 0..sizes[at])).collect();
        let mut storages = [0; CLASSES.len()];
        sizes.iter().for_each(|size| storages[class_of(*size as u64)] += 1);
        let storage_bytes = sizes.iter().sum::<usize>() as u64;
        let units = Units { kind: InputKind::Ledger, unit: SizeUnit::Storage, storages, storage_bytes, contents, refs };
        let report = measure_sizes(&units, &ZstdLevel(1), Duration::ZERO, &NoProgress).expect("measured");
        let found: Vec<(&str, u64, u64)> = report
            .classes
            .iter()
            .filter(|row| row.units > 0)
            .map(|row| (row.class.as_str(), row.units, row.measured_units))
            .collect();
        let expected =
            [("0-250 B", 1, 1), ("250-500 B", 2, 2), ("1-10 KB", 1, 1), ("100-200 KB", 1, 1), ("larger", 1, 1)];
        assert_eq!(found, expected);
        assert!(report.classes[0].saving_percent().is_some_and(|saving| saving < 0.0), "10 bytes grow");
        assert!(report.classes[5].saving_percent().is_some_and(|saving| saving > 50.0));
        assert_eq!((report.total_units, report.total_bytes), (6, storage_bytes));
    }
}
