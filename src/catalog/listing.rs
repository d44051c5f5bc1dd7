//! Archives as JSON has them, in `slotpress list` and in what the server tells programs. Fields are added, never renamed or
//! removed.

use {
    super::{Archive, Catalog, FileId, FrameHashes},
    crate::{
        format::frame_hashes::Root,
        ledger::names::{ArchiveName, Hash},
    },
    serde::{Deserialize, Serialize},
    std::{
        path::PathBuf,
        time::{Duration, SystemTime},
    },
};

/// Where a server has its list.
pub const PATH: &str = "/api/v1/archives";

/// What is read of a list that a server sent.
#[derive(Deserialize)]
struct Listing {
    version: u32,
    archives: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    name: String,
    size_bytes: Option<u64>,
    age_seconds: Option<u64>,
    root: Option<String>,
    frame_hashes: Option<FrameHashesFields>,
}

/// Reads the list that a server at `url` sent: none where it is something else. What has not the name of an archive is left
/// out.
pub fn parse_listing(document: &[u8], url: &str, now_ns: u64) -> Option<Catalog> {
    let listing: Listing = serde_json::from_slice(document).ok()?;
    if listing.version != 1 {
        return None;
    }
    Some(Catalog::new(listing.archives.into_iter().filter_map(|listed| {
        let name = ArchiveName::parse(&listed.name)?;
        let age_ns = listed.age_seconds.map(|seconds| seconds.saturating_mul(1_000_000_000));
        let hashes = listed.root.and_then(|root| root.parse().ok()).zip(listed.frame_hashes);
        Some(Archive {
            modified_ns: age_ns.map_or(0, |age| now_ns.saturating_sub(age).max(1)),
            hashes: hashes.map(|(root, fields)| FrameHashes {
                root,
                offset_bytes: fields.offset_bytes,
                frames: fields.frames,
            }),
            ..Archive::of_server(name, url.trim_end_matches('/'), listed.size_bytes.unwrap_or_default())
        })
    })))
}

impl Archive {
    /// An archive on a server, below `url`; of no known time. A size of 0 is not known.
    pub fn of_server(name: ArchiveName, url: &str, size_bytes: u64) -> Self {
        Self {
            name,
            dir: PathBuf::from(url),
            is_remote: false,
            size_bytes,
            modified_ns: 0,
            file_id: FileId::default(),
            hashes: None,
        }
    }
}

/// What a node would choose.
#[derive(Clone, Debug, Serialize)]
pub struct ChoiceFields {
    full: String,
    incremental: Option<String>,
}

/// An archive, as JSON has it here and in `slotpress list`.
#[derive(Clone, Debug, Serialize)]
pub struct ArchiveFields {
    name: String,
    path: String,
    kind: &'static str,
    slot: u64,
    base_slot: Option<u64>,
    base: Option<String>,
    hash: Hash,
    format: &'static str,
    size_bytes: Option<u64>,
    modified_unix_seconds: Option<u64>,
    age_seconds: Option<u64>,
    slots_behind: u64,
    etag: Option<String>,
    root: Option<Root>,
    frame_hashes: Option<FrameHashesFields>,
}

/// Where an archive's frame hashes are.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct FrameHashesFields {
    offset_bytes: u64,
    frames: u64,
}

impl ChoiceFields {
    /// Of these.
    pub fn new(catalog: &Catalog) -> Option<Self> {
        let choice = catalog.choice()?;
        let incremental = choice.incremental.map(|archive| archive.name.to_string());
        Some(Self { full: choice.full.name.to_string(), incremental })
    }
}

impl ArchiveFields {
    /// Of an archive among others.
    pub fn new(archive: &Archive, catalog: &Catalog, now: SystemTime) -> Self {
        let name = archive.name.to_string();
        let is_dated = archive.modified_ns > 0;
        Self {
            path: format!("/{name}"),
            name,
            kind: if archive.is_full() { "full" } else { "incremental" },
            slot: archive.name.slot,
            base_slot: archive.name.base_slot,
            base: catalog.base_of(archive).map(|base| base.name.to_string()),
            hash: archive.name.hash,
            format: archive.name.extension.as_str(),
            size_bytes: Some(archive.size_bytes).filter(|bytes| *bytes > 0),
            modified_unix_seconds: is_dated.then_some(archive.modified_ns / 1_000_000_000),
            age_seconds: is_dated.then(|| archive.age(unix_ns(now)).as_secs()),
            slots_behind: catalog.newest_slot().unwrap_or_default().saturating_sub(archive.name.slot),
            etag: (archive.file_id != FileId::default() || archive.hashes.is_some()).then(|| archive.etag()),
            root: archive.hashes.map(|hashes| hashes.root),
            frame_hashes: archive
                .hashes
                .map(|hashes| FrameHashesFields { offset_bytes: hashes.offset_bytes, frames: hashes.frames }),
        }
    }
}

/// Nanoseconds since 1970.
pub fn unix_ns(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use {super::*, proptest::prelude::*};

    const NAME: &str = "snapshot-26-5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt.tar.zst";

    #[test]
    fn what_is_listed_is_read() {
        let mut archive = Archive::of_server(ArchiveName::parse(NAME).expect("a name"), "/dir", 5);
        archive.modified_ns = 7_000_000_000;
        archive.hashes = Some(FrameHashes { root: Root::new(5, [b"x".as_slice()]), offset_bytes: 3, frames: 2 });
        let catalog = Catalog::new([archive.clone()]);
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10);
        let fields = ArchiveFields::new(&archive, &catalog, now);
        let junk = r#"{"name":"../x","size_bytes":1}"#;
        let json = format!(r#"{{"version":1,"archives":[{},{junk}]}}"#, serde_json::to_string(&fields).expect("JSON"));
        let read = parse_listing(json.as_bytes(), "/dir/", unix_ns(now)).expect("a list");
        assert_eq!(read, catalog);
        assert_eq!(parse_listing(json.replace("\"version\":1", "\"version\":2").as_bytes(), "", 0), None);
        assert_eq!(parse_listing(b"<html>", "", 0), None);
    }

    proptest! {
        #[test]
        fn junk_never_panics(text in ".{0,200}", age in any::<u64>()) {
            let _ = parse_listing(text.as_bytes(), "", 0);
            let json = format!(r#"{{"version":1,"archives":[{{"name":"{NAME}","age_seconds":{age},"root":"x"}}]}}"#);
            prop_assert!(parse_listing(json.as_bytes(), "http://x", age / 2).is_some());
        }
    }
}
