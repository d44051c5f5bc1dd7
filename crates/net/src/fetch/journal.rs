//! The journal of a download: a small file beside the partial file that says which bytes are on disk, and
//! which archive they belong to.
//!
//! The journal never lists bytes that are not on disk: it is written after the bytes have been synced, and
//! replaced as a whole. If its content is invalid, everything is fetched again.

use std::fs::File;
use std::io::{BufWriter, Write};

use rangemap::RangeSet;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use slotpress_base::{IoContext, KeptDir, Result, range_bytes, read_at_most};
use slotpress_format::ArchiveRoot;

const VERSION: u32 = 1;

/// Maximum number of bytes that are read from a journal. A range takes about 30 bytes, so [`RANGES_MAX`]
/// ranges take less than a third of this.
const JOURNAL_BYTES_MAX: u64 = 1024 * 1024;

/// Maximum number of ranges that are written. There are seldom more ranges than connections. The next run
/// fetches further ranges again.
const RANGES_MAX: usize = 10_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DownloadJournal {
    /// The archive to which the bytes belong, as its server describes it.
    pub identity: ArchiveIdentity,
    pub ranges: RangeSet<u64>,
}

pub fn sum_bytes(ranges: &RangeSet<u64>) -> u64 {
    ranges.iter().map(range_bytes).fold(0, u64::saturating_add)
}

/// Facts that tell archives of the same name apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveIdentity {
    pub length_bytes: Option<u64>,
    pub etag: Option<String>,
    /// The header `Last-Modified`, not parsed.
    pub last_modified: Option<String>,
    #[serde(default)]
    pub root: Option<ArchiveRoot>,
}

impl ArchiveIdentity {
    /// True if both are known to be the same archive: their lengths are equal, and so are their ETags or, if
    /// one has no ETag, their dates. If ETags are equal, dates may differ, because several machines may serve
    /// the same file.
    pub fn is_same_archive(&self, other: &Self) -> bool {
        let is_same_version = match (&self.etag, &other.etag) {
            (Some(etag), Some(other_etag)) => etag == other_etag,
            _ => self.last_modified.is_some() && self.last_modified == other.last_modified,
        };
        self.length_bytes.is_some() && self.length_bytes == other.length_bytes && is_same_version
    }

    /// True if bytes of this archive may match the frame hashes of `other`, which may be the same archive on
    /// another server: this archive has frame hashes, and the lengths are equal.
    pub fn has_comparable_frames(&self, other: &Self) -> bool {
        self.root.is_some() && self.length_bytes.is_some() && self.length_bytes == other.length_bytes
    }
}

/// The journal as it is written, in JSON.
#[derive(Serialize, Deserialize)]
struct JournalFile {
    slotpress_fetch: u32,
    #[serde(flatten)]
    identity: ArchiveIdentity,
    ranges: Vec<(u64, u64)>,
}

impl DownloadJournal {
    pub fn done_bytes(&self) -> u64 {
        sum_bytes(&self.ranges)
    }

    /// Reads a journal; `None` if there is none, or its content is invalid.
    pub fn read(dir: &KeptDir, name: &str) -> Result<Option<Self>> {
        if dir.stat_entry(name)?.is_none() {
            return Ok(None);
        }
        let bytes = read_at_most(dir.open_file(name)?, JOURNAL_BYTES_MAX, &dir.path_of(name))?;
        Ok(Self::parse(&bytes))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let journal: JournalFile = serde_json::from_slice(bytes).ok()?;
        // Without a length, the archive was fetched in order, so the next run starts from the beginning.
        let length_bytes = journal.identity.length_bytes.unwrap_or_default();
        let is_range = |(start, end): &(u64, u64)| start < end && *end <= length_bytes;
        if journal.slotpress_fetch != VERSION || !journal.ranges.iter().all(is_range) {
            return None;
        }
        let ranges = journal.ranges.into_iter().map(|(start, end)| start..end);
        Some(Self { identity: journal.identity, ranges: ranges.collect() })
    }

