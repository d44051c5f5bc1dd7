//! `slotpress publish`, beside what writes as validators do: what it publishes is whole, what it
//! needs it has pinned, and a run that is killed goes on.

pub mod stage;

pub mod works {
    mod fleet;
    pub mod lives;
    mod once;
    pub mod rebased;
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
