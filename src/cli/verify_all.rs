//! Verifies the archives of a directory, a store or a server, and prints one line for each.

use serde_json::json;
use slotpress::catalog::Catalog;
use slotpress::check::ArchiveVerdict;
use slotpress::{Error, Progress, Result, VerifyOptions, VerifyReport, verify_catalog};
use slotpress_base::text::ShowPath;

use super::network::ArchiveInput;
use super::ui::Ui;
use super::verify::{VerifyArgs, print_report};

/// Verifies each archive, an incremental one together with its full archive, if that is good.
pub fn verify_all(catalog: &Catalog, options: &VerifyOptions, args: &VerifyArgs, ui: &Ui) -> Result<()> {
    if args.expect_hash.is_some() || args.expect_slot.is_some() || !args.expect_root.is_empty() {
        return Err(Error::usage("--expect-hash, --expect-slot and --expect-root are about one archive"));
    }
    let open = |archive: &_, mode| {
        let input = ArchiveInput::open_listed(archive, &args.path, args.reads(mode), &args.network, ui)?;
        Ok(input.named().clone())
    };
    let verdict = verify_catalog(catalog, &open, options, ui, &mut |verdict| print_verdict(verdict, args, ui))?;
    for unusable in catalog.unusable() {
        print_failed(&unusable.archive.path().shown(), &unusable.fault.to_string(), ui);
        if ui.is_json() {
            ui.print_report("archive_unusable", unusable);
        }
    }
    verdict.require_ok(&args.path.shown())
}

fn print_verdict(verdict: &ArchiveVerdict<'_>, args: &VerifyArgs, ui: &Ui) {
    let path = verdict.archive.path().shown();
    match &verdict.report {
        Ok(report) => {
            if ui.is_json() {
                print_report(report, args.all, ui);
            }
            match report.failures.first() {
                Some(first) => {
                    let why = format!("{}: {}{}", first.check.name(), first.message, and_more(report));
                    print_failed(&path, &why, ui);
                }
                None => print_good(verdict, ui),
            }
        }
        Err(error) => {
            let text = error.to_string();
            let why = text.strip_prefix(&format!("{path}: ")).unwrap_or(&text);
            match verdict.is_damaged() {
                true => print_failed(&path, why, ui),
                false => ui.warn(&format!("{path} was not verified: {why}")),
            }
        }
    }
}

fn and_more(report: &VerifyReport) -> String {
    match (report.failures.len() as u64).saturating_sub(1) + report.unlisted_count {
        0 => String::new(),
        more => format!(", and {more} more"),
    }
}

fn print_failed(path: &str, why: &str, ui: &Ui) {
    if !ui.is_json() {
        ui.print_verbatim(&format!("FAILED  {path}: {why}"));
    }
}

/// Prints the line of an archive without failures. `-q` prints only archives that were checked
/// completely.
fn print_good(verdict: &ArchiveVerdict<'_>, ui: &Ui) {
    let path = verdict.archive.path().shown();
    match verdict.why_not_checked() {
        Some(why) if ui.is_json() => {
            let file = verdict.archive.path().to_string_lossy().into_owned();
            ui.print_report("archive_not_checked", &json!({ "file": file, "reason": why }));
        }
        Some(_) if ui.is_quiet() => {}
        Some(why) => ui.print_verbatim(&format!("not checked  {path}: {why}; its frames and files are good")),
        None if ui.is_json() => {}
        None if ui.is_quiet() => ui.print_verbatim(&path),
        None => ui.print_verbatim(&format!("ok      {path}")),
    }
}
