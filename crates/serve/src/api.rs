//! Builds the list of archives and transfers, for the page and as JSON at `/api/v1/archives`.
//! `docs/serving.md` describes its fields. Fields may be added, but never renamed or removed.

use std::time::SystemTime;

use serde::Serialize;
use slotpress_read::{ArchiveFields, Catalog, ListFields};

use super::transfers::TransferReport;

#[derive(Serialize)]
pub struct ArchiveList {
    #[serde(flatten)]
    list: ListFields<ArchiveFields>,
    transfers: Vec<TransferFields>,
}

#[derive(Serialize)]
struct TransferFields {
    name: String,
    sent_bytes: u64,
    total_bytes: u64,
    elapsed_seconds: f64,
}

impl ArchiveList {
    pub fn new(catalog: &Catalog, transfers: Vec<TransferReport>, now: SystemTime) -> Self {
        let transfers = transfers.into_iter().map(|transfer| TransferFields {
            name: transfer.name,
            sent_bytes: transfer.sent_bytes,
            total_bytes: transfer.total_bytes,
            elapsed_seconds: transfer.elapsed.as_secs_f64(),
        });
        Self {
            list: ListFields::new(catalog, now, |archive| {
                ArchiveFields::new(archive, catalog, now).with_path_from_list()
            }),
            transfers: transfers.collect(),
        }
    }
}
