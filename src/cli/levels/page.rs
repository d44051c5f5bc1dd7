//! Files that every command of `levels` can write: rows as CSV, and an HTML page that loads nothing from the
//! network and is readable on a phone.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use minijinja::Environment;
use minijinja::value::Serde;
use serde_json::{Value, json};
use slotpress::{Error, Result};
use slotpress_base::{EscapePath, IoContext, available_threads, parent_dir};

use super::chart::Chart;
use super::report::LevelsReport;
use crate::cli::tables::Table;
use crate::cli::values::{quote_for_shell, time_now};

#[derive(Debug, Args)]
pub struct FileArgs {
    /// Also write the rows as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also write a page with tables and a chart, in one file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl FileArgs {
    /// Refuses, before the measurement, paths that cannot be written, and the input itself. Changes nothing.
    pub fn check(&self, input: &Path) -> Result<()> {
        for path in self.csv.iter().chain(&self.html) {
            let refuse = |path: &Path, why: &str| Err(Error::usage(format!("{} {why}", path.escaped())));
            if path.is_dir() {
                return refuse(path, "is a directory, not a file to write to");
            }
            if let (Ok(output_file), Ok(input_file)) = (path.canonicalize(), input.canonicalize())
                && output_file == input_file
            {
                return refuse(path, "is the input, which is not overwritten");
            }
            let dir = parent_dir(path);
            if !dir.is_dir() {
                return refuse(dir, "is not a directory");
            }
        }
        Ok(())
    }

    pub fn write(&self, info: &InputInfo, report: &LevelsReport) -> Result<()> {
        if let Some(path) = &self.csv {
            fs::write(path, report.csv()?).or_path("write", path)?;
        }
        if let Some(path) = &self.html {
            fs::write(path, render_page(info, report)?).or_path("write", path)?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub struct InputInfo {
    pub name: String,
    pub about: String,
    /// Names and values of everything that may affect the numbers: input, date, CPU and so on.
    pub provenance: Vec<(&'static str, String)>,
}

fn render_page(info: &InputInfo, report: &LevelsReport) -> Result<String> {
    let page_error = |error: minijinja::Error| Error::failed(format!("the page cannot be made: {error:#}"));
    let values = json!({
        "name": info.name,
        "about": info.about,
        "provenance": info.provenance,
        "facts": report.facts,
        "svg": report.chart.as_ref().map(Chart::svg).transpose()?,
        "y_label": report.chart.as_ref().map(|chart| &chart.y_label),
        "legend": report.chart.as_ref().map(Chart::legend),
        "caption": report.chart.as_ref().map(|chart| &chart.caption),
        "tables": report.tables.iter().map(Table::to_page_json).collect::<Vec<Value>>(),
        "warnings": report.warnings,
        "advice": report.advice,
        "version": env!("CARGO_PKG_VERSION"),
    });
    let mut environment = Environment::new();
    // The template's name must end in `.html`, which turns escaping on.
    environment.add_template("page.html", include_str!("page.html")).map_err(page_error)?;
    let page = environment.get_template("page.html").and_then(|page| page.render(Serde(values))).map_err(page_error)?;
    Ok(page.replace(|char: char| char.is_control() && char != '\n', " "))
}

/// Collects [`InputInfo::provenance`] for a measurement of this input by this process.
pub fn collect_provenance(input: &Path) -> Vec<(&'static str, String)> {
    let input = input.canonicalize().unwrap_or_else(|_| input.to_path_buf());
    // The command line may be published. It should not contain a password: inputs of `levels` are paths, not URLs.
    let command: Vec<String> = std::env::args_os().skip(1).map(|word| quote_for_shell(Path::new(&word))).collect();
    let zstd = zstd_safe::version_string();
    let mut lines = vec![("input", input.escaped()), ("date", time_now())];
    if let Some(processor) = find_processor_name(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()) {
        lines.push(("CPU", processor));
    }
    lines.push(("cores", format!("{} that the process may use", available_threads())));
    lines.push(("command", format!("slotpress {}", command.join(" "))));
    lines.push(("versions", format!("slotpress {}, zstd {zstd}", env!("CARGO_PKG_VERSION"))));
    lines
}

/// Finds the name of the processor; `None` on architectures whose cpuinfo has no `model name`.
fn find_processor_name(cpuinfo: &str) -> Option<String> {
    let (_, name) = cpuinfo.lines().find(|line| line.starts_with("model name"))?.split_once(':')?;
    Some(name.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::levels::chart::{Point, Series};
    use crate::cli::levels::report::Advice;
    use crate::cli::tables::{TableBuilder, Unit};

    #[test]
    fn unwritable_paths_and_the_input_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("levels.csv");
        let check = |path: &Path, input: &Path| FileArgs { csv: Some(path.into()), html: None }.check(input);
        check(&path, Path::new("/nowhere")).expect("can be written");
        assert!(!path.exists(), "checking does not touch it");
        fs::write(&path, "input").expect("written");
        assert!(check(&path, &path).is_err(), "the input is not replaced");
        assert!(check(dir.path(), &path).is_err(), "a directory");
        assert!(check(&dir.path().join("no/such"), &path).is_err());
        check(Path::new("/dev/null"), &path).expect("written to");
    }

    #[test]
    fn foreign_text_is_escaped() {
        let name = "<script>\"'&|".to_string();
        let items = [name.clone()];
        let point = Point { position: (1.0, 1.0), label: name.clone() };
        let report = LevelsReport {
            facts: vec![name.clone()],
            chart: Some(Chart {
                caption: name.clone(),
                x_label: "x",
                has_bytes_on_x: false,
                y_label: name.clone(),
                series: vec![Series { name: name.clone(), points: vec![point] }; 2],
                curve: Vec::new(),
                highlighted: None,
            }),
            tables: vec![
                TableBuilder::new("t", "", &items).add_visible(name.clone(), Unit::Text, String::clone).finish(),
            ],
            warnings: vec![name.clone()],
            advice: vec![Advice { goal: name.clone(), choice: name.clone(), reason: name.clone() }],
        };
        let info = InputInfo { name: name.clone(), about: name.clone(), provenance: vec![("input", name.clone())] };
        let page = render_page(&info, &report).expect("a page");
        // The page's own script is the only one.
        assert_eq!(page.matches("<script>").count(), 1, "{page}");
        assert!(page.contains("&lt;script&gt;&quot;&#x27;&amp;|"), "{page}");
    }

    #[test]
    fn processor_names_are_found() {
        let cpuinfo = "processor\t: 0\nmodel name\t: AMD  EPYC 9654\nprocessor\t: 1\nmodel name\t: other\n";
        assert_eq!(find_processor_name(cpuinfo).as_deref(), Some("AMD EPYC 9654"));
        assert_eq!(find_processor_name("Features: fp asimd"), None);
    }
}
