//! Measuring by size class: units are counted, some of each class are chosen, evenly spread, and compressed one by one.
//!
//! On one core. A run is one pass over the chosen units of a class, timed as a whole: single units take less than reading
//! the clock. Before the runs that count, one pass warms up, and every unit is decompressed and compared.

use {
    super::{
        SizeClassRow, SizeUnit, SizesReport,
        class::{CLASSES, class_of, empty_rows},
    },
    crate::levels::{
        RepeatOptions,
        codec::{FrameCodec, FrameDecode, FrameEncoder, label},
        input::Input,
        statistics::median,
        units::{records, storages},
    },
    slotpress_base::{
        error::{Error, Result},
        progress::Progress,
    },
    std::time::Instant,
};

/// Units of a class that are measured, at most: their average is known to a percent well before.
const UNITS_MAX: u64 = 20_000;

/// Their bytes, at most, but for one unit: what is held compressed, and what a pass of a slow codec takes.
const CLASS_BYTES_MAX: u64 = 32 << 20;

/// Passes of a class that are timed, at most: what takes no time at all must end too.
const PASSES_MAX: usize = 10_000;

/// Measures the units of an input with a codec; an error where it has none.
pub fn measure_sizes(
    input: &Input,
    unit: SizeUnit,
    codec: &dyn FrameCodec,
    options: &RepeatOptions,
    progress: &dyn Progress,
) -> Result<SizesReport> {
    progress.stage("Counting", None);
    let mut report = count(input, unit, codec, progress)?;
    if report.all.units == 0 {
        let unit = unit.as_str();
        return Err(Error::usage(format!("the input has no {unit}s: it is not a ledger or a snapshot archive"))
            .hint("`levels frames` measures any file, cut into pieces"));
    }
    let chosen = choose(input, unit, &report.classes, progress)?;
    let mut bench = Bench { codec, encoder: codec.new_encoder()?, decoder: codec.new_decoder()?, options, progress };
    progress.stage(
        &format!("Measuring {}s", unit.as_str()),
        Some(chosen.iter().flatten().map(|unit| unit.len() as u64).sum()),
    );
    for (row, units) in report.classes.iter_mut().zip(&chosen) {
        bench.measure(row, units)?;
        report.all.add(row);
        progress.advance(row.input_bytes, 0);
    }
    Ok(report)
}

/// Everything before the times.
fn count(input: &Input, unit: SizeUnit, codec: &dyn FrameCodec, progress: &dyn Progress) -> Result<SizesReport> {
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
    Ok(SizesReport {
        unit,
        codec: codec.name().to_string(),
        level: codec.level(),
        total_bytes: input.total_bytes,
        read_bytes: input.content_bytes(),
        classes,
        all,
    })
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
        // The n-th of `units` is taken when it begins a new one of `wanted` equal parts.
        let part = |number: u64| u128::from(number) * u128::from(wanted[class]) / u128::from(row.units.max(1));
        let is_first = seen[class] == 0 || part(seen[class]) != part(seen[class] - 1);
        if is_first && (chosen[class].len() as u64) < wanted[class] {
            chosen[class].push(unit);
        }
        seen[class] += 1;
    })?;
    Ok(chosen)
}

/// How many units of a class are measured.
fn wanted_units(row: &SizeClassRow) -> u64 {
    let average_bytes = (row.unit_bytes / row.units.max(1)).max(1);
    row.units.min(UNITS_MAX).min((CLASS_BYTES_MAX / average_bytes).max(1))
}

struct Bench<'a> {
    codec: &'a dyn FrameCodec,
    encoder: Box<dyn FrameEncoder>,
    decoder: Box<dyn FrameDecode>,
    options: &'a RepeatOptions,
    progress: &'a dyn Progress,
}

