//! Tests of what holds for every command.

mod works {
    mod at_slot;
    #[cfg(all(feature = "net", feature = "serve"))]
    mod container;
    mod environment;
    mod json;
    mod nightly;
    mod operator;
    mod page_cache;
    mod readme;
    mod release;
    mod screen;
    mod screens;
    mod threads;
}
mod refused {
    mod elsewhere;
    mod files;
    mod forged;
    mod frame_hashes;
    mod limits;
    mod mistakes;
    mod pipes;
}
mod survives {
    mod clocks;
    mod errors;
    mod interrupts;
    mod kills;
    mod panics;
    mod stdout;
}
