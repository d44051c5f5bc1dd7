//! What each path answers. Knows requests and responses, and nothing of sockets.

use std::fs::File;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::body::Bytes;
use hyper::header::{
    ACCEPT, ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HOST, HeaderName,
    HeaderValue, LAST_MODIFIED, LOCATION, RETRY_AFTER, SERVER,
};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Response, StatusCode};
use rustix::fs::Stat;
use slotpress_base::text::cut;
use slotpress_base::{KeptDir, range_bytes};
use slotpress_format::ARCHIVE_NAME;
use slotpress_format::archive::listing;
use slotpress_read::FileId;
use slotpress_read::catalog::{Archive, scan};

use super::conditions::{Verdict, Version, judge};
use super::files::Reading;
use super::limits::Admission;
use super::metrics::{self, TextFormat};
use super::proxies::client_behind;
use super::transfers::{Answered, Logged, Running};
use super::{Server, api, page};

/// What follows the head of a response.
#[derive(Debug)]
pub enum Content {
    /// Text that was made for it, or nothing.
    Bytes(Bytes),
    /// A part of an archive.
    File(FileContent),
}

/// A part of an archive, on its way.
#[derive(Debug)]
pub struct FileContent {
    /// What is read.
    pub reading: Arc<Reading>,
    /// Counts what was sent.
    pub running: Running,
    /// The client behind a proxy, whose limits count in place of the connection's.
    pub client: Option<Arc<Admission>>,
}

const METHODS: &str = "GET, HEAD, OPTIONS";

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The client.
    pub client: SocketAddr,
    /// Whether the connection is encrypted.
    pub is_tls: bool,
    /// Whether it is a trusted proxy, and each request tells its client.
    pub is_proxy: bool,
}

/// What a listening socket is for.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    /// Archives.
    Archives,
    /// Metrics alone.
    Metrics,
}

/// Answers a request without a body.
pub async fn answer(server: &Arc<Server>, origin: Origin, purpose: Purpose, request: &Parts) -> Response<Content> {
    let mut response = match purpose {
        Purpose::Archives if origin.is_proxy => {
            let client = client_behind(origin.client.ip(), &request.headers, &server.trusted_proxies);
            let origin = Origin { client: SocketAddr::new(client, 0), ..origin };
            match server.limits.admit_client(client) {
                Ok(admission) => respond(server, origin, Some(Arc::new(admission)), request).await,
                Err(refusal) => {
                    server.metrics.refused(refusal);
                    let response = plain(StatusCode::SERVICE_UNAVAILABLE, "Too many requests of one client.\n");
                    logged(server, origin, request, with(response, RETRY_AFTER, "5"))
                }
            }
        }
        Purpose::Archives => respond(server, origin, None, request).await,
        Purpose::Metrics => respond_metrics(server, request).await,
    };
    response.headers_mut().insert(SERVER, HeaderValue::from_static("slotpress"));
    response
}

async fn respond(
    server: &Arc<Server>,
    origin: Origin,
    client: Option<Arc<Admission>>,
    request: &Parts,
) -> Response<Content> {
    let mut response = match request.method {
        _ if !is_for_one_host(request) => plain(StatusCode::BAD_REQUEST, "One Host field, please.\n"),
        Method::GET | Method::HEAD => route(server, origin, request).await,
        Method::OPTIONS => with(plain(StatusCode::NO_CONTENT, ""), ALLOW, METHODS),
        _ => not_allowed(),
    };
    if let Content::File(content) = response.body_mut() {
        content.client = client;
    }
    logged(server, origin, request, without_body(request, response))
}

/// Counts an answer, and tells the log of one that no transfer belongs to, which tells of itself at its end.
fn logged(server: &Server, origin: Origin, request: &Parts, response: Response<Content>) -> Response<Content> {
    let status = response.status().as_u16();
    server.metrics.response(status);
    let sent_bytes = match response.body() {
        Content::File(_) => return response,
        Content::Bytes(bytes) => bytes.len() as u64,
    };
    let request = cut(&format!("{} {}", request.method, request.uri.path()), LOGGED_CHARS_MAX);
    let answered = Answered { client: origin.client.ip().to_canonical(), request, status, sent_bytes };
    // The log may be slow; no client waits for it.
    let _ = server.log.try_send(Logged::Answered(answered));
    response
}

/// The most of a request that the log has.
const LOGGED_CHARS_MAX: usize = 256;

/// What answers other methods.
pub fn not_allowed() -> Response<Content> {
    with(plain(StatusCode::METHOD_NOT_ALLOWED, "Only GET, HEAD and OPTIONS.\n"), ALLOW, METHODS)
}

/// What answers a request with a body: nothing here reads one.
pub fn with_body(method: &Method) -> Response<Content> {
    match *method {
        Method::GET | Method::HEAD | Method::OPTIONS => {
            plain(StatusCode::PAYLOAD_TOO_LARGE, "Requests have no body here.\n")
        }
        _ => not_allowed(),
    }
}

