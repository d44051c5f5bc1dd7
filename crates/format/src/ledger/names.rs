//! Names of archives and storages, and the base58 text of hashes and addresses
//! (docs/snapshot-format.md#names).

#![warn(missing_docs)]

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_base::{Error, Result};

/// Defines a type for 32 bytes that are written in base58.
macro_rules! base58 {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub [u8; 32]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&bs58::encode(self.0).into_string())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                parse_base58(text, $kind).map(Self)
            }
        }

        impl From<[u8; 32]> for $name {
            fn from(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

base58! {
    /// A bank hash, blockhash or snapshot hash: 32 bytes, written in base58.
    Hash, "hash"
}
base58! {
    /// The address of an account or of a program: 32 bytes, written in base58.
    Address, "address"
}

/// Decodes base58 of any length. The caller must bound the length, since decoding takes
/// quadratic time.
pub fn decode_base58(text: &str) -> Option<Vec<u8>> {
    bs58::decode(text).into_vec().ok()
}

fn parse_base58(text: &str, kind: &str) -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    // 32 bytes take at most 44 base58 digits; longer text is not decoded.
    if text.len() <= 44 && bs58::decode(text).onto(&mut bytes) == Ok(32) {
        return Ok(bytes);
    }
    Err(Error::usage(format!("{text:?} is not a base58 {kind} of 32 bytes")))
}

impl Serialize for ArchiveName {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Serializes the parts of a name: `slot`, `base_slot` and `hash`. Reports flatten these fields.
pub fn serialize_name_parts<S: Serializer>(name: &ArchiveName, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_struct("ArchiveName", 3)?;
    serialize_parts(name, &mut fields)?;
    fields.end()
}

/// Serializes the field `name` and the parts of the name. Reports flatten these fields.
pub fn serialize_name_and_parts<S: Serializer>(
    name: &ArchiveName,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_struct("ArchiveName", 4)?;
    fields.serialize_field("name", name)?;
    serialize_parts(name, &mut fields)?;
    fields.end()
}

fn serialize_parts<S: SerializeStruct>(name: &ArchiveName, fields: &mut S) -> std::result::Result<(), S::Error> {
    fields.serialize_field("slot", &name.slot)?;
    fields.serialize_field("base_slot", &name.base_slot)?;
    fields.serialize_field("hash", &name.hash)
}

/// Compression of an archive. The extension of the file name states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveCompression {
    /// `.tar.zst`, read by Agave and Firedancer.
    Zstd,
    /// `.tar.lz4`, read by Agave only.
    Lz4,
    /// `.tar`, read by Firedancer only.
    None,
    /// `.tar.bz2`; Agave wrote such archives until 2024.
    Bzip2,
    /// `.tar.gz`; Agave wrote such archives until 2024.
    Gzip,
}

impl ArchiveCompression {
    const ALL: [Self; 5] = [Self::Zstd, Self::Lz4, Self::None, Self::Bzip2, Self::Gzip];

    /// Returns the extension of a file name, without the first dot.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Zstd => "tar.zst",
            Self::Lz4 => "tar.lz4",
            Self::None => "tar",
            Self::Bzip2 => "tar.bz2",
            Self::Gzip => "tar.gz",
        }
    }

    /// Returns the name of the compression in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::None => "none",
            Self::Bzip2 => "bzip2",
            Self::Gzip => "gzip",
        }
    }

    /// True if Agave reads such archives.
    pub fn is_read_by_agave(self) -> bool {
        matches!(self, Self::Zstd | Self::Lz4)
    }

    /// Returns the MIME type for servers and stores.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Zstd => "application/zstd",
            Self::Gzip => "application/gzip",
            Self::None => "application/x-tar",
            Self::Lz4 | Self::Bzip2 => "application/octet-stream",
        }
    }
}

/// The parts of a snapshot archive's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveName {
    /// Slot of the full archive on which an incremental archive builds, or `None` for a full archive.
    pub base_slot: Option<u64>,
    /// Slot of the state in the archive.
    pub slot: u64,
    /// Snapshot hash: blake3 of the lattice hash over all accounts.
    pub hash: Hash,
    /// Compression. The extension of the file name states it.
    pub compression: ArchiveCompression,
}

