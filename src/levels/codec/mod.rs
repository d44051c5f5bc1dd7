//! Codecs that compress frames independently. [`list`] parses lists of them, [`lzo`] is LZO1X-1.
//!
//! A decoder is given the length of the content. It never returns more, and fails if the frame
//! holds less.

pub mod list;
mod lzo;

use std::fmt;
use std::io::Read;

use bzip2::Action;
use bzip2::bufread::BzDecoder;
use flate2::{FlushCompress, FlushDecompress};
use lz4_flex::block::decompress_into;
use lzokay::{compress, decompress};
use serde::Serialize;
use slotpress_base::{Error, Result};
use slotpress_read::FrameDecoder;
use twox_hash::XxHash32;

use crate::archive::encode::{ArchiveFormat, Codec, FrameCompressor};
use crate::archive::layout::{RecordLayout, clustering_bytes};
use crate::archive::lz4::{UNCOMPRESSED_FLAG, append_blocks};

/// Codec with which the others are compared: at level 1, if that was measured.
pub const REFERENCE_CODEC: &str = "zstd";

pub const REFERENCE_LEVEL: i32 = 1;

/// Name for zstd on clustered records (`--layout clustered`).
pub const CLUSTERED_CODEC: &str = "clustered";

/// A codec at one of its levels. Displayed as `zstd 3`, `lz4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FrameCodec {
    /// Name of the codec, such as `zstd`.
    #[serde(rename = "codec")]
    pub name: &'static str,
    /// Level of the codec; 0 if it has none.
    pub level: i32,
}

impl Default for FrameCodec {
    fn default() -> Self {
        Self::zstd(REFERENCE_LEVEL)
    }
}

impl fmt::Display for FrameCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            0 => f.write_str(self.name),
            level => write!(f, "{} {level}", self.name),
        }
    }
}

impl FrameCodec {
    /// Returns zstd at this level, as `archive` uses it.
    pub fn zstd(level: i32) -> Self {
        Self { name: REFERENCE_CODEC, level }
    }

    /// Returns the codec for [`EncodingOptions`](crate::archive::EncodingOptions); `None` if archives
    /// cannot have it.
    pub fn archive_codec(&self) -> Option<Codec> {
        match self.name {
            REFERENCE_CODEC | CLUSTERED_CODEC => Some(Codec::zstd(self.level).layout(self.layout())),
            "lz4" => Some(Codec::new(ArchiveFormat::Lz4)),
            _ => None,
        }
    }

    /// Returns the order of records that this codec expects in frames.
    pub fn layout(&self) -> RecordLayout {
        if self.name == CLUSTERED_CODEC { RecordLayout::Clustered } else { RecordLayout::Verbatim }
    }

    /// Returns the memory of one worker in bytes: the encoder's context, and a frame before
    /// compressing, compressed, and decompressed. The context is measured after compressing a
    /// frame, because most of it is allocated then.
    ///
    /// # Errors
    /// The codec cannot be used, for example for lack of memory.
    pub fn worker_bytes(&self, frame_size_bytes: u64) -> Result<u64> {
        let frame = vec![0; frame_size_bytes as usize];
        let mut encoder = Encoder::new(*self)?;
        encoder.encode(&frame, &mut Vec::new())?;
        let buffers_bytes = (self.encoded_bytes_max(frame.len()) + 2 * frame.len()) as u64;
        Ok(encoder.context_bytes() as u64 + buffers_bytes + clustering_bytes(self.layout(), frame_size_bytes))
    }

    /// Returns the maximum length of a frame with content of this length.
    pub(crate) fn encoded_bytes_max(&self, content_bytes: usize) -> usize {
        match self.name {
            REFERENCE_CODEC | CLUSTERED_CODEC => zstd_safe::compress_bound(content_bytes),
            _ => encoded_bytes_max_without_zstd(content_bytes),
        }
    }
}

/// Returns the maximum length of a frame of a codec other than zstd, according to the codecs' manuals and
/// sources. Snappy may need a sixth more than the content; the others need less. Each has headers.
fn encoded_bytes_max_without_zstd(content_bytes: usize) -> usize {
    content_bytes + content_bytes / 6 + 600
}

