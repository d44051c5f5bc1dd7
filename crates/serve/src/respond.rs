//! Answers requests according to their paths. Does not handle sockets.

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
use slotpress_base::text::{json, truncate};
use slotpress_base::{KeptDir, clock, range_bytes};
use slotpress_format::GENESIS_ARCHIVE_NAME;
use slotpress_format::archive::listing;
use slotpress_read::ListedArchive;
use slotpress_read::catalog::scan;

use super::conditions::{FileAnswer, FileVersion, decide_answer};
use super::connection::{Endpoint, Site};
use super::files::SharedFileReader;
use super::limits::Admission;
use super::monitoring::Monitored;
use super::proxies::{find_client, is_trusted};
use super::transfers::RunningRequest;
use super::{Server, metrics, page};

#[derive(Debug)]
pub enum Content {
    Bytes(Bytes),
    File(FileContent),
}

#[derive(Debug)]
pub struct FileContent {
    pub reader: Arc<SharedFileReader>,
    pub running_request: RunningRequest,
    /// Admission whose limits apply: of the connection or, behind a proxy, of the request.
    pub admission: Arc<Admission>,
    pub next_offset: u64,
    pub last_piece: Bytes,
}

pub type Reply = Response<Content>;

const ALLOWED_METHODS: &str = "GET, HEAD, OPTIONS";

const LOGGED_CHARS_MAX: usize = 256;

pub async fn answer(
    endpoint: &Endpoint,
    client: SocketAddr,
    admission: &Arc<Admission>,
    request: &Parts,
    has_body: bool,
) -> Reply {
    let mut response = match &endpoint.site {
        Site::Metrics(monitored) => answer_metrics(&**monitored, request),
        Site::Archives(server) => {
            let admission = admission.clone();
            let exchange = Exchange { server, client, admission, request };
            exchange.answer(has_body).await
        }
    };
    if has_body {
        response = with_header(response, CONNECTION, "close");
    }
    with_header(response, SERVER, "slotpress")
}

/// A request to the server of archives, and its client.
struct Exchange<'a> {
    server: &'a Server,
    client: SocketAddr,
    admission: Arc<Admission>,
    request: &'a Parts,
}

