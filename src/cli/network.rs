//! What commands that read from servers share: flags, and archives that are paths or URLs.

use {
    super::ui::Ui,
    crate::{error::Result, read::named::NamedArchive},
    clap::Args,
    std::path::Path,
};
#[cfg(feature = "net")]
use {
    super::values,
    crate::net::{self, Client, ClientOptions, url_source::UrlSource},
    serde::Serialize,
    std::{path::PathBuf, sync::Arc},
};

/// How to reach servers.
#[cfg(feature = "net")]
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Network")]
pub struct NetworkArgs {
    /// Trust the authorities in this PEM file too, beside those of the system
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// The proxy for all connections [default: what HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY say]
    #[arg(long, value_name = "URL")]
    proxy: Option<String>,
    /// Let servers lead to private addresses
    #[arg(long)]
    allow_private: bool,
}

/// How to reach servers: not at all.
#[cfg(not(feature = "net"))]
#[derive(Clone, Debug, Args)]
pub struct NetworkArgs {}

#[cfg(feature = "net")]
impl NetworkArgs {
    /// What the flags say, the rest as usual.
    pub fn options(&self) -> ClientOptions {
        ClientOptions {
            ca_file: self.ca_file.clone(),
            proxy: self.proxy.clone(),
            allow_private: self.allow_private,
            ..ClientOptions::default()
        }
    }
}

/// An archive that was named on the command line.
pub struct ArchiveInput {
    named: NamedArchive,
    #[cfg(feature = "net")]
    source: Option<Arc<UrlSource>>,
}

#[cfg(feature = "net")]
#[derive(Serialize)]
#[serde(tag = "type", rename = "transfer")]
struct TransferLine<'a> {
    url: &'a str,
    requests: u64,
    transferred_bytes: u64,
    file_bytes: u64,
}

impl ArchiveInput {
    /// A path, or a URL of an archive on a server that sends ranges.
    #[cfg(feature = "net")]
    pub fn open(path: &Path, args: &NetworkArgs, ui: &Ui) -> Result<Self> {
        let Some(text) = path.to_str().filter(|text| net::is_url(text)) else {
            return Ok(Self { named: NamedArchive::of_path(path), source: None });
        };
        let client = Client::new(&args.options())?;
        let stop = net::url_source::StopFlag(ui.stop_flag());
        let source = Arc::new(UrlSource::open(&client, &net::parse_url(text)?, stop)?);
        let name = source.remote().archive_name();
        Ok(Self { named: NamedArchive::of_source(source.clone(), name), source: Some(source) })
    }

    /// A path.
    #[cfg(not(feature = "net"))]
    pub fn open(path: &Path, _: &NetworkArgs, _: &Ui) -> Result<Self> {
        let is_url = path.to_str().is_some_and(|text| text.contains("://"));
        match is_url {
            true => Err(crate::Error::usage("this slotpress was built without the network: it reads files only")),
            false => Ok(Self { named: NamedArchive::of_path(path) }),
        }
    }

    /// The archive.
    pub fn named(&self) -> &NamedArchive {
        &self.named
    }

    /// Prints what was fetched, where something was.
    #[cfg(feature = "net")]
    pub fn print_transfer(&self, ui: &Ui) {
        let Some(source) = &self.source else { return };
        let (transferred, file_bytes) = (source.transferred(), self.named.length_bytes().unwrap_or_default());
        if ui.is_json() {
            ui.print_json(&TransferLine {
                url: &net::shown(&source.remote().url),
                requests: transferred.requests,
                transferred_bytes: transferred.bytes,
                file_bytes,
            });
            return;
        }
        ui.print(&format!(
            "  {:<12} {} of {} in {}",
            "transferred",
            values::show_bytes(transferred.bytes),
            values::show_bytes(file_bytes),
            values::count_of(transferred.requests, "request")
        ));
    }

    /// Nothing was.
    #[cfg(not(feature = "net"))]
    pub fn print_transfer(&self, _: &Ui) {}
}
