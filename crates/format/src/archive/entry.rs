//! Tar entries: the names that a snapshot archive may contain, and their headers
//! (docs/snapshot-format.md#archive).

use std::fmt;

use serde::{Deserialize, Serialize};
use slotpress_base::{Error, Result, array_at};

use crate::{ENTRY_BYTES_MAX, parse_number, parse_storage_name};

/// Unit of tar, in bytes: a header is one block, and contents are padded to whole blocks.
pub const BLOCK_LEN: usize = 512;

pub const END_OF_ARCHIVE: [u8; 2 * BLOCK_LEN] = [0; 2 * BLOCK_LEN];

/// Number of zero bytes at the end of an archive. Firedancer refuses fewer, and may refuse more
/// (docs/snapshot-format.md#archive).
pub const END_OF_ARCHIVE_BYTES: u64 = END_OF_ARCHIVE.len() as u64;

/// A file or directory of an archive, at the path that `Display` writes. An archive's index encodes
/// a kind as its position in this enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EntryKind {
    Version,
    SnapshotsDir,
    StatusCache,
    SlotDir(u64),
    BankFile(u64),
    AccountsDir,
    Storage { slot: u64, id: u32 },
}

impl EntryKind {
    /// Parses the path of an entry. Returns `None` if a snapshot archive must not contain the entry.
    pub fn parse(path: &str) -> Option<Self> {
        match path {
            "version" => return Some(Self::Version),
            "snapshots" | "snapshots/" => return Some(Self::SnapshotsDir),
            "snapshots/status_cache" => return Some(Self::StatusCache),
            "accounts" | "accounts/" => return Some(Self::AccountsDir),
            _ => {}
        }
        if let Some(name) = path.strip_prefix("accounts/") {
            let (slot, id) = parse_storage_name(name)?;
            return Some(Self::Storage { slot, id });
        }
        let rest = path.strip_prefix("snapshots/")?;
        match rest.split_once('/') {
            None | Some((_, "")) => Some(Self::SlotDir(parse_number(rest.trim_end_matches('/'))?)),
            Some((dir, file)) if dir == file => Some(Self::BankFile(parse_number(dir)?)),
            _ => None,
        }
    }

    pub fn is_dir(self) -> bool {
        matches!(self, Self::SnapshotsDir | Self::SlotDir(_) | Self::AccountsDir)
    }
}

impl fmt::Display for EntryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => f.write_str("version"),
            Self::SnapshotsDir => f.write_str("snapshots/"),
            Self::StatusCache => f.write_str("snapshots/status_cache"),
            Self::SlotDir(slot) => write!(f, "snapshots/{slot}/"),
            Self::BankFile(slot) => write!(f, "snapshots/{slot}/{slot}"),
            Self::AccountsDir => f.write_str("accounts/"),
            Self::Storage { slot, id } => write!(f, "accounts/{slot}.{id}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub kind: EntryKind,
    pub content_bytes: u64,
}

impl Entry {
    pub fn is_storage(&self) -> bool {
        matches!(self.kind, EntryKind::Storage { .. })
    }

    /// Returns the length in the tar stream: header, content and padding.
    pub fn tar_bytes(&self) -> u64 {
        (BLOCK_LEN as u64).saturating_add(padded_bytes(self.content_bytes))
    }