/// Compresses frames. Its context is used for one frame after another.
pub enum Encoder {
    /// With content size and checksum in each frame, as `archive` writes them.
    Zstd(FrameCompressor),
    /// Blocks of `archive --format lz4`: up to 4 MiB, each with its length and a checksum.
    Lz4,
    Zlib(flate2::Compress),
    /// The library cannot reset a stream, so a new stream of this level is created for each frame.
    Bzip2(u32),
    /// The raw format: the length of the content, then blocks of 64 KiB.
    Snappy(Box<snap::raw::Encoder>),
    Lzo1(Vec<u32>),
    Lzo999(Box<compress::Dict>),
    /// Copies in memory, which shows the overhead of the measurement.
    None,
}

impl Encoder {
    pub fn new(FrameCodec { name, level }: FrameCodec) -> Result<Self> {
        let level_1_to_9 = level.clamp(1, 9) as u32;
        Ok(match (name, level) {
            ("lz4", _) => Self::Lz4,
            ("zlib", _) => Self::Zlib(flate2::Compress::new(flate2::Compression::new(level_1_to_9), true)),
            ("bzip2", _) => Self::Bzip2(level_1_to_9),
            ("snappy", _) => Self::Snappy(Box::new(snap::raw::Encoder::new())),
            ("lzo", 1) => Self::Lzo1(vec![0; lzo::TABLE_ITEMS]),
            ("lzo", _) => Self::Lzo999(compress::Dict::new()),
            ("none", _) => Self::None,
            (REFERENCE_CODEC | CLUSTERED_CODEC, _) => Self::Zstd(FrameCompressor::new(&Codec::zstd(level))?),
            _ => return Err(Error::usage(format!("there is no codec {name}"))),
        })
    }

    /// Compresses content. The compressed frame replaces the bytes in `frame`.
    pub fn encode(&mut self, content: &[u8], frame: &mut Vec<u8>) -> Result<()> {
        if let Self::Zstd(zstd) = self {
            return zstd.compress(content, frame);
        }
        frame.clear();
        self.append(content, frame).map_err(|reason| Error::failed(format!("a frame cannot be compressed: {reason}")))
    }

    fn append(&mut self, content: &[u8], frame: &mut Vec<u8>) -> Result<(), String> {
        frame.reserve(encoded_bytes_max_without_zstd(content.len()));
        match self {
            Self::Lz4 => append_blocks(content, frame),
            Self::Zlib(stream) => {
                stream.reset();
                let status = stream.compress_vec(content, frame, FlushCompress::Finish);
                require_end(status, flate2::Status::StreamEnd)?;
            }
            Self::Bzip2(level) => {
                const WORK_FACTOR: u32 = 0;
                let mut stream = bzip2::Compress::new(bzip2::Compression::new(*level), WORK_FACTOR);
                let status = stream.compress_vec(content, frame, Action::Finish);
                require_end(status, bzip2::Status::StreamEnd)?;
            }
            Self::Snappy(snappy) => {
                frame.resize(snap::raw::max_compress_len(content.len()), 0);
                let length = snappy.compress(content, frame).map_err(to_text)?;
                frame.truncate(length);
            }
            Self::Lzo1(table) => lzo::compress_fast(content, table, frame),
            // lzokay 2.0.1 cannot decode its own result for empty content.
            Self::Lzo999(_) if content.is_empty() => frame.extend_from_slice(&lzo::END_MARK),
            Self::Lzo999(dict) => *frame = compress::compress_with_dict(content, dict).map_err(to_text)?,
            // `encode` does not call this function for zstd.
            Self::Zstd(_) | Self::None => frame.extend_from_slice(content),
        }
        Ok(())
    }

    /// Returns the memory of the context in bytes, measured or according to the libraries' manuals.
    pub fn context_bytes(&self) -> usize {
        match self {
            Self::Zstd(zstd) => zstd.context_bytes(),
            Self::Lz4 => 16 * 1024,
            // (1 << (windowBits + 2)) + (1 << (memLevel + 9)), and a few KB.
            Self::Zlib(_) => (1 << 17) + (1 << 17) + 6 * 1024,
            // 400 KB, and eight times the size of a block.
            Self::Bzip2(level) => 400_000 + 800_000 * *level as usize,
            // 2^14 and 2^10 positions of 2 bytes.
            Self::Snappy(_) => (2 << 14) + (2 << 10),
            Self::Lzo1(table) => size_of_val(table.as_slice()),
            Self::Lzo999(_) => size_of::<compress::Dict>(),
            Self::None => 0,
        }
    }
}

