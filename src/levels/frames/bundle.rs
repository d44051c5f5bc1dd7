//! Bundles small units, several in a frame.
//!
//! One run of consecutive units is taken from the beginning of every frame of the input, so units stay beside their
//! neighbours, and the runs are spread over the input. A bundle never crosses the end of a run.

use slotpress_base::{Error, Result};

use super::UnitKind;
use crate::levels::input::{ContentFrame, Input};
use crate::levels::units::{lines, pieces, records, storages};

/// Limit of bundled bytes: each is compressed twice per row, and a level of 3 MB/s should not take minutes for a row.
const BYTES_MAX: usize = 32 << 20;

/// Limit of bundled units: with 175 per frame, they still make thousands of frames.
const UNITS_MAX: usize = 500_000;

/// Number of bytes at a frame's beginning that are searched for zeros to detect text, as `git` and `diff` do.
const TEXT_PROBE_BYTES: usize = 8000;

/// Choice of units to bundle (`--unit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitChoice {
    /// Records; if there are none, lines of a text; else nothing.
    Any,
    /// Records of account storages.
    Record,
    /// Lines of a text.
    Line,
    /// Pieces of this many bytes.
    Piece(usize),
}

pub struct Units {
    pub kind: UnitKind,
    runs: Vec<Run>,
}

#[derive(Default)]
struct Run {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Units {
    /// Collects units; `None` if there are none. It is an error if records were asked for and there are none.
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
                    .with_hint("of any other file, lines can be bundled, or pieces of a number of bytes")
            }),
            UnitChoice::Line => Ok(all_lines()),
            UnitChoice::Piece(bytes) => Ok(taken(UnitKind::Piece, &|frame| Box::new(pieces(&frame.content, bytes)))),
        }
    }

    pub fn count(&self) -> u64 {
        self.runs.iter().map(|run| run.ends.len() as u64).sum()
    }

    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes.len() as u64).sum()
    }

    /// Contents of frames with this many units each; the last frame of a run may have fewer.
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

/// True if no frame has a zero byte near its beginning, which text does not contain.
fn is_text(input: &Input) -> bool {
    let is_zero = |frame: &ContentFrame| frame.content.iter().take(TEXT_PROBE_BYTES).any(|byte| *byte == 0);
    !input.frames.iter().any(is_zero)
}

/// An iterator, because a list of all records of a frame could be larger than the frame.
type UnitsOf<'a> = Box<dyn Iterator<Item = &'a [u8]> + 'a>;

/// Collects the first units up to the limits, but at least one.
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
