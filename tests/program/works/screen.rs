//! Output on a screen: results go to stdout and everything else to stderr, JSON objects have the expected fields, and
//! help fits the screen.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::*;

fn parse_object(line: &[u8]) -> Value {
    let text = std::str::from_utf8(line).expect("text");
    assert_eq!(text.trim_end().lines().count(), 1, "one line: {text}");
    serde_json::from_str(text).expect("JSON")
}

fn field_names(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn archive_and_restore_print_one_json_object() {
    let ledger = ledger("ledger-at-26");
    let out = temp_dir();
    let output = slotpress()
        .arg("archive")
        .arg(ledger.path())
        .arg("-o")
        .arg(out.path())
        .args(["--json", "--zstd-level=-5"])
        .output()
        .expect("runs");
    assert!(output.status.success());
    assert!(output.stderr.is_empty());
    let line = parse_object(&output.stdout);
    let names = "type path slot base_slot hash format zstd_level storages frames input_bytes output_bytes \
                 root elapsed_seconds cpu_seconds name threads read_back unclustered_pieces";
    assert_eq!(field_names(&line), names.split_whitespace().collect());
    assert_eq!((&line["type"], &line["slot"]), (&"archive".into(), &26.into()));
    assert_eq!((&line["base_slot"], &line["zstd_level"]), (&Value::Null, &(-5).into()));
    assert_eq!((&line["storages"], &line["format"]), (&27.into(), &"zstd".into()));
    assert_eq!(line["hash"], "5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt");
    let path = out.path().join(FULL_26);
    assert_eq!(line["path"].as_str(), path.to_str());
    assert_eq!(line["output_bytes"].as_u64().expect("a number"), fs::metadata(&path).expect("metadata").len());
    assert_eq!(line["input_bytes"].as_u64().expect("a number"), tar_of(&path).len() as u64);

    let target = out.path().join("ledger");
    let hash = line["hash"].as_str().expect("text");
    let mut restore = slotpress();
    restore.arg("restore").arg(&path).arg("--ledger").arg(&target).args(["--json", "--expect-hash", hash]);
    let output = restore.output().expect("runs");
    assert!(output.status.success());
    assert!(output.stderr.is_empty());
    let line = parse_object(&output.stdout);
    let names = "type path slot base_slot hash storages input_bytes output_bytes elapsed_seconds cpu_seconds archives \
                 accounts validator_flags state state_reason accounts_checked complete replaced";
    assert_eq!(field_names(&line), names.split_whitespace().collect());
    assert_eq!((&line["type"], &line["slot"], &line["storages"]), (&"restore".into(), &26.into(), &27.into()));
    assert_eq!(line["path"].as_str(), target.join("snapshots/26").to_str());
    assert_eq!(line["archives"][0].as_str(), target.join(FULL_26).to_str());
    let flags: Vec<&str> =
        line["validator_flags"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(flags[..2], ["--ledger", target.to_str().expect("text")]);
}

#[test]
fn inspect_prints_one_json_object() {
    let output = slotpress().arg("inspect").arg(fixture(FULL_26)).arg("--json").output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let line = parse_object(&output.stdout);
    assert_eq!((&line["type"], &line["slot"], &line["storages"]), (&"inspect".into(), &26.into(), &27.into()));
}

#[test]
fn errors_are_json() {
    let out = temp_dir();
    let output = slotpress().arg("archive").arg(out.path()).arg("-o").arg(out.path()).arg("--json").output();
    let output = output.expect("runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let line = parse_object(&output.stderr);
    assert_eq!(field_names(&line), BTreeSet::from(["type", "message", "hint", "exit_code"]));
    assert_eq!((&line["type"], &line["exit_code"]), (&"error".into(), &1.into()));
}

#[test]
fn stderr_of_a_run_with_json_is_only_json() {
    let ledger = ledger("ledger-at-26");
    let out = temp_dir();
    let mut command = slotpress();
    command.arg("archive").arg(ledger.path()).arg("-o").arg(out.path()).args(["--json", "--format", "none"]);
    let output = command.output().expect("runs");
    assert!(output.status.success());
    assert!(!output.stderr.is_empty(), "no warning");
    for line in output.stderr.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        assert!(["progress", "warning"].contains(&parse_object(line)["type"].as_str().expect("a type")));
    }
}

/// Archives a ledger into a directory; returns stdout and stderr.
fn archive_into(out: &Path, flags: &[&str]) -> (String, String) {
    let ledger = ledger("ledger-at-26");
    let output = slotpress().arg("archive").arg(ledger.path()).arg("-o").arg(out).args(flags).output().expect("runs");
    assert!(output.status.success());
    (String::from_utf8(output.stdout).expect("text"), String::from_utf8(output.stderr).expect("text"))
}

#[test]
fn results_go_to_stdout() {
    let out = temp_dir();
    let (stdout, stderr) = archive_into(out.path(), &[]);
    assert_eq!(stdout.lines().next(), out.path().join(FULL_26).to_str());
    assert!(stdout.contains("  slot       26, 27 storages, zstd level 1, 1 frame\n"), "{stdout}");
    assert!(stdout.contains("  size     "), "{stdout}");
    assert!(stdout.contains("  elapsed  "), "{stdout}");
    assert_eq!(stderr, "", "a short run reports no progress");
}

#[test]
fn warnings_go_to_stderr() {
    let (stdout, stderr) = archive_into(temp_dir().path(), &["--format", "none"]);
    assert!(stdout.contains(FULL_26.trim_end_matches(".zst")));
    assert_eq!(
        stderr,
        "warning: a plain .tar: Firedancer reads it, Agave does not; recompress it before you restore it\n"
    );
}

#[test]
fn quiet_runs_print_no_warnings() {
    let (stdout, stderr) = archive_into(temp_dir().path(), &["--format", "none", "-q"]);
    assert!(!stdout.is_empty(), "results are printed");
    assert_eq!(stderr, "");
}

/// Runs a command that fails, with a terminal as stderr. Returns what the terminal shows.
fn run_on_a_terminal(no_color: Option<&str>, flags: &[&str]) -> String {
    let (mut screen, terminal) = terminal();
    let mut command = Command::new(slotpress_path());
    command.args(["archive", "/nowhere", "-o", "/"]).args(flags).env_remove("NO_COLOR").stderr(Stdio::from(terminal));
    if let Some(value) = no_color {
        command.env("NO_COLOR", value);
    }
    assert_eq!(command.status().expect("runs").code(), Some(1));
    drop(command);
    // When the last writer has closed a terminal, its reader gets an error at the end of the output.
    let mut output = Vec::new();
    let _ = screen.read_to_end(&mut output);
    String::from_utf8_lossy(&output).into_owned()
}

#[test]
fn errors_are_colored_unless_no_color_is_set() {
    assert!(run_on_a_terminal(None, &[]).contains("\x1b[1;31merror:\x1b[0m"));
    assert!(run_on_a_terminal(Some(""), &[]).contains("\x1b[1;31merror:\x1b[0m"), "empty means unset");
    let plain = run_on_a_terminal(Some("1"), &["-q"]);
    assert!(plain.contains("error: "), "{plain:?}");
    assert!(!plain.contains('\x1b'), "{plain:?}");
}

/// Every line for the journal, including progress, begins with its level.
#[test]
fn journal_lines_have_levels() {
    let dir = temp_dir();
    let path = |name: &str| dir.path().join(name);
    slotpress().args(["synth", "--size", "1MiB"]).arg(path("ledger")).assert().success();
    let log = fs::File::create(path("log")).expect("created");
    let stat = log.metadata().expect("there");
    let mut command = std::process::Command::new(slotpress_path());
    command.args(["archive", text(&path("ledger")), "-o", text(dir.path()), "--json", "--max-rate", "512KiB"]);
    command.env("JOURNAL_STREAM", format!("{}:{}", stat.dev(), stat.ino())).stdout(Stdio::null()).stderr(log);
    assert!(command.status().expect("runs").success());
    let log = fs::read_to_string(path("log")).expect("read");
    assert!(log.contains("\"progress\""), "{log}");
    assert!(log.lines().all(|line| line.starts_with("<6>{")), "{log}");
}

#[test]
fn help_fits_80_columns() {
    let overview = slotpress().arg("--help").env("COLUMNS", "80").output().expect("runs");
    let overview = String::from_utf8(overview.stdout).expect("text");
    let commands: Vec<&str> = overview
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|word| !word.is_empty()))
        .collect();
    for command in ["archive", "restore", "completions", "man"] {
        assert!(commands.contains(&command), "{commands:?}");
    }
    for command in commands.iter().filter(|command| **command != "help").chain([&""]) {
        for help in ["--help", "-h"] {
            let mut slotpress = slotpress();
            slotpress.args((!command.is_empty()).then_some(command)).arg(help).env("COLUMNS", "80");
            let output = slotpress.output().expect("runs");
            assert!(output.status.success());
            assert!(output.stderr.is_empty());
            for line in String::from_utf8(output.stdout).expect("text").lines() {
                assert!(line.chars().count() <= 80, "{command} {help}: {line:?}");
            }
        }
    }
}

