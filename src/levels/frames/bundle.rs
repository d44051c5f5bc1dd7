//! Bundling: small units that are compressed together, several in a frame.
//!
//! From the beginning of every frame of the input, one run of units that follow each other is taken: neighbours stay
//! neighbours, and the runs are spread over the input as its frames are. A bundle holds units of one run.

use slotpress_base::{Error, Result};

use super::UnitKind;
use crate::levels::input::{ContentFrame, Input};
use crate::levels::units::{lines, pieces, records, storages};

/// Maximum bytes of units that are bundled: each is compressed twice for every row, and a level of 3 MB/s should not
/// take minutes for one.
const BYTES_MAX: usize = 32 << 20;

/// Maximum number of units: 175 of them in a frame still make thousands of frames.
const UNITS_MAX: usize = 500_000;

/// Bytes at the beginning of a frame that show whether it is text, as in `git` and `diff`.
const TEXT_PROBE_BYTES: usize = 8000;

/// What `--unit` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitChoice {
    /// Records; if there are none, lines of a text; otherwise nothing.
    Any,
    /// Records of storages.
    Record,
    /// Lines.
    Line,
    /// Pieces of this many bytes.
    Piece(usize),
}

/// What is bundled.
pub struct Units {
    /// What a unit is.
    pub kind: UnitKind,
    runs: Vec<Run>,
}

/// Units of one frame of the input, one behind the other.
#[derive(Default)]
struct Run {
    bytes: Vec<u8>,
    /// Where each unit ends.
    ends: Vec<usize>,
}

impl Units {
    /// Takes units. `None` if there are none.
    ///
    /// # Errors
    /// Records were asked for, and there are none.
    pub fn of(input: &Input, choice: UnitChoice) -> Result<Option<Self>> {
        let taken = |kind, units: &dyn for<'a> Fn(&'a ContentFrame) -> UnitsOf<'a>| {
            let bytes_max = (BYTES_MAX / input.frames.len().max(1)).max(1);
            let units_max = (UNITS_MAX / input.frames.len().max(1)).max(1);
            let run = |frame| run_of(units(frame), units_max, bytes_max);
            let runs: Vec<Run> = input.frames.iter().map(run).filter(|run| !run.ends.is_empty()).collect();
            (!runs.is_empty()).then_some(Self { kind, runs })
        };
        let all_records = || taken(UnitKind::Record, &|frame| Box::new(storages(frame).into_iter().flat_map(records)));
        let all_lines = || taken(UnitKind::Line, &|frame| Box::new(lines(&frame.content)));
        match choice {
            UnitChoice::Any => Ok(all_records().or_else(|| if is_text(input) { all_lines() } else { None })),
            UnitChoice::Record => all_records().map(Some).ok_or_else(|| {
                Error::usage("no storage with records is in what was read")
                    .with_hint("of any file, lines or pieces of so many bytes can be bundled")
            }),
            UnitChoice::Line => Ok(all_lines()),
            UnitChoice::Piece(bytes) => Ok(taken(UnitKind::Piece, &|frame| Box::new(pieces(&frame.content, bytes)))),
        }
    }

    /// The number of units.
    pub fn count(&self) -> u64 {
        self.runs.iter().map(|run| run.ends.len() as u64).sum()
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes.len() as u64).sum()
    }

    /// The contents of frames of this many units; the last of each run may have fewer.
    pub fn bundles(&self, units_per_frame: u64) -> Vec<&[u8]> {
        let units = usize::try_from(units_per_frame).unwrap_or(usize::MAX).max(1);
        let mut bundles = Vec::new();
        for run in &self.runs {
            let mut start = 0;
            for end in run.ends.chunks(units).filter_map(|bundle| bundle.last().copied()) {
                bundles.push(&run.bytes[start..end]);
                start = end;
            }
        }
        bundles
    }
}

/// Whether no frame begins with zero bytes, which text does not have.
fn is_text(input: &Input) -> bool {
    let is_zero = |frame: &ContentFrame| frame.content.iter().take(TEXT_PROBE_BYTES).any(|byte| *byte == 0);
    !input.frames.iter().any(is_zero)
}

/// Units of a frame, as an iterator: a list of all records of a frame may be larger than the frame.
type UnitsOf<'a> = Box<dyn Iterator<Item = &'a [u8]> + 'a>;

/// The first units, until there are enough; at least one.
fn run_of(units: UnitsOf<'_>, units_max: usize, bytes_max: usize) -> Run {
    let mut run = Run::default();
    for unit in units.filter(|unit| !unit.is_empty()).take(units_max) {
        run.bytes.extend_from_slice(unit);
        run.ends.push(run.bytes.len());
        if run.bytes.len() >= bytes_max {
            break;
        }
    }
    run
}
