//! `slotpress list`

use {
    super::{ui::Ui, values},
    crate::{
        catalog::{
            Archive, Catalog,
            listing::{ArchiveFields, unix_ns},
            scan,
        },
        error::Result,
    },
    clap::Args,
    serde::Serialize,
    std::{path::PathBuf, time::SystemTime},
};

/// List archives, which belong together, and which ones a node would choose
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The directory of archives
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "archive_listed")]
struct ArchiveLine {
    #[serde(flatten)]
    fields: ArchiveFields,
    file: String,
    chosen: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "choice")]
struct ChoiceLine {
    full: Option<String>,
    incremental: Option<String>,
    archives: usize,
}

/// Lists.
pub fn run(args: &ListArgs, ui: &Ui) -> Result<()> {
    let catalog = scan::scan(std::slice::from_ref(&args.dir))?;
    let now = SystemTime::now();
    if ui.is_json() {
        for archive in catalog.archives() {
            let fields = ArchiveFields::new(archive, &catalog, now);
            let file = archive.path().to_string_lossy().into_owned();
            ui.print_json(&ArchiveLine { fields, file, chosen: is_chosen(archive, &catalog) });
        }
        let name = |archive: &Archive| archive.name.to_string();
        let choice = catalog.choice();
        ui.print_json(&ChoiceLine {
            full: choice.map(|choice| name(choice.full)),
            incremental: choice.and_then(|choice| choice.incremental).map(name),
            archives: catalog.archives().len(),
        });
        return Ok(());
    }
    if catalog.archives().is_empty() {
        ui.print(&format!("no archives in {}", args.dir.display()));
        return Ok(());
    }
    for archive in catalog.archives() {
        ui.print(&line(archive, &catalog, now));
    }
    match catalog.choice() {
        None => ui.print("a node would choose none of them"),
        Some(choice) => {
            let slot = choice.incremental.unwrap_or(choice.full).name.slot;
            ui.print(&format!("* a node would choose these, and start at slot {slot}"));
        }
    }
    Ok(())
}

fn is_chosen(archive: &Archive, catalog: &Catalog) -> bool {
    let is_same = |other: &Archive| other.name == archive.name;
    catalog.choice().is_some_and(|choice| is_same(choice.full) || choice.incremental.is_some_and(is_same))
}

fn line(archive: &Archive, catalog: &Catalog, now: SystemTime) -> String {
    let mark = if is_chosen(archive, catalog) { '*' } else { ' ' };
    let mut line = format!(
        "{mark} {}\n    {}, {} old",
        archive.name,
        values::show_bytes(archive.size_bytes),
        values::show_age(archive.age(unix_ns(now)))
    );
    let behind = catalog.newest_slot().unwrap_or_default().saturating_sub(archive.name.slot);
    if behind > 0 {
        line += &format!(", {} behind the newest", values::count_of(behind, "slot"));
    }
    if archive.is_remote {
        line += ", in remote/";
    }
    if archive.name.base_slot.is_some() && catalog.base_of(archive).is_none() {
        line += ", its full archive is not here";
    }
    if let Some(hashes) = archive.hashes {
        line += &format!("\n    root {}", hashes.root);
    }
    line
}
