//! Runs `slotpress synth`, and prints its report.

use std::path::PathBuf;

use clap::Args;
use slotpress::Result;
use slotpress_base::EscapePath;
use slotpress_synth::{AccountMix, AgaveVersion, SynthOptions, estimate_memory, synth};

use super::arguments::ThreadArgs;
use super::json::merge;
use super::memory::threads_that_fit;
use super::ui::Ui;
use super::values::{self, Choice};

/// Make a synthetic ledger for practice and measurements
///
/// All commands work on the ledger, and Agave and Firedancer load it: its files, lists, hashes, names, sysvars
/// and genesis.bin are valid. But a validator cannot follow a cluster from it, because its blocks and votes are
/// made up.
#[derive(Debug, Args)]
pub struct SynthArgs {
    /// The directory for the ledger; it must be empty or not exist
    out_dir: PathBuf,
    /// Approximate size of the account storages
    #[arg(long, value_name = "SIZE", value_parser = values::parse_size)]
    size: u64,
    /// Random seed: with the same seed and sizes, the ledger has the same bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Also make a newer state with about this many bytes of newer storages; the older state is then in
    /// OUT_DIR/at-full
    #[arg(long, value_name = "SIZE", value_parser = values::parse_size)]
    incremental: Option<u64>,
    /// The version of Agave whose disk layout to use
    #[arg(long, value_name = "VERSION", default_value = "4.2", value_parser = values::choice_parser(VERSIONS))]
    agave: AgaveVersion,
    /// Kind of most accounts
    #[arg(long, value_name = "MIX", default_value = "mainnet", value_parser = values::choice_parser(MIXES))]
    mix: AccountMix,
    #[command(flatten)]
    workers: ThreadArgs,
}

const MIXES: &[Choice<AccountMix>] = &[
    Choice("mainnet", AccountMix::Mainnet, "As on mainnet"),
    Choice("tokens", AccountMix::Tokens, "Token accounts and their mints"),
    Choice("nfts", AccountMix::Nfts, "Mints, metadata, editions and token accounts"),
    Choice("programs", AccountMix::Programs, "Programs of up to 270 KiB"),
    Choice("empty", AccountMix::Empty, "Wallets without data"),
    Choice("random", AccountMix::Random, "Up to 4 KiB of random bytes each"),
];

const VERSIONS: &[Choice<AgaveVersion>] = &[
    Choice("4.2", AgaveVersion::V4_2, "Fastboot 3.0.0; also Agave 4.3"),
    Choice("4.4", AgaveVersion::V4_4, "Fastboot 3.1.0: startup hints, no storage map"),
    Choice("4.5", AgaveVersion::V4_5, "Fastboot 5.0.0: tagged lists, no accounts/snapshot"),
];

pub fn run(args: &SynthArgs, ui: &Ui) -> Result<()> {
    let mut options = SynthOptions::new(&args.out_dir, args.size)
        .seed(args.seed)
        .threads(args.workers.threads())
        .agave(args.agave)
        .mix(args.mix);
    options.incremental_bytes = args.incremental;
    let memory = estimate_memory(&options)?;
    let worker_bytes = || Ok(memory.worker_bytes);
    options.threads = threads_that_fit(args.workers.threads, worker_bytes, memory.other_bytes, ui)?;
    let report = synth(&options, ui)?;
    for state in &report.states {
        let fields = merge(state, &report);
        let row = "slot: {slot}, {accounts}, {storages}, {storage_bytes}";
        ui.print_report("synth", &state.path.escaped(), &fields, &[row]);
    }
    let made = "Made in {elapsed_seconds}. Validators load this ledger, but cannot follow a cluster from it: its blocks \
                and votes are made up.";
    ui.say_filled(&report, made);
    Ok(())
}
