//! All targets in one program, which compiles faster than one program for each target. `FUZZ_TARGET` names the
//! target to run.

#![no_main]

#[allow(dead_code)]
#[path = "../../tests/fetch/survives/lies/script.rs"]
mod script;
#[allow(dead_code)]
#[path = "../../tests/common/http.rs"]
mod server;
#[allow(dead_code)]
#[path = "../../tests/parsers/targets.rs"]
mod targets;

use std::sync::LazyLock;

// `script` uses `super::wrapped`.
use targets::wrapped;

static TARGET: LazyLock<targets::Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
    let fetch: (&str, targets::Target) = ("fetch", |bytes| {
        script::run(bytes);
    });
    let target = targets::TARGETS.iter().chain([&fetch]).find(|(known, _)| *known == name);
    target.unwrap_or_else(|| panic!("there is no target {name}")).1
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET(bytes));
