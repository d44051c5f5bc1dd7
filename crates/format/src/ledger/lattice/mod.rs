//! The accounts lattice hash: one sum over all accounts, in any order
//! (docs/snapshot-format.md#hashes).
//!
//! This module defines the sum, and hashes single accounts with the `blake3` crate, which is the
//! reference. [`LatticeAccumulator`] hashes many accounts, and is several times as fast.

mod accumulator;
mod lanes;
#[cfg(test)]
mod tests;

pub use accumulator::LatticeAccumulator;

use crate::Hash;

/// Length of a lattice hash in bytes: 1,024 little-endian `u16`.
pub const LATTICE_HASH_BYTES: usize = 2048;

pub const ELEMENTS: usize = LATTICE_HASH_BYTES / 2;

/// A sum of account hashes, element by element. Elements wrap. The order of accounts does not matter,
/// and accounts can be subtracted.
#[derive(Clone, PartialEq, Eq)]
pub struct LatticeHash(pub [u16; ELEMENTS]);

impl Default for LatticeHash {
    fn default() -> Self {
        Self([0; ELEMENTS])
    }
}

#[derive(Clone, Copy, Debug)]
pub struct AccountView<'a> {
    pub pubkey: &'a [u8; 32],
    pub owner: &'a [u8; 32],
    /// Balance. An account without lamports does not exist, and adds nothing to a sum.
    pub lamports: u64,
    pub executable: bool,
    pub data: &'a [u8],
}

/// Lengths of the bytes that are hashed before the data (lamports) and after the data (executable flag,
/// owner and pubkey).
const PREFIX_BYTES: usize = 8;
const SUFFIX_BYTES: usize = 65;

impl AccountView<'_> {
    fn message_bytes(&self) -> usize {
        PREFIX_BYTES + self.data.len() + SUFFIX_BYTES
    }

    fn prefix(&self) -> [u8; PREFIX_BYTES] {
        self.lamports.to_le_bytes()
    }

    fn suffix(&self) -> [u8; SUFFIX_BYTES] {
        let mut suffix = [0; SUFFIX_BYTES];
        suffix[0] = u8::from(self.executable);
        suffix[1..33].copy_from_slice(self.owner);
        suffix[33..].copy_from_slice(self.pubkey);
        suffix
    }

    /// Copies the message to be hashed into `buf`, which must have the length of the message.
    fn copy_message(&self, buf: &mut [u8]) {
        let data_end = PREFIX_BYTES + self.data.len();
        buf[..PREFIX_BYTES].copy_from_slice(&self.prefix());
        buf[PREFIX_BYTES..data_end].copy_from_slice(self.data);
        buf[data_end..].copy_from_slice(&self.suffix());
    }

    fn fill_extended_hash(&self, buf: &mut [u8; LATTICE_HASH_BYTES]) {
        /// Longest message that is first copied into one buffer. blake3 hashes one piece faster than
        /// three, and most accounts are token accounts of 165 bytes.
        const COPIED_BYTES_MAX: usize = 1024;
        let mut hasher = blake3::Hasher::new();
        let length = self.message_bytes();
        if length <= COPIED_BYTES_MAX {
            let mut message = [0; COPIED_BYTES_MAX];
            self.copy_message(&mut message[..length]);
            hasher.update(&message[..length]);
        } else {
            hasher.update(&self.prefix()).update(self.data).update(&self.suffix());
        }
        hasher.finalize_xof().fill(buf);
    }
}

impl LatticeHash {
    /// Parses the 2,048 bytes of a bank file.
    pub fn from_bytes(bytes: &[u8; LATTICE_HASH_BYTES]) -> Self {
        let mut elements = [0; ELEMENTS];
        for (element, pair) in elements.iter_mut().zip(bytes.chunks_exact(2)) {
            *element = u16::from_le_bytes([pair[0], pair[1]]);
        }
        Self(elements)
    }

    /// Returns the 2,048 bytes of a bank file.
    pub fn to_bytes(&self) -> [u8; LATTICE_HASH_BYTES] {
        let mut bytes = [0; LATTICE_HASH_BYTES];
        for (pair, element) in bytes.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&element.to_le_bytes());
        }
        bytes
    }

    /// Returns the hash that an archive's name contains.
    pub fn snapshot_hash(&self) -> Hash {
        Hash(*blake3::hash(&self.to_bytes()).as_bytes())
    }

    pub fn add_account(&mut self, account: &AccountView<'_>) {
        if account.lamports == 0 {
            return;
        }
        let mut bytes = [0; LATTICE_HASH_BYTES];
        account.fill_extended_hash(&mut bytes);
        self.add(&Self::from_bytes(&bytes));
    }

    pub fn add(&mut self, other: &Self) {
        for (element, addend) in self.0.iter_mut().zip(other.0) {
            *element = element.wrapping_add(addend);
        }
    }

    pub fn subtract(&mut self, other: &Self) {
        for (element, subtrahend) in self.0.iter_mut().zip(other.0) {
            *element = element.wrapping_sub(subtrahend);
        }
    }
}

impl std::fmt::Debug for LatticeHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LatticeHash({})", self.snapshot_hash())
    }
}
