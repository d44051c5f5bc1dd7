//! The client: its threads, its pools of connections, name lookup, and how an ordinary thread waits
//! for an asynchronous request.

use std::collections::BTreeSet;
use std::fs::File;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Proxy};
use slotpress_base::{
    Error, EscapePath, IoContext, Progress, Result, TokenBucket, hint, panic_point, read_at_most, spawn_error,
};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::address::is_public;
use super::redirect::{Reach, Scope};
use super::{ClientOptions, NetError, NetErrorKind, Url, show_url};

/// Number of threads for transfers and TLS handshakes. More threads would not help, because callers
/// process the bytes on their own threads.
const THREADS: usize = 2;

/// Limit on the threads that look up names. Each lookup blocks one of them.
const LOOKUP_THREADS_MAX: usize = 32;

const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);

const ADDRESSES_MAX: usize = 16;

/// Limit on the number of headers of a response. The HTTP library limits their size (about 400 KiB).
const HEADERS_MAX: usize = 64;

const IDLE_CONNECTIONS_MAX: usize = 16;

/// Limit on the size of a certificate file. Even the file with all authorities that a system trusts has
/// less than 1 MiB.
const CA_FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Makes requests to servers. Clones share threads, connections and the rate limit.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) inner: Arc<Inner>,
    /// True if the operator named the requested URLs: these may have private addresses.
    pub(super) trusts_urls: bool,
    #[cfg(feature = "s3")]
    pub(super) s3: Option<crate::s3::S3Options>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) options: ClientOptions,
    /// Limits the rate of all transfers together. Its times are counted from `start`.
    token_bucket: Option<Mutex<TokenBucket>>,
    start: Instant,
    http_anywhere: reqwest::Client,
    http_public: reqwest::Client,
    /// `None` only while the client is being dropped.
    runtime: Option<Runtime>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A lookup that hangs must not keep the program from ending.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[warn(missing_docs)]
impl Client {
    /// Creates a client and starts its threads. Makes no connection yet.
    ///
    /// # Errors
    /// The certificate file or the proxy is not valid, or threads cannot be started.
    pub fn new(options: &ClientOptions) -> Result<Self> {
        Self::with_resolver(options, &|reach| Arc::new(Resolver { reach, trusted_hosts: proxy_hosts(options) }))
    }

    fn with_resolver(options: &ClientOptions, resolver: &dyn Fn(Reach) -> Arc<dyn Resolve>) -> Result<Self> {
        // Fails if the process already has a provider of cryptography, which is then used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(LOOKUP_THREADS_MAX)
            .thread_name("slotpress-net")
            .enable_all()
            .build()
            .map_err(|error| spawn_error(&error))?;
        let certificates = match &options.ca_file {
            Some(path) => read_certificates(path)?,
            None => Vec::new(),
        };
        let inner = Inner {
            token_bucket: options.max_rate_bytes_per_second.map(|rate| Mutex::new(TokenBucket::new(rate))),
            start: Instant::now(),
            http_anywhere: build_http_client(options, &certificates, &resolver(Reach::Anywhere))?,
            http_public: build_http_client(options, &certificates, &resolver(Reach::PublicOnly))?,
            runtime: Some(runtime),
            options: options.clone(),
        };
        Ok(Self {
            inner: Arc::new(inner),
            trusts_urls: true,
            #[cfg(feature = "s3")]
            s3: options.s3.clone(),
        })
    }

    /// Returns the scope of a request. `named_url` is its URL, if the operator named it.
    pub(super) fn scope<'a>(&self, named_url: Option<&'a Url>) -> Scope<'a> {
        Scope { named_url, allow_private: self.inner.options.allow_private }
    }
}

// Only the crates of the workspace use these functions.
#[doc(hidden)]
impl Client {
    /// Returns the same client for URLs that the operator did not name (of peers, for example). These URLs
    /// must have public addresses, unless the options allow private ones.
    #[must_use]
    pub fn for_untrusted_urls(&self) -> Self {
        Self { trusts_urls: false, ..self.clone() }
    }

