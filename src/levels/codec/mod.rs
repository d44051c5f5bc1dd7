//! Codecs that compress frames independently. Each has a file of its own; [`list`] parses lists of
//! them. The rest of `levels` uses only [`FrameCodec`].
//!
//! A decoder is given the length of the content. It never returns more, and fails if the frame
//! holds less.

mod bzip2;
pub mod list;
mod lz4;
mod lzo;
mod none;
mod snappy;
mod zlib;
mod zstd;

use slotpress_base::{Error, Result};

use crate::archive::layout::{RecordLayout, clustering_bytes};

/// Codec with which others are compared, at level 1 if that was measured.
pub const REFERENCE_CODEC: &str = "zstd";

pub const REFERENCE_LEVEL: i32 = 1;

/// Name for zstd on clustered records (`--layout clustered`).
pub const CLUSTERED_CODEC: &str = "clustered";

/// A codec at one of its levels.
#[derive(Clone, Copy, Debug)]
pub struct FrameCodec {
    /// Name of the codec, such as `zstd`.
    pub name: &'static str,
    /// Level of the codec; 0 if it has none.
    pub level: i32,
    pub(crate) parts: Parts,
}

/// Creates an encoder or decoder for one worker at a level.
pub type NewCoder = fn(i32) -> Result<Box<dyn FrameCoder>>;

#[derive(Clone, Copy, Debug)]
pub struct Parts {
    pub encoder: NewCoder,
    pub decoder: NewCoder,
    /// Maximum length of a frame with content of this length.
    pub bytes_max: fn(usize) -> usize,
}

impl FrameCodec {
    /// zstd at this level, as `archive` uses it.
    pub fn zstd(level: i32) -> Self {
        Self { name: REFERENCE_CODEC, level, parts: zstd::PARTS }
    }

    /// Codec and level in words: `zstd 3`, `lz4`.
    pub fn label(&self) -> String {
        label(self.name, self.level)
    }

    /// Order of records that this codec expects in frames.
    pub fn layout(&self) -> RecordLayout {
        if self.name == CLUSTERED_CODEC { RecordLayout::Clustered } else { RecordLayout::Verbatim }
    }

    /// Memory of one worker in bytes: the encoder's context, and a frame before compressing,
    /// compressed, and decompressed. The context is measured after compressing a frame, because
    /// most of it is allocated then.
    ///
    /// # Errors
    /// If the codec cannot be used, for example for lack of memory.
    pub fn worker_bytes(&self, frame_size_bytes: u64) -> Result<u64> {
        let frame = vec![0; frame_size_bytes as usize];
        let mut encoder = self.new_encoder()?;
        encoder.code(&frame, frame.len(), &mut Vec::new())?;
        let buffers_bytes = (self.encoded_bytes_max(frame.len()) + 2 * frame.len()) as u64;
        Ok(encoder.context_bytes() as u64 + buffers_bytes + clustering_bytes(self.layout(), frame_size_bytes))
    }

    pub(crate) fn new_encoder(&self) -> Result<Box<dyn FrameCoder>> {
        (self.parts.encoder)(self.level)
    }

    pub(crate) fn new_decoder(&self) -> Result<Box<dyn FrameCoder>> {
        (self.parts.decoder)(self.level)
    }

    pub(crate) fn encoded_bytes_max(&self, content_bytes: usize) -> usize {
        (self.parts.bytes_max)(content_bytes)
    }
}

pub trait FrameCoder: Send {
    /// Compresses content to a frame, or decompresses a frame; the result replaces the bytes in
    /// `to`. `content_bytes` is the length of the content, which a decoder needs.
    fn code(&mut self, from: &[u8], content_bytes: usize, to: &mut Vec<u8>) -> Result<()>;
    fn context_bytes(&self) -> usize;
}

/// Codec and level in words: `zstd 3`, `lz4`.
pub fn label(name: &str, level: i32) -> String {
    if level == 0 { name.to_string() } else { format!("{name} {level}") }
}

struct Coder<F> {
    context_bytes: usize,
    code: F,
}

impl<F: FnMut(&[u8], usize, &mut Vec<u8>) -> Result<()> + Send> FrameCoder for Coder<F> {
    fn code(&mut self, from: &[u8], content_bytes: usize, to: &mut Vec<u8>) -> Result<()> {
        (self.code)(from, content_bytes, to)
    }

    fn context_bytes(&self) -> usize {
        self.context_bytes
    }
}

