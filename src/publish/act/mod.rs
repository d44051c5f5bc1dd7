//! Carries out what was decided: looks, pins, prepares, rebases, and publishes on each target.

pub mod index;
pub mod look;
pub mod pins;
pub mod rebasing;
pub mod target;
pub mod upload;
pub mod workers;

use std::sync::mpsc::Sender;

use slotpress_base::{CancelToken, Progress};
use slotpress_net::Client;

use self::pins::PinDir;
use self::workers::Message;
use super::PublishOptions;

/// Data shared by all threads of a run.
pub struct Run<'a> {
    pub options: &'a PublishOptions,
    pub pins: PinDir,
    pub client: Client,
    /// Interrupts all threads at the user's request, and at the end of the run.
    pub progress: &'a dyn Progress,
    /// Cancelled at the end of the run.
    pub over: CancelToken,
    pub messages: Sender<Message>,
}
