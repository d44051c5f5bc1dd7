//! `list` and `prune`.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use serde_json::Value;

use super::server::{Server, two_archives};
use crate::common::*;

fn objects(output: &[u8]) -> Vec<Value> {
    String::from_utf8_lossy(output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .expect("read")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    names
}

#[test]
fn a_list_tells_what_a_node_would_choose() {
    let dir = two_archives();
    let output = slotpress().arg("list").arg(dir.path()).output().expect("run");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success());
    for part in
        [&format!("* {FULL_26}"), &format!("* {INCREMENTAL_26_40}"), "14 slots (4 s) behind", "start at slot 40"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let output = slotpress().args(["list", "--json"]).arg(dir.path()).output().expect("run");
    let objects = objects(&output.stdout);
    assert_eq!(objects.len(), 3);
    assert_eq!((&objects[0]["name"], &objects[0]["chosen"]), (&FULL_26.into(), &true.into()));
    assert_eq!(objects[1]["base"], FULL_26);
    assert_eq!((&objects[2]["type"], &objects[2]["incremental"]), (&"choice".into(), &INCREMENTAL_26_40.into()));
    assert_eq!((&objects[0]["slots_behind"], &objects[0]["seconds_behind"]), (&14.into(), &4.into()));
    // By the bank file of an archive without an index; of one that has one, too.
    let told = |objects: &[Value]| (objects[2]["slot_ms"].clone(), objects[2]["slot_time_source"].clone());
    assert_eq!(told(&objects), (300.into(), "bank-file".into()));
    fs::copy(fixture_of("slotpress-marks", "snapshot-26-"), dir.path().join(FULL_26)).expect("copied");
    let output = slotpress().args(["list", "--json"]).arg(dir.path()).output().expect("run");
    assert_eq!(told(&self::objects(&output.stdout)), (300.into(), "bank-file".into()));
    slotpress().arg("list").arg(dir.path().join("none")).assert().failure().code(1);
    let empty = temp_dir();
    let output = slotpress().arg("list").arg(empty.path()).output().expect("run");
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).starts_with("no archives in"));
}

/// What an interrupted download leaves under an archive's name, which has one frame, is no archive.
#[test]
fn what_is_cut_off_is_left_out() {
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    for length in [0, 1, bytes.len() / 3, bytes.len() - 1, bytes.len()] {
        let dir = two_archives();
        fs::write(dir.path().join(FULL_26), &bytes[..length]).expect("written");
        let output = slotpress().args(["list", "--json"]).arg(dir.path()).output().expect("run");
        let is_full = |object: &Value| object["type"] == "archive_listed" && object["name"] == FULL_26;
        let is_listed = objects(&output.stdout).iter().any(is_full);
        assert_eq!(is_listed, length == bytes.len(), "{length} bytes");
        let unusable = objects(&output.stdout).into_iter().find(|object| object["type"] == "archive_unusable");
        let fault = match length {
            0 => "empty".into(),
            1 => "not_an_archive".into(),
            _ if is_listed => Value::Null,
            _ => "cut".into(),
        };
        assert_eq!(unusable.unwrap_or_default()["fault"], fault, "{length} bytes");
        let server = Server::start_in(dir, &[]);
        assert_eq!(server.get("/", "").text().contains(FULL_26), is_listed, "{length} bytes");
        if !is_listed {
            server.wait_for_line(&["warning", FULL_26, "is not used: it"]);
        }
    }
}

