//! Tar entries: the names that a snapshot archive may contain, and their headers
//! (docs/snapshot-format.md#archive).

use std::fmt;

use serde::{Deserialize, Serialize};
use slotpress_base::{Error, Result};

use crate::{ENTRY_BYTES_MAX, parse_number, parse_storage_name};

pub const BLOCK: usize = 512;

/// Unit of tar: a header takes one block, and contents are padded to whole blocks.
pub const BLOCK_BYTES: u64 = BLOCK as u64;

pub const END_OF_ARCHIVE: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// Length of the zero bytes at the end of an archive. Firedancer refuses fewer, and may refuse
/// more (docs/snapshot-format.md#archive).
pub const END_OF_ARCHIVE_BYTES: u64 = END_OF_ARCHIVE.len() as u64;

/// Stands for the slot of a bank file whose name contains none.
pub const UNNAMED_SLOT: u64 = u64::MAX;

/// A file or directory of an archive. Indexes of archives name them by the order here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EntryKind {
    /// The file at `version`.
    Version,
    /// The directory at `snapshots/`.
    SnapshotsDir,
    /// The file at `snapshots/status_cache`.
    StatusCache,
    /// The directory at `snapshots/<slot>/`.
    SlotDir(u64),
    /// The file at `snapshots/<slot>/<slot>`.
    BankFile(u64),
    /// The directory at `accounts/`.
    AccountsDir,
    Storage {
        slot: u64,
        id: u32,
    },
}

impl EntryKind {
    /// Parses an entry's path; `None` if a snapshot archive must not contain it.
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
            return Some(Self::Storage { slot, id: id.try_into().ok()? });
        }
        let rest = path.strip_prefix("snapshots/")?;
        match rest.split_once('/') {
            None | Some((_, "")) => Some(Self::SlotDir(parse_number(rest.trim_end_matches('/'))?)),
            Some((dir, file)) if dir == file => Some(Self::BankFile(parse_number(dir)?)),
            _ => None,
        }
    }

    /// Parses a path that only Firedancer accepts: it compares just the beginning of a name, takes
    /// any other file in `snapshots/` for the bank file, and lets numbers up to 2^64 - 1 have a
    /// plus sign and leading zeros. An id too large for `u32` becomes `u32::MAX`.
    fn parse_loosely(path: &str, is_file: bool) -> Option<Self> {
        let number = |text: &str| {
            let digits = text.strip_prefix('+').unwrap_or(text);
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| digits.parse::<u64>().ok())?
        };
        if let Some(name) = path.strip_prefix("accounts/") {
            let (slot, id) = name.split_once('.')?;
            return Some(Self::Storage { slot: number(slot)?, id: number(id)?.try_into().unwrap_or(u32::MAX) });
        }
        if is_file && path.starts_with("version") && !path.ends_with('/') {
            return Some(Self::Version);
        }
        let rest = path.strip_prefix("snapshots/")?;
        match rest.split_once('/') {
            None if is_file && rest.starts_with("status_cache") => Some(Self::StatusCache),
            None if is_file => Some(Self::BankFile(UNNAMED_SLOT)),
            None => number(rest).map(Self::SlotDir),
            Some((dir, "")) => number(dir).map(Self::SlotDir),
            Some((dir, file)) => number(dir).filter(|slot| number(file) == Some(*slot)).map(Self::BankFile),
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
    /// Length in the tar stream: header, content and padding.
    pub fn tar_bytes(&self) -> u64 {
        BLOCK_BYTES.saturating_add(padded(self.content_bytes))
    }

    /// Makes the tar header. Time, owner and mode are fixed, so equal contents give equal archives.
    pub fn header(&self) -> [u8; BLOCK] {
        let mut header = tar::Header::new_gnu();
        // Cannot fail: the path has at most 10 + 20 + 1 + 20 bytes, and 100 fit.
        let path_result = header.set_path(self.kind.to_string());
        debug_assert!(path_result.is_ok(), "every path of an archive fits");
        header.set_entry_type(if self.kind.is_dir() { tar::EntryType::Directory } else { tar::EntryType::Regular });
        header.set_mode(if self.kind.is_dir() { 0o755 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(self.content_bytes);
        header.set_cksum();
        *header.as_bytes()
    }

    /// Parses a header. Refuses every kind, name and size that Agave or Firedancer refuses.
    pub fn parse_header(block: &[u8; BLOCK]) -> Result<Self> {
        let header = TarHeader::parse(block)?;
        match header.oddity() {
            Some(oddity) => Err(oddity.error(&header)),
            None => header.entry().ok_or_else(|| Oddity::Foreign.error(&header)),
        }
    }
}

const SIZE: std::ops::Range<usize> = 124..136;

/// Position of the magic. Firedancer requires that it begins with `ustar`; Agave does not look
/// at it.
const MAGIC: std::ops::Range<usize> = 257..262;

/// The fields of a tar header. [`TarHeader::oddity`] judges them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TarHeader {
    pub path: Vec<u8>,
    /// Type flag, for example `b'0'`.
    pub flag: u8,
    pub content_bytes: u64,
    /// True if the magic begins with `ustar`, as both clients accept it: GNU, ustar, or a variant.
    pub is_ustar: bool,
    /// True if the name continues in the prefix field.
    pub is_split: bool,
    pub is_sum_right: bool,
    /// True if the size field holds a number.
    pub has_size: bool,
}

/// A deviation in a header, for which at least one client refuses the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Oddity {
    /// No client knows the name as one of a snapshot archive.
    Foreign,
    /// Neither a file nor a directory, or not the one that the name requires.
    Kind,
    /// A PAX header or GNU long name, which describes the next entry.
    Extension,
    /// The magic is not `ustar`.
    Old,
    /// The name continues in the prefix field of a ustar header.
    Split,
    /// The size is above the limit, or a directory has contents.
    Size,
    /// The checksum is wrong, although the header can be parsed.
    Checksum,
    /// Only Firedancer accepts the name.
    Loose,
    /// A directory without a size field.
    NoSize,
}

