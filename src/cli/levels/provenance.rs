//! Records where the numbers on a page come from: input, time, machine, command, versions.

use std::fs;
use std::path::Path;

use slotpress_base::text::ShowPath;
use slotpress_base::threads::available_threads;

use crate::cli::lines::time_now;
use crate::cli::restore::shell_word;

/// Collects name and value of everything that may affect what this process measures.
pub fn of_this_run(input: &Path) -> Vec<(&'static str, String)> {
    let input = input.canonicalize().unwrap_or_else(|_| input.to_path_buf());
    let processor = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| processor(&text));
    // The command line may be published. No password is expected in it, because inputs of `levels`
    // are paths, never URLs.
    let command: Vec<String> = std::env::args_os().skip(1).map(|word| shell_word(Path::new(&word))).collect();
    [
        ("input", Some(input.shown())),
        ("date", Some(time_now())),
        ("CPU", processor),
        ("cores", Some(format!("{} that the process may use", available_threads()))),
        ("command", Some(format!("slotpress {}", command.join(" ")))),
        ("versions", Some(format!("slotpress {}, zstd {}", env!("CARGO_PKG_VERSION"), zstd_safe::version_string()))),
    ]
    .into_iter()
    .filter_map(|(what, value)| Some((what, value?)))
    .collect()
}

/// Finds the processor's name; `None` on architectures whose cpuinfo has no `model name`.
fn processor(cpuinfo: &str) -> Option<String> {
    let (_, name) = cpuinfo.lines().find(|line| line.starts_with("model name"))?.split_once(':')?;
    Some(name.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors() {
        let cpuinfo = "processor\t: 0\nmodel name\t: AMD  EPYC 9654\nprocessor\t: 1\nmodel name\t: other\n";
        assert_eq!(processor(cpuinfo).as_deref(), Some("AMD EPYC 9654"));
        assert_eq!(processor("Features: fp asimd"), None);
    }
}
