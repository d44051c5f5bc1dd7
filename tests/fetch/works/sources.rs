//! Sources that a file names.

use std::fs;

use crate::common::site::*;
use crate::common::*;

#[test]
fn sources_of_a_file() {
    let (good, dir) = (serve(&full_only(), Way::Ranges), temp_dir());
    let (file, out) = (dir.path().join("mirrors"), dir.path().join("out"));
    let lines = format!("# ours\n\n  {}  \n{DEAD}\n", good.url(""));
    fs::write(&file, lines).expect("written");
    let fetch = || run(&["fetch", "--sources-from", text(&file), "-o", text(&out)]);
    let said = fetch();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(run(&["find", "--sources-from", text(&file)]).code, Some(0));
    for (text, code, words) in
        [("ftp://x/\n", 2, "line 1"), ("# none\n", 2, "lists no source"), ("\n/no/such/path\n", 1, "line 2")]
    {
        fs::write(&file, text).expect("written");
        let said = fetch();
        assert!(said.code == Some(code) && said.stderr.contains(words), "{said:?}");
    }
}
