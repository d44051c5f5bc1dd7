//! Lowers the CPU and disk priority of the calling thread, and of threads that it starts later.

#![warn(missing_docs)]

use super::calls::set_io_priority;

/// Largest niceness, which is the lowest priority.
pub const NICENESS_MAX: u8 = 19;

const BEST_EFFORT: u32 = 2;
const IDLE: u32 = 3;
const LOWEST_LEVEL: u32 = 7;

/// Sets the niceness of the calling thread and of threads that it starts later, unless `niceness` is 0.
/// Their I/O then has the lowest best-effort priority; at [`NICENESS_MAX`], I/O is done only if no other
/// process waits for the disk.
///
/// Linux keeps both priorities per thread, so call this before starting other threads. Disks
/// without an I/O scheduler ignore the I/O priority.
///
/// # Errors
/// The kernel refuses a priority.
pub fn lower_priority(niceness: u8) -> std::io::Result<()> {
    if niceness == 0 {
        return Ok(());
    }
    rustix::process::setpriority_process(None, i32::from(niceness.min(NICENESS_MAX)))?;
    let (class, level) = if niceness >= NICENESS_MAX { (IDLE, 0) } else { (BEST_EFFORT, LOWEST_LEVEL) };
    set_io_priority(class, level)
}