impl Oddity {
    pub fn error(self, header: &TarHeader) -> Error {
        let shown = header.shown_path();
        match self {
            Self::Foreign => Error::damaged(format!("the entry {shown:?} has no place in a snapshot archive"))
                .with_hint("both clients refuse it; take the archive from another source"),
            Self::Extension | Self::Kind => Error::damaged(format!(
                "the entry {shown:?} is of kind {:?}; only files and directories may be in a snapshot archive",
                char::from(header.flag)
            )),
            Self::Old => {
                Error::damaged(format!("the entry {shown:?} has a header of an old kind: neither GNU nor ustar"))
            }
            Self::Split => Error::damaged(format!("the name {shown:?} is split into the prefix field of its header")),
            Self::Size => Error::damaged(format!("the entry {shown:?} claims {} bytes", header.content_bytes)),
            Self::Checksum => Error::damaged(format!("not a tar header: the checksum of {shown:?} is wrong")),
            Self::Loose => Error::damaged(format!("the entry {shown:?} has no place in a snapshot archive"))
                .with_hint("Agave refuses it; take the archive from another source"),
            Self::NoSize => Error::damaged(format!("the size of the directory {shown:?} is empty")),
        }
    }
}

/// True if Firedancer wrote the tar header. Only Firedancer writes the mode without leading zeros,
/// the time as NUL bytes, and a checksum of seven digits and NUL (`fd_snapmk_tile.c`).
pub fn is_header_of_firedancer(block: &[u8; BLOCK]) -> bool {
    let (mode, time, sum) = (block.get(100..108), block.get(136..148), block.get(148..156));
    let is_sum =
        |sum: &[u8]| sum.split_last().is_some_and(|(end, digits)| *end == 0 && digits.iter().all(u8::is_ascii_digit));
    mode.is_some_and(|mode| [b"644\0\0\0\0\0", b"755\0\0\0\0\0"].iter().any(|of_it| mode == *of_it))
        && time.is_some_and(|time| time.iter().all(|byte| *byte == 0))
        && sum.is_some_and(is_sum)
}

impl TarHeader {
    /// Parses a header.
    ///
    /// # Errors
    /// The checksum is wrong, or the size is not a number.
    pub fn parse(block: &[u8; BLOCK]) -> Result<Self> {
        let header = Self::unchecked(block);
        if !header.is_sum_right {
            let why = match tar::Header::from_byte_slice(block).cksum() {
                Ok(stated) => format!("checksum {stated} stated, {} computed", checksum(block)),
                Err(_) => "its checksum is not a number".to_string(),
            };
            return Err(Error::damaged(format!("not a tar header: {why}")));
        }
        match header.has_size {
            true => Ok(header),
            false => Err(Error::damaged("a tar header with a size that is not a number")),
        }
    }

