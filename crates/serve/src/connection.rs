//! Accepts connections and serves HTTP/1.1 on them, with limits, encryption and graceful shutdown.

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

use super::Server;
use super::body::create_body;
use super::limits::{Admission, ClientLimits, HEAD_BYTES_MAX, HEADERS_MAX};
use super::monitoring::Monitored;
use super::respond::answer;
use super::tls::Certificates;

/// Pause after an error of the listening socket, for example if no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits on the bytes of a body that are read and discarded before the request is refused, and on the time for
/// this.
const DISCARDED_BYTES_MAX: usize = 256 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

const TOO_MANY_CONNECTIONS: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Response while the clock is out of range: hyper sends the date with each response, and panics if the
/// date is invalid.
const CLOCK_OUT_OF_RANGE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 60\r\nContent-Length: 58\r\nConnection: close\r\n\r\n\
    the clock of this server is outside the years 1970 to 9999";

/// Content that an endpoint serves.
#[derive(Clone)]
pub enum Site {
    Archives(Arc<Server>),
    Metrics(Arc<dyn Monitored>),
}

/// State that the connections of a listening socket share.
#[derive(Clone)]
pub struct Endpoint {
    pub site: Site,
    pub limits: Arc<ClientLimits>,
    pub certificates: Option<Arc<Certificates>>,
    pub stop: watch::Receiver<bool>,
}

impl Endpoint {
    /// Returns the server that logs and counts the connections; `None` for the metrics endpoint.
    fn server(&self) -> Option<&Server> {
        match &self.site {
            Site::Archives(server) => Some(server),
            Site::Metrics(_) => None,
        }
    }

    /// Refuses a connection. Does not wait for the client, so the client may miss the response. A client that
    /// expects TLS gets no response.
    fn refuse(&self, stream: &TcpStream, client: SocketAddr, response: &[u8]) {
        if let Some(server) = self.server() {
            server.log_response(client.ip(), String::new(), 503, 0);
        }
        if self.certificates.is_none() {
            let _ = stream.try_write(response);
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
            endpoint.refuse(&stream, client, CLOCK_OUT_OF_RANGE);
            continue;
        }
        match endpoint.limits.admit_connection(client.ip()) {
            Ok(admission) => {
                let handling = handle_connection(endpoint.clone(), stream, client, admission);
                tokio::spawn(handling);
            }
            Err(refusal) => {
                if let Some(server) = endpoint.server() {
                    server.metrics.count_refusal(refusal);
                }
                endpoint.refuse(&stream, client, TOO_MANY_CONNECTIONS);
            }
        }
    }
}

async fn handle_connection(endpoint: Endpoint, stream: TcpStream, client: SocketAddr, admission: Admission) {
    // Without this option, a small response would wait until earlier ones are acknowledged. It is not a problem
    // if the option cannot be set.
    let _ = stream.set_nodelay(true);
    let Some(certificates) = &endpoint.certificates else {
        return serve_http(&endpoint, stream, client, Arc::new(admission)).await;
    };
    let handshake = TlsAcceptor::from(certificates.config()).accept(stream);
    if let Ok(Ok(stream)) = timeout(endpoint.limits.options.head_timeout, handshake).await {
        serve_http(&endpoint, stream, client, Arc::new(admission)).await;
    }
}

/// Progress of a connection. Each response and each piece of a file is a step. hyper asks for the next piece
/// when the client has accepted the earlier ones, so if no step follows, the client has stalled.
#[derive(Debug, Default)]
pub struct ConnectionProgress {
    ended_steps: AtomicU64,
    is_preparing: AtomicBool,
}

impl ConnectionProgress {
    /// Records that the server is preparing a piece. Until it is ready, a delay is not the client's fault.
    pub fn begin_step(&self) {
        self.is_preparing.store(true, Relaxed);
    }

    /// Records that hyper has received a response or a piece.
    pub fn end_step(&self) {
        self.ended_steps.fetch_add(1, Relaxed);
        self.is_preparing.store(false, Relaxed);
    }

    /// Returns the number of ended steps; `None` while the server is preparing a piece.
    fn steps_awaiting_client(&self) -> Option<u64> {
        if self.is_preparing.load(Relaxed) { None } else { Some(self.ended_steps.load(Relaxed)) }
    }
}

async fn serve_http(
    endpoint: &Endpoint,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    client: SocketAddr,
    admission: Arc<Admission>,
) {
    let options = &endpoint.limits.options;
    let mut stop = endpoint.stop.clone();
    let admission = &admission;
    let progress = &Arc::new(ConnectionProgress::default());
    let service = service_fn(|request: Request<Incoming>| async move {
        let (parts, request_body) = request.into_parts();
        let has_body = !request_body.is_end_stream();
        if has_body {
            // Closing a connection that has unread data resets it, so the client might lose the response.
            let discarding = Limited::new(request_body, DISCARDED_BYTES_MAX).collect();
            let _ = timeout(DISCARD_TIMEOUT, discarding).await;
        }
        let response = answer(endpoint, client, admission, &parts, has_body).await;
        progress.end_step();
        Ok::<_, Infallible>(response.map(|content| create_body(content, progress)))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(options.head_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        // Simple clients expect `Content-Length`, not `content-length`.
        .title_case_headers(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let mut is_stopping = false;
    let mut last_steps = None;
    loop {
        tokio::select! {
            result = connection.as_mut() => return log_invalid_head(endpoint, client, &result),
            _ = stop.wait_for(|is_stopping| *is_stopping), if !is_stopping => {
                connection.as_mut().graceful_shutdown();
                is_stopping = true;
            }
            () = tokio::time::sleep(options.stall_timeout) => {
                let steps = progress.steps_awaiting_client();
                if steps.is_some() && steps == last_steps {
                    if let Some(server) = endpoint.server() {
                        server.metrics.stalled_connections.inc();
                    }
                    return;
                }
                last_steps = steps;
            }
        }
    }
}

/// Logs and counts a request with an invalid head, which hyper has answered by itself. Other errors concern
/// only the client.
fn log_invalid_head(endpoint: &Endpoint, client: SocketAddr, result: &Result<(), hyper::Error>) {
    let (Err(error), Some(server)) = (result, endpoint.server()) else { return };
    if error.is_parse() {
        let status = if error.is_parse_too_large() { 431 } else { 400 };
        server.metrics.count_response(status);
        server.log_response(client.ip(), String::new(), status, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_responses_state_the_length_of_their_body() {
        for response in [TOO_MANY_CONNECTIONS, CLOCK_OUT_OF_RANGE] {
            let text = std::str::from_utf8(response).expect("text");
            let (head, body) = text.split_once("\r\n\r\n").expect("a head");
            assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{text}");
        }
    }
}
