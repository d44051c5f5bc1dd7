//! Helpers that all tests share: fixtures, runs of the program, and the contents of archives and
//! directories.

#![allow(dead_code)] // with fewer features, some helpers are unused

pub mod browser;
pub mod disk;
pub mod faults;
pub mod firedancer;
#[cfg(feature = "net")]
pub mod http;
pub mod ledger_lists;
pub mod listed;
pub mod oracle;
pub mod publish_runs;
pub mod records;
pub mod runs;
pub mod scenarios;
pub mod screen;
pub mod seeded_rng;
#[cfg(feature = "serve")]
pub mod served;
pub mod servers;
pub mod signals;
#[cfg(feature = "net")]
pub mod site;
pub mod strace;
pub mod swaps;
pub mod worlds;
pub mod xfs;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Cursor, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use assert_cmd::Command;
pub use disk::Disk;
pub use needs::needs;
use slotpress_read::{LocalFile, Tail};
use tempfile::TempDir;
pub use xfs::XfsDisk;

pub const FULL_26: &str = "snapshot-26-5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt.tar.zst";
pub const INCREMENTAL_26_40: &str = "incremental-snapshot-26-40-D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi.tar.zst";
pub const FULL_3500: &str = "snapshot-3500-CtUdsvB8tPnwSzUfjmEpnuKWLaDq1upyezeiombt7UVw.tar.zst";
pub const INCREMENTAL_3500_3550: &str =
    "incremental-snapshot-3500-3550-4QFDUfNuS6K6375C8WXD93cbtR4go8HkmUoc4YjLj529.tar.zst";

/// Returns the path of a fixture of Agave 4.2: of the small chain with slots 26 and 40, or of the validator's chain.
pub fn fixture(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let path = fixtures.join("agave-4.2.2").join(name);
    if path.exists() { path } else { fixtures.join("agave-validator-4.2.2").join(name) }
}

/// Directories of fixtures. Each has the archives and ledgers of one chain, which this version of Agave made.
pub const AGAVE_4_2: &str = "agave-4.2.2";
pub const AGAVE_4_4: &str = "agave-4.4.0";
pub const AGAVE_4_5: &str = "agave-4.5.0-alpha.4";
pub const AGAVE_4_5_SPLIT: &str = "agave-4.5.0-alpha.4-split";

/// Returns the chain's file with a name that begins with `prefix`, such as `snapshot-26-`.
pub fn fixture_of(chain: &str, prefix: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(chain);
    let mut paths = fs::read_dir(&dir).expect("a chain").map(|entry| entry.expect("an entry").path());
    paths.find(|path| name(path).starts_with(prefix)).expect("a file of the chain")
}

/// Unpacks a ledger of a chain.
pub fn ledger_of(chain: &str, slot: u64) -> TempDir {
    let dir = temp_dir();
    unpack_into(&fixture_of(chain, &format!("ledger-at-{slot}.")), dir.path());
    dir
}

/// Returns the facts about a slot in `expected.json` of a chain.
pub fn expected_facts(chain: &str, slot: u64) -> serde_json::Value {
    let text = fs::read_to_string(fixture_of(chain, "expected.json")).expect("read");
    let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    all[slot.to_string()].clone()
}

/// Makes a directory that is removed at the end of the test. It is in the directory that `TEST_DISK` names.
/// Otherwise, it is in memory if there is space, because syncing to a disk would take most of the tests' time.
pub fn temp_dir() -> TempDir {
    const FREE_BYTES_MIN: u64 = 2 << 30;
    let memory = Path::new("/dev/shm");
    let has_space = rustix::fs::statvfs(memory).is_ok_and(|stat| stat.f_bavail * stat.f_frsize > FREE_BYTES_MIN);
    let mut builder = tempfile::Builder::new();
    builder.prefix("slotpress-test-");
    let dir = match std::env::var_os("TEST_DISK") {
        Some(disk) => builder.tempdir_in(disk),
        None if has_space => builder.tempdir_in(memory),
        None => builder.tempdir(),
    };
    dir.expect("a temporary directory")
}

/// Unpacks a ledger of the fixtures, such as `ledger-at-40`.
pub fn ledger(name: &str) -> TempDir {
    let dir = temp_dir();
    unpack_into(&fixture(&format!("{name}.tar.zst")), dir.path());
    dir
}

