//! What commands that write to stores or read from them share: flags, and targets that are paths or URLs.

use std::path::Path;

use clap::Args;
use slotpress::catalog::{Archive, Catalog, unix_ns};
use slotpress::stores::{S3Options, Store, StoreOptions, Target};
use slotpress::{ArchiveName, Client, Progress, Result};

use super::network::ConnectionArgs;

/// How to reach stores.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Stores")]
pub struct StoreArgs {
    /// The service that has the buckets of s3:// [default: AWS_ENDPOINT_URL, or AWS]
    #[arg(long, value_name = "URL", env = "SLOTPRESS_ENDPOINT")]
    endpoint: Option<String>,
    /// The region of the buckets [default: AWS_REGION, or that of the profile, or us-east-1]
    #[arg(long, value_name = "NAME", env = "SLOTPRESS_REGION")]
    region: Option<String>,
    /// Read public buckets without credentials
    #[arg(long)]
    anonymous: bool,
}

impl StoreArgs {
    /// What the flags say.
    pub fn s3(&self) -> S3Options {
        let mut options = S3Options::default().anonymous(self.anonymous);
        options.endpoint = self.endpoint.clone();
        options.region = self.region.clone();
        options
    }
}

/// The store of a target that is one: paths are none. An upload takes at most half of so much memory.
///
/// # Errors
/// It is a URL of something else; the endpoint or the credentials in the environment make no sense.
pub fn store_of(target: &Path, memory_bytes: Option<u64>, args: &ConnectionArgs) -> Result<Option<Store>> {
    let Some(text) = target.to_str().filter(|text| text.contains("://")) else { return Ok(None) };
    let mut options = StoreOptions::default().s3(args.stores.s3());
    options.memory_bytes = memory_bytes.map_or(options.memory_bytes, |bytes| options.memory_bytes.min(bytes / 2));
    Store::open(&text.parse::<Target>()?, &options, &Client::new(&args.options())?).map(Some)
}

/// The archives in a store.
///
/// # Errors
/// The store refuses or fails.
pub fn catalog(store: &Store, progress: &dyn Progress) -> Result<Catalog> {
    let dir = store.target().to_string();
    let archives = store.list(progress)?.into_iter().filter_map(|object| {
        let name = ArchiveName::parse(&object.name)?;
        let modified_ns = unix_ns(object.modified);
        Some(Archive { modified_ns, ..Archive::of_server(name, &dir, object.length_bytes) })
    });
    Ok(Catalog::by_length(archives))
}
