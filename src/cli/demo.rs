//! Runs `slotpress demo`: archive, inspect, restore and verify on a synthetic ledger.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use slotpress::check::SnapshotClient;
use slotpress::inspect::inspect_archive;
use slotpress::{
    ArchiveOptions, ArchiveReport, EncodingOptions, Error, LedgerPaths, NamedArchive, RestoreOptions, RestoreReport,
    RestoreTarget, Result, Sink, VerifyOptions, VerifyReport, archive, restore, verify_archives, verify_ledger,
};
use slotpress_base::text::ShowPath;
use slotpress_base::{IoContext, KeptDir};
use slotpress_read::{WorkDir, names_of, remove_stale_dirs};
use slotpress_synth::{INCREMENTAL_BYTES_MIN, SynthOptions, synth};

use super::arguments::WorkerArgs;
use super::synth::contents_of;
use super::ui::Ui;
use super::values;
use super::verify::result_of;

/// Name prefix of temporary directories. A directory in use is locked, so the next run can remove
/// those that killed runs have left.
const WORK_PREFIX: &str = "slotpress-demo-";

/// Show how it works on a synthetic ledger: archive, inspect, restore, verify
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Approximate size of the account storages
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = values::size)]
    size: u64,
    /// Keep everything in this directory, which must be empty or not exist
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    workers: WorkerArgs,
}

#[derive(Serialize)]
struct DemoFields {
    verified_accounts: u64,
    full_bytes: u64,
    incremental_bytes: u64,
    archive_seconds: f64,
    restore_seconds: f64,
}

pub fn run(args: &DemoArgs, ui: &Ui) -> Result<()> {
    let temporary;
    let dir = match &args.keep {
        Some(dir) => {
            KeptDir::open_or_make(dir, &mut |_, _| {})?;
            if fs::read_dir(dir).or_path("read", dir)?.next().is_some() {
                return Err(Error::failed(format!("{} is not empty", dir.shown()))
                    .with_hint("--keep takes a directory that is empty or does not exist"));
            }
            dir.as_path()
        }
        None => {
            let parent = Arc::new(KeptDir::open(&std::env::temp_dir())?);
            remove_stale_dirs(&parent, WORK_PREFIX, &mut |_| Ok(()))?;
            temporary = WorkDir::create(&parent, WORK_PREFIX)?;
            temporary.path()
        }
    };
    let threads = args.workers.threads();
    let (ledger, archives, restored) = (dir.join("ledger"), dir.join("archives"), dir.join("restored"));
    let demo = Demo { ledger, archives, restored, threads, ui };
    fs::create_dir(&demo.archives).or_path("create", &demo.archives)?;

    demo.say("A ledger, as a validator leaves it when it is stopped gracefully");
    let report = synth(
        &SynthOptions::new(&demo.ledger, args.size)
            // A tenth of the state changes between two archives.
            .incremental_bytes((args.size / 10).max(INCREMENTAL_BYTES_MIN))
            .threads(threads),
        ui,
    )?;
    let full_slot = report.states.first().map(|state| state.slot);
    for state in &report.states {
        demo.result(&format!("slot {}: {}", state.slot, contents_of(state)));
    }

    demo.say("A full archive of its older state, and an incremental one of what is newer");
    let full = demo.archive(&demo.ledger.join("at-full"), None)?;
    let incremental = demo.archive(&demo.ledger, full_slot)?;

    demo.say("What is inside, without unpacking it");
    for archive in [&full, &incremental] {
        let found = inspect_archive(&NamedArchive::from_path(archive.path_in(&demo.archives)), threads, ui)?;
        let readers = found.clients.iter().filter(|reading| reading.refusals.is_empty());
        let readers: Vec<SnapshotClient> = readers.map(|reading| reading.client).collect();
        let storages = values::count_of(found.entries.storages, "storage");
        let ratio = values::show_ratio(found.entries.tar_bytes, found.file_bytes);
        let readers = names_of(&readers).join(" and ");
        demo.result(&format!("slot {}: {storages}, ratio {ratio}, read by {readers}", found.bank.slot));
    }

    demo.say("Both archives back into a ledger, in the layout from which a validator boots");
    let restored = demo.restore(&full, &incremental)?;

    demo.say("Both archives and the ledger verified: every checksum, and every account against the hash of the state");
    let options = VerifyOptions::default().threads(threads);
    let [full_archive, incremental_archive] =
        [&full, &incremental].map(|archive| NamedArchive::from_path(archive.path_in(&demo.archives)));
    demo.verified("archives", &verify_archives(&full_archive, Some(&incremental_archive), &options, ui)?)?;
    let ledger = verify_ledger(&LedgerPaths::new(&demo.restored), None, None, &options, ui)?;
    demo.verified("ledger", &ledger)?;

    let archive_seconds = (full.archive.elapsed.wall + incremental.archive.elapsed.wall).as_secs_f64();
    if ui.is_json() {
        let fields = DemoFields {
            verified_accounts: ledger.counts.accounts,
            full_bytes: full.archive.output_bytes,
            incremental_bytes: incremental.archive.output_bytes,
            archive_seconds,
            restore_seconds: restored.elapsed.wall.as_secs_f64(),
        };
        ui.print_report("demo", &fields);
        return Ok(());
    }
    if ui.is_quiet() {
        args.keep.iter().for_each(|dir| ui.print(&dir.shown()));
        return Ok(());
    }
    let input_bytes = full.input_bytes + incremental.input_bytes;
    let rate = values::show_rate(input_bytes, full.archive.elapsed.wall + incremental.archive.elapsed.wall);
    ui.print("");
    ui.print(&format!(
        "Archived at {rate} here. A large ledger may take another rate: `slotpress doctor LEDGER` measures its disk and the cores."
    ));
    match &args.keep {
        Some(dir) => ui.print(&format!("Everything is kept in {}.", dir.shown())),
        None => ui.print("Everything was removed again; --keep DIR keeps it."),
    }
    ui.print("Next: `slotpress archive LEDGER -o OUT_DIR`");
    Ok(())
}

