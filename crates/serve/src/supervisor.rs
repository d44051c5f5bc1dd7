//! Notifies a service manager (`sd_notify(3)`), if there is one.

pub use sd_notify::NotifyState;

/// Notifies the service manager. For a unit with `WatchdogSec=`, call this with `Watchdog` at least
/// twice in that time.
pub fn notify(state: NotifyState<'_>) {
    let _ = sd_notify::notify(&[state]);
}
