//! `slotpress prune`.

mod refused;
mod works;
