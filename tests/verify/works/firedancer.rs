//! Archives that Firedancer's own producer wrote: read as what they are, and made into what Agave loads.

use crate::common::firedancer::*;

/// They are sound; what Firedancer loads and Agave does not is no failure where no client was asked for.
#[test]
fn they_are_verified_for_each_client() {
    for (chain, ..) in &CHAINS[..2] {
        let (full, incremental) = (full(chain), incremental(chain));
        for archives in [&[full.as_path()][..], &[&full, &incremental]] {
            let (code, report, stderr) = verify(archives, &[]);
            assert_eq!(code, 0, "{chain}: {stderr}");
            assert!(loads(&report, "firedancer") && !loads(&report, "agave-4.5") && !loads(&report, "agave-4.2"));
            assert_eq!(verify(archives, &["--for", "firedancer"]).0, 0);
            assert_eq!(verify(archives, &["--for", "agave"]).0, 3);
        }
    }
    let (code, inspected, _) = run(command("inspect").arg(full(CHAINS[0].0)));
    assert_eq!((code, &inspected["is_of_firedancer"]), (0, &true.into()));
    let shown = command("inspect").arg(full(CHAINS[0].0)).output().expect("runs").stdout;
    let shown = String::from_utf8_lossy(&shown).into_owned();
    assert!(shown.contains("Firedancer; no index") && shown.contains("with a stated size"), "{shown}");
}