    /// Returns the HTTP client for requests that callers make themselves. It may connect to any address,
    /// and does not follow redirects.
    pub fn http_client(&self) -> &reqwest::Client {
        self.inner.http_client(Reach::Anywhere)
    }

    pub fn spawn<T: Send + 'static>(&self, tasks: &mut JoinSet<T>, work: impl Future<Output = T> + Send + 'static) {
        if let Some(runtime) = &self.inner.runtime {
            tasks.spawn_on(work, runtime.handle());
        }
    }

    /// Refuses to run on a thread of a tokio runtime, which waiting would block.
    ///
    /// # Errors
    /// [`NetErrorKind::InsideRuntime`] on such a thread.
    pub fn check_thread(&self) -> Result<(), NetError> {
        if Handle::try_current().is_err() {
            return Ok(());
        }
        let why = "called inside a tokio runtime, whose thread it would block";
        Err(NetError::without_url(NetErrorKind::InsideRuntime, why)
            .with_hint("call it on a thread of its own: std::thread::spawn"))
    }

    /// Blocks the calling thread until `work` is done.
    ///
    /// # Errors
    /// `work` fails, `progress` is interrupted, or the thread belongs to a tokio runtime.
    pub fn block_on<T>(
        &self,
        progress: &dyn Progress,
        work: impl Future<Output = Result<T, NetError>>,
    ) -> Result<T, NetError> {
        let Some(runtime) = &self.inner.runtime else { return Err(NetError::interrupted()) };
        self.check_thread()?;
        if progress.is_interrupted() {
            return Err(NetError::interrupted());
        }
        runtime.handle().block_on(async {
            // A transfer calls this function for each piece of its body. If the piece has already arrived,
            // the timer is not polled.
            let mut ticks = interval(STOP_CHECK_INTERVAL);
            ticks.reset();
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut work = pin!(work);
            loop {
                tokio::select! {
                    biased;
                    result = work.as_mut() => return result,
                    _ = ticks.tick() => {
                        if progress.is_interrupted() {
                            return Err(NetError::interrupted());
                        }
                    }
                }
            }
        })
    }
}

impl Inner {
    /// Counts bytes against the rate limit. Returns the time to wait before receiving more.
    pub(super) fn count_against_rate(&self, bytes: u64) -> Duration {
        match &self.token_bucket {
            Some(bucket) => bucket.lock().take(self.start.elapsed(), bytes),
            None => Duration::ZERO,
        }
    }

    pub(super) fn http_client(&self, reach: Reach) -> &reqwest::Client {
        match reach {
            Reach::Anywhere => &self.http_anywhere,
            Reach::PublicOnly => &self.http_public,
        }
    }
}

