//! Rate limits.

use std::time::{Duration, Instant};

use crate::common::served::{ServeProcess, large_archive, two_archives};

/// The time is bounded only from below, so a slow machine cannot make this test fail.
#[test]
fn transfers_are_not_faster_than_allowed() {
    for flag in ["--max-rate", "--max-rate-per-client"] {
        let dir = two_archives();
        let (name, content) = large_archive(dir.path(), 60, 4 << 20);
        let server = ServeProcess::start_in(dir, &[flag, "2MiB"]);
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| assert!(server.get(&format!("/{name}"), "").body == content));
            }
        });
        // 8 MiB at 2 MiB/s take four seconds, less the burst of a quarter of a second.
        assert!(start.elapsed() >= Duration::from_millis(3_600), "{flag}: {:?}", start.elapsed());
        let (_, lines) = server.stop();
        assert!(lines.iter().any(|line| line.contains("Firedancer gives up")), "{lines:?}");
    }
}
