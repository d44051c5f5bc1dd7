//! The duration of slots, and where it comes from. It was 400 ms at genesis, but clusters shorten it step by
//! step (SIMD-0525).

use std::fmt;
use std::time::Duration;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use slotpress_base::quantity;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotTimeSource {
    /// An RPC server measured the duration of recent slots.
    Rpc,
    /// The bank file of an archive states the intended duration.
    BankFile,
    Assumed,
}

/// The duration of a slot, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotTime {
    per_slot: Duration,
    source: SlotTimeSource,
}

impl SlotTime {
    /// Makes a measured or stated duration. Returns `None` if it is implausible (below 50 ms or above
    /// 2 s).
    #[doc(hidden)]
    pub fn new(per_slot: Duration, source: SlotTimeSource) -> Option<Self> {
        let plausible = Duration::from_millis(50)..=Duration::from_secs(2);
        plausible.contains(&per_slot).then_some(Self { per_slot, source })
    }

    /// Returns the duration of a slot in milliseconds, rounded.
    pub fn milliseconds(self) -> u64 {
        u64::try_from(self.per_slot.as_micros().saturating_add(500) / 1000).unwrap_or(u64::MAX)
    }

    #[doc(hidden)]
    pub fn source(self) -> SlotTimeSource {
        self.source
    }

    pub fn duration(self, slots: u64) -> Duration {
        let nanos = self.per_slot.as_nanos().saturating_mul(u128::from(slots));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the number of whole slots in `time`.
    pub fn slots_in(self, time: Duration) -> u64 {
        let slots = time.as_nanos().checked_div(self.per_slot.as_nanos()).unwrap_or_default();
        u64::try_from(slots).unwrap_or(u64::MAX)
    }

    /// Formats a number of slots with its duration: "135 slots (54 s)".
    pub fn show(self, slots: u64) -> String {
        format!("{} ({})", quantity::count_of(slots, "slot"), quantity::age(self.duration(slots)))
    }
}

/// Serializes `slot_ms` and `slot_time_source`. Reports flatten these fields.
impl Serialize for SlotTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("SlotTime", 2)?;
        fields.serialize_field("slot_ms", &self.milliseconds())?;
        fields.serialize_field("slot_time_source", &self.source)?;
        fields.end()
    }
}

/// The duration to assume without a source: the clients' `DEFAULT_MS_PER_SLOT`. If slots are shorter, states
/// seem older than they are, never newer.
impl Default for SlotTime {
    fn default() -> Self {
        Self { per_slot: Duration::from_millis(400), source: SlotTimeSource::Assumed }
    }
}

/// Writes "400 ms (assumed)".
impl fmt::Display for SlotTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            SlotTimeSource::Rpc => "as an RPC server measured it",
            SlotTimeSource::BankFile => "from a bank file",
            SlotTimeSource::Assumed => "assumed",
        };
        write!(f, "{} ms ({source})", self.milliseconds())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slots_are_converted_to_time_and_back() {
        let short = SlotTime::new(Duration::from_millis(200), SlotTimeSource::Rpc).expect("plausible");
        assert_eq!(short.duration(100_000), Duration::from_secs(20_000));
        assert_eq!(
            (short.slots_in(Duration::from_secs(60)), SlotTime::default().slots_in(Duration::from_secs(60))),
            (300, 150)
        );
        assert_eq!(short.show(300), "300 slots (60 s)");
        assert_eq!(SlotTime::default().to_string(), "400 ms (assumed)");
        for implausible_ms in [0, 49, 2001, 400_000] {
            assert_eq!(SlotTime::new(Duration::from_millis(implausible_ms), SlotTimeSource::Rpc), None);
        }
    }

    proptest! {
        #[test]
        fn nothing_overflows(slots in any::<u64>(), nanos in any::<u64>()) {
            let _ = SlotTime::default().duration(slots);
            let _ = SlotTime::default().slots_in(Duration::from_nanos(nanos));
        }
    }
}