    /// Parses a header as Firedancer does: a wrong checksum, or a directory's empty size, makes the
    /// header odd, not wrong, as long as the name can be read.
    ///
    /// # Errors
    /// The header has other faults for which [`TarHeader::parse`] refuses it.
    pub fn parse_tolerantly(block: &[u8; BLOCK]) -> Result<Self> {
        Self::parse(block).or_else(|error| {
            let loose = Self::unchecked(block);
            let has_no_size = block.get(SIZE).is_some_and(|size| size.iter().all(|byte| matches!(byte, 0 | b' ')));
            let is_fit = loose.has_size || (loose.flag == b'5' && has_no_size);
            match (loose.oddity(), is_fit) {
                (Some(Oddity::Checksum | Oddity::NoSize), true) => Ok(loose),
                _ => Err(error),
            }
        })
    }

    fn unchecked(block: &[u8; BLOCK]) -> Self {
        let header = tar::Header::from_byte_slice(block);
        let size = header.entry_size();
        Self {
            path: header.path_bytes().into_owned(),
            flag: header.entry_type().as_byte(),
            is_ustar: block.get(MAGIC).is_some_and(|magic| magic == b"ustar"),
            is_split: header.as_ustar().is_some_and(|header| header.prefix.first() != Some(&0)),
            is_sum_right: header.cksum().is_ok_and(|stated| stated == checksum(block)),
            has_size: size.is_ok(),
            content_bytes: size.unwrap_or_default(),
        }
    }

    pub fn shown_path(&self) -> String {
        let text: String = String::from_utf8_lossy(&self.path).chars().filter(|char| !char.is_control()).collect();
        slotpress_base::text::one_line(&text)
    }

    /// Returns the first deviation that some client refuses.
    pub fn oddity(&self) -> Option<Oddity> {
        if matches!(self.flag, b'x' | b'L' | b'K') {
            return Some(Oddity::Extension);
        }
        let Some(kind) = self.kind() else { return Some(Oddity::Foreign) };
        let is_right_kind = if kind.is_dir() { self.flag == b'5' } else { matches!(self.flag, b'0' | 0) };
        if !is_right_kind {
            return Some(Oddity::Kind);
        }
        if self.content_bytes > ENTRY_BYTES_MAX || (kind.is_dir() && self.content_bytes != 0) {
            return Some(Oddity::Size);
        }
        match () {
            () if !self.is_ustar => Some(Oddity::Old),
            () if self.is_split => Some(Oddity::Split),
            () if !self.is_sum_right => Some(Oddity::Checksum),
            () if !self.has_size => Some(Oddity::NoSize),
            () if self.strict_kind().is_none() => Some(Oddity::Loose),
            () => None,
        }
    }

    /// Returns the entry if at least one client can read it.
    pub fn entry(&self) -> Option<Entry> {
        use Oddity::*;
        let is_readable = matches!(self.oddity(), None | Some(Old | Split | Checksum | Loose | NoSize));
        let entry = Entry { kind: self.kind()?, content_bytes: self.content_bytes };
        is_readable.then_some(entry)
    }

    fn kind(&self) -> Option<EntryKind> {
        let is_file = matches!(self.flag, b'0' | 0);
        let loosely = || EntryKind::parse_loosely(std::str::from_utf8(&self.path).ok()?, is_file);
        self.strict_kind().or_else(loosely)
    }

    fn strict_kind(&self) -> Option<EntryKind> {
        std::str::from_utf8(&self.path).ok().and_then(EntryKind::parse)
    }
}

/// Rounds up to whole blocks; saturates, so that hostile lengths stay large.
pub fn padded(content_bytes: u64) -> u64 {
    content_bytes.saturating_add(padding_bytes(content_bytes))
}

pub fn padding_bytes(content_bytes: u64) -> u64 {
    content_bytes.wrapping_neg() % BLOCK_BYTES
}

