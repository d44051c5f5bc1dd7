//! What programs are told: `/api/v1/archives`, described in `docs/serving.md`. Fields are added, never renamed or removed.

use {
    super::transfers::Transfer,
    serde::Serialize,
    slotpress_format::{archive::listing, ledger::slot_time::SlotTimeSource},
    slotpress_read::catalog::{
        Catalog,
        listing::{ArchiveFields, ChoiceFields, unix_ns},
    },
    std::{sync::Arc, time::SystemTime},
};

#[derive(Serialize)]
struct Answer<'a> {
    version: u32,
    software: &'static str,
    time_unix_seconds: u64,
    newest_slot: Option<u64>,
    slot_ms: u64,
    slot_time_source: SlotTimeSource,
    choice: Option<ChoiceFields>,
    archives: Vec<ArchiveFields>,
    transfers: Vec<TransferFields<'a>>,
}

#[derive(Serialize)]
struct TransferFields<'a> {
    name: &'a str,
    sent_bytes: u64,
    total_bytes: u64,
    elapsed_seconds: f64,
}

/// All archives, and what is being sent.
pub fn archives(catalog: &Catalog, transfers: &[Arc<Transfer>], now: SystemTime) -> String {
    let answer = Answer {
        version: listing::VERSION,
        software: concat!("slotpress ", env!("CARGO_PKG_VERSION")),
        time_unix_seconds: unix_ns(now) / 1_000_000_000,
        newest_slot: catalog.newest_slot(),
        slot_ms: catalog.slot_time.milliseconds(),
        slot_time_source: catalog.slot_time.source(),
        choice: ChoiceFields::new(catalog),
        archives: catalog.archives().iter().map(|archive| ArchiveFields::new(archive, catalog, now)).collect(),
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
    // Plain structures with string keys: cannot fail.
    serde_json::to_string(&answer).unwrap_or_default()
}
