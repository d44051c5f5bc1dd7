use proptest::prelude::*;

use super::lanes::Kernel;
use super::{AccountView, LatticeAccumulator, LatticeHash};

/// Makes an account whose lamports and executable flag depend on `number`.
fn account<'a>(number: u64, data: &'a [u8], keys: &'a [[u8; 32]; 2]) -> AccountView<'a> {
    AccountView {
        pubkey: &keys[0],
        owner: &keys[1],
        lamports: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        executable: number.is_multiple_of(3),
        data,
    }
}

fn keys(number: u64) -> [[u8; 32]; 2] {
    ["pubkey", "owner"].map(|name| *blake3::hash(format!("{name} {number}").as_bytes()).as_bytes())
}

fn hash_account(account: &AccountView<'_>) -> LatticeHash {
    let mut hash = LatticeHash::default();
    hash.add_account(account);
    hash
}

/// Makes bytes without a pattern that repeats from block to block, or from chunk to chunk.
fn aperiodic_bytes(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(b"data").finalize_xof().fill(&mut bytes);
    bytes
}

/// Makes an accumulator without a kernel, and one for each kernel that this machine supports. Each has a
/// label for messages.
fn accumulators() -> Vec<(String, LatticeAccumulator)> {
    let kernels = Kernel::supported();
    if kernels.len() < 2 {
        println!("not tested: this machine does not support all kernels");
    }
    let without_kernel = ("the blake3 crate".to_string(), LatticeAccumulator::with_kernel(None));
    let with_kernel =
        |kernel: Kernel| (format!("{} lanes", kernel.width), LatticeAccumulator::with_kernel(Some(kernel)));
    [without_kernel].into_iter().chain(kernels.into_iter().map(with_kernel)).collect()
}

#[test]
fn sums_commute_and_cancel() {
    let account = |lamports, data| AccountView { pubkey: &[1; 32], owner: &[2; 32], lamports, executable: false, data };
    let first = hash_account(&account(1, b"first"));
    let second = hash_account(&account(2, b"second"));
    let mut sum = first.clone();
    let mut reversed_sum = second.clone();
    sum.add(&second);
    reversed_sum.add(&first);
    assert_eq!(sum, reversed_sum);
    sum.subtract(&first);
    assert_eq!(sum, second);
    assert_eq!(hash_account(&account(0, b"closed")), LatticeHash::default());
    assert_eq!(LatticeHash::from_bytes(&first.to_bytes()), first);
}

/// Hashes each length alone, in one lane.
#[test]
fn every_length_up_to_four_chunks_matches_the_blake3_crate() {
    let data = aperiodic_bytes(4096);
    let keys = keys(0);
    let mut accumulators = accumulators();
    for length in 0..=4096 {
        let account = account(length as u64, &data[..length], &keys);
        let expected = hash_account(&account);
        for (label, accumulator) in &mut accumulators {
            accumulator.add(&account);
            assert!(accumulator.take() == expected, "{label}, {length} bytes");
        }
    }
}

/// Hashes all lengths together, in all lanes, twice with the same accumulator.
#[test]
fn full_lanes_match_the_blake3_crate() {
    let data = aperiodic_bytes(4096);
    let mut expected = LatticeHash::default();
    let mut accumulators = accumulators();
    for round in 0..2 {
        for number in 0..6000 {
            let keys = keys(number);
            // 2,741 and 4,097 have no common factor, so every length up to 4,096 occurs at least once, in
            // no particular order.
            let account = account(number + round, &data[..(number * 2741 % 4097) as usize], &keys);
            expected.add_account(&account);
            for (_, accumulator) in &mut accumulators {
                accumulator.add(&account);
            }
        }
        for (label, accumulator) in &mut accumulators {
            assert!(accumulator.take() == expected, "{label}, round {round}");
            assert!(accumulator.take() == LatticeHash::default(), "{label}: the first call returned all");
        }
        expected = LatticeHash::default();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Lengths go up to 10 MiB, the length of the largest account. Half of them are near a power of two.
    #[test]
    fn long_accounts_match_the_blake3_crate(
        log in 10u32..24, difference in -130i64..130, random_length in 0usize..10_485_760, number: u64,
    ) {
        let keys = keys(number);
        for length in [((1i64 << log) + difference).min(10 << 20) as usize, random_length] {
            let data = aperiodic_bytes(length);
            let account = account(number, &data, &keys);
            let expected = hash_account(&account);
            for (label, mut accumulator) in accumulators() {
                accumulator.add(&account);
                prop_assert!(accumulator.take() == expected, "{}, {} bytes", label, length);
            }
        }
    }
}

proptest! {
    #[test]
    fn any_accounts_match_the_blake3_crate(
        accounts in prop::collection::vec(
            (prop_oneof![prop::collection::vec(any::<u8>(), 0..200), prop::collection::vec(any::<u8>(), 900..1100)],
             any::<[u8; 32]>(), any::<[u8; 32]>(), prop_oneof![Just(0), any::<u64>()], any::<bool>(), 0..100u32),
            0..60,
        ),
    ) {
        let mut expected = LatticeHash::default();
        for (data, pubkey, owner, lamports, executable, _) in &accounts {
            expected.add_account(&AccountView { pubkey, owner, lamports: *lamports, executable: *executable, data });
        }
        for (label, mut accumulator) in accumulators() {
            let mut sum = LatticeHash::default();
            for (data, pubkey, owner, lamports, executable, chance) in &accounts {
                accumulator.add(&AccountView { pubkey, owner, lamports: *lamports, executable: *executable, data });
                if *chance == 0 {
                    sum.add(&accumulator.take());
                }
            }
            sum.add(&accumulator.take());
            prop_assert!(sum == expected, "{}", label);
        }
    }
}
