//! Several runs that make the same archive at the same time.

use std::process::{Command, Stdio};

use crate::common::*;

/// Each run ends with success, although another run may replace its archive at once.
#[test]
fn concurrent_runs_replace_one_archive() {
    let out = temp_dir();
    for _ in 0..3 {
        let children: Vec<_> = (0..32)
            .map(|_| {
                let mut command = Command::new(slotpress_path());
                command
                    .args(["-q", "recompress", "--force", "--threads", "1"])
                    .arg(fixture(FULL_26))
                    .arg("-o")
                    .arg(out.path());
                command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts")
            })
            .collect();
        for child in children {
            let output = child.wait_with_output().expect("ends");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
    assert_eq!(relative_paths(out.path()), [FULL_26]);
}
