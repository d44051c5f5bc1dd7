//! Runs `slotpress prune` on directories and stores. The library's `plan_prune` decides which archives are kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde::Serialize;
use serde_json::json;
use slotpress::catalog::{
    Catalog, FileFault, Keep, KeepReason, ListedArchive, PruneDecision, UnusableFile, find_partials, plan_prune,
    remove_archive,
};
use slotpress::stores::{Store, Target};
use slotpress::types::Space;
use slotpress::{Error, Progress, Result};
use slotpress_base::{EscapePath, KeptDir, clock};
use slotpress_format::LATEST_JSON;
use slotpress_read::{LIST_BYTES_MAX, parse_list, read_bank_times, scan_with_copies};

use super::arguments::RetentionArgs;
use super::json::merge;
use super::list::{print_partial, unusable_line};
use super::network::ConnectionArgs;
use super::stores::{BankTimes, open_store};
use super::ui::Ui;
use super::{stores, values};

/// Each of these flags makes `--keep-full` and `--keep-incremental` optional.
const SUFFICIENT_FLAGS: [&str; 7] =
    ["keep_within", "keep_daily", "keep_weekly", "keep_epoch_ends", "keep_bytes", "keep_free", "unusable"];

/// Remove old archives from directories or stores
///
/// Also prunes the subdirectory `remote`. Always keeps the archives that a node would choose, the
/// newest incremental archive, and every full archive on which a kept incremental one is based.
/// Results of `rebase` are counted separately, and are removed with their full archive. Files that have the name
/// of an archive but are not usable (empty, truncated, something else) are listed, but not counted; only
/// --unusable removes them. A target of `publish` is refused, because `publish` prunes it.
#[derive(Debug, Args)]
pub struct PruneArgs {
    /// Directories or stores (s3://BUCKET/PREFIX) of archives; each is pruned on its own
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<PathBuf>,
    /// Number of newest full archives to keep
    #[arg(long, value_name = "N", required_unless_present_any = SUFFICIENT_FLAGS, help_heading = "Retention",
          value_parser = clap::value_parser!(u64).range(0..=10_000))]
    keep_full: Option<u64>,
    /// Number of newest incremental archives to keep
    #[arg(long, value_name = "N", required_unless_present_any = SUFFICIENT_FLAGS, help_heading = "Retention",
          value_parser = clap::value_parser!(u64).range(0..=10_000))]
    keep_incremental: Option<u64>,
    /// Remove the oldest of the kept archives until those of the target use at most this much space
    ///
    /// Archives that --keep-daily, --keep-weekly and --keep-epoch-ends keep are removed last.
    #[arg(long, value_name = "SIZE", value_parser = values::parse_size, help_heading = "Retention")]
    keep_bytes: Option<u64>,
    /// The same, until this much space is free on the file system
    #[arg(long, value_name = "SIZE", value_parser = values::parse_size, help_heading = "Retention")]
    keep_free: Option<u64>,
    /// Also remove files that have the name of an archive but are not usable, and unfinished downloads
    ///
    /// Files that changed within the last minute and downloads that are in use stay.
    #[arg(long)]
    unusable: bool,
    /// Only show what would be removed
    #[arg(long)]
    dry_run: bool,
    #[command(flatten, next_help_heading = "Retention")]
    retention: RetentionArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

impl PruneArgs {
    fn verb(&self) -> &'static str {
        if self.dry_run { "would remove" } else { "removed" }
    }
}

struct Decision<'a> {
    archive: &'a ListedArchive,
    should_remove: bool,
    keep_reason: Option<KeepReason>,
    fault: Option<&'a FileFault>,
    /// Line to print if the archive stays.
    kept_line: String,
}

impl<'a> Decision<'a> {
    fn for_unusable(UnusableFile { archive, fault, .. }: &'a UnusableFile, args: &PruneArgs, now: SystemTime) -> Self {
        let is_settled = archive.age(now) >= UNCHANGED_MIN;
        let hint = match (args.unusable, is_settled) {
            (false, _) => "--unusable would remove it",
            (true, false) => "it stays, because it changed within the last minute",
            (true, true) => "it stays",
        };
        let should_remove = args.unusable && *fault != FileFault::Unreadable && is_settled;
        let kept_line = format!("! {}; {hint}", unusable_line(archive, fault, now));
        Self { archive, should_remove, keep_reason: None, fault: Some(fault), kept_line }
    }

