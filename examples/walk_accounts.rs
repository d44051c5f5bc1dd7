//! Walks all accounts of an archive on all cores, and prints the number of accounts and their lamports per owner.
//! `cargo run --release --example walk_accounts -- ARCHIVE`

use {
    slotpress::{Hash, NamedArchive, NoProgress, VisitOptions, visit_accounts},
    std::{
        collections::HashMap,
        env,
        error::Error,
        path::Path,
        sync::{Mutex, PoisonError},
    },
};

/// The number of owners that are printed.
const SHOWN: usize = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("usage: walk_accounts ARCHIVE")?;
    let archive = NamedArchive::of_path(Path::new(&path));
    // Accounts and lamports per owner. All threads call the visitor; with more work per record, one map per thread is
    // better.
    let owners: Mutex<HashMap<Hash, (u64, u128)>> = Mutex::default();
    visit_accounts(&archive, &VisitOptions::default(), &NoProgress, &|account| {
        let mut owners = owners.lock().unwrap_or_else(PoisonError::into_inner);
        let (accounts, lamports) = owners.entry(account.owner).or_default();
        *accounts += 1;
        *lamports += u128::from(account.lamports);
        Ok(())
    })?;
    let mut owners: Vec<_> = owners.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect();
    owners.sort_by_key(|(_, (accounts, _))| std::cmp::Reverse(*accounts));
    for (owner, (accounts, lamports)) in owners.iter().take(SHOWN) {
        println!("{accounts:>12} {lamports:>24} {owner}");
    }
    Ok(())
}
