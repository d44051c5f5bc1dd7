//! Flags shared by commands that read from servers, and archives named by path or URL.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use slotpress::catalog::{Catalog, ListedArchive};
use slotpress::net::{Client, ClientOptions, Cluster, FetchLimits, FindOptions, MaxAge, SourceLocation, Url};
use slotpress::types::ArchiveName;
use slotpress::{ArchiveInput, CancelToken, Error, ErrorKind, LocalArchive, Result, Snapshot};
use slotpress_base::EscapePath;
use slotpress_net::{STREAMS_DEFAULT, STREAMS_MAX, StreamSource, UrlSource, is_url, parse_url, show_url, url_of_host};
use slotpress_read::SharedSource;

use super::arguments::DirectoryArgs;
use super::json::merge;
use super::ui::Ui;
use super::values::Choice;
use super::{list, values};

/// Connection settings for servers and stores that the user named.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Network")]
pub struct ConnectionArgs {
    /// Also trust the certificate authorities in this PEM file
    #[arg(long, env, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// The proxy for all connections [default: from HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY]
    #[arg(long, env, value_name = "URL")]
    proxy: Option<String>,
    #[command(flatten)]
    pub stores: super::stores::StoreArgs,
}

impl ConnectionArgs {
    pub fn options(&self) -> ClientOptions {
        let mut options = ClientOptions::default();
        options.ca_file = self.ca_file.clone();
        options.proxy = self.proxy.clone();
        self.stores.s3().for_client(options)
    }
}

/// Connection settings for servers that may redirect to others.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Network")]
pub struct NetworkArgs {
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Follow redirects to private addresses
    #[arg(long, help_heading = "Network")]
    allow_private: bool,
}

const CLUSTERS: &[Choice<Cluster>] = &[
    Choice("mainnet-beta", Cluster::MainnetBeta, "The production cluster"),
    Choice("testnet", Cluster::Testnet, "For validators that try new versions"),
    Choice("devnet", Cluster::Devnet, "For developers"),
];

#[derive(Clone, Debug, Args)]
pub struct PeersArgs {
    /// A server, a mirror, a store or an archive: http(s)://HOST:PORT, the URL of a directory or of
    /// an archive, s3://BUCKET/PREFIX; or a local directory
    #[arg(value_name = "SOURCE", required_unless_present_any = ["rpc", "cluster", "sources_from"])]
    sources: Vec<String>,
    /// An RPC server to ask for the cluster's slot and peers; may be given more than once
    #[arg(long, env, value_name = "URL", value_delimiter = ',')]
    rpc: Vec<String>,
    /// Also use the sources that this file lists, one per line; # begins a comment
    #[arg(long, env, value_name = "FILE")]
    sources_from: Option<PathBuf>,
    /// Ask the public RPC server of a cluster
    #[arg(long, value_parser = values::choice_parser(CLUSTERS))]
    cluster: Option<Cluster>,
    /// Maximum age of the state at boot: a time such as 45m, or a number of slots
    /// [default: 135min, if an RPC server reports the slot]
    #[arg(long, value_name = "TIME|SLOTS", value_parser = parse_max_age)]
    max_age: Option<MaxAge>,
}

/// Parses a maximum age; a number without a unit is slots.
fn parse_max_age(text: &str) -> Result<MaxAge, String> {
    match text.trim().parse() {
        Ok(slots) => Ok(MaxAge::Slots(slots)),
        Err(_) => values::parse_duration(text).map(MaxAge::Time).map_err(|error| error + "; a bare number is slots"),
    }
}

impl PeersArgs {
    pub fn find_options(&self) -> Result<FindOptions> {
        let mut sources: Vec<SourceLocation> = self.sources.iter().map(|text| text.parse()).collect::<Result<_>>()?;
        if let Some(path) = &self.sources_from {
            let listed = values::read_list(path, "source", str::parse::<SourceLocation>)?;
            sources.extend(listed);
        }
        let mut options = FindOptions::new(sources).rpc(parse_urls(&self.rpc)?);
        options.max_age = self.max_age.unwrap_or_default();
        options.cluster = self.cluster;
        Ok(options)
    }
}

fn parse_urls(texts: &[String]) -> Result<Vec<Url>> {
    texts.iter().map(|text| parse_url(text)).collect()
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Network")]
pub struct TransferArgs {
    /// Number of connections, if the server supports ranges
    #[arg(long, value_name = "N", default_value_t = STREAMS_DEFAULT as u8,
          value_parser = clap::value_parser!(u8).range(1..=STREAMS_MAX as i64))]
    pub streams: u8,
    /// Give up if fewer bytes per second than this arrive for 15 seconds. Without this flag, slotpress gives up
    /// on a server that sends less than 1 KiB per second for two minutes
    #[arg(long, value_name = "SIZE", value_parser = values::parse_size)]
    min_rate: Option<u64>,
    /// Refuse archives larger than this [default: 4TiB]
    #[arg(long, value_name = "SIZE", value_parser = values::parse_size)]
    max_bytes: Option<u64>,
    /// A server that you trust, which must have the same archive; may be given more than once. The
    /// run fails if one of them has a different state of that slot
    #[arg(long, env, value_name = "URL", value_delimiter = ',')]
    trust: Vec<String>,
    /// Number of trusted servers that must have the same archive
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..),
          requires = "trust")]
    quorum: u8,
    #[command(flatten)]
    network: NetworkArgs,
}

