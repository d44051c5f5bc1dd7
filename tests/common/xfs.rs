//! An XFS file system in a file. A test that uses it needs `sys_admin`, `loop_xfs`, `mount`, `umount` and
//! `mkfs.xfs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::common::temp_dir;

/// Smallest size that `mkfs.xfs` accepts. Nearly all of the file is a hole.
const IMAGE_BYTES: u64 = 300 << 20;

/// An XFS file system that is mounted until it is dropped.
pub struct XfsDisk {
    mount_point: PathBuf,
    _dir: TempDir,
}

impl XfsDisk {
    pub fn new() -> Self {
        let dir = temp_dir();
        let image = dir.path().join("image");
        let mount_point = dir.path().join("disk");
        fs::create_dir(&mount_point).expect("made");
        fs::File::create(&image).expect("made").set_len(IMAGE_BYTES).expect("grown");
        assert!(Command::new("mkfs.xfs").arg("-q").arg(&image).status().expect("runs").success());
        assert!(
            Command::new("mount").args(["-o", "loop"]).args([&image, &mount_point]).status().expect("runs").success()
        );
        Self { mount_point, _dir: dir }
    }

    pub fn path(&self) -> &Path {
        &self.mount_point
    }
}

impl Drop for XfsDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.mount_point).status();
    }
}
