//! `slotpress publish` beside a process that writes as validators do: published archives are whole,
//! needed ones are pinned, and a killed run continues.

pub mod stage;

pub mod works {
    mod fleet;
    pub mod lives;
    mod once;
    pub mod rebased;
    mod retention;
}
mod refused {
    mod archives;
    mod places;
}
pub mod survives {
    mod kills;
    mod rebases;
    pub mod stores;
    mod worlds;
}