    fn from_plan(planned: PruneDecision<'a>) -> Self {
        let PruneDecision { archive, keep_reason, .. } = planned;
        let mut kept_line = String::new();
        if let Some(reason) = keep_reason {
            let archive = show_with_size(archive);
            kept_line = format!("kept {archive}: {}", reason.to_string().replace('_', " "));
        }
        Self { archive, should_remove: keep_reason.is_none(), keep_reason, fault: None, kept_line }
    }
}

#[derive(Default, Serialize)]
struct Summary {
    path: String,
    dry_run: bool,
    removed: u64,
    removed_bytes: u64,
    kept: u64,
    kept_bytes: u64,
    unusable: u64,
    unusable_bytes: u64,
}

/// A file that changed within this time may still be written, so it is not removed as unusable.
const UNCHANGED_MIN: Duration = Duration::from_secs(60);

pub fn run(args: &PruneArgs, ui: &Ui) -> Result<()> {
    for target in &args.targets {
        prune_target(target, args, ui)?;
    }
    Ok(())
}

fn prune_target(target: &Path, args: &PruneArgs, ui: &Ui) -> Result<()> {
    let times = if args.retention.needs_bank_times() { BankTimes::Read } else { BankTimes::LeaveOut };
    if let Some(store) = open_store(target, None, &args.connection)? {
        if args.keep_free.is_some() {
            return Err(Error::usage("--keep-free is for directories: a store does not report its free space"));
        }
        refuse_published(&store, ui)?;
        let catalog = stores::read_catalog(&store, times, &args.connection, ui)?;
        let remove = |archive: &ListedArchive| store.delete(&archive.name.to_string(), ui);
        return prune(target, &catalog, &remove, args, ui);
    }
    refuse_published(&Store::from_dir(Arc::new(KeptDir::open(target)?)), ui)?;
    let mut catalog = scan_with_copies(&[target.to_path_buf()])?;
    if times == BankTimes::Read {
        read_bank_times(&mut catalog);
    }
    prune_partials(target, args, ui)?;
    prune(target, &catalog, &remove_archive, args, ui)
}

/// Refuses a target of `publish`, whose index would still name removed archives. Also refuses a target whose
/// index cannot be read.
fn refuse_published(store: &Store, ui: &Ui) -> Result<()> {
    let target = store.target();
    let unreadable = |error: Error| match target {
        Target::S3(_) => error,
        Target::Dir(dir) => error
            .with_place(format!("{} may be a target of `slotpress publish`", dir.escaped()))
            .with_hint("if nothing publishes there, remove that file; otherwise, let `slotpress publish` prune it"),
    };
    let index = stores::read_index(store, ui).map_err(unreadable)?;
    let latest = store.get_small_file(LATEST_JSON, LIST_BYTES_MAX, ui).map_err(unreadable)?;
    let mut documents = [index, latest].into_iter().flatten();
    if documents.any(|document| parse_list(&document.bytes, "").is_some()) {
        let message = format!("{target} is a target of `slotpress publish`, whose index would name removed archives");
        return Err(
            Error::failed(message).with_hint("let `slotpress publish` prune it: --keep-full, --keep-incremental")
        );
    }
    Ok(())
}

