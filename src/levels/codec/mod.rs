//! Codecs: anything that compresses frames, each on its own. There is one file per codec; [`list`] reads which ones
//! are wanted, and the rest of `levels` knows only [`FrameCodec`].
//!
//! A decoder is told the length of the content, never returns more, and refuses a frame that holds less.

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

/// The codec that others are compared with, at level 1 where that is measured.
pub const REFERENCE_CODEC: &str = "zstd";

/// The level of the reference.
pub const REFERENCE_LEVEL: i32 = 1;

/// zstd on clustered records (`--layout clustered`), as a codec.
pub const CLUSTERED_CODEC: &str = "clustered";

/// A codec at one of its levels.
#[derive(Clone, Copy, Debug)]
pub struct FrameCodec {
    /// The name, as in `--codec` and in JSON.
    pub name: &'static str,
    /// The level; 0 if the codec has none.
    pub level: i32,
    /// The functions of the codec.
    pub(crate) parts: Parts,
}

/// Makes what one worker compresses or decompresses with, at a level.
pub type NewCoder = fn(i32) -> Result<Box<dyn FrameCoder>>;

/// The functions of a codec.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Makes what one worker compresses with, at a level.
    pub encoder: NewCoder,
    /// Makes what one worker decompresses with, at a level.
    pub decoder: NewCoder,
    /// The largest possible size in bytes of a frame with content of this many bytes.
    pub bytes_max: fn(usize) -> usize,
}

impl FrameCodec {
    /// zstd at a level, as `archive` uses it.
    pub fn zstd(level: i32) -> Self {
        Self { name: REFERENCE_CODEC, level, parts: zstd::PARTS }
    }

    /// For people: `zstd 3`, `lz4`.
    pub fn label(&self) -> String {
        label(self.name, self.level)
    }

    /// How it wants records to lie in the frames that it compresses.
    pub fn layout(&self) -> RecordLayout {
        if self.name == CLUSTERED_CODEC { RecordLayout::Clustered } else { RecordLayout::Verbatim }
    }

    /// Memory of one worker: its context after use, because most of it is allocated then, and a frame before, compressed,
    /// and after.
    ///
    /// # Errors
    /// The codec cannot be used.
    pub fn worker_bytes(&self, frame_size_bytes: u64) -> Result<u64> {
        let frame = vec![0; frame_size_bytes as usize];
        let mut encoder = self.new_encoder()?;
        encoder.code(&frame, frame.len(), &mut Vec::new())?;
        let buffers_bytes = (self.encoded_bytes_max(frame.len()) + 2 * frame.len()) as u64;
        Ok(encoder.context_bytes() as u64 + buffers_bytes + clustering_bytes(self.layout(), frame_size_bytes))
    }

    /// What one worker compresses with.
    pub(crate) fn new_encoder(&self) -> Result<Box<dyn FrameCoder>> {
        (self.parts.encoder)(self.level)
    }

    /// What one worker decompresses with.
    pub(crate) fn new_decoder(&self) -> Result<Box<dyn FrameCoder>> {
        (self.parts.decoder)(self.level)
    }

    /// The largest possible size in bytes of a frame with content of this many bytes.
    pub(crate) fn encoded_bytes_max(&self, content_bytes: usize) -> usize {
        (self.parts.bytes_max)(content_bytes)
    }
}

/// Compresses or decompresses one frame after another.
pub trait FrameCoder: Send {
    /// Makes a frame of content in `to`, or the content of a frame, replacing what it holds. A decoder is told the length of the
    /// content.
    fn code(&mut self, from: &[u8], content_bytes: usize, to: &mut Vec<u8>) -> Result<()>;
    /// Bytes that it allocates, without the frames.
    fn context_bytes(&self) -> usize;
}

/// For people: `zstd 3`, `lz4`.
pub fn label(name: &str, level: i32) -> String {
    if level == 0 { name.to_string() } else { format!("{name} {level}") }
}

/// A function, and the bytes that it allocates.
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

/// An encoder from a function that appends a frame to an empty buffer.
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

/// A decoder from a function that fills a buffer of the stated length, and returns how many bytes it has written.
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

    /// Every codec of this build, some at more than one level.
    fn all() -> Vec<FrameCodec> {
        list::parse_codecs(&list::built_in().join(","), &[1]).expect("names of this build")
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
                // What is stated is the limit, and it is not only a limit.
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

        /// Damaged frames neither crash a decoder nor make it exceed what is stated.
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
