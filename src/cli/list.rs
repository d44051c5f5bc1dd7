//! Runs `slotpress list` for a directory, a store or a server. `slotpress prune` prints the same lines about
//! unusable files and unfinished downloads.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::json;
use slotpress::catalog::{Catalog, FileFault, ListedArchive, NodeChoice, Partial, find_partials};
use slotpress::net::{Client, SourceLocation};
use slotpress::{Error, Progress, Result, catalog};
use slotpress_base::{EscapePath, clock};
use slotpress_net::find::read_bank_time;
use slotpress_read::{ArchiveFields, parse_list, read_keep_reasons, read_newest_bank_times, scan_with_copies, unix_ns};

use super::json::merge;
use super::network::{NetworkArgs, refuse_url};
use super::stores::{self, BankTimes};
use super::ui::Ui;
use super::{render, values};

/// List archives: which belong together, and which a node would choose
///
/// For a directory, it also lists unfinished downloads, and files that are not usable, with the reason.
/// From a server, it requests the list that `slotpress serve` offers. From any other server, it follows the
/// redirects of a validator or reads the directory page of a mirror. Such a list is only what the server claims.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The directory or store (s3://BUCKET/PREFIX) of archives, or the URL of a server or a mirror
    #[arg(value_name = "DIR|URL")]
    place: PathBuf,
    /// List only the archives that a node would choose; end with exit code 1 if there are none
    #[arg(long)]
    newest: bool,
    /// End with exit code 1 if the state of the newest archive that a node would choose is older
    /// than this, for example 2h, or if its age is unknown
    #[arg(long, value_name = "TIME", value_parser = values::parse_duration)]
    max_age: Option<Duration>,
    #[command(flatten)]
    network: NetworkArgs,
}

pub fn run(args: &ListArgs, ui: &Ui) -> Result<()> {
    let (catalog, partials) = match as_url(&args.place) {
        Some(url) => (request_catalog(url, &args.network, ui)?, Vec::new()),
        None => {
            refuse_url(&args.place, &|url| format!("for a server, write {url}"))?;
            let dirs = std::slice::from_ref(&args.place);
            let mut catalog = catalog::scan(dirs)?;
            read_newest_bank_times(&mut catalog, &Catalog::default());
            read_keep_reasons(&mut catalog, dirs);
            (catalog, find_partials(&args.place)?)
        }
    };
    print_report(&catalog, &partials, args, ui);
    match args.max_age {
        Some(max_age) => check_age(&catalog, max_age, &args.place),
        None if args.newest => require_choice(&catalog, &args.place).map(drop),
        None => Ok(()),
    }
}

pub fn as_url(place: &Path) -> Option<&str> {
    place.to_str().filter(|text| text.contains("://"))
}

/// Returns the archives of a place that a node would choose.
///
/// # Errors
/// If a node would choose none.
pub fn require_choice<'a>(catalog: &'a Catalog, place: &Path) -> Result<NodeChoice<'a>> {
    catalog.choice().ok_or_else(|| {
        let place = place.escaped();
        Error::failed(format!("{place} has no archive that a node would choose"))
            .with_hint("`slotpress list` shows what exists, and why it is not usable")
    })
}

/// Fails if there is no archive that a node would choose, or if the newest such archive is older than
/// `max_age` or of unknown age.
fn check_age(catalog: &Catalog, max_age: Duration, place: &Path) -> Result<()> {
    let choice = require_choice(catalog, place)?;
    let place = place.escaped();
    let newest = choice.incremental.unwrap_or(choice.full);
    let name = &newest.name;
    let limit = values::show_age(max_age);
    Err(Error::failed(match catalog.age_of(newest, clock::now()) {
        Some(age) if age <= max_age => return Ok(()),
        Some(age) => {
            format!("the newest archive in {place} is {} old, more than {limit}: {name}", values::show_age(age))
        }
        None => format!("the age of the newest archive in {place} is unknown, and may exceed {limit}: {name}"),
    }))
}

fn print_report(catalog: &Catalog, partials: &[Partial], args: &ListArgs, ui: &Ui) {
    let now = clock::now();
    let choice = catalog.choice();
    for archive in catalog.archives() {
        let has_name = |chosen: &ListedArchive| chosen.name == archive.name;
        let is_chosen =
            choice.as_ref().is_some_and(|choice| has_name(choice.full) || choice.incremental.is_some_and(has_name));
        if args.newest && !is_chosen {
            continue;
        }
        let path = archive.path();
        let fields = ArchiveFields::new(archive, catalog, now);
        let mark = if is_chosen { "*" } else { " " };
        let line = format!("{mark} {}", describe_archive(archive, catalog, &fields, now));
        let file_and_choice = json!({ "file": path.to_string_lossy(), "chosen": is_chosen });
        let fields = merge(&fields, file_and_choice);
        ui.print_item("archive_listed", &fields, &path.escaped(), &line);
    }
    for unusable in catalog.unusable() {
        let line = unusable_line(&unusable.archive, &unusable.fault, now);
        ui.print_item("archive_unusable", unusable, "", &format!("! {line}"));
    }
    for partial in partials {
        print_partial(partial, ui);
    }
    let choice = match choice {
        None if catalog.archives().is_empty() => format!("no archives in {}", args.place.escaped()),
        None => "a node would choose none of them".to_string(),
        Some(choice) => {
            let slot = choice.incremental.unwrap_or(choice.full).name.slot;
            format!("* a node would choose these, and start at slot {slot}")
        }
    };
    ui.print_item("choice", catalog, "", &choice);
}

