//! Flags shared by commands that read from servers, and archives named by path or URL.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use slotpress::catalog::{Archive, Catalog, NodeChoice};
use slotpress::net::{Cluster, FetchLimits, MaxAge, SourceArg};
use slotpress::{
    AccountsInput, ArchiveName, CancelToken, Client, ClientOptions, Error, ErrorKind, FindOptions, LedgerPaths,
    NamedArchive, Result, Root, Url,
};
use slotpress_base::IoContext;
use slotpress_base::text::ShowPath;
use slotpress_net::url_source::Transferred;
use slotpress_net::{STREAMS_DEFAULT, STREAMS_MAX, StreamSource, UrlSource, is_url, parse_url, shown, url_of_host};

use super::arguments::DirectoryArgs;
use super::ui::Ui;
use super::{list, values};

/// Connection settings for servers and stores that the user named.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Network")]
pub struct ConnectionArgs {
    /// Also trust the certificate authorities in this PEM file
    #[arg(long, value_name = "FILE", env = "SLOTPRESS_CA_FILE")]
    ca_file: Option<PathBuf>,
    /// The proxy for all connections [default: from HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY]
    #[arg(long, value_name = "URL", env = "SLOTPRESS_PROXY")]
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

const CLUSTERS: &[(&str, Cluster, &str)] = &[
    ("mainnet-beta", Cluster::MainnetBeta, "The production cluster"),
    ("testnet", Cluster::Testnet, "For validators that try new versions"),
    ("devnet", Cluster::Devnet, "For developers"),
];

/// Sources of archives in addition to those named on the command line (RPC servers, a file, a cluster),
/// and how old the state may be.
#[derive(Clone, Debug, Args)]
pub struct PeersArgs {
    /// An RPC server that knows the cluster's slot and peers; may be given more than once
    #[arg(long, value_name = "URL", value_delimiter = ',', env = "SLOTPRESS_RPC")]
    rpc: Vec<String>,
    /// Also use the sources in this file: one a line; # begins a comment
    #[arg(long, value_name = "FILE", env = "SLOTPRESS_SOURCES_FROM")]
    sources_from: Option<PathBuf>,
    /// Ask the public RPC server of a cluster
    #[arg(long, value_parser = values::choice(CLUSTERS))]
    cluster: Option<Cluster>,
    /// Maximum age of the state at boot: a time such as 45m, or a number of slots
    /// [default: 135min, where an RPC server tells the slot]
    #[arg(long, value_name = "TIME|SLOTS", value_parser = max_age)]
    max_age: Option<MaxAge>,
}

/// Parses a maximum age; a number without a unit is slots.
fn max_age(text: &str) -> Result<MaxAge, String> {
    match text.trim().parse() {
        Ok(slots) => Ok(MaxAge::Slots(slots)),
        Err(_) => values::duration(text).map(MaxAge::Time).map_err(|error| format!("{error}; a lone number is slots")),
    }
}

impl PeersArgs {
    /// Options for searching the given sources, those in `--sources-from`, and the peers of RPC
    /// servers.
    pub fn find_options(&self, sources: &[String]) -> Result<FindOptions> {
        let mut sources: Vec<_> = sources.iter().map(|text| text.parse::<SourceArg>()).collect::<Result<_>>()?;
        if let Some(path) = &self.sources_from {
            sources.extend(sources_in(path)?);
        }
        let rpc: Vec<_> = self.rpc.iter().map(|text| parse_url(text)).collect::<Result<_>>()?;
        let mut options = FindOptions::new(sources).rpc(rpc);
        options.max_age = self.max_age;
        options.cluster = self.cluster;
        Ok(options)
    }
}

/// Maximum length of a file of sources, in bytes: enough for about ten thousand URLs.
const SOURCES_BYTES_MAX: u64 = 1 << 20;

fn sources_in(path: &Path) -> Result<Vec<SourceArg>> {
    let mut text = String::new();
    let file = slotpress_base::open_file(path)?;
    file.take(SOURCES_BYTES_MAX + 1).read_to_string(&mut text).or_path("read", path)?;
    if text.len() as u64 > SOURCES_BYTES_MAX {
        return Err(Error::usage(format!("{} is longer than 1 MiB, so it is not a list of sources", path.shown())));
    }
    let lines = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let sources = lines.map(|(at, line)| {
        line.parse::<SourceArg>().map_err(|error| error.within(format!("{}, line {}", path.shown(), at + 1)))
    });
    let sources: Vec<_> = sources.collect::<Result<_>>()?;
    match sources.is_empty() {
        true => Err(Error::usage(format!("{} lists no source", path.shown())).with_hint("write one URL a line")),
        false => Ok(sources),
    }
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Network")]
pub struct TransferArgs {
    /// Number of connections, if the server supports ranges
    #[arg(long, value_name = "N", default_value_t = STREAMS_DEFAULT as u8,
          value_parser = clap::value_parser!(u8).range(1..=STREAMS_MAX as i64))]
    streams: u8,
    /// Give up when fewer bytes per second arrive for 15 seconds. Without it, slotpress gives up a
    /// server that sends less than 1 KiB per second for two minutes
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    min_rate: Option<u64>,
    /// Refuse archives larger than this [default: 4TiB]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    max_bytes: Option<u64>,
    /// A server that you trust, which must have the same archive; may be given more than once. The
    /// run fails if one of them has a different state of that slot
    #[arg(long, value_name = "URL", value_delimiter = ',', env = "SLOTPRESS_TRUST")]
    trust: Vec<String>,
    /// Number of trusted servers that must have it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..),
          requires = "trust")]
    quorum: u8,
    #[command(flatten)]
    network: NetworkArgs,
}

