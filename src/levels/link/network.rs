//! Computes the throughput of TCP over a link, and the time of a transfer.
//!
//! The rate of a stream is the lowest of these: its share of the bandwidth, less the headers of Ethernet, IP and TCP;
//! one window per round trip; and with random packet loss, the rate that its congestion control reaches:
//!
//! - Reno: MSS / (RTT sqrt(2p/3)) (Mathis, Semke, Mahdavi, Ott 1997, "The macroscopic behavior of the TCP congestion
//!   avoidance algorithm", one acknowledgement per packet);
//! - CUBIC, the default of Linux: the average window of RFC 9438, 1.054 (RTT/p)^(3/4) segments, RTT in seconds; at least
//!   Reno's rate, because CUBIC behaves like Reno where that is faster;
//! - BBR does not treat random loss as congestion, up to the loss at which probing at 1.25 times the rate no longer
//!   compensates for it, 20 % (Cardwell and others 2016). Beyond that, it is computed as Reno here.
//!
//! A transfer begins with a connection and a request, which take two round trips. Then the window doubles every round
//! trip from ten segments (RFC 6928) until the stream has reached its rate (slow start).

use serde::Serialize;
use slotpress_base::{Error, Result};

/// Default payload of a packet: 1500 bytes of Ethernet less IPv4 (20), TCP (20) and its time stamps (12).
pub const MSS_BYTES: u32 = 1448;

/// Overhead of a packet on the wire: preamble (8), Ethernet header and checksum (18), gap between packets (12), IPv4
/// (20), TCP (20) and its time stamps (12).
pub const HEADER_BYTES: u32 = 90;

/// Default limit of the bytes in flight per stream: two thirds of the 4 MiB to which Linux grows a send buffer by
/// default (`tcp_wmem`), because the sender is woken to refill it when a third is free. The receive buffer (6 MiB,
/// `tcp_rmem`) permits more. `bench/link.sh` checks it.
pub const WINDOW_BYTES: u64 = (4 << 20) * 2 / 3;

/// Segments sent before the first acknowledgement (RFC 6928).
const INITIAL_SEGMENTS: f64 = 10.0;

/// Round trips until the first byte arrives: one for the connection, one for request and answer.
const SETUP_ROUND_TRIPS: f64 = 2.0;

/// Random loss up to which BBR keeps its rate.
const BBR_LOSS_MAX: f64 = 0.2;

/// Reaction of a sender to packet loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CongestionControl {
    /// Halves its window after each loss.
    Reno,
    /// Grows its window by a cubic function; the default of Linux.
    #[default]
    Cubic,
    /// Sends at the rate that it measures.
    Bbr,
}

#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Link {
    pub bandwidth_bits_per_second: f64,
    pub rtt_seconds: f64,
    /// Share of packets lost at random: 0.001 is 0.1 %.
    pub loss: f64,
    pub streams: u32,
    pub nodes: u32,
    pub congestion_control: CongestionControl,
    pub window_bytes: u64,
    pub mss_bytes: u32,
}

/// Cause that limits the rate of a transfer.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    Bandwidth,
    Window,
    Loss,
}

impl Link {
    /// A link without delay or loss, for one node and one stream.
    #[cfg(test)]
    pub fn new(bandwidth_bits_per_second: f64) -> Self {
        Self {
            bandwidth_bits_per_second,
            rtt_seconds: 0.0,
            loss: 0.0,
            streams: 1,
            nodes: 1,
            congestion_control: CongestionControl::default(),
            window_bytes: WINDOW_BYTES,
            mss_bytes: MSS_BYTES,
        }
    }

