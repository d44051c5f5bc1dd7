//! Clusters the storages in frames, whether the frames come from a ledger's plan or from
//! another archive.
//!
//! A frame is clustered as a whole after it is filled; its tar headers tell where storages begin.
//! Workers make frames independently, unless a frame starts inside an entry: then its worker must
//! know where the next record begins. The worker of the previous frame sends this position over a
//! [`FrameLink`] once it has walked over the record headers, long before it compresses. Workers take
//! frames in order, so a worker waits only for a worker that has started.

use crossbeam_channel::{Receiver, Sender, bounded};
use slotpress_base::quantity::count_of;
use slotpress_base::{Progress, Result};
use slotpress_format::{BLOCK_LEN, Entry, EntryParser, TarEvent};

use crate::archive::cluster::{Clusterer, RecordPosition, STORAGE_START};

/// Order of the records within the storages of an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordLayout {
    /// Unchanged: byte for byte as in the ledger.
    #[default]
    Verbatim,
    /// Sorted for better compression, with meaningless bytes zeroed.
    Clustered,
}

/// Position in an entry that continues in the next frame.
#[derive(Clone, Debug)]
pub struct CarriedPosition {
    entry: Entry,
    /// Bytes of the entry before the next frame, including the tar header.
    offset_bytes: u64,
    position: RecordPosition,
}

impl CarriedPosition {
    /// Finds the position without the previous frame: searches the frame's bytes for records.
    #[cfg(feature = "levels")]
    pub fn find(entry: Entry, offset_bytes: u64, tar: &[u8]) -> Self {
        let offset = offset_bytes.saturating_sub(BLOCK_LEN as u64);
        let content_bytes = usize::try_from(entry.content_bytes.saturating_sub(offset)).unwrap_or(tar.len());
        let content = &tar[..content_bytes.min(tar.len())];
        let position = if entry.is_storage() {
            super::cluster::find_position(content, offset, entry.content_bytes)
        } else {
            RecordPosition::Ended
        };
        Self { entry, offset_bytes, position }
    }
}

/// Connects a frame to its neighbors where entries cross its ends. If an error or interrupt has
/// dropped the previous frame, this frame stays unclustered, and the archive is never published.
#[derive(Debug, Default)]
pub struct FrameLink {
    previous_rx: Option<Receiver<CarriedPosition>>,
    next_tx: Option<Sender<CarriedPosition>>,
}

impl FrameLink {
    /// Makes a link for a frame that is clustered without its neighbors.
    #[cfg(feature = "levels")]
    pub fn without_neighbors(position: Option<CarriedPosition>) -> Self {
        let Some(position) = position else { return Self::default() };
        let (tx, rx) = bounded(1);
        // The channel has room for one, so this cannot block.
        let _ = tx.send(position);
        Self { previous_rx: Some(rx), next_tx: None }
    }
}

#[derive(Debug)]
pub struct FrameLinker {
    layout: RecordLayout,
    previous_rx: Option<Receiver<CarriedPosition>>,
}

impl FrameLinker {
    pub fn new(layout: RecordLayout) -> Self {
        Self { layout, previous_rx: None }
    }

    /// Makes the link of the next frame. `ends_inside_entry` is true if an entry continues beyond the
    /// frame's end.
    pub fn link(&mut self, ends_inside_entry: bool) -> FrameLink {
        let mut link = FrameLink { previous_rx: self.previous_rx.take(), next_tx: None };
        if ends_inside_entry && self.layout == RecordLayout::Clustered {
            let (tx, rx) = bounded(1);
            link.next_tx = Some(tx);
            self.previous_rx = Some(rx);
        }
        link
    }
}

#[derive(Debug, Default)]
pub struct FrameClusterer {
    clusterer: Clusterer,
    clustered: Vec<u8>,
}

impl FrameClusterer {
    /// Returns the tar bytes of a frame with sorted records, and the number of storages with unsorted
    /// records. Records stay unsorted if they are invalid or an address occurs twice. If there is nothing to
    /// sort, returns the bytes unchanged.
    pub fn cluster<'a>(&'a mut self, tar: &'a [u8], link: FrameLink) -> Result<(&'a [u8], u64)> {
        let mut parser = EntryParser::default();
        let mut entry = None;
        let mut position = STORAGE_START;
        if let Some(previous_rx) = link.previous_rx {
            // Fails if the previous frame was dropped.
            let Ok(carried) = previous_rx.recv() else { return Ok((tar, 0)) };
            let Some(resumed) = EntryParser::resume(carried.entry, carried.offset_bytes) else { return Ok((tar, 0)) };
            parser = resumed;
            entry = Some(carried.entry);
            position = carried.position;
        }
        let Self { clusterer, clustered } = self;
        let mut copied = 0;
        let mut unclustered_pieces = 0;
        parser.feed(tar, &mut |event| {
            let (offset, piece) = match event {
                TarEvent::Begin(new_entry) => {
                    entry = Some(new_entry);
                    position = STORAGE_START;
                    return Ok(());
                }
                TarEvent::End(_) => return Ok(()),
                TarEvent::Content { offset_bytes, bytes } => (offset_bytes, bytes),
            };
            let Some(entry) = entry else { return Ok(()) };
            // Contents are slices of `tar`, so the offset follows from the addresses.
            let start = piece.as_ptr().addr() - tar.as_ptr().addr();
            let is_storage = entry.is_storage();
            if is_storage {
                position = clusterer.walk(piece, offset, entry.content_bytes, &position);
            }
            // Sends the position before copying, since the worker of the next frame may be waiting
            // for it.
            let offset_bytes = BLOCK_LEN as u64 + offset + (tar.len() - start) as u64;
            if let Some(next_tx) = &link.next_tx
                && offset_bytes < entry.tar_bytes()
            {
                // Fails only if the next frame was dropped.
                let _ = next_tx.send(CarriedPosition { entry, offset_bytes, position: position.clone() });
            }
            if is_storage {
                // A frame without storages is never copied.
                let clustered = content_buffer(clustered, tar.len());
                clustered[copied..start].copy_from_slice(&tar[copied..start]);
                copied = start + piece.len();
                let is_sorted = clusterer.copy_sorted(piece, &mut clustered[start..copied]);
                unclustered_pieces += u64::from(!is_sorted || position == RecordPosition::GivenUp);
            }
            Ok(())
        })?;
        if copied == 0 {
            return Ok((tar, unclustered_pieces));
        }
        clustered[copied..tar.len()].copy_from_slice(&tar[copied..]);
        Ok((&clustered[..tar.len()], unclustered_pieces))
    }
}

