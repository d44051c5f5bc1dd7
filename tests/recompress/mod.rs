//! `slotpress recompress` writes the same entries in any format, after checking them. From a damaged
//! source, it makes no archive.

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

pub fn recompress(source: &Path, out: &Path, flags: &[&str]) -> PathBuf {
    let output = slotpress().arg("recompress").arg(source).arg("-o").arg(out).args(flags).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    PathBuf::from(text.lines().next().expect("a path"))
}
