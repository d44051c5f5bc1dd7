//! Answers requests by their paths. Does not handle sockets.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::body::Bytes;
use hyper::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HOST,
    HeaderName, HeaderValue, LAST_MODIFIED, LOCATION, RETRY_AFTER, SERVER,
};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use rustix::fs::Stat;
use slotpress_base::text::{cut, json};
use slotpress_base::{KeptDir, clock, range_bytes};
use slotpress_format::GENESIS_ARCHIVE_NAME;
use slotpress_format::archive::listing;
use slotpress_read::catalog::{Archive, scan};

use super::conditions::{FileAnswer, Version, decide_answer};
use super::connection::{Endpoint, Site};
use super::files::Reading;
use super::limits::Admission;
use super::proxies::{find_client, is_trusted};
use super::tell::Facts;
use super::transfers::Running;
use super::{Server, metrics, page};

#[derive(Debug)]
pub enum Content {
    Bytes(Bytes),
    File(FileContent),
}

#[derive(Debug)]
pub struct FileContent {
    pub reading: Arc<Reading>,
    pub running: Running,
    /// Admission of the connection, or of the client behind a proxy, whose limits then apply.
    pub admission: Arc<Admission>,
}

const METHODS: &str = "GET, HEAD, OPTIONS";

pub async fn answer(
    endpoint: &Endpoint,
    client: SocketAddr,
    admission: &Arc<Admission>,
    request: &Parts,
    has_body: bool,
) -> Response<Content> {
    let mut response = match &endpoint.site {
        Site::Metrics(facts) => without_body(request, answer_metrics(&**facts, request)),
        Site::Archives(server) => {
            let admission = admission.clone();
            let is_tls = endpoint.certificates.is_some();
            let exchange = Exchange { server, client, admission, is_tls, request };
            exchange.answer(has_body).await
        }
    };
    if has_body {
        response = with_header(response, CONNECTION, "close");
    }
    with_header(response, SERVER, "slotpress")
}

struct Exchange<'a> {
    server: &'a Server,
    client: SocketAddr,
    admission: Arc<Admission>,
    is_tls: bool,
    request: &'a Parts,
}

