//! Runs `slotpress prune` on directories and stores. The library's `plan_prune` decides which
//! archives to keep.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use slotpress::catalog::{Archive, Catalog, Fault, Keep, Unusable, find_partials, plan_prune, remove};
use slotpress::{Error, ErrorKind, Progress, Result, Space};
use slotpress_base::text::ShowPath;
use slotpress_base::{IoContext, KeptDir, clock};
use slotpress_format::{LATEST_JSON, LISTING_PATH};
use slotpress_read::catalog::listed::{INDEX_BYTES_MAX, parse_list};
use slotpress_read::{look_for_all_times, scan_with_copies, unix_ns};

use super::list::{line_of_unusable, print_partial};
use super::network::ConnectionArgs;
use super::retention::RetentionArgs;
use super::ui::Ui;
use super::values;

/// Flags that may be given instead of `--keep-full` and `--keep-incremental`; one of them is
/// enough.
const ENOUGH: [&str; 7] =
    ["keep_within", "keep_daily", "keep_weekly", "keep_epoch_ends", "keep_bytes", "keep_free", "unusable"];

/// Remove old archives from directories and their subdirectories `remote`, or from stores
///
/// Always keeps the archives that a node would choose, the newest incremental archive, and every
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
    /// Number of newest results of `rebase` to keep; they are deleted with their full archive,
    /// too [default: all]
    #[arg(long, value_name = "N", help_heading = "Retention", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    keep_rebased: Option<u64>,
    /// Remove the oldest of the kept archives until those of the directory take at most this much;
    /// those that days, weeks and epochs keep go last
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Retention")]
    keep_bytes: Option<u64>,
    /// Remove the oldest of the kept archives until this much is free on the file system
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Retention")]
    keep_free: Option<u64>,
    /// Also keep archives modified within this time, for example 24h or 7d. Without another --keep
    /// flag, all others are deleted, except what a node would choose
    #[arg(long, value_name = "TIME", value_parser = values::duration, help_heading = "Retention")]
    keep_within: Option<Duration>,
    #[command(flatten)]
    retention: RetentionArgs,
    /// Also remove files that have the name of an archive and are not usable, unless they changed
    /// within the last minute, and downloads that did not end, unless they are in use
    #[arg(long)]
    unusable: bool,
    /// Only show what would be removed
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

impl PruneArgs {
    fn is_by_time_alone(&self) -> bool {
        let counts = [self.keep_full, self.keep_incremental, self.keep_rebased, self.keep_bytes, self.keep_free];
        (self.keep_within.is_some() || self.retention.is_any()) && counts.iter().all(Option::is_none)
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "prune_archive")]
struct ArchiveLine {
    name: String,
    path: String,
    size_bytes: u64,
    removed: bool,
    kept_because: Option<&'static str>,
    unusable: Option<String>,
}

#[derive(Default, Serialize)]
#[serde(tag = "type", rename = "prune")]
struct SummaryLine {
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
            let catalog = super::stores::catalog(&store, args.retention.is_any(), &args.connection, ui)?;
            return prune(target, &catalog, &|archive| store.delete(&archive.name.to_string(), ui), args, ui);
        }
        let documents =
            [LISTING_PATH.trim_start_matches('/'), LATEST_JSON].map(|path| read_small(target, path).transpose());
        refuse_published(target, documents.into_iter().flatten().collect::<Result<Vec<_>>>()?)?;
        let mut catalog = scan_with_copies(std::slice::from_ref(target))?;
        if args.retention.is_any() {
            look_for_all_times(&mut catalog);
        }
        prune_partials(target, args, ui)?;
        prune(target, &catalog, &remove, args, ui)
    })
}

/// Refuses a target of `publish`: its index would still name archives that are removed.
fn refuse_published(target: &Path, documents: impl IntoIterator<Item = Vec<u8>>) -> Result<()> {
    match documents.into_iter().any(|document| parse_list(&document).is_some()) {
        false => Ok(()),
        true => Err(Error::failed(format!(
            "{} is a target of `slotpress publish`, whose index would name what is gone",
            target.shown()
        ))
        .with_hint("let `slotpress publish` prune it: --keep-full, --keep-incremental")),
    }
}

