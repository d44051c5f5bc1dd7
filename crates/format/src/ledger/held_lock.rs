//! Whether somebody holds a ledger's lock, without touching it: even a lock that is held for a microsecond makes a
//! validator fail that starts in it. Linux lists all locks in `/proc/locks` (`proc_locks(5)`).

use {
    rustix::fs::{Mode, OFlags},
    std::{
        fs,
        io::{self, BufRead, BufReader},
        os::fd::{AsRawFd, OwnedFd},
        path::Path,
    },
};

/// Longer is no line of the files read here; what is beyond is not looked at.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// A file as `/proc/locks` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LockedFile {
    /// Major and minor number of the file system.
    device: (u32, u32),
    inode: u64,
}

/// Whether a process holds `<ledger>/ledger.lock`; `None` where the system does not tell. Locks of processes that this
/// one cannot see, in containers beside it or around it, are not listed. Nothing is made, changed or locked.
pub fn is_ledger_lock_held(ledger: &Path) -> Option<bool> {
    let path = ledger.join("ledger.lock");
    // A path alone: needs no right to read it, and waits for nothing.
    let file = match rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT) => return Some(false),
        Err(_) => return None,
    };
    let stat = rustix::fs::fstat(&file).ok()?;
    let inode = stat.st_ino;
    // btrfs gives each subvolume a device number of its own, but lists locks under that of the file system, which is
    // what the table of mounts has. Elsewhere the two are one.
    let of_stat = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let devices = [Some(of_stat), device_of_mount(&file)];
    let files: Vec<LockedFile> = devices.into_iter().flatten().map(|device| LockedFile { device, inode }).collect();
    let mut is_held = false;
    for_each_line(Path::new("/proc/locks"), |line| {
        is_held = parse_lock(line).is_some_and(|locked| files.contains(&locked));
        !is_held
    })
    .ok()?;
    Some(is_held)
}

/// The device number of the file system on which an open file is.
fn device_of_mount(file: &OwnedFd) -> Option<(u32, u32)> {
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

/// Hands over lines until one is enough. These files are made while they are read, and can be long.
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

/// The file of a lock that is held: `4: FLOCK  ADVISORY  WRITE 27749 fe:00:10100749 0 EOF`. A line with `->` is of
/// somebody who waits for the lock above it; leases are no locks.
fn parse_lock(line: &str) -> Option<LockedFile> {
    let mut words = line.split_ascii_whitespace();
    words.next()?.strip_suffix(':')?;
    if !matches!(words.next()?, "FLOCK" | "POSIX" | "OFDLCK") {
        return None;
    }
    let mut file = words.nth(3)?.split(':');
    let number = |text: Option<&str>| u32::from_str_radix(text?, 16).ok();
    let device = (number(file.next())?, number(file.next())?);
    let inode = file.next()?.parse().ok()?;
    file.next().is_none().then_some(LockedFile { device, inode })
}

/// The device number in a line of `mountinfo`, where it is that of the mount:
/// `27 1 254:0 / / rw,relatime - ext4 /dev/vda rw`.
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
    use {super::*, std::fs::File};

    #[test]
    fn lines_of_the_lock_table() {
        let found = |inode| Some(LockedFile { device: (0xfe, 0x1f), inode });
        for (line, expected) in [
            ("4: FLOCK  ADVISORY  WRITE 27749 fe:1f:10100749 0 EOF", found(10_100_749)),
            ("1: POSIX  ADVISORY  READ  4216 fe:1f:12 128 128", found(12)),
            ("12: OFDLCK ADVISORY  WRITE -1 fe:1f:18446744073709551615 0 EOF", found(u64::MAX)),
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
        assert_eq!(is_ledger_lock_held(dir.path()), Some(false), "there is none");
        assert!(!dir.path().join("ledger.lock").exists());
        let file = File::create(dir.path().join("ledger.lock")).expect("created");
        assert_eq!(is_ledger_lock_held(dir.path()), Some(false));
        file.try_lock_shared().expect("free");
        assert_eq!(is_ledger_lock_held(dir.path()), Some(true));
        file.unlock().expect("unlocked");
        file.try_lock().expect("free");
        assert_eq!(is_ledger_lock_held(dir.path()), Some(true));
        assert!(device_of_mount(&OwnedFd::from(file)).is_some());
        assert_eq!(is_ledger_lock_held(dir.path()), Some(false), "it went with its file");
    }
}