impl ArchiveName {
    /// Parses a file name. Returns `None` if a snapshot archive cannot have it.
    pub fn parse(file_name: &str) -> Option<Self> {
        Self::parse_lenient(file_name).filter(|name| name.base_slot.is_none_or(|base| base < name.slot))
    }

    /// Like [`parse`](Self::parse), but also accepts an incremental archive of the same slot as its base.
    /// Only Firedancer loads such an archive.
    pub fn parse_lenient(file_name: &str) -> Option<Self> {
        let (stem, compression) = ArchiveCompression::ALL
            .into_iter()
            .find_map(|known| Some((file_name.strip_suffix(known.extension())?.strip_suffix('.')?, known)))?;
        let (base_slot, rest) = match stem.strip_prefix("incremental-snapshot-") {
            Some(rest) => {
                let (base, rest) = rest.split_once('-')?;
                (Some(parse_number(base)?), rest)
            }
            None => (None, stem.strip_prefix("snapshot-")?),
        };
        let (slot, hash) = rest.split_once('-')?;
        let name = Self { base_slot, slot: parse_number(slot)?, hash: hash.parse().ok()?, compression };
        name.base_slot.is_none_or(|base| base <= name.slot).then_some(name)
    }

    /// Parses the last component of a path.
    pub fn from_path(path: &Path) -> Option<Self> {
        Self::parse(path.file_name()?.to_str()?)
    }

    /// Returns the path of this archive in a directory.
    pub fn path_in(&self, dir: &Path) -> PathBuf {
        dir.join(self.to_string())
    }
}

impl FromStr for ArchiveName {
    type Err = Error;

    fn from_str(file_name: &str) -> Result<Self> {
        Self::parse(file_name)
            .ok_or_else(|| Error::usage(format!("{file_name:?} is not the file name of a snapshot archive")))
    }
}

impl fmt::Display for ArchiveName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base_slot, slot, hash, compression } = self;
        if let Some(base) = base_slot {
            write!(f, "incremental-snapshot-{base}-")?;
        } else {
            f.write_str("snapshot-")?;
        }
        write!(f, "{slot}-{hash}.{}", compression.extension())
    }
}

/// Parses a decimal number in canonical form: digits alone, without sign or leading zeros.
pub fn parse_number(text: &str) -> Option<u64> {
    let is_canonical = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && (text.len() == 1 || !text.starts_with('0'));
    if is_canonical { text.parse().ok() } else { None }
}

/// Parses the file name of a storage, `<slot>.<id>`.
pub fn parse_storage_name(file_name: &str) -> Option<(u64, u32)> {
    let (slot, id) = file_name.split_once('.')?;
    Some((parse_number(slot)?, parse_number(id)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn real_names_are_parsed() {
        let text = "incremental-snapshot-26-40-D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi.tar.zst";
        let name = ArchiveName::parse(text).expect("a real name");
        assert_eq!((name.base_slot, name.slot), (Some(26), 40));
        assert_eq!(name.to_string(), text);
    }

    #[test]
    fn other_names_are_refused() {
        let hash = "D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi";
        for name in [
            format!("snapshot-026-{hash}.tar.zst"),
            format!("snapshot-+26-{hash}.tar.zst"),
            format!("snapshot-26-{hash}.zip"),
            format!("snapshot-26-{hash}tar.zst"),
            format!("incremental-snapshot-40-40-{hash}.tar.zst"),
            "snapshot-26-abc.tar.zst".to_string(),
            "snapshot-26-0OIl.tar.zst".to_string(),
            "tmp-snapshot-archive-26.tar.zst".to_string(),
            String::new(),
        ] {
            assert_eq!(ArchiveName::parse(&name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn names_round_trip(slot in 1u64.., base in proptest::option::of(0u64..1000), hash in any::<[u8; 32]>()) {
            let base_slot = base.filter(|base| *base < slot);
            let name = ArchiveName { base_slot, slot, hash: Hash(hash), compression: ArchiveCompression::Zstd };
            prop_assert_eq!(ArchiveName::parse(&name.to_string()), Some(name));
        }

        #[test]
        fn parsing_never_panics(text in ".*") {
            let _ = ArchiveName::parse(&text);
            let _ = parse_storage_name(&text);
        }
    }
}
