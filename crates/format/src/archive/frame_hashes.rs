//! The hashes of an archive's frames, which are in its [`Index`](crate::Index), and the [`ArchiveRoot`], one
//! hash for the whole archive. Checksums inside frames detect damage. Hashes also detect frames that
//! somebody replaced.

use std::fmt;
use std::str::FromStr;

use slotpress_base::{Error, Result};

/// blake3 hash of a frame.
pub type FrameHash = [u8; 32];

pub fn frame_hash(frame: &[u8]) -> FrameHash {
    blake3::hash(frame).into()
}

/// One hash that covers every byte of an archive: blake3 over the archive's length (u64,
/// little-endian) and all bytes from the index to the end. The frame hashes in the index cover the
/// bytes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[warn(missing_docs)]
pub struct ArchiveRoot(blake3::Hash);

#[warn(missing_docs)]
impl ArchiveRoot {
    /// Computes the root from the archive's length and its last bytes, from the index onwards. The bytes
    /// may be in pieces.
    pub fn new<'a>(length_bytes: u64, end: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&length_bytes.to_le_bytes());
        for piece in end {
            hasher.update(piece);
        }
        Self(hasher.finalize())
    }
}

impl fmt::Display for ArchiveRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_hex())
    }
}

impl FromStr for ArchiveRoot {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        blake3::Hash::from_hex(text.trim()).map(Self).map_err(|_| {
            Error::usage("a root has 64 hexadecimal digits; `slotpress inspect` shows the root of an archive")
        })
    }
}

impl<'de> serde::Deserialize<'de> for ArchiveRoot {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: String = serde::Deserialize::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl serde::Serialize for ArchiveRoot {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_read_as_they_are_written() {
        let root = ArchiveRoot::new(7, [b"ab".as_slice(), b"c"]);
        assert_eq!(root, ArchiveRoot::new(7, [b"abc".as_slice()]));
        assert_ne!(root, ArchiveRoot::new(8, [b"abc".as_slice()]));
        assert_eq!(root.to_string().parse().ok(), Some(root));
        assert!("abc".parse::<ArchiveRoot>().is_err());
    }
}
