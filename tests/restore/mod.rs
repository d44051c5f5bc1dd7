//! `slotpress restore`: makes a ledger that boots, or none.

mod target;

mod works {
    mod again;
    mod firedancer;
    mod layouts;
    mod moved;
    mod replaced;
    mod screen;
}
mod refused {
    mod damage;
    mod firedancer;
    mod links;
    mod state;
    mod targets;
}
mod survives {
    mod kills;
    mod left_behind;
    mod random_kills;
    mod shared;
    mod swaps;
}

use std::path::Path;

use crate::common::runs::run_to_stderr;
use crate::common::text;

/// Runs `restore`; returns its exit code and its standard error.
pub fn restore(archive: &Path, ledger: &Path, flags: &[&str]) -> (Option<i32>, String) {
    let mut arguments = vec!["restore", text(archive), "--ledger", text(ledger)];
    arguments.extend(flags);
    run_to_stderr(&arguments)
}
