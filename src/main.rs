//! Parse, run, exit code; and what happens when memory runs out.

mod cli;
mod doctor;

#[cfg(not(target_env = "musl"))]
use std::alloc::System as Inner;
use std::alloc::{GlobalAlloc, Layout};
use std::process::ExitCode;

#[cfg(target_env = "musl")]
use mimalloc::MiMalloc as Inner;

fn main() -> ExitCode {
    cli::main(std::env::args_os())
}

/// The system's allocator, which ends the program with an error instead of an abort when there is no memory. With musl, mimalloc: musl's
/// own has one lock for all threads.
///
/// Nothing is tidied up: that takes memory. Nothing has its final name before it is complete, and the next run removes what
/// is left, as after a kill.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

// SAFETY: everything is the inner allocator's, unchanged; what it cannot give is never returned.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that `Inner` asks for.
        or_end(unsafe { Inner.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        or_end(unsafe { Inner.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above; `pointer` is from `Inner`, since all are.
        or_end(unsafe { Inner.realloc(pointer, layout, new_size) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { Inner.dealloc(pointer, layout) }
    }
}

fn or_end(pointer: *mut u8) -> *mut u8 {
    if !pointer.is_null() {
        return pointer;
    }
    // Without the locks and buffers of the standard library: another thread may hold them, or they need memory.
    let _ = rustix::io::write(
        rustix::stdio::stderr(),
        b"error: out of memory: the system gives no more\n\
          hint: raise the limit (ulimit -v, MemoryMax of the service), or give fewer --threads and less --memory\n",
    );
    // SAFETY: ends the process at once; no destructor, no handler runs.
    unsafe { libc::_exit(1) }
}
