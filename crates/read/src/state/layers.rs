//! Computes the states of several incremental archives on one full archive, which is read once for
//! all of them.
//!
//! The incremental archives are called layers, and are read first, each with a log of its own. A
//! [`Layer`] keeps its sums and the accounts that clients read. For each of its accounts, the log
//! of the full archive gets an item, as if the layer were a storage that is newer than all others.
//! A layer covers the records of the full archive whose accounts it holds. They are added twice: to
//! the sums of the full archive, and to the sums that the layer covers. Then
//!
//! ```text
//! state with a layer = full archive - what the layer covers + the layer
//! ```
//!
//! for lattice hash, lamports and counts. If there is memory for a table of the layers' accounts,
//! the table shows which layers hold an account while the records are read. If not, sorting the log
//! shows it, and the covered records are read again, like superseded ones.

use std::ops::BitOr;

use super::finish::StateCounts;
use super::stakes::{StakeAccounts, StakesView};
use super::sums::Sums;
use super::well_known::{WellKnown, WellKnownAccounts};

/// Limit on the layers of a full archive: as many as a [`LayerSet`] has bits.
pub const LAYERS_MAX: usize = 32;

/// A set of layers of a full archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LayerSet(u32);

impl LayerSet {
    pub fn of(layer: u32) -> Self {
        Self(1 << layer)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn contains(self, layer: u32) -> bool {
        self.0 >> layer & 1 == 1
    }

    pub fn layers(self) -> impl Iterator<Item = u32> {
        (0..u32::BITS - self.0.leading_zeros()).filter(move |layer| self.contains(*layer))
    }
}

impl BitOr for LayerSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The state of an incremental archive, without its superseded records.
pub struct Layer {
    /// Number among the layers of the full archive.
    pub number: u32,
    pub sums: Sums,
    pub counted: StateCounts,
    pub stakes: StakeAccounts,
    pub well_known: WellKnown,
    pub spilled_bytes: u64,
}

/// Counts of the newest versions in a full archive whose accounts are in a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// Number of newest versions, including tombstones.
    pub versions: u64,
    /// Number of newest versions with lamports.
    pub accounts: u64,
}

/// Adds `more` to `counts`, layer by layer.
pub fn add_covered(counts: &mut Vec<Covered>, more: &[Covered]) {
    counts.resize(counts.len().max(more.len()), Covered::default());
    for (counts, more) in counts.iter_mut().zip(more) {
        counts.versions += more.versions;
        counts.accounts += more.accounts;
    }
}

