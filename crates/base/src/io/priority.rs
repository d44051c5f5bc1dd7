//! Standing back: niceness for the processor, a priority class for the disk.

use super::calls::set_io_priority;

/// The largest niceness.
pub const NICENESS_MAX: u8 = 19;

const BEST_EFFORT: u32 = 2;
const IDLE: u32 = 3;
/// Best effort has the levels 0 to 7.
const LOWEST_LEVEL: u32 = 7;

/// Gives the calling thread, and those that it starts later, a niceness. From 1 on, its reads and writes come last among
/// those of best effort too; at [`NICENESS_MAX`] they are done only when no others are waiting.
///
/// Linux keeps both per thread: call it before there are others. Disks without an I/O scheduler ignore the class.
pub fn stand_back(niceness: u8) -> std::io::Result<()> {
    if niceness == 0 {
        return Ok(());
    }
    rustix::process::setpriority_process(None, i32::from(niceness.min(NICENESS_MAX)))?;
    let (class, level) = if niceness >= NICENESS_MAX { (IDLE, 0) } else { (BEST_EFFORT, LOWEST_LEVEL) };
    set_io_priority(class, level)
}