impl TransferArgs {
    pub fn streams(&self) -> usize {
        usize::from(self.streams)
    }

    /// Limits of a download: connections, rate, and size.
    pub fn limits(&self, expect_root: Option<Root>) -> FetchLimits {
        let mut limits = FetchLimits::default().streams(self.streams());
        limits.max_bytes = self.max_bytes.unwrap_or(limits.max_bytes);
        limits.min_rate_bytes_per_second = self.min_rate;
        limits.expect_root = expect_root;
        limits
    }

    /// The trusted servers, and how many of them must confirm the state.
    pub fn trusted(&self) -> Result<(Vec<Url>, usize)> {
        let trusted = self.trust.iter().map(|text| parse_url(text)).collect::<Result<_>>()?;
        Ok((trusted, usize::from(self.quorum)))
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

/// Refuses a URL, or a host name meant as one, where only files can be read. `what_to_type` makes
/// the hint from the URL.
///
/// # Errors
/// If no such file exists and the text reads like a URL or a host.
pub fn refuse_url(path: &Path, what_to_type: &dyn Fn(&str) -> String) -> Result<()> {
    let Some(text) = path.to_str().filter(|_| !path.exists()) else { return Ok(()) };
    let Some(url) = meant_url(text) else { return Ok(()) };
    Err(Error::usage(format!("{url} is not a file")).with_hint(what_to_type(&url)))
}

/// Completes a host name to a URL, and hides passwords in a URL; `None` for text that is neither.
fn meant_url(text: &str) -> Option<String> {
    match is_url(text) {
        true => parse_url(text).ok().map(|url| shown(&url)),
        false => url_of_host(text),
    }
}

/// An archive named on the command line by its path or its URL.
pub struct ArchiveInput {
    named: NamedArchive,
    sent: Option<Sent>,
}

/// An archive on a server, read by ranges or as one stream.
enum Sent {
    Ranges(Arc<UrlSource>),
    Stream(Arc<StreamSource>),
}

impl Sent {
    fn transferred(&self) -> Transferred {
        match self {
            Self::Ranges(source) => source.transferred(),
            Self::Stream(source) => source.transferred(),
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Ranges(source) => shown(&source.remote().url),
            Self::Stream(source) => shown(&source.remote().url),
        }
    }
}

/// How often a command reads an archive. An archive from a server without ranges can be read only
/// once.
#[derive(Clone, Copy, Debug)]
pub enum Reads {
    Once,
    /// More than once, for the given reason.
    Again(&'static str),
}

#[derive(Serialize)]
struct TransferFields<'a> {
    url: &'a str,
    #[serde(flatten)]
    transferred: Transferred,
    file_bytes: u64,
}

impl ArchiveInput {
    /// Opens a path, or the URL of an archive. If the server sends no ranges, `reads` must be
    /// [`Reads::Once`].
    pub fn open(path: &Path, reads: Reads, args: &NetworkArgs, ui: &Ui) -> Result<Self> {
        let Some(text) = path.to_str().filter(|text| text.contains("://")) else {
            refuse_url(path, &|url| format!("for a server, write {url}"))?;
            return Ok(Self { named: NamedArchive::from_path(path), sent: None });
        };
        let url = match text.parse::<SourceArg>()? {
            SourceArg::Archive(url) => url,
            place => {
                return Err(Error::usage(format!("{place} holds archives, but one archive is needed here"))
                    .with_hint(format!("`slotpress list {place}` shows their names")));
            }
        };
        let client = Client::new(&args.options())?;
        let stop = CancelToken::from(ui.stop_flag());
        let remote = client.head(&url, ui)?;
        let name = remote.archive_name();
        if remote.accepts_ranges && remote.length_bytes.is_some() {
            let source = Arc::new(UrlSource::of_remote(&client, remote, stop)?);
            let named = NamedArchive::from_source(source.clone(), name);
            return Ok(Self { named, sent: Some(Sent::Ranges(source)) });
        }
        if let Reads::Again(why) = reads {
            let what = format!("{}: the server does not send ranges of the file, and {why}", shown(&remote.url));
            let hint = format!("`slotpress fetch {} -o DIR` fetches it; then use the file", shown(&url));
            return Err(Error::new(ErrorKind::Network, what).with_hint(hint));
        }
        let source = Arc::new(StreamSource::open(&client, remote, stop)?);
        let named = NamedArchive::from_source(source.clone(), name);
        Ok(Self { named, sent: Some(Sent::Stream(source)) })
    }

    pub fn named(&self) -> &NamedArchive {
        &self.named
    }

    /// True if the archive is read as one stream, and therefore without its index.
    pub fn is_stream(&self) -> bool {
        matches!(self.sent, Some(Sent::Stream(_)))
    }

    pub fn print_transfer(&self, ui: &Ui) {
        let Some(sent) = &self.sent else { return };
        let (transferred, file_bytes) = (sent.transferred(), self.named.length_bytes().unwrap_or_default());
        if ui.is_json() {
            let url = &sent.url();
            return ui.print_report("transfer", &TransferFields { url, transferred, file_bytes });
        }
        ui.print(&format!(
            "  {:<12} {} of {} in {}",
            "transferred",
            values::show_bytes(transferred.bytes),
            values::show_bytes(file_bytes),
            values::count_of(transferred.requests, "request")
        ));
    }
}

/// Path of an archive that was found at a place, or its URL with the user and password of the
/// place's.
pub fn path_at(archive: &Archive, place: &Path) -> PathBuf {
    let path = archive.path();
    let url = |path: &Path| path.to_str().filter(|text| is_url(text)).and_then(|text| parse_url(text).ok());
    let (Some(place), Some(mut found)) = (url(place), url(&path)) else { return path };
    if place.origin() == found.origin() {
        // Both fail only for URLs that can have no user.
        let _ = found.set_username(place.username());
        let _ = found.set_password(place.password());
    }
    PathBuf::from(found.as_str())
}

/// Lists a place, and more than two archives; `None` for an archive, a pair, and a place that
/// `catalog_at` does not list.
pub fn catalog_of(paths: &[PathBuf], catalog_at: &dyn Fn(&Path) -> Result<Option<Catalog>>) -> Result<Option<Catalog>> {
    match paths {
        [place] => catalog_at(place),
        [_, _] => Ok(None),
        many => catalog_of_names(many).map(Some),
    }
}

/// The catalog of archives that are named one by one.
///
/// # Errors
/// A file does not have an archive's name.
fn catalog_of_names(paths: &[PathBuf]) -> Result<Catalog> {
    let archive = |path: &PathBuf| {
        let unknown = || Error::usage(format!("{} does not have the name of an archive", path.shown()));
        let name = ArchiveName::from_path(path).ok_or_else(unknown)?;
        let dir = path.parent().unwrap_or(Path::new("")).to_path_buf();
        Ok(Archive { dir, ..Archive::of_server(name, "", 0) })
    };
    Ok(Catalog::with_copies(paths.iter().map(archive).collect::<Result<_>>()?))
}

/// Chooses the archives of a state: the full one, and the incremental one if there is one. Two
/// archives may be in any order. Of more, and of a place that `catalog_at` lists, takes those that a
/// node would choose. A path that is neither archive nor such a place stays as it is.
pub fn archives_of(paths: &[PathBuf], catalog_at: &dyn Fn(&Path) -> Result<Option<Catalog>>) -> Result<Vec<PathBuf>> {
    let is_incremental = |path: &Path| ArchiveName::from_path(path).map(|name| name.base_slot.is_some());
    if let [first, second] = paths
        && is_incremental(first) == Some(true)
        && is_incremental(second) == Some(false)
    {
        return Ok(vec![second.clone(), first.clone()]);
    }
    let Some(catalog) = catalog_of(paths, catalog_at)? else { return Ok(paths.to_vec()) };
    let place = if let [place] = paths { place } else { Path::new("the list of archives") };
    let NodeChoice { full, incremental } = list::newest_of(&catalog, place)?;
    Ok([Some(full), incremental].into_iter().flatten().map(|archive| path_at(archive, place)).collect())
}

/// A state named on the command line: a ledger directory, or a full archive, possibly with an
/// incremental one.
pub enum StateInput {
    Ledger(LedgerPaths),
    Archives(ArchiveInput, Option<ArchiveInput>),
}

/// Message that refuses flags for ledgers if the input is an archive.
pub const FOR_LEDGERS: &str = "--slot, --snapshots and --accounts are for a ledger directory, not for an archive";

impl StateInput {
    /// Opens the archives that [`archives_of`] chooses, or finds the directories of a ledger. Fails
    /// with `not_for_archives` if flags for a ledger (`directories`, `slot`) are given and the input
    /// is not one.
    pub fn open(
        paths: &[PathBuf],
        (directories, slot): (&DirectoryArgs, Option<u64>),
        not_for_archives: Error,
        reads: Reads,
        network: &NetworkArgs,
        ui: &Ui,
    ) -> Result<Self> {
        let is_for_ledger = slot.is_some() || directories.is_given();
        let catalog_at = |path: &Path| if is_for_ledger { Ok(None) } else { list::catalog_at(path, network, ui) };
        let paths = archives_of(paths, &catalog_at)?;
        match paths.as_slice() {
            [ledger] if ledger.is_dir() => {
                values::check_ledger(ledger)?;
                Ok(Self::Ledger(directories.paths(ledger)))
            }
            paths if paths.iter().any(|path| path.is_dir()) => {
                Err(Error::usage("a ledger takes no incremental archive: it holds the whole state"))
            }
            _ if is_for_ledger => Err(not_for_archives),
            [] => Err(Error::usage("no archive is given")),
            [full, more @ ..] => {
                let open = |path: &PathBuf| ArchiveInput::open(path, reads, network, ui);
                Ok(Self::Archives(open(full)?, more.first().map(open).transpose()?))
            }
        }
    }

    /// Returns the state as an input for reading accounts. `slot` chooses among the bank snapshots
    /// of a ledger.
    pub fn accounts(&self, slot: Option<u64>) -> AccountsInput<'_> {
        match self {
            Self::Ledger(paths) => AccountsInput::Ledger(paths, slot),
            Self::Archives(full, incremental) => {
                AccountsInput::Archives(full.named(), incremental.as_ref().map(ArchiveInput::named))
            }
        }
    }

    /// The archives, the full one first; none for a ledger.
    pub fn archives(&self) -> impl Iterator<Item = &ArchiveInput> {
        let (full, incremental) = match self {
            Self::Ledger(_) => (None, None),
            Self::Archives(full, incremental) => (Some(full), incremental.as_ref()),
        };
        full.into_iter().chain(incremental)
    }

    pub fn print_transfers(&self, ui: &Ui) {
        self.archives().for_each(|archive| archive.print_transfer(ui));
    }
}
