//! `slotpress list`

#[cfg(feature = "net")]
use slotpress_net::{Client, servers::SourceArg, shown};
use {
    super::{
        network::{NetworkArgs, refuse_url},
        ui::Ui,
        values,
    },
    clap::Args,
    serde::Serialize,
    slotpress_base::error::Result,
    slotpress_base::text::ShowPath,
    slotpress_format::ledger::slot_time::SlotTimeSource,
    slotpress_read::catalog::{
        Archive, Catalog,
        listing::{ArchiveFields, unix_ns},
        scan,
    },
    std::{path::PathBuf, time::SystemTime},
};

/// List archives, which belong together, and which ones a node would choose
///
/// Of a store, it is what the bucket has. For a server, the list comes from its interface for programs (`slotpress serve`), or from its redirects and the listing
/// of a mirror. It is what the server claims.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The directory or store (s3://BUCKET/PREFIX) of archives, or the URL of a server or a mirror
    #[arg(value_name = "DIR|URL")]
    place: PathBuf,
    /// List only the archives that a node would choose
    #[arg(long)]
    newest: bool,
    #[command(flatten)]
    network: NetworkArgs,
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
    slot_ms: u64,
    slot_time_source: SlotTimeSource,
}

/// Lists.
pub fn run(args: &ListArgs, ui: &Ui) -> Result<()> {
    let catalog = look(args, ui)?;
    let listed = || catalog.archives().iter().filter(|archive| !args.newest || is_chosen(archive, &catalog));
    let now = SystemTime::now();
    if ui.is_json() {
        for archive in listed() {
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
            slot_ms: catalog.slot_time.milliseconds(),
            slot_time_source: catalog.slot_time.source(),
        });
        return Ok(());
    }
    if ui.is_quiet() {
        listed().for_each(|archive| ui.print_verbatim(&archive.path().shown()));
        return Ok(());
    }
    if catalog.archives().is_empty() {
        ui.print(&format!("no archives in {}", args.place.shown()));
        return Ok(());
    }
    for archive in listed() {
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

/// What there is.
fn look(args: &ListArgs, ui: &Ui) -> Result<Catalog> {
    match args.place.to_str().filter(|text| text.contains("://")) {
        Some(text) => ask(text, args, ui),
        None => {
            refuse_url(&args.place, &|url| format!("for a server, write {url}"))?;
            let mut catalog = scan::scan(std::slice::from_ref(&args.place))?;
            scan::look_for_slot_time(&mut catalog, &Catalog::default());
            Ok(catalog)
        }
    }
}

/// What a server says that it has.
#[cfg(feature = "net")]
fn ask(text: &str, args: &ListArgs, ui: &Ui) -> Result<Catalog> {
    #[cfg(feature = "stores")]
    if !text.starts_with("http")
        && let Some(store) = super::stores::store_of(&args.place, None, args.network.connection())?
    {
        return super::stores::catalog(&store, ui);
    }
    let client = Client::new(&args.network.options())?;
    let source = text.parse::<SourceArg>()?;
    if let SourceArg::Server(url) = &source
        && let Some(listed) = client.listing(url, ui)?
    {
        return Ok(Catalog::of_listing(listed, &shown(url), unix_ns(SystemTime::now())));
    }
    let offers = client.offers(&source, ui)?;
    Ok(Catalog::new(offers.into_iter().map(|offer| {
        let shown = offer.shown();
        let dir = shown.rsplit_once('/').map_or("", |(dir, _)| dir);
        Archive {
            modified_ns: offer.modified.map_or(0, unix_ns),
            ..Archive::of_server(offer.name, dir, offer.length_bytes.unwrap_or_default())
        }
    })))
}

/// Not at all.
#[cfg(not(feature = "net"))]
fn ask(_: &str, _: &ListArgs, _: &Ui) -> Result<Catalog> {
    Err(slotpress_base::error::Error::usage("this slotpress was built without the network: it reads directories only"))
}

fn is_chosen(archive: &Archive, catalog: &Catalog) -> bool {
    let is_same = |other: &Archive| other.name == archive.name;
    catalog.choice().is_some_and(|choice| is_same(choice.full) || choice.incremental.is_some_and(is_same))
}

fn line(archive: &Archive, catalog: &Catalog, now: SystemTime) -> String {
    let mark = if is_chosen(archive, catalog) { '*' } else { ' ' };
    let mut line = format!("{mark} {}\n    ", archive.name);
    line += &match archive.size_bytes {
        0 => "size not known".to_string(),
        bytes => values::show_bytes(bytes),
    };
    line += &match archive.modified_ns {
        0 => ", age unknown".to_string(),
        _ => format!(", {} old", values::show_age(archive.age(unix_ns(now)))),
    };
    let behind = catalog.newest_slot().unwrap_or_default().saturating_sub(archive.name.slot);
    if behind > 0 {
        line += &format!(", {} behind the newest", catalog.slot_time.show(behind));
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