fn prune(
    target: &Path,
    catalog: &Catalog,
    remove: &dyn Fn(&ListedArchive) -> Result<()>,
    args: &PruneArgs,
    ui: &Ui,
) -> Result<()> {
    let now = clock::now();
    // Unusable files are removed first, so their space counts as free.
    let unusable = catalog.unusable().iter();
    let mut decisions = Vec::from_iter(unusable.map(|file| Decision::for_unusable(file, args, now)));
    let removed = decisions.iter().filter(|decision| decision.should_remove);
    let freed_bytes = removed.map(|decision| decision.archive.size_bytes).sum();
    let keep = make_keep_rule(catalog, target, freed_bytes, args)?;
    if keep.epoch_ends > 0 && catalog.epoch_schedule.is_none() && !catalog.archives().is_empty() {
        let reason = "the bank file of the newest full archive cannot be read, so the epochs are unknown";
        ui.warn(&format!("{}: {reason}, and all archives stay", target.escaped()));
    }
    let mut planned = Vec::from_iter(plan_prune(catalog, &keep, now).into_iter().map(Decision::from_plan));
    // Remove incremental archives before full ones: if the run is interrupted, no incremental archive
    // is left without its full archive.
    planned.sort_by_key(|decision| decision.archive.is_full());
    decisions.extend(planned);

    let path = target.to_string_lossy().into_owned();
    let mut summary = Summary { path, dry_run: args.dry_run, ..Summary::default() };
    let verb = args.verb();
    let mut last_error = None;
    for decision in decisions {
        ui.check()?;
        let archive = decision.archive;
        let mut is_removed = decision.should_remove;
        if is_removed
            && !args.dry_run
            && let Err(error) = remove(archive)
        {
            is_removed = false;
            // The last error is returned; the errors before it are printed as warnings.
            if let Some(earlier) = last_error.replace(error) {
                ui.warn(&earlier.to_string());
            }
        }
        let (count, bytes) = match (is_removed, decision.fault) {
            (true, _) => (&mut summary.removed, &mut summary.removed_bytes),
            (false, None) => (&mut summary.kept, &mut summary.kept_bytes),
            (false, Some(_)) => (&mut summary.unusable, &mut summary.unusable_bytes),
        };
        *count += 1;
        *bytes += archive.size_bytes;
        let path = archive.path();
        let fields = json!({
            "name": archive.name.to_string(), "path": path.to_string_lossy(), "size_bytes": archive.size_bytes,
            "removed": is_removed && !args.dry_run, "kept_because": decision.keep_reason,
            "unusable": decision.fault.map(FileFault::to_string),
        });
        if is_removed {
            let line = format!("{verb} {}", show_with_size(archive));
            ui.print_item("prune_archive", &fields, &path.escaped(), &line);
        } else {
            ui.print_item("prune_archive", &fields, "", &decision.kept_line);
        }
    }
    let archives = values::count_of(summary.removed, "archive");
    let [removed, kept] = [summary.removed_bytes, summary.kept_bytes].map(values::show_bytes);
    let kept_count = summary.kept;
    let line = format!("{verb} {archives} ({removed}), kept {kept_count} ({kept})");
    ui.print_item("prune", &summary, "", &line);
    let bytes_max = keep.bytes_max.unwrap_or(u64::MAX);
    let excess_bytes = summary.kept_bytes.saturating_sub(bytes_max);
    if excess_bytes > 0 {
        let excess = values::show_bytes(excess_bytes);
        ui.warn(&format!(
            "{}: the kept archives exceed the limit by {excess}: a node needs them, or their time is unknown",
            target.escaped()
        ));
    }
    last_error.map_or(Ok(()), Err)
}

fn show_with_size(archive: &ListedArchive) -> String {
    let size = values::show_bytes(archive.size_bytes);
    format!("{} ({size})", archive.path().escaped())
}

/// With `--unusable`, removes unfinished downloads that no process is using.
fn prune_partials(dir: &Path, args: &PruneArgs, ui: &Ui) -> Result<()> {
    if !args.unusable {
        return Ok(());
    }
    for partial in find_partials(dir)? {
        ui.check()?;
        if partial.is_in_use || !args.dry_run && !partial.remove()? {
            print_partial(&partial, ui);
            continue;
        }
        let verb = args.verb();
        let size = values::show_bytes(partial.size_bytes);
        let fields = merge(&partial, json!({ "removed": !args.dry_run }));
        ui.print_object("partial_download", &fields);
        ui.print_quiet(&partial.path().escaped());
        ui.say(&format!("{verb} {partial} ({size})"));
    }
    Ok(())
}

/// Makes the rule for keeping archives from the flags. `freed_bytes` is the size of the unusable files that
/// will be removed.
fn make_keep_rule(catalog: &Catalog, dir: &Path, freed_bytes: u64, args: &PruneArgs) -> Result<Keep> {
    let mut bytes_max = args.keep_bytes;
    if let Some(keep_free) = args.keep_free {
        let sizes = catalog.archives().iter().map(|archive| archive.size_bytes);
        let free_bytes = Space::new(dir, 0)?.free_bytes.saturating_add(freed_bytes);
        let missing_bytes = keep_free.saturating_sub(free_bytes);
        let budget_bytes = sizes.sum::<u64>().saturating_sub(missing_bytes);
        bytes_max = Some(budget_bytes.min(bytes_max.unwrap_or(u64::MAX)));
    }
    let has_counts = args.keep_full.is_some() || args.keep_incremental.is_some();
    let has_sizes = args.keep_bytes.is_some() || args.keep_free.is_some();
    let is_by_time = args.retention.is_by_time_alone() && !has_counts && !has_sizes;
    let default_count = if is_by_time { 0 } else { usize::MAX };
    let count_of = |count: Option<u64>| count.map_or(default_count, |count| count as usize);
    let newest = Keep::default().full(count_of(args.keep_full)).incremental(count_of(args.keep_incremental));
    let mut keep = args.retention.apply(newest, default_count);
    keep.bytes_max = bytes_max;
    Ok(keep)
}
