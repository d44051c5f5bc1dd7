//! Does what was decided: looks, pins, prepares, rebases, and publishes on each target.

pub mod index;
pub mod look;
pub mod pins;
pub mod rebasing;
pub mod target;
pub mod upload;
pub mod workers;