/// Unpacks a tar.zst without slotpress's reader and rules.
pub fn unpack_into(archive: &Path, dir: &Path) {
    let tar = tar_of(archive);
    tar::Archive::new(Cursor::new(tar)).unpack(dir).expect("unpacks");
}

/// Returns the tar stream of an archive, compressed or not.
pub fn tar_of(archive: &Path) -> Vec<u8> {
    let bytes = fs::read(archive).expect("read");
    if archive.extension().is_some_and(|extension| extension == "tar") {
        return bytes;
    }
    zstd::stream::decode_all(bytes.as_slice()).expect("zstd decodes it")
}

/// One entry of an archive: path, kind and content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TarEntry {
    pub path: String,
    pub kind: u8,
    pub content: Vec<u8>,
}

/// Returns every entry of an archive, in the order of the stream.
pub fn entries(archive: &Path) -> Vec<TarEntry> {
    entries_of_tar(&tar_of(archive))
}

pub fn entries_of_tar(tar: &[u8]) -> Vec<TarEntry> {
    let mut archive = tar::Archive::new(Cursor::new(tar));
    archive
        .entries()
        .expect("a tar")
        .map(|entry| {
            let mut entry = entry.expect("an entry");
            let path = String::from_utf8(entry.path_bytes().into_owned()).expect("a plain name");
            let kind = entry.header().entry_type().as_byte();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).expect("its content");
            TarEntry { path, kind, content }
        })
        .collect()
}

/// Returns the entries of an archive by path; paths of directories have no slash at the end.
pub fn contents(archive: &Path) -> BTreeMap<String, Vec<u8>> {
    entries(archive).into_iter().map(|entry| (entry.path.trim_end_matches('/').to_string(), entry.content)).collect()
}

/// Makes a tar of entries, in the form that slotpress writes.
pub fn make_tar(entries: &[TarEntry]) -> Vec<u8> {
    let mut tar = Vec::new();
    for entry in entries {
        tar.extend_from_slice(&tar_header(&entry.path, entry.kind, entry.content.len() as u64));
        tar.extend_from_slice(&entry.content);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

/// Writes entries as an archive of one zstd frame.
pub fn write_archive(path: &Path, entries: &[TarEntry]) {
    let bytes = zstd::encode_all(make_tar(entries).as_slice(), 1).expect("compressed");
    fs::write(path, bytes).expect("written");
}

/// Makes a GNU header with any name that fits, even a name that the `tar` crate refuses to write.
pub fn tar_header(path: &str, kind: u8, size: u64) -> [u8; 512] {
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
    header.set_entry_type(tar::EntryType::new(kind));
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header.set_cksum();
    *header.as_bytes()
}

/// Makes skippable frames of this total length. Commands that list archives accept them as an archive.
pub fn make_skippable_frames(length: usize) -> Vec<u8> {
    let mut bytes = vec![7; length];
    fill_with_skippable_frames(&mut bytes);
    bytes
}

/// Overwrites `bytes`, of which there must be 8 or more, with skippable frames.
pub fn fill_with_skippable_frames(bytes: &mut [u8]) {
    // Commands that list archives look for frames only in the last half MiB, so frames must begin there.
    const FRAME_BYTES: usize = 64 * 1024;
    let mut rest = bytes;
    while !rest.is_empty() {
        let length = if rest.len() < FRAME_BYTES + 8 { rest.len() } else { FRAME_BYTES };
        let (frame, after) = rest.split_at_mut(length);
        let content_length = u32::try_from(length - 8).expect("a frame").to_le_bytes();
        frame[..8].copy_from_slice(&[[0x5f, 0x2a, 0x4d, 0x18], content_length].concat());
        rest = after;
    }
}

/// Prepares a run of the program without `NO_COLOR` and `SLOTPRESS_*` from the test's environment.
pub fn slotpress() -> Command {
    let mut command = Command::new(slotpress_path());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SLOTPRESS_") {
            command.env_remove(name);
        }
    }
    command.env_remove("NO_COLOR").env("COLUMNS", "100").timeout(Duration::from_secs(120));
    command
}