pub fn unusable_line(archive: &ListedArchive, fault: &FileFault, now: SystemTime) -> String {
    let size = values::show_bytes(archive.size_bytes);
    let age = values::show_age(archive.age(now));
    let place = if archive.is_remote { "remote/" } else { "" };
    let name = &archive.name;
    format!("{place}{name}\n    {size}, modified {age} ago, not usable: {fault}")
}

pub fn print_partial(partial: &Partial, ui: &Ui) {
    let fields = merge(partial, json!({ "removed": false }));
    ui.print_object("partial_download", &fields);
    ui.say(&format!("  {}", partial_line(partial)));
}

pub fn partial_line(partial: &Partial) -> String {
    let age = values::show_age(partial.age(clock::now()));
    let size = values::show_bytes(partial.size_bytes);
    let use_note = if partial.is_in_use { ", in use" } else { "" };
    format!("{partial}\n    unfinished download, {size} on disk, {age} old{use_note}")
}

/// Warns about unfinished downloads in a directory that no process is using.
pub fn warn_of_partials(dir: &Path, ui: &Ui) {
    // The run has succeeded, so an unreadable directory is not a reason to fail now.
    let mut unused = find_partials(dir).unwrap_or_default();
    unused.retain(|partial| !partial.is_in_use);
    for partial in &unused {
        ui.warn(&partial_line(partial).replace("\n    ", ": "));
    }
    if !unused.is_empty() {
        let word = values::quote_for_shell(dir);
        ui.status(&format!("`slotpress prune --unusable {word}` removes downloads that you will not continue"));
    }
}

/// Names of files and directories. A ledger or an unpacked archive has at least one of them.
const LEDGER_NAMES: [&str; 5] = ["accounts", "genesis.bin", "ledger.lock", "rocksdb", "version"];

/// Lists the archives of a directory, a store, a mirror or a server. Returns `None` for a single archive, for a
/// ledger, and for a directory without archives. The caller then reads such a directory as a ledger, and says
/// what is missing.
pub fn list_place(place: &Path, network: Option<&NetworkArgs>, ui: &Ui) -> Result<Option<Catalog>> {
    let is_empty = |catalog: &Catalog| catalog.archives().is_empty() && catalog.unusable().is_empty();
    let Some((url, network)) = as_url(place).zip(network) else {
        if !place.is_dir() || LEDGER_NAMES.iter().any(|name| place.join(name).exists()) {
            return Ok(None);
        }
        let catalog = scan_with_copies(&[place.to_path_buf()])?;
        return Ok(Some(catalog).filter(|catalog| !is_empty(catalog)));
    };
    if let SourceLocation::ArchiveUrl(_) = url.parse()? {
        return Ok(None);
    }
    let catalog = request_catalog(url, network, ui)?;
    if is_empty(&catalog) {
        return Err(Error::failed(format!("no archives in {}", place.escaped())).with_hint(
            "archives are named snapshot-SLOT-HASH.tar.zst or incremental-snapshot-BASE-SLOT-HASH.tar.zst",
        ));
    }
    Ok(Some(catalog))
}

/// Requests the list of archives from a server or a store. Treats a server without slotpress's list as a
/// validator's RPC port or a mirror.
pub fn request_catalog(url: &str, network: &NetworkArgs, ui: &Ui) -> Result<Catalog> {
    if !url.starts_with("http")
        && let Some(store) = stores::open_store(Path::new(url), None, &network.connection)?
    {
        let mut catalog = stores::read_catalog(&store, BankTimes::LeaveOut, &network.connection, ui)?;
        let index = stores::read_index(&store, ui).unwrap_or_else(|error| {
            ui.warn(&format!("the reasons for keeping archives are not shown: {error}"));
            None
        });
        let listed = index.and_then(|index| parse_list(&index.bytes, "")).unwrap_or_default();
        catalog.set_keep_reasons(listed.archives());
        return Ok(catalog);
    }
    let client = Client::new(&network.options())?;
    let source = url.parse::<SourceLocation>()?;
    if let SourceLocation::Server(server) = &source
        && let Some(catalog) = client.get_list(server, ui)?
    {
        return Ok(catalog);
    }
    let mut offers = client.list_offers(&source, ui)?;
    read_bank_time(&client, offers.iter_mut(), ui)?;
    Ok(Catalog::new(offers.into_iter().map(|offer| {
        let location = offer.location();
        let dir = location.rsplit_once('/').map_or("", |(dir, _)| dir);
        ListedArchive {
            modified_ns: offer.modified.map_or(0, unix_ns),
            bank_unix_seconds: offer.bank_time.map(|time| unix_ns(time) / 1_000_000_000),
            ..ListedArchive::new(offer.name, dir, offer.file_bytes.unwrap_or_default())
        }
    })))
}

fn describe_archive(archive: &ListedArchive, catalog: &Catalog, fields: &ArchiveFields, now: SystemTime) -> String {
    let mut text = String::from("{name}\n    ");
    text += if archive.size_bytes == 0 { "size not known" } else { "{size_bytes}" };
    text += if catalog.age_of(archive, now).is_some() { ", {age_seconds} old" } else { ", age unknown" };
    if archive.modified_ns > 0 {
        text += &format!(", modified {} ago", values::show_age(archive.age(now)));
    }
    text += "[, {slots_behind} ({seconds_behind}) behind the newest]";
    if archive.is_remote {
        text += ", in remote/";
    }
    if archive.name.base_slot.is_some() && catalog.base_of(archive).is_none() {
        text += ", its full archive is not here";
    }
    if archive.is_rebased() {
        text += ", made by rebase: not for nodes that have a full archive of a slot between its two slots";
    }
    text += "[, kept: {kept_because}][\n    root {root}]";
    render::fill(&text, &serde_json::to_value(fields).unwrap_or_default()).unwrap_or_default()
}
