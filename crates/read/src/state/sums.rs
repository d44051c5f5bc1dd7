//! Sums over accounts, in any order: lamports, lattice hash, and counts.

use slotpress_format::{AccountView, LatticeHash};

use super::layers::LayerSet;

/// Sum of the lattice hashes and lamports of some accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateSum {
    pub lattice: LatticeHash,
    /// `u128`, because a hostile archive may hold more than a `u64` can count.
    pub lamports: u128,
}

impl StateSum {
    fn of(account: &AccountView<'_>) -> Self {
        Self { lattice: LatticeHash::of_account(account), lamports: account.lamports.into() }
    }

    pub fn add(&mut self, other: &Self) {
        self.lattice.add(&other.lattice);
        self.lamports = self.lamports.wrapping_add(other.lamports);
    }

    /// Subtracts accounts that were added before.
    pub fn subtract(&mut self, other: &Self) {
        self.lattice.subtract(&other.lattice);
        self.lamports = self.lamports.wrapping_sub(other.lamports);
    }
}

/// Sum of the added accounts, and counts of the records that were read.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    pub state: StateSum,
    pub records: u64,
    /// Records without lamports, which close an account.
    pub tombstones: u64,
    /// Records that were skipped because a newer archive holds their account.
    pub skipped: u64,
}

impl Sums {
    pub fn add(&mut self, other: &Self) {
        self.state.add(&other.state);
        self.records += other.records;
        self.tombstones += other.tombstones;
        self.skipped += other.skipped;
    }
}

/// Sums of accounts: of all, and of those that each layer covers.
#[derive(Default)]
pub struct LayeredSums {
    pub all: Sums,
    pub covered: Vec<StateSum>,
}

impl LayeredSums {
    pub fn of_layer(&mut self, layer: u32) -> &mut StateSum {
        let layers = self.covered.len().max(layer as usize + 1);
        self.covered.resize_with(layers, StateSum::default);
        &mut self.covered[layer as usize]
    }

    /// Adds an account that layers cover.
    pub fn add(&mut self, account: &AccountView<'_>, layers: LayerSet) {
        let one = StateSum::of(account);
        self.all.state.add(&one);
        layers.layers().for_each(|layer| self.of_layer(layer).add(&one));
    }

    /// Subtracts an account from the sums of the layers that cover it.
    pub fn uncover(&mut self, account: &AccountView<'_>, layers: LayerSet) {
        let one = StateSum::of(account);
        layers.layers().for_each(|layer| self.of_layer(layer).subtract(&one));
    }
}
