//! Starts threads. If a thread cannot be started or panics, the caller receives an [`Error`], and never
//! waits forever.
//!
//! Threads that others wait for do their work in [`catch_panic`].
//! [`start_pool`](crate::start_pool) starts the threads of parallel iterators.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::{Error, Result};

/// Returns the number of threads of this process that can run at the same time. It is the default of all
/// options for threads.
pub fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Limit on the number of threads. A larger number is probably a typo.
pub const THREADS_MAX: usize = 1024;

/// Limit on the characters of a panic's message in an error.
const MESSAGE_CHARS_MAX: usize = 200;

/// Runs `work`, and turns a panic into an error.
///
/// After a panic, data that `work` borrowed may be inconsistent, so the caller must end with
/// the error.
pub fn catch_panic<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| Err(panic_error(payload.as_ref())))
}

pub fn panic_error(payload: &(dyn Any + Send)) -> Error {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MESSAGE_CHARS_MAX).collect();
    let place = PANIC_PLACE.take().map(|place| format!(" at {place}")).unwrap_or_default();
    Error::failed(format!("slotpress has a bug: it panicked{place}: {line}"))
        .with_hint("report it, with the command and what it prints if RUST_BACKTRACE=1 is set")
}

thread_local! {
    static PANIC_PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Makes panics print nothing, unless `RUST_BACKTRACE` is set: the error of a caught panic contains its
/// place and message. Only programs may call this; a library must leave it to its caller.
pub fn keep_panics_quiet() {
    let wants_backtrace = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0" && !value.is_empty());
    let print_panic = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let place = info.location().map(|location| format!("{}:{}", location.file(), location.line()));
        // Fails only while the thread ends.
        let _ = PANIC_PLACE.try_with(|panic_place| panic_place.replace(place));
        if wants_backtrace {
            print_panic(info);
        }
    }));
}

pub fn spawn_error(error: &std::io::Error) -> Error {
    Error::failed(format!("cannot start a thread: {error}"))
        .with_hint("allow the user more processes (ulimit -u), or the service more tasks (TasksMax)")
}

/// Starts a thread in a scope.
///
/// # Errors
/// The thread cannot be started.
pub fn spawn<'scope, R: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> R + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, R>> {
    Builder::new().spawn_scoped(scope, work).map_err(|error| spawn_error(&error))
}

/// Waits for a thread to end, and returns its result.
///
/// # Errors
/// The thread failed or panicked.
pub fn join_thread<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|payload| Err(panic_error(payload.as_ref())))
}

/// Starts `count` threads in a scope.
///
/// # Errors
/// A thread cannot be started. Threads that were started before keep running.
pub fn spawn_workers<'scope, W: FnOnce() + Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    count: usize,
    mut new_worker: impl FnMut() -> W,
) -> Result<()> {
    (0..count).try_for_each(|_| spawn(scope, new_worker()).map(drop))
}

/// Marks a place where a test can make a thread panic. The test sets the environment variable
/// `FAULTS_PANIC_AT` to `place`, or to `place:N` for the Nth time that any thread reaches the place. Does
/// nothing in release builds.
#[inline]
pub fn panic_point(place: &str) {
    if cfg!(debug_assertions)
        && let Some((chosen, remaining)) = &*CHOSEN_PANIC_POINT
        && chosen == place
    {
        assert!(remaining.fetch_sub(1, Relaxed) != 1, "an injected panic at {place}");
    }
}

/// The chosen place, and how many more times it must be reached for the panic.
static CHOSEN_PANIC_POINT: LazyLock<Option<(String, AtomicU64)>> = LazyLock::new(|| {
    let chosen = std::env::var("FAULTS_PANIC_AT").ok()?;
    let (place, number) = chosen.split_once(':').unwrap_or((&chosen, "1"));
    Some((place.to_string(), AtomicU64::new(number.parse().unwrap_or(1))))
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_one_line() {
        let error = catch_panic::<()>(|| panic!("first\nsecond {}", "x".repeat(1000))).expect_err("an error");
        assert_eq!(error.kind().exit_code(), 1);
        assert!(error.to_string().contains("first second"), "{error}");
        assert!(error.to_string().len() < 300, "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.to_string().contains("report")));
        assert_eq!(catch_panic(|| Ok(5)).expect("fine"), 5);
    }
}
