//! `slotpress recompress`: the same entries, checked, in any format. A damaged source gives no
//! archive.

mod works {
    mod firedancer;
    mod formats;
}
mod refused {
    mod firedancer;
    mod names;
    mod sources;
}
mod survives {
    mod replaced;
    mod stopping;
}

use std::path::{Path, PathBuf};

use crate::common::slotpress;

pub const FULL: &str = "snapshot-26-5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt.tar.zst";

pub const INCREMENTAL: &str = "incremental-snapshot-26-40-D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi.tar.zst";

pub fn recompress(source: &Path, out: &Path, flags: &[&str]) -> PathBuf {
    let output = slotpress().arg("recompress").arg(source).arg("-o").arg(out).args(flags).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    PathBuf::from(text.lines().next().expect("a path"))
}