impl TransferArgs {
    pub fn limits(&self) -> FetchLimits {
        let mut limits = FetchLimits::default().streams(usize::from(self.streams));
        limits.max_bytes = self.max_bytes.unwrap_or(limits.max_bytes);
        limits.min_rate_bytes_per_second = self.min_rate;
        limits
    }

    /// Returns the trusted servers, and how many of them must confirm the state.
    pub fn trusted_and_quorum(&self) -> Result<(Vec<Url>, usize)> {
        Ok((parse_urls(&self.trust)?, usize::from(self.quorum)))
    }

    pub fn client(&self, max_rate: Option<u64>) -> Result<Client> {
        let mut options = self.network.options();
        options.max_rate_bytes_per_second = max_rate;
        Client::new(&options)
    }
}

impl NetworkArgs {
    pub fn options(&self) -> ClientOptions {
        self.connection.options().allow_private(self.allow_private)
    }
}

/// Refuses a URL, or a host without `http://`, where only files can be read. `make_hint` makes the hint from the
/// URL.
///
/// # Errors
/// If no file has this path, and the path looks like a URL or a host.
pub fn refuse_url(path: &Path, make_hint: &dyn Fn(&str) -> String) -> Result<()> {
    let Some(text) = path.to_str() else { return Ok(()) };
    if path.exists() {
        return Ok(());
    }
    let url = if is_url(text) { parse_url(text).ok().map(|url| show_url(&url)) } else { url_of_host(text) };
    match url {
        Some(url) => Err(Error::usage(format!("{url} is not a file")).with_hint(make_hint(&url))),
        None => Ok(()),
    }
}

/// Argument `reads_twice` of commands that read parts of an archive twice.
pub const READ_TWICE: bool = true;

/// Opens an archive on this machine: a file, or standard input for `-`.
pub fn open_local(path: &Path) -> Result<LocalArchive> {
    if path.as_os_str() == "-" { LocalArchive::from_stdin() } else { Ok(LocalArchive::from(path)) }
}

/// Opens an archive named on the command line by its path or its URL. Archives on a server without
/// ranges can be read only once.
pub fn open_archive(path: &Path, reads_twice: bool, args: &NetworkArgs, ui: &Ui) -> Result<ArchiveInput> {
    let Some(text) = list::as_url(path) else {
        refuse_url(path, &|url| format!("for a server, write {url}"))?;
        return Ok(ArchiveInput::from_path(path));
    };
    let url = match text.parse::<SourceLocation>()? {
        SourceLocation::ArchiveUrl(url) => url,
        place => {
            let message = format!("{place} holds archives, but one archive is needed here");
            return Err(Error::usage(message).with_hint(format!("`slotpress list {place}` shows their names")));
        }
    };
    let client = Client::new(&args.options())?;
    let stop = CancelToken::from(ui.stop_flag());
    let remote = client.head(&url, ui)?;
    let name = remote.archive_name();
    let source: SharedSource = if remote.accepts_ranges && remote.length_bytes.is_some() {
        Arc::new(UrlSource::from_remote(&client, remote, stop)?)
    } else if reads_twice {
        let place = show_url(&remote.url);
        let url = show_url(&url);
        let reason = "the server does not send ranges of the file, and parts of it are read twice";
        let message = format!("{place}: {reason}");
        let hint = format!("`slotpress fetch {url} -o DIR` fetches it; then use the file");
        return Err(Error::new(ErrorKind::Network, message).with_hint(hint));
    } else {
        Arc::new(StreamSource::open(&client, remote, stop)?)
    };
    Ok(ArchiveInput::from_source(source, name))
}

pub fn print_transfer(archive: &ArchiveInput, ui: &Ui) {
    let Some(source) = &archive.source else { return };
    let Some(totals) = source.transfer_totals() else { return };
    let file_bytes = archive.length_bytes().unwrap_or_default();
    let file = json!({ "url": archive.path.to_string_lossy(), "file_bytes": file_bytes });
    let fields = merge(file, totals);
    let row = "transferred: {transferred_bytes} of {file_bytes} in {requests}";
    ui.print_report("transfer", "", &fields, &[row]);
}

/// Returns the path or the URL of an archive. If the place where it was found has the same origin, the URL gets
/// that place's user and password.
pub fn path_with_credentials(archive: &ListedArchive, place: &Path) -> PathBuf {
    let path = archive.path();
    let url = |path: &Path| list::as_url(path).and_then(|text| parse_url(text).ok());
    let (Some(place), Some(mut archive)) = (url(place), url(&path)) else { return path };
    if place.origin() == archive.origin() {
        // These fail only for URLs that cannot have a user.
        let _ = archive.set_username(place.username());
        let _ = archive.set_password(place.password());
    }
    PathBuf::from(archive.as_str())
}