pub enum Decoder {
    Zstd(FrameDecoder),
    Lz4,
    Zlib(flate2::Decompress),
    Bzip2(u32),
    Snappy(snap::raw::Decoder),
    Lzo,
    None,
}

impl Decoder {
    pub fn new(FrameCodec { name, level }: FrameCodec) -> Result<Self> {
        Ok(match name {
            "lz4" => Self::Lz4,
            "zlib" => Self::Zlib(flate2::Decompress::new(true)),
            "bzip2" => Self::Bzip2(level.clamp(1, 9) as u32),
            "snappy" => Self::Snappy(snap::raw::Decoder::new()),
            "lzo" => Self::Lzo,
            "none" => Self::None,
            REFERENCE_CODEC | CLUSTERED_CODEC => Self::Zstd(FrameDecoder::new()?),
            _ => return Err(Error::usage(format!("there is no codec {name}"))),
        })
    }

    /// Decompresses a frame. The result, which must have this length, replaces the bytes in `content`.
    pub fn decode(&mut self, frame: &[u8], length: usize, content: &mut Vec<u8>) -> Result<()> {
        let decoded_bytes = if let Self::Zstd(zstd) = self {
            zstd.decode(frame, 0, length as u64, content)?;
            content.len()
        } else {
            content.resize(length, 0);
            self.fill(frame, content).map_err(|reason| Error::damaged(format!("the frame is damaged: {reason}")))?
        };
        if decoded_bytes != length {
            return Err(Error::damaged(format!("the frame holds {decoded_bytes} bytes, not the {length} stated")));
        }
        Ok(())
    }

    /// Decompresses a frame into a buffer of the content's length; returns the number of bytes written.
    fn fill(&mut self, frame: &[u8], content: &mut [u8]) -> Result<usize, String> {
        match self {
            Self::Lz4 => decode_blocks(frame, content),
            Self::Zlib(stream) => {
                stream.reset(true);
                let status = stream.decompress(frame, content, FlushDecompress::Finish);
                require_end(status, flate2::Status::StreamEnd)?;
                Ok(stream.total_out() as usize)
            }
            Self::Bzip2(_) => {
                let mut decoder = BzDecoder::new(frame);
                decoder.read_exact(content).map_err(to_text)?;
                // Read on to the end, where the checksum is.
                require_end(decoder.read(&mut [0]), 0)?;
                Ok(content.len())
            }
            Self::Snappy(snappy) => snappy.decompress(frame, content).map_err(to_text),
            Self::Lzo => decompress::decompress(frame, content).map_err(to_text),
            // `decode` does not call this function for zstd.
            Self::Zstd(_) | Self::None => {
                let output = content.get_mut(..frame.len()).ok_or("it holds too much")?;
                output.copy_from_slice(frame);
                Ok(frame.len())
            }
        }
    }

    pub fn context_bytes(&self) -> usize {
        match self {
            Self::Zstd(zstd) => zstd.context_bytes(),
            // 1 << windowBits, and about 7 KB.
            Self::Zlib(_) => (1 << 15) + 7 * 1024,
            // 100 KB, and four times the size of a block.
            Self::Bzip2(level) => 100_000 + 400_000 * *level as usize,
            _ => 0,
        }
    }
}

fn to_text(error: impl fmt::Display) -> String {
    error.to_string()
}

fn require_end<S: PartialEq>(status: Result<S, impl fmt::Display>, end: S) -> Result<(), String> {
    if status.map_err(to_text)? != end {
        return Err("it does not end where it should".to_string());
    }
    Ok(())
}

