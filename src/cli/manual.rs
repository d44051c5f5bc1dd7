//! Completions and man pages, made from the same definitions as the help.

use {
    crate::{
        cli::ui::Ui,
        error::{IoContext, Result},
    },
    clap::{Args, Command},
    std::path::PathBuf,
};

/// Print shell completions.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: clap_complete::Shell,
}

/// Write man pages into a directory.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The directory; it must exist
    dir: PathBuf,
}

pub fn completions(args: &CompletionsArgs, mut command: Command, ui: &Ui) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "slotpress", &mut script);
    ui.print(String::from_utf8_lossy(&script).trim_end());
    Ok(())
}

pub fn man(args: &ManArgs, command: Command) -> Result<()> {
    clap_mangen::generate_to(command, &args.dir).or_path("write man pages into", &args.dir)
}
