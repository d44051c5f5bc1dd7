//! Makes the JSON list of archives at `/api/v1/archives`, described in `docs/serving.md`. Fields
//! are added, never renamed or removed.

use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use slotpress_base::text::json;
use slotpress_read::{ArchiveFields, Catalog, ListFields};

use super::transfers::Transfer;

#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    list: ListFields<ArchiveFields>,
    transfers: Vec<TransferFields<'a>>,
}

#[derive(Serialize)]
struct TransferFields<'a> {
    name: &'a str,
    sent_bytes: u64,
    total_bytes: u64,
    elapsed_seconds: f64,
}

pub fn archives(catalog: &Catalog, transfers: &[Arc<Transfer>], now: SystemTime) -> String {
    let answer = Answer {
        list: ListFields::new(catalog, now, |archive| ArchiveFields::new(archive, catalog, now).in_list()),
        transfers: transfers
            .iter()
            .map(|transfer| TransferFields {
                name: &transfer.name,
                sent_bytes: transfer.sent_bytes(),
                total_bytes: transfer.total_bytes(),
                elapsed_seconds: transfer.elapsed().as_secs_f64(),
            })
            .collect(),
    };
    json(&answer)
}
