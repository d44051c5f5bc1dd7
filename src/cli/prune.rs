//! Runs `slotpress prune` on directories and stores. The library's `plan_prune` decides which
//! archives to keep.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::json;
use slotpress::catalog::{
    Archive, Catalog, FileFault, Keep, KeepReason, UnusableFile, find_partials, plan_prune, remove,
};
use slotpress::types::Space;
use slotpress::{Error, Progress, Result};
use slotpress_base::text::ShowPath;
use slotpress_base::{IoContext, KeptDir, clock};
use slotpress_format::{LATEST_JSON, LISTING_PATH};
use slotpress_read::catalog::listed::{INDEX_BYTES_MAX, parse_list};
use slotpress_read::{read_bank_times, scan_with_copies};

use super::arguments::RetentionArgs;
use super::list::{line_of_unusable, show_partial};
use super::network::ConnectionArgs;
use super::ui::Ui;
use super::values;

/// Flags that may be given instead of `--keep-full` and `--keep-incremental`; one of them is
/// enough.
const ENOUGH: [&str; 7] =
    ["keep_within", "keep_daily", "keep_weekly", "keep_epoch_ends", "keep_bytes", "keep_free", "unusable"];

/// Remove old archives from directories or stores
///
/// Also looks into a subdirectory `remote`. Always keeps the archives that a node would choose, the newest incremental archive, and every
/// full archive on which a kept incremental one is based. Results of `rebase` are counted apart,
/// and keep no full archive. Files that have the name of an archive and are not usable (empty,
/// truncated, something else) are shown and not counted; only --unusable removes them. A target of
/// `publish` is refused: `publish` prunes it.
#[derive(Debug, Args)]
pub struct PruneArgs {
    /// Directories or stores (s3://BUCKET/PREFIX) of archives; each is pruned on its own
    #[arg(value_name = "TARGET", required = true)]
    dirs: Vec<PathBuf>,
    /// Number of newest full archives to keep
    #[arg(long, value_name = "N", required_unless_present_any = ENOUGH, help_heading = "Retention",
          value_parser = clap::value_parser!(u64).range(0..=10_000))]
    keep_full: Option<u64>,
    /// Number of newest incremental archives to keep
    #[arg(long, value_name = "N", required_unless_present_any = ENOUGH, help_heading = "Retention",
          value_parser = clap::value_parser!(u64).range(0..=10_000))]
    keep_incremental: Option<u64>,
    /// Remove the oldest of the kept archives until those of the directory take at most this much
    ///
    /// Those that days, weeks and epochs keep are removed last.
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Retention")]
    keep_bytes: Option<u64>,
    /// The same until this much is free on the file system
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Retention")]
    keep_free: Option<u64>,
    /// Also remove files that have the name of an archive and are not usable, and unfinished downloads
    ///
    /// Files that changed within the last minute stay, and downloads that are in use.
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

/// What becomes of an archive.
struct Fate<'a> {
    archive: &'a Archive,
    may_go: bool,
    kept_because: Option<&'static str>,
    fault: Option<&'a FileFault>,
    /// What is printed if it stays.
    stays: String,
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

/// A file that changed within this time may be incomplete because it is being written, and is not
/// removed as unusable.
const UNCHANGED_MIN: Duration = Duration::from_secs(60);

pub fn run(args: &PruneArgs, ui: &Ui) -> Result<()> {
    args.dirs.iter().try_for_each(|target| {
        if let Some(store) = super::stores::store_of(target, None, &args.connection)? {
            if args.keep_free.is_some() {
                return Err(Error::usage("--keep-free is for directories: what a store has left is not known"));
            }
            let index = super::stores::index_of(&store, &args.connection, ui)?;
            let latest = store.get_small(LATEST_JSON, INDEX_BYTES_MAX, ui)?;
            refuse_published(target, [index, latest].into_iter().flatten().map(|small| small.bytes))?;
            let catalog = super::stores::catalog(&store, args.retention.needs_dates(), &args.connection, ui)?;
            return prune(target, &catalog, &|archive| store.delete(&archive.name.to_string(), ui), args, ui);
        }
        let documents =
            [LISTING_PATH.trim_start_matches('/'), LATEST_JSON].map(|path| read_small(target, path).transpose());
        refuse_published(target, documents.into_iter().flatten().collect::<Result<Vec<_>>>()?)?;
        let mut catalog = scan_with_copies(std::slice::from_ref(target))?;
        if args.retention.needs_dates() {
            read_bank_times(&mut catalog);
        }
        prune_partials(target, args, ui)?;
        prune(target, &catalog, &remove, args, ui)
    })
}