/// A state to be judged.
pub struct State<'a> {
    pub sums: Sums,
    pub stakes: StakesView<'a>,
    pub well_known: WellKnownAccounts,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;
    use slotpress_base::{NoProgress, Result};
    use slotpress_format::{CLOCK, RENT, Record, RecordHeader, STAKE, VOTE};

    use super::*;
    use crate::state::accounts::{Accounts, AccountsPass, Task};
    use crate::state::finish::settle;
    use crate::state::sums::StateSum;
    use crate::{Findings, RecordVisitor, StorageRef, Version};

    #[test]
    fn a_set_of_layers() {
        let set = LayerSet::of(0) | LayerSet::of(31) | LayerSet::of(5);
        assert_eq!(set.layers().collect::<Vec<_>>(), [0, 5, 31]);
        assert!(set.contains(5) && !set.contains(6) && !set.is_empty() && LayerSet::default().is_empty());
        assert_eq!(LayerSet::default().layers().count(), 0);
    }

    #[test]
    fn layers_take_at_most_half_of_the_log() {
        let mut below = Accounts::new(1 << 30, &std::env::temp_dir(), 0).expect("random bytes").below(3);
        let half_bytes = (1 << 30) / 4 * 3 / 2;
        assert!(below.reserve(half_bytes - 8) && !below.reserve(9) && below.reserve(8) && !below.reserve(1));
    }

    /// Storages of an archive, the oldest first: accounts with their lamports.
    type Content = Vec<Vec<(u8, u64)>>;

    fn address(account: u8) -> [u8; 32] {
        match account {
            0 => CLOCK,
            1 => RENT,
            _ => [account; 32],
        }
    }

    /// Passes a record to `look`: a wallet, a vote account or a delegation, depending on account
    /// and lamports.
    fn show(account: u8, lamports: u64, look: impl FnOnce(&RecordHeader, &[u8])) {
        let mut header = RecordHeader::parse(&[0; 136]);
        let mut data = vec![0; 200];
        (data[0], data[124], data[150]) = (2, account, lamports as u8);
        header.owner = match (account % 4, lamports % 3) {
            (0, 1 | 2) => STAKE,
            (1, 2) => VOTE,
            _ => [8; 32],
        };
        (header.pubkey, header.lamports) = (address(account), lamports);
        look(&header, &data);
    }

    /// An archive that is read into a state, and the number and slot of its first storage.
    struct Part<'a>(&'a Content, u32, u64);

    impl<'a> Part<'a> {
        fn read(content: &'a Content, first_slot: u64, accounts: &Accounts) -> Self {
            let part = Self(content, accounts.storage_count(), first_slot);
            for (slot, _) in (first_slot..).zip(content) {
                accounts.add_storage(slot, 1, 1 << 20);
            }
            part.pass(accounts, Task::Add, None);
            part
        }

        fn pass(&self, accounts: &Accounts, task: Task<'_>, wanted: Option<&HashSet<u32>>) {
            let Self(content, first_number, first_slot) = self;
            let findings = Findings::new();
            let pass = AccountsPass { accounts, findings: &findings, task };
            let mut worker = pass.new_worker();
            for (storage, at) in content.iter().zip(0..) {
                let (number, slot) = (first_number + at, first_slot + u64::from(at));
                if wanted.is_some_and(|wanted| !wanted.contains(&number)) {
                    continue;
                }
                worker.begin(StorageRef { number, slot, id: 1 });
                for ((account, lamports), at) in storage.iter().zip(0..) {
                    show(*account, *lamports, |header, data| {
                        worker.record(Record { offset_bytes: 336 * at, header, data });
                    });
                }
            }
        }
    }

    fn settled(
        accounts: &Accounts,
        parts: &[Part<'_>],
        note: &(dyn Fn(&[Version]) -> Result<()> + Sync),
    ) -> StateCounts {
        let mut read_again = |task: Task<'_>, wanted: &HashSet<u32>| {
            parts.iter().for_each(|part| part.pass(accounts, task, Some(wanted)));
            Ok(())
        };
        settle(accounts, 2, &NoProgress, note, &mut read_again).expect("settled")
    }

    fn new_accounts() -> Accounts {
        Accounts::keeping_records(1 << 20, &std::env::temp_dir(), 0, 100).expect("random bytes")
    }

    /// All facts of a state that are judged or reported.
    fn facts(state: &State<'_>, counted: &StateCounts) -> String {
        let Sums { state: StateSum { lattice, lamports }, records, tombstones, .. } = &state.sums;
        let (staked, well_known) = (state.stakes.shown(), &state.well_known);
        format!("{lattice:?} {lamports} {records} {tombstones} {counted:?}\n{staked:?}\n{well_known:?}")
    }

    const FIRST_SLOT: u64 = 10;
    const LAYER_SLOT: u64 = 100;

    /// The state of a full archive alone, or with an incremental one, which is read first.
    fn alone(full: &Content, incremental: Option<&Content>) -> String {
        let mut accounts = new_accounts();
        let mut parts: Vec<Part<'_>> = Vec::new();
        if let Some(incremental) = incremental {
            parts.push(Part::read(incremental, LAYER_SLOT, &accounts));
            accounts.begin_older_archive(2).expect("sorted");
        }
        parts.push(Part::read(full, FIRST_SLOT, &accounts));
        let counted = settled(&accounts, &parts, &|_| Ok(()));
        facts(&accounts.state(), &counted)
    }

    /// The states of a full archive alone, and with each of several incremental ones. Each archive
    /// is read once.
    fn together(full: &Content, incrementals: &[Content], has_table: bool) -> Vec<String> {
        let mut below = new_accounts().below(incrementals.len() as u32);
        let mut layers = Vec::new();
        for (content, number) in incrementals.iter().zip(0..) {
            let accounts = below.above(1 << 20, &std::env::temp_dir(), 0, 100).expect("random bytes");
            let part = Part::read(content, LAYER_SLOT, &accounts);
            let counted = settled(&accounts, &[part], &|sorted| below.note_layer(number, sorted));
            layers.push(accounts.into_layer(number, counted));
        }
        below.begin_older_archive(2).expect("sorted");
        if !has_table {
            below.forget_newer();
        }
        let part = Part::read(full, FIRST_SLOT, &below);
        let counted = settled(&below, &[part], &|_| Ok(()));
        let with = |layer: &Layer| facts(&below.state_below(layer), &below.counts_below(&counted, layer));
        std::iter::once(facts(&below.state(), &counted)).chain(layers.iter().map(with)).collect()
    }

    fn storages(count: usize) -> impl Strategy<Value = Content> {
        let storage = proptest::collection::btree_map(0u8..24, 0u64..5, 0..12);
        proptest::collection::vec(storage.prop_map(|storage| storage.into_iter().collect()), 1..count)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Each state is the same as when its pair is read alone, whether a table or sorting shows
        /// what layers cover.
        #[test]
        fn states_with_layers_are_those_of_pairs(
            full in storages(6),
            incrementals in proptest::collection::vec(storages(4), 1..6),
            has_table: bool,
        ) {
            let expected: Vec<String> = std::iter::once(alone(&full, None))
                .chain(incrementals.iter().map(|incremental| alone(&full, Some(incremental))))
                .collect();
            prop_assert_eq!(together(&full, &incrementals, has_table), expected);
        }
    }
}
