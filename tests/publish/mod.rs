//! `slotpress publish` beside a process that writes as validators do: published archives are whole,
//! needed ones are pinned, and after a kill the next run continues.

pub mod setup;

pub mod works {
    mod fleet;
    mod once;
    pub mod rebased;
    mod retention;
    pub mod running;
}
mod refused {
    mod archives;
    mod places;
}
pub mod survives {
    mod kills;
    mod random_runs;
    mod rebases;
    pub mod stores;
}
