//! `slotpress synth`

use {
    super::{ui::Ui, values},
    crate::{
        error::Result,
        synth::{SynthOptions, SynthReport, SynthState, synth},
    },
    clap::Args,
    serde::Serialize,
    std::path::{Path, PathBuf},
};

/// Make a lifelike ledger, for trying and measuring
///
/// Every other command works on it: its files, lists, hashes and names are valid. No validator can boot from it, since
/// its blocks and votes are made up.
#[derive(Debug, Args)]
pub struct SynthArgs {
    /// The directory for the ledger; must be empty or not exist
    out_dir: PathBuf,
    /// Bytes of account storages, about
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    size: u64,
    /// The same seed and sizes make the same bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Also make a newer state with about this many bytes of newer storages; the full one goes to OUT_DIR/at-full
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    incremental: Option<u64>,
    /// How many storages to make [default: as many as a ledger of the size has]
    #[arg(long, value_name = "N")]
    storages: Option<u64>,
    /// Worker threads [default: all cores that the process may use]
    #[arg(long, value_name = "N", value_parser = values::threads)]
    threads: Option<usize>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "synth")]
struct SynthLine<'a> {
    path: &'a Path,
    slot: u64,
    hash: String,
    capitalization_lamports: u64,
    accounts: u64,
    storages: u64,
    storage_bytes: u64,
    elapsed_seconds: f64,
}

pub fn run(args: &SynthArgs, ui: &Ui) -> Result<()> {
    let options = SynthOptions {
        out_dir: args.out_dir.clone(),
        size_bytes: args.size,
        seed: args.seed,
        incremental_bytes: args.incremental,
        storage_count: args.storages,
        threads: values::threads_or_all(args.threads),
    };
    print_report(&synth(&options, ui)?, ui);
    Ok(())
}

/// Prints what was made.
pub fn print_report(report: &SynthReport, ui: &Ui) {
    for SynthState { ledger_dir, slot, hash, capitalization, accounts, storages, storage_bytes } in &report.states {
        if ui.is_json() {
            ui.print_json(&SynthLine {
                path: ledger_dir,
                slot: *slot,
                hash: hash.to_string(),
                capitalization_lamports: *capitalization,
                accounts: *accounts,
                storages: *storages,
                storage_bytes: *storage_bytes,
                elapsed_seconds: report.elapsed.as_secs_f64(),
            });
            continue;
        }
        ui.print(&ledger_dir.display().to_string());
        ui.print(&format!(
            "  slot {slot}, {}, {}, {}",
            values::count_of(*accounts, "account"),
            values::count_of(*storages, "storage"),
            values::show_bytes(*storage_bytes)
        ));
    }
    if !ui.is_json() {
        ui.print(&format!("Made in {}. No validator can boot from it.", values::show_duration(report.elapsed)));
    }
}
