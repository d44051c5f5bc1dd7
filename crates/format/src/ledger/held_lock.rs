//! Finds the process that holds a ledger's lock, without taking the lock. If slotpress held the lock even
//! for a microsecond, a validator that started at that moment would fail. Linux lists all locks in
//! `/proc/locks` (`proc_locks(5)`).

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use slotpress_base::text::escape;

use crate::LEDGER_LOCK_NAME;

/// Limit on the length of a line, which bounds memory. The rest of a longer line is parsed as another line.
const LINE_BYTES_MAX: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Device {
    major: u32,
    minor: u32,
}

/// A line of `/proc/locks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LockLine {
    device: Device,
    inode: u64,
    /// Process id, or `None` if the process is in another container or the lock belongs to an open file.
    pid: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Process id, or `None` if the process is in another container or the lock belongs to no process.
    pub pid: Option<u32>,
    /// Name of the process's program, at most 15 bytes, if known.
    pub program: Option<String>,
}

impl LockHolder {
    fn new(pid: Option<u32>) -> Self {
        let name = pid.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok());
        Self { pid, program: name.map(|name| escape(name.trim_end()).into_owned()) }
    }

    pub fn is_slotpress(&self) -> bool {
        self.program.as_deref() == Some("slotpress") || self.pid == Some(std::process::id())
    }
}

impl std::fmt::Display for LockHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.program, self.pid) {
            (Some(program), Some(pid)) => write!(f, "{program} (process {pid})"),
            (None, Some(pid)) => write!(f, "process {pid}"),
            _ => f.write_str("a process that is not visible from here"),
        }
    }
}

/// State of a file's lock. Locks of processes in other containers may not be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockState {
    Free,
    Held(LockHolder),
    /// The system does not report the state.
    Unknown,
}

/// Returns the state of `<ledger>/ledger.lock`. Creates, changes and locks nothing.
pub fn ledger_lock_state(ledger: &Path) -> LockState {
    // `O_PATH` needs no read permission, and does not block.
    match rustix::fs::open(ledger.join(LEDGER_LOCK_NAME), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => lock_state(&file).unwrap_or(LockState::Unknown),
        Err(rustix::io::Errno::NOENT) => LockState::Free,
        Err(_) => LockState::Unknown,
    }
}

/// Finds the process that has locked an open file. Returns `None` if there is none, or if the system does
/// not report it.
pub fn lock_holder(file: &impl AsFd) -> Option<LockHolder> {
    match lock_state(file) {
        Some(LockState::Held(holder)) => Some(holder),
        _ => None,
    }
}

fn lock_state(file: &impl AsFd) -> Option<LockState> {
    let stat = rustix::fs::fstat(file).ok()?;
    // Each subvolume of btrfs has its own device number, but `/proc/locks` has the number of the
    // whole file system, which the mount table shows. Other file systems have only one number.
    let stat_device = Device { major: rustix::fs::major(stat.st_dev), minor: rustix::fs::minor(stat.st_dev) };
    let devices = [Some(stat_device), device_of_mount(file.as_fd())];
    let is_for_file = |lock: &LockLine| lock.inode == stat.st_ino && devices.contains(&Some(lock.device));
    let lock = find_in_lines(Path::new("/proc/locks"), |line| parse_lock(line).filter(is_for_file)).ok()?;
    Some(lock.map_or(LockState::Free, |lock| LockState::Held(LockHolder::new(lock.pid))))
}

/// Finds the device number of an open file's file system in the mount table.
fn device_of_mount(file: BorrowedFd<'_>) -> Option<Device> {
    let info = Path::new("/proc/self/fdinfo").join(file.as_raw_fd().to_string());
    let mount = find_in_lines(&info, |line| Some(line.strip_prefix("mnt_id:")?.trim().to_string())).ok()??;
    find_in_lines(Path::new("/proc/self/mountinfo"), |line| parse_mount(line, &mount)).ok()?
}

/// Returns the first line of a file that `parse` accepts. The kernel generates these files while they
/// are read, and they can be long.
fn find_in_lines<T>(path: &Path, parse: impl Fn(&str) -> Option<T>) -> io::Result<Option<T>> {
    let mut reader = BufReader::new(fs::File::open(path)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut part = io::Read::take(&mut reader, LINE_BYTES_MAX as u64);
        if part.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let parsed = parse(String::from_utf8_lossy(&line).trim_end());
        if parsed.is_some() {
            return Ok(parsed);
        }
    }
}

