//! Hashes of an archive's frames, in a skippable frame between the last data frame and the index. A
//! client that downloads an archive checks each frame as it arrives, and needs to trust only one
//! number, the [`Root`]. Checksums inside frames find damage; these hashes find frames that
//! somebody replaced.
//!
//! `docs/format.md` describes the layout.

use std::fmt;
use std::str::FromStr;

use slotpress_base::{Error, Result};

use crate::{SKIPPABLE_HEADER_BYTES, skippable_frame};

/// Kind of the skippable frame that contains the hashes.
pub const FRAME_HASHES_KIND: u8 = 12;

const MAGIC: &[u8; 8] = b"slothsh1";

/// blake3 hash of a frame with the skippable bytes in front of it.
pub type FrameHash = [u8; 32];

/// Returns the length in bytes of the skippable frame that holds `frames` hashes.
pub fn hashes_frame_bytes(frames: usize) -> u64 {
    const FIXED_BYTES: usize = SKIPPABLE_HEADER_BYTES + MAGIC.len();
    frames.saturating_mul(size_of::<FrameHash>()).saturating_add(FIXED_BYTES) as u64
}

/// Hashes a frame and its gap: all bytes since the end of the previous frame (a `pzstd`
/// mark, padding).
pub fn frame_hash(gap: &[u8], frame: &[u8]) -> FrameHash {
    *blake3::Hasher::new().update(gap).update(frame).finalize().as_bytes()
}

/// Makes the skippable frame. Returns `None` if it would be 4 GiB or more.
pub fn to_frame(hashes: &[FrameHash]) -> Option<Vec<u8>> {
    let content: Vec<u8> = MAGIC.iter().chain(hashes.as_flattened()).copied().collect();
    skippable_frame(FRAME_HASHES_KIND, &content)
}

pub fn is_begin_of_hashes(kind: u8, content: &[u8]) -> bool {
    kind == FRAME_HASHES_KIND && content.starts_with(MAGIC)
}

/// Parses the hashes of an archive that has `frames` data frames.
///
/// # Errors
/// The version is unknown, or the number of hashes differs.
pub fn parse_frame(frame: &[u8], frames: usize) -> Result<Vec<FrameHash>> {
    let wrong = |why| Error::damaged(format!("the archive's frame hashes are damaged: {why}"));
    let content = frame.get(SKIPPABLE_HEADER_BYTES..).unwrap_or_default();
    let hashes = content.strip_prefix(MAGIC).ok_or_else(|| wrong("of an unknown version"))?;
    let (hashes, rest) = hashes.as_chunks::<32>();
    match hashes.len() == frames && rest.is_empty() {
        true => Ok(hashes.to_vec()),
        false => Err(wrong("not one for each frame")),
    }
}

/// One number that stands for every byte of an archive: blake3 over the archive's length (u64,
/// little-endian) and all bytes from the frame hashes to the end. The frame hashes cover the bytes
/// before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[warn(missing_docs)]
pub struct Root(blake3::Hash);

#[warn(missing_docs)]
impl Root {
    /// Computes the root from the archive's length and its last bytes, which begin with the frame
    /// hashes and may come in pieces.
    pub fn new<'a>(length_bytes: u64, end: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&length_bytes.to_le_bytes());
        end.into_iter().for_each(|piece| {
            hasher.update(piece);
        });
        Self(hasher.finalize())
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_hex())
    }
}

impl FromStr for Root {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        blake3::Hash::from_hex(text.trim())
            .map(Self)
            .map_err(|_| "not a root: 64 hexadecimal digits, as inspecting an archive shows them".to_string())
    }
}

impl<'de> serde::Deserialize<'de> for Root {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: String = serde::Deserialize::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl serde::Serialize for Root {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hashes_round_trip(hashes in proptest::collection::vec(any::<FrameHash>(), 0..20), more in 1usize..3) {
            let frame = to_frame(&hashes).expect("small");
            prop_assert_eq!(frame.len() as u64, hashes_frame_bytes(hashes.len()));
            prop_assert_eq!(parse_frame(&frame, hashes.len()).expect("own frame"), hashes.clone());
            prop_assert!(parse_frame(&frame, hashes.len() + more).is_err());
            prop_assert!(parse_frame(&frame[..frame.len() - more], hashes.len()).is_err());
        }

        #[test]
        fn hostile_frames_never_panic(frame in proptest::collection::vec(any::<u8>(), 0..200), frames in 0usize..10) {
            let _ = parse_frame(&frame, frames);
        }
    }

    #[test]
    fn roots_are_read_as_they_are_written() {
        let root = Root::new(7, [b"ab".as_slice(), b"c"]);
        assert_eq!(root, Root::new(7, [b"abc".as_slice()]));
        assert_ne!(root, Root::new(8, [b"abc".as_slice()]));
        assert_eq!(root.to_string().parse(), Ok(root));
        assert!("abc".parse::<Root>().is_err());
    }
}
