//! Inputs that are wrong: no table gets its name.

use std::fs;
use std::path::Path;

use crate::common::*;
use crate::export::{pair, rows, run};

fn refused(inputs: &[&Path], flags: &[&str], code: i32, words: &str) {
    let out = temp_dir();
    let output = run(inputs, out.path(), flags);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(code) && said.contains(words), "{flags:?}: {:?}: {said}", output.status);
    assert_eq!(names(out.path()), Vec::<String>::new(), "{said}");
}

#[test]
fn states_that_are_not_right() {
    let [full, incremental] = pair("agave-4.2.2");
    refused(&[&incremental], &[], 2, "full archive");
    let [_, of_others] = pair(AGAVE_4_5);
    refused(&[&full, &of_others], &[], 3, "");
    let hash = "5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt";
    refused(&[&full, &incremental], &["--expect-hash", hash], 3, hash);
    refused(&[&full], &["--expect-slot", "27"], 3, "27");
    let dir = temp_dir();
    let damaged = dir.path().join(name(&full));
    let content = fs::read(&full).expect("read");
    let sound = rows(&[&full], &["--data", "full"]);
    let mut found = 0;
    for at in (500..content.len()).step_by(content.len() / 40) {
        let mut bytes = content.clone();
        bytes[at] ^= 0x40;
        fs::write(&damaged, &bytes).expect("written");
        let out = temp_dir();
        let output = run(&[&damaged], out.path(), &[]);
        match output.status.code() {
            // Some bytes of records have no meaning.
            Some(0) => assert!(rows(&[&damaged], &["--data", "full"]) == sound, "{at}"),
            code => {
                assert_eq!((code, names(out.path())), (Some(3), Vec::new()), "{at}");
                found += 1;
            }
        }
    }
    assert!(found > 20, "{found}");
    fs::write(&damaged, &content[..content.len() / 2]).expect("written");
    refused(&[&damaged], &[], 3, "");
}

/// A record with other lamports is valid by itself; the sums of the state show the change.
#[test]
fn a_forged_record() {
    let [full, _] = pair("agave-4.2.2");
    let mut entries = entries(&full);
    let storage = entries.iter_mut().find(|entry| entry.path.starts_with("accounts/")).expect("a storage");
    storage.content[48] ^= 1;
    let dir = temp_dir();
    let forged = dir.path().join(name(&full));
    fs::write(&forged, zstd::encode_all(make_tar(&entries).as_slice(), 1).expect("compressed")).expect("written");
    refused(&[&forged], &[], 3, "");
    // Without the check, it is written, and the manifest says that it was not checked.
    let out = temp_dir();
    assert!(run(&[&forged], out.path(), &["--check", "frames"]).status.success());
    assert_eq!(crate::export::manifest(out.path())["state"], "not checked");
}

#[test]
fn invalid_flags_are_usage_errors() {
    let [full, _] = pair("agave-4.2.2");
    let full = [full.as_path()];
    refused(&full, &["--format", "csv"], 2, "CSV goes to standard output only");
    refused(&full, &["--memcmp", "0"], 2, "--memcmp");
    refused(&full, &["--memcmp", "0:0xzz"], 2, "--memcmp");
    refused(&full, &["--data", "1:"], 2, "OFFSET:LENGTH");
    refused(&full, &["--address", "x"], 2, "--address x");
    let dir = temp_dir();
    let list = dir.path().join("list");
    fs::write(&list, "# none\n").expect("written");
    refused(&full, &["--address", &format!("@{}", text(&list))], 2, "lists no address");
    refused(&full, &["--mint", "1"], 2, "--mint");
    let both = run(&full, Path::new("-"), &["--table", "accounts,token-accounts"]);
    assert!(both.status.code() == Some(2) && both.stdout.is_empty());
}

/// A valid account that no column can hold is not reported as damaged.
#[test]
fn an_account_beyond_int64() {
    let [full, _] = pair("agave-4.2.2");
    let mut entries = entries(&full);
    let storage = entries.iter_mut().find(|entry| entry.path.starts_with("accounts/")).expect("a storage");
    storage.content[48..56].copy_from_slice(&(1u64 << 63).to_le_bytes());
    let dir = temp_dir();
    let forged = dir.path().join(name(&full));
    fs::write(&forged, zstd::encode_all(make_tar(&entries).as_slice(), 1).expect("compressed")).expect("written");
    let words = "has 9223372036854775808 lamports: a column of int64 ends at 9223372036854775807";
    refused(&[&forged], &["--check", "frames"], 1, words);
}

#[test]
fn memory_that_does_not_suffice() {
    let [full, _] = pair("agave-4.2.2");
    refused(
        &[&full],
        &["--memory", "64MiB"],
        2,
        "--memory 64 MiB: one worker and the files that it fills take 152 MiB",
    );
    let (out, both) = (temp_dir(), ["--table", "accounts,token-accounts"]);
    refused(&[&full], &[&both[..], &["--memory", "152MiB"]].concat(), 2, "take 163 MiB");
    assert!(run(&[&full], out.path(), &["--memory", "152MiB"]).status.success());
}

/// The documented example with `| head`.
#[test]
fn a_reader_that_has_enough() {
    let [full, _] = pair("agave-4.2.2");
    let (read_end, write_end) = std::io::pipe().expect("a pipe");
    drop(read_end);
    let mut command = std::process::Command::new(slotpress_path());
    let output = command.arg("export").arg(&full).args(["-o", "-"]).stdout(write_end).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("the state was not checked") && !said.contains("error"), "{said}");
}

/// A disk that is not mounted: its directory is missing, and is not made on the disk above.
#[test]
fn an_output_whose_disk_is_not_mounted() {
    let [full, _] = pair("agave-4.2.2");
    let dir = temp_dir();
    let output = run(&[&full], &dir.path().join("not-mounted/tables"), &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("not-mounted does not exist") && said.contains("hint: mount its disk"), "{said}");
    assert_eq!(names(dir.path()), Vec::<String>::new(), "{said}");
}
