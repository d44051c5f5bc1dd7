//! An internal part of slotpress, without a stable interface: use the crate `slotpress`.
//!
//! Basics that all other crates use, independent of archives and ledgers: [`error`], [`progress`],
//! [`threads`] and [`pipeline`], [`memory`] limits, [`io`] that spares a validator's page cache,
//! and helpers for text, quantities and bytes.

pub mod ahead;
pub mod bytes;
pub mod clock;
pub mod error;
pub mod files;
pub mod hint;
pub mod io;
pub mod kept_dir;
pub mod memory;
pub mod owner;
pub mod pipeline;
pub mod pool;
pub mod progress;
pub mod quantity;
pub mod random;
pub mod stopwatch;
pub mod text;
pub mod threads;

pub use ahead::{AHEAD_BYTES_MAX, AheadItem, ItemReader, READER_NAME, READERS, read_ahead};
pub use bytes::{
    array_at, average_rate, copy_at_most, fill_buf, prefix_mut, range_bytes, saturating_add_to, split_at_most,
    to_usize, u32_at, u64_at,
};
pub use error::{Error, ErrorKind, IoContext, Result};
pub use files::{open_file, parent_dir, read_at_most};
pub use io::flushers::{Flushers, flusher_memory_bytes};
pub use io::pace::{Pace, RATE_MIN, TokenBucket};
pub use io::pipes::{InterruptibleReader, InterruptibleWriter};
pub use io::priority::{NICENESS_MAX, lower_priority};
pub use io::residency::ColdPages;
pub use io::space::{Space, SpaceWatch, free_bytes, has_room};
pub use io::writer::StreamWriter;
pub use io::{IoHint, IoPolicy, PageCacheWatch};
pub use kept_dir::{FileStat, KeptDir, changed_error, random_name};
pub use memory::{MemoryLimit, tightest_limit};
pub use owner::Owner;
pub use pipeline::{OUTPUT_BUFFERS_PER_WORKER, run_in_order};
pub use pool::start_pool;
pub use progress::{Arriving, CancelToken, Forward, NoProgress, Progress, ProgressEvent, Stage, Step, Until};
pub use quantity::{TimeUnit, rate_of};
pub use random::SplitMix64;
pub use rayon::ThreadPool;
pub use stopwatch::{Elapsed, Stopwatch};
pub use text::{EscapePath, escape_lines, one_line};
pub use threads::{
    THREADS_MAX, available_threads, catch_panic, join_thread, keep_panics_quiet, panic_error, panic_point, spawn,
    spawn_error, spawn_workers,
};
