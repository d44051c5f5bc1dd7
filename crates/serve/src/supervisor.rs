//! What a service manager is told (`sd_notify(3)`). Where there is none, nothing is.

use sd_notify::NotifyState;

/// The service does its work.
pub fn ready() {
    let _ = sd_notify::notify(&[NotifyState::Ready]);
}

/// It is asked to end, and does.
pub fn stopping() {
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
}

/// What it does, in a line.
pub fn status(line: &str) {
    let _ = sd_notify::notify(&[NotifyState::Status(line)]);
}

/// It is not stuck: for a unit with `WatchdogSec=`, at least twice in that time.
pub fn alive() {
    let _ = sd_notify::notify(&[NotifyState::Watchdog]);
}
