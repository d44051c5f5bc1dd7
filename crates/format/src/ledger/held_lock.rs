//! Finds the process that holds a ledger's lock, without touching the lock. Taking it even for a
//! microsecond would fail a validator that starts just then. Linux lists all locks in `/proc/locks`
//! (`proc_locks(5)`).

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use slotpress_base::text::escaped;

/// Limit on the length of a line; the rest of a longer one is ignored.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// Device number and inode of a file, by which `/proc/locks` identifies it.
type LockedFile = ((u32, u32), u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Process id; `None` if the process is in another container, or the lock belongs to
    /// no process.
    pub pid: Option<u32>,
    /// Name of the process's program, at most 15 bytes, if known.
    pub program: Option<String>,
}

impl LockHolder {
    fn new(pid: Option<u32>) -> Self {
        let name = pid.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok());
        Self { pid, program: name.map(|name| escaped(name.trim_end()).into_owned()) }
    }

    pub fn is_slotpress(&self) -> bool {
        self.program.as_deref() == Some("slotpress") || self.pid == Some(std::process::id())
    }
}

impl std::fmt::Display for LockHolder {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.program, self.pid) {
            (Some(program), Some(pid)) => write!(to, "{program} (process {pid})"),
            (None, Some(pid)) => write!(to, "process {pid}"),
            _ => to.write_str("a process that is not visible from here"),
        }
    }
}

/// State of a file's lock. Locks of processes in other containers may not be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockState {
    Free,
    Held(LockHolder),
    /// The system does not say.
    Unknown,
}

/// Looks at `<ledger>/ledger.lock`. Creates, changes and locks nothing.
pub fn ledger_lock_state(ledger: &Path) -> LockState {
    // `O_PATH` needs no read permission, and does not block.
    match rustix::fs::open(ledger.join("ledger.lock"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => lock_state(&file).unwrap_or(LockState::Unknown),
        Err(rustix::io::Errno::NOENT) => LockState::Free,
        Err(_) => LockState::Unknown,
    }
}

/// Finds the process that has locked an open file, if the system says.
pub fn lock_holder(file: &impl AsFd) -> Option<LockHolder> {
    match lock_state(file) {
        Some(LockState::Held(holder)) => Some(holder),
        _ => None,
    }
}

fn lock_state(file: &impl AsFd) -> Option<LockState> {
    let stat = rustix::fs::fstat(file).ok()?;
    let inode = stat.st_ino;
    // Each subvolume of btrfs has its own device number, but `/proc/locks` has that of the file
    // system, which is in the mount table. Elsewhere, both are the same.
    let of_stat = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let devices = [Some(of_stat), device_of_mount(file.as_fd())];
    let files: Vec<LockedFile> = devices.into_iter().flatten().map(|device| (device, inode)).collect();
    let mut holder = None;
    for_each_line(Path::new("/proc/locks"), |line| {
        holder = parse_lock(line).filter(|(locked, _)| files.contains(locked)).map(|(_, pid)| pid);
        holder.is_none()
    })
    .ok()?;
    Some(holder.map_or(LockState::Free, |pid| LockState::Held(LockHolder::new(pid))))
}

/// Finds the device number of an open file's file system in the mount table.
fn device_of_mount(file: BorrowedFd<'_>) -> Option<(u32, u32)> {
    let mut mount = None;
    for_each_line(&Path::new("/proc/self/fdinfo").join(file.as_raw_fd().to_string()), |line| {
        mount = line.strip_prefix("mnt_id:").map(|id| id.trim().to_string());
        mount.is_none()
    })
    .ok()?;
    let mount = mount?;
    let mut device = None;
    for_each_line(Path::new("/proc/self/mountinfo"), |line| {
        device = parse_mount(line, &mount);
        device.is_none()
    })
    .ok()?;
    device
}

/// Calls `wants_more` for each line until it returns false. The kernel makes these files as they
/// are read; they can be long.
fn for_each_line(path: &Path, mut wants_more: impl FnMut(&str) -> bool) -> io::Result<()> {
    let mut reader = BufReader::new(fs::File::open(path)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut part = io::Read::take(&mut reader, LINE_BYTES_MAX as u64);
        if part.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if !wants_more(String::from_utf8_lossy(&line).trim_end()) {
            return Ok(());
        }
    }
}

/// Parses a line of `/proc/locks`, as `4: FLOCK  ADVISORY  WRITE 27749 fe:00:10100749 0 EOF`.
/// Returns the locked file and the process; the process is `None` if it is in another container, or
/// if the lock belongs to an open file. Returns `None` for leases, and for lines with `->`, which
/// show waiting processes.
fn parse_lock(line: &str) -> Option<(LockedFile, Option<u32>)> {
    let mut words = line.split_ascii_whitespace();
    words.next()?.strip_suffix(':')?;
    if !matches!(words.next()?, "FLOCK" | "POSIX" | "OFDLCK") {
        return None;
    }
    let pid = words.nth(2)?.parse().ok().filter(|pid| *pid > 0);
    let mut file = words.next()?.split(':');
    let number = |text: Option<&str>| u32::from_str_radix(text?, 16).ok();
    let device = (number(file.next())?, number(file.next())?);
    let inode = file.next()?.parse().ok()?;
    file.next().is_none().then_some(((device, inode), pid))
}

/// Returns the device number in a line of `mountinfo`, if the line is that of `mount`: `27 1 254:0
/// / / rw,relatime - ext4 /dev/vda rw`.
fn parse_mount(line: &str, mount: &str) -> Option<(u32, u32)> {
    let mut words = line.split_ascii_whitespace();
    if words.next()? != mount {
        return None;
    }
    let (major, minor) = words.nth(1)?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn lines_of_the_lock_table() {
        let found = |inode, pid| Some((((0xfe, 0x1f), inode), pid));
        for (line, expected) in [
            ("4: FLOCK  ADVISORY  WRITE 27749 fe:1f:10100749 0 EOF", found(10_100_749, Some(27749))),
            ("1: POSIX  ADVISORY  READ  4216 fe:1f:12 128 128", found(12, Some(4216))),
            ("12: OFDLCK ADVISORY  WRITE -1 fe:1f:18446744073709551615 0 EOF", found(u64::MAX, None)),
            ("4: FLOCK  ADVISORY  WRITE 0 fe:1f:12 0 EOF", found(12, None)),
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
    fn lines_of_the_table_of_mounts() {
        let line = "27 1 254:31 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard";
        assert_eq!(parse_mount(line, "27"), Some((254, 31)));
        for (line, mount) in [(line, "2"), ("27 1 254 / /", "27"), ("27", "27"), ("", "27")] {
            assert_eq!(parse_mount(line, mount), None, "{line}");
        }
    }

    #[test]
    fn locks_of_this_process() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = LockState::Held(LockHolder::new(Some(std::process::id())));
        let found = || ledger_lock_state(dir.path());
        assert_eq!(found(), LockState::Free, "there is none");
        assert!(!dir.path().join("ledger.lock").exists());
        let file = File::create(dir.path().join("ledger.lock")).expect("created");
        assert_eq!(found(), LockState::Free);
        file.try_lock_shared().expect("free");
        assert_eq!(found(), own);
        file.unlock().expect("unlocked");
        file.try_lock().expect("free");
        assert_eq!(found(), own);
        assert!(device_of_mount(file.as_fd()).is_some());
        drop(file);
        assert_eq!(found(), LockState::Free, "it went with its file");
    }
}
