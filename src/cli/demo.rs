//! Runs `slotpress demo`: a script of commands on a synthetic ledger.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use clap::Args;
use slotpress::catalog::scan;
use slotpress::{Error, Result};
use slotpress_base::{EscapePath, IoContext, KeptDir};
use slotpress_read::{WorkDir, remove_stale_dirs};
use slotpress_synth::INCREMENTAL_BYTES_MIN;

use super::list::require_choice;
use super::ui::Ui;
use super::values;

/// Name prefix of temporary directories. A running demo locks its directory; the next run removes those that
/// are not locked, because killed runs have left them.
const WORK_PREFIX: &str = "slotpress-demo-";

/// Run the main commands on a synthetic ledger: archive, inspect, restore, verify
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Approximate size of the account storages
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    size: String,
    /// Keep everything in this directory, which must be empty or not exist
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

pub fn run(args: &DemoArgs, ui: &Ui) -> Result<()> {
    let temporary;
    let dir = match &args.keep {
        Some(dir) => {
            KeptDir::open_or_create(dir, &mut |_, _| {})?;
            if fs::read_dir(dir).or_path("read", dir)?.next().is_some() {
                return Err(Error::failed(format!("{} is not empty", dir.escaped()))
                    .with_hint("pass --keep a directory that is empty or does not exist"));
            }
            dir.as_path()
        }
        None => {
            let parent = Arc::new(KeptDir::open(&env::temp_dir())?);
            remove_stale_dirs(&parent, WORK_PREFIX, &mut |_| Ok(()))?;
            temporary = WorkDir::create(&parent, WORK_PREFIX)?;
            temporary.path()
        }
    };
    // Keeps the printed paths short.
    env::set_current_dir(dir).or_path("enter", dir)?;
    run_script(&args.size, ui)?;
    ui.say("\nRates differ on a large ledger: `slotpress doctor LEDGER` measures its disk and the cores.");
    ui.say(&match &args.keep {
        Some(dir) => format!("Everything is kept in {}.", dir.escaped()),
        None => "Everything was removed again; --keep DIR would keep it.".to_string(),
    });
    ui.say("Next: `slotpress archive LEDGER -o OUT_DIR`");
    Ok(())
}

fn run_script(size: &str, ui: &Ui) -> Result<()> {
    let run_step = |title: &str, command: &str| {
        ui.say(&format!("\n# {title}\n$ slotpress {command}"));
        let words: Vec<OsString> = format!("slotpress {command}").split(' ').map(OsString::from).collect();
        let cli = super::parse(&words).map_err(|error| Error::usage(error.to_string()))?;
        super::run(cli.command, ui)
    };
    let scan_archives = || scan(&["archives"]);
    // A tenth of the state changes between two archives.
    let newer_bytes = (values::parse_size(size).map_err(Error::usage)? / 10).max(INCREMENTAL_BYTES_MIN);

    let title = "A ledger, as a validator leaves it when it is stopped gracefully, and its older state";
    let [size, newer_kib] = [size.replace(' ', ""), (newer_bytes >> 10).to_string()];
    run_step(title, &format!("synth ledger --size {size} --incremental {newer_kib}KiB"))?;
    fs::create_dir("archives").or_path("create", Path::new("archives"))?;
    run_step("A full archive of the older state", "archive ledger/at-full -o archives")?;
    let catalog = scan_archives()?;
    let full = require_choice(&catalog, Path::new("archives"))?.full;
    let archive = format!("archive ledger -o archives --base-slot {}", full.name.slot);
    run_step("An archive of what is newer", &archive)?;
    let inspect = format!("inspect {}", full.path().to_string_lossy());
    run_step("What is inside, without unpacking it", &inspect)?;
    let hash = scan_archives()?.choice().and_then(|choice| Some(choice.incremental?.name.hash.to_string()));
    let hash = hash.unwrap_or_default();
    let title = "Both archives back into a ledger, in the layout from which a validator boots";
    let restore = format!("restore archives --ledger restored --expect-hash {hash}");
    run_step(title, &restore)?;
    let title = "Every checksum, and every account against the hash of the state";
    run_step(title, "verify archives")?;
    run_step("The restored ledger, verified", "verify restored")
}
