//! Notifies a service manager (`sd_notify(3)`), if there is one.

use sd_notify::NotifyState;

/// Tells that the service has started.
pub fn ready() {
    let _ = sd_notify::notify(&[NotifyState::Ready]);
}

/// Tells that the service is stopping.
pub fn stopping() {
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
}

/// Tells a status line.
pub fn status(line: &str) {
    let _ = sd_notify::notify(&[NotifyState::Status(line)]);
}

/// Feeds the watchdog of a unit with `WatchdogSec=`; call at least twice in that time.
pub fn alive() {
    let _ = sd_notify::notify(&[NotifyState::Watchdog]);
}