/// Whether it is clear for which host the request is (RFC 9112, 3.2).
fn is_for_one_host(request: &Parts) -> bool {
    let hosts = request.headers.get_all(HOST).iter().count();
    hosts == 1 || (hosts == 0 && request.version == hyper::Version::HTTP_10)
}

/// The answer to HEAD is a head, of errors too.
fn without_body(request: &Parts, mut response: Response<Content>) -> Response<Content> {
    if request.method == Method::HEAD {
        *response.body_mut() = Content::Bytes(Bytes::new());
    }
    response
}

/// What a scrape of the metrics answers.
async fn respond_metrics(server: &Arc<Server>, request: &Parts) -> Response<Content> {
    let told = server.told.as_deref();
    let response = match (&request.method, request.uri.path(), told) {
        (&Method::GET | &Method::HEAD, "/metrics", _) => {
            let accept = request.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
            let format = TextFormat::of_accept(accept);
            let metrics = match told {
                Some(facts) => metrics::text(&facts.metrics(), format),
                None => {
                    server.look().await;
                    server.metrics.text(format)
                }
            };
            text(format.content_type(), metrics)
        }
        (&Method::GET | &Method::HEAD, "/healthz", Some(facts)) => match facts.health() {
            Ok(()) => text("text/plain; charset=utf-8", "ok\n".into()),
            Err(why) => {
                let mut response = text("text/plain; charset=utf-8", format!("{why}\n"));
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                response
            }
        },
        (&Method::GET | &Method::HEAD, ..) => plain(StatusCode::NOT_FOUND, "Metrics are at /metrics.\n"),
        _ => with(plain(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD.\n"), ALLOW, "GET, HEAD"),
    };
    without_body(request, response)
}

async fn route(server: &Arc<Server>, origin: Origin, request: &Parts) -> Response<Content> {
    let path = request.uri.path();
    match path {
        "/" => {
            let (catalog, _) = server.look().await;
            let host = request.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
            let html = page::page(&catalog, &server.transfers.list(), host, origin.is_tls, SystemTime::now());
            let response = text("text/html; charset=utf-8", html);
            page::HEADERS.iter().fold(response, |response, (name, value)| with(response, name.clone(), value.as_str()))
        }
        "/healthz" => match server.look().await {
            (_, None) => text("text/plain; charset=utf-8", "ok\n".into()),
            (_, Some(_)) => plain(StatusCode::SERVICE_UNAVAILABLE, "A directory of archives cannot be read.\n"),
        },
        listing::PATH => {
            let (catalog, _) = server.look().await;
            let json = api::archives(&catalog, &server.transfers.list(), SystemTime::now());
            text("application/json", json)
        }
        listing::NEWEST_FULL | listing::NEWEST_INCREMENTAL => {
            let (catalog, _) = server.look().await;
            let choice = catalog.choice();
            let archive = match path {
                listing::NEWEST_FULL => choice.map(|choice| choice.full),
                _ => choice.and_then(|choice| choice.incremental),
            };
            match archive {
                Some(archive) => {
                    let response = with(plain(StatusCode::SEE_OTHER, ""), LOCATION, &format!("/{}", archive.name));
                    with(response, CACHE_CONTROL, "no-cache")
                }
                None => plain(StatusCode::NOT_FOUND, "There is no such archive.\n"),
            }
        }
        _ if path.strip_prefix('/') == Some(ARCHIVE_NAME) => genesis(server, origin, request).await,
        _ => archive(server, origin, request).await,
    }
}

/// A file to send, open.
struct Served {
    name: String,
    content_type: &'static str,
    file: File,
    id: FileId,
    modified_ns: u64,
    version: Version,
}

impl Served {
    /// As it is now, with its tag.
    fn new(name: String, content_type: &'static str, file: File, stat: &Stat, etag: String) -> Self {
        let (id, modified_ns) = (scan::file_id(stat), scan::modified_ns(stat));
        let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(modified_ns / 1_000_000_000));
        let version = Version {
            etag,
            modified: modified.unwrap_or(SystemTime::UNIX_EPOCH),
            length_bytes: u64::try_from(stat.st_size).unwrap_or_default(),
        };
        Self { name, content_type, file, id, modified_ns, version }
    }
}

fn missing() -> Response<Content> {
    plain(StatusCode::NOT_FOUND, "There is no such archive.\n")
}

async fn archive(server: &Arc<Server>, origin: Origin, request: &Parts) -> Response<Content> {
    let file_name = request.uri.path().strip_prefix('/').unwrap_or_default();
    let (catalog, _) = server.look().await;
    let Some(archive) = catalog.find(file_name).cloned() else { return missing() };
    let opened = tokio::task::spawn_blocking(move || archive.open().map(|(file, stat)| (archive, file, stat))).await;
    let (archive, file, stat) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => return missing(),
        // Out of descriptors, no permission, a broken disk: that is no news for everybody.
        Ok(Err(_)) | Err(_) => {
            return with(plain(StatusCode::SERVICE_UNAVAILABLE, "The archive cannot be read.\n"), RETRY_AFTER, "5");
        }
    };
    // What is sent is what was opened: another file may have taken the name since the directory was read.
    let size_bytes = u64::try_from(stat.st_size).unwrap_or_default();
    let (file_id, modified_ns) = (scan::file_id(&stat), scan::modified_ns(&stat));
    let opened = Archive { file_id, size_bytes, modified_ns, ..archive.clone() };
    let hashes = archive.hashes.filter(|_| opened == archive);
    let etag = Archive { hashes, ..opened }.etag();
    let (name, content_type) = (archive.name.to_string(), archive.name.extension.content_type());
    send(server, origin, request, Served::new(name, content_type, file, &stat, etag))
}

