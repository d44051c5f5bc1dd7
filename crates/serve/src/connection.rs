//! Listens, and handles connections: limits, encryption, HTTP/1.1, and graceful shutdown.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use slotpress_base::clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::body::body;
use super::limits::{Admission, HEAD_BYTES_MAX, HEADERS_MAX};
use super::proxies::is_trusted;
use super::respond::{self, answer};
use super::stream::ClientStream;
use super::tls::Certificates;
use super::transfers::Answered;
use super::{Event, Purpose, Server};

/// Pause after an error of the listening socket, such as a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits on the bytes of a body that are read before its request is refused, and on the time that
/// this takes.
const UNREAD_BYTES_MAX: usize = 256 * 1024;
const UNREAD_TIME: Duration = Duration::from_secs(1);

/// Response for connections beyond the limit. It is sent without waiting for the client.
const TOO_MANY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Response while the clock has no date: hyper sends the date with each answer, and panics without
/// one.
const NO_DATE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 60\r\nContent-Length: 37\r\nConnection: close\r\n\r\n\
    the clock of this server says no date";

/// A listening socket with the state that its connections share.
#[derive(Clone)]
pub struct Endpoint {
    pub server: Arc<Server>,
    pub purpose: Purpose,
    pub certificates: Option<Arc<Certificates>>,
    pub stop: watch::Receiver<bool>,
}

/// Accepts connections until told to stop.
pub async fn listen(mut endpoint: Endpoint, listener: TcpListener) {
    let server = endpoint.server.clone();
    let limits = match endpoint.purpose {
        Purpose::Archives => &server.limits,
        Purpose::Metrics => &server.metrics_limits,
    };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = endpoint.stop.wait_for(|is_stopping| *is_stopping) => return,
        };
        let Ok((stream, client)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if !clock::is_date() {
            let answered = Answered { client: client.ip(), request: String::new(), status: 503, sent_bytes: 0 };
            let _ = server.log.try_send(Event::Answered(answered));
            let _ = stream.try_write(NO_DATE);
            continue;
        }
        match limits.admit(client.ip(), is_trusted(client.ip(), &server.options.trusted_proxies)) {
            Ok(admission) => drop(tokio::spawn(connection(endpoint.clone(), stream, client, admission))),
            Err(refusal) => {
                server.metrics.refused(refusal);
                let answered = Answered { client: client.ip(), request: String::new(), status: 503, sent_bytes: 0 };
                let _ = server.log.try_send(Event::Answered(answered));
                if endpoint.certificates.is_none() {
                    // A client that cannot take the response at once is cut off without it.
                    let _ = stream.try_write(TOO_MANY);
                }
            }
        }
    }
}

async fn connection(endpoint: Endpoint, stream: TcpStream, client: SocketAddr, admission: Admission) {
    let _open = Open::new(&endpoint.server);
    // Without this option, small answers would wait for earlier ones. Failing to set it is
    // harmless.
    let _ = stream.set_nodelay(true);
    let Some(certificates) = &endpoint.certificates else {
        return talk(&endpoint, stream, client, Arc::new(admission)).await;
    };
    let handshake = TlsAcceptor::from(certificates.config()).accept(stream);
    if let Ok(Ok(stream)) = timeout(endpoint.server.options.timeouts.head, handshake).await {
        talk(&endpoint, stream, client, Arc::new(admission)).await;
    }
}

/// Counts an open connection, and notices a panic that ends it.
struct Open(Arc<Server>);

impl Open {
    fn new(server: &Arc<Server>) -> Self {
        server.metrics.connections.inc();
        Self(server.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.metrics.connections.dec();
        if std::thread::panicking() {
            self.0.has_panicked.store(true, Relaxed);
        }
    }
}

async fn talk(
    endpoint: &Endpoint,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    client: SocketAddr,
    admission: Arc<Admission>,
) {
    let (server, timeouts, mut stop) = (&endpoint.server, endpoint.server.options.timeouts, endpoint.stop.clone());
    let admission = &admission;
    let service = service_fn(|request: Request<Incoming>| async move {
        let (parts, request_body) = request.into_parts();
        let response = match request_body.is_end_stream() {
            true => answer(endpoint, client, &parts).await,
            false => {
                // Closing a connection with unread data resets it, and the client might lose the
                // answer.
                let unread = Limited::new(request_body, UNREAD_BYTES_MAX).collect();
                let _ = timeout(UNREAD_TIME, unread).await;
                let mut response = respond::with_body(&parts.method);
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                response
            }
        };
        Ok::<_, Infallible>(response.map(|content| body(content, admission)))
    });
    let stream = ClientStream::new(stream, timeouts.stall, server.metrics.clone());
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(timeouts.head)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        // Simple clients expect this spelling.
        .title_case_headers(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        // An error here concerns only this client.
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|is_stopping| *is_stopping) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