/// Returns about how many bytes of memory clustering needs per worker: a copy of the frame, and 60
/// bytes per record. A record has at least 136 bytes.
pub fn clustering_bytes(layout: RecordLayout, frame_size_bytes: u64) -> u64 {
    match layout {
        RecordLayout::Verbatim => 0,
        RecordLayout::Clustered => frame_size_bytes * 3 / 2,
    }
}

pub(crate) fn warn_of_unclustered(pieces: u64, progress: &dyn Progress) {
    if pieces > 0 {
        progress.warn(&format!(
            "{} stored unchanged, not clustered: invalid records, or an address that occurs twice",
            count_of(pieces, "storage piece")
        ));
    }
}

/// Returns the first `length` bytes of a reusable buffer. Extends the buffer with zeros if it is too
/// short.
pub fn content_buffer(buffer: &mut Vec<u8>, length: usize) -> &mut [u8] {
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
    &mut buffer[..length]
}

#[cfg(test)]
mod tests {
    use slotpress_format::EntryKind;

    use super::*;

    fn record(number: u8, data_len: usize) -> Vec<u8> {
        let mut bytes = vec![0; 136];
        bytes[8..16].copy_from_slice(&(data_len as u64).to_le_bytes());
        bytes[16..48].fill(number + 1);
        bytes[48] = 1;
        bytes[64..96].fill(number % 3);
        bytes.resize(136 + data_len, number % 5);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn storages_over_several_frames_keep_their_records() {
        let content: Vec<u8> = (0..250).flat_map(|number| record(number, usize::from(number) * 7 % 300)).collect();
        let entry = Entry { kind: EntryKind::Storage { slot: 1, id: 1 }, content_bytes: content.len() as u64 };
        let mut tar = entry.header().to_vec();
        tar.extend_from_slice(&content);
        tar.resize(tar.len().next_multiple_of(512), 0);
        for frame_size in [513, 700, 1000, 1024, 4096, 9999, tar.len()] {
            let frames: Vec<&[u8]> = tar.chunks(frame_size).collect();
            let mut linker = FrameLinker::new(RecordLayout::Clustered);
            let links: Vec<FrameLink> =
                (0..frames.len()).map(|number| linker.link(number + 1 < frames.len())).collect();
            let results: Vec<Vec<u8>> = std::thread::scope(|scope| {
                let work = frames.iter().zip(links).map(|(frame, link)| {
                    scope.spawn(move || {
                        let mut clusterer = FrameClusterer::default();
                        let (bytes, unclustered_pieces) = clusterer.cluster(frame, link).expect("a frame");
                        assert_eq!(unclustered_pieces, 0);
                        bytes.to_vec()
                    })
                });
                work.collect::<Vec<_>>().into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            // Clusters each frame without its neighbors, as in a sample. Zeros at the start of a frame may
            // look like one more record, so one frame may differ.
            let mut different_frames = 0;
            for (number, (frame, linked)) in frames.iter().zip(&results).enumerate().filter(|_| frame_size >= 4096) {
                let position = (number > 0).then(|| CarriedPosition::find(entry, (number * frame_size) as u64, frame));
                let mut clusterer = FrameClusterer::default();
                let (bytes, unclustered_pieces) =
                    clusterer.cluster(frame, FrameLink::without_neighbors(position)).expect("a frame");
                assert_eq!(
                    (bytes.len(), unclustered_pieces),
                    (linked.len(), 0),
                    "frame {number} of {frame_size} bytes"
                );
                different_frames += usize::from(bytes != linked);
            }
            assert!(different_frames <= 1, "{different_frames} of {} frames of {frame_size} bytes", frames.len());
            let whole = results.concat();
            assert_eq!(whole[..512], tar[..512]);
            let records = |bytes: &[u8]| {
                let mut records = Vec::new();
                let mut start = 0;
                while start < bytes.len() {
                    let length = 136 + usize::from(bytes[start + 8]) + usize::from(bytes[start + 9]) * 256;
                    records.push(bytes[start..start + length].to_vec());
                    start += length.next_multiple_of(8);
                }
                records.sort();
                records
            };
            assert_eq!(records(&whole[512..512 + content.len()]), records(&content), "frames of {frame_size} bytes");
        }
    }

    #[test]
    fn a_dropped_link_does_not_stall() {
        let mut linker = FrameLinker::new(RecordLayout::Clustered);
        let first = linker.link(true);
        let second = linker.link(true);
        drop(first);
        let third = linker.link(false);
        let mut clusterer = FrameClusterer::default();
        for link in [second, third] {
            assert_eq!(clusterer.cluster(&[7; 1000], link).expect("a frame"), (&[7; 1000][..], 0));
        }
    }
}