/// Creates an HTTP client with its own pool of connections. Each [`Reach`] needs its own: a request that
/// may reach only public addresses must not reuse a connection to a private address.
fn build_http_client(
    options: &ClientOptions,
    certificates: &[Certificate],
    resolver: &Arc<dyn Resolve>,
) -> Result<reqwest::Client> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let proxy = options.proxy.as_deref().map(parse_proxy).transpose()?;
    let builder = || {
        let builder = reqwest::Client::builder()
            .user_agent(concat!("slotpress/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers.clone())
            .redirect(Policy::none())
            .referer(false)
            .http1_only()
            .http1_max_headers(HEADERS_MAX)
            .tcp_nodelay(true)
            .connect_timeout(options.connect_timeout)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .dns_resolver(Arc::clone(resolver));
        match &proxy {
            Some(proxy) => builder.proxy(proxy.clone()),
            None => builder,
        }
    };
    let mut http_client = builder().tls_certs_merge(certificates.iter().cloned()).build();
    // Building fails if the system has no certificates of authorities. Such a machine can still use
    // servers without TLS, and servers with certificates from --ca-file.
    if http_client.is_err() {
        http_client = builder().tls_certs_only(certificates.iter().cloned()).build();
    }
    http_client.map_err(|error| Error::failed(format!("cannot set up the HTTP client: {}", error.without_url())))
}

fn read_certificates(path: &Path) -> Result<Vec<Certificate>> {
    let pem = read_at_most(File::open(path).or_path("open", path)?, CA_FILE_BYTES_MAX + 1, path)?;
    let certificates = Certificate::from_pem_bundle(&pem).unwrap_or_default();
    if certificates.is_empty() || pem.len() as u64 > CA_FILE_BYTES_MAX {
        return Err(Error::usage(format!("{} is not a certificate file", path.escaped())).with_hint(
            "it must contain certificates of authorities in PEM (-----BEGIN CERTIFICATE-----), at most 8 MiB",
        ));
    }
    Ok(certificates)
}

fn parse_proxy(text: &str) -> Result<Proxy> {
    let url = super::parse_url(text).map_err(|error| error.with_place("the proxy"))?;
    Proxy::all(url.clone()).map_err(|_| Error::usage(format!("{} cannot be a proxy", show_url(&url))))
}

/// Returns the host names of proxies. The operator chose them, so they may be private.
fn proxy_hosts(options: &ClientOptions) -> BTreeSet<String> {
    const VARIABLES: [&str; 6] = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    let mut hosts = BTreeSet::new();
    let variables = VARIABLES.into_iter().filter_map(|name| std::env::var(name).ok());
    for text in variables.chain(options.proxy.clone()) {
        let mut url = Url::parse(&text);
        // Variables may omit the scheme.
        if !url.as_ref().is_ok_and(Url::has_host) {
            url = Url::parse(&format!("http://{text}"));
        }
        hosts.extend(url.ok().and_then(|url| url.host_str().map(str::to_ascii_lowercase)));
    }
    hosts
}

/// Looks up names, and removes addresses to which connections are not allowed. Connections use the
/// returned addresses, so no second lookup can lead elsewhere.
#[derive(Debug)]
struct Resolver {
    reach: Reach,
    /// Hosts that may have any address: the proxies.
    trusted_hosts: BTreeSet<String>,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_ascii_lowercase();
        let reach = if self.trusted_hosts.contains(&host) { Reach::Anywhere } else { self.reach };
        Box::pin(async move {
            panic_point("resolver");
            let all_addresses = tokio::net::lookup_host((host, 0)).await?;
            let addresses = select_addresses(all_addresses, reach)?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Returns the addresses of a host to which a connection is allowed, at most [`ADDRESSES_MAX`].
///
/// # Errors
/// Only public addresses are allowed, and the host has none.
fn select_addresses(all: impl Iterator<Item = SocketAddr>, reach: Reach) -> Result<Vec<SocketAddr>, NetError> {
    let mut addresses: Vec<SocketAddr> = all.take(ADDRESSES_MAX).collect();
    if addresses.is_empty() || reach == Reach::Anywhere {
        return Ok(addresses);
    }
    addresses.retain(|address| is_public(address.ip()));
    if addresses.is_empty() {
        let why = "its name resolves to a private address";
        return Err(NetError::without_url(NetErrorKind::Forbidden, why).with_hint(hint::ALLOW_PRIVATE));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use slotpress_base::{KeptDir, NoProgress};

    use super::*;
    use crate::{Download, FetchLimits, PartialFile};

    /// Resolver that fails a given number of lookups, and then returns this machine's address.
    #[derive(Clone, Default)]
    struct FailingResolver {
        remaining_failures: Arc<AtomicUsize>,
    }

    impl Resolve for FailingResolver {
        fn resolve(&self, _: Name) -> Resolving {
            let must_fail =
                self.remaining_failures.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1)).is_ok();
            Box::pin(async move {
                if must_fail {
                    Err(std::io::Error::other("temporary failure in name resolution").into())
                } else {
                    Ok(Box::new(std::iter::once(SocketAddr::from(([127, 0, 0, 1], 0)))) as Addrs)
                }
            })
        }
    }

    /// Serves ranges of some bytes, with one response per connection.
    fn serve_ranges(listener: &TcpListener, bytes: &[u8]) {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines().map_while(std::io::Result::ok);
            let is_head = lines.next().is_some_and(|line| line.starts_with("HEAD"));
            let range = lines.take_while(|line| !line.is_empty()).find_map(|line| {
                let line = line.to_ascii_lowercase();
                let (first, last) = line.strip_prefix("range: bytes=")?.split_once('-')?;
                Some(first.parse::<usize>().ok()?..last.parse::<usize>().ok()? + 1)
            });
            let length = bytes.len();
            let (status, body) = match &range {
                Some(range) => (
                    format!("206 x\r\nContent-Range: bytes {}-{}/{length}", range.start, range.end - 1),
                    &bytes[range.clone()],
                ),
                None => ("200 x\r\nAccept-Ranges: bytes".to_string(), bytes),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nETag: \"a\"\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let body = if is_head { &[][..] } else { body };
            (&stream).write_all(&[head.as_bytes(), body].concat()).expect("sent");
        }
    }

    #[test]
    fn a_download_outlives_failed_name_lookups() {
        let failing = FailingResolver::default();
        let resolver = || -> Arc<dyn Resolve> { Arc::new(failing.clone()) };
        let client = Client::with_resolver(&ClientOptions::default(), &|_| resolver()).expect("a client");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let name = "snapshot-26-5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt.tar.zst";
        // A frame of 4,096 zeros passes as an archive until it is unpacked.
        let bytes = [0x28, 0xb5, 0x2f, 0xfd, 0x60, 0x00, 0x0f, 0x03, 0x80, 0x00, 0x00];
        std::thread::spawn(move || serve_ranges(&listener, &bytes));
        let url = Url::parse(&format!("http://mirror.example:{port}/{name}")).expect("a URL");
        let remote = client.head(&url, &NoProgress).expect("a head");
        let fetch = |failures, give_up_after| {
            let dir = tempfile::tempdir().expect("a directory");
            failing.remaining_failures.store(failures, Relaxed);
            let limits = FetchLimits::default().give_up_after(give_up_after);
            let remotes = vec![remote.clone()];
            let file = Arc::new(
                PartialFile::open(&Arc::new(KeptDir::open(dir.path()).expect("opened")), name).expect("a file"),
            );
            let download = Download::begin(client.clone(), file, remotes, limits, &NoProgress).expect("begins");
            download.run(&NoProgress).map(drop)
        };
        fetch(3, Duration::from_secs(60)).expect("fetched, when the name is found again");
        assert_eq!(failing.remaining_failures.load(Relaxed), 0);
        let error = fetch(usize::MAX, Duration::from_millis(300)).expect_err("the name is never found");
        assert_eq!(error.kind().exit_code(), 4, "{error}");
    }

    /// Resolver that never answers.
    struct HangingResolver;

    impl Resolve for HangingResolver {
        fn resolve(&self, _: Name) -> Resolving {
            Box::pin(std::future::pending())
        }
    }

    /// `slotpress-stores` relies on this: a request to a store that was never reached is not retried.
    #[test]
    fn a_connection_that_takes_too_long_is_a_connection_error() {
        let options = ClientOptions::default().connect_timeout(Duration::from_millis(10));
        let client = Client::with_resolver(&options, &|_| Arc::new(HangingResolver)).expect("a client");
        let url = Url::parse("http://mirror.example/").expect("a URL");
        let error = client.head(&url, &NoProgress).expect_err("no connection");
        assert_eq!(error.kind(), NetErrorKind::Connect, "{error}");
    }

    #[test]
    fn private_addresses_of_hosts_are_left_out() {
        let addresses = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| SocketAddr::new(text.parse().expect("an address"), 0)).collect()
        };
        let mixed = addresses(&["10.0.0.1", "8.8.8.8", "::1"]);
        let public = select_addresses(mixed.clone().into_iter(), Reach::PublicOnly).expect("one is public");
        assert_eq!(public, addresses(&["8.8.8.8"]));
        assert_eq!(select_addresses(mixed.clone().into_iter(), Reach::Anywhere).expect("all"), mixed);
        assert!(select_addresses(addresses(&["127.0.0.1", "::1"]).into_iter(), Reach::PublicOnly).is_err());
        assert_eq!(select_addresses(std::iter::empty(), Reach::PublicOnly).expect("none").len(), 0);
        let many = (0..1000).map(|_| addresses(&["8.8.8.8"])[0]);
        assert_eq!(select_addresses(many, Reach::PublicOnly).expect("bounded").len(), ADDRESSES_MAX);
    }
}
