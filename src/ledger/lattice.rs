//! The accounts lattice hash: one sum over all accounts, in any order (format page, section "Hashes").

use crate::ledger::names::Hash;

/// The size of a lattice hash in bytes: 1,024 little-endian `u16`.
pub const LATTICE_HASH_BYTES: usize = 2048;

/// Numbers in a lattice hash.
pub const ELEMENTS: usize = LATTICE_HASH_BYTES / 2;

/// A sum of account hashes, element by element, wrapping. The order of accounts does not matter, and what was added
/// can be subtracted.
#[derive(Clone, PartialEq, Eq)]
pub struct LatticeHash(pub [u16; ELEMENTS]);

/// What an account contributes to the state: everything that its hash covers.
#[derive(Clone, Copy, Debug)]
pub struct AccountView<'a> {
    /// The account's address.
    pub pubkey: &'a [u8; 32],
    /// The owner program.
    pub owner: &'a [u8; 32],
    /// The balance. An account without lamports does not exist and contributes nothing.
    pub lamports: u64,
    /// Whether it is a program.
    pub executable: bool,
    /// The account's data.
    pub data: &'a [u8],
}

impl AccountView<'_> {
    /// Everything that is hashed, as blake3's extended output.
    fn fill_extended_hash(&self, to: &mut [u8; LATTICE_HASH_BYTES]) {
        /// Accounts of this size are put together first: blake3 is quicker on one piece, and most are token accounts
        /// of 165 bytes.
        const TOGETHER_BYTES_MAX: usize = 1024;
        let mut hasher = blake3::Hasher::new();
        let length = 8 + self.data.len() + 65;
        let mut tail = [0; 65];
        tail[0] = u8::from(self.executable);
        tail[1..33].copy_from_slice(self.owner);
        tail[33..].copy_from_slice(self.pubkey);
        if length <= TOGETHER_BYTES_MAX {
            let mut all = [0; TOGETHER_BYTES_MAX];
            all[..8].copy_from_slice(&self.lamports.to_le_bytes());
            all[8..8 + self.data.len()].copy_from_slice(self.data);
            all[8 + self.data.len()..length].copy_from_slice(&tail);
            hasher.update(&all[..length]);
        } else {
            hasher.update(&self.lamports.to_le_bytes());
            hasher.update(self.data);
            hasher.update(&tail);
        }
        hasher.finalize_xof().fill(to);
    }
}

impl LatticeHash {
    /// The hash of no accounts.
    pub fn zero() -> Self {
        Self([0; ELEMENTS])
    }

    /// From its 2,048 bytes, as the bank file holds it.
    pub fn from_bytes(bytes: &[u8; LATTICE_HASH_BYTES]) -> Self {
        let mut elements = [0; ELEMENTS];
        for (element, pair) in elements.iter_mut().zip(bytes.chunks_exact(2)) {
            *element = u16::from_le_bytes([pair[0], pair[1]]);
        }
        Self(elements)
    }

    /// Its 2,048 bytes, as the bank file holds it.
    pub fn to_bytes(&self) -> [u8; LATTICE_HASH_BYTES] {
        let mut bytes = [0; LATTICE_HASH_BYTES];
        for (pair, element) in bytes.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&element.to_le_bytes());
        }
        bytes
    }

    /// The hash in an archive's name.
    pub fn snapshot_hash(&self) -> Hash {
        Hash(*blake3::hash(&self.to_bytes()).as_bytes())
    }

    /// The hash of one account, to be added to a sum.
    pub fn of_account(account: &AccountView<'_>) -> Self {
        let mut hash = Self::zero();
        hash.add_account(account);
        hash
    }

    /// Adds one account to this sum.
    pub fn add_account(&mut self, account: &AccountView<'_>) {
        if account.lamports == 0 {
            return;
        }
        let mut bytes = [0; LATTICE_HASH_BYTES];
        account.fill_extended_hash(&mut bytes);
        for (element, pair) in self.0.iter_mut().zip(bytes.chunks_exact(2)) {
            *element = element.wrapping_add(u16::from_le_bytes([pair[0], pair[1]]));
        }
    }

    /// Adds another sum to this one.
    pub fn add(&mut self, other: &Self) {
        for (element, other) in self.0.iter_mut().zip(other.0) {
            *element = element.wrapping_add(other);
        }
    }

    /// Takes another sum out of this one.
    pub fn subtract(&mut self, other: &Self) {
        for (element, other) in self.0.iter_mut().zip(other.0) {
            *element = element.wrapping_sub(other);
        }
    }
}

impl std::fmt::Debug for LatticeHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LatticeHash({})", self.snapshot_hash())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_commute_and_cancel() {
        let account =
            |lamports, data| AccountView { pubkey: &[1; 32], owner: &[2; 32], lamports, executable: false, data };
        let one = LatticeHash::of_account(&account(1, b"one"));
        let two = LatticeHash::of_account(&account(2, b"two"));
        let (mut sum, mut other) = (one.clone(), two.clone());
        sum.add(&two);
        other.add(&one);
        assert_eq!(sum, other);
        sum.subtract(&one);
        assert_eq!(sum, two);
        assert_eq!(LatticeHash::of_account(&account(0, b"closed")), LatticeHash::zero());
        assert_eq!(LatticeHash::from_bytes(&one.to_bytes()), one);
    }
}
