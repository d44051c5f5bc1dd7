//! Options of stores.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use derive_setters::Setters;
use parking_lot::Mutex;
use slotpress_base::Result;
use slotpress_net::{Answer, Client, ClientOptions, NetError, Stores, Url};

use crate::bucket::Bucket;

/// How buckets are reached. Credentials are not an option: they come from the environment, a
/// profile in AWS's configuration, or the machine's metadata service.
#[derive(Clone, Debug, Default, Setters)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct S3Options {
    /// URL of a service with S3's interface. Default: `AWS_ENDPOINT_URL`, or AWS itself.
    #[setters(into)]
    pub endpoint: Option<String>,
    /// Region. Default: that of `AWS_REGION` or the profile.
    #[setters(into)]
    pub region: Option<String>,
    /// Does not sign requests, for public buckets. Default: false.
    pub anonymous: bool,
    /// Buckets in use; clones share them and their credentials.
    #[setters(skip)]
    buckets: Buckets,
}

type Buckets = Arc<Mutex<BTreeMap<String, Arc<Bucket>>>>;

/// Options for writing targets.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct StoreOptions {
    /// How buckets are reached.
    pub s3: S3Options,
    /// Memory for the parts of one upload, in bytes: the size of a part times the number in flight.
    /// Default: 256 MiB.
    pub memory_bytes: u64,
    /// Time without success after which a failing store is given up. Default: 10 minutes, longer
    /// than it takes to move a service to another machine.
    pub give_up_after: Duration,
    /// Repeats requests also to a store that has never answered, as a service does. Default: false,
    /// so that a wrong endpoint is noticed at once.
    pub waits_for_first: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            s3: S3Options::default(),
            memory_bytes: 256 << 20,
            give_up_after: Duration::from_secs(600),
            waits_for_first: false,
        }
    }
}

impl S3Options {
    /// Lets a client read URLs `s3://BUCKET/KEY` with these options.
    #[must_use]
    pub fn for_client(&self, mut client: ClientOptions) -> ClientOptions {
        client.stores = Some(Arc::new(self.clone()));
        client
    }

    pub(crate) fn bucket(&self, client: &Client, url: &Url) -> Result<Arc<Bucket>> {
        let name = url.host_str().unwrap_or_default().to_string();
        let mut buckets = self.buckets.lock();
        if let Some(bucket) = buckets.get(&name) {
            return Ok(bucket.clone());
        }
        let bucket = Arc::new(Bucket::open(client, &name, self)?);
        buckets.insert(name, bucket.clone());
        Ok(bucket)
    }

    fn bucket_for_net(&self, client: &Client, url: &Url) -> Result<Arc<Bucket>, NetError> {
        self.bucket(client, url).map_err(|error| crate::failure::to_net_error(url, &error))
    }
}

impl Stores for S3Options {
    fn signed<'a>(
        &'a self,
        client: &'a Client,
        method: &'a slotpress_net::reqwest::Method,
        url: &'a Url,
    ) -> Answer<'a, Url> {
        Box::pin(async move { self.bucket_for_net(client, url)?.signed(method, url).await })
    }

    fn why_not<'a>(&'a self, client: &'a Client, url: &'a Url) -> Answer<'a, ()> {
        Box::pin(async move { self.bucket_for_net(client, url)?.why_not(url).await })
    }

    fn names<'a>(&'a self, client: &'a Client, url: &'a Url) -> Answer<'a, Vec<String>> {
        Box::pin(async move {
            let objects = self.bucket_for_net(client, url)?.list(url).await;
            Ok(objects?.into_iter().map(|object| object.name).collect())
        })
    }
}
