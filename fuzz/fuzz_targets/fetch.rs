#![no_main]

#[allow(dead_code)]
#[path = "../../tests/fetch/survives/lies/script.rs"]
mod script;
#[allow(dead_code)]
#[path = "../../tests/common/http.rs"]
mod server;
#[allow(dead_code)]
#[path = "../../tests/parsers/wrapped.rs"]
mod wrapped;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    script::run(bytes);
});
