//! Listens, and handles connections: limits, encryption, HTTP/1.1, and graceful shutdown.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use slotpress_base::clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::body::make_body;
use super::limits::{Admission, ClientLimits, HEAD_BYTES_MAX, HEADERS_MAX};
use super::proxies::is_trusted;
use super::respond::answer;
use super::tell::Facts;
use super::tls::Certificates;
use super::{ServeOptions, Server};

/// Pause after an error of the listening socket, such as a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits on the bytes of a body that are read before its request is refused, and on the time that
/// this takes.
const UNREAD_BYTES_MAX: usize = 256 * 1024;
const UNREAD_TIME: Duration = Duration::from_secs(1);

const TOO_MANY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Response while the clock has no date: hyper sends the date with each answer, and panics without
/// one.
const NO_DATE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 60\r\nContent-Length: 37\r\nConnection: close\r\n\r\n\
    the clock of this server says no date";

#[derive(Clone)]
pub enum Site {
    Archives(Arc<Server>),
    Metrics(Arc<dyn Facts>),
}

/// A listening socket with the state that its connections share.
#[derive(Clone)]
pub struct Endpoint {
    pub site: Site,
    pub options: Arc<ServeOptions>,
    pub limits: Arc<ClientLimits>,
    pub certificates: Option<Arc<Certificates>>,
    pub stop: watch::Receiver<bool>,
}

impl Endpoint {
    /// Returns the server that logs and counts the connections; none for a listener of metrics.
    fn server(&self) -> Option<&Server> {
        match &self.site {
            Site::Archives(server) => Some(server),
            Site::Metrics(_) => None,
        }
    }

    /// Refuses a connection without waiting for its client, which may miss the answer.
    fn refuse(&self, stream: &TcpStream, client: SocketAddr, answer: &[u8]) {
        if let Some(server) = self.server() {
            server.log_answer(client.ip(), String::new(), 503, 0);
        }
        if self.certificates.is_none() {
            let _ = stream.try_write(answer);
        }
    }
}

pub async fn listen(mut endpoint: Endpoint, listener: TcpListener) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = endpoint.stop.wait_for(|is_stopping| *is_stopping) => return,
        };
        let Ok((stream, client)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if !clock::is_in_range() {
            endpoint.refuse(&stream, client, NO_DATE);
            continue;
        }
        match endpoint.limits.admit(client.ip(), is_trusted(client.ip(), &endpoint.options.trusted_proxies)) {
            Ok(admission) => drop(tokio::spawn(handle_connection(endpoint.clone(), stream, client, admission))),
            Err(refusal) => {
                if let Some(server) = endpoint.server() {
                    server.metrics.count_refused(refusal);
                }
                endpoint.refuse(&stream, client, TOO_MANY);
            }
        }
    }
}

async fn handle_connection(endpoint: Endpoint, stream: TcpStream, client: SocketAddr, admission: Admission) {
    // Without this option, small answers would wait for earlier ones. Failing to set it is
    // harmless.
    let _ = stream.set_nodelay(true);
    let Some(certificates) = &endpoint.certificates else {
        return talk(&endpoint, stream, client, Arc::new(admission)).await;
    };
    let handshake = TlsAcceptor::from(certificates.config()).accept(stream);
    if let Ok(Ok(stream)) = timeout(endpoint.options.head_timeout, handshake).await {
        talk(&endpoint, stream, client, Arc::new(admission)).await;
    }
}

/// Progress of a connection. hyper asks for a piece of a file when the client has taken the earlier
/// ones, so a client that takes no piece has stalled.
#[derive(Debug, Default)]
pub struct Steps {
    taken: AtomicU64,
    is_working: AtomicBool,
}

impl Steps {
    /// Notes that the server prepares a piece, so that the client cannot be late.
    pub fn work(&self) {
        self.is_working.store(true, Relaxed);
    }

    /// Notes that the server has done what hyper asked for.
    pub fn take(&self) {
        self.taken.fetch_add(1, Relaxed);
        self.is_working.store(false, Relaxed);
    }

    fn waiting_at(&self) -> Option<u64> {
        (!self.is_working.load(Relaxed)).then(|| self.taken.load(Relaxed))
    }
}

async fn talk(
    endpoint: &Endpoint,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    client: SocketAddr,
    admission: Arc<Admission>,
) {
    let options = &endpoint.options;
    let mut stop = endpoint.stop.clone();
    let admission = &admission;
    let steps = &Arc::new(Steps::default());
    let service = service_fn(|request: Request<Incoming>| async move {
        let (parts, request_body) = request.into_parts();
        let has_body = !request_body.is_end_stream();
        if has_body {
            // Closing a connection with unread data resets it, and the client might lose the
            // answer.
            let unread = Limited::new(request_body, UNREAD_BYTES_MAX).collect();
            let _ = timeout(UNREAD_TIME, unread).await;
        }
        let response = answer(endpoint, client, admission, &parts, has_body).await;
        steps.take();
        Ok::<_, Infallible>(response.map(|content| make_body(content, steps)))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(options.head_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        // Simple clients expect this spelling.
        .title_case_headers(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let mut is_stopping = false;
    let mut before = None;
    loop {
        tokio::select! {
            ended = connection.as_mut() => return log_invalid_head(endpoint, client, &ended),
            _ = stop.wait_for(|is_stopping| *is_stopping), if !is_stopping => {
                connection.as_mut().graceful_shutdown();
                is_stopping = true;
            }
            () = tokio::time::sleep(options.stall_timeout) => {
                let now = steps.waiting_at();
                if now.is_some() && now == before {
                    endpoint.server().map(|server| server.metrics.stalled.inc());
                    return;
                }
                before = now;
            }
        }
    }
}

/// Logs and counts a head that hyper itself has answered. Other errors concern only the client.
fn log_invalid_head(endpoint: &Endpoint, client: SocketAddr, ended: &Result<(), hyper::Error>) {
    let (Err(error), Some(server)) = (ended, endpoint.server()) else { return };
    if error.is_parse() {
        let status = if error.is_parse_too_large() { 431 } else { 400 };
        server.metrics.count_response(status);
        server.log_answer(client.ip(), String::new(), status, 0);
    }
}
