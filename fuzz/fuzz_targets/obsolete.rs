#![no_main]

#[allow(dead_code)]
#[path = "../../tests/parsers/targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::check_obsolete(bytes));