/// Returns the catalog of a place, or of more than two archives. Returns `None` for two archives, and for a path
/// that [`list::list_place`] does not list.
///
/// # Errors
/// If one of more than two files does not have an archive's name.
pub fn list_inputs(paths: &[PathBuf], network: Option<&NetworkArgs>, ui: &Ui) -> Result<Option<Catalog>> {
    match paths {
        [place] => list::list_place(place, network, ui),
        [_, _] => Ok(None),
        paths => {
            let mut archives = Vec::new();
            for path in paths {
                let Some(name) = ArchiveName::from_path(path) else {
                    let path = path.escaped();
                    return Err(Error::usage(format!("{path} does not have the name of an archive")));
                };
                let dir = path.parent().unwrap_or(Path::new(""));
                archives.push(ListedArchive::new(name, dir, 0));
            }
            Ok(Some(Catalog::with_copies(archives)))
        }
    }
}

/// Chooses the archives of a state: the full archive, then the incremental one, if any. Two archives may be in
/// any order. From more than two archives, or from a place with a catalog, chooses what a node would choose.
/// Returns any other path unchanged. Without `network`, all paths are local.
pub fn choose_archives(paths: &[PathBuf], network: Option<&NetworkArgs>, ui: &Ui) -> Result<Vec<PathBuf>> {
    let is_incremental = |path: &Path| ArchiveName::from_path(path).map(|name| name.base_slot.is_some());
    if let [first, second] = paths
        && is_incremental(first) == Some(true)
        && is_incremental(second) == Some(false)
    {
        return Ok(vec![second.clone(), first.clone()]);
    }
    let Some(catalog) = list_inputs(paths, network, ui)? else { return Ok(paths.to_vec()) };
    let place = match paths {
        [place] => place,
        _ => Path::new("the list of archives"),
    };
    let choice = list::require_choice(&catalog, place)?;
    let mut chosen = vec![path_with_credentials(choice.full, place)];
    if let Some(incremental) = choice.incremental {
        chosen.push(path_with_credentials(incremental, place));
    }
    Ok(chosen)
}

/// A state: a full archive, possibly with an incremental one, or a ledger.
#[derive(Debug, Args)]
pub struct StateArgs {
    /// An archive, or a full and an incremental one, by path or URL; or a ledger directory
    ///
    /// From a directory of archives, a server, a mirror or a store, slotpress uses the archives that a
    /// node would choose (`verify` uses every archive).
    #[arg(value_name = "ARCHIVE|LEDGER|DIR|URL", required = true, help_heading = None::<&'static str>)]
    pub inputs: Vec<PathBuf>,
    /// The bank snapshot of a ledger [default: the newest complete one]
    #[arg(long, value_parser = values::parse_slot, help_heading = "Ledger")]
    pub slot: Option<u64>,
    #[command(flatten, next_help_heading = "Ledger")]
    pub directories: DirectoryArgs,
    #[command(flatten)]
    pub network: NetworkArgs,
}

impl StateArgs {
    pub fn open(&self, reads_twice: bool, ui: &Ui) -> Result<Snapshot> {
        match self.open_paths(&self.inputs, reads_twice, ui)? {
            Snapshot::Ledger { paths, .. } => {
                let paths = self.directories.paths(&paths.ledger);
                Ok(Snapshot::Ledger { paths, slot: self.slot, base_slot: None })
            }
            _ if self.slot.is_some() => Err(Error::usage("--slot is for a ledger directory, not for an archive")
                .with_hint("--expect-slot compares an archive's slot")),
            archives => Ok(archives),
        }
    }

    /// Opens the archives that [`choose_archives`] chooses from these paths, or a ledger.
    pub fn open_paths(&self, paths: &[PathBuf], reads_twice: bool, ui: &Ui) -> Result<Snapshot> {
        let open = |path: &PathBuf| open_archive(path, reads_twice, &self.network, ui);
        match choose_archives(paths, Some(&self.network), ui)?.as_slice() {
            [ledger] if ledger.is_dir() => {
                values::check_ledger(ledger)?;
                Ok(Snapshot::ledger(ledger))
            }
            paths if paths.iter().any(|path| path.is_dir()) => {
                Err(Error::usage("a ledger needs no incremental archive: it holds the whole state"))
            }
            [] => Err(Error::usage("no archive is given")),
            [full] => Ok(Snapshot::archive(open(full)?)),
            [full, incremental, ..] => Ok(Snapshot::pair(open(full)?, open(incremental)?)),
        }
    }
}

pub fn print_transfers(snapshot: &Snapshot, ui: &Ui) {
    for archive in snapshot.archives() {
        print_transfer(archive, ui);
    }
}
