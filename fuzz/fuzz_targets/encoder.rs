#![no_main]

#[path = "../encoder_target.rs"]
mod encoder_target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| encoder_target::encode(bytes));
