//! Parses the list of archives that `slotpress serve` publishes for programs (see
//! `docs/serving.md`). Its contents are the server's claims, which are not checked here.

use std::time::Duration;

use serde::Deserialize;
use slotpress_format::{
    ArchiveName, ArchiveRoot, EpochSchedule, FrameHashesLocation, LISTING_VERSION, SlotTime, SlotTimeSource,
};

use super::{Catalog, FrameHashes, ListedArchive};

/// Limit on the length of a list that is read, in bytes: enough for about 10,000 archives.
pub const LIST_BYTES_MAX: u64 = 8 << 20;

#[derive(Deserialize)]
struct ListJson {
    version: u32,
    slot_ms: Option<u64>,
    slot_time_source: Option<SlotTimeSource>,
    epoch_schedule: Option<EpochSchedule>,
    archives: Vec<EntryJson>,
}

#[derive(Deserialize)]
struct EntryJson {
    name: String,
    size_bytes: Option<u64>,
    modified_unix_seconds: Option<u64>,
    bank_unix_seconds: Option<u64>,
    kept_because: Option<serde_json::Value>,
    root: Option<String>,
    frame_hashes: Option<FrameHashesLocation>,
    rebased_on: Option<String>,
}

/// Parses the list of the archives at `place`, a directory or URL; `None` if the document is not a
/// list of the known version. Skips entries that are not named like an archive.
pub fn parse_list(document: &[u8], place: &str) -> Option<Catalog> {
    let list: ListJson = serde_json::from_slice(document).ok()?;
    if list.version != LISTING_VERSION {
        return None;
    }
    let dir = place.trim_end_matches('/');
    let entries = list.archives.into_iter();
    let mut catalog = Catalog::new(entries.filter_map(|entry| entry.into_archive(dir)));
    if let (Some(slot_ms), Some(source)) = (list.slot_ms, list.slot_time_source) {
        catalog.slot_time = SlotTime::new(Duration::from_millis(slot_ms), source).unwrap_or_default();
    }
    catalog.epoch_schedule = list.epoch_schedule;
    Some(catalog)
}

impl EntryJson {
    fn into_archive(self, dir: &str) -> Option<ListedArchive> {
        let name = ArchiveName::parse(&self.name)?;
        let root: Option<ArchiveRoot> = self.root.and_then(|root| root.parse().ok());
        let rebased_on = self.rebased_on.and_then(|hash| hash.parse().ok());
        let modified_seconds = self.modified_unix_seconds.unwrap_or_default();
        Some(ListedArchive {
            modified_ns: modified_seconds.saturating_mul(1_000_000_000),
            bank_unix_seconds: self.bank_unix_seconds.filter(|seconds| *seconds > 0),
            keep_reason: self.kept_because.and_then(|name| serde_json::from_value(name).ok()),
            hashes: root.zip(self.frame_hashes).map(|(root, location)| FrameHashes { root, location, rebased_on }),
            ..ListedArchive::new(name, dir, self.size_bytes.unwrap_or_default())
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAME: &str = "snapshot-26-5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt.tar.zst";

    #[test]
    fn only_lists_of_the_known_version_are_parsed() {
        let list_json = |version: u32| {
            format!(
                r#"{{"version":{version},"archives":[{{"name":"{NAME}"}},{{"name":"../x","size_bytes":1}}],"more":1}}"#
            )
        };
        assert_eq!(parse_list(list_json(1).as_bytes(), "").map(|catalog| catalog.archives.len()), Some(1));
        assert_eq!(parse_list(list_json(2).as_bytes(), ""), None);
        assert_eq!(parse_list(b"<html>", ""), None);
    }

    proptest! {
        #[test]
        fn junk_never_panics(text in ".{0,200}", seconds in any::<u64>()) {
            let _ = parse_list(text.as_bytes(), "");
            let json = format!(r#"{{"version":1,"archives":[{{"name":"{NAME}","modified_unix_seconds":{seconds},"root":"x"}}]}}"#);
            prop_assert!(parse_list(json.as_bytes(), "").is_some());
        }
    }
}