/// Runs the program with `--json`, and with `input` as its standard input. Returns its exit code, the object on its
/// first line, and its stderr.
pub fn run_to_first_line(arguments: &[&str], input: Option<&Path>) -> (i32, serde_json::Value, String) {
    let mut command = std::process::Command::new(slotpress_path());
    command.args(arguments).arg("--json");
    command.stdin(input.map_or_else(Stdio::null, |path| File::open(path).expect("opened").into()));
    let output = command.output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("a code"), first_line(&output.stdout), stderr)
}

/// Returns the JSON object on the first line, or null.
pub fn first_line(stdout: &[u8]) -> serde_json::Value {
    let line = stdout.split(|byte| *byte == b'\n').next().unwrap_or_default();
    serde_json::from_slice(line).unwrap_or_default()
}

/// Returns a path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Runs a command that must succeed. Returns the JSON objects that it prints, one per line.
pub fn json_lines(command: &mut Command) -> Vec<serde_json::Value> {
    let text = String::from_utf8(command.assert().success().get_output().stdout.clone()).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON object per line")).collect()
}

/// Returns a numeric field of a JSON object.
pub fn number(object: &serde_json::Value, field: &str) -> f64 {
    object[field].as_f64().unwrap_or_else(|| panic!("{field} of {object}"))
}

/// Writes a key on the curve P-256, and a self-signed certificate, in PEM.
pub fn self_signed_certificate(key: &Path, certificate: &Path, more_arguments: &[&str]) {
    let output = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(more_arguments)
        .arg("-keyout")
        .arg(key)
        .arg("-out")
        .arg(certificate)
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the program's path. `TESTED_PROGRAM` names another program, for example an older one, on
/// which a regression test must fail.
pub fn slotpress_path() -> PathBuf {
    std::env::var_os("TESTED_PROGRAM").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_slotpress")), PathBuf::from)
}

/// Releases a lock. Closing the file is not enough: a child that another test has just forked holds the
/// descriptor until it executes its program.
pub fn unlock(lock: File) {
    lock.unlock().expect("unlocked");
}

/// Writes a program that a test runs.
///
/// A shell writes the file. If this process wrote it, a child that another test has just forked could hold
/// the descriptor, and Linux does not run a program that is open for writing.
pub fn write_program(path: &Path, text: &str) {
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut shell = shell.spawn().expect("starts");
    shell.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("written");
    assert!(shell.wait().expect("ends").success());
}

/// Opens a terminal. Bytes that are written to the second file are read from the first.
pub fn terminal() -> (File, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&screen).expect("granted");
    unlockpt(&screen).expect("unlocked");
    let path = ptsname(&screen, Vec::new()).expect("its name").into_string().expect("text");
    let terminal = File::options().read(true).write(true).open(path).expect("open");
    (File::from(screen), terminal)
}

/// Makes a synthetic ledger with this many storages.
pub fn synthetic_ledger(dir: &Path, size_bytes: u64, storages: u64) {
    let options = slotpress_synth::SynthOptions::new(dir, size_bytes).storage_count(storages).seed(7);
    slotpress_synth::synth(&options, &slotpress::NoProgress).expect("made");
}

/// Runs `archive` with these flags. Returns the path of the archive.
pub fn archive(ledger: &Path, out: &Path, flags: &[&str]) -> PathBuf {
    let output = slotpress().arg("archive").arg(ledger).arg("-o").arg(out).args(flags).arg("--json").output();
    let output = output.expect("runs");
    assert!(output.status.success(), "archive {flags:?}: {}", String::from_utf8_lossy(&output.stderr));
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    PathBuf::from(line["path"].as_str().expect("a path"))
}

/// Copies an archive of slotpress into a directory of `dir`, without its index. Returns the path of
/// the copy.
pub fn copy_without_index(archive: &Path, dir: &Path) -> PathBuf {
    let tail = Tail::read(&LocalFile::open(archive).expect("opened")).expect("valid").expect("an index");
    let end = tail.frames.last().expect("a frame").end_bytes();
    let copy = dir.join("without-index").join(name(archive));
    fs::create_dir_all(copy.parent().expect("a parent")).expect("made");
    fs::write(&copy, &fs::read(archive).expect("read")[..end as usize]).expect("written");
    copy
}

