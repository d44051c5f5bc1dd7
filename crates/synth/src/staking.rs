//! Data of stake and vote accounts. `stakes` decides which vote accounts and delegations exist in an epoch.

use super::chain;
use super::fields::push_u64s;
use super::rng::Rng;
use super::universe::{AccountRngs, Purpose, Universe};

pub const STAKE_BYTES: u64 = 200;
pub const VOTE_BYTES: u64 = 3762;

#[derive(Clone, Debug, PartialEq)]
pub struct SynthDelegation {
    pub stake_account: [u8; 32],
    /// Number of the vote account. Vote accounts with numbers ≥ `StakeCounts::voters` are closed.
    pub voter: u64,
    pub lamports: u64,
    pub activation_epoch: u64,
    /// Epoch in which the end of the delegation was requested, or `u64::MAX`.
    pub deactivation_epoch: u64,
    /// Credits of the vote account at the last reward.
    pub credits_observed: u64,
}

/// Limit on the stake that takes or loses effect in an epoch, as a share of the effective stake.
pub const WARMUP_RATE: f64 = 0.25;

/// Writes a stake account that is not delegated: state, rent reserve, staker, withdrawer, lockup.
/// [`write_delegated_stake`] writes delegated stake accounts, whose delegations are also in the bank file.
pub fn write_stake(rngs: &mut AccountRngs<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&1u32.to_le_bytes());
    write_stake_meta(rngs.universe, &mut rngs.account, out);
}

/// Writes a delegated stake account: state, rent reserve, staker, withdrawer, lockup, voter, stake,
/// epochs, rate, credits.
pub fn write_delegated_stake(
    universe: &Universe,
    rng: &mut Rng,
    delegation: &SynthDelegation,
    vote_address: [u8; 32],
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(&2u32.to_le_bytes());
    write_stake_meta(universe, rng, out);
    out.extend_from_slice(&vote_address);
    push_u64s(out, &[delegation.lamports, delegation.activation_epoch, delegation.deactivation_epoch]);
    push_u64s(out, &[WARMUP_RATE.to_bits(), delegation.credits_observed]);
}

fn write_stake_meta(universe: &Universe, rng: &mut Rng, out: &mut Vec<u8>) {
    let staker = if rng.chance_permille(300) {
        let pool = rng.zipf(8);
        universe.shared_key(Purpose::Wallets, pool)
    } else {
        rng.key()
    };
    out.extend_from_slice(&chain::rent_exempt_lamports(STAKE_BYTES).to_le_bytes());
    out.extend_from_slice(&staker);
    out.extend_from_slice(&staker);
    out.extend_from_slice(&[0; 8 + 8 + 32]);
}

/// Writes a vote account for a slot: version, node, withdrawer, commission, 31 votes, root, voter,
/// prior voters (none), credits of up to 64 epochs, time.
pub fn write_vote_account(account_rng: &mut Rng, slot_rng: &mut Rng, slot: u64, out: &mut Vec<u8>) {
    let node = account_rng.key();
    out.extend_from_slice(&2u32.to_le_bytes());
    out.extend_from_slice(&node);
    out.extend_from_slice(&account_rng.key());
    out.push([0, 5, 7, 8, 10, 100][account_rng.pick(6) as usize]);
    // Half of the vote accounts no longer vote: their last vote was long ago.
    let is_active = account_rng.chance_permille(500);
    let last_vote = if is_active { slot - 1 - slot_rng.pick(32) } else { slot - account_rng.log_uniform(27) };
    out.extend_from_slice(&31u64.to_le_bytes());
    for depth in 0..31u64 {
        out.push(1 + slot_rng.zipf(2) as u8);
        out.extend_from_slice(&(last_vote - (30 - depth)).to_le_bytes());
        out.extend_from_slice(&((31 - depth) as u32).to_le_bytes());
    }
    out.push(1);
    let last_epoch = chain::epoch_of(last_vote);
    push_u64s(out, &[last_vote - 31, 1, last_epoch]);
    out.extend_from_slice(&node);
    out.extend_from_slice(&[0; 32 * 48]);
    push_u64s(out, &[31]);
    out.push(1);
    let epochs = if account_rng.chance_permille(700) { 64 } else { account_rng.log_uniform(6) };
    let mut credits = account_rng.log_uniform(32);
    push_u64s(out, &[epochs]);
    for back in (0..epochs).rev() {
        let earned = 6_000_000 + account_rng.pick(900_000);
        push_u64s(out, &[last_epoch - back, credits + earned, credits]);
        credits += earned;
    }
    push_u64s(out, &[last_vote, chain::unix_time_of(last_vote)]);
}
