//! A part of slotpress, without promises of its own: use the crate `slotpress`.
//!
//! The files of a ledger ([`ledger`]) and of an archive ([`archive`]): what their bytes mean, and how they are written.

// Everything here reads what others wrote.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod archive;
pub mod ledger;
pub mod proxy_header;
