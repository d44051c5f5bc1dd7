//! `slotpress prune`

use {
    super::{ui::Ui, values},
    clap::Args,
    serde::Serialize,
    slotpress_base::text::ShowPath,
    slotpress_base::{
        error::{Error, Result},
        progress::Progress,
    },
    slotpress_read::catalog::{
        Archive,
        listing::unix_ns,
        prune::{Keep, plan, remove},
        scan,
    },
    std::{
        path::PathBuf,
        time::{Duration, SystemTime},
    },
};

/// Remove old archives from a directory and its subdirectory `remote`
///
/// Always keeps the archives that a node would choose, the newest incremental archive, and every full archive on which a
/// kept incremental one is based. Only archives are removed.
#[derive(Debug, Args)]
pub struct PruneArgs {
    /// The directory of archives
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Number of newest full archives to keep
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    keep_full: u64,
    /// Number of newest incremental archives to keep
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    keep_incremental: u64,
    /// Also keep archives modified within this time, for example 24h or 7d
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    keep_within: Option<Duration>,
    /// Only show what would be removed
    #[arg(long)]
    dry_run: bool,
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
    let catalog = scan::scan_with_copies(std::slice::from_ref(&args.dir))?;
    let keep = Keep {
        full: args.keep_full as usize,
        incremental: args.keep_incremental as usize,
        within: args.keep_within.unwrap_or_default(),
    };
    let plan = plan(&catalog, &keep, unix_ns(SystemTime::now()));
    let mut summary = SummaryLine {
        path: args.dir.to_string_lossy().into_owned(),
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
        } else if goes {
            ui.print(&line(archive, args.dry_run));
        }
    }
    if ui.is_json() {
        ui.print_json(&summary);
    } else {
        ui.print(&format!(
            "{} {} ({}), kept {} ({})",
            if args.dry_run { "would remove" } else { "removed" },
            values::count_of(summary.removed, "archive"),
            values::show_bytes(summary.removed_bytes),
            summary.kept,
            values::show_bytes(summary.kept_bytes)
        ));
    }
    failed.map_or(Ok(()), Err)
}

fn line(archive: &Archive, is_dry_run: bool) -> String {
    let verb = if is_dry_run { "would remove" } else { "removed" };
    format!("{verb} {} ({})", archive.path().shown(), values::show_bytes(archive.size_bytes))
}
