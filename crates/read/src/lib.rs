//! A part of slotpress, without promises of its own: use the crate `slotpress`.
//!
//! Reading archives ([`archive`]) and ledgers ([`plan`]), and judging them: [`rules`], [`state`], [`verify`], [`inspect`].
//! [`store`] gives files their final names, [`catalog`] knows which archives a directory holds.

// What others wrote is read here.
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
pub mod catalog;
pub mod inspect;
pub mod plan;
pub mod read_back;
pub mod rules;
pub mod state;
pub mod store;
pub mod verify;