/// Decodes blocks of lz4, each with its length before it and its checksum after it.
fn decode_blocks(mut frame: &[u8], content: &mut [u8]) -> Result<usize, String> {
    let mut filled = 0;
    while let Some((header, rest)) = frame.split_first_chunk::<4>() {
        let header = u32::from_le_bytes(*header);
        let is_uncompressed = header & UNCOMPRESSED_FLAG != 0;
        let length = (header & !UNCOMPRESSED_FLAG) as usize;
        let (block, rest) = rest.split_at_checked(length).ok_or("it is truncated")?;
        let (checksum, rest) = rest.split_first_chunk::<4>().ok_or("its checksum is missing")?;
        if XxHash32::oneshot(0, block) != u32::from_le_bytes(*checksum) {
            return Err("its checksum is wrong".to_string());
        }
        let output = &mut content[filled..];
        filled += if is_uncompressed {
            output.get_mut(..length).ok_or("it holds too much")?.copy_from_slice(block);
            length
        } else {
            decompress_into(block, output).map_err(to_text)?
        };
        frame = rest;
    }
    if !frame.is_empty() {
        return Err("it is truncated".to_string());
    }
    Ok(filled)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn every_codec() -> Vec<FrameCodec> {
        list::parse_codecs("zstd,clustered,lz4,zlib,bzip2,snappy,lzo,none", &[1]).expect("names of codecs")
    }

    /// Returns pseudorandom bytes below `alphabet`.
    pub(crate) fn noise(length: usize, alphabet: u32, seed: u32) -> Vec<u8> {
        let mut state = seed;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 24) % alphabet) as u8
        };
        (0..length).map(next).collect()
    }

    #[test]
    fn contents_of_any_kind_round_trip() {
        let records: Vec<u8> =
            (0..400_000u32).flat_map(|number| [(number / 9) as u8, 0, (number % 11) as u8]).collect();
        let contents = [
            Vec::new(),
            vec![7],
            vec![0; 5_000_000],
            noise(100_000, 256, 1),
            noise(300_000, 3, 1),
            records,
            b"abcabcabcabc".to_vec(),
        ];
        for codec in every_codec() {
            let mut encoder = Encoder::new(codec).expect("an encoder");
            let mut decoder = Decoder::new(codec).expect("a decoder");
            let mut frame = vec![9; 100];
            let mut decoded = vec![9; 100];
            for content in &contents {
                let name = format!("{codec} of {} bytes", content.len());
                encoder.encode(content, &mut frame).expect(&name);
                assert!(frame.len() <= codec.encoded_bytes_max(content.len()), "{name}: {}", frame.len());
                decoder.decode(&frame, content.len(), &mut decoded).expect(&name);
                assert!(&decoded == content, "{name}");
                // The stated length is a limit, and must also be reached.
                if let Some(length) = content.len().checked_sub(1) {
                    assert!(decoder.decode(&frame, length, &mut decoded).is_err() || decoded.len() <= length, "{name}");
                }
                assert!(decoder.decode(&frame, content.len() + 1, &mut decoded).is_err(), "{name}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_content_round_trips(pieces in proptest::collection::vec((0usize..300, 1u32..256), 0..12)) {
            let content: Vec<u8> = pieces.iter().flat_map(|(length, alphabet)| noise(*length, *alphabet, 1)).collect();
            for codec in every_codec() {
                let mut frame = Vec::new();
                let mut decoded = Vec::new();
                Encoder::new(codec).expect("an encoder").encode(&content, &mut frame).expect("encoded");
                Decoder::new(codec).expect("a decoder").decode(&frame, content.len(), &mut decoded).expect("decoded");
                prop_assert!(decoded == content, "{codec}");
            }
        }

        #[test]
        fn damaged_frames_never_decode_to_more_than_the_stated_length(
            changed in any::<prop::sample::Index>(),
            value: u8,
            cut in any::<prop::sample::Index>(),
            alphabet in 1u32..64,
        ) {
            const CONTENT_BYTES: usize = 3_000;
            let content = noise(CONTENT_BYTES, alphabet, 1);
            for codec in every_codec() {
                let mut frame = Vec::new();
                Encoder::new(codec).expect("an encoder").encode(&content, &mut frame).expect("encoded");
                let position = changed.index(frame.len());
                frame[position] = value;
                let mut decoder = Decoder::new(codec).expect("a decoder");
                for frame in [&frame[..], &frame[..cut.index(frame.len())]] {
                    let mut decoded = Vec::new();
                    if decoder.decode(frame, CONTENT_BYTES, &mut decoded).is_ok() {
                        prop_assert_eq!(decoded.len(), CONTENT_BYTES);
                    }
                    prop_assert!(decoded.len() <= CONTENT_BYTES, "{codec}");
                }
            }
        }
    }
}
