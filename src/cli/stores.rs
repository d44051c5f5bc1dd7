//! Flags shared by commands that use stores, and opening a store by its URL.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use slotpress::catalog::{Catalog, ListedArchive};
use slotpress::net::Client;
use slotpress::stores::{S3Options, Store, StoreOptions, Target};
use slotpress::types::ArchiveName;
use slotpress::{CancelToken, Progress, Result};
use slotpress_base::IoPolicy;
use slotpress_format::{BankFile, LISTING_PATH};
use slotpress_net::{UrlSource, parse_url};
use slotpress_read::archive::front;
use slotpress_read::catalog::usable::judge_source;
use slotpress_read::{LIST_BYTES_MAX, archive, unix_ns};
use slotpress_stores::SmallFile;

use super::network::ConnectionArgs;
use super::ui::Ui;

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Stores")]
pub struct StoreArgs {
    /// The service that holds the buckets of s3:// URLs [default: AWS_ENDPOINT_URL, or AWS]
    #[arg(long, env, value_name = "URL")]
    endpoint: Option<String>,
    /// The region of the buckets [default: AWS_REGION, AWS_DEFAULT_REGION, that of the profile, or us-east-1]
    #[arg(long, env, value_name = "NAME")]
    region: Option<String>,
    /// Read public buckets without credentials
    #[arg(long)]
    anonymous: bool,
}

impl StoreArgs {
    pub fn s3(&self) -> S3Options {
        let mut options = S3Options::default().anonymous(self.anonymous);
        options.endpoint = self.endpoint.clone();
        options.region = self.region.clone();
        options
    }
}

/// Opens the store that a target names; returns `None` if the target is a path. An upload may use at most half
/// of `memory_bytes`.
///
/// # Errors
/// If the URL does not name a store, or if the endpoint or the credentials in the environment are invalid.
pub fn open_store(target: &Path, memory_bytes: Option<u64>, args: &ConnectionArgs) -> Result<Option<Store>> {
    let Some(text) = super::list::as_url(target) else { return Ok(None) };
    let mut options = StoreOptions::default().s3(args.stores.s3());
    options.memory_bytes = memory_bytes.map_or(options.memory_bytes, |bytes| options.memory_bytes.min(bytes / 2));
    let client = Client::new(&args.options())?;
    Store::open(&text.parse::<Target>()?, &options, &client).map(Some)
}

/// Reads the index that `publish` keeps in a target; `None` if there is none.
pub fn read_index(store: &Store, ui: &Ui) -> Result<Option<SmallFile>> {
    let path = LISTING_PATH.trim_start_matches('/');
    if let Target::Dir(dir) = store.target()
        && std::fs::symlink_metadata(dir.join(path)).is_err_and(|error| error.kind() == ErrorKind::NotADirectory)
    {
        // One of the directories in the path is a file, so the target has no index.
        return Ok(None);
    }
    let (dirs, name) = path.rsplit_once('/').unwrap_or_default();
    let mut dir = store.clone();
    for name in dirs.split('/') {
        let Some(inner) = dir.open_dir(name)? else { return Ok(None) };
        dir = inner;
    }
    dir.get_small_file(name, LIST_BYTES_MAX, ui)
}

/// Tells whether the times in bank files are read, which needs more requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BankTimes {
    Read,
    LeaveOut,
}

/// Lists the archives of a store. A few small requests for each incremental archive tell whether `rebase` made
/// it. With [`BankTimes::Read`], a few requests for each archive read the front of its bank file.
pub fn read_catalog(store: &Store, times: BankTimes, args: &ConnectionArgs, ui: &Ui) -> Result<Catalog> {
    let dir = store.target().to_string();
    let client = Client::new(&args.options())?;
    let mut archives = Vec::new();
    // The slot of the newest full archive, and its bank file.
    let mut newest: Option<(u64, BankFile)> = None;
    for object in store.list(ui)? {
        let Some(name) = ArchiveName::parse(&object.name) else { continue };
        ui.check()?;
        let mut archive = ListedArchive::new(name, &dir, object.length_bytes);
        archive.modified_ns = unix_ns(object.modified);
        if times == BankTimes::Read || !archive.is_full() {
            let url = parse_url(&format!("{}/{}", dir.trim_end_matches('/'), archive.name))?;
            let source = UrlSource::open(&client, &url, CancelToken::from(ui.stop_flag())).ok();
            // An archive that cannot be read is treated as one that a validator made, so its full archive is kept.
            archive.hashes = source.as_ref().and_then(|source| judge_source(source).ok()?);
            if times == BankTimes::Read
                && let Some(bank) = source.and_then(|source| read_bank(source, &archive.name))
            {
                archive.bank_unix_seconds = bank.time().map(|time| unix_ns(time) / 1_000_000_000);
                if archive.is_full() && newest.as_ref().is_none_or(|(slot, _)| *slot < archive.name.slot) {
                    newest = Some((archive.name.slot, bank));
                }
            }
        }
        archives.push(archive);
    }
    let mut catalog = Catalog::from_lengths(archives);
    if let Some((_, bank)) = newest {
        catalog.slot_time = bank.slot_time().unwrap_or_default();
        catalog.epoch_schedule = Some(bank.epoch_schedule);
    }
    Ok(catalog)
}

fn read_bank(source: UrlSource, name: &ArchiveName) -> Option<BankFile> {
    let name = Some(name.clone());
    let opened = archive::OpenArchive::from_source(Arc::new(source), name, &IoPolicy::default());
    front::read_bank_by_index(&opened.ok()?)
}
