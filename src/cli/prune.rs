//! Runs `slotpress prune` on directories and stores. The library's `plan_prune` decides which
//! archives to keep.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use slotpress::catalog::{Archive, Catalog, FileFault, Keep, UnusableFile, find_partials, plan_prune, remove};
use slotpress::types::Space;
use slotpress::{Error, Progress, Result};
use slotpress_base::text::ShowPath;
use slotpress_base::{IoContext, KeptDir, clock};
use slotpress_format::{LATEST_JSON, LISTING_PATH};
use slotpress_read::catalog::listed::{INDEX_BYTES_MAX, parse_list};
use slotpress_read::{look_for_all_times, scan_with_copies, unix_ns};

use super::arguments::RetentionArgs;
use super::list::{line_of_unusable, show_partial};
use super::network::ConnectionArgs;
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
    /// Remove the oldest of the kept archives until those of the directory take at most this much:
    /// last those that days, weeks and epochs keep
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Retention")]
    keep_bytes: Option<u64>,
    /// The same until this much is free on the file system
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Retention")]
    keep_free: Option<u64>,
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
            let catalog = super::stores::catalog(&store, args.retention.needs_dates(), &args.connection, ui)?;
            return prune(target, &catalog, &|archive| store.delete(&archive.name.to_string(), ui), args, ui);
        }
        let documents =
            [LISTING_PATH.trim_start_matches('/'), LATEST_JSON].map(|path| read_small(target, path).transpose());
        refuse_published(target, documents.into_iter().flatten().collect::<Result<Vec<_>>>()?)?;
        let mut catalog = scan_with_copies(std::slice::from_ref(target))?;
        if args.retention.needs_dates() {
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
    match fs::symlink_metadata(&at).map_err(|error| error.kind()) {
        Err(io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        _ => read().map_err(|error| {
            error
                .within(format!("{} may be a target of `slotpress publish`", dir.shown()))
                .with_hint("if nothing publishes there, remove that file; else let `slotpress publish` prune it")
        }),
    }
}

fn prune(
    dir: &Path,
    catalog: &Catalog,
    remove: &dyn Fn(&Archive) -> Result<()>,
    args: &PruneArgs,
    ui: &Ui,
) -> Result<()> {
    let now = clock::now();
    let mut pruning = Pruning {
        summary: SummaryLine {
            path: dir.to_string_lossy().into_owned(),
            dry_run: args.dry_run,
            ..SummaryLine::default()
        },
        failed: None,
        args,
        remove,
        ui,
    };
    // Remove unusable files first, so that their space counts as free.
    for UnusableFile { archive, fault, .. } in catalog.unusable() {
        let is_settled = archive.age(unix_ns(now)) >= UNCHANGED_MIN;
        let may_go = args.unusable && *fault != FileFault::Unreadable && is_settled;
        let hint = match (args.unusable, is_settled) {
            (false, _) => "--unusable removes it",
            (true, false) => "it changed a moment ago, and stays",
            (true, true) => "it stays",
        };
        let stays = format!("! {}; {hint}", line_of_unusable(archive, fault, now));
        pruning.one(archive, may_go, None, Some(fault), &stays)?;
    }
    let counts = [args.keep_full, args.keep_incremental, args.keep_bytes, args.keep_free];
    let by_default = match args.retention.is_by_time_alone() && counts.iter().all(Option::is_none) {
        true => 0,
        false => usize::MAX,
    };
    let count_of = |count: Option<u64>| count.map_or(by_default, |count| count as usize);
    let newest = Keep::new(count_of(args.keep_full), count_of(args.keep_incremental));
    let keep = args.retention.apply(newest, by_default).bytes_max(bytes_max(catalog, dir, args)?);
    if keep.epoch_ends > 0 && catalog.epoch_schedule.is_none() && !catalog.archives().is_empty() {
        let dir = dir.shown();
        ui.warn(&format!("{dir}: the bank file of the newest full archive cannot be read, so the epochs are not known: all archives stay"));
    }
    let plan = plan_prune(catalog, &keep, unix_ns(now));
    // Remove incremental archives first: if the run is interrupted, none is left without its full
    // archive.
    let all = || catalog.archives().iter().zip(&plan);
    for (archive, reason) in all().filter(|(a, _)| !a.is_full()).chain(all().filter(|(a, _)| a.is_full())) {
        let kept_because = reason.map(|reason| reason.as_str());
        let stays = kept_because.map(|reason| format!("kept {}: {reason}", shown_with_size(archive)));
        pruning.one(archive, reason.is_none(), kept_because, None, &stays.unwrap_or_default())?;
    }
    let Pruning { summary, failed, .. } = pruning;
    let words = if args.dry_run { "would remove" } else { "removed" };
    let archives = values::count_of(summary.removed, "archive");
    let [removed, kept] = [summary.removed_bytes, summary.kept_bytes].map(values::show_bytes);
    ui.print_json(&summary);
    ui.say(&format!("{words} {archives} ({removed}), kept {} ({kept})", summary.kept));
    if let Some(bytes_max) = keep.bytes_max.filter(|bytes_max| summary.kept_bytes > *bytes_max) {
        let more = values::show_bytes(summary.kept_bytes - bytes_max);
        ui.warn(&format!(
            "{}: {more} more are kept than the flags ask for: a node needs them, or their time is unknown",
            dir.shown()
        ));
    }
    failed.map_or(Ok(()), Err)
}

struct Pruning<'a> {
    summary: SummaryLine,
    failed: Option<Error>,
    args: &'a PruneArgs,
    remove: &'a dyn Fn(&Archive) -> Result<()>,
    ui: &'a Ui,
}

