//! Sums over accounts, in any order: lamports, lattice hash, and counts.

use slotpress_format::LatticeHash;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateSum {
    pub lattice: LatticeHash,
    /// The type is `u128`, because the sum in a hostile archive may not fit into a `u64`.
    pub lamports: u128,
}

impl StateSum {
    pub fn add_lamports(&mut self, lamports: u64) {
        self.lamports = self.lamports.wrapping_add(lamports.into());
    }

    pub fn add(&mut self, other: &Self) {
        self.lattice.add(&other.lattice);
        self.lamports = self.lamports.wrapping_add(other.lamports);
    }

    pub fn subtract(&mut self, other: &Self) {
        self.lattice.subtract(&other.lattice);
        self.lamports = self.lamports.wrapping_sub(other.lamports);
    }
}

#[derive(Clone, Debug, Default)]
pub struct PassSums {
    pub state: StateSum,
    pub records: u64,
    pub tombstones: u64,
    pub superseded: u64,
    pub accounts: u64,
}

impl PassSums {
    pub fn add(&mut self, other: &Self) {
        self.state.add(&other.state);
        self.records += other.records;
        self.tombstones += other.tombstones;
        self.superseded += other.superseded;
    }
}