#[test]
fn old_archives_go_and_nothing_else() {
    let dir = temp_dir();
    let hash = "D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi";
    let others = ["bank.txt", "tmp-snapshot-archive-300.tar.zst", "snapshot-x.tar.zst", "tmp-genesis"];
    let full = |slot: u64| format!("snapshot-{slot}-{hash}.tar.zst");
    let incremental = |base: u64, slot: u64| format!("incremental-snapshot-{base}-{slot}-{hash}.tar.zst");
    let archives =
        [full(100), full(200), full(300), incremental(100, 150), incremental(200, 250), incremental(200, 260)];
    for name in archives.iter().map(String::as_str).chain(others) {
        fs::write(dir.path().join(name), filler(9)).expect("written");
    }
    fs::create_dir(dir.path().join("remote")).expect("created");
    fs::write(dir.path().join("remote").join(full(90)), filler(9)).expect("written");
    std::os::unix::fs::symlink("bank.txt", dir.path().join(full(1))).expect("linked");

    let prune = |arguments: &[&str]| {
        slotpress().arg("prune").arg(dir.path()).args(arguments).assert().success().get_output().stdout.clone()
    };
    let before = names(dir.path());
    let dry = prune(&["--keep-full", "1", "--keep-incremental", "1", "--dry-run", "--json"]);
    assert_eq!(names(dir.path()), before, "nothing goes in a dry run");
    let dry = objects(&dry);
    let summary = dry.last().expect("a summary");
    assert_eq!((&summary["removed"], &summary["kept"], &summary["dry_run"]), (&4.into(), &3.into(), &true.into()));
    let reason = |name: &str| dry.iter().find(|line| line["name"] == name).map(|line| line["kept_because"].clone());
    assert_eq!(reason(&full(300)), Some("newest".into()));
    assert_eq!(reason(&full(200)), Some("base".into()), "an incremental archive that stays needs it");
    assert_eq!(reason(&incremental(200, 260)), Some("newest".into()));
    assert_eq!(reason(&full(100)), Some(Value::Null));

    let recent = prune(&["--keep-full", "0", "--keep-incremental", "0", "--keep-within", "1h"]);
    assert!(String::from_utf8_lossy(&recent).contains("removed 0 archives"));
    assert_eq!(names(dir.path()), before);

    let done = String::from_utf8(prune(&["--keep-full", "0", "--keep-incremental", "0"])).expect("text");
    assert!(done.contains("removed 4 archives"), "{done}");
    // What a node would choose, and the newest pair.
    let mut left: Vec<String> = [full(200), full(300), incremental(200, 260), full(1), "remote".into()].into();
    left.extend(others.map(String::from));
    left.sort();
    assert_eq!(names(dir.path()), left);
    assert_eq!(names(&dir.path().join("remote")), [""; 0]);
    slotpress().arg("prune").arg(dir.path()).assert().failure().code(2);
}