/// Refuses a target of `publish`: its index would still name archives that are removed.
fn refuse_published(target: &Path, documents: impl IntoIterator<Item = Vec<u8>>) -> Result<()> {
    if documents.into_iter().any(|document| parse_list(&document, "").is_some()) {
        Err(Error::failed(format!(
            "{} is a target of `slotpress publish`, whose index would name what is gone",
            target.shown()
        ))
        .with_hint("let `slotpress publish` prune it: --keep-full, --keep-incremental"))
    } else {
        Ok(())
    }
}

/// Reads a small file below a directory; `None` if it does not exist. Any other failure is an
/// error, because an unreadable file may be an index of `publish`.
fn read_small(dir: &Path, path: &str) -> Result<Option<Vec<u8>>> {
    let at = dir.join(path);
    let found = fs::symlink_metadata(&at).map_err(|error| error.kind());
    if matches!(found, Err(io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)) {
        return Ok(None);
    }
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let read = || {
        let mut bytes = Vec::new();
        let file = KeptDir::open(&dir.join(above))?.open_file(name)?;
        file.take(INDEX_BYTES_MAX + 1).read_to_end(&mut bytes).or_path("read", &at)?;
        let is_too_long = bytes.len() as u64 > INDEX_BYTES_MAX;
        let too_long = || Error::failed(format!("{} has more than {INDEX_BYTES_MAX} bytes", at.shown()));
        if is_too_long { Err(too_long()) } else { Ok(Some(bytes)) }
    };
    read().map_err(|error| {
        error
            .within(format!("{} may be a target of `slotpress publish`", dir.shown()))
            .with_hint("if nothing publishes there, remove that file; else let `slotpress publish` prune it")
    })
}