impl Bench<'_> {
    fn measure(&mut self, row: &mut SizeClassRow, units: &[&[u8]]) -> Result<()> {
        if units.is_empty() {
            return Ok(());
        }
        let mut frames = Vec::with_capacity(units.len());
        let mut content = Vec::new();
        for unit in units {
            self.progress.check()?;
            let mut frame = Vec::new();
            self.encoder.encode(unit, &mut frame)?;
            self.decoder.decode(&frame, unit.len(), &mut content)?;
            if content != *unit {
                return Err(self.wrong(row));
            }
            frame.shrink_to_fit();
            frames.push(frame);
        }
        let mut frame = Vec::new();
        let encoder = &mut self.encoder;
        let compress = repeat(self.options, self.progress, &mut || {
            units.iter().try_for_each(|unit| encoder.encode(unit, &mut frame))
        })?;
        let decoder = &mut self.decoder;
        let decompress = repeat(self.options, self.progress, &mut || {
            let mut pairs = frames.iter().zip(units);
            pairs.try_for_each(|(frame, unit)| decoder.decode(frame, unit.len(), &mut content))
        })?;
        row.measured_units = units.len() as u64;
        row.input_bytes = units.iter().map(|unit| unit.len() as u64).sum();
        row.output_bytes = frames.iter().map(|frame| frame.len() as u64).sum();
        row.compress_seconds = compress;
        row.decompress_seconds = decompress;
        Ok(())
    }

    fn wrong(&self, row: &SizeClassRow) -> Error {
        let codec = label(self.codec.name(), self.codec.level());
        Error::failed(format!("{codec} does not round-trip: a unit of {} comes back as other bytes", row.class))
            .hint("the memory or the processor may be faulty: test them")
    }
}

/// The median time of a pass.
fn repeat(options: &RepeatOptions, progress: &dyn Progress, pass: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
    let mut seconds = Vec::new();
    let start = Instant::now();
    while seconds.len() < options.repeat.max(1) || (start.elapsed() < options.min_time && seconds.len() < PASSES_MAX) {
        progress.check()?;
        let pass_start = Instant::now();
        pass()?;
        seconds.push(pass_start.elapsed().as_secs_f64());
    }
    Ok(median(&seconds))
}

#[cfg(test)]
mod tests {
    use {
        super::*,
        crate::levels::{
            codec::ZstdLevel,
            content::{ContentFrame, InputKind},
        },
        slotpress_base::{error::ErrorKind, progress::NoProgress},
        slotpress_format::archive::entry::{Entry, EntryKind},
        std::time::Duration,
    };

    fn options() -> RepeatOptions {
        RepeatOptions { repeat: 2, min_time: Duration::ZERO, threads: 1 }
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
        let report = measure_sizes(&input, SizeUnit::Record, &ZstdLevel(1), &options(), &NoProgress).expect("measured");
        let units: Vec<(&str, u64)> =
            report.classes.iter().filter(|row| row.units > 0).map(|row| (row.class.as_str(), row.units)).collect();
        assert_eq!(units, [("0-250 B", 3), ("250-500 B", 1), ("1-10 KB", 2)]);
        assert_eq!((report.all.units, report.all.measured_units), (6, 6));
        assert_eq!(report.all.input_bytes, 3 * 136 + 301 + 1036 + 5136);
        let sum: u64 = report.classes.iter().map(|row| row.output_bytes).sum();
        assert!(report.all.output_bytes == sum && sum > 0 && sum < report.all.input_bytes);
        assert!(report.all.compress_seconds > 0.0 && report.all.saving_percent() > Some(50.0));
    }

    #[test]
    fn storages_as_they_are() {
        let input = input(vec![frame(&[&[0, 0, 165, 900], &[5000]])]);
        let report =
            measure_sizes(&input, SizeUnit::Storage, &ZstdLevel(3), &options(), &NoProgress).expect("measured");
        assert_eq!((report.all.units, report.level), (2, 3));
    }

    #[test]
    fn a_file_has_no_units() {
        let input = input(vec![ContentFrame::new(vec![1; 5000])]);
        let error = measure_sizes(&input, SizeUnit::Record, &ZstdLevel(1), &options(), &NoProgress);
        assert_eq!(error.expect_err("no units").kind(), ErrorKind::Usage);
    }

    #[test]
    fn what_is_chosen_is_spread_evenly() {
        let lengths: Vec<usize> = (0..50_000).map(|number| number % 2).collect();
        let input = input(vec![frame(&[&lengths])]);
        let classes = count(&input, SizeUnit::Record, &ZstdLevel(1), &NoProgress).expect("counted").classes;
        let chosen = choose(&input, SizeUnit::Record, &classes, &NoProgress).expect("chosen");
        assert_eq!(chosen[0].len() as u64, UNITS_MAX);
        let from = input.frames[0].content.as_ptr() as usize;
        let middle = (chosen[0][UNITS_MAX as usize / 2].as_ptr() as usize - from) as f64;
        assert!((middle / input.frames[0].content.len() as f64 - 0.5).abs() < 0.01, "{middle}");
        let large = SizeClassRow { units: 10, unit_bytes: 10 << 30, ..SizeClassRow::default() };
        assert_eq!(wanted_units(&large), 1);
    }
}
