//! `slotpress verify` reports every fault with its place, and its verdicts agree with the clients.

pub mod altered;
pub mod fixtures;
pub mod recomputed;

mod works {
    mod directories;
    mod firedancer;
    mod good;
    mod older_archives;
    mod sig;
}
pub mod refused {
    mod accounts;
    mod agreement;
    pub mod fields;
    mod firedancer;
    mod flips;
    mod ledgers;
    mod places;
    mod reports;
    mod screen;
    mod strictness;
    pub mod versions;
    mod without_index;
}
