//! Walks the newest version of every account on all cores, and prints the number of accounts and
//! their lamports per owner:
//! `cargo run --release --example walk_accounts -- ARCHIVE|LEDGER [INCREMENTAL]`

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::path::PathBuf;

use slotpress::accounts::{Account, AccountVisitor, visit_accounts};
use slotpress::types::Address;
use slotpress::verify::VerifyOptions;
use slotpress::{LedgerPaths, NamedArchive, NoProgress, Snapshot};

/// The number of owners that are printed.
const SHOWN: usize = 20;

/// Accounts and lamports per owner; each worker has its own.
#[derive(Default)]
struct Owners(HashMap<Address, (u64, u64)>);

impl AccountVisitor for Owners {
    type Error = slotpress::Error;

    fn account(&mut self, account: &Account<'_>) -> slotpress::Result<()> {
        self.add(account.owner, (1, account.lamports));
        Ok(())
    }
}

impl Owners {
    fn add(&mut self, owner: Address, (more_accounts, more_lamports): (u64, u64)) {
        let (accounts, lamports) = self.0.entry(owner).or_default();
        *accounts += more_accounts;
        *lamports += more_lamports;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let input = arguments.next().ok_or("usage: walk_accounts ARCHIVE|LEDGER [INCREMENTAL]")?;
    let incremental = arguments.next().map(NamedArchive::from_path);
    let (ledger, archive) = (LedgerPaths::new(&input), NamedArchive::from_path(&input));
    let input =
        if input.is_dir() { Snapshot::ledger(&ledger) } else { Snapshot::archives(&archive, incremental.as_ref()) };
    let (visitors, report) = visit_accounts(input, &VerifyOptions::default(), &NoProgress, Owners::default)?;
    let mut all = Owners::default();
    visitors.into_iter().flat_map(|worker| worker.0).for_each(|(owner, sums)| all.add(owner, sums));
    let mut owners: Vec<_> = all.0.into_iter().collect();
    owners.sort_by_key(|(_, (accounts, _))| std::cmp::Reverse(*accounts));
    for (owner, (accounts, lamports)) in owners.iter().take(SHOWN) {
        println!("{accounts:>12} {lamports:>24} {owner}");
    }
    // If the state were wrong, `visit_accounts` would have returned an error.
    println!("{} accounts of slot {}", report.counts.accounts, report.slot.unwrap_or_default());
    Ok(())
}
