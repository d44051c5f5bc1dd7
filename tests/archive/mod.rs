//! `slotpress archive`: its archives contain what the validator would have archived.

mod works {
    mod clustered;
    mod determinism;
    mod fixtures;
    mod newer_agave;
    mod readers;
    mod screen;
}
mod refused {
    mod ledgers;
}
mod survives {
    mod kills;
    mod swaps;
}
