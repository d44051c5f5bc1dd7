//! Verifies the archives of a directory, a store or a server, and prints one line for each.

use std::path::Path;

use serde_json::json;
use slotpress::catalog::Catalog;
use slotpress::check::{ArchiveVerdict, CatalogVerdict};
use slotpress::{Error, Progress, Result, VerifyOptions, VerifyReport, verify_catalog};
use slotpress_base::text::ShowPath;

use super::network::{ArchiveInput, path_at};
use super::ui::Ui;
use super::values::count_of;
use super::verify::{VerifyArgs, print_report};

/// Verifies each archive, an incremental one together with its full archive, if that is good.
/// `place` is where the archives are, if they were not named one by one.
pub fn verify_all(
    catalog: &Catalog,
    place: Option<&Path>,
    options: &VerifyOptions,
    args: &VerifyArgs,
    ui: &Ui,
) -> Result<()> {
    if args.expect_hash.is_some() || args.expect_slot.is_some() || !args.expect_root.is_empty() {
        return Err(Error::usage("--expect-hash, --expect-slot and --expect-root are about one archive"));
    }
    let open = |archive: &slotpress::catalog::Archive, mode| {
        let path = place.map_or_else(|| archive.path(), |place| path_at(archive, place));
        Ok(ArchiveInput::open(&path, args.reads(mode), &args.network, ui)?.named().clone())
    };
    let verdict = verify_catalog(catalog, &open, options, ui, &mut |verdict| print_verdict(verdict, ui))?;
    print_summary(&verdict, ui);
    verdict.require_ok(&place.map_or("the list".to_string(), |place| place.shown()))
}

fn print_verdict(verdict: &ArchiveVerdict<'_>, ui: &Ui) {
    let path = verdict.archive.path();
    let not_checked = |reason: &str| {
        let fields = json!({ "file": path.to_string_lossy(), "reason": reason, "damaged": verdict.is_damaged() });
        ui.print_report("archive_not_checked", &fields);
    };
    let path = path.shown();
    let why = match &verdict.report {
        Ok(report) => {
            if ui.is_json() {
                print_report(report, ui);
            }
            report
                .failures
                .first()
                .map(|first| format!("{}: {}{}", first.check.name(), first.message, and_more(report)))
        }
        Err(error) => {
            let text = error.to_string();
            Some(text.strip_prefix(&format!("{path}: ")).unwrap_or(&text).to_string())
        }
    };
    let why_not = verdict.why_not_checked();
    let line = match (&why, &why_not, &verdict.report) {
        (Some(why), _, Err(_)) if ui.is_json() => return not_checked(why),
        (_, Some(why), _) if ui.is_json() => return not_checked(why),
        _ if ui.is_json() => return,
        (Some(why), ..) if verdict.is_damaged() => format!("FAILED  {path}: {why}"),
        (Some(why), ..) => return ui.warn(&format!("{path} was not verified: {why}")),
        (None, Some(_), _) if ui.is_quiet() => return,
        _ if ui.is_quiet() => path,
        (None, Some(why), _) => format!("partly  {path}: {why}"),
        (None, None, Ok(report)) if report.left_out().next().is_some() => format!("partly  {path}"),
        (None, None, _) => format!("ok      {path}"),
    };
    ui.print_verbatim(&line);
}

fn and_more(report: &VerifyReport) -> String {
    match (report.failures.len() as u64).saturating_sub(1) + report.unlisted_count {
        0 => String::new(),
        more => format!(", and {more} more"),
    }
}

/// Prints the last line: how many are good, and which checks were not made.
fn print_summary(found: &CatalogVerdict, ui: &Ui) {
    let CatalogVerdict { archives, good, partly, damaged, left_out, .. } = found;
    if ui.is_json() {
        return ui.print_report("verified", found);
    }
    if ui.is_quiet() {
        return;
    }
    let left_out = left_out.iter().map(|check| check.name()).collect::<Vec<_>>().join(", ");
    let rest = archives - good - partly - damaged;
    let parts = [
        (*partly, format!("{partly} without a failure, but not all checks were made: {left_out}")),
        (*damaged, format!("{damaged} damaged")),
        (rest, format!("{rest} not verified")),
    ];
    let others = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| format!("; {text}"));
    ui.print(&format!("{good} of {} good{}", count_of(*archives, "archive"), others.collect::<String>()));
}
