//! Bundling: small units that are compressed together, so many in a frame.
//!
//! From every frame of the input, one run of units that follow each other is taken from its beginning on: neighbours stay
//! neighbours, and the runs are spread over the input as its frames are. A frame of a bundle holds units of one run.

use {
    super::{
        BundleRow, UnitKind,
        pass::{Pause, check_round_trip},
    },
    crate::levels::{
        codec::FrameCodec,
        content::ContentFrame,
        input::Input,
        units::{lines, pieces, records, storages},
    },
    slotpress_base::{
        error::{Error, Result},
        progress::Progress,
    },
    std::time::{Duration, Instant},
};

/// Units that are bundled, about at most: each is compressed twice for every row, and a level of 3 MB/s should not take
/// minutes for one.
const BYTES_MAX: usize = 32 << 20;

/// The same in units: 175 of them in a frame still make thousands of frames.
const UNITS_MAX: usize = 500_000;

/// So much at the beginning of a file tells whether it is text, as `git` and `diff` decide it.
const TEXT_PROBE_BYTES: usize = 8000;

/// What a unit is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitChoice {
    /// Records where there are some, otherwise lines of what is text, otherwise nothing.
    Any,
    /// Records of storages.
    Record,
    /// Lines.
    Line,
    /// Pieces of so many bytes.
    Piece(usize),
}

/// What is bundled.
pub struct Units<'a> {
    /// What a unit is.
    pub kind: UnitKind,
    runs: Vec<Vec<&'a [u8]>>,
}

impl<'a> Units<'a> {
    /// Takes units. `None` where nothing was asked for and nothing is found; an error where what was asked for is not
    /// there.
    pub fn of(input: &'a Input, choice: UnitChoice) -> Result<Option<Self>> {
        let taken = |kind, units: &dyn Fn(&'a ContentFrame) -> UnitsOf<'a>| {
            let bytes_max = (BYTES_MAX / input.frames.len().max(1)).max(1);
            let units_max = (UNITS_MAX / input.frames.len().max(1)).max(1);
            let run = |frame| run_of(units(frame), units_max, bytes_max);
            let runs: Vec<Vec<&[u8]>> = input.frames.iter().map(run).filter(|run| !run.is_empty()).collect();
            (!runs.is_empty()).then_some(Self { kind, runs })
        };
        let all_records = || taken(UnitKind::Record, &|frame| Box::new(storages(frame).into_iter().flat_map(records)));
        let all_lines = || taken(UnitKind::Line, &|frame| Box::new(lines(&frame.content)));
        match choice {
            UnitChoice::Any => Ok(all_records().or_else(|| if is_text(input) { all_lines() } else { None })),
            UnitChoice::Record => all_records().map(Some).ok_or_else(|| {
                Error::usage("--unit record: no storage with records is in what was read")
                    .hint("--unit line or --unit 200 bundle lines or pieces of a file")
            }),
            UnitChoice::Line => Ok(all_lines()),
            UnitChoice::Piece(bytes) => Ok(taken(UnitKind::Piece, &|frame| Box::new(pieces(&frame.content, bytes)))),
        }
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.runs.iter().map(|run| run.len() as u64).sum()
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().flatten().map(|unit| unit.len() as u64).sum()
    }
}

/// Text has no zero bytes.
fn is_text(input: &Input) -> bool {
    let is_zero = |frame: &ContentFrame| frame.content.iter().take(TEXT_PROBE_BYTES).any(|byte| *byte == 0);
    !input.frames.iter().any(is_zero)
}

/// Units of a frame one after the other: a frame can have more than memory should hold at once.
type UnitsOf<'a> = Box<dyn Iterator<Item = &'a [u8]> + 'a>;

/// The first units, until there are enough; at least one.
fn run_of<'a>(units: UnitsOf<'a>, units_max: usize, bytes_max: usize) -> Vec<&'a [u8]> {
    let mut bytes = 0;
    let is_room = |unit: &&[u8]| {
        let is_room = bytes < bytes_max;
        bytes += unit.len();
        is_room
    };
    units.filter(|unit| !unit.is_empty()).take(units_max).take_while(is_room).collect()
}

/// What a pass over all frames of a bundle gives.
#[derive(Default)]
struct Pass {
    frames: u64,
    output_bytes: u64,
    compress: Duration,
    decompress: Duration,
}

/// Measures so many units per frame: one pass in which every frame is compared, which is the warm-up too, and one that is
/// timed. `alone_bytes` is what each alone compresses to, where that is known.
pub fn measure_bundle(
    units: &Units,
    units_per_frame: u64,
    codec: &dyn FrameCodec,
    alone_bytes: Option<u64>,
    progress: &dyn Progress,
) -> Result<BundleRow> {
    let input_bytes = units.bytes();
    let is_alone_known = alone_bytes.is_some() || units_per_frame == 1;
    let passes = if is_alone_known { 2 } else { 3 };
    progress.stage(&format!("Bundles of {units_per_frame}"), Some(input_bytes * passes));
    let pass = |units_per_frame, is_checked| pass(units, units_per_frame, codec, is_checked, progress);
    pass(units_per_frame, true)?;
    let Pass { frames, output_bytes, compress, decompress } = pass(units_per_frame, false)?;
    let alone_bytes = match alone_bytes {
        Some(bytes) => bytes,
        None if is_alone_known => output_bytes,
        None => pass(1, false)?.output_bytes,
    };
    Ok(BundleRow {
        units_per_frame,
        frames,
        input_bytes,
        output_bytes,
        alone_bytes,
        compress_seconds: compress.as_secs_f64(),
        decompress_seconds: decompress.as_secs_f64(),
    })
}

fn pass(
    units: &Units,
    units_per_frame: u64,
    codec: &dyn FrameCodec,
    is_checked: bool,
    progress: &dyn Progress,
) -> Result<Pass> {
    let units_per_frame = usize::try_from(units_per_frame).unwrap_or(usize::MAX).max(1);
    let (mut encoder, mut decoder) = (codec.new_encoder()?, codec.new_decoder()?);
    let (mut content, mut frame, mut back) = (Vec::new(), Vec::new(), Vec::new());
    let mut pause = Pause::new(progress);
    let mut total = Pass::default();
    for bundle in units.runs.iter().flat_map(|run| run.chunks(units_per_frame)) {
        content.clear();
        bundle.iter().for_each(|unit| content.extend_from_slice(unit));
        let start = Instant::now();
        encoder.encode(&content, &mut frame)?;
        total.compress += start.elapsed();
        if is_checked {
            check_round_trip(codec, &mut *decoder, &content, &frame, &mut back)?;
        } else {
            let start = Instant::now();
            decoder.decode(&frame, content.len(), &mut back)?;
            total.decompress += start.elapsed();
        }
        total.frames += 1;
        total.output_bytes += frame.len() as u64;
        pause.after(content.len(), true)?;
    }
    Ok(total)
}
