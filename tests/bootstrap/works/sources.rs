//! Several sources.

use crate::common::site::*;
use crate::common::*;

/// How fast each source is, of several.
#[test]
fn rates_of_sources() {
    let files = larger_archive();
    let (one, two, dir) = (serve(&files, Way::Ranges), serve(&files, Way::Ranges), temp_dir());
    let ledger = dir.path().join("ledger");
    let flags = ["--no-incremental", "--max-rate", "1MiB", "--progress", "json", "--ledger", text(&ledger)];
    let said = run(&[&["bootstrap", &one.url(""), &two.url("")], &flags[..]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    let is_rate = |line: &str| [&one, &two].iter().all(|server| line.contains(&format!("{} ", server.address)));
    assert!(said.stderr.lines().any(|line| line.contains("\"note\"") && is_rate(line)), "{said:?}");
}