    /// Replaces the journal. The ranges that it lists must be on disk.
    pub fn write(&self, dir: &KeptDir, name: &str) -> Result<()> {
        let path = &dir.path_of(name);
        let ranges = self.ranges.iter().take(RANGES_MAX);
        let journal = JournalFile {
            slotpress_fetch: VERSION,
            identity: self.identity.clone(),
            ranges: ranges.map(|range| (range.start, range.end)).collect(),
        };
        // The partial file is locked, so no other run writes here. An existing file is left over from a
        // killed run.
        let temporary = temporary_name(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(dir, &temporary, flags, Mode::from_raw_mode(0o666));
        let file = file.or_path("create", &dir.path_of(&temporary))?;
        let mut file = BufWriter::new(File::from(file));
        serde_json::to_writer(&mut file, &journal).map_err(std::io::Error::from).or_path("write", path)?;
        file.flush().and_then(|()| file.get_ref().sync_data()).or_path("write", path)?;
        dir.rename(&temporary, dir, name).or_path("write", path)
    }
}

pub fn temporary_name(journal_name: &str) -> String {
    format!("{journal_name}.new")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init)]

    use proptest::prelude::*;

    use super::*;

    fn identity(etag: Option<&str>, last_modified: Option<&str>) -> ArchiveIdentity {
        ArchiveIdentity {
            length_bytes: Some(100),
            etag: etag.map(str::to_string),
            last_modified: last_modified.map(str::to_string),
            root: None,
        }
    }

    #[test]
    fn identities_tell_archives_of_one_name_apart() {
        let known = identity(Some("\"a\""), Some("monday"));
        assert!(known.is_same_archive(&known));
        // Machines that serve the same file may disagree about its time.
        assert!(known.is_same_archive(&identity(Some("\"a\""), Some("tuesday"))));
        assert!(!known.is_same_archive(&identity(Some("\"b\""), Some("monday"))));
        assert!(!known.is_same_archive(&ArchiveIdentity { length_bytes: Some(101), ..known.clone() }));
        assert!(!identity(None, None).is_same_archive(&known), "neither ETag nor time");
        assert!(!known.has_comparable_frames(&known), "no root");
        assert!(identity(None, Some("monday")).is_same_archive(&known));
        let root = Some(ArchiveRoot::new(1, []));
        let rooted = ArchiveIdentity { root, ..identity(Some("\"x\""), None) };
        assert!(rooted.has_comparable_frames(&known));
        assert!(!rooted.is_same_archive(&known), "mirrors have ETags of their own");
        assert!(!rooted.has_comparable_frames(&ArchiveIdentity { length_bytes: Some(101), ..known }));
    }

    proptest! {
        #[test]
        fn journals_round_trip(cuts in proptest::collection::btree_set(0u64..1000, 0..20), etag in any::<Option<String>>()) {
            let cuts: Vec<u64> = cuts.into_iter().collect();
            let ranges: RangeSet<u64> = cuts.chunks_exact(2).map(|cut| cut[0]..cut[1]).collect();
            let root = etag.as_ref().map(|text| ArchiveRoot::new(7, [text.as_bytes()]));
            let identity = ArchiveIdentity { length_bytes: Some(1000), etag, last_modified: None, root };
            let journal = DownloadJournal { identity, ranges };
            let dir = tempfile::tempdir().expect("a directory");
            let kept_dir = KeptDir::open(dir.path()).expect("opened");
            journal.write(&kept_dir, "journal").expect("written");
            prop_assert_eq!(DownloadJournal::read(&kept_dir, "journal").expect("read"), Some(journal));
            prop_assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 1);
        }

        #[test]
        fn invalid_journals_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(DownloadJournal::parse(&bytes), None);
        }
    }

    #[test]
    fn ranges_beyond_the_end_are_refused() {
        let text = |ranges: &str| format!(r#"{{"slotpress_fetch":1,"length_bytes":9,"ranges":[{ranges}]}}"#);
        assert!(DownloadJournal::parse(text("[0,9]").as_bytes()).is_some());
        assert_eq!(DownloadJournal::parse(br#"{"slotpress_fetch":1,"ranges":[[0,9]]}"#), None, "no length");
        for ranges in ["[0,10]", "[5,5]", "[7,3]"] {
            assert_eq!(DownloadJournal::parse(text(ranges).as_bytes()), None, "{ranges}");
        }
    }
}
