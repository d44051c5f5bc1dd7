//! What is measured: anything that compresses frames, each on its own. The harness knows only these traits; there is one
//! file per codec, and [`list`] reads which ones are wanted.
//!
//! A decoder is told how long the content is, gives no more than that, and refuses a frame that holds less.

mod bzip2;
pub mod list;
mod lz4;
#[cfg(feature = "lz4hc")]
mod lz4hc;
mod none;
mod zlib;
mod zstd;

pub use zstd::ZstdLevel;

use slotpress_base::error::{Error, Result};

/// A codec at one of its levels. Its workers compress and decompress one frame at a time.
pub trait FrameCodec: Sync {
    /// The codec's name, as `--json` says it.
    fn name(&self) -> &str;
    /// Its level; 0 where it has none.
    fn level(&self) -> i32;
    /// What one worker compresses with.
    fn new_encoder(&self) -> Result<Box<dyn FrameEncoder>>;
    /// What one worker decompresses with.
    fn new_decoder(&self) -> Result<Box<dyn FrameDecode>>;
    /// The most bytes that a frame of this content can take.
    fn encoded_bytes_max(&self, content_bytes: usize) -> usize;
}

/// Compresses one frame after another.
pub trait FrameEncoder: Send {
    /// Compresses `content` into `to`, replacing what it holds.
    fn encode(&mut self, content: &[u8], to: &mut Vec<u8>) -> Result<()>;
    /// Bytes that it takes, without the frames.
    fn context_bytes(&self) -> usize;
}

/// Decompresses one frame after another.
pub trait FrameDecode: Send {
    /// Decompresses a frame of `content_bytes` into `to`, replacing what it holds.
    fn decode(&mut self, frame: &[u8], content_bytes: usize, to: &mut Vec<u8>) -> Result<()>;
    /// Bytes that it takes, without the frames.
    fn context_bytes(&self) -> usize;
}

/// What people call a codec at a level: `zstd 3`, `lz4`.
pub fn label(name: &str, level: i32) -> String {
    if level == 0 { name.to_string() } else { format!("{name} {level}") }
}

fn check_length(expected_bytes: usize, found_bytes: usize) -> Result<()> {
    match found_bytes == expected_bytes {
        true => Ok(()),
        false => Err(Error::damaged(format!("the frame holds {found_bytes} bytes, not the {expected_bytes} stated"))),
    }
}

/// Something in a frame makes no sense to its decoder.
fn undecodable(codec: &str, why: &str) -> Error {
    Error::damaged(format!("not a good {codec} frame: {why}"))
}

#[cfg(test)]
mod tests {
    use {super::*, list::CodecList, proptest::prelude::*};

    /// Every codec of this build, some at more than one level.
    fn all() -> Vec<Box<dyn FrameCodec>> {
        let list: CodecList = list::all_built_in().parse().expect("names of this build");
        list.codecs()
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
                let name = format!("{} of {} bytes", label(codec.name(), codec.level()), content.len());
                encoder.encode(content, &mut frame).expect(&name);
                assert!(frame.len() <= codec.encoded_bytes_max(content.len()), "{name}: {}", frame.len());
                decoder.decode(&frame, content.len(), &mut back).expect(&name);
                assert!(&back == content, "{name}");
                // What is stated is the limit, and it is not only a limit.
                if let Some(less) = content.len().checked_sub(1) {
                    assert!(decoder.decode(&frame, less, &mut back).is_err() || back.len() <= less, "{name}");
                }
                assert!(decoder.decode(&frame, content.len() + 1, &mut back).is_err(), "{name}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_content_comes_back(pieces in proptest::collection::vec((0usize..300, 1u32..256), 0..12)) {
            let content: Vec<u8> = pieces.iter().flat_map(|(length, alphabet)| noise(*length, *alphabet)).collect();
            for codec in all() {
                let (mut frame, mut back) = (Vec::new(), Vec::new());
                codec.new_encoder().expect("an encoder").encode(&content, &mut frame).expect("encoded");
                codec.new_decoder().expect("a decoder").decode(&frame, content.len(), &mut back).expect("decoded");
                prop_assert!(back == content, "{}", codec.name());
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
                codec.new_encoder().expect("an encoder").encode(&content, &mut frame).expect("encoded");
                let position = at.index(frame.len());
                frame[position] = value;
                let mut decoder = codec.new_decoder().expect("a decoder");
                for frame in [&frame[..], &frame[..cut.index(frame.len())]] {
                    let mut back = Vec::new();
                    if decoder.decode(frame, CONTENT_BYTES, &mut back).is_ok() {
                        prop_assert_eq!(back.len(), CONTENT_BYTES);
                    }
                    prop_assert!(back.len() <= CONTENT_BYTES, "{}", codec.name());
                }
            }
        }
    }
}
