//! Verifies all archives of a directory, a store or a server, and prints one line for each.

use std::path::PathBuf;

use serde_json::json;
use slotpress::catalog::{Archive, Catalog, Unusable};
use slotpress::{ArchiveName, CheckMode, Error, ErrorKind, Progress, Result, VerifyOptions, VerifyReport, verify};
use slotpress_base::text::ShowPath;

use super::network::ArchiveInput;
use super::ui::Ui;
use super::values;
use super::verify::{VerifyArgs, print_report};

/// Verifies each archive, an incremental one together with its full archive, if that is good.
pub fn verify_all(catalog: &Catalog, options: &VerifyOptions, args: &VerifyArgs, ui: &Ui) -> Result<()> {
    if args.expect_hash.is_some() || args.expect_slot.is_some() || !args.expect_root.is_empty() {
        return Err(Error::usage("--expect-hash, --expect-slot and --expect-root are about one archive"));
    }
    let (mut bad, mut other): (Vec<PathBuf>, Option<Error>) = (Vec::new(), None);
    let failed = |path: &str, why: &str| {
        if !ui.is_json() {
            ui.print_verbatim(&format!("FAILED  {path}: {why}"));
        }
    };
    // A full archive comes before what builds on it.
    for archive in catalog.archives() {
        let (path, base) = (archive.path().shown(), Base::of(archive, catalog, &bad));
        match verify_one(archive, &base, options, args, ui) {
            Ok(report) => {
                if ui.is_json() {
                    print_report(&report, args.all, ui);
                }
                let more = report.failures.len().saturating_sub(1) as u64 + report.unlisted_count;
                let more = if more > 0 { format!(", and {more} more") } else { String::new() };
                match report.failures.first() {
                    Some(first) => {
                        bad.push(archive.path());
                        failed(&path, &format!("{}: {}{more}", first.check.name(), first.message));
                    }
                    None => print_good(archive, &base, ui),
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
            Err(error) if error.kind() == ErrorKind::Damaged => {
                bad.push(archive.path());
                failed(&path, &error.to_string());
            }
            Err(error) => {
                let text = error.to_string();
                let why = text.strip_prefix(&format!("{path}: ")).unwrap_or(&text);
                ui.warn(&format!("{path} was not verified: {why}"));
                other.get_or_insert(error);
            }
        }
    }
    for unusable in catalog.unusable() {
        failed(&unusable.archive.path().shown(), &unusable.fault.to_string());
        if ui.is_json() {
            ui.print_report("archive_unusable", unusable);
        }
    }
    let bad = bad.len() + catalog.unusable().len();
    let all = values::count_of((catalog.archives().len() + catalog.unusable().len()) as u64, "archive");
    match other {
        _ if bad > 0 => Err(Error::damaged(format!("{bad} of {all} in {} are not valid", args.path.shown()))),
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// What an incremental archive builds on.
enum Base<'a> {
    /// For a full archive.
    None,
    Good(&'a Archive),
    Bad(&'a ArchiveName),
    Elsewhere,
}

impl<'a> Base<'a> {
    /// Takes a good full archive of the slot, if there is one beside those in `bad`.
    fn of(archive: &Archive, catalog: &'a Catalog, bad: &[PathBuf]) -> Self {
        let Some(slot) = archive.name.base_slot else { return Self::None };
        let is_base = |full: &&Archive| full.is_full() && full.name.slot == slot;
        let (mut there, unusable) = (catalog.archives().iter().filter(is_base), catalog.unusable().iter());
        let is_good = |full: &&Archive| !bad.contains(&full.path());
        match (there.clone().find(is_good), there.next()) {
            (Some(good), _) => Self::Good(good),
            (None, Some(bad)) => Self::Bad(&bad.name),
            (None, None) => {
                let mut unusable = unusable.map(|Unusable { archive, .. }| archive).filter(is_base);
                unusable.next().map_or(Self::Elsewhere, |bad| Self::Bad(&bad.name))
            }
        }
    }
}

/// Prints the line of an archive without failures.
fn print_good(archive: &Archive, base: &Base<'_>, ui: &Ui) {
    let path = archive.path().shown();
    match base {
        Base::Bad(name) => {
            let why = format!("its full archive {name} is damaged");
            match ui.is_json() {
                true => {
                    let file = archive.path().to_string_lossy().into_owned();
                    ui.print_report("archive_not_checked", &json!({ "file": file, "reason": why }));
                }
                // What `-q` prints is good.
                false if ui.is_quiet() => {}
                false => ui.print_verbatim(&format!("not checked  {path}: {why}; its frames and files are good")),
            }
        }
        _ if ui.is_json() => {}
        _ if ui.is_quiet() => ui.print_verbatim(&path),
        Base::Elsewhere => {
            ui.print_verbatim(&format!("ok      {path}: frames and files only, its full archive is not here"));
        }
        Base::None | Base::Good(_) => ui.print_verbatim(&format!("ok      {path}")),
    }
}

/// Verifies an archive with its full one; without a good one, its frames and files.
fn verify_one(
    archive: &Archive,
    base: &Base<'_>,
    options: &VerifyOptions,
    args: &VerifyArgs,
    ui: &Ui,
) -> Result<VerifyReport> {
    let mut options = options.clone();
    if matches!(base, Base::Bad(_) | Base::Elsewhere) {
        options.check.mode = CheckMode::Frames;
    }
    let reads = args.reads(options.check.mode);
    let open = |archive: &Archive| ArchiveInput::open_listed(archive, &args.path, reads, &args.network, ui);
    let one = open(archive)?;
    match base {
        Base::Good(base) => verify(open(base)?.named(), Some(one.named()), &options, ui),
        _ => verify(one.named(), None, &options, ui),
    }
}
