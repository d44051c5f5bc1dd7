//! What is cut into frames, and the units that are bundled: held in memory, in bounds.

use {
    super::UnitKind,
    crate::{
        error::{Error, Result},
        format::frames::FRAME_SIZE_BYTES_MAX,
        levels::{
            input::{Input, InputKind, InputOptions},
            sizes::SizeUnit,
            units::{UnitRef, Units},
        },
        progress::Progress,
    },
    std::ops::Range,
};

/// Which units are bundled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitsWanted {
    /// Records of a ledger or an archive; none of any other file.
    Records,
    /// Lines.
    Lines,
    /// Pieces of so many bytes.
    Pieces(u32),
}

/// Units that are remembered: what would take more memory than this is not looked at.
const UNITS_MAX: usize = 4_000_000;

/// Storages that records are read from: some hundred thousand records, which is more than are measured.
const RECORD_CONTENT_BYTES: u64 = 64 << 20;

/// Content to cut, and units in it.
#[derive(Debug)]
pub struct FramesContent {
    /// What sort of input it is.
    pub kind: InputKind,
    /// Bytes of the whole input.
    pub total_bytes: u64,
    /// Content that is consecutive: all of it, or pieces of up to 32 MiB of a sample.
    pub blocks: Vec<Vec<u8>>,
    units: Option<BundleUnits>,
}

#[derive(Debug)]
struct BundleUnits {
    kind: UnitKind,
    /// Where the units lie, unless it is the blocks.
    contents: Option<Vec<Vec<u8>>>,
    refs: Vec<UnitRef>,
}

impl FramesContent {
    /// Reads the input, or a sample of it.
    pub fn read(options: &InputOptions, wanted: UnitsWanted, progress: &dyn Progress) -> Result<Self> {
        let options = InputOptions { frame_size_bytes: FRAME_SIZE_BYTES_MAX, ..options.clone() };
        let input = Input::read(&options, progress)?;
        let (kind, total_bytes, is_sampled) = (input.kind, input.total_bytes, input.is_sampled());
        let frames = input.frames.into_iter().map(|frame| frame.content);
        let blocks: Vec<Vec<u8>> = match is_sampled {
            true => frames.collect(),
            false => vec![frames.fold(Vec::with_capacity(total_bytes as usize), |mut all, frame| {
                all.extend_from_slice(&frame);
                all
            })],
        };
        let of_blocks = |kind, cut: &dyn Fn(&[u8]) -> Vec<Range<usize>>| {
            let refs = refs_of(&blocks, cut);
            Some(BundleUnits { kind, contents: None, refs })
        };
        let units = match wanted {
            UnitsWanted::Records if kind == InputKind::File => None,
            UnitsWanted::Records => {
                let limit = options.sample_bytes.unwrap_or(u64::MAX).min(RECORD_CONTENT_BYTES);
                let options = InputOptions { sample_bytes: None, memory_bytes_max: limit, ..options.clone() };
                let Units { contents, refs, .. } = Units::read(&options, SizeUnit::Record, progress)?;
                Some(BundleUnits { kind: UnitKind::Record, contents: Some(contents), refs })
            }
            UnitsWanted::Lines => of_blocks(UnitKind::Line, &|block| lines(block, is_sampled)),
            UnitsWanted::Pieces(bytes) => of_blocks(UnitKind::Piece, &|block| pieces(block, bytes as usize)),
        };
        if wanted != UnitsWanted::Records && units.as_ref().is_some_and(|units| units.refs.is_empty()) {
            return Err(Error::usage(format!("{} holds no such units", options.paths.ledger.display()))
                .hint("give a smaller --unit-size, or leave out --lines"));
        }
        Ok(Self { kind, total_bytes, blocks, units })
    }

    /// Bytes that are cut into frames.
    pub fn content_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.len() as u64).sum()
    }

    /// What is bundled; `None` where there is nothing.
    pub fn units(&self) -> Option<BundleView<'_>> {
        let BundleUnits { kind, contents, refs } = self.units.as_ref().filter(|units| !units.refs.is_empty())?;
        Some(BundleView { kind: *kind, contents: contents.as_deref().unwrap_or(&self.blocks), refs })
    }
}

/// Units to bundle.
#[derive(Clone, Copy, Debug)]
pub struct BundleView<'a> {
    /// What they are.
    pub kind: UnitKind,
    /// Where they lie.
    pub contents: &'a [Vec<u8>],
    /// The units, in their order.
    pub refs: &'a [UnitRef],
}

fn refs_of(blocks: &[Vec<u8>], cut: &dyn Fn(&[u8]) -> Vec<Range<usize>>) -> Vec<UnitRef> {
    let mut refs = Vec::new();
    for (number, block) in blocks.iter().enumerate() {
        let ranges = cut(block).into_iter().take(UNITS_MAX - refs.len());
        refs.extend(ranges.filter_map(|range| UnitRef::new(number, range)));
    }
    refs
}

/// Lines with their ends; of a sample, without the ones that the block cuts.
fn lines(block: &[u8], is_sampled: bool) -> Vec<Range<usize>> {
    let mut from = 0;
    let mut ranges: Vec<Range<usize>> = block
        .split_inclusive(|byte| *byte == b'\n')
        .take(UNITS_MAX)
        .map(|line| {
            from += line.len();
            from - line.len()..from
        })
        .collect();
    if is_sampled && ranges.len() > 2 {
        ranges.pop();
        ranges.remove(0);
    }
    ranges
}

/// Whole pieces.
fn pieces(block: &[u8], bytes: usize) -> Vec<Range<usize>> {
    let bytes = bytes.max(1);
    (0..(block.len() / bytes).min(UNITS_MAX)).map(|number| number * bytes..(number + 1) * bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting() {
        assert_eq!(lines(b"ab\n\nc", false), [0..3, 3..4, 4..5]);
        assert_eq!(lines(b"ab\n\nc", true), vec![3..4]);
        assert_eq!(lines(b"", false), Vec::<Range<usize>>::new());
        assert_eq!(pieces(&[0; 10], 3), [0..3, 3..6, 6..9]);
    }
}
