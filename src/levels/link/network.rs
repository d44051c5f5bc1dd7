//! Computes the throughput of TCP over a link, and the time of a transfer.
//!
//! The rate of a stream is the lower of two rates: its share of the bandwidth without the headers of
//! Ethernet, IP and TCP, and one window per round trip. Packet loss is not modeled.
//!
//! A transfer begins with a connection and a request, which take two round trips. Then the window
//! doubles every round trip from ten segments (RFC 6928) until the stream has reached its rate
//! (slow start).

#![allow(missing_docs, reason = "the names suffice")]

use serde::Serialize;

/// Payload of a packet: 1500 bytes of Ethernet less IPv4 (20), TCP (20) and its time stamps (12).
const MSS_BYTES: f64 = 1448.0;

/// Overhead of a packet on the wire: preamble (8), Ethernet header and checksum (18), gap between
/// packets (12), IPv4 (20), TCP (20) and its time stamps (12).
const HEADER_BYTES: f64 = 90.0;

/// Default limit on the bytes in flight per stream: two thirds of 4 MiB. Linux grows a send buffer to 4 MiB
/// by default (`tcp_wmem`), and wakes the sender to refill the buffer when a third is free. The receive
/// buffer (6 MiB, `tcp_rmem`) permits more. `bench/link.sh` checks the limit.
pub const WINDOW_BYTES: u64 = (4 << 20) * 2 / 3;

/// Segments sent before the first acknowledgment (RFC 6928).
const INITIAL_SEGMENTS: f64 = 10.0;

/// Round trips until the first byte arrives: one for the connection, one for request and response.
const SETUP_ROUND_TRIPS: f64 = 2.0;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Link {
    pub bandwidth_bits_per_second: f64,
    pub rtt_seconds: f64,
    pub streams: u32,
    pub nodes: u32,
    pub window_bytes: u64,
}

impl Link {
    #[cfg(test)]
    pub fn new(bandwidth_bits_per_second: f64) -> Self {
        Self { bandwidth_bits_per_second, rtt_seconds: 0.0, streams: 1, nodes: 1, window_bytes: WINDOW_BYTES }
    }

