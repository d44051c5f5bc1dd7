//! Parses the list of archives that `slotpress serve` publishes for programs (see
//! `docs/serving.md`). Its contents are the server's claims, which are not checked here.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use slotpress_format::{
    ArchiveName, EpochSchedule, FrameHashesAt, Hash, LISTING_VERSION, Root, SlotTime, SlotTimeSource,
};

use super::keep::KeepReason;
use super::{Archive, Catalog, FrameHashes};

/// Maximum length of an index of `publish`, in bytes: about 10,000 archives.
pub const INDEX_BYTES_MAX: u64 = 8 << 20;

#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedArchive {
    pub name: ArchiveName,
    pub size_bytes: Option<u64>,
    /// Modification time, by the clock of the machine that made the list.
    pub modified_unix_seconds: Option<u64>,
    /// Time of the newest blockhash in the archive's bank file.
    pub bank_unix_seconds: Option<u64>,
    /// Why `publish` keeps the archive.
    pub kept_because: Option<KeepReason>,
    /// Result of the state check, as the server states it.
    pub state: Option<String>,
    pub root: Option<Root>,
    pub frame_hashes: Option<FrameHashesAt>,
    pub rebased_on: Option<Hash>,
}

#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveList {
    pub archives: Vec<ListedArchive>,
    pub slot_time: SlotTime,
    pub epoch_schedule: Option<EpochSchedule>,
}

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
    kept_because: Option<String>,
    state: Option<String>,
    root: Option<String>,
    frame_hashes: Option<FrameHashesAt>,
    rebased_on: Option<String>,
}

/// Parses a list; `None` if the document is not a list of the known version. Skips entries that are
/// not named like an archive.
pub fn parse_list(document: &[u8]) -> Option<ArchiveList> {
    let list: ListJson = serde_json::from_slice(document).ok()?;
    if list.version != LISTING_VERSION {
        return None;
    }
    let listed = list.archives.into_iter().filter_map(|entry| {
        Some(ListedArchive {
            name: ArchiveName::parse(&entry.name)?,
            size_bytes: entry.size_bytes,
            bank_unix_seconds: entry.bank_unix_seconds,
            modified_unix_seconds: entry.modified_unix_seconds,
            kept_because: entry.kept_because.and_then(|name| KeepReason::parse(&name)),
            state: entry.state,
            root: entry.root.and_then(|root| root.parse().ok()),
            frame_hashes: entry.frame_hashes,
            rebased_on: entry.rebased_on.and_then(|hash| hash.parse().ok()),
        })
    });
    let told = list.slot_ms.zip(list.slot_time_source);
    let slot_time = told.and_then(|(slot_ms, source)| SlotTime::new(Duration::from_millis(slot_ms), source));
    let slot_time = slot_time.unwrap_or_default();
    let epoch_schedule = list.epoch_schedule;
    Some(ArchiveList { archives: listed.collect(), slot_time, epoch_schedule })
}

impl Catalog {
    #[doc(hidden)]
    pub fn take_reasons(&mut self, listed: &ArchiveList) {
        let of: BTreeMap<String, Option<KeepReason>> =
            listed.archives.iter().map(|listed| (listed.name.to_string(), listed.kept_because)).collect();
        for archive in &mut self.archives {
            archive.kept_because = of.get(&archive.name.to_string()).copied().flatten();
        }
    }

    #[doc(hidden)]
    pub fn of_listing(listed: ArchiveList, url: &str) -> Self {
        let catalog = Self::new(listed.archives.into_iter().map(|listed| {
            let ns = |seconds: u64| seconds.saturating_mul(1_000_000_000);
            Archive {
                modified_ns: listed.modified_unix_seconds.map(ns).unwrap_or_default(),
                bank_unix_seconds: listed.bank_unix_seconds,
                kept_because: listed.kept_because,
                hashes: listed.root.zip(listed.frame_hashes).map(|(root, fields)| FrameHashes {
                    root,
                    offset_bytes: fields.offset_bytes,
                    frames: fields.frames,
                    rebased_on: listed.rebased_on,
                }),
                ..Archive::of_server(listed.name, url.trim_end_matches('/'), listed.size_bytes.unwrap_or_default())
            }
        }));
        Self { slot_time: listed.slot_time, epoch_schedule: listed.epoch_schedule, ..catalog }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAME: &str = "snapshot-26-5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt.tar.zst";

    #[test]
    fn only_archives_of_a_known_version() {
        let list = |version: u32| {
            format!(
                r#"{{"version":{version},"archives":[{{"name":"{NAME}"}},{{"name":"../x","size_bytes":1}}],"more":1}}"#
            )
        };
        assert_eq!(parse_list(list(1).as_bytes()).map(|listed| listed.archives.len()), Some(1));
        assert_eq!(parse_list(list(2).as_bytes()), None);
        assert_eq!(parse_list(b"<html>"), None);
    }

    proptest! {
        #[test]
        fn junk_never_panics(text in ".{0,200}", age in any::<u64>()) {
            let _ = parse_list(text.as_bytes());
            let json = format!(r#"{{"version":1,"archives":[{{"name":"{NAME}","age_seconds":{age},"root":"x"}}]}}"#);
            prop_assert!(parse_list(json.as_bytes()).is_some());
        }
    }
}