/// Makes an encoder of a function that appends a frame to an empty buffer.
fn encoder(
    codec: &'static str,
    context_bytes: usize,
    mut code: impl FnMut(&[u8], &mut Vec<u8>) -> Result<(), String> + Send + 'static,
) -> Result<Box<dyn FrameCoder>> {
    let code = move |content: &[u8], _: usize, to: &mut Vec<u8>| {
        to.clear();
        code(content, to).map_err(|why| Error::failed(format!("{codec} cannot compress a frame: {why}")))
    };
    Ok(Box::new(Coder { context_bytes, code }))
}

/// Makes a decoder of a function that fills a buffer of the content's length, and returns the
/// number of bytes written.
fn decoder(
    codec: &'static str,
    context_bytes: usize,
    mut code: impl FnMut(&[u8], &mut [u8]) -> Result<usize, String> + Send + 'static,
) -> Result<Box<dyn FrameCoder>> {
    let code = move |frame: &[u8], content_bytes: usize, to: &mut Vec<u8>| {
        to.resize(content_bytes, 0);
        let found = code(frame, to).map_err(|why| Error::damaged(format!("not a good {codec} frame: {why}")))?;
        check_length(content_bytes, found)
    };
    Ok(Box::new(Coder { context_bytes, code }))
}

fn check_length(expected_bytes: usize, found_bytes: usize) -> Result<()> {
    match found_bytes == expected_bytes {
        true => Ok(()),
        false => Err(Error::damaged(format!("the frame holds {found_bytes} bytes, not the {expected_bytes} stated"))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all() -> Vec<FrameCodec> {
        list::parse_codecs("zstd,clustered,lz4,zlib,bzip2,snappy,lzo,none", &[1]).expect("names of codecs")
    }

    fn noise(length: usize, alphabet: u32) -> Vec<u8> {
        let mut state = 1u32;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 24) % alphabet) as u8
        };
        (0..length).map(next).collect()
    }

    #[test]
    fn contents_of_any_kind_come_back() {
        let records: Vec<u8> = (0..400_000u32).flat_map(|at| [(at / 9) as u8, 0, (at % 11) as u8]).collect();
        let contents = [
            Vec::new(),
            vec![7],
            vec![0; 5_000_000],
            noise(100_000, 256),
            noise(300_000, 3),
            records,
            b"abcabcabcabc".to_vec(),
        ];
        for codec in all() {
            let (mut encoder, mut decoder) =
                (codec.new_encoder().expect("an encoder"), codec.new_decoder().expect("a decoder"));
            let (mut frame, mut back) = (vec![9; 100], vec![9; 100]);
            for content in &contents {
                let name = format!("{} of {} bytes", codec.label(), content.len());
                encoder.code(content, 0, &mut frame).expect(&name);
                assert!(frame.len() <= codec.encoded_bytes_max(content.len()), "{name}: {}", frame.len());
                decoder.code(&frame, content.len(), &mut back).expect(&name);
                assert!(&back == content, "{name}");
                // The stated length is a limit, and must also be reached.
                if let Some(less) = content.len().checked_sub(1) {
                    assert!(decoder.code(&frame, less, &mut back).is_err() || back.len() <= less, "{name}");
                }
                assert!(decoder.code(&frame, content.len() + 1, &mut back).is_err(), "{name}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_content_comes_back(pieces in proptest::collection::vec((0usize..300, 1u32..256), 0..12)) {
            let content: Vec<u8> = pieces.iter().flat_map(|(length, alphabet)| noise(*length, *alphabet)).collect();
            for codec in all() {
                let (mut frame, mut back) = (Vec::new(), Vec::new());
                codec.new_encoder().expect("an encoder").code(&content, 0, &mut frame).expect("encoded");
                codec.new_decoder().expect("a decoder").code(&frame, content.len(), &mut back).expect("decoded");
                prop_assert!(back == content, "{}", codec.label());
            }
        }

        #[test]
        fn damage_stays_bounded(
            at in any::<prop::sample::Index>(),
            value: u8,
            cut in any::<prop::sample::Index>(),
            alphabet in 1u32..64,
        ) {
            const CONTENT_BYTES: usize = 3_000;
            let content = noise(CONTENT_BYTES, alphabet);
            for codec in all() {
                let mut frame = Vec::new();
                codec.new_encoder().expect("an encoder").code(&content, 0, &mut frame).expect("encoded");
                let position = at.index(frame.len());
                frame[position] = value;
                let mut decoder = codec.new_decoder().expect("a decoder");
                for frame in [&frame[..], &frame[..cut.index(frame.len())]] {
                    let mut back = Vec::new();
                    if decoder.code(frame, CONTENT_BYTES, &mut back).is_ok() {
                        prop_assert_eq!(back.len(), CONTENT_BYTES);
                    }
                    prop_assert!(back.len() <= CONTENT_BYTES, "{}", codec.label());
                }
            }
        }
    }
}