    /// Returns the rate at which each node receives after the slow start, in bytes of payload per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bandwidth_share().min(f64::from(self.streams) * self.window_rate())
    }

    pub fn is_limited_by_window(&self) -> bool {
        self.bytes_per_second() < self.bandwidth_share()
    }

    /// Returns the bandwidth in bit/s above which more does not help, because the window limits the
    /// rate; `None` if more always helps.
    pub fn useful_bits_per_second(&self) -> Option<f64> {
        let per_bandwidth = self.bandwidth_share() / self.bandwidth_bits_per_second;
        let bits = f64::from(self.streams) * self.window_rate() / per_bandwidth;
        bits.is_finite().then_some(bits)
    }

    /// Returns the seconds from a node's request until it has received this many bytes.
    pub fn seconds_for(&self, bytes: f64) -> f64 {
        self.seconds_at_rate(bytes, f64::INFINITY)
    }

    /// Like [`Link::seconds_for`], if sender or receiver process at most `bytes_per_second_max`.
    pub fn seconds_at_rate(&self, bytes: f64, bytes_per_second_max: f64) -> f64 {
        let rate = self.bytes_per_second().min(bytes_per_second_max) / f64::from(self.streams);
        let bytes = bytes / f64::from(self.streams);
        let setup_seconds = SETUP_ROUND_TRIPS * self.rtt_seconds;
        let initial_window = INITIAL_SEGMENTS * MSS_BYTES;
        let window = rate * self.rtt_seconds;
        if window <= initial_window {
            return setup_seconds + bytes / rate;
        }
        // The window doubles every round trip from the initial one, and one window is sent per round trip:
        // (window - initial_window) / ln 2 bytes in log2(window / initial_window) round trips.
        let ramp_bytes = (window - initial_window) / std::f64::consts::LN_2;
        let transfer_seconds = if bytes < ramp_bytes {
            self.rtt_seconds * (bytes * std::f64::consts::LN_2 / initial_window).ln_1p() / std::f64::consts::LN_2
        } else {
            self.rtt_seconds * (window / initial_window).log2() + (bytes - ramp_bytes) / rate
        };
        setup_seconds + transfer_seconds
    }

    /// Returns a node's share of the bandwidth without headers, in bytes per second.
    fn bandwidth_share(&self) -> f64 {
        let payload = MSS_BYTES / (MSS_BYTES + HEADER_BYTES);
        self.bandwidth_bits_per_second / 8.0 * payload / f64::from(self.nodes)
    }

    /// Returns the rate of one window per round trip, in bytes per second; infinite without delay.
    fn window_rate(&self) -> f64 {
        self.window_bytes as f64 / self.rtt_seconds
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_near(value: f64, expected: f64) -> bool {
        (value / expected - 1.0).abs() < 1e-3
    }

    #[test]
    fn a_wide_link_without_delay_carries_all_but_the_headers() {
        let link = Link::new(1e9);
        assert!(is_near(link.bytes_per_second(), 125e6 * 1448.0 / 1538.0));
        assert!(!link.is_limited_by_window());
        assert!(is_near(link.seconds_for(1e9), 8.497));
    }

    /// Calculated by hand: 2.8 MB every 60 ms are 46.6 MB/s; four streams fill a gigabit.
    #[test]
    fn a_window_limits_the_rate() {
        let link = Link { rtt_seconds: 0.06, ..Link::new(1e9) };
        assert!(is_near(link.bytes_per_second(), 46.60e6), "{}", link.bytes_per_second());
        assert!(link.is_limited_by_window());
        assert!(!Link { streams: 4, ..link }.is_limited_by_window());
        // 373 Mbit/s of payload, and headers.
        assert!(is_near(link.useful_bits_per_second().expect("an end"), 396.0e6));
        assert_eq!(Link::new(1e9).useful_bits_per_second(), None);
    }

    /// Ten segments, then twenty, then forty: the time of a short transfer is its round trips, at
    /// any bandwidth.
    #[test]
    fn slow_start_takes_round_trips() {
        let link = Link { rtt_seconds: 0.1, ..Link::new(1e10) };
        let seconds = link.seconds_for(70.0 * 1448.0);
        assert!((0.4..0.55).contains(&seconds), "{seconds}");
    }

    prop_compose! {
        pub(crate) fn any_link()(
            bandwidth in 3.0f64..13.0,
            rtt_seconds in prop_oneof![Just(0.0), 1e-6f64..2.0],
            streams in 1u32..64,
            nodes in 1u32..1000,
            window in 10u32..34,
        ) -> Link {
            Link {
                bandwidth_bits_per_second: 10f64.powf(bandwidth),
                rtt_seconds,
                streams,
                nodes,
                window_bytes: 1 << window,
            }
        }
    }

    proptest! {
        #[test]
        fn better_links_are_never_slower(link in any_link(), bytes in 0.0f64..1e13, factor in 1.0f64..100.0) {
            let seconds = link.seconds_for(bytes);
            prop_assert!(seconds.is_finite() && seconds >= 0.0);
            // Allow for rounding in sums of very different values.
            let max = seconds * (1.0 + 1e-9);
            let better = [
                Link { bandwidth_bits_per_second: link.bandwidth_bits_per_second * factor, ..link },
                Link { window_bytes: link.window_bytes * 2, ..link },
                Link { streams: link.streams + 1, ..link },
            ];
            for better in better {
                prop_assert!(better.seconds_for(bytes) <= max, "{:?}", better);
            }
            let nearer = Link { rtt_seconds: link.rtt_seconds / factor, ..link };
            prop_assert!(nearer.bytes_per_second() >= link.bytes_per_second() * (1.0 - 1e-9));
            let shared = Link { nodes: link.nodes + 1, ..link };
            prop_assert!(shared.seconds_for(bytes) >= seconds * (1.0 - 1e-9));
            prop_assert!(link.seconds_for(bytes * factor) >= seconds);
            prop_assert!(seconds * (1.0 + 1e-9) >= bytes / link.bytes_per_second());
        }
    }
}