/// Returns the last component of a path.
pub fn name(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

/// Returns everything below a directory: files with their content, directories and links with
/// `None`.
pub fn tree(dir: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut files = BTreeMap::new();
    add_files(dir, dir, &mut files);
    files
}

fn add_files(top: &Path, dir: &Path, files: &mut BTreeMap<String, Option<Vec<u8>>>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let relative = path.strip_prefix(top).expect("below").to_string_lossy().into_owned();
        let metadata = fs::symlink_metadata(&path).expect("metadata");
        files.insert(relative, metadata.is_file().then(|| fs::read(&path).expect("readable")));
        if metadata.is_dir() {
            add_files(top, &path, files);
        }
    }
}

/// Returns the paths in a tree. Files that disappear during the walk are left out.
pub fn relative_paths(top: &Path) -> Vec<String> {
    assert!(top.is_dir(), "{}", top.display());
    let (mut paths, mut unread_dirs) = (BTreeSet::new(), vec![top.to_path_buf()]);
    while let Some(dir) = unread_dirs.pop() {
        for path in fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
            paths.insert(path.strip_prefix(top).expect("below").to_string_lossy().into_owned());
            if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir()) {
                unread_dirs.push(path);
            }
        }
    }
    paths.into_iter().collect()
}

/// Copies a directory with its links.
pub fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        let kind = fs::symlink_metadata(&path).expect("metadata").file_type();
        if kind.is_dir() {
            copy_tree(&path, &target);
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&path).expect("a link"), &target).expect("linked");
        } else {
            fs::copy(&path, &target).expect("copied");
        }
    }
}

/// Limit on the time that a test waits for a condition: much longer than even a slow machine takes.
pub const WAIT_MAX: Duration = Duration::from_secs(60);

/// Waits until a condition holds.
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < WAIT_MAX, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until a child has installed its handler for a signal. slotpress installs the handler for
/// SIGXFSZ last, so once this handler is installed, all are.
pub fn wait_for_handler(child: &std::process::Child, signal: rustix::process::Signal) {
    wait_for("the handler of a signal", || {
        let status =
            fs::read_to_string(format!("/proc/{}/status", child.id())).expect("a child that was not waited for");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a line");
        let caught = u64::from_str_radix(caught.trim(), 16).expect("a set of signals");
        [signal, rustix::process::Signal::XFSZ].iter().all(|signal| caught & (1 << (signal.as_raw() - 1)) != 0)
    });
}

/// Returns the exit code of a child that must end by itself.
pub fn exit_code(child: &mut std::process::Child) -> Option<i32> {
    wait_for("the end of the program", || child.try_wait().expect("a child").is_some());
    child.wait().expect("ended").code()
}

/// Runs the program as a user who owns no file, if the tests run as root. Otherwise, runs it as the user of the
/// tests.
pub struct UnprivilegedProgram {
    /// Directory of a copy of the program, because other users may have no access to the original.
    dir: TempDir,
}

impl UnprivilegedProgram {
    pub const USER: u32 = 65_534;

    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("slotpress-test-").tempdir().expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
        // Another process copies the file, for the reason that `write_program` states.
        let copied = std::process::Command::new("cp").arg(slotpress_path()).arg(dir.path().join("slotpress")).status();
        assert!(copied.expect("runs").success());
        Self { dir }
    }

    pub fn command(&self) -> std::process::Command {
        let mut command = std::process::Command::new(self.dir.path().join("slotpress"));
        if rustix::process::geteuid().is_root() {
            command.uid(Self::USER).gid(Self::USER);
        }
        command
    }
}

/// Reads `storages_list` of a bank snapshot: slot and id of each storage, in the order of the file.
pub fn storages_list(bank_snapshot: &Path) -> Vec<(u64, u32)> {
    let bytes = fs::read(bank_snapshot.join("storages_list")).expect("read");
    let count = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    assert_eq!(bytes.len() as u64, 8 + 12 * count);
    let storage = |item: &[u8]| {
        let (slot, id) = item.split_at(8);
        (records::u64_at(slot, 0), u32::from_le_bytes(id.try_into().expect("4 bytes")))
    };
    bytes[8..].chunks_exact(12).map(storage).collect()
}