/// Parses a line of `/proc/locks`: `4: FLOCK  ADVISORY  WRITE 27749 fe:00:10100749 0 EOF`. Returns
/// `None` for leases, and for lines with `->`, which show waiting processes.
fn parse_lock(line: &str) -> Option<LockLine> {
    let mut fields = line.split_ascii_whitespace();
    fields.next()?.strip_suffix(':')?;
    if !matches!(fields.next()?, "FLOCK" | "POSIX" | "OFDLCK") {
        return None;
    }
    let pid = fields.nth(2)?.parse().ok().filter(|pid| *pid > 0);
    let mut file = fields.next()?.split(':');
    let number = |text: Option<&str>| u32::from_str_radix(text?, 16).ok();
    let device = Device { major: number(file.next())?, minor: number(file.next())? };
    let inode = file.next()?.parse().ok()?;
    if file.next().is_some() {
        return None;
    }
    Some(LockLine { device, inode, pid })
}

/// Returns the device number in a line of `mountinfo`, if the line describes `mount`:
/// `27 1 254:0 / / rw,relatime - ext4 /dev/vda rw`.
fn parse_mount(line: &str, mount: &str) -> Option<Device> {
    let mut fields = line.split_ascii_whitespace();
    if fields.next()? != mount {
        return None;
    }
    let (major, minor) = fields.nth(1)?.split_once(':')?;
    Some(Device { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn lines_of_the_lock_table_are_parsed() {
        let lock = |inode, pid| Some(LockLine { device: Device { major: 0xfe, minor: 0x1f }, inode, pid });
        for (line, expected) in [
            ("4: FLOCK  ADVISORY  WRITE 27749 fe:1f:10100749 0 EOF", lock(10_100_749, Some(27749))),
            ("1: POSIX  ADVISORY  READ  4216 fe:1f:12 128 128", lock(12, Some(4216))),
            ("12: OFDLCK ADVISORY  WRITE -1 fe:1f:18446744073709551615 0 EOF", lock(u64::MAX, None)),
            ("4: FLOCK  ADVISORY  WRITE 0 fe:1f:12 0 EOF", lock(12, None)),
            ("4: -> FLOCK  ADVISORY  WRITE 27750 fe:1f:10100749 0 EOF", None),
            ("4:  -> POSIX  ADVISORY  WRITE 27750 fe:1f:10100749 0 EOF", None),
            ("5: LEASE  ACTIVE    READ  27751 fe:1f:12 0 EOF", None),
            ("6: DELEG  ACTIVE    READ  27751 fe:1f:12 0 EOF", None),
            ("7: FLOCK  ADVISORY  WRITE 27749 <none>:0 0 EOF", None),
            ("7: FLOCK  ADVISORY  WRITE 27749 fe:1f", None),
            ("7: FLOCK  ADVISORY  WRITE 27749 fe:1f:12:3 0 EOF", None),
            ("7: FLOCK", None),
            ("", None),
        ] {
            assert_eq!(parse_lock(line), expected, "{line}");
        }
    }

    #[test]
    fn lines_of_the_mount_table_are_parsed() {
        let line = "27 1 254:31 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard";
        assert_eq!(parse_mount(line, "27"), Some(Device { major: 254, minor: 31 }));
        for (line, mount) in [(line, "2"), ("27 1 254 / /", "27"), ("27", "27"), ("", "27")] {
            assert_eq!(parse_mount(line, mount), None, "{line}");
        }
    }

    #[test]
    fn the_lock_of_this_process_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let held_by_this_process = LockState::Held(LockHolder::new(Some(std::process::id())));
        let state = || ledger_lock_state(dir.path());
        assert_eq!(state(), LockState::Free, "there is no lock file");
        assert!(!dir.path().join("ledger.lock").exists());
        let file = File::create(dir.path().join("ledger.lock")).expect("created");
        assert_eq!(state(), LockState::Free);
        file.try_lock_shared().expect("free");
        assert_eq!(state(), held_by_this_process);
        file.unlock().expect("unlocked");
        file.try_lock().expect("free");
        assert_eq!(state(), held_by_this_process);
        assert!(device_of_mount(file.as_fd()).is_some());
        drop(file);
        assert_eq!(state(), LockState::Free, "closing the file released the lock");
    }
}