    /// Refuses an impossible link, or one over which nothing would ever arrive.
    ///
    /// # Errors
    /// If a value is out of range.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::usage(format!("an impossible link: {what}")));
        let Self { bandwidth_bits_per_second, rtt_seconds, loss, .. } = *self;
        match () {
            () if !bandwidth_bits_per_second.is_finite() || bandwidth_bits_per_second <= 0.0 => {
                wrong("the bandwidth must be above 0")
            }
            () if !rtt_seconds.is_finite() || rtt_seconds < 0.0 => wrong("the round trip must be 0 or more"),
            () if !(0.0..1.0).contains(&loss) => wrong("the loss must be 0 or more, and below 100 %"),
            () if self.streams == 0 || self.nodes == 0 => wrong("streams and nodes are 1 or more"),
            () if self.window_bytes == 0 || self.mss_bytes == 0 => wrong("a window and a packet hold 1 byte or more"),
            () => Ok(()),
        }
    }

    /// Returns the same link with another bandwidth.
    #[must_use]
    pub fn with_bandwidth(self, bandwidth_bits_per_second: f64) -> Self {
        Self { bandwidth_bits_per_second, ..self }
    }

    /// Rate of each node after the slow start, in bytes of payload per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.share().min(f64::from(self.streams) * self.stream_max())
    }

    /// Determines the cause that limits the rate.
    pub fn limit(&self) -> Limit {
        match () {
            () if self.share() <= f64::from(self.streams) * self.stream_max() => Limit::Bandwidth,
            () if self.window_rate() <= self.loss_rate() => Limit::Window,
            () => Limit::Loss,
        }
    }

    /// Bandwidth in bit/s above which more does not help, because window or loss limit the rate; `None` if more always
    /// helps.
    pub fn useful_bits_per_second(&self) -> Option<f64> {
        let per_bandwidth = self.share() / self.bandwidth_bits_per_second;
        let bits = f64::from(self.streams) * self.stream_max() / per_bandwidth;
        bits.is_finite().then_some(bits)
    }

    /// Seconds from a node's request until it has received this many bytes.
    pub fn seconds_for(&self, bytes: f64) -> f64 {
        self.seconds_at_most(bytes, f64::INFINITY)
    }

    /// Like [`Link::seconds_for`], if sender or receiver process at most `bytes_per_second`.
    pub fn seconds_at_most(&self, bytes: f64, bytes_per_second: f64) -> f64 {
        let rate = self.bytes_per_second().min(bytes_per_second) / f64::from(self.streams);
        let bytes = bytes / f64::from(self.streams);
        let (initial, window) = (INITIAL_SEGMENTS * f64::from(self.mss_bytes), rate * self.rtt_seconds);
        if window <= initial {
            return self.setup_seconds() + bytes / rate;
        }
        // The window doubles every round trip from `initial` to `window`, and one window is sent per round trip:
        // (window - initial) / ln 2 bytes in log2(window / initial) round trips.
        let ramp_bytes = (window - initial) / std::f64::consts::LN_2;
        let transfer = match bytes < ramp_bytes {
            true => self.rtt_seconds * (bytes * std::f64::consts::LN_2 / initial).ln_1p() / std::f64::consts::LN_2,
            false => self.rtt_seconds * (window / initial).log2() + (bytes - ramp_bytes) / rate,
        };
        self.setup_seconds() + transfer
    }

    /// Seconds until the first byte arrives.
    pub fn setup_seconds(&self) -> f64 {
        SETUP_ROUND_TRIPS * self.rtt_seconds
    }

    /// A node's share of the bandwidth, without headers and retransmissions.
    fn share(&self) -> f64 {
        let payload = f64::from(self.mss_bytes) / (f64::from(self.mss_bytes) + f64::from(HEADER_BYTES));
        self.bandwidth_bits_per_second / 8.0 * payload * (1.0 - self.loss) / f64::from(self.nodes)
    }

    /// Maximum rate of a stream on a link of any bandwidth.
    fn stream_max(&self) -> f64 {
        self.window_rate().min(self.loss_rate())
    }

    /// Rate of one window per round trip; infinite without delay.
    fn window_rate(&self) -> f64 {
        self.window_bytes as f64 / self.rtt_seconds
    }

    /// Rate that packet loss permits; infinite without loss or without delay.
    fn loss_rate(&self) -> f64 {
        if self.loss <= 0.0 || self.rtt_seconds <= 0.0 {
            return f64::INFINITY;
        }
        let reno = (1.5 / self.loss).sqrt();
        let segments = match self.congestion_control {
            CongestionControl::Reno => reno,
            CongestionControl::Cubic => reno.max(1.054 * (self.rtt_seconds / self.loss).powf(0.75)),
            CongestionControl::Bbr if self.loss <= BBR_LOSS_MAX => return f64::INFINITY,
            CongestionControl::Bbr => reno,
        };
        segments * f64::from(self.mss_bytes) / self.rtt_seconds
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn near(value: f64, expected: f64) -> bool {
        (value / expected - 1.0).abs() < 1e-3
    }

    #[test]
    fn a_wide_link_without_delay_carries_all_but_the_headers() {
        let link = Link::new(1e9);
        assert!(near(link.bytes_per_second(), 125e6 * 1448.0 / 1538.0));
        assert_eq!(link.limit(), Limit::Bandwidth);
        assert!(near(link.seconds_for(1e9), 8.497));
    }

    /// Calculated by hand: 2.8 MB every 60 ms are 46.6 MB/s; four streams fill a gigabit.
    #[test]
    fn a_window_per_round_trip() {
        let link = Link { rtt_seconds: 0.06, ..Link::new(1e9) };
        assert!(near(link.bytes_per_second(), 46.60e6), "{}", link.bytes_per_second());
        assert_eq!(link.limit(), Limit::Window);
        assert_eq!(Link { streams: 4, ..link }.limit(), Limit::Bandwidth);
        // 373 Mbit/s of payload, and headers.
        assert!(near(link.useful_bits_per_second().expect("an end"), 396.0e6));
        assert_eq!(Link::new(1e9).useful_bits_per_second(), None);
    }

    /// Calculated by hand, windows at 100 ms: sqrt(3/2p) segments, or 1.054 (0.1/p)^(3/4) if that is more; 10^4^(3/4) is 1000.
    #[test]
    fn loss() {
        let windows = |loss: f64, control| {
            let link = Link { rtt_seconds: 0.1, loss, congestion_control: control, mss_bytes: 1, ..Link::new(1e12) };
            link.loss_rate() * 0.1
        };
        assert!(near(windows(1e-3, CongestionControl::Reno), 38.73));
        assert!(near(windows(1e-3, CongestionControl::Cubic), 38.73));
        assert!(near(windows(1e-5, CongestionControl::Reno), 387.3));
        assert!(near(windows(1e-5, CongestionControl::Cubic), 1054.0));
        assert_eq!(windows(1e-3, CongestionControl::Bbr), f64::INFINITY);
        assert!(near(windows(0.3, CongestionControl::Bbr), 2.236));
        let link = Link { rtt_seconds: 0.06, loss: 0.001, ..Link::new(1e9) };
        assert_eq!(link.limit(), Limit::Loss);
        assert!(near(link.bytes_per_second() * 8.0, 7.48e6), "{}", link.bytes_per_second() * 8.0);
    }

    /// Ten segments, then twenty, then forty: the time of a short transfer is its round trips, at any bandwidth.
    #[test]
    fn slow_start() {
        let link = Link { rtt_seconds: 0.1, ..Link::new(1e10) };
        let seconds = link.seconds_for(70.0 * 1448.0);
        assert!((0.4..0.55).contains(&seconds), "{seconds}");
    }

    #[test]
    fn impossible_links() {
        let good = Link::new(1e9);
        assert!(good.check().is_ok());
        for link in [
            Link::new(0.0),
            Link::new(-1.0),
            Link::new(f64::NAN),
            Link::new(f64::INFINITY),
            Link { rtt_seconds: -0.1, ..good },
            Link { rtt_seconds: f64::NAN, ..good },
            Link { loss: 1.0, ..good },
            Link { loss: -0.1, ..good },
            Link { loss: f64::NAN, ..good },
            Link { streams: 0, ..good },
            Link { nodes: 0, ..good },
            Link { window_bytes: 0, ..good },
            Link { mss_bytes: 0, ..good },
        ] {
            let error = link.check().expect_err("impossible");
            assert_eq!(error.kind(), slotpress_base::error::ErrorKind::Usage);
        }
    }

    prop_compose! {
        pub(crate) fn any_link()(
            bandwidth in 3.0f64..13.0,
            rtt_seconds in prop_oneof![Just(0.0), 1e-6f64..2.0],
            loss in prop_oneof![Just(0.0), 1e-9f64..0.99],
            streams in 1u32..64,
            nodes in 1u32..1000,
            control in 0usize..3,
            window in 10u32..34,
            mss_bytes in 1u32..9000,
        ) -> Link {
            let controls = [CongestionControl::Reno, CongestionControl::Cubic, CongestionControl::Bbr];
            Link {
                bandwidth_bits_per_second: 10f64.powf(bandwidth),
                rtt_seconds,
                loss,
                streams,
                nodes,
                congestion_control: controls[control],
                window_bytes: 1 << window,
                mss_bytes,
            }
        }
    }

    proptest! {
        #[test]
        fn better_links_are_never_slower(link in any_link(), bytes in 0.0f64..1e13, factor in 1.0f64..100.0) {
            prop_assert!(link.check().is_ok());
            let seconds = link.seconds_for(bytes);
            prop_assert!(seconds.is_finite() && seconds >= 0.0);
            // Allow for rounding in sums of very different values.
            let most = seconds * (1.0 + 1e-9);
            let better = [
                link.with_bandwidth(link.bandwidth_bits_per_second * factor),
                Link { loss: link.loss / factor, ..link },
                Link { window_bytes: link.window_bytes * 2, ..link },
                Link { streams: link.streams + 1, ..link },
            ];
            for better in better {
                prop_assert!(better.seconds_for(bytes) <= most, "{:?}", better);
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
