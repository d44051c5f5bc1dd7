//! Servers that follow random scripts of lies. `LIES_SCRIPTS` sets the number of scripts;
//! `LIES_SEED` and `LIES_FIRST` select them.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::script;
use crate::common::seeded_rng::SeededRng;
use crate::common::strace::number_from_env;

/// Far longer than any script takes.
const TIMEOUT: Duration = Duration::from_secs(240);

#[test]
fn random_scripts_end_with_an_archive_or_nothing() {
    let seed = number_from_env("LIES_SEED", 1);
    let first = number_from_env("LIES_FIRST", 0);
    let mut named_count = 0;
    let count = number_from_env("LIES_SCRIPTS", 60);
    for number in first..first + count {
        let mut rng = SeededRng::new(seed.wrapping_mul(1_000_003).wrapping_add(number));
        let bytes: Vec<u8> = (0..3 + rng.below(60)).map(|_| rng.below(256) as u8).collect();
        let (sender, receiver) = mpsc::channel();
        let running = thread::spawn(move || {
            let _ = sender.send(script::run(&bytes));
        });
        match receiver.recv_timeout(TIMEOUT) {
            Ok(count) => named_count += count,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("seed {seed}, script {number} does not end"),
            Err(mpsc::RecvTimeoutError::Disconnected) => {}
        }
        assert!(running.join().is_ok(), "seed {seed}, script {number} fails");
    }
    println!("{count} scripts, {named_count} runs with an archive at the end");
    assert!(named_count > 0, "none of {count} scripts has ended with an archive");
}
