//! Describes a download that is read while it arrives: how much has arrived, at which rate, and
//! whether the network or the restore is slower.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use slotpress::Arriving;

use super::values;

/// Minimum time over which a rate is measured.
const WINDOW_MIN: Duration = Duration::from_millis(400);

/// Maximum number of servers whose rates are shown.
const SERVERS_MAX: usize = 4;

pub struct Arrival {
    at: Instant,
    given: Vec<(String, u64)>,
    waited: Duration,
}

impl Arrival {
    pub fn new(now: &Arriving<'_>) -> Self {
        Self { at: Instant::now(), given: now.given.to_vec(), waited: now.waited }
    }

    /// Describes what has arrived since `self` was made; `None` if that is less than [`WINDOW_MIN`]
    /// ago.
    pub fn note(&self, now: &Arriving<'_>) -> Option<String> {
        let elapsed = Some(self.at.elapsed()).filter(|elapsed| *elapsed >= WINDOW_MIN)?;
        Some(self.note_after(now, elapsed))
    }

    fn note_after(&self, now: &Arriving<'_>, elapsed: Duration) -> String {
        let before = |server: &str| self.given.iter().find(|(one, _)| one == server).map_or(0, |(_, bytes)| *bytes);
        let mut came: Vec<(u64, &str)> =
            now.given.iter().map(|(server, bytes)| (bytes.saturating_sub(before(server)), host_of(server))).collect();
        came.sort_by_key(|(bytes, _)| Reverse(*bytes));
        let mut rate = values::show_rate(came.iter().map(|(bytes, _)| bytes).sum(), elapsed);
        if came.len() > 1 {
            let more = if came.len() > SERVERS_MAX { ", …" } else { "" };
            let by_server = came.iter().take(SERVERS_MAX);
            let by_server = by_server.map(|(bytes, host)| format!("{host} {}", values::show_rate(*bytes, elapsed)));
            rate += &format!(" ({}{more})", Vec::from_iter(by_server).join(", "));
        }
        let fetched = match now.length_bytes.filter(|length| *length > 0) {
            Some(length) if now.there_bytes >= length => "fetched".to_string(),
            Some(length) => format!("{:.0} % fetched, {rate}", 100.0 * now.there_bytes as f64 / length as f64),
            None => rate,
        };
        let is_network = now.waited.saturating_sub(self.waited) * 2 > elapsed;
        format!("{fetched}, the {} is slower", if is_network { "network" } else { "restore" })
    }
}

fn host_of(url: &str) -> &str {
    url.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_side_is_named() {
        let servers = |a, b| [("http://a:80/x".to_string(), a), ("http://b/x".to_string(), b)];
        let (given, later) = (servers(0, 5 << 20), servers(3 << 20, 6 << 20));
        let second = Duration::from_secs(1);
        let at = |there_bytes, given, waited| Arriving { there_bytes, length_bytes: Some(100), given, waited };
        let before = Arrival::new(&at(0, &given, second));
        let note = |there_bytes, waited| before.note_after(&at(there_bytes, &later, waited), second);
        let rates = "45 % fetched, 4 MiB/s (a:80 3 MiB/s, b 1 MiB/s), the";
        assert_eq!(note(45, second.mul_f32(1.6)), format!("{rates} network is slower"));
        assert_eq!(note(45, second), format!("{rates} restore is slower"));
        assert_eq!(note(100, second), "fetched, the restore is slower");
        assert_eq!(before.note(&at(45, &later, second)), None, "too early");
    }
}
