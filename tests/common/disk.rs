//! Small file systems in memory, for tests that have the right to mount
//! (`needs!("sys_admin", "mount", "umount")`).

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A file system that is unmounted at the end of the test.
pub struct Disk(TempDir);

impl Disk {
    /// Mounts a file system with options of tmpfs, such as `size=64k`.
    pub fn mount(options: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        mount(&["-t", "tmpfs", "-o", options, "tmpfs"], dir.path());
        Self(dir)
    }

    pub fn remount(&self, options: &str) {
        mount(&["-o", &format!("remount,{options}")], self.path());
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

fn mount(arguments: &[&str], mount_point: &Path) {
    let output = Command::new("mount").args(arguments).arg(mount_point).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
