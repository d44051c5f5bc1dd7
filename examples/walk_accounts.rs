//! Visits the newest version of every account on all cores, and prints the number of accounts and
//! their lamports for each owner:
//! `cargo run --release --example walk_accounts -- ARCHIVE|LEDGER [INCREMENTAL]`

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::path::PathBuf;

use slotpress::accounts::{Account, AccountVisitor, visit_accounts};
use slotpress::types::Address;
use slotpress::verify::VerifyOptions;
use slotpress::{NoProgress, Snapshot};

/// Number of owners that are printed.
const OWNERS_SHOWN: usize = 20;

#[derive(Default)]
struct Sums {
    accounts: u64,
    lamports: u64,
}

/// Sums for each owner, over the accounts that a worker visits.
#[derive(Default)]
struct Owners(HashMap<Address, Sums>);

impl AccountVisitor for Owners {
    type Error = slotpress::Error;

    fn account(&mut self, account: &Account<'_>) -> slotpress::Result<()> {
        self.add(account.owner, &Sums { accounts: 1, lamports: account.lamports });
        Ok(())
    }
}

impl Owners {
    fn add(&mut self, owner: Address, added: &Sums) {
        let sums = self.0.entry(owner).or_default();
        sums.accounts += added.accounts;
        sums.lamports += added.lamports;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let input = arguments.next().ok_or("usage: walk_accounts ARCHIVE|LEDGER [INCREMENTAL]")?;
    let snapshot = match arguments.next() {
        Some(_) if input.is_dir() => return Err("a ledger needs no INCREMENTAL".into()),
        Some(incremental) => Snapshot::pair(input, incremental),
        None if input.is_dir() => Snapshot::ledger(input),
        None => Snapshot::archive(input),
    };
    let (visitors, report) = visit_accounts(&snapshot, &VerifyOptions::default(), &NoProgress, Owners::default)?;
    let mut all = Owners::default();
    for (owner, sums) in visitors.into_iter().flat_map(|worker| worker.0) {
        all.add(owner, &sums);
    }
    let mut owners: Vec<_> = all.0.into_iter().collect();
    owners.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.accounts));
    for (owner, sums) in owners.iter().take(OWNERS_SHOWN) {
        println!("{:>12} {:>24} {owner}", sums.accounts, sums.lamports);
    }
    // If the state were wrong, `visit_accounts` would have returned an error.
    println!("{} accounts at slot {}", report.counts.accounts, report.slot.unwrap_or_default());
    Ok(())
}