struct Demo<'a> {
    ledger: PathBuf,
    archives: PathBuf,
    restored: PathBuf,
    threads: usize,
    ui: &'a Ui,
}

impl Demo<'_> {
    fn say(&self, line: &str) {
        self.print(&format!("{line}:"));
    }

    fn result(&self, line: &str) {
        self.print(&format!("  {line}"));
    }

    fn print(&self, line: &str) {
        if !self.ui.is_json() && !self.ui.is_quiet() {
            self.ui.print(line);
        }
    }

    fn archive(&self, ledger: &Path, base_slot: Option<u64>) -> Result<ArchiveReport> {
        let options =
            ArchiveOptions::new(ledger).base_slot(base_slot).encoding(EncodingOptions::default().threads(self.threads));
        let report = archive(&options, Sink::dir(&self.archives)?, self.ui)?;
        self.result(&report.archive.name.to_string());
        let [output, input] = [report.archive.output_bytes, report.input_bytes].map(values::show_bytes);
        let ratio = values::show_ratio(report.input_bytes, report.archive.output_bytes);
        let speed = values::show_speed(report.input_bytes, &report.archive.elapsed);
        self.result(&format!("  {output} from {input} (ratio {ratio}) in {speed}"));
        Ok(report)
    }

    fn restore(&self, full: &ArchiveReport, incremental: &ArchiveReport) -> Result<RestoreReport> {
        let options =
            RestoreOptions::new(full.path_in(&self.archives), RestoreTarget::new(&self.restored).threads(self.threads))
                .incremental(incremental.path_in(&self.archives));
        let report = restore(&options, self.ui)?;
        let bytes = values::show_bytes(report.output_bytes);
        let speed = values::show_speed(report.output_bytes, &report.elapsed);
        self.result(&format!("slot {}: {bytes} in {speed}", report.slot));
        Ok(report)
    }

    fn verified(&self, what: &str, report: &VerifyReport) -> Result<()> {
        result_of(report)?;
        let hash = report.hash.map(|hash| format!(", hash {hash}")).unwrap_or_default();
        self.result(&format!("{what}: {}{hash}", values::count_of(report.counts.accounts, "account")));
        Ok(())
    }
}
