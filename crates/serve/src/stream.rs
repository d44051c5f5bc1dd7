//! A socket whose reader may be slow, but not stand still; and one whose lines end as HTTP wants it.

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Join, ReadBuf, ReadHalf, WriteHalf, join, split};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::metrics::Metrics;

/// A reader that takes less than this within the timeout stands still.
const PROGRESS_BYTES_MIN: usize = 64 * 1024;

/// The socket.
#[derive(Debug)]
pub struct GuardedStream {
    stream: TcpStream,
    clock: StallClock,
}

impl GuardedStream {
    /// Gives the reader so long for [`PROGRESS_BYTES_MIN`] bytes.
    pub fn new(stream: TcpStream, timeout: Duration, metrics: Arc<Metrics>) -> Self {
        Self { stream, clock: StallClock { timeout, metrics, deadline: None, timer: None, taken_bytes: 0 } }
    }
}

/// Runs while something waits to be written. Waiting for our own limits does not count.
#[derive(Debug)]
struct StallClock {
    timeout: Duration,
    metrics: Arc<Metrics>,
    deadline: Option<Instant>,
    /// Set for a deadline that may be past: it is then set again, so that not every wait starts a timer.
    timer: Option<Pin<Box<Sleep>>>,
    taken_bytes: usize,
}

impl StallClock {
    /// The reader took bytes.
    fn took(&mut self, bytes: usize) {
        self.taken_bytes = self.taken_bytes.saturating_add(bytes);
        if self.taken_bytes >= PROGRESS_BYTES_MIN {
            self.rest();
        }
    }

    /// The reader has all there is.
    fn rest(&mut self) {
        self.deadline = None;
        self.taken_bytes = 0;
    }

    /// Nothing can be written now.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let deadline = *self.deadline.get_or_insert_with(|| tokio::time::sleep(self.timeout).deadline());
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
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
        match result {
            Poll::Ready(Ok(bytes)) => {
                self.took(bytes);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Ready(Err(match ready!(self.wait(context)) {
                Err(error) => error,
                Ok(()) => return Poll::Pending,
            })),
        }
    }
}

impl AsyncRead for GuardedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.clock.wrote(result, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.clock.wrote(result, context)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.clock.rest();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A stream of request heads, whose lines end in CR LF. A LF alone, which hyper would take too, becomes a byte that no head may
/// have: two readers of one head must not see two different ones. Requests have no bodies.
pub fn with_strict_lines<S: AsyncRead + AsyncWrite>(stream: S) -> Join<StrictLines<ReadHalf<S>>, WriteHalf<S>> {
    let (stream, writer) = split(stream);
    join(StrictLines { stream, last: 0 }, writer)
}

/// See [`with_strict_lines`].
#[derive(Debug)]
pub struct StrictLines<S> {
    stream: S,
    last: u8,
}

impl<S: AsyncRead + Unpin> AsyncRead for StrictLines<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        for byte in buffer.filled_mut().iter_mut().skip(before) {
            let last = std::mem::replace(&mut self.last, *byte);
            if *byte == b'\n' && last != b'\r' {
                *byte = 0;
            }
        }
        Poll::Ready(Ok(()))
    }
}