/// Reads a small file below a directory; `None` if it does not exist. Any other failure is an
/// error, because an unreadable file may be an index of `publish`.
fn read_small(dir: &Path, path: &str) -> Result<Option<Vec<u8>>> {
    let at = dir.join(path);
    if let Err(error) = fs::symlink_metadata(&at)
        && matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    {
        return Ok(None);
    }
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let read = || {
        let mut bytes = Vec::new();
        let file = KeptDir::open(&dir.join(above))?.open_file(name)?;
        file.take(INDEX_BYTES_MAX + 1).read_to_end(&mut bytes).or_path("read", &at)?;
        match bytes.len() as u64 > INDEX_BYTES_MAX {
            true => Err(Error::failed(format!("{} has more than {INDEX_BYTES_MAX} bytes", at.shown()))),
            false => Ok(Some(bytes)),
        }
    };
    read().map_err(|error| {
        let error = error.within(format!("{} may be a target of `slotpress publish`", dir.shown()));
        match error.kind() {
            ErrorKind::Failed => {
                error.with_hint("if nothing publishes there, remove that file; else let `slotpress publish` prune it")
            }
            _ => error,
        }
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
    let mut summary =
        SummaryLine { path: dir.to_string_lossy().into_owned(), dry_run: args.dry_run, ..SummaryLine::default() };
    let mut failed: Option<Error> = None;
    let mut is_gone = |removed: Result<()>| {
        let Err(error) = removed else { return true };
        if let Some(earlier) = failed.replace(error) {
            ui.warn(&earlier.to_string());
        }
        false
    };
    // Remove unusable files first, so that their space counts as free.
    for Unusable { archive, fault, .. } in catalog.unusable() {
        ui.check()?;
        let is_settled = archive.age(unix_ns(now)) >= UNCHANGED_MIN;
        let may_go = args.unusable && *fault != Fault::Unreadable && is_settled;
        let goes = may_go && (args.dry_run || is_gone(remove(archive)));
        let (count, bytes) = match goes {
            true => (&mut summary.removed, &mut summary.removed_bytes),
            false => (&mut summary.unusable, &mut summary.unusable_bytes),
        };
        *count += 1;
        *bytes += archive.size_bytes;
        print_outcome(archive, goes, None, Some(fault), args, ui);
        if !goes && !ui.is_json() && !ui.is_quiet() {
            let hint = match (args.unusable, is_settled) {
                (false, _) => "; --unusable removes it",
                (true, false) => "; it changed a moment ago, and stays",
                (true, true) => "; it stays",
            };
            ui.print(&format!("! {}{hint}", line_of_unusable(archive, fault, now)));
        }
    }
    let count_of = |count: Option<u64>| match count {
        Some(count) => count as usize,
        None if args.is_by_time_alone() => 0,
        None => usize::MAX,
    };
    let keep = args.retention.apply(
        Keep::new(count_of(args.keep_full), count_of(args.keep_incremental))
            .rebased(count_of(args.keep_rebased))
            .within(args.keep_within.unwrap_or_default())
            .bytes_max(bytes_max(catalog, dir, args)?),
    );
    if keep.epoch_ends > 0 && catalog.epoch_schedule.is_none() && !catalog.archives().is_empty() {
        let dir = dir.shown();
        ui.warn(&format!("{dir}: the bank file of the newest full archive cannot be read, so the epochs are not known: all archives stay"));
    }
    let plan = plan_prune(catalog, &keep, unix_ns(now));
    // Remove incremental archives first: if the run is interrupted, none is left without its full
    // archive.
    let all = || catalog.archives().iter().zip(&plan);
    for (archive, reason) in all().filter(|(a, _)| !a.is_full()).chain(all().filter(|(a, _)| a.is_full())) {
        let mut goes = reason.is_none();
        if goes && !args.dry_run {
            ui.check()?;
            goes = is_gone(remove(archive));
        }
        let (count, bytes) = match goes {
            true => (&mut summary.removed, &mut summary.removed_bytes),
            false => (&mut summary.kept, &mut summary.kept_bytes),
        };
        *count += 1;
        *bytes += archive.size_bytes;
        print_outcome(archive, goes, reason.map(|reason| reason.as_str()), None, args, ui);
    }
    if ui.is_json() {
        ui.print_json(&summary);
    } else if !ui.is_quiet() {
        ui.print(&format!(
            "{} {} ({}), kept {} ({})",
            if args.dry_run { "would remove" } else { "removed" },
            values::count_of(summary.removed, "archive"),
            values::show_bytes(summary.removed_bytes),
            summary.kept,
            values::show_bytes(summary.kept_bytes)
        ));
    }
    if let Some(bytes_max) = keep.bytes_max.filter(|bytes_max| summary.kept_bytes > *bytes_max) {
        let more = values::show_bytes(summary.kept_bytes - bytes_max);
        ui.warn(&format!(
            "{}: {more} more are kept than the flags ask for: a node needs them, or their time is unknown",
            dir.shown()
        ));
    }
    failed.map_or(Ok(()), Err)
}

/// With `--unusable`, removes unfinished downloads that no process is using.
fn prune_partials(dir: &Path, args: &PruneArgs, ui: &Ui) -> Result<()> {
    if !args.unusable {
        return Ok(());
    }
    for partial in find_partials(dir)? {
        ui.check()?;
        let removed = !partial.is_in_use && (args.dry_run || partial.remove()?);
        if ui.is_json() {
            print_partial(&partial, Some(removed && !args.dry_run), ui);
        } else if removed && ui.is_quiet() {
            ui.print_verbatim(&partial.path().shown());
        } else if removed {
            let size = values::show_bytes(partial.size_bytes);
            ui.print(&format!("{} {partial} ({size})", if args.dry_run { "would remove" } else { "removed" }));
        } else if !ui.is_quiet() {
            print_partial(&partial, None, ui);
        }
    }
    Ok(())
}

/// Prints a line for one archive: in quiet mode only if it is removed.
fn print_outcome(
    archive: &Archive,
    goes: bool,
    kept_because: Option<&'static str>,
    fault: Option<&Fault>,
    args: &PruneArgs,
    ui: &Ui,
) {
    if ui.is_json() {
        ui.print_json(&ArchiveLine {
            name: archive.name.to_string(),
            path: archive.path().to_string_lossy().into_owned(),
            size_bytes: archive.size_bytes,
            removed: goes && !args.dry_run,
            kept_because,
            unusable: fault.map(Fault::to_string),
        });
    } else if goes && ui.is_quiet() {
        ui.print_verbatim(&archive.path().shown());
    } else if !ui.is_quiet() && (goes || kept_because.is_some()) {
        let verb = match kept_because {
            Some(_) if !goes => "kept",
            _ if args.dry_run => "would remove",
            _ => "removed",
        };
        let reason = kept_because.filter(|_| !goes).map_or(String::new(), |reason| format!(": {reason}"));
        let (path, size) = (archive.path().shown(), values::show_bytes(archive.size_bytes));
        ui.print(&format!("{verb} {path} ({size}){reason}"));
    }
}

/// Maximum total size of the kept archives, in bytes, from `--keep-bytes` and from the space that
/// `--keep-free` asks for; `None` for no limit.
fn bytes_max(catalog: &Catalog, dir: &Path, args: &PruneArgs) -> Result<Option<u64>> {
    let Some(keep_free) = args.keep_free else { return Ok(args.keep_bytes) };
    let bytes: u64 = catalog.archives().iter().map(|archive| archive.size_bytes).sum();
    let free_bytes = Space::new(dir, 0)?.free_bytes;
    let bytes_max = bytes.saturating_sub(keep_free.saturating_sub(free_bytes));
    Ok(Some(args.keep_bytes.map_or(bytes_max, |keep_bytes| keep_bytes.min(bytes_max))))
}
