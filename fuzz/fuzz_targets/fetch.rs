#![no_main]

#[allow(dead_code)]
#[path = "../../tests/lies/script.rs"]
mod script;
#[allow(dead_code)]
#[path = "../../tests/net/server.rs"]
mod server;
#[allow(dead_code)]
#[path = "../../tests/parsers/wrapped.rs"]
mod wrapped;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    script::play(bytes);
});
