//! Archives as JSON has them, in `slotpress list` and in what the server tells programs. Fields are added, never renamed or
//! removed.

use {
    super::{Archive, Catalog},
    crate::{format::frame_hashes::Root, ledger::names::Hash},
    serde::Serialize,
    std::time::{Duration, SystemTime},
};

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
    size_bytes: u64,
    modified_unix_seconds: u64,
    age_seconds: u64,
    slots_behind: u64,
    etag: String,
    root: Option<Root>,
    frame_hashes: Option<FrameHashesFields>,
}

/// Where an archive's frame hashes are.
#[derive(Clone, Debug, Serialize)]
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
        Self {
            path: format!("/{name}"),
            name,
            kind: if archive.is_full() { "full" } else { "incremental" },
            slot: archive.name.slot,
            base_slot: archive.name.base_slot,
            base: catalog.base_of(archive).map(|base| base.name.to_string()),
            hash: archive.name.hash,
            format: archive.name.extension.as_str(),
            size_bytes: archive.size_bytes,
            modified_unix_seconds: archive.modified_ns / 1_000_000_000,
            age_seconds: archive.age(unix_ns(now)).as_secs(),
            slots_behind: catalog.newest_slot().unwrap_or_default().saturating_sub(archive.name.slot),
            etag: archive.etag(),
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
