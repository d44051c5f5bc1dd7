//! The features that make slots shorter, and the fields of a bank file that follow from them
//! (`slot_params.rs` in the `solana-runtime` crate).

use crate::BankFile;
use crate::ledger::programs::address;

/// Seconds in a year (`SECONDS_PER_YEAR` in the `solana-time-utils` crate).
const SECONDS_PER_YEAR: f64 = 365.242_199 * 24.0 * 60.0 * 60.0;

/// A feature that makes slots shorter, and the fields that it requires in a bank file.
#[derive(Clone, Copy, Debug)]
pub struct SlotParams {
    pub feature: [u8; 32],
    pub ns_per_slot: u128,
    pub slots_per_year: f64,
    pub hashes_per_tick: u64,
}

/// All features that make slots shorter, beginning with the shortest slots.
pub const SHORTER_SLOTS: [SlotParams; 4] = [
    SlotParams {
        feature: address("iBRLjhJnkmDZgNoZRDMW11d8ZV7HvsL3vAyRjZB5npW"),
        ns_per_slot: 200_000_000,
        slots_per_year: 157_784_629.968,
        hashes_per_tick: 31_250,
    },
    SlotParams {
        feature: address("iBRLMc81UjRa8fn8A6eE8bJTnRbgQoPTynM51akENCV"),
        ns_per_slot: 250_000_000,
        slots_per_year: 126_227_703.974,
        hashes_per_tick: 39_062,
    },
    SlotParams {
        feature: address("iBRLL3k18HST852F1Mf3Lv83waTNQmmqvKDxvYGwQFL"),
        ns_per_slot: 300_000_000,
        slots_per_year: 105_189_753.312,
        hashes_per_tick: 46_875,
    },
    SlotParams {
        feature: address("iBRL5RuWhw4yqaAZu96RUULHckHTZAoe2b77qaV38JZ"),
        ns_per_slot: 350_000_000,
        slots_per_year: 90_162_645.696,
        hashes_per_tick: 54_687,
    },
];

/// A field of a bank file that differs from the value that a feature requires.
#[derive(Debug)]
pub struct SlotParamsMismatch {
    pub expected: String,
    pub found: String,
}

impl SlotParams {
    /// Finds a field of the bank file that differs from the value that the feature requires.
    ///
    /// If the slots of the genesis were even shorter, the chain keeps them. The bank file then has a
    /// duration that no feature sets, and the number of slots in a year that follows from it.
    pub fn find_mismatch(&self, bank: &BankFile) -> Option<SlotParamsMismatch> {
        let Self { ns_per_slot, slots_per_year, hashes_per_tick, .. } = *self;
        let is_set_by_feature = SHORTER_SLOTS.iter().any(|params| params.ns_per_slot == bank.ns_per_slot);
        if bank.ns_per_slot < ns_per_slot && !is_set_by_feature && has_matching_year(bank) {
            return None;
        }
        let mismatch = |expected, found| Some(SlotParamsMismatch { expected, found });
        if bank.ns_per_slot != ns_per_slot {
            return mismatch(format!("slots of {ns_per_slot} ns"), format!("{} ns", bank.ns_per_slot));
        }
        if bank.slots_per_year.to_bits() != slots_per_year.to_bits() {
            return mismatch(format!("{slots_per_year} slots in a year"), bank.slots_per_year.to_string());
        }
        // Where Agave writes no number, Firedancer writes 0. Another check judges the 0.
        match bank.hashes_per_tick {
            Some(hashes) if hashes != 0 && hashes != hashes_per_tick => {
                mismatch(format!("no hashes per tick, or {hashes_per_tick}"), hashes.to_string())
            }
            _ => None,
        }
    }
}

/// True if the number of slots in a year follows from their duration, as in any genesis.
fn has_matching_year(bank: &BankFile) -> bool {
    let expected = SECONDS_PER_YEAR * 1e9 / bank.ns_per_slot as f64;
    (bank.slots_per_year / expected - 1.0).abs() < 1e-6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bank(ns_per_slot: u128, slots_per_year: f64, hashes_per_tick: Option<u64>) -> BankFile {
        BankFile { ns_per_slot, slots_per_year, hashes_per_tick, ..BankFile::default() }
    }

    #[test]
    fn fields_that_differ_from_a_feature_are_found() {
        let [shortest, shorter, ..] = SHORTER_SLOTS;
        let year = shortest.slots_per_year;
        let agrees = |params: &SlotParams, bank: &BankFile| params.find_mismatch(bank).is_none();
        assert!([None, Some(31_250)].iter().all(|hashes| agrees(&shortest, &bank(200_000_000, year, *hashes))));
        assert!([1, 62_500].iter().all(|hashes| !agrees(&shortest, &bank(200_000_000, year, Some(*hashes)))));
        assert!(!agrees(&shortest, &bank(400_000_000, 78_892_314.984, None)), "not shortened");
        assert!(
            !agrees(&shortest, &bank(200_000_000, f64::from_bits(year.to_bits() + 1), None)),
            "compared bit by bit"
        );
        assert!(
            !agrees(&shorter, &bank(200_000_000, year, None)),
            "the values of a different feature, which is not active"
        );
        // The genesis may have had these numbers.
        assert!(agrees(&shorter, &bank(100_000_000, 2.0 * year, Some(7))));
        for ns_per_slot in [0, 1, 199_000_000] {
            assert!(!agrees(&shortest, &bank(ns_per_slot, year, None)), "{ns_per_slot}");
        }
        assert!([f64::NAN, f64::INFINITY, 0.0].iter().all(|year| !agrees(&shortest, &bank(1, *year, None))));
    }
}