/// `-h` shows only the flags that people often use.
#[test]
fn short_help_fits_a_screen() {
    const LINES: usize = 40;
    let names = "archive restore verify recompress rebase bootstrap fetch find inspect serve list prune publish synth demo \
                 doctor levels levels_sizes levels_frames levels_link completions man";
    for name in names.split_whitespace().chain(cfg!(feature = "export").then_some("export")) {
        let output = slotpress().args(name.split('_')).arg("-h").env("COLUMNS", "80").output().expect("runs");
        let help = String::from_utf8(output.stdout).expect("text");
        assert!((5..=LINES).contains(&help.lines().count()), "{name} has {} lines:\n{help}", help.lines().count());
    }
}

/// Help lists each flag under the heading of its subject.
#[test]
fn flags_are_under_their_headings() {
    let help_and_flags = |command: &str| {
        let output = slotpress().args([command, "--help"]).output().expect("runs");
        let help = String::from_utf8(output.stdout).expect("text");
        let mut heading = String::new();
        let mut found = Vec::new();
        for line in help.lines() {
            if !line.starts_with(' ') && line.ends_with(':') {
                heading = line.to_string();
            }
            let flag = line.trim_start().split([' ', ',']).next().unwrap_or_default().to_string();
            found.push((flag, heading.clone()));
        }
        (help, found)
    };
    for command in ["archive", "recompress", "rebase", "publish", "restore", "bootstrap"] {
        let (help, found) = help_and_flags(command);
        let under = found.iter().filter(|(flag, heading)| flag.starts_with("--") && heading == "Resource use:");
        let flags: Vec<&str> = under.map(|(flag, _)| flag.as_str()).collect();
        assert_eq!(flags, ["--threads", "--memory", "--io-hint", "--nice", "--max-rate"], "{command}: {help}");
    }
    for command in ["archive", "recompress", "rebase"] {
        let (help, found) = help_and_flags(command);
        for flag in ["--zstd-level", "--layout", "--format", "--frame-size", "--force", "--skip-existing"] {
            assert!(found.contains(&(flag.to_string(), "Options:".to_string())), "{command} {flag}: {help}");
        }
    }
    for command in ["verify", "inspect", "list", "find", "fetch", "bootstrap", "rebase"] {
        let (help, found) = help_and_flags(command);
        for (flag, heading) in [("--allow-private", "Network:"), ("--proxy", "Network:"), ("--endpoint", "Stores:")] {
            assert!(found.contains(&(flag.to_string(), heading.to_string())), "{command} {flag}: {help}");
        }
    }
}

#[test]
fn usage_errors_have_exit_code_2() {
    let output = slotpress().args(["archive"]).output().expect("runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("error: "));
}

#[test]
fn version_flags_print_a_short_and_a_long_form() {
    let output = slotpress().arg("-V").output().expect("runs");
    let version = String::from_utf8(output.stdout).expect("text");
    let details = version.strip_prefix(concat!("slotpress ", env!("CARGO_PKG_VERSION"), " (")).expect("the version");
    assert!(details.ends_with(&format!("{}-linux-gnu)\n", std::env::consts::ARCH)), "{version}");
    let output = slotpress().arg("--version").output().expect("runs");
    let version = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success());
    assert!(output.stderr.is_empty());
    let labels = version.lines().map(|line| line.split(' ').next().expect("a word")).collect::<Vec<_>>();
    assert_eq!(labels, ["slotpress", "commit", "libzstd", "features", "target"]);
}
