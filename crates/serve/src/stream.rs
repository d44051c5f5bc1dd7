//! Wraps a client's connection, encrypted or not. Closes it if the client stands still, and refuses
//! lines that do not end in CR LF.

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::metrics::Metrics;

/// A client that takes less than this within the timeout stands still.
const PROGRESS_BYTES_MIN: usize = 64 * 1024;

#[derive(Debug)]
pub struct ClientStream<S> {
    stream: S,
    last_byte: u8,
    stall_timeout: Duration,
    metrics: Arc<Metrics>,
    /// Set while data waits for the client. Waiting for the server's rate limits does not count.
    deadline: Option<Instant>,
    /// Timer of an earlier deadline. It is reset only when it fires, so most waits start no timer.
    timer: Option<Pin<Box<Sleep>>>,
    taken_bytes: usize,
}

impl<S> ClientStream<S> {
    /// Requires the client to take [`PROGRESS_BYTES_MIN`] bytes within each timeout.
    pub fn new(stream: S, stall_timeout: Duration, metrics: Arc<Metrics>) -> Self {
        Self { stream, last_byte: 0, stall_timeout, metrics, deadline: None, timer: None, taken_bytes: 0 }
    }

    /// Waits for the client until it has stood still for too long.
    fn poll_deadline<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let deadline = *self.deadline.get_or_insert_with(|| tokio::time::sleep(self.stall_timeout).deadline());
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        while timer.as_mut().poll(context).is_ready() {
            if Instant::now() >= deadline {
                self.metrics.stalled.inc();
                return Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, "the reader stands still")));
            }
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }

    fn wrote(&mut self, result: Poll<io::Result<usize>>, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match &result {
            Poll::Ready(Ok(bytes)) => self.taken_bytes = self.taken_bytes.saturating_add(*bytes),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => return self.poll_deadline(context),
        }
        if self.taken_bytes >= PROGRESS_BYTES_MIN {
            self.rest();
        }
        result
    }

    /// Resets the deadline: nothing waits, or enough was taken.
    fn rest(&mut self) {
        self.deadline = None;
        self.taken_bytes = 0;
    }
}

/// Replaces each LF without CR, which hyper would accept as the end of a line, by a byte that is
/// invalid in a head. Two parsers of one head must not see different requests. Requests have no
/// bodies, so only heads are concerned.
impl<S: AsyncRead + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        for byte in buffer.filled_mut().iter_mut().skip(before) {
            let last = std::mem::replace(&mut self.last_byte, *byte);
            if *byte == b'\n' && last != b'\r' {
                *byte = 0;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(result, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.wrote(result, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Ready(result) => {
                self.rest();
                Poll::Ready(result)
            }
            Poll::Pending => self.poll_deadline(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(context);
        if result.is_pending() { self.poll_deadline(context) } else { result }
    }
}