impl Exchange<'_> {
    async fn answer(mut self, has_body: bool) -> Response<Content> {
        let trusted = &self.server.options.trusted_proxies;
        if is_trusted(self.client.ip(), trusted) {
            let client = find_client(self.client.ip(), &self.request.headers, trusted);
            self.client = SocketAddr::new(client, 0);
            match self.server.limits.admit_request(client) {
                Ok(admission) => self.admission = Arc::new(admission),
                Err(refusal) => {
                    self.server.metrics.count_refused(refusal);
                    return self.log(try_again("Too many requests of one client.\n"));
                }
            }
        }
        let response = match self.request.method {
            _ if !is_for_one_host(self.request) => {
                let words = "A request needs exactly one Host field.\n";
                reply(StatusCode::BAD_REQUEST, words)
            }
            Method::GET | Method::HEAD | Method::OPTIONS if has_body => {
                let words = "A request must not have a body.\n";
                reply(StatusCode::PAYLOAD_TOO_LARGE, words)
            }
            Method::GET | Method::HEAD => self.route().await,
            Method::OPTIONS => with_header(empty(StatusCode::NO_CONTENT), ALLOW, METHODS),
            _ => not_allowed("Only GET, HEAD and OPTIONS are allowed.\n", METHODS),
        };
        self.log(without_body(self.request, response))
    }

    /// Counts an answer, and logs it unless it belongs to a transfer, which is logged at its end.
    fn log(&self, response: Response<Content>) -> Response<Content> {
        let status = response.status().as_u16();
        self.server.metrics.count_response(status);
        if let Content::Bytes(bytes) = response.body() {
            let request = format!("{} {}", self.request.method, self.request.uri.path());
            let request = cut(&request, LOGGED_CHARS_MAX);
            self.server.log_answer(self.client.ip(), request, status, bytes.len() as u64);
        }
        response
    }

    async fn route(&self) -> Response<Content> {
        let server = self.server;
        let path = self.request.uri.path();
        let file_name = path.strip_prefix('/').unwrap_or_default();
        match path {
            "/" => {
                let headers = &self.request.headers;
                let host = headers.get(HOST).and_then(|host| host.to_str().ok());
                let html = page::render_page(&server.list(), host.unwrap_or_default(), self.is_tls);
                let mut response = uncached_text("text/html; charset=utf-8", html);
                for (name, value) in page::HEADERS.iter() {
                    response = with_header(response, name.clone(), value);
                }
                response
            }
            "/healthz" => answer_health(server),
            listing::LISTING_PATH => uncached_text("application/json", json(&server.list())),
            listing::NEWEST_FULL | listing::NEWEST_INCREMENTAL => {
                let archives = server.archives.last_scan();
                match archives.choice() {
                    Some(choice) if path == listing::NEWEST_FULL => see_other(Some(choice.full)),
                    choice => see_other(choice.and_then(|choice| choice.incremental)),
                }
            }
            _ if file_name == GENESIS_ARCHIVE_NAME => self.send_genesis().await,
            _ => self.send_archive(file_name).await,
        }
    }

    async fn send_archive(&self, file_name: &str) -> Response<Content> {
        let Some(archive) = self.server.archives.last_scan().find(file_name).cloned() else { return not_found() };
        let to_open = archive.clone();
        let opened = tokio::task::spawn_blocking(move || to_open.open()).await;
        let (file, stat) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => return not_found(),
            // Lack of descriptors, missing permission or a broken disk: details do not concern
            // clients.
            Ok(Err(_)) | Err(_) => return try_again("The archive cannot be read.\n"),
        };
        // The opened file is sent: another one may have taken the name since the scan.
        let opened = Archive {
            file_id: scan::file_id(&stat),
            size_bytes: u64::try_from(stat.st_size).unwrap_or_default(),
            modified_ns: scan::modified_ns(&stat),
            ..archive.clone()
        };
        let hashes = if opened == archive { archive.hashes } else { None };
        let etag = Archive { hashes, ..opened }.etag();
        self.send(OpenFile {
            name: archive.name.to_string(),
            content_type: archive.name.compression.content_type(),
            file,
            stat,
            etag,
        })
    }

    /// Sends the genesis archive that `publish` puts beside archives.
    async fn send_genesis(&self) -> Response<Content> {
        let options = self.server.options.clone();
        let opened = tokio::task::spawn_blocking(move || open_genesis(&options.dirs)).await;
        let Ok(Some((file, stat))) = opened else { return not_found() };
        self.send(OpenFile {
            name: GENESIS_ARCHIVE_NAME.to_string(),
            content_type: "application/x-bzip2",
            etag: format!("\"{:x}-{:x}\"", stat.st_size, scan::modified_ns(&stat)),
            file,
            stat,
        })
    }

    /// Sends a file or a part of it, or another answer if a condition of the request asks for that.
    fn send(&self, open: OpenFile) -> Response<Content> {
        let Parts { method, headers, .. } = self.request;
        let length_bytes = u64::try_from(open.stat.st_size).unwrap_or_default();
        let seconds = scan::modified_ns(&open.stat) / 1_000_000_000;
        let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        let modified = modified.unwrap_or(SystemTime::UNIX_EPOCH);
        let version = Version { etag: open.etag, modified, length_bytes };
        let (status, range) = match decide_answer(method, headers, &version, clock::now()) {
            FileAnswer::Whole => (StatusCode::OK, 0..length_bytes),
            FileAnswer::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
            FileAnswer::NotModified => return with_version(StatusCode::NOT_MODIFIED, &version),
            FileAnswer::PreconditionFailed => return reply(StatusCode::PRECONDITION_FAILED, "The file has changed.\n"),
            FileAnswer::Unsatisfiable => {
                let words = "The file does not have these bytes.\n";
                let response = reply(StatusCode::RANGE_NOT_SATISFIABLE, words);
                return with_header(response, CONTENT_RANGE, &format!("bytes */{length_bytes}"));
            }
        };
        let mut response = with_version(status, &version);
        response = with_header(response, CONTENT_LENGTH, &range_bytes(&range).to_string());
        response = with_header(response, CONTENT_TYPE, open.content_type);
        // A proxy that compresses or cuts the file would invalidate its entity tag.
        response = with_header(response, CACHE_CONTROL, "no-transform");
        if status == StatusCode::PARTIAL_CONTENT {
            let first = range.start;
            let last = range.end.saturating_sub(1);
            response = with_header(response, CONTENT_RANGE, &format!("bytes {first}-{last}/{length_bytes}"));
        }
        if *method == Method::GET && !range.is_empty() {
            let Server { transfers, files, options, .. } = self.server;
            let is_whole = range == (0..length_bytes);
            let running = transfers.start(open.name, self.client, range.clone(), is_whole);
            let shared = files.share(open.file, &open.stat, options.io_hint);
            let reading = Arc::new(Reading::new(shared, range));
            let admission = self.admission.clone();
            *response.body_mut() = Content::File(FileContent { reading, running, admission });
        }
        response
    }
}

