//! Which variables of the environment apply: what a command would refuse as a flag, because it is for another kind of
//! input or goes with another flag, it does not take from the environment.

use super::choices::Choices;

/// Flags about a validator's directories.
const LEDGER_FLAGS: [&str; 4] = ["slot", "base_slot", "snapshots", "accounts"];

/// Takes away what does not apply to the command at `path`, with the arguments that it has.
pub fn narrow(path: &[&str], choices: &mut Choices<'_>) {
    match path {
        ["archive"] => {
            narrow_codec(choices);
            // A stream cannot be read back.
            if choices.text("output").is_some_and(|output| output == "-") {
                choices.ignore(&["verify", "skip_existing"]);
            }
        }
        ["restore"] => narrow_restore(choices),
        ["verify"] => {
            narrow_ledger("path", choices);
            // It tells what an unpacked incremental archive builds on; of a ledger, it would leave most out.
            let is_unpacked = |path: std::path::PathBuf| path.join("snapshots/status_cache").is_file();
            if !choices.path("path").is_some_and(is_unpacked) {
                choices.ignore(&["base_slot"]);
            }
        }
        ["recompress"] => {
            narrow_codec(choices);
            // The name of a file tells it.
            if choices.text("archive").is_none_or(|archive| archive != "-") {
                choices.ignore(&["base_slot"]);
            }
        }
        ["inspect"] => narrow_inspect(choices),
        // Without a ledger, there are no directories of one.
        ["doctor"] if !choices.is_given("path") => choices.ignore(&["snapshots", "accounts"]),
        ["levels", view @ ..] => {
            narrow_ledger("path", choices);
            if let [] | ["link"] = view {
                narrow_levels(choices);
            }
        }
        _ => {}
    }
}

/// An archive, or any file, has no directories and no choice of slots.
fn narrow_ledger(input: &str, choices: &mut Choices<'_>) {
    if !choices.path(input).is_some_and(|path| path.is_dir()) {
        choices.ignore(&LEDGER_FLAGS);
    }
}

/// Presets and parameters are zstd's.
fn narrow_codec(choices: &mut Choices<'_>) {
    let zstd_flags = ["zstd_level", "preset", "zstd_params"];
    if choices.text("format").is_none_or(|format| format == "zstd") {
        return;
    }
    if zstd_flags.iter().any(|flag| choices.is_given(flag)) {
        choices.ignore(&["format"]);
    } else {
        choices.ignore(&zstd_flags);
    }
}

/// A tree is that of one archive, in one directory.
fn narrow_restore(choices: &mut Choices<'_>) {
    let is_ledger = ["incremental_archive", "snapshots", "accounts"].iter().any(|argument| choices.is_given(argument));
    if is_ledger {
        choices.ignore(&["tree"]);
    }
    if choices.text("tree").is_some_and(|tree| tree == "archive") {
        choices.ignore(&["snapshots", "accounts"]);
    }
}

fn narrow_inspect(choices: &mut Choices<'_>) {
    narrow_ledger("input", choices);
    if choices.text("account").is_some() {
        choices.ignore(&["by_owner"]);
    } else {
        choices.ignore(&["data_limit"]);
    }
    if !choices.is_on("by_owner") && !choices.is_given("owner") {
        choices.ignore(&["owner", "largest", "csv", "memory", "temporary_dir"]);
    }
}

/// Levels without a codec are zstd's; so are whole archives and the lines of `zstd -b`.
fn narrow_levels(choices: &mut Choices<'_>) {
    let codec = choices.text("codec").unwrap_or_default();
    if !codec.split(',').any(|item| item.trim() == "zstd") {
        let loser = if choices.is_given("levels") { "codec" } else { "levels" };
        choices.ignore(&[loser]);
    }
    // Without the levels behind them: `zstd:1,3,lz4` names two codecs.
    let codec = choices.text("codec").unwrap_or_default();
    let mut names = codec.split([',', ':']).map(str::trim).filter(|word| word.starts_with(char::is_alphabetic));
    if names.any(|name| name != "zstd") {
        match choices.is_given("end_to_end") || choices.is_given("style") {
            true => choices.ignore(&["codec"]),
            false => choices.ignore(&["end_to_end", "style"]),
        }
    }
    if !choices.is_on("end_to_end") {
        choices.ignore(&["scratch"]);
    }
}