impl Exchange<'_> {
    async fn answer(mut self, has_body: bool) -> Reply {
        let trusted = &self.server.options.trusted_proxies;
        if is_trusted(self.client.ip(), trusted) {
            let client = find_client(self.client.ip(), &self.request.headers, trusted);
            self.client = SocketAddr::new(client, 0);
            match self.server.limits.admit_request(client) {
                Ok(admission) => self.admission = Arc::new(admission),
                Err(refusal) => {
                    self.server.metrics.count_refusal(refusal);
                    return self.record(unavailable_reply("Too many requests from one client.\n"));
                }
            }
        }
        if !has_required_host(self.request) {
            return self.record(reply(StatusCode::BAD_REQUEST, "A request needs exactly one Host field.\n"));
        }
        let response = match self.request.method {
            Method::GET | Method::HEAD | Method::OPTIONS if has_body => {
                let text = "A request must not have a body.\n";
                reply(StatusCode::PAYLOAD_TOO_LARGE, text)
            }
            Method::GET | Method::HEAD => self.route().await,
            Method::OPTIONS => with_header(empty_reply(StatusCode::NO_CONTENT), ALLOW, ALLOWED_METHODS),
            _ => not_allowed_reply("Only GET, HEAD and OPTIONS are allowed.\n", ALLOWED_METHODS),
        };
        self.record(response)
    }

    /// Counts a response, and logs it unless it starts a transfer: transfers are logged when they end. Returns the
    /// response, without the body if the request is a HEAD.
    fn record(&self, response: Reply) -> Reply {
        let response = strip_body_if_head(self.request, response);
        let status = response.status().as_u16();
        self.server.metrics.count_response(status);
        if let Content::Bytes(bytes) = response.body() {
            let request = format!("{} {}", self.request.method, self.request.uri.path());
            let request = truncate(&request, LOGGED_CHARS_MAX);
            self.server.log_response(self.client.ip(), request, status, bytes.len() as u64);
        }
        response
    }

    async fn route(&self) -> Reply {
        let server = self.server;
        let path = self.request.uri.path();
        let file_name = path.strip_prefix('/').unwrap_or_default();
        match path {
            "/" => {
                let headers = &self.request.headers;
                let host = headers.get(HOST).and_then(|host| host.to_str().ok());
                let is_tls = server.options.tls.is_some();
                let html = page::render_page(&server.list(), host.unwrap_or_default(), is_tls);
                let mut response = uncached_reply("text/html; charset=utf-8", html);
                for (name, value) in page::HEADERS.iter() {
                    response = with_header(response, name.clone(), value);
                }
                response
            }
            "/healthz" => answer_health(server),
            listing::LISTING_PATH => uncached_reply("application/json", json(&server.list())),
            listing::NEWEST_FULL | listing::NEWEST_INCREMENTAL => {
                let archives = server.archives.last_scan();
                match archives.choice() {
                    Some(choice) if path == listing::NEWEST_FULL => redirect_to(Some(choice.full)),
                    choice => redirect_to(choice.and_then(|choice| choice.incremental)),
                }
            }
            _ if file_name == GENESIS_ARCHIVE_NAME => self.send_genesis().await,
            _ => self.send_archive(file_name).await,
        }
    }

    async fn send_archive(&self, file_name: &str) -> Reply {
        let Some(archive) = self.server.archives.last_scan().find(file_name).cloned() else { return not_found_reply() };
        let to_open = archive.clone();
        let (file, stat) = match tokio::task::spawn_blocking(move || to_open.open()).await {
            Ok(Ok(file_and_stat)) => file_and_stat,
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => return not_found_reply(),
            // No descriptor is free, permission is missing, or the disk fails. Clients need no details.
            Ok(Err(_)) | Err(_) => return unavailable_reply("The archive cannot be read.\n"),
        };
        // Describes the file that was opened, because a different one may have taken the name since the scan.
        let mut opened = ListedArchive {
            file_id: scan::file_id(&stat),
            size_bytes: u64::try_from(stat.st_size).unwrap_or_default(),
            modified_ns: scan::modified_ns(&stat),
            ..archive.clone()
        };
        if opened != archive {
            opened.hashes = None;
        }
        self.send(ServedFile {
            name: archive.name.to_string(),
            content_type: archive.name.compression.content_type(),
            etag: opened.etag(),
            file,
            stat,
        })
    }

    /// Sends the genesis archive, if the operator has put one beside the archives.
    async fn send_genesis(&self) -> Reply {
        let options = self.server.options.clone();
        let opened = tokio::task::spawn_blocking(move || open_genesis(&options.dirs)).await;
        let Ok(Some((file, stat))) = opened else { return not_found_reply() };
        self.send(ServedFile {
            name: GENESIS_ARCHIVE_NAME.to_string(),
            content_type: "application/x-bzip2",
            etag: format!("\"{:x}-{:x}\"", stat.st_size, scan::modified_ns(&stat)),
            file,
            stat,
        })
    }

    /// Returns a response with the file or a part of it, or without it if a condition of the request is not met.
    fn send(&self, served: ServedFile) -> Reply {
        let Parts { method, headers, .. } = self.request;
        let length_bytes = u64::try_from(served.stat.st_size).unwrap_or_default();
        let seconds = scan::modified_ns(&served.stat) / 1_000_000_000;
        let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        let modified = modified.unwrap_or(SystemTime::UNIX_EPOCH);
        let version = FileVersion { etag: served.etag, modified, length_bytes };
        let (status, range) = match decide_answer(method, headers, &version, clock::now()) {
            FileAnswer::Whole => (StatusCode::OK, 0..length_bytes),
            FileAnswer::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
            FileAnswer::NotModified => return versioned_reply(StatusCode::NOT_MODIFIED, &version),
            FileAnswer::PreconditionFailed => return reply(StatusCode::PRECONDITION_FAILED, "The file has changed.\n"),
            FileAnswer::Unsatisfiable => {
                let text = "The file does not have these bytes.\n";
                let response = reply(StatusCode::RANGE_NOT_SATISFIABLE, text);
                return with_header(response, CONTENT_RANGE, &format!("bytes */{length_bytes}"));
            }
        };
        let mut response = versioned_reply(status, &version);
        response = with_header(response, CONTENT_LENGTH, &range_bytes(&range).to_string());
        response = with_header(response, CONTENT_TYPE, served.content_type);
        // A proxy that compresses or truncates the file would invalidate its entity tag.
        response = with_header(response, CACHE_CONTROL, "no-transform");
        if status == StatusCode::PARTIAL_CONTENT {
            let last = range.end.saturating_sub(1);
            let content_range = format!("bytes {}-{last}/{length_bytes}", range.start);
            response = with_header(response, CONTENT_RANGE, &content_range);
        }
        if *method == Method::GET && !range.is_empty() {
            let transfers = &self.server.transfers;
            let running_request = transfers.start_request(served.name, self.client, range.clone(), length_bytes);
            let io_hint = self.server.options.io_hint;
            let shared = self.server.files.share(served.file, &served.stat, io_hint);
            *response.body_mut() = Content::File(FileContent {
                next_offset: range.start,
                reader: Arc::new(SharedFileReader::new(shared, range)),
                running_request,
                admission: self.admission.clone(),
                last_piece: Bytes::new(),
            });
        }
        response
    }
}

