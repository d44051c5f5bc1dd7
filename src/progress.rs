//! How long work tells what it is doing, and learns that it should stop. Nothing here knows a terminal.

use crate::error::{Error, Result};

/// Receives what long work reports. Called from many threads; must be cheap.
pub trait Progress: Sync {
    /// A stage begins. `total_bytes` is what [`Progress::advance`] will have counted as input when the stage ends,
    /// where that is known.
    fn stage(&self, name: &str, total_bytes: Option<u64>) {
        let _ = (name, total_bytes);
    }
    /// Bytes that were read and bytes that were written since the last call.
    fn advance(&self, input_bytes: u64, output_bytes: u64) {
        let _ = (input_bytes, output_bytes);
    }
    /// A few words beside the figures of the stage, until there are others.
    fn note(&self, text: &str) {
        let _ = text;
    }
    /// What is going to happen, in a line of its own.
    fn tell(&self, message: &str) {
        let _ = message;
    }
    /// Something the operator should know, though the work goes on.
    fn warn(&self, message: &str) {
        let _ = message;
    }
    /// Whether the user asked to stop.
    fn is_interrupted(&self) -> bool {
        false
    }
    /// An error when the user asked to stop.
    fn check(&self) -> Result<()> {
        if self.is_interrupted() { Err(Error::interrupted()) } else { Ok(()) }
    }
}

/// Reports to nobody and never stops.
pub struct NoProgress;

impl Progress for NoProgress {}