    /// Makes the tar header. Time, owner and mode are fixed, so that equal contents make equal archives.
    pub fn header(&self) -> [u8; BLOCK_LEN] {
        let mut header = tar::Header::new_gnu();
        // Cannot fail: the path has at most 10 + 20 + 1 + 20 bytes, and 100 fit.
        let path_result = header.set_path(self.kind.to_string());
        debug_assert!(path_result.is_ok(), "every path fits into a header");
        header.set_entry_type(if self.kind.is_dir() { tar::EntryType::Directory } else { tar::EntryType::Regular });
        header.set_mode(if self.kind.is_dir() { 0o755 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(self.content_bytes);
        header.set_cksum();
        *header.as_bytes()
    }

    /// Parses a tar header.
    ///
    /// # Errors
    /// The checksum is wrong, or the entry cannot be part of a snapshot archive: no snapshot has its path or
    /// type, its path continues in the ustar prefix field, its format is neither GNU nor ustar, or clients do
    /// not read entries of its size.
    pub fn parse_header(block: &[u8; BLOCK_LEN]) -> Result<Self> {
        let header = tar::Header::from_byte_slice(block);
        if !header.cksum().is_ok_and(|found| found == compute_checksum(block)) {
            return Err(Error::damaged("not a tar header: its checksum is wrong"));
        }
        let path = String::from_utf8_lossy(&header.path_bytes()).into_owned();
        let entry_error = |why: &str| {
            let printable: String = path.chars().filter(|character| !character.is_control()).collect();
            let path = slotpress_base::text::one_line(&printable);
            Error::damaged(format!("the entry {path:?} {why}")).with_hint("get the archive from another source")
        };
        let kind = EntryKind::parse(&path).ok_or_else(|| entry_error("has no place in a snapshot archive"))?;
        let (type_flags, max) = if kind.is_dir() { (&b"5"[..], 0) } else { (&b"0\0"[..], ENTRY_BYTES_MAX) };
        let type_flag = header.entry_type().as_byte();
        if !type_flags.contains(&type_flag) {
            return Err(entry_error(&format!("has the wrong type {:?}", char::from(type_flag))));
        }
        let has_split_path = header.as_ustar().is_some_and(|header| header.prefix.first() != Some(&0));
        if has_split_path || array_at::<MAGIC_AT, 5, _>(block) != *b"ustar" {
            return Err(entry_error("has a header in a format that no snapshot uses"));
        }
        match header.entry_size() {
            Ok(content_bytes) if content_bytes <= max => Ok(Self { kind, content_bytes }),
            Ok(size) => Err(entry_error(&format!("has size {size}; the limit is {max}"))),
            Err(_) => Err(entry_error("has an invalid size")),
        }
    }
}

/// Offset of the magic. Firedancer requires a magic that begins with `ustar`; Agave ignores the magic.
const MAGIC_AT: usize = 257;

/// True if Firedancer wrote the tar header. Only Firedancer writes the mode without leading zeros,
/// the time as NUL bytes, and a checksum of seven digits and NUL (`fd_snapmk_tile.c`).
pub fn is_firedancer_header(block: &[u8; BLOCK_LEN]) -> bool {
    let mode = array_at::<100, 8, _>(block);
    let time = array_at::<136, 12, _>(block);
    let [digits @ .., end] = array_at::<148, 8, _>(block);
    matches!(&mode, b"644\0\0\0\0\0" | b"755\0\0\0\0\0")
        && time == [0; 12]
        && end == 0
        && digits.iter().all(u8::is_ascii_digit)
}

/// Rounds up to whole blocks. Saturates, so that hostile lengths stay large.
pub fn padded_bytes(content_bytes: u64) -> u64 {
    content_bytes.saturating_add(padding_bytes(content_bytes))
}

pub fn padding_bytes(content_bytes: u64) -> u64 {
    const BLOCK_BYTES: u64 = BLOCK_LEN as u64;
    content_bytes.wrapping_neg() % BLOCK_BYTES
}

/// Sums the bytes of a header, with spaces in the checksum field (POSIX ustar).
fn compute_checksum(block: &[u8; BLOCK_LEN]) -> u32 {
    let field = 148..156;
    let byte_at = |(at, byte): (usize, &u8)| if field.contains(&at) { b' ' } else { *byte };
    block.iter().enumerate().map(byte_at).map(u32::from).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_kind() -> impl Strategy<Value = EntryKind> {
        prop_oneof![
            Just(EntryKind::Version),
            Just(EntryKind::SnapshotsDir),
            Just(EntryKind::StatusCache),
            any::<u64>().prop_map(EntryKind::SlotDir),
            any::<u64>().prop_map(EntryKind::BankFile),
            Just(EntryKind::AccountsDir),
            any::<(u64, u32)>().prop_map(|(slot, id)| EntryKind::Storage { slot, id }),
        ]
    }

    proptest! {
        #[test]
        fn headers_round_trip(kind in any_kind(), size in 0..=ENTRY_BYTES_MAX) {
            let entry = Entry { kind, content_bytes: if kind.is_dir() { 0 } else { size } };
            prop_assert_eq!(Entry::parse_header(&entry.header()).expect("a header"), entry);
        }

        #[test]
        fn hostile_headers_never_panic(bytes in proptest::collection::vec(any::<u8>(), 512)) {
            let _ = Entry::parse_header(&bytes.try_into().expect("exact length"));
        }

        #[test]
        fn the_checksum_detects_any_flipped_bit(kind in any_kind(), bit in 0usize..512 * 8) {
            let entry = Entry { kind, content_bytes: 0 };
            let mut header = entry.header();
            header[bit / 8] ^= 1 << (bit % 8);
            if let Ok(parsed) = Entry::parse_header(&header) {
                // A flipped bit can pass only where it writes the same checksum in a different way.
                prop_assert!((148..156).contains(&(bit / 8)));
                prop_assert_eq!(parsed, entry);
            }
        }
    }

    #[test]
    fn headers_of_firedancer_are_recognized() {
        let ours = Entry { kind: EntryKind::Version, content_bytes: 5 }.header();
        let mut theirs = ours;
        theirs[100..108].copy_from_slice(b"644\0\0\0\0\0");
        theirs[136..148].fill(0);
        theirs[148..156].copy_from_slice(b"0004670\0");
        assert!(is_firedancer_header(&theirs));
        assert!(!is_firedancer_header(&ours));
        for (at, field) in [(100, &ours[100..108]), (136, &ours[136..148]), (148, b"010617\0 ")] {
            let mut mixed = theirs;
            mixed[at..at + field.len()].copy_from_slice(field);
            assert!(!is_firedancer_header(&mixed));
        }
    }

    #[test]
    fn other_names_are_refused() {
        for path in [
            "",
            "/",
            ".",
            "..",
            "./version",
            "/version",
            "version/",
            "versions",
            "snapshots/../x",
            "snapshots//1",
            "snapshots/1/2",
            "snapshots/1/1/1",
            "snapshots/01",
            "snapshots/1//",
            "accounts/1",
            "accounts/1.2.3",
            "accounts/1.4294967296",
            "accounts/+1.2",
            "accounts/../version",
            "accounts/1.2/",
            "genesis.bin",
            "snapshots/status_cache/",
            "snapshots/1/status_cache",
            "snapshots/18446744073709551616/",
        ] {
            assert_eq!(EntryKind::parse(path), None, "{path:?}");
        }
        assert_eq!(EntryKind::parse("snapshots/26"), Some(EntryKind::SlotDir(26)), "as Agave writes it");
    }

    #[test]
    fn entries_of_other_types_paths_and_sizes_are_refused() {
        let error_of = |path: &str, type_flag: u8, size: u64| {
            let mut header = tar::Header::new_gnu();
            header.set_path(path).expect("short");
            header.set_entry_type(tar::EntryType::new(type_flag));
            header.set_size(size);
            header.set_cksum();
            Entry::parse_header(header.as_bytes()).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(error_of("version", b'0', ENTRY_BYTES_MAX), "");
        assert!(error_of("version", b'0', ENTRY_BYTES_MAX + 1).contains("the limit is"));
        assert!(error_of("snapshots/", b'5', 1).contains("the limit is"));
        assert!(error_of("snapshots/", b'0', 0).contains("wrong type"));
        for type_flag in [b'1', b'2', b'5', b'L', b'K', b'x', b'g', b'S', b'3', b'7'] {
            assert!(error_of("version", type_flag, 0).contains("wrong type"), "{:?}", char::from(type_flag));
        }
        assert!(error_of("a\nb", b'0', 0).contains("the entry \"ab\" has no place"));
    }

    #[test]
    fn headers_of_other_formats_are_refused() {
        let is_parsed_with = |magic: &[u8; 8], prefix: u8| {
            let mut header = Entry { kind: EntryKind::Version, content_bytes: 5 }.header();
            header[257..265].copy_from_slice(magic);
            header[345] = prefix;
            let sum = compute_checksum(&header);
            header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            Entry::parse_header(&header).is_ok()
        };
        assert!(is_parsed_with(b"ustar  \0", 0));
        assert!(is_parsed_with(b"ustar\x0000", 0));
        assert!(is_parsed_with(b"ustarxyz", 0));
        assert!(!is_parsed_with(&[0; 8], 0));
        assert!(!is_parsed_with(b"ustar\x0000", b'a'));
    }

    #[test]
    fn lengths_are_padded() {
        assert_eq!([0, 1, 511, 512, 513].map(padding_bytes), [0, 511, 1, 0, 511]);
        assert_eq!([0, 1, 511, 512, 513].map(padded_bytes), [0, 512, 512, 512, 1024]);
        assert_eq!([u64::MAX, u64::MAX - 511].map(padded_bytes), [u64::MAX, u64::MAX - 511]);
        let huge = Entry { kind: EntryKind::Version, content_bytes: u64::MAX };
        assert_eq!(huge.tar_bytes(), u64::MAX);
    }
}
