//! Runs `slotpress restore`, and prints its report and how to start a validator.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use slotpress::restore::{RestoreOptions, RestoreReport, TargetOptions, restore};
use slotpress::types::ArchiveRoot;
use slotpress::{Error, Progress, Result};
use slotpress_base::EscapePath;
use slotpress_base::text::{self};

use super::arguments::{COMPLETE_ROW, NewLedgerArgs, RestoringArgs, STATE_ROW};
use super::json::merge;
use super::network::{choose_archives, open_local, refuse_url};
use super::ui::Ui;
use super::values::quote_for_shell;

/// Restore archives into a ledger from which a validator starts
///
/// Reads full and incremental archives of slotpress and Agave, also if zstd or pzstd recompressed them, and those
/// of Firedancer that Agave loads. The ledger looks complete only after everything has been checked and is on
/// disk. A run that fails or is interrupted leaves behind only the lock file.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// A full archive, or a full and an incremental one; - is standard input. From more archives or a
    /// directory of archives, slotpress uses those that a node would choose
    #[arg(value_name = "ARCHIVE|DIR|-", required = true)]
    archives: Vec<PathBuf>,
    #[command(flatten)]
    new_ledger: NewLedgerArgs,
    /// Rename archives into the snapshots directory instead of copying them; both must be on the same
    /// file system
    #[arg(long = "move")]
    move_archives: bool,
    /// Expected root, as `archive` and `inspect` print it: the hash of every frame is checked. Give
    /// two roots for a full and an incremental archive
    #[arg(long, value_name = "ROOT", value_delimiter = ',', help_heading = "Check")]
    expect_root: Vec<ArchiveRoot>,
    #[command(flatten)]
    restoring: RestoringArgs,
}

pub fn run(args: &RestoreArgs, ui: &Ui) -> Result<()> {
    let ledger = args.new_ledger.paths().ledger.escaped();
    for archive in &args.archives {
        refuse_url(archive, &|url| format!("`slotpress bootstrap {url} --ledger {ledger}` fetches and restores it"))?;
    }
    let archives = choose_archives(&args.archives, None, ui)?;
    if let Some(dir) = archives.iter().find(|path| path.is_dir()) {
        return Err(directory_error(dir));
    }
    let target = args.new_ledger.target_options(&args.restoring, 0, ui)?;
    let mut options = RestoreOptions::new(open_local(&archives[0])?, target).expect_roots(args.expect_root.clone());
    options.move_archives = args.move_archives;
    options.incremental = archives.get(1).map(|path| open_local(path)).transpose()?;
    let report = restore(&options, ui)?;
    print_report(&report, &options.target, ui);
    let elapsed =
        "elapsed: {elapsed_seconds} at {output_bytes/elapsed_seconds}, CPU load {cpu_seconds%elapsed_seconds}";
    ui.print_part("", &report, &[elapsed]);
    if !options.target.paths.ledger.join("genesis.bin").exists() {
        ui.say("  the ledger has no genesis.bin yet: copy it, or let the validator fetch it");
    }
    say_how_to_start(&report, &options.target, ui);
    if options.target.check.expect_hash.is_none() && options.expect_roots.is_empty() {
        ui.warn(
            "nobody confirmed this state: slot and hash are only what the archive claims. Compare the hash with one \
             from a node that you trust: --expect-hash",
        );
    }
    Ok(())
}

/// Makes the error for a directory in place of an archive. Its hint says what can be done with the directory.
fn directory_error(dir: &Path) -> Error {
    let word = quote_for_shell(dir);
    let hint = if dir.join("snapshots").is_dir() {
        format!("`slotpress archive {word} -o DIR` makes an archive of a ledger")
    } else {
        format!("`slotpress list {word}` shows the archives in a directory")
    };
    let message = format!("{} is a directory: restore needs archives", dir.escaped());
    Error::usage(message).with_hint(hint)
}

pub fn print_report(report: &RestoreReport, target: &TargetOptions, ui: &Ui) {
    let flags = json!({ "validator_flags": validator_flags(target, report) });
    let fields = merge(report, flags);
    ui.print_report("restore", &report.path.escaped(), &fields, REPORT_ROWS);
}

const REPORT_ROWS: &[&str] = &[
    "slot: {slot}[ on the full archive of slot {base_slot}], {storages}",
    "size: {output_bytes} from {input_bytes}",
    STATE_ROW,
    COMPLETE_ROW,
];

/// Prints how to delete the old state, and how to start a validator on the ledger, as lines to paste.
pub fn say_how_to_start(report: &RestoreReport, target: &TargetOptions, ui: &Ui) {
    if !report.replaced.is_empty() {
        let dirs = report.replaced.iter().map(|dir| quote_for_shell(dir));
        let dirs = Vec::from_iter(dirs).join(" ");
        let text = format!("once the validator runs, delete the old state: rm -r {dirs}");
        ui.print_row("aside", &text);
    }
    // Firedancer builds its own accounts database from the archives, and ignores the rest of the
    // ledger. These are the keys of its default.toml (src/app/firedancer/config/default.toml).
    let genesis = make_absolute(&target.paths.ledger.join("genesis.bin"));
    ui.say("Start Firedancer, which reads the archives, with this in its TOML file:\n  [paths]");
    let snapshots = make_absolute(target.paths.snapshots_dir());
    ui.say(&format!("  snapshots = {}", quote_for_toml(&snapshots)));
    if genesis.exists() {
        ui.say(&format!("  genesis = {}", quote_for_toml(&genesis)));
    }
    ui.say("Or start Agave with its usual flags and:");
    let flags = validator_flags(target, report).join(" ");
    ui.say(&format!("  agave-validator {flags}"));
}

fn make_absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Quotes a path as a TOML basic string, whose escapes are the same as in JSON.
fn quote_for_toml(path: &Path) -> String {
    text::json(&path.to_string_lossy())
}

fn validator_flags(target: &TargetOptions, report: &RestoreReport) -> Vec<String> {
    let mut paths = vec![("--ledger", &target.paths.ledger)];
    paths.extend(target.paths.snapshots.iter().map(|dir| ("--snapshots", dir)));
    paths.extend(report.accounts.iter().map(|dir| ("--accounts", dir)));
    let mut flags = Vec::new();
    for (flag, path) in paths {
        flags.extend([flag.to_string(), quote_for_shell(&make_absolute(path))]);
    }
    // Without this flag, the validator downloads a newer archive if it knows of one.
    flags.push("--no-snapshot-fetch".to_string());
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_toml() {
        assert_eq!(quote_for_toml(Path::new("/mnt/ledger-1")), r#""/mnt/ledger-1""#);
        assert_eq!(quote_for_toml(Path::new("/a\"b\\c\n")), r#""/a\"b\\c\n""#);
    }
}
