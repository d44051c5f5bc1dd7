//! Notifies a service manager (`sd_notify(3)`), if there is one.

use sd_notify::NotifyState;

pub fn ready() {
    let _ = sd_notify::notify(&[NotifyState::Ready]);
}

pub fn stopping() {
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
}

pub fn status(line: &str) {
    let _ = sd_notify::notify(&[NotifyState::Status(line)]);
}

/// Resets the watchdog of a unit with `WatchdogSec=`. Call at least twice in that time.
pub fn alive() {
    let _ = sd_notify::notify(&[NotifyState::Watchdog]);
}
