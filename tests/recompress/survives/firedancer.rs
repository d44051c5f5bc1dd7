//! A conversion of an archive by Firedancer that ends early, at any stage.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Instant;

use crate::common::firedancer::*;
use crate::common::*;

fn conversion(out: &Path) -> std::process::Command {
    let (chain, agave, _) = CHAINS[0];
    let mut recompress = command("recompress");
    recompress.arg(incremental(chain)).arg("--base").arg(full(chain));
    recompress.args(["--for", "agave", "--genesis"]).arg(genesis_of(agave)).arg("-o").arg(out);
    recompress
}

#[test]
fn a_panic_at_each_stage_leaves_nothing() {
    for place in ["entries in order", "record worker", "sorting", "converting", "assembling", "encoder", "frame writer"]
    {
        let dir = temp_dir();
        let (code, _, stderr) = run(conversion(dir.path()).env("FAULTS_PANIC_AT", place));
        assert!(code != 0 && stderr.contains("injected"), "{place}: {code} {stderr}");
        assert_eq!(names(dir.path()), [""; 0], "{place}");
        assert_eq!(run(&mut conversion(dir.path())).0, 0, "{place}");
    }
}

/// After a kill at any moment, there is no archive, and the next run makes it.
#[test]
fn killed_it_leaves_nothing_that_loads() {
    let (dir, expected) = (temp_dir(), name(&incremental(CHAINS[0].0)));
    let started = Instant::now();
    assert_eq!(run(&mut conversion(dir.path())).0, 0);
    let (took, whole) = (started.elapsed(), fs::read(dir.path().join(&expected)).expect("read"));
    let mut killed = 0;
    for number in 0..24u32 {
        let dir = temp_dir();
        let mut child = conversion(dir.path()).stderr(std::process::Stdio::null()).spawn().expect("starts");
        sleep(took * number / 24);
        child.kill().expect("killed");
        let is_done = child.wait().expect("ends").success();
        killed += u32::from(!is_done);
        if !dir.path().join(&expected).exists() {
            assert!(!is_done, "{number}");
            assert_eq!(run(&mut conversion(dir.path())).0, 0, "{number}");
        }
        assert_eq!(names(dir.path()), [expected.as_str()], "{number}");
        assert!(fs::read(dir.path().join(&expected)).expect("read") == whole, "{number}");
    }
    assert!(killed > 0, "{took:?}");
}
