//! Output of commands for people, compared word for word except for times and rates.

use std::fs;
use std::path::Path;

use crate::common::*;

/// Replaces times, rates and loads in a line with N, and their units with TIME or RATE.
fn remove_times(line: &str) -> String {
    const UNITS: [&str; 8] = ["ms", "s", "min", "h", "d", "KiB/s", "MiB/s", "GiB/s"];
    let words: Vec<&str> = line.split(' ').collect();
    let unit = |word: &str| word.trim_matches(|char: char| !char.is_alphanumeric()).to_string();
    let is_number = |word: &str| word.contains(|char: char| char.is_ascii_digit());
    let mask_time = |(index, word): (usize, &&str)| {
        let is_before_unit = words.get(index + 1).is_some_and(|next| UNITS.contains(&&*unit(next)));
        let is_after = |is_such: &dyn Fn(&str) -> bool| index > 0 && is_such(words[index - 1]);
        if is_number(word) && (is_before_unit || is_after(&|before| before == "load")) {
            let number = word.trim_matches(|char: char| !char.is_ascii_digit());
            return word.replace(number, "N");
        }
        let is_unit = UNITS.contains(&&*unit(word)) && is_after(&is_number);
        let name = if word.contains('/') { "RATE" } else { "TIME" };
        if is_unit { word.replace(&unit(word), name) } else { word.to_string() }
    };
    words.iter().enumerate().map(mask_time).collect::<Vec<_>>().join(" ")
}

/// Runs a command line in a directory; returns the line and all that it prints.
fn run_on_screen(dir: &Path, line: &str) -> String {
    let mut command = slotpress();
    let output = command.args(line.split(' ')).current_dir(dir).output().expect("runs");
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8(printed).expect("text").replace(text(dir), "DIR");
    let printed = printed.replace(concat!("slotpress ", env!("CARGO_PKG_VERSION")), "slotpress VERSION");
    let lines: Vec<String> = printed.lines().map(remove_times).collect();
    format!("$ slotpress {line}\n{}\n\n", lines.join("\n"))
}

/// The commands of an operator, on a ledger that has a hard fork.
#[test]
fn an_operators_commands_print_these_screens() {
    let dir = temp_dir();
    let dir = dir.path().canonicalize().expect("a directory");
    fs::create_dir(dir.join("archives")).expect("created");
    fs::create_dir(dir.join("smaller")).expect("created");
    let mut screens = String::new();
    let mut show = |line: &str| screens += &run_on_screen(&dir, line);
    show("synth ledger --size 2MiB --incremental 512KiB --threads 2");
    show("archive ledger/at-full -o archives --threads 2 --verify");
    show("archive ledger/at-full -o archives --skip-existing");
    show("archive ledger -o archives --base-slot 350006937 --threads 2");
    show("inspect archives");
    show("inspect ledger");
    show("inspect archives --owner vote");
    show("verify archives");
    show("recompress archives -o smaller --zstd-level 3");
    let full =
        relative_paths(&dir.join("archives")).into_iter().find(|name| name.starts_with("snapshot-")).expect("made");
    show(&format!("rebase ledger --onto archives/{full} --dry-run"));
    show("restore archives --ledger restored");
    show("restore archives --ledger restored --replace-state -q");
    show("list smaller");
    show("prune smaller --keep-full 1 --keep-incremental 0 --dry-run");
    let mut damaged = fs::read(dir.join("smaller").join(&full)).expect("read");
    let middle = damaged.len() / 2;
    damaged[middle..middle + 8].fill(0x55);
    fs::write(dir.join("smaller").join(&full), damaged).expect("written");
    show(&format!("verify smaller/{full}"));
    show("verify smaller");
    show(&format!("restore smaller/{full} --ledger other"));
    insta::assert_snapshot!(screens);
}

#[test]
fn archives_of_others_print_these_screens() {
    let dir = temp_dir();
    let dir = dir.path().canonicalize().expect("a directory");
    fs::copy(fixture(FULL_26), dir.join(FULL_26)).expect("copied");
    let old = "tests/fixtures/firedancer-2026-08/chain";
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join(old).join(FULL_26);
    let firedancer = dir.join("firedancer");
    fs::create_dir(&firedancer).expect("created");
    fs::copy(old, firedancer.join(FULL_26)).expect("copied");
    let mut screens = run_on_screen(&dir, &format!("inspect {FULL_26}"));
    screens += &run_on_screen(&dir, &format!("inspect firedancer/{FULL_26}"));
    screens +=
        &run_on_screen(&dir, &format!("inspect {FULL_26} --account SysvarC1ock11111111111111111111111111111111"));
    screens += &run_on_screen(&dir, &format!("verify {FULL_26} --quick"));
    insta::assert_snapshot!(screens);
}
