//! Shell completions, man pages and the output of `--version`, made from the same definitions as
//! the help.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::{Args, Command};
use clap_mangen::Man;
use slotpress::Result;
use slotpress_base::IoContext;

use super::examples;
use crate::cli::ui::Ui;

/// Print shell completions
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: clap_complete::Shell,
}

/// Write man pages into a directory
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The directory; it must exist
    dir: PathBuf,
}

/// Exit codes with their meanings, as each man page lists them.
pub const EXIT_CODES: [(u8, &str); 8] = [
    (0, "done"),
    (1, "failed"),
    (2, "wrong arguments"),
    (3, "an archive or ledger is damaged, or does not match its name"),
    (4, "network error; the same command may work later"),
    (5, "the output exists already, or another run is making it"),
    (6, "an archive that was named is not there"),
    (130, "interrupted (Ctrl-C, SIGTERM, SIGHUP)"),
];

const ENVIRONMENT: [(&str, &str); 4] = [
    (
        "SLOTPRESS_*",
        "Variables of flags that are the same for all commands on a machine; the help of the flag names them. Several paths \
         are separated by colons. A flag on the command line overrides its variable.",
    ),
    ("NO_COLOR", "If it is set and not empty, no colors are used."),
    ("HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY", "Proxies for commands that read from servers."),
    ("TMPDIR", "The directory for temporary files of verify, inspect, levels and demo (default: /tmp)."),
];

pub fn completions(args: &CompletionsArgs, mut command: Command, ui: &Ui) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "slotpress", &mut script);
    ui.print(String::from_utf8_lossy(&script).trim_end());
    Ok(())
}

pub fn man(args: &ManArgs, command: Command) -> Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let names: Vec<String> = pages(&command, &[]).iter().map(|(path, _)| page_name(path)).collect();
    pages(&command, &[])
        .into_iter()
        .try_for_each(|(path, one)| write_page(&args.dir, &path, one, &names))
        .or_path("write man pages into", &args.dir)
}

/// Lists a command and all its subcommands, each with the words that select it.
fn pages<'a>(command: &'a Command, path: &[&'a str]) -> Vec<(Vec<&'a str>, &'a Command)> {
    let mut found = vec![(path.to_vec(), command)];
    for one in command.get_subcommands() {
        let path: Vec<&str> = path.iter().copied().chain([one.get_name()]).collect();
        found.extend(pages(one, &path));
    }
    found
}

/// Joins the words of a command to a page name such as `slotpress-levels-link`.
fn page_name(path: &[&str]) -> String {
    ["slotpress"].iter().chain(path).copied().collect::<Vec<_>>().join("-")
}

fn write_page(dir: &Path, path: &[&str], command: &Command, names: &[String]) -> io::Result<()> {
    let name = page_name(path);
    // Examples get a section of their own below.
    let command = command.clone().name(name.clone()).after_help("").after_long_help("");
    // The footer shows source, date and page name in one line of 80 columns: keep the source short.
    let source = concat!("slotpress ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(name.to_uppercase()).manual("slotpress manual").source(source);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().next().is_some() {
        man.render_options_section(&mut page)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(examples) = examples::of(path) {
        writeln!(page, ".SH EXAMPLES\n.nf\n{}\n.fi", roff(examples))?;
    }
    let codes = EXIT_CODES.map(|(code, meaning)| (code.to_string(), meaning));
    terms(&mut page, "EXIT STATUS", codes.iter().map(|(code, meaning)| (code.as_str(), *meaning)))?;
    terms(&mut page, "ENVIRONMENT", ENVIRONMENT.into_iter())?;
    let others: Vec<String> =
        names.iter().filter(|other| **other != name).map(|other| format!("\\fB{}\\fR(1)", roff(other))).collect();
    writeln!(page, ".SH \"SEE ALSO\"\n{}", others.join(", "))?;
    fs::write(dir.join(format!("{name}.1")), page)
}

fn terms<'a>(page: &mut Vec<u8>, heading: &str, terms: impl Iterator<Item = (&'a str, &'a str)>) -> io::Result<()> {
    writeln!(page, ".SH \"{heading}\"")?;
    for (term, text) in terms {
        writeln!(page, ".TP\n\\fB{}\\fR\n{}", roff(term), roff(text))?;
    }
    Ok(())
}

/// Escapes text so that a man page shows it unchanged.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let lines =
        text.lines().map(|line| if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_string() });
    lines.collect::<Vec<_>>().join("\n")
}

/// Text of `--version` after the name: everything that a bug report should contain.
pub fn long_version() -> String {
    let export = if cfg!(feature = "export") { " export" } else { "" };
    format!(
        "{}\ncommit    {}\nlibzstd   {}\nfeatures  levels net serve stores synth{export}\ntarget    {}",
        env!("CARGO_PKG_VERSION"),
        COMMIT.unwrap_or("unknown (set SLOTPRESS_COMMIT when building)"),
        zstd_safe::version_string(),
        target(),
    )
}

/// Text of `-V` after the name: version, commit if known, target.
pub fn short_version() -> String {
    let commit = COMMIT.map(|commit| format!("{}, ", commit.get(..12).unwrap_or(commit)));
    format!("{} ({}{})", env!("CARGO_PKG_VERSION"), commit.unwrap_or_default(), target())
}

/// The commit, set by the release build. It is unknown when the sources come from a registry.
const COMMIT: Option<&str> = option_env!("SLOTPRESS_COMMIT");

/// Architecture, operating system and C library.
fn target() -> String {
    let environment = match () {
        () if cfg!(target_env = "gnu") => "-gnu",
        () if cfg!(target_env = "musl") => "-musl",
        () => "",
    };
    format!("{}-{}{environment}", std::env::consts::ARCH, std::env::consts::OS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn man_pages_have_their_sections() {
        let dir = tempfile::tempdir().expect("a directory");
        man(&ManArgs { dir: dir.path().to_path_buf() }, crate::cli::command()).expect("written");
        let page = |name: &str| fs::read_to_string(dir.path().join(name)).expect(name);
        for name in ["slotpress.1", "slotpress-archive.1", "slotpress-levels-link.1"] {
            let page = page(name);
            for heading in ["NAME", "SYNOPSIS", "EXAMPLES", "\"EXIT STATUS\"", "ENVIRONMENT", "\"SEE ALSO\""] {
                assert!(
                    page.contains(&format!(".SH {heading}")) || page.contains(&format!(".SH \"{heading}\"")),
                    "{name}: {heading}"
                );
            }
            assert!(page.contains("interrupted"), "{name}");
        }
        // man prints the title twice in the header, and source and title in the footer, in lines of
        // 80 columns.
        for entry in fs::read_dir(dir.path()).expect("there") {
            let text = fs::read_to_string(entry.expect("an entry").path()).expect("read");
            let title = text.lines().find(|line| line.starts_with(".TH ")).expect("a title");
            let words: Vec<&str> = title.split(['"', ' ']).filter(|word| !word.is_empty()).collect();
            assert_eq!(words[2..], ["1", "slotpress", env!("CARGO_PKG_VERSION"), "slotpress", "manual"], "{title}");
            assert!(2 * (words[1].len() + "(1)".len()) + "  slotpress manual  ".len() <= 80, "{title}");
        }
        assert!(page("slotpress-archive.1").contains("slotpress archive /mnt/ledger"));
    }

    #[test]
    fn text_that_roff_would_take_for_its_own() {
        assert_eq!(roff(".a\\\n'b\nc-d"), "\\&.a\\e\n\\&'b\nc\\-d");
    }
}
