//! `slotpress publish`, beside what writes as validators do: what it publishes is whole, what it needs it has pinned, and a
//! run that is killed goes on.

mod fleet;
mod kills;
mod lives;
mod once;
mod places;
pub mod stage;
pub mod stores;
