//! Sources with archives of several kinds.

use crate::common::site::*;
use crate::common::*;

/// The newest archive is a plain tar. The second-newest archive is used, and the last line says why.
#[test]
fn archives_that_agave_does_not_read_are_skipped() {
    let ledger = ledger("ledger-at-40");
    let out = temp_dir();
    let mirror = temp_dir();
    let plain = archive(ledger.path(), out.path(), &["--format", "none"]);
    for path in [&plain, &fixture(FULL_26)] {
        std::fs::copy(path, mirror.path().join(name(path))).expect("copied");
    }
    let newest = serve(&files_in(out.path()), TransferMode::Ranges);
    let older =
        serve(&agave_archives().into_iter().filter(|(name, _)| name == FULL_26).collect(), TransferMode::Ranges);
    let urls = [newest.url(""), older.url("")];
    for (sources, has_other) in
        [(vec![text(mirror.path())], true), (vec![urls[0].as_str(), &urls[1]], true), (vec![text(out.path())], false)]
    {
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let output = run_to_json(&[&["bootstrap"], &sources[..], &["--ledger", text(&ledger)]].concat());
        assert!(output.stderr.contains("Agave does not read .tar archives"), "{output:?}");
        if has_other {
            assert_eq!((output.code, &output.line("restore")["slot"]), (Some(0), &26.into()), "{output:?}");
            assert_eq!(output.line("bootstrap")["abandoned"]["slot"], 40, "{output:?}");
            let last = output.stderr.lines().last().expect("a line");
            assert!(last.contains("the newer state of slot 40 was abandoned"), "{output:?}");
        } else {
            assert_eq!(output.code, Some(1), "{output:?}");
            assert!(output.stderr.contains("recompress it first"), "{output:?}");
            assert!(!ledger.exists(), "{:?}", relative_paths(&ledger));
        }
    }
}