/// The genesis of the cluster, as `publish` puts it beside archives.
async fn genesis(server: &Arc<Server>, origin: Origin, request: &Parts) -> Response<Content> {
    let dirs = server.shelf.dirs().to_vec();
    let open = move || {
        let file = dirs.iter().find_map(|dir| KeptDir::open(dir).ok()?.open_file(ARCHIVE_NAME).ok())?;
        let stat = rustix::fs::fstat(&file).ok()?;
        Some((file, stat))
    };
    let Ok(Some((file, stat))) = tokio::task::spawn_blocking(open).await else { return missing() };
    let etag = format!("\"{:x}-{:x}\"", stat.st_size, scan::modified_ns(&stat));
    send(server, origin, request, Served::new(ARCHIVE_NAME.to_string(), "application/x-bzip2", file, &stat, etag))
}

/// A file, a part of it, or what the conditions of the request say.
fn send(server: &Arc<Server>, origin: Origin, request: &Parts, served: Served) -> Response<Content> {
    let Served { name, content_type, file, id, modified_ns, version } = served;
    let length_bytes = version.length_bytes;
    let verdict = judge(&request.method, &request.headers, &version, SystemTime::now());
    let (status, range) = match verdict {
        Verdict::Whole => (StatusCode::OK, 0..length_bytes),
        Verdict::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
        Verdict::NotModified => {
            let mut response = Response::new(Content::Bytes(Bytes::new()));
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            describe(response.headers_mut(), &version);
            return response;
        }
        Verdict::PreconditionFailed => return plain(StatusCode::PRECONDITION_FAILED, "The file has changed.\n"),
        Verdict::Unsatisfiable => {
            let response = plain(StatusCode::RANGE_NOT_SATISFIABLE, "There are no such bytes.\n");
            return with(response, CONTENT_RANGE, &format!("bytes */{length_bytes}"));
        }
    };
    let mut response = Response::new(Content::Bytes(Bytes::new()));
    *response.status_mut() = status;
    describe(response.headers_mut(), &version);
    response = with(response, CONTENT_LENGTH, &range_bytes(&range).to_string());
    response = with(response, CONTENT_TYPE, content_type);
    // A proxy that compresses or cuts it breaks its tags.
    response = with(response, CACHE_CONTROL, "no-transform");
    if status == StatusCode::PARTIAL_CONTENT {
        let content_range = format!("bytes {}-{}/{length_bytes}", range.start, range.end.saturating_sub(1));
        response = with(response, CONTENT_RANGE, &content_range);
    }
    if request.method == Method::GET && !range.is_empty() {
        let is_whole = range == (0..length_bytes);
        let running = server.transfers.start(name, origin.client, range.clone(), is_whole);
        let shared = server.files.share(file, id, modified_ns, length_bytes, server.io_hint);
        let reading = Arc::new(Reading::new(shared, range));
        *response.body_mut() = Content::File(FileContent { reading, running, client: None });
    }
    response
}

fn describe(headers: &mut HeaderMap, version: &Version) {
    let texts = [
        (ETAG, version.etag.clone()),
        (LAST_MODIFIED, httpdate::fmt_http_date(version.modified)),
        (ACCEPT_RANGES, "bytes".to_string()),
    ];
    for (name, text) in texts {
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(name, value);
        }
    }
}

/// A short answer in words.
pub fn plain(status: StatusCode, words: &'static str) -> Response<Content> {
    let mut response = Response::new(Content::Bytes(Bytes::from_static(words.as_bytes())));
    *response.status_mut() = status;
    if words.is_empty() {
        *response.body_mut() = Content::Bytes(Bytes::new());
    } else {
        response = with(response, CONTENT_TYPE, "text/plain; charset=utf-8");
    }
    match status {
        StatusCode::NO_CONTENT => response,
        _ => with(response, CONTENT_LENGTH, &words.len().to_string()),
    }
}

/// An answer that is made when it is asked for, and should be asked for again.
fn text(content_type: &str, text: String) -> Response<Content> {
    let length = text.len().to_string();
    let response = Response::new(Content::Bytes(text.into()));
    let response = with(response, CONTENT_LENGTH, &length);
    let response = with(response, CONTENT_TYPE, content_type);
    with(response, CACHE_CONTROL, "no-cache")
}

fn with(mut response: Response<Content>, name: HeaderName, value: &str) -> Response<Content> {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
    response
}
