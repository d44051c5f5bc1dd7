//! Shell completions and man pages, which are made from the same definitions as the help, and the output of
//! `--version`.

use std::path::PathBuf;

use clap::{Args, Command};
use slotpress::Result;
use slotpress_base::IoContext;

use crate::cli::ui::Ui;

/// Print completions for a shell
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell for which to print completions
    shell: clap_complete::Shell,
}

/// Write man pages into a directory
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The directory; it must exist
    dir: PathBuf,
}

pub fn print_completions(args: &CompletionsArgs, mut command: Command, ui: &Ui) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "slotpress", &mut script);
    ui.print(String::from_utf8_lossy(&script).trim_end());
    Ok(())
}

pub fn write_man_pages(args: &ManArgs, command: Command) -> Result<()> {
    clap_mangen::generate_to(command, &args.dir).or_path("write man pages into", &args.dir)
}

/// Returns the text that `--version` prints after the name: everything about the build that a bug report needs.
pub fn long_version() -> String {
    let export = if cfg!(feature = "export") { " export" } else { "" };
    format!(
        "{}\ncommit    {}\nlibzstd   {}\nfeatures  levels net serve stores synth{export}\ntarget    {}",
        env!("CARGO_PKG_VERSION"),
        COMMIT.unwrap_or("unknown (set SLOTPRESS_COMMIT when building)"),
        zstd_safe::version_string(),
        target_triple(),
    )
}

/// Returns the text that `-V` prints after the name: version, commit if known, target.
pub fn short_version() -> String {
    let commit = COMMIT.map(|commit| format!("{}, ", commit.get(..12).unwrap_or(commit)));
    format!("{} ({}{})", env!("CARGO_PKG_VERSION"), commit.unwrap_or_default(), target_triple())
}

/// The commit, if the build sets it, as releases do. It is unknown when the sources come from a registry.
const COMMIT: Option<&str> = option_env!("SLOTPRESS_COMMIT");

fn target_triple() -> String {
    let environment = if cfg!(target_env = "gnu") {
        "-gnu"
    } else if cfg!(target_env = "musl") {
        "-musl"
    } else {
        ""
    };
    format!("{}-{}{environment}", std::env::consts::ARCH, std::env::consts::OS)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_command_has_a_man_page() {
        let dir = tempfile::tempdir().expect("a directory");
        write_man_pages(&ManArgs { dir: dir.path().to_path_buf() }, crate::cli::build_command()).expect("written");
        for name in ["slotpress.1", "slotpress-archive.1", "slotpress-levels-link.1"] {
            let page = fs::read_to_string(dir.path().join(name)).expect(name);
            for text in [".SH NAME", ".SH SYNOPSIS", "Examples:"] {
                assert!(page.contains(text), "{name}: {text}");
            }
        }
    }
}
