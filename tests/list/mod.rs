//! `slotpress list`.

mod refused;
mod works;