fn prune(
    dir: &Path,
    catalog: &Catalog,
    remove: &dyn Fn(&Archive) -> Result<()>,
    args: &PruneArgs,
    ui: &Ui,
) -> Result<()> {
    let now = clock::now();
    let unusable = catalog.unusable().iter().map(|UnusableFile { archive, fault, .. }| {
        let is_settled = archive.age(now) >= UNCHANGED_MIN;
        let hint = match (args.unusable, is_settled) {
            (false, _) => "--unusable removes it",
            (true, false) => "it changed a moment ago, and stays",
            (true, true) => "it stays",
        };
        Fate {
            archive,
            may_go: args.unusable && *fault != FileFault::Unreadable && is_settled,
            kept_because: None,
            fault: Some(fault),
            stays: format!("! {}; {hint}", line_of_unusable(archive, fault, now)),
        }
    });
    // Unusable files go first: their space counts as free.
    let mut fates: Vec<Fate<'_>> = unusable.collect();
    let freed_bytes = fates.iter().filter(|fate| fate.may_go).map(|fate| fate.archive.size_bytes).sum();
    let keep = keep(catalog, dir, freed_bytes, args)?;
    if keep.epoch_ends > 0 && catalog.epoch_schedule.is_none() && !catalog.archives().is_empty() {
        let dir = dir.shown();
        ui.warn(&format!("{dir}: the bank file of the newest full archive cannot be read, so the epochs are not known: all archives stay"));
    }
    let plan = plan_prune(catalog, &keep, now);
    let fate = |(archive, reason): (_, &Option<KeepReason>)| {
        let kept_because = reason.map(|reason| reason.as_str());
        let stays = kept_because.map(|why| format!("kept {}: {}", shown_with_size(archive), why.replace('_', " ")));
        Fate { archive, may_go: reason.is_none(), kept_because, fault: None, stays: stays.unwrap_or_default() }
    };
    // Remove incremental archives before full ones: if the run is interrupted, none is left without its
    // full archive.
    let (full, incremental): (Vec<Fate<'_>>, Vec<Fate<'_>>) =
        catalog.archives().iter().zip(&plan).map(fate).partition(|fate| fate.archive.is_full());
    fates.extend(incremental.into_iter().chain(full));

    let path = dir.to_string_lossy().into_owned();
    let mut summary = Summary { path, dry_run: args.dry_run, ..Summary::default() };
    let words = if args.dry_run { "would remove" } else { "removed" };
    let mut failed = None;
    for Fate { archive, may_go, kept_because, fault, stays } in fates {
        ui.check()?;
        let removed = if may_go && !args.dry_run { remove(archive) } else { Ok(()) };
        let goes = may_go && removed.is_ok();
        // The last failure ends the run; those before it are warnings.
        if let Err(error) = removed
            && let Some(earlier) = failed.replace(error)
        {
            ui.warn(&earlier.to_string());
        }
        let (count, bytes) = match (goes, fault) {
            (true, _) => (&mut summary.removed, &mut summary.removed_bytes),
            (false, None) => (&mut summary.kept, &mut summary.kept_bytes),
            (false, Some(_)) => (&mut summary.unusable, &mut summary.unusable_bytes),
        };
        *count += 1;
        *bytes += archive.size_bytes;
        let path = archive.path();
        let fields = json!({
            "name": archive.name.to_string(), "path": path.to_string_lossy(), "size_bytes": archive.size_bytes,
            "removed": goes && !args.dry_run, "kept_because": kept_because, "unusable": fault.map(FileFault::to_string),
        });
        let line = if goes { format!("{words} {}", shown_with_size(archive)) } else { stays };
        ui.item("prune_archive", &fields, &if goes { path.shown() } else { String::new() }, &line);
    }
    let archives = values::count_of(summary.removed, "archive");
    let [removed, kept] = [summary.removed_bytes, summary.kept_bytes].map(values::show_bytes);
    let line = format!("{words} {archives} ({removed}), kept {} ({kept})", summary.kept);
    ui.item("prune", &summary, "", &line);
    if let Some(bytes_max) = keep.bytes_max.filter(|bytes_max| summary.kept_bytes > *bytes_max) {
        let more = values::show_bytes(summary.kept_bytes - bytes_max);
        ui.warn(&format!(
            "{}: {more} more are kept than the flags ask for: a node needs them, or their time is unknown",
            dir.shown()
        ));
    }
    failed.map_or(Ok(()), Err)
}

fn shown_with_size(archive: &Archive) -> String {
    format!("{} ({})", archive.path().shown(), values::show_bytes(archive.size_bytes))
}

/// With `--unusable`, removes unfinished downloads that no process is using.
fn prune_partials(dir: &Path, args: &PruneArgs, ui: &Ui) -> Result<()> {
    if !args.unusable {
        return Ok(());
    }
    for partial in find_partials(dir)? {
        ui.check()?;
        let removed = !partial.is_in_use && (args.dry_run || partial.remove()?);
        let words = if args.dry_run { "would remove" } else { "removed" };
        show_partial(&partial, removed.then_some((!args.dry_run, words)), ui);
    }
    Ok(())
}

/// What the flags keep. `freed_bytes` of unusable files are about to be removed.
fn keep(catalog: &Catalog, dir: &Path, freed_bytes: u64, args: &PruneArgs) -> Result<Keep> {
    let bytes_max = match args.keep_free {
        None => args.keep_bytes,
        Some(keep_free) => {
            let bytes: u64 = catalog.archives().iter().map(|archive| archive.size_bytes).sum();
            let free_bytes = Space::new(dir, 0)?.free_bytes.saturating_add(freed_bytes);
            let bytes_max = bytes.saturating_sub(keep_free.saturating_sub(free_bytes));
            Some(args.keep_bytes.map_or(bytes_max, |keep_bytes| keep_bytes.min(bytes_max)))
        }
    };
    let counts = [args.keep_full, args.keep_incremental, args.keep_bytes, args.keep_free];
    let is_by_time = args.retention.is_by_time_alone() && counts.iter().all(Option::is_none);
    let by_default = if is_by_time { 0 } else { usize::MAX };
    let count_of = |count: Option<u64>| count.map_or(by_default, |count| count as usize);
    let newest = Keep::new(count_of(args.keep_full), count_of(args.keep_incremental));
    Ok(args.retention.apply(newest, by_default).bytes_max(bytes_max))
}
