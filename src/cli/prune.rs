//! `slotpress prune`

use {
    super::{network::ConnectionArgs, ui::Ui, values},
    clap::Args,
    serde::Serialize,
    slotpress_base::text::ShowPath,
    slotpress_base::{
        error::{Error, Result},
        io::space::Space,
        progress::Progress,
    },
    slotpress_read::catalog::{
        Archive, Catalog,
        listing::unix_ns,
        prune::{Keep, plan, remove},
        scan,
    },
    std::{
        path::{Path, PathBuf},
        time::{Duration, SystemTime},
    },
};

/// Remove old archives from directories and their subdirectories `remote`, or from stores
///
/// Always keeps the archives that a node would choose, the newest incremental archive, and every full archive on which a
/// kept incremental one is based. Only archives are removed.
#[derive(Debug, Args)]
pub struct PruneArgs {
    /// Directories or stores (s3://BUCKET/PREFIX) of archives; each is pruned on its own
    #[arg(value_name = "TARGET", required = true)]
    dirs: Vec<PathBuf>,
    /// Number of newest full archives to keep
    #[arg(long, value_name = "N", required_unless_present_any = ["keep_bytes", "keep_free"],
          value_parser = clap::value_parser!(u64).range(0..=10_000))]
    keep_full: Option<u64>,
    /// Number of newest incremental archives to keep
    #[arg(long, value_name = "N", required_unless_present_any = ["keep_bytes", "keep_free"],
          value_parser = clap::value_parser!(u64).range(0..=10_000))]
    keep_incremental: Option<u64>,
    /// Of what is kept, remove the oldest until the archives of the directory have at most this size
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    keep_bytes: Option<u64>,
    /// Of what is kept, remove the oldest until this much is free on the file system
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    keep_free: Option<u64>,
    /// Also keep archives modified within this time, for example 24h or 7d
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    keep_within: Option<Duration>,
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
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "prune")]
struct SummaryLine {
    path: String,
    dry_run: bool,
    removed: u64,
    removed_bytes: u64,
    kept: u64,
    kept_bytes: u64,
}

/// Removes what may go.
pub fn run(args: &PruneArgs, ui: &Ui) -> Result<()> {
    args.dirs.iter().try_for_each(|target| {
        #[cfg(feature = "stores")]
        if let Some(store) = super::stores::store_of(target, None, &args.connection)? {
            if args.keep_free.is_some() {
                return Err(Error::usage("--keep-free is for directories: what a store has left is not known"));
            }
            let catalog = super::stores::catalog(&store, ui)?;
            return prune(target, &catalog, &|archive| store.delete(&archive.name.to_string(), ui), args, ui);
        }
        let _ = &args.connection;
        prune(target, &scan::scan_with_copies(std::slice::from_ref(target))?, &remove, args, ui)
    })
}

fn prune(
    dir: &Path,
    catalog: &Catalog,
    remove: &dyn Fn(&Archive) -> Result<()>,
    args: &PruneArgs,
    ui: &Ui,
) -> Result<()> {
    let keep = Keep {
        full: args.keep_full.map_or(usize::MAX, |count| count as usize),
        incremental: args.keep_incremental.map_or(usize::MAX, |count| count as usize),
        within: args.keep_within.unwrap_or_default(),
        bytes_max: bytes_max(catalog, dir, args)?,
    };
    let plan = plan(catalog, &keep, unix_ns(SystemTime::now()));
    let mut summary = SummaryLine {
        path: dir.to_string_lossy().into_owned(),
        dry_run: args.dry_run,
        removed: 0,
        removed_bytes: 0,
        kept: 0,
        kept_bytes: 0,
    };
    // Incremental archives first: were it cut off, no full archive would have gone before those that build on it.
    let mut failed: Option<Error> = None;
    let all = || catalog.archives().iter().zip(&plan);
    for (archive, reason) in all().filter(|(a, _)| !a.is_full()).chain(all().filter(|(a, _)| a.is_full())) {
        let mut goes = reason.is_none();
        if goes && !args.dry_run {
            ui.check()?;
            if let Err(error) = remove(archive) {
                goes = false;
                if let Some(earlier) = failed.replace(error) {
                    ui.warn(&earlier.to_string());
                }
            }
        }
        let (count, bytes) = match goes {
            true => (&mut summary.removed, &mut summary.removed_bytes),
            false => (&mut summary.kept, &mut summary.kept_bytes),
        };
        *count += 1;
        *bytes += archive.size_bytes;
        if ui.is_json() {
            ui.print_json(&ArchiveLine {
                name: archive.name.to_string(),
                path: archive.path().to_string_lossy().into_owned(),
                size_bytes: archive.size_bytes,
                removed: goes && !args.dry_run,
                kept_because: reason.map(|reason| reason.as_str()),
            });
        } else if goes && ui.is_quiet() {
            ui.print_verbatim(&archive.path().shown());
        } else if goes {
            ui.print(&line(archive, args.dry_run));
        }
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
        ui.warn(&format!("{}: {more} more than asked for are kept: they are what a node needs", dir.shown()));
    }
    failed.map_or(Ok(()), Err)
}

/// How much the archives of a directory may have together.
fn bytes_max(catalog: &Catalog, dir: &Path, args: &PruneArgs) -> Result<Option<u64>> {
    let Some(keep_free) = args.keep_free else { return Ok(args.keep_bytes) };
    let bytes: u64 = catalog.archives().iter().map(|archive| archive.size_bytes).sum();
    let free_bytes = Space::new(dir, 0)?.free_bytes;
    let bytes_max = bytes.saturating_sub(keep_free.saturating_sub(free_bytes));
    Ok(Some(args.keep_bytes.map_or(bytes_max, |keep_bytes| keep_bytes.min(bytes_max))))
}

fn line(archive: &Archive, is_dry_run: bool) -> String {
    let verb = if is_dry_run { "would remove" } else { "removed" };
    format!("{verb} {} ({})", archive.path().shown(), values::show_bytes(archive.size_bytes))
}
