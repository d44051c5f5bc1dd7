//! Entry point of the program `slotpress`. The commands are in `cli`, the checks of `slotpress
//! doctor` in `doctor`. This file adds an allocator that reports when memory is exhausted.

mod cli;
mod doctor;

#[cfg(not(target_env = "musl"))]
use std::alloc::System as Inner;
use std::alloc::{GlobalAlloc, Layout};
use std::process::ExitCode;

#[cfg(target_env = "musl")]
use mimalloc::MiMalloc as Inner;

fn main() -> ExitCode {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    limit_malloc_arenas();
    cli::main(std::env::args_os())
}

/// Makes all threads allocate from one arena if the address space is limited (`ulimit -v`). Otherwise, glibc
/// reserves an arena of 64 MiB for each thread, and twice that for a moment. An allocation inside glibc can
/// then fail, and glibc aborts the process.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn limit_malloc_arenas() {
    if rustix::process::getrlimit(rustix::process::Resource::As).current.is_some() {
        // SAFETY: the call changes a setting of the allocator, before other threads start.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

/// Wraps the system's allocator, or mimalloc in musl builds, because musl's own allocator has one lock for all
/// threads. If no memory is left, the wrapper prints an error and ends the process with exit code 1 instead of
/// aborting.
///
/// It does not clean up, because that would need memory. No file gets its final name before it is complete, and
/// the next run removes the leftovers, as after a kill.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

// SAFETY: every call is passed to the inner allocator unchanged. A null pointer is never returned, because
// the process ends instead.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of `GlobalAlloc`, which `Inner` requires too.
        exit_if_null(unsafe { Inner.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        exit_if_null(unsafe { Inner.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above; `pointer` comes from `Inner`, as all memory does.
        exit_if_null(unsafe { Inner.realloc(pointer, layout, new_size) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { Inner.dealloc(pointer, layout) }
    }
}

fn exit_if_null(pointer: *mut u8) -> *mut u8 {
    if !pointer.is_null() {
        return pointer;
    }
    // Bypasses the standard library's output, which may allocate, and whose lock another thread
    // may hold.
    let _ = rustix::io::write(
        rustix::stdio::stderr(),
        b"error: out of memory\n\
          hint: raise the limit (ulimit -v, MemoryMax of the service), or lower --threads and --memory\n",
    );
    // SAFETY: ends the process at once, without destructors or exit handlers.
    unsafe { libc::_exit(1) }
}