fn open_genesis(dirs: &[PathBuf]) -> Option<(File, Stat)> {
    let mut opened_dirs = dirs.iter().filter_map(|dir| KeptDir::open(dir).ok());
    let file = opened_dirs.find_map(|dir| dir.open_file(GENESIS_ARCHIVE_NAME).ok())?;
    let stat = rustix::fs::fstat(&file).ok()?;
    Some((file, stat))
}

/// Returns true if the request has exactly one Host field, or none in HTTP/1.0 (RFC 9112, 3.2).
fn has_required_host(request: &Parts) -> bool {
    let hosts = request.headers.get_all(HOST).iter().count();
    hosts == 1 || (hosts == 0 && request.version == hyper::Version::HTTP_10)
}

/// Removes the body from the response to a HEAD request, even if the response reports an error.
fn strip_body_if_head(request: &Parts, mut response: Reply) -> Reply {
    if request.method == Method::HEAD {
        *response.body_mut() = Content::Bytes(Bytes::new());
    }
    response
}

fn answer_metrics(monitored: &dyn Monitored, request: &Parts) -> Reply {
    if ![Method::GET, Method::HEAD].contains(&request.method) {
        return not_allowed_reply("Only GET and HEAD are allowed.\n", "GET, HEAD");
    }
    let response = match request.uri.path() {
        "/metrics" => uncached_reply(metrics::CONTENT_TYPE, metrics::encode_text(&monitored.metrics())),
        "/healthz" => answer_health(monitored),
        _ => reply(StatusCode::NOT_FOUND, "Metrics are at /metrics.\n"),
    };
    strip_body_if_head(request, response)
}

fn answer_health(monitored: &dyn Monitored) -> Reply {
    match monitored.health() {
        Ok(()) => uncached_reply(PLAIN_TEXT, "ok\n".into()),
        Err(problem) => reply(StatusCode::SERVICE_UNAVAILABLE, &format!("{problem}\n")),
    }
}

struct ServedFile {
    name: String,
    content_type: &'static str,
    file: File,
    stat: Stat,
    etag: String,
}

fn not_allowed_reply(text: &str, methods: &str) -> Reply {
    with_header(reply(StatusCode::METHOD_NOT_ALLOWED, text), ALLOW, methods)
}

fn redirect_to(archive: Option<&ListedArchive>) -> Reply {
    let Some(archive) = archive else { return not_found_reply() };
    let response = with_header(empty_reply(StatusCode::SEE_OTHER), CONTENT_LENGTH, "0");
    let response = with_header(response, LOCATION, &format!("/{}", archive.name));
    with_header(response, CACHE_CONTROL, "no-cache")
}

fn not_found_reply() -> Reply {
    reply(StatusCode::NOT_FOUND, "There is no such archive.\n")
}

fn versioned_reply(status: StatusCode, version: &FileVersion) -> Reply {
    let modified = httpdate::fmt_http_date(version.modified);
    let response = with_header(empty_reply(status), ETAG, &version.etag);
    let response = with_header(response, LAST_MODIFIED, &modified);
    with_header(response, ACCEPT_RANGES, "bytes")
}

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

fn reply(status: StatusCode, text: &str) -> Reply {
    reply_with_type(status, PLAIN_TEXT, text.to_string())
}

/// Creates a response that asks the client to try again after five seconds.
fn unavailable_reply(text: &str) -> Reply {
    let response = reply(StatusCode::SERVICE_UNAVAILABLE, text);
    with_header(response, RETRY_AFTER, "5")
}

/// Creates a response with dynamic content, which caches must revalidate.
fn uncached_reply(content_type: &str, text: String) -> Reply {
    let response = reply_with_type(StatusCode::OK, content_type, text);
    with_header(response, CACHE_CONTROL, "no-cache")
}

fn reply_with_type(status: StatusCode, content_type: &str, text: String) -> Reply {
    let mut response = with_header(empty_reply(status), CONTENT_LENGTH, &text.len().to_string());
    *response.body_mut() = Content::Bytes(text.into());
    with_header(response, CONTENT_TYPE, content_type)
}

fn empty_reply(status: StatusCode) -> Reply {
    let mut response = Response::new(Content::Bytes(Bytes::new()));
    *response.status_mut() = status;
    response
}

fn with_header(mut response: Reply, name: HeaderName, value: &str) -> Reply {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
    response
}