impl Pruning<'_> {
    /// Removes an archive if it may go, counts it, and prints what became of it; `stays` is what is
    /// printed otherwise.
    fn one(
        &mut self,
        archive: &Archive,
        may_go: bool,
        kept_because: Option<&'static str>,
        fault: Option<&FileFault>,
        stays: &str,
    ) -> Result<()> {
        self.ui.check()?;
        let is_dry = self.args.dry_run;
        let goes = may_go && (is_dry || self.is_gone((self.remove)(archive)));
        let summary = &mut self.summary;
        let (count, bytes) = match (goes, fault) {
            (true, _) => (&mut summary.removed, &mut summary.removed_bytes),
            (false, None) => (&mut summary.kept, &mut summary.kept_bytes),
            (false, Some(_)) => (&mut summary.unusable, &mut summary.unusable_bytes),
        };
        *count += 1;
        *bytes += archive.size_bytes;
        self.ui.print_json(&ArchiveLine {
            name: archive.name.to_string(),
            path: archive.path().to_string_lossy().into_owned(),
            size_bytes: archive.size_bytes,
            removed: goes && !is_dry,
            kept_because,
            unusable: fault.map(FileFault::to_string),
        });
        if goes {
            self.ui.short(&archive.path().shown());
            self.ui.say(&format!("{} {}", if is_dry { "would remove" } else { "removed" }, shown_with_size(archive)));
        } else {
            self.ui.say(stays);
        }
        Ok(())
    }

    /// Keeps a failure for the end, and warns of the one before it.
    fn is_gone(&mut self, removed: Result<()>) -> bool {
        let Err(error) = removed else { return true };
        if let Some(earlier) = self.failed.replace(error) {
            self.ui.warn(&earlier.to_string());
        }
        false
    }
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

/// Maximum total size of the kept archives, in bytes, from `--keep-bytes` and from the space that
/// `--keep-free` asks for; `None` for no limit.
fn bytes_max(catalog: &Catalog, dir: &Path, args: &PruneArgs) -> Result<Option<u64>> {
    let Some(keep_free) = args.keep_free else { return Ok(args.keep_bytes) };
    let bytes: u64 = catalog.archives().iter().map(|archive| archive.size_bytes).sum();
    let free_bytes = Space::new(dir, 0)?.free_bytes;
    let bytes_max = bytes.saturating_sub(keep_free.saturating_sub(free_bytes));
    Ok(Some(args.keep_bytes.map_or(bytes_max, |keep_bytes| keep_bytes.min(bytes_max))))
}
