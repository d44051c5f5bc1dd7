//! Serializes archives for `slotpress list --json` and for the server's list. Fields are added,
//! never renamed or removed.

use std::time::SystemTime;

use serde::Serialize;
use slotpress_format::{
    ARCHIVES_FROM_LISTING, ArchiveRoot, EpochSchedule, FrameHashesLocation, Hash, LISTING_VERSION, SlotTime,
};

use super::keep::KeepReason;
use super::{Catalog, FileId, ListedArchive, unix_ns};

/// The fields that every list of archives has. A server adds fields of its own.
#[derive(Clone, Debug, Serialize)]
pub struct ListFields<A> {
    version: u32,
    software: &'static str,
    time_unix_seconds: u64,
    newest_slot: Option<u64>,
    #[serde(flatten)]
    slot_time: SlotTime,
    epoch_schedule: Option<EpochSchedule>,
    choice: Option<ChoiceFields>,
    archives: Vec<A>,
}

impl<A> ListFields<A> {
    pub fn new(catalog: &Catalog, now: SystemTime, fields_of: impl Fn(&ListedArchive) -> A) -> Self {
        Self {
            version: LISTING_VERSION,
            software: concat!("slotpress ", env!("CARGO_PKG_VERSION")),
            time_unix_seconds: unix_ns(now) / 1_000_000_000,
            newest_slot: catalog.newest_slot(),
            slot_time: catalog.slot_time,
            epoch_schedule: catalog.epoch_schedule,
            choice: ChoiceFields::new(catalog),
            archives: catalog.archives().iter().map(fields_of).collect(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct ChoiceFields {
    full: String,
    incremental: Option<String>,
}

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
    bank_unix_seconds: Option<u64>,
    age_seconds: Option<u64>,
    slots_behind: u64,
    seconds_behind: u64,
    kept_because: Option<KeepReason>,
    etag: Option<String>,
    root: Option<ArchiveRoot>,
    frame_hashes: Option<FrameHashesLocation>,
    rebased_on: Option<Hash>,
}

impl ChoiceFields {
    /// Names the archives that a node would choose. `None` if there is no full archive that a client
    /// reads.
    pub fn new(catalog: &Catalog) -> Option<Self> {
        let choice = catalog.choice()?;
        let incremental = choice.incremental.map(|archive| archive.name.to_string());
        Some(Self { full: choice.full.name.to_string(), incremental })
    }
}

impl ArchiveFields {
    pub fn new(archive: &ListedArchive, catalog: &Catalog, now: SystemTime) -> Self {
        let name = archive.name.to_string();
        let has_modification_time = archive.modified_ns > 0;
        let newest_slot = catalog.newest_slot().unwrap_or_default();
        let slots_behind = newest_slot.saturating_sub(archive.name.slot);
        Self {
            path: name.clone(),
            name,
            kind: if archive.is_full() { "full" } else { "incremental" },
            slot: archive.name.slot,
            base_slot: archive.name.base_slot,
            base: catalog.base_of(archive).map(|base| base.name.to_string()),
            hash: archive.name.hash,
            format: archive.name.compression.extension(),
            size_bytes: Some(archive.size_bytes).filter(|bytes| *bytes > 0),
            modified_unix_seconds: has_modification_time.then_some(archive.modified_ns / 1_000_000_000),
            bank_unix_seconds: archive.bank_unix_seconds,
            age_seconds: catalog.age_of(archive, now).map(|age| age.as_secs()),
            slots_behind,
            seconds_behind: catalog.slot_time.duration(slots_behind).as_secs(),
            kept_because: archive.keep_reason,
            etag: (archive.file_id != FileId::default() || archive.hashes.is_some()).then(|| archive.etag()),
            root: archive.hashes.map(|hashes| hashes.root),
            frame_hashes: archive.hashes.map(|hashes| hashes.location),
            rebased_on: archive.rebased_on(),
        }
    }

    /// Makes the path relative to the URL of a served list, which is in a subdirectory below the archives.
    pub fn with_path_from_list(self) -> Self {
        Self { path: format!("{ARCHIVES_FROM_LISTING}{}", self.name), ..self }
    }

    /// Omits the age, which would become wrong in a stored list.
    pub fn without_age(self) -> Self {
        Self { age_seconds: None, ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use slotpress_format::{ArchiveName, SlotTimeSource};

    use super::super::FrameHashes;
    use super::super::list_parser::parse_list;
    use super::*;

    const NAME: &str = "snapshot-26-5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt.tar.zst";

    fn parse_fields(fields: &str) -> Catalog {
        parse_list(format!(r#"{{"version":1,{fields}}}"#).as_bytes(), "/dir/").expect("a list")
    }

    #[test]
    fn a_written_list_parses_to_the_same_archives() {
        let mut archive = ListedArchive::new(ArchiveName::parse(NAME).expect("a name"), "/dir", 5);
        (archive.modified_ns, archive.bank_unix_seconds) = (7_000_000_000, Some(4));
        let location = FrameHashesLocation { offset_bytes: 3, frames: 2 };
        archive.hashes = Some(FrameHashes { root: ArchiveRoot::new(5, [b"x".as_slice()]), location, rebased_on: None });
        let catalog = Catalog::new([archive.clone()]);
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10);
        let fields = ArchiveFields::new(&archive, &catalog, now);
        assert_eq!(fields.age_seconds, Some(6), "the age of the bank, not of the file");
        let json = serde_json::to_string(&fields).expect("JSON");
        assert_eq!(parse_fields(&format!(r#""archives":[{json}]"#)), catalog);
    }

    #[test]
    fn the_path_from_a_served_list_leads_up_to_the_archives() {
        let archive = ListedArchive::new(ArchiveName::parse(NAME).expect("a name"), "/dir", 5);
        let fields = ArchiveFields::new(&archive, &Catalog::default(), SystemTime::UNIX_EPOCH);
        assert_eq!(fields.path, NAME);
        let depth = slotpress_format::archive::listing::LISTING_PATH.matches('/').count() - 1;
        assert_eq!(fields.with_path_from_list().path, "../".repeat(depth) + NAME);
    }

    #[test]
    fn an_impossible_slot_duration_is_ignored() {
        let slot_time = |slot_ms: u64| {
            parse_fields(&format!(r#""slot_ms":{slot_ms},"slot_time_source":"bank-file","archives":[]"#)).slot_time
        };
        assert_eq!((slot_time(200).milliseconds(), slot_time(200).source()), (200, SlotTimeSource::BankFile));
        assert_eq!(slot_time(200_000), SlotTime::default());
    }
}
