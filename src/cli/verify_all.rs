//! Verifies the archives of a directory, a store or a server, and prints one line for each.

use std::path::Path;

use serde_json::json;
use slotpress::catalog::Catalog;
use slotpress::verify::{ArchiveVerdict, CatalogVerdict, VerifyOptions, VerifyReport, verify_catalog};
use slotpress::{Error, Progress, Result};
use slotpress_base::text::ShowPath;

use super::network::{open_archive, path_at};
use super::ui::Ui;
use super::values::count_of;
use super::verify::VerifyArgs;

/// Verifies each archive, an incremental one together with its full archive, if that is good.
/// `place` is where the archives are, if they were not named one by one.
pub fn verify_all(
    catalog: &Catalog,
    place: Option<&Path>,
    options: &VerifyOptions,
    args: &VerifyArgs,
    ui: &Ui,
) -> Result<()> {
    let expected = &args.check.expected;
    if expected.expect_hash.is_some() || expected.expect_slot.is_some() || !args.expect_root.is_empty() {
        return Err(Error::usage("--expect-hash, --expect-slot and --expect-root are about one archive"));
    }
    let open = |archive: &slotpress::catalog::Archive, mode| {
        let path = place.map_or_else(|| archive.path(), |place| path_at(archive, place));
        open_archive(&path, args.reads_twice(mode), &args.state.network, ui)
    };
    let verdict = verify_catalog(catalog, &open, options, ui, &mut |verdict| show(verdict, ui))?;
    ui.object("verified", &verdict);
    ui.say(&summary(&verdict));
    verdict.require_ok(&place.map_or("the list".to_string(), |place| place.shown()))
}

fn show(verdict: &ArchiveVerdict<'_>, ui: &Ui) {
    let (path, why_not) = (verdict.archive.path(), verdict.why_not_checked());
    let shown = path.shown();
    let why = match &verdict.report {
        Ok(report) => {
            ui.object("verify", report);
            let first = report.failures.first();
            first.map(|first| format!("{}: {}{}", first.check.name(), first.message, and_more(report)))
        }
        Err(error) => {
            let text = error.to_string();
            Some(text.strip_prefix(&format!("{shown}: ")).unwrap_or(&text).to_string())
        }
    };
    if let Some(reason) = why.as_ref().filter(|_| verdict.report.is_err()).or(why_not.as_ref()) {
        let fields = json!({ "file": path.to_string_lossy(), "reason": reason, "damaged": verdict.is_damaged() });
        ui.object("archive_not_checked", &fields);
    }
    let is_partly = verdict.report.as_ref().is_ok_and(|report| report.left_out().next().is_some());
    let (short, line) = match (why, why_not) {
        (Some(why), _) if verdict.is_damaged() => {
            let line = format!("FAILED  {shown}: {why}");
            (line.clone(), line)
        }
        (Some(why), _) => return ui.warn(&format!("{shown} was not verified: {why}")),
        (None, Some(why)) => (String::new(), format!("partly  {shown}: {why}")),
        (None, None) if is_partly => (shown.clone(), format!("partly  {shown}")),
        (None, None) => (shown.clone(), format!("ok      {shown}")),
    };
    ui.short(&short);
    ui.say(&line);
}

fn and_more(report: &VerifyReport) -> String {
    match (report.failures.len() as u64).saturating_sub(1) + report.unlisted_count {
        0 => String::new(),
        more => format!(", and {more} more"),
    }
}

/// The last line: how many are good, and which checks were not made.
fn summary(found: &CatalogVerdict) -> String {
    let CatalogVerdict { archives, good, partly, damaged, left_out, .. } = found;
    let left_out = left_out.iter().map(|check| check.name()).collect::<Vec<_>>().join(", ");
    let rest = archives - good - partly - damaged;
    let parts = [
        (*partly, format!("; {partly} without a failure, but not all checks were made: {left_out}")),
        (*damaged, format!("; {damaged} damaged")),
        (rest, format!("; {rest} not verified")),
    ];
    let others: String = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
    format!("{}: {good} good{others}", count_of(*archives, "archive"))
}