/// Sum of a header's bytes, with spaces in the checksum field (POSIX ustar).
fn checksum(block: &[u8; BLOCK]) -> u32 {
    let own = 148..156;
    block.iter().enumerate().map(|(at, byte)| if own.contains(&at) { 32 } else { u32::from(*byte) }).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kinds() -> impl Strategy<Value = EntryKind> {
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
        fn headers_round_trip(kind in kinds(), size in 0..=ENTRY_BYTES_MAX) {
            let entry = Entry { kind, content_bytes: if kind.is_dir() { 0 } else { size } };
            prop_assert_eq!(Entry::parse_header(&entry.header()).expect("own header"), entry);
        }

        #[test]
        fn hostile_headers_never_panic(bytes in proptest::collection::vec(any::<u8>(), 512)) {
            let _ = Entry::parse_header(&bytes.try_into().expect("exact length"));
        }

        /// The checksum detects any flipped bit.
        #[test]
        fn flipped_bits_are_found(kind in kinds(), bit in 0usize..512 * 8) {
            let entry = Entry { kind, content_bytes: 0 };
            let mut header = entry.header();
            header[bit / 8] ^= 1 << (bit % 8);
            if let Ok(read) = Entry::parse_header(&header) {
                // A flipped bit can pass only where it spells the same checksum in another way.
                prop_assert!((148..156).contains(&(bit / 8)));
                prop_assert_eq!(read, entry);
            }
        }
    }

    #[test]
    fn headers_of_firedancer() {
        let own = Entry { kind: EntryKind::Version, content_bytes: 5 }.header();
        let mut theirs = own;
        theirs[100..108].copy_from_slice(b"644\0\0\0\0\0");
        theirs[136..148].fill(0);
        theirs[148..156].copy_from_slice(b"0004670\0");
        assert!(is_header_of_firedancer(&theirs) && !is_header_of_firedancer(&own));
        for (at, field) in [(100, &own[100..108]), (136, &own[136..148]), (148, b"010617\0 ")] {
            let mut mixed = theirs;
            mixed[at..at + field.len()].copy_from_slice(field);
            assert!(!is_header_of_firedancer(&mixed));
        }
    }

    #[test]
    fn names_outside_the_allow_list() {
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
    fn headers_that_are_odd() {
        let header = |path: &str, flag: u8, content_bytes: u64| TarHeader {
            path: path.into(),
            flag,
            content_bytes,
            is_ustar: true,
            is_split: false,
            is_sum_right: true,
            has_size: true,
        };
        assert_eq!(header("version", b'0', ENTRY_BYTES_MAX).oddity(), None);
        assert_eq!(header("version", b'0', ENTRY_BYTES_MAX + 1).oddity(), Some(Oddity::Size));
        assert_eq!(header("snapshots/", b'5', 1).oddity(), Some(Oddity::Size));
        assert_eq!(header("snapshots/", b'0', 0).oddity(), Some(Oddity::Kind));
        assert_eq!(header("version", b'5', 0).oddity(), Some(Oddity::Kind));
        assert_eq!(header("a\nb", b'0', 0).shown_path(), "ab");
        let loose = |path: &str, flag: u8| (header(path, flag, 0).oddity(), header(path, flag, 0).kind());
        for (path, kind) in [
            ("versionX", EntryKind::Version),
            ("snapshots/status_cache2", EntryKind::StatusCache),
            ("snapshots/x", EntryKind::BankFile(UNNAMED_SLOT)),
            ("snapshots/+26/026", EntryKind::BankFile(26)),
            ("accounts/+007.008", EntryKind::Storage { slot: 7, id: 8 }),
            ("accounts/7.18446744073709551615", EntryKind::Storage { slot: 7, id: u32::MAX }),
        ] {
            assert_eq!(loose(path, b'0'), (Some(Oddity::Loose), Some(kind)), "{path}");
        }
        assert_eq!(loose("snapshots/026/", b'5'), (Some(Oddity::Loose), Some(EntryKind::SlotDir(26))));
        for path in
            ["accounts/7.18446744073709551616", "accounts/-7.8", "accounts/7.8.9", "snapshots/26/27", "ver", "x"]
        {
            assert_eq!(loose(path, b'0'), (Some(Oddity::Foreign), None), "{path}");
        }
        assert_eq!(loose("versionX", b'5').0, Some(Oddity::Foreign), "a directory");
    }

    #[test]
    fn padding() {
        assert_eq!([0, 1, 511, 512, 513].map(padding_bytes), [0, 511, 1, 0, 511]);
        assert_eq!([0, 1, 511, 512, 513].map(padded), [0, 512, 512, 512, 1024]);
        assert_eq!([u64::MAX, u64::MAX - 511].map(padded), [u64::MAX, u64::MAX - 511]);
        let huge = Entry { kind: EntryKind::Version, content_bytes: u64::MAX };
        assert_eq!(huge.tar_bytes(), u64::MAX);
    }

    #[test]
    fn links_and_extensions_are_refused() {
        for kind in [b'1', b'2', b'L', b'K', b'x', b'g', b'S', b'3', b'7'] {
            let mut header = tar::Header::new_gnu();
            header.set_path("version").expect("short");
            header.set_entry_type(tar::EntryType::new(kind));
            header.set_size(0);
            header.set_cksum();
            assert!(Entry::parse_header(header.as_bytes()).is_err(), "{:?}", char::from(kind));
        }
    }
}
