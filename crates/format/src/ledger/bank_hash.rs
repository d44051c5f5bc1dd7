//! Computes the bank hash from the parent, the number of signatures, the blockhash, all accounts, and
//! hard forks (docs/snapshot-format.md#hashes).
//!
//! No hash covers the other fields of the bank file, or the status cache.

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::{Hash, LatticeHash};

/// Restarts of a cluster at one slot. Operators agree on a hard fork when they restart the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[warn(missing_docs)]
pub struct HardFork {
    /// Slot at which the cluster restarted.
    pub slot: u64,
    /// Number of restarts at this slot.
    pub count: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct BankHashParts<'a> {
    pub parent_hash: Hash,
    pub signature_count: u64,
    /// Blockhash of the block itself. It is the newest blockhash in the blockhash queue.
    pub last_blockhash: Hash,
    pub lattice_hash: &'a LatticeHash,
    /// Result of [`count_hard_forks`] for this bank.
    pub hard_fork_count: u64,
}

impl BankHashParts<'_> {
    pub fn hash(&self) -> Hash {
        let inner = Sha256::new()
            .chain_update(self.parent_hash.0)
            .chain_update(self.signature_count.to_le_bytes())
            .chain_update(self.last_blockhash.0)
            .finalize();
        let hash = Sha256::new().chain_update(inner).chain_update(self.lattice_hash.to_bytes()).finalize();
        if self.hard_fork_count == 0 {
            return Hash(hash.into());
        }
        Hash(Sha256::new().chain_update(hash).chain_update(self.hard_fork_count.to_le_bytes()).finalize().into())
    }
}

/// Sums the counts of the hard forks after the parent's slot, up to and including the bank's own slot.
pub fn count_hard_forks(hard_forks: &[HardFork], parent_slot: u64, slot: u64) -> u64 {
    let forks_between = hard_forks.iter().filter(|fork| parent_slot < fork.slot && fork.slot <= slot);
    forks_between.fold(0, |sum, fork| sum.wrapping_add(fork.count))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::path::Path;

    use super::*;
    use crate::FieldReader;
    use crate::ledger::bank_file::parse_bank_file;

    /// Agave reported the expected hashes for the fixtures (`expected.json`).
    #[test]
    fn hashes_are_those_of_agave() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/agave-4.2.2");
        let expected = fs::read(dir.join("expected.json")).expect("expected.json");
        let expected: serde_json::Value = serde_json::from_slice(&expected).expect("JSON");
        for slot in ["26", "40"] {
            let archive = dir.join(expected[slot]["archive"].as_str().expect("a name"));
            let decoder = zstd::Decoder::new(fs::File::open(archive).expect("the fixture")).expect("zstd");
            let mut archive = tar::Archive::new(decoder);
            let name = Path::new("snapshots").join(slot).join(slot);
            let mut entry = archive
                .entries()
                .expect("entries")
                .map(|entry| entry.expect("an entry"))
                .find(|entry| entry.path().is_ok_and(|path| path == name))
                .expect("the bank file");
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("the bank file");
            let fields = FieldReader::new(&bytes[..], bytes.len() as u64, "the bank file");
            let bank = parse_bank_file(fields, &mut |_| Ok(())).expect("a bank");
            let mut parts = BankHashParts {
                parent_hash: bank.parent_hash,
                signature_count: bank.signature_count,
                last_blockhash: bank.blockhashes.last.expect("a blockhash"),
                lattice_hash: &bank.lattice_hash,
                hard_fork_count: 0,
            };
            assert_eq!(bank.compute_hash(), Some(bank.hash));
            assert_eq!(parts.hash(), bank.hash);
            assert_eq!(parts.hash().to_string(), expected[slot]["bank_hash"].as_str().expect("a hash"));
            // The signatures and the hard forks change the hash.
            parts.signature_count += 1;
            assert_ne!(parts.hash(), bank.hash);
            parts.signature_count -= 1;
            parts.hard_fork_count = 1;
            assert_ne!(parts.hash(), bank.hash);
        }
    }

    #[test]
    fn hard_forks_after_the_parent_are_counted() {
        let forks = [(5, 1), (10, 2), (11, 1), (20, 7)].map(|(slot, count)| HardFork { slot, count });
        assert_eq!(count_hard_forks(&forks, 10, 19), 1);
        assert_eq!(count_hard_forks(&forks, 9, 11), 3);
        assert_eq!(count_hard_forks(&forks, 19, 20), 7);
        assert_eq!(count_hard_forks(&forks, 11, 12), 0);
    }
}