fn open_genesis(dirs: &[PathBuf]) -> Option<(File, Stat)> {
    let open = |dir: &PathBuf| KeptDir::open(dir).ok()?.open_file(GENESIS_ARCHIVE_NAME).ok();
    let file = dirs.iter().find_map(open)?;
    let stat = rustix::fs::fstat(&file).ok()?;
    Some((file, stat))
}

const LOGGED_CHARS_MAX: usize = 256;

/// Returns true if the request names exactly one host (RFC 9112, 3.2).
fn is_for_one_host(request: &Parts) -> bool {
    let hosts = request.headers.get_all(HOST).iter().count();
    hosts == 1 || (hosts == 0 && request.version == hyper::Version::HTTP_10)
}

/// Removes the body of an answer to HEAD, including errors.
fn without_body(request: &Parts, mut response: Response<Content>) -> Response<Content> {
    if request.method == Method::HEAD {
        *response.body_mut() = Content::Bytes(Bytes::new());
    }
    response
}

fn answer_metrics(facts: &dyn Facts, request: &Parts) -> Response<Content> {
    match request.uri.path() {
        _ if ![Method::GET, Method::HEAD].contains(&request.method) => {
            not_allowed("Only GET and HEAD are allowed.\n", "GET, HEAD")
        }
        "/metrics" => uncached_text(metrics::CONTENT_TYPE, metrics::encode_text(&facts.metrics())),
        "/healthz" => answer_health(facts),
        _ => reply(StatusCode::NOT_FOUND, "Metrics are at /metrics.\n"),
    }
}

fn answer_health(facts: &dyn Facts) -> Response<Content> {
    match facts.health() {
        Ok(()) => uncached_text(PLAIN, "ok\n".into()),
        Err(why) => reply(StatusCode::SERVICE_UNAVAILABLE, &format!("{why}\n")),
    }
}

struct OpenFile {
    name: String,
    content_type: &'static str,
    file: File,
    stat: Stat,
    etag: String,
}

fn not_allowed(words: &str, methods: &str) -> Response<Content> {
    with_header(reply(StatusCode::METHOD_NOT_ALLOWED, words), ALLOW, methods)
}

fn see_other(archive: Option<&Archive>) -> Response<Content> {
    let Some(archive) = archive else { return not_found() };
    let response = with_header(empty(StatusCode::SEE_OTHER), CONTENT_LENGTH, "0");
    let response = with_header(response, LOCATION, &format!("/{}", archive.name));
    with_header(response, CACHE_CONTROL, "no-cache")
}

fn not_found() -> Response<Content> {
    reply(StatusCode::NOT_FOUND, "There is no such archive.\n")
}

fn with_version(status: StatusCode, version: &Version) -> Response<Content> {
    let modified = httpdate::fmt_http_date(version.modified);
    let response = with_header(empty(status), ETAG, &version.etag);
    let response = with_header(response, LAST_MODIFIED, &modified);
    with_header(response, ACCEPT_RANGES, "bytes")
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn reply(status: StatusCode, words: &str) -> Response<Content> {
    with_text(status, PLAIN, words.to_string())
}

/// Makes an answer to a client that may ask again in a moment.
fn try_again(words: &str) -> Response<Content> {
    let response = reply(StatusCode::SERVICE_UNAVAILABLE, words);
    with_header(response, RETRY_AFTER, "5")
}

/// Makes an answer with dynamic content, which must not be cached.
fn uncached_text(content_type: &str, text: String) -> Response<Content> {
    let response = with_text(StatusCode::OK, content_type, text);
    with_header(response, CACHE_CONTROL, "no-cache")
}

fn with_text(status: StatusCode, content_type: &str, text: String) -> Response<Content> {
    let mut response = with_header(empty(status), CONTENT_LENGTH, &text.len().to_string());
    *response.body_mut() = Content::Bytes(text.into());
    with_header(response, CONTENT_TYPE, content_type)
}

fn empty(status: StatusCode) -> Response<Content> {
    let mut response = Response::new(Content::Bytes(Bytes::new()));
    *response.status_mut() = status;
    response
}

fn with_header(mut response: Response<Content>, name: HeaderName, value: &str) -> Response<Content> {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
    response
}
