//! Checking frames: windows, marks, what stands between and after them; index and seek table against the file.

use {
    crate::{
        error::{IoContext, Result},
        format::{
            clients::Rule,
            seek_table::{SEEK_TABLE_FOOTER_BYTES, seek_table_bytes},
            zstd_frame::{
                FRAME_HEADER_BYTES_MAX, FrameHeader, FrameStart, PZSTD_FRAME_BYTES, SKIPPABLE_HEADER_BYTES,
                parse_frame_start, pzstd_frame,
            },
        },
        restore::{
            input::ArchiveFile,
            tail::{DataFrame, Tail},
            walk::{SeenFrame, WINDOW_LOG_MAX},
        },
        verify::report::{Check, Findings, Place},
    },
    std::os::unix::fs::FileExt,
};

/// The largest window that Firedancer gives.
const FIREDANCER_WINDOW_BYTES: u64 = 1 << 25;

/// What the content of an index frame starts with.
const INDEX_MAGIC: &[u8] = b"slotidx1";

/// Checks the window that a frame asks for. Streaming decoders mind it even where the frame states less content, as
/// Agave 4.2 was seen to do.
pub fn check_window(header: &FrameHeader, place: Place, findings: &Findings) {
    let (rule, limit) = match header.window_bytes {
        window if window > 1 << WINDOW_LOG_MAX => (Rule::WindowRefused, 1 << WINDOW_LOG_MAX),
        window if window > FIREDANCER_WINDOW_BYTES => (Rule::WindowLarge, FIREDANCER_WINDOW_BYTES),
        _ => return,
    };
    findings.add(Check::Frames, rule, place, format!("at most {limit} bytes"), header.window_bytes);
}

/// Watches the frames of an archive that is read in order.
#[derive(Debug)]
pub struct FrameWatch<'a> {
    findings: &'a Findings,
    /// Frames that hold tar, so far.
    count: u64,
    /// The last of them.
    last_offset_bytes: u64,
    /// The mark that was just before a frame: what it says.
    mark: Option<u64>,
    marked_frame: Option<(u64, u64)>,
    /// Whether a frame holds an index of slotpress.
    has_index: bool,
}

impl<'a> FrameWatch<'a> {
    /// No frame yet.
    pub fn new(findings: &'a Findings) -> Self {
        Self { findings, count: 0, last_offset_bytes: 0, mark: None, marked_frame: None, has_index: false }
    }

    /// A frame, skippable or not.
    pub fn see(&mut self, frame: SeenFrame<'_>) {
        self.end_marked_frame(frame.offset_bytes);
        match frame.start {
            FrameStart::Zstd(header) => {
                check_window(&header, Place::frame(Some(self.count), Some(frame.offset_bytes)), self.findings);
                self.marked_frame = self.mark.take().map(|mark| (mark, frame.offset_bytes));
                self.count += 1;
                self.last_offset_bytes = frame.offset_bytes;
            }
            FrameStart::Skippable { kind, content_bytes } => {
                self.has_index |= frame.content.starts_with(INDEX_MAGIC);
                let content = frame.content.first_chunk::<4>().filter(|_| (kind, content_bytes) == (0, 4));
                // Others pad with skippable frames of zeros: no frame is that short.
                self.mark = content.map(|bytes| u64::from(u32::from_le_bytes(*bytes))).filter(|mark| *mark > 0);
            }
        }
    }

    fn end_marked_frame(&mut self, end_bytes: u64) {
        if let Some((mark, start)) = self.marked_frame.take()
            && end_bytes - start != mark
        {
            let place = Place::frame(Some(self.count.saturating_sub(1)), Some(start));
            self.findings.add(Check::Frames, Rule::PzstdMark, place, end_bytes - start, mark);
        }
    }

    /// The file has been read to its end. An index that could not be used is one that is damaged.
    pub fn finish(&mut self, length_bytes: u64) {
        self.end_marked_frame(length_bytes);
        if self.has_index && !self.findings.has(Rule::Index) {
            let found = "an index without a seek table that fits";
            self.findings.add(Check::Frames, Rule::Index, Place::default(), "an index and its seek table", found);
        }
    }

    /// Frames that hold tar.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The number of the frame at an offset, where it is the last that was seen.
    pub fn number_of(&self, offset_bytes: Option<u64>) -> Option<u64> {
        (offset_bytes? >= self.last_offset_bytes && self.count > 0).then(|| self.count - 1)
    }
}

/// Checks what the seek table promises of one frame: the mark in front of it, and its header. `raw` is what stands in
/// the file from `gap_bytes` before the frame on.
pub fn check_indexed_frame(number: u64, frame: &DataFrame, gap_bytes: usize, raw: &[u8], findings: &Findings) -> bool {
    let place = || Place::frame(Some(number), Some(frame.offset_bytes));
    let (gap, start) = raw.split_at(gap_bytes.min(raw.len()));
    if gap != pzstd_frame(frame.compressed_bytes) {
        findings.add(Check::Frames, Rule::PzstdMark, place(), u64::from(frame.compressed_bytes), "another mark");
    }
    match parse_frame_start(start) {
        Ok(FrameStart::Zstd(header)) => {
            check_window(&header, place(), findings);
            if header.content_bytes.is_some_and(|content| content != u64::from(frame.content_bytes)) {
                let expected = format!("{} bytes of content, as the seek table says", frame.content_bytes);
                let found = header.content_bytes.unwrap_or_default();
                findings.add(Check::Frames, Rule::Index, place(), expected, format!("{found} bytes"));
                return false;
            }
            true
        }
        Ok(FrameStart::Skippable { .. }) => {
            findings.add(Check::Frames, Rule::Index, place(), "a frame of tar", "a skippable frame");
            false
        }
        Err(error) => {
            findings.add_error(Check::Frames, Rule::FrameDamaged, place(), &error);
            false
        }
    }
}

/// How many bytes in front of a frame belong to nothing but its mark.
pub fn gap_bytes(frames: &[DataFrame], number: usize) -> usize {
    let before = number
        .checked_sub(1)
        .map_or(0, |before| frames[before].offset_bytes + u64::from(frames[before].compressed_bytes));
    // What is longer than a mark is found to be none.
    (frames[number].offset_bytes.saturating_sub(before)).min(PZSTD_FRAME_BYTES as u64 * 2) as usize
}

/// Checks what follows the last frame: the index, the seek table, nothing else.
pub fn check_tail(archive: &ArchiveFile, tail: &Tail, findings: &Findings) -> Result<()> {
    let last_end = tail.frames.last().map_or(0, |last| last.offset_bytes + u64::from(last.compressed_bytes));
    let read = |at: u64, to: &mut [u8]| archive.file.read_exact_at(to, at).or_path("read", &archive.path);
    let mut footer = [0; SEEK_TABLE_FOOTER_BYTES];
    read(archive.length_bytes.saturating_sub(SEEK_TABLE_FOOTER_BYTES as u64), &mut footer)?;
    let mut start = [0; FRAME_HEADER_BYTES_MAX];
    read(last_end, &mut start)?;
    let index_bytes = match parse_frame_start(&start) {
        Ok(FrameStart::Skippable { content_bytes, .. }) => u64::from(content_bytes) + SKIPPABLE_HEADER_BYTES as u64,
        _ => 0,
    };
    let end = last_end + index_bytes + seek_table_bytes(&footer).unwrap_or_default();
    if footer[4] != 0 || end != archive.length_bytes {
        let place = Place::default().at(last_end);
        let expected = "the index, then the seek table, until the file's end";
        findings.add(Check::Frames, Rule::Index, place, expected, "something else");
    }
    Ok(())
}