/// By size and by free space: the oldest go first, incremental archives before their full one, never what a node needs.
#[test]
fn old_archives_go_until_there_is_room() {
    let hash = "D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi";
    let full = |slot: u64| format!("snapshot-{slot}-{hash}.tar.zst");
    let incremental = |base: u64, slot: u64| format!("incremental-snapshot-{base}-{slot}-{hash}.tar.zst");
    let all = [full(100), incremental(100, 150), full(200), incremental(200, 250), full(300), incremental(300, 310)];
    let made = || {
        let dir = temp_dir();
        all.iter().for_each(|name| fs::write(dir.path().join(name), filler(1000)).expect("written"));
        dir
    };
    let prune = |dirs: &[&Path], flags: &[&str]| {
        let output = slotpress().arg("prune").args(dirs).args(flags).output().expect("runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let left = |names: &[usize]| -> Vec<String> {
        let mut left: Vec<String> = names.iter().map(|at| all[*at].clone()).collect();
        left.sort();
        left
    };
    for (bytes, expected) in [
        ("6000", &[0, 1, 2, 3, 4, 5][..]),
        ("5999", &[0, 2, 3, 4, 5]),
        ("4000", &[2, 3, 4, 5]),
        ("3000", &[2, 4, 5]),
        ("2000", &[4, 5]),
    ] {
        let (one, other) = (made(), made());
        assert_eq!(prune(&[one.path(), other.path()], &["--keep-bytes", bytes]), (Some(0), String::new()), "{bytes}");
        assert_eq!(names(one.path()), left(expected), "{bytes}");
        assert_eq!(names(other.path()), left(expected), "each directory on its own: {bytes}");
    }
    // What a node needs stays, and that is said; counts and sizes go together.
    let dir = made();
    let (code, said) = prune(&[dir.path()], &["--keep-free", "900TiB"]);
    assert!(code == Some(0) && said.contains("more than asked for are kept: they are what a node needs"), "{said}");
    assert_eq!(names(dir.path()), left(&[4, 5]));
    let dir = made();
    prune(&[dir.path()], &["--keep-full", "2", "--keep-incremental", "0", "--keep-free", "1KiB"]);
    assert_eq!(names(dir.path()), left(&[2, 4, 5]));
}

#[test]
fn a_file_that_was_touched_a_while_ago_is_old() {
    let dir = two_archives();
    let path = dir.path().join(INCREMENTAL_26_40.replace("-40-", "-30-"));
    fs::write(&path, filler(9)).expect("written");
    let file = fs::File::options().write(true).open(&path).expect("opened");
    file.set_modified(SystemTime::now() - std::time::Duration::from_secs(7200)).expect("set");
    let flags = ["--keep-full", "1", "--keep-incremental", "0", "--keep-within"];
    slotpress().arg("prune").arg(dir.path()).args(flags).arg("3h").assert().success();
    assert!(path.exists());
    slotpress().arg("prune").arg(dir.path()).args(flags).arg("1h").assert().success();
    assert!(!path.exists() && dir.path().join(FULL_26).exists());
}

/// A server's own list says as much as its directory; a server without one, what it redirects to.
#[cfg(feature = "net")]
#[test]
fn a_list_of_a_server() {
    let server = super::server::Server::start(&[]);
    let list = |url: &str| {
        let output = slotpress().args(["list", "--json", url]).output().expect("run");
        (output.status.code(), objects(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, listed, _) = list(&server.url("/"));
    assert_eq!((code, listed.len()), (Some(0), 3));
    assert_eq!((&listed[0]["name"], &listed[0]["size_bytes"]), (&FULL_26.into(), &218_457.into()));
    assert_eq!(listed[0]["file"], server.url(&format!("/{FULL_26}")));
    assert_eq!((&listed[1]["base"], &listed[1]["chosen"]), (&FULL_26.into(), &true.into()));
    // One archive is a place too; it has no list.
    let (code, listed, _) = list(&server.url(&format!("/{INCREMENTAL_26_40}")));
    assert_eq!((code, &listed[0]["name"], listed.len()), (Some(0), &INCREMENTAL_26_40.into(), 2));
    assert_eq!(listed[0]["size_bytes"], 110_400);
    assert!(listed[0]["age_seconds"].is_number(), "by Last-Modified: {listed:?}");
    let url = server.url("/");
    let (status, _) = server.stop();
    assert!(status.success());
    let (code, _, errors) = list(&url);
    assert_eq!(code, Some(4), "{errors}");
}

/// Archives of last week are a week old, whoever is asked, and with no RPC server that tells the current slot.
#[cfg(feature = "net")]
#[test]
fn a_stale_mirror_is_stale() {
    let dir = two_archives();
    let week = 7 * 86_400;
    for name in names(dir.path()) {
        let file = fs::File::open(dir.path().join(name)).expect("opened");
        file.set_modified(SystemTime::now() - std::time::Duration::from_secs(week)).expect("set");
    }
    let server = Server::start_in(dir, &[]);
    let (url, out) = (server.url("/"), temp_dir());
    let local = server.dir.path().to_str().expect("UTF-8").to_string();
    let archive = server.url(&format!("/{FULL_26}"));
    let ledger = out.path().join("ledger").to_str().expect("UTF-8").to_string();
    let run = |arguments: &[&str]| {
        let output = slotpress().args(arguments).output().expect("run");
        (output.status.code(), objects(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let is_a_week = |line: &Value| line["age_seconds"].as_f64().is_some_and(|age| (age - week as f64).abs() < 3600.0);
    for source in [&url, &archive, &local] {
        let (_, listed, errors) =
            if *source == archive { (None, vec![], String::new()) } else { run(&["list", "--json", source]) };
        assert!(listed.iter().filter(|line| line["type"] == "archive_listed").all(is_a_week), "{listed:?} {errors}");
        for arguments in [&["find", "--source", source][..], &["bootstrap", "--dry-run", source, "--ledger", &ledger]] {
            let (code, _, errors) = run(&[arguments, &["--json"]].concat());
            assert_eq!(code, Some(4), "{arguments:?}: {errors}");
            assert!(errors.contains("would be 7 d (") && errors.contains("--max-age"), "{errors}");
            let (code, found, errors) = run(&[arguments, &["--json", "--max-age", "8d"]].concat());
            assert_eq!(code, Some(0), "{arguments:?}: {errors}");
            assert!(is_a_week(&found[0]), "{arguments:?}: {found:?}");
        }
    }
    // What a server's list says of slots is known to whoever asks it.
    let (_, found, _) = run(&["find", "--json", "--max-age", "8d", "--source", &url]);
    let last = found.last().expect("a summary");
    assert_eq!((&last["slot_ms"], &last["slot_time_source"]), (&300.into(), &"bank-file".into()));
}

/// Redirects lead to the newest archives only; the list has the older ones, what builds on them, and roots.
#[cfg(feature = "net")]
#[test]
fn find_and_fetch_use_the_list_of_a_server() {
    let dir = two_archives();
    let newer = fixture(FULL_3500);
    slotpress().arg("recompress").arg(&newer).arg("-o").arg(dir.path()).assert().success();
    let server = Server::start_in(dir, &[]);
    let output = slotpress().args(["find", "--json", "--source", &server.url("/")]).output().expect("run");
    let found = objects(&output.stdout);
    let candidate = |slot: u64| found.iter().find(|line| line["type"] == "candidate" && line["slot"] == slot);
    let older = candidate(40).expect("a pair on the older archive");
    assert_eq!((&older["full"]["name"], &older["full"]["root"]), (&FULL_26.into(), &Value::Null));
    let newer = &candidate(3500).expect("the newer archive")["full"];
    let output = slotpress().args(["list", "--json", &server.url("/")]).output().expect("run");
    let listed = objects(&output.stdout);
    assert!(listed.iter().any(|line| line["name"] == newer["name"] && line["root"] == newer["root"]), "{listed:?}");
    let root = newer["root"].as_str().expect("a root");
    assert_eq!(root.len(), 64);

    // What the list says of roots is looked at before a byte is fetched.
    let out = temp_dir();
    let fetch = |root: &str| {
        slotpress().arg("fetch").arg(server.url("/")).args(["--expect-root", root, "-o"]).arg(out.path()).assert()
    };
    let other = root.replace(|digit: char| digit != 'f', "f");
    let output = fetch(&other).failure().code(3).get_output().clone();
    // The archives without a root may have any.
    assert!(String::from_utf8_lossy(&output.stderr).contains("not the archive of root"));
    assert!(!out.path().join(FULL_3500).exists());
    fetch(root).success();
    assert_eq!(names(out.path()), [FULL_3500]);
}

/// Two full archives that were cut off, newer than a good one: they are shown, count as nothing, and go when that is asked for.
#[test]
fn what_is_not_usable_is_never_kept_in_the_place_of_what_is() {
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    let name = |slot: u64| FULL_26.replace("-26-", &format!("-{slot}-"));
    let dir = two_archives();
    for (slot, content) in [(700, &bytes[..bytes.len() / 2]), (701, &bytes[..bytes.len() - 1]), (702, &[0; 4096][..])] {
        fs::write(dir.path().join(name(slot)), content).expect("written");
    }
    let run = |command: &str, flags: &[&str]| {
        let output = slotpress().arg(command).arg(dir.path()).args(flags).output().expect("runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    };
    let (code, listed) = run("list", &[]);
    assert!(code == Some(0) && listed.contains("start at slot 40"), "{listed}");
    for slot in [700, 701, 702] {
        assert!(listed.contains(&format!("! {}", name(slot))), "{listed}");
    }
    assert!(listed.contains("not usable: it has no end") && listed.contains("not usable: its first bytes"), "{listed}");

    let all = names(dir.path());
    let (code, said) = run("prune", &["--keep-full", "2", "--keep-incremental", "4"]);
    assert!(code == Some(0) && said.contains("removed 0 archives") && said.contains("--unusable removes it"), "{said}");
    assert_eq!(names(dir.path()), all, "nothing that is good goes");
    let lines = objects(run("prune", &["--keep-full", "0", "--keep-incremental", "0", "--json"]).1.as_bytes());
    let summary = lines.last().expect("a summary");
    assert_eq!((&summary["kept"], &summary["unusable"], &summary["removed"]), (&2.into(), &3.into(), &0.into()));
    assert_eq!(names(dir.path()), all);

    // What changed a moment ago may still be being written.
    let (_, said) = run("prune", &["--unusable"]);
    assert!(said.contains("it changed a moment ago, and stays"), "{said}");
    for slot in [700, 701, 702] {
        let file = fs::File::options().write(true).open(dir.path().join(name(slot))).expect("opened");
        file.set_modified(SystemTime::now() - std::time::Duration::from_secs(120)).expect("set");
    }
    let (_, said) = run("prune", &["--unusable", "--dry-run"]);
    assert!(said.contains(&format!("would remove {}", dir.path().join(name(700)).display())), "{said}");
    assert_eq!(names(dir.path()), all);
    assert_eq!(run("prune", &["--unusable"]).0, Some(0));
    assert_eq!(names(dir.path()), names(two_archives().path()));
}

/// A target of `publish` has an index, which would name what is gone.
#[test]
fn a_target_of_publish_is_not_pruned() {
    let index = format!(r#"{{"version":1,"archives":[{{"name":"{FULL_26}"}}]}}"#);
    for path in ["latest.json", "api/v1/archives"] {
        let dir = two_archives();
        let at = dir.path().join(path);
        fs::create_dir_all(at.parent().expect("a directory")).expect("made");
        fs::write(&at, &index).expect("written");
        let output =
            slotpress().arg("prune").arg(dir.path()).args(["--keep-full", "0", "--keep-incremental", "0"]).output();
        let output = output.expect("runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(1) && said.contains("hint: let `slotpress publish` prune it"),
            "{path}: {said}"
        );
        // What is no index is nobody's.
        fs::write(&at, "{}").expect("written");
        slotpress()
            .arg("prune")
            .arg(dir.path())
            .args(["--keep-full", "0", "--keep-incremental", "0"])
            .assert()
            .success();
    }
}

/// What has the place of an index and cannot be read as one may be one: nothing goes.
#[test]
fn a_directory_whose_index_cannot_be_read_is_not_pruned() {
    type Put = fn(&Path);
    let too_long: Put = |at| fs::File::create(at).and_then(|file| file.set_len((8 << 20) + 1)).expect("made");
    let directory: Put = |at| fs::create_dir(at).expect("made");
    let link: Put = |at| std::os::unix::fs::symlink("elsewhere", at).expect("made");
    for path in ["latest.json", "api/v1/archives"] {
        for (what, put) in [("more than", too_long), ("is not a file", directory), ("symbolic link", link)] {
            let dir = two_archives();
            let at = dir.path().join(path);
            fs::create_dir_all(at.parent().expect("a directory")).expect("made");
            put(&at);
            let before = names(dir.path());
            let flags = ["--keep-full", "0", "--keep-incremental", "0", "--unusable", "--partials"];
            let output = slotpress().arg("prune").arg(dir.path()).args(flags).output().expect("runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.code() == Some(1) && said.contains(what), "{path}: {said}");
            assert!(said.contains(text(&at)) && said.contains("hint: "), "{path}: {said}");
            assert_eq!(names(dir.path()), before);
        }
    }
    // A file in the place of a directory above it: there is no index.
    let dir = two_archives();
    fs::write(dir.path().join("api"), "").expect("written");
    slotpress().arg("prune").arg(dir.path()).args(["--keep-full", "1", "--keep-incremental", "1"]).assert().success();
}

/// Downloads that did not end are named by all that look at the directory, and removed when that is asked for.
#[test]
fn downloads_that_did_not_end() {
    let dir = two_archives();
    let old = FULL_26.replace("-26-", "-9-");
    let partial = dir.path().join(format!("slotpress-fetch-{old}"));
    fs::write(&partial, vec![1; 100_000]).expect("written");
    fs::write(dir.path().join(format!("slotpress-fetch-{old}.journal")), "{}").expect("written");
    let say = |arguments: &[&std::ffi::OsStr]| {
        let output = slotpress().args(arguments).output().expect("runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8([output.stdout, output.stderr].concat()).expect("text")
    };
    let (at, shown) = (dir.path().as_os_str(), partial.display().to_string());
    let from = two_archives();
    for arguments in [
        vec!["list".as_ref(), at],
        vec!["fetch".as_ref(), from.path().as_os_str(), "-o".as_ref(), at],
        vec!["prune".as_ref(), at, "--partials".as_ref(), "--dry-run".as_ref()],
    ] {
        let said = say(&arguments);
        assert!(said.contains(&shown) && said.contains("KiB"), "{said}");
        assert!(partial.exists());
    }
    let held = fs::File::open(&partial).expect("opened");
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).expect("locked");
    say(&["prune".as_ref(), at, "--partials".as_ref()]);
    assert!(partial.exists(), "it is in use");
    drop(held);
    say(&["prune".as_ref(), at, "--keep-full".as_ref(), "9".as_ref(), "--keep-incremental".as_ref(), "9".as_ref()]);
    assert!(partial.exists(), "it was not asked for");
    say(&["prune".as_ref(), at, "--partials".as_ref()]);
    assert_eq!(names(dir.path()), names(from.path()));
}

/// For a timer that watches over backups.
#[test]
fn a_list_with_an_age_ends_with_an_error_when_it_is_exceeded() {
    let dir = two_archives();
    let list = |flags: &[&str]| slotpress().arg("list").arg(dir.path()).args(flags).assert();
    list(&["--max-age", "2h"]).success();
    let file = fs::File::options().write(true).open(dir.path().join(INCREMENTAL_26_40)).expect("opened");
    file.set_modified(SystemTime::now() - std::time::Duration::from_secs(10_000)).expect("set");
    let said = list(&["--max-age", "2h"]).failure().code(1).get_output().stderr.clone();
    assert!(String::from_utf8_lossy(&said).contains("h old, more than 2"), "{}", String::from_utf8_lossy(&said));
    list(&["--max-age", "3h"]).success();
    slotpress().arg("list").arg(temp_dir().path()).args(["--max-age", "2h"]).assert().failure().code(1);
}

/// All archives of a directory, one line each.
#[test]
fn a_directory_is_verified() {
    let dir = two_archives();
    let verify = || {
        let output = slotpress().arg("verify").arg(dir.path()).output().expect("runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    };
    let (code, said) = verify();
    assert_eq!((code, said.lines().filter(|line| line.starts_with("ok  ")).count()), (Some(0), 2), "{said}");
    let mut bytes = fs::read(fixture(FULL_26)).expect("read");
    fs::write(dir.path().join(FULL_26.replace("-26-", "-9-")), &bytes[..bytes.len() / 2]).expect("written");
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(dir.path().join(FULL_26.replace("-26-", "-27-")), &bytes).expect("written");
    let (code, said) = verify();
    assert_eq!(code, Some(3), "{said}");
    let failed: Vec<&str> = said.lines().filter(|line| line.starts_with("FAILED  ")).collect();
    assert!(failed.len() == 2 && failed[0].contains("-27-") && failed[1].contains("it has no end"), "{said}");
}
