//! Memory of the machine and of this process, as Linux tells it; elsewhere unknown.

use std::fs;

/// Bytes that can be taken without swapping.
pub fn available_bytes() -> Option<u64> {
    kib_field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// The most that this process has held at once, in bytes, since [`reset_peak`] where that works.
pub fn peak_bytes() -> Option<u64> {
    kib_field(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// Begins to count the peak anew. Where that is not allowed, the peak is that since the start of the process.
pub fn reset_peak() {
    /// What `proc(5)` names for it.
    const RESET_PEAK: &str = "5";
    let _ = fs::write("/proc/self/clear_refs", RESET_PEAK);
}

fn kib_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        assert_eq!(kib_field("MemTotal:  9 kB\nMemAvailable:    8 kB\n", "MemAvailable:"), Some(8192));
        assert_eq!(kib_field("MemAvailable: x kB", "MemAvailable:"), None);
        assert_eq!(kib_field("", "VmHWM:"), None);
    }
}
