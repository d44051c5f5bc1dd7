//! Checks bank file and status cache beyond their syntax: what clients require to continue the
//! chain, and transaction errors that older Agave versions do not know. No I/O.

use std::fmt::Display;

use slotpress_base::Result;
use slotpress_format::{BankFile, Breach, Demand, ScheduledLeader, StatusCache};

use super::findings::{FindingPlace, Findings};
use super::rule::Rule;

/// The rule for which no version of Agave loads a state with this bank file.
pub fn for_firedancer_only(bank: &BankFile) -> Option<Rule> {
    match (bank.lacks_stakes(), bank.hashes_per_tick) {
        (true, _) => Some(Rule::NoStakes),
        (false, Some(0)) => Some(Rule::NoHashesPerTick),
        (false, _) => None,
    }
}

fn rule_of(demand: Demand) -> Rule {
    match demand {
        Demand::UnusedEpochStakes => Rule::UnusedEpochStakes,
        Demand::RentCollectorFlag => Rule::RentCollector,
        Demand::EpochSchedule => Rule::EpochSchedule,
        Demand::EpochStakesEpochs => Rule::EpochStakes,
        Demand::NoStake => Rule::NoStake,
        Demand::VoteAccountLimit => Rule::VoteAccountLimit,
        Demand::FiredancerLimit => Rule::FiredancerLimit,
    }
}

/// Records requirements of clients that the parser found to be violated.
fn judge_breaches(breaches: &[Breach], place: &FindingPlace, findings: &Findings) -> Result<()> {
    breaches.iter().try_for_each(|Breach { demand, expected, found, offset_bytes, account }| {
        let place = FindingPlace { account: *account, ..place.clone().at(*offset_bytes) };
        findings.add_at(rule_of(*demand), &place, expected, found)
    })
}

/// Checks fields of the bank file, and the bank hash.
pub fn judge_chain(bank: &BankFile, place: &FindingPlace, findings: &Findings) -> Result<()> {
    let add = |rule, expected: &dyn Display, found: &dyn Display| findings.add_at(rule, place, expected, found);
    match bank.computed_hash() {
        Some(hash) if hash == bank.hash => {}
        Some(hash) => add(Rule::BankHash, &hash, &bank.hash)?,
        None => add(Rule::BankHash, &"a last blockhash, which it covers", &"none")?,
    }
    // Agave takes leader and stakes from the bank file. Firedancer takes them from the accounts,
    // and wrote none before September 2026.
    let scheduled_leader = match bank.lacks_stakes() {
        true => {
            let expected = "the vote accounts and delegations of the state";
            add(Rule::NoStakes, &expected, &"no vote account, no delegation")?;
            ScheduledLeader::Unknown
        }
        false => bank.scheduled_leader,
    };
    match scheduled_leader {
        ScheduledLeader::Node(leader) if leader != bank.leader => {
            add(Rule::Leader, &leader, &bank.leader)?;
        }
        ScheduledLeader::NoStake => {
            let expected = format!("stakes of epoch {}", bank.epoch());
            add(Rule::Leader, &expected, &"no node has stake in them")?;
        }
        ScheduledLeader::Node(_) | ScheduledLeader::Unknown => {}
    }
    if bank.block_id.is_none() {
        add(Rule::BlockId, &"a block id", &"none")?;
    }
    if let Some(account) = bank.invalid_vote_account {
        let place = FindingPlace { account: Some(account), ..place.clone() };
        let expected = "a vote account that Agave can read";
        findings.add_at(Rule::InvalidVoteAccount, &place, expected, "another account")?;
    }
    judge_breaches(&bank.breaches, place, findings)
}

/// Checks the status cache.
pub fn judge_transactions(cache: &StatusCache, place: &FindingPlace, findings: &Findings) -> Result<()> {
    let add = |rule, expected: &dyn Display, found: &dyn Display| findings.add_at(rule, place, expected, found);
    if cache.has_errors_of_4_4() {
        let found = match cache.transaction_error_max {
            error @ 39.. => format!("transaction error {error}"),
            _ => format!("instruction error {}", cache.instruction_error_max),
        };
        let expected = "transaction errors up to 38, instruction errors up to 53";
        add(Rule::NewerErrors, &expected, &found)?;
    }
    judge_breaches(&cache.breaches, place, findings)?;
    match cache.blockhash_count {
        0 => add(Rule::NoTransactions, &"a blockhash that transactions named", &"none"),
        _ => Ok(()),
    }
}
