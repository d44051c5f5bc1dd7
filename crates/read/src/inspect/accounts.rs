//! Counts accounts and bytes by owner, tombstones, and superseded records.

#![warn(missing_docs)]

use std::collections::HashMap;
use std::path::PathBuf;

use parking_lot::Mutex;
use serde::Serialize;
use slotpress_base::{Error, Progress, Result, saturating_add_to, text};
use slotpress_format::{Address, Record, RecordHeader};

use crate::inspect::owners::owner_name;
use crate::inspect::visit::read_state;
use crate::{Check, CheckMode, Snapshot, StateVisitor, StateWorker, StorageRef, VerifyOptions};

/// Limit on the number of owners, far above the number of programs. Anyone can invent owners, so their number
/// must not decide how much memory is used. A million owners take about 200 MB.
const OWNERS_MAX: usize = 1_000_000;

/// Owners that a worker counts before it merges its totals.
const WORKER_OWNERS_MAX: usize = 16 * 1024;

#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecordTotals {
    pub accounts: u64,
    pub data_bytes: u64,
    pub stored_bytes: u64,
    pub lamports: u128,
    /// Tombstones: records without lamports, which close an account. They are not included in the fields
    /// above.
    pub tombstones: u64,
    pub tombstone_bytes: u64,
}

impl RecordTotals {
    fn add_record(&mut self, header: &RecordHeader) {
        if header.lamports == 0 {
            saturating_add_to(&mut self.tombstones, 1);
            saturating_add_to(&mut self.tombstone_bytes, header.stored_bytes());
            return;
        }
        saturating_add_to(&mut self.accounts, 1);
        saturating_add_to(&mut self.data_bytes, header.data_len);
        saturating_add_to(&mut self.stored_bytes, header.stored_bytes());
        self.lamports = self.lamports.saturating_add(header.lamports.into());
    }

    /// Adds totals of other records.
    pub fn add(&mut self, other: &Self) {
        saturating_add_to(&mut self.accounts, other.accounts);
        saturating_add_to(&mut self.data_bytes, other.data_bytes);
        saturating_add_to(&mut self.stored_bytes, other.stored_bytes);
        self.lamports = self.lamports.saturating_add(other.lamports);
        saturating_add_to(&mut self.tombstones, other.tombstones);
        saturating_add_to(&mut self.tombstone_bytes, other.tombstone_bytes);
    }
}

/// Account totals of an archive or ledger. Serializes only the number of owners, because the totals of each
/// owner are separate reports.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, Serialize)]
pub struct AccountsSummary {
    #[serde(serialize_with = "text::path")]
    pub path: PathBuf,
    pub owner: Option<Address>,
    #[serde(flatten)]
    pub totals: RecordTotals,
    /// Owners, most stored bytes first.
    #[serde(serialize_with = "text::list_length")]
    pub owners: Vec<OwnerTotals>,
    /// Records that a newer record supersedes. They are not included in the totals.
    pub superseded_records: u64,
    pub superseded_bytes: u64,
    /// Obsolete records, which only a ledger has. They include records of all owners, whatever `owner` is.
    pub obsolete_records: Option<u64>,
    pub obsolete_bytes: Option<u64>,
}

#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OwnerTotals {
    pub owner: Address,
    pub name: Option<&'static str>,
    #[serde(flatten)]
    pub totals: RecordTotals,
}

/// Counts all accounts of an archive or ledger, or those of one owner, without checking the state.
///
/// # Errors
/// The input, or one of its records, cannot be read; or the accounts have more than a million owners.
pub fn inspect_accounts(
    input: &Snapshot,
    owner: Option<Address>,
    options: &VerifyOptions,
    progress: &dyn Progress,
) -> Result<AccountsSummary> {
    let tally = OwnerTally { owner, owners_max: OWNERS_MAX, counted: Mutex::default() };
    let mut options = options.clone();
    options.check.mode = CheckMode::Frames;
    let report = read_state(input, &options, progress, &tally)?;
    let faults = report.failures.iter().filter(|failure| failure.check == Check::Records);
    if let Some(first) = faults.clone().next() {
        let others = match faults.count().saturating_sub(1) {
            0 => String::new(),
            count => format!(", and {count} more"),
        };
        progress.warn(&format!("{}{others}: verify the input to see where", first.message));
    }
    let counted = tally.counted.into_inner();
    if counted.has_too_many_owners {
        return Err(Error::failed(format!("the accounts have more than {OWNERS_MAX} owners"))
            .with_hint("count the accounts of one owner"));
    }
    let row = |(owner, totals)| OwnerTotals { owner, name: owner_name(&owner), totals };
    let mut owners: Vec<OwnerTotals> = counted.owners.into_iter().map(row).collect();
    owners.sort_unstable_by_key(|OwnerTotals { owner, totals, .. }| {
        (std::cmp::Reverse((totals.stored_bytes, totals.accounts, totals.tombstones)), *owner)
    });
    Ok(AccountsSummary {
        path: report.paths.into_iter().next().unwrap_or_default(),
        owner,
        totals: counted.totals,
        owners,
        superseded_records: counted.superseded_records,
        superseded_bytes: counted.superseded_bytes,
        obsolete_records: report.counts.obsolete_records,
        obsolete_bytes: report.counts.obsolete_bytes,
    })
}

#[derive(Default)]
struct CountedOwners {
    totals: RecordTotals,
    owners: HashMap<Address, RecordTotals>,
    has_too_many_owners: bool,
    superseded_records: u64,
    superseded_bytes: u64,
}

struct OwnerTally {
    owner: Option<Address>,
    owners_max: usize,
    counted: Mutex<CountedOwners>,
}

impl OwnerTally {
    fn merge(&self, part: &mut CountedOwners) {
        let part = std::mem::take(part);
        let mut counted = self.counted.lock();
        counted.totals.add(&part.totals);
        saturating_add_to(&mut counted.superseded_records, part.superseded_records);
        saturating_add_to(&mut counted.superseded_bytes, part.superseded_bytes);
        for (owner, totals) in part.owners {
            if counted.owners.len() < self.owners_max || counted.owners.contains_key(&owner) {
                counted.owners.entry(owner).or_default().add(&totals);
            } else {
                counted.has_too_many_owners = true;
            }
        }
    }
}

impl StateVisitor for OwnerTally {
    fn new_worker(&self) -> Box<dyn StateWorker + '_> {
        Box::new(OwnerTallyWorker { tally: self, part: CountedOwners::default() })
    }
}

struct OwnerTallyWorker<'a> {
    tally: &'a OwnerTally,
    part: CountedOwners,
}

impl StateWorker for OwnerTallyWorker<'_> {
    fn record(&mut self, _: StorageRef, record: &Record<'_>, is_superseded: bool) -> Result<()> {
        let header = record.header;
        let owner = Address(header.owner);
        let part = &mut self.part;
        if self.tally.owner.is_some_and(|wanted| wanted != owner) {
            return Ok(());
        }
        if is_superseded {
            saturating_add_to(&mut part.superseded_records, 1);
            saturating_add_to(&mut part.superseded_bytes, header.stored_bytes());
            return Ok(());
        }
        part.totals.add_record(header);
        part.owners.entry(owner).or_default().add_record(header);
        if part.owners.len() >= WORKER_OWNERS_MAX {
            self.tally.merge(part);
        }
        Ok(())
    }
}

impl Drop for OwnerTallyWorker<'_> {
    fn drop(&mut self) {
        self.tally.merge(&mut self.part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(worker: &mut dyn StateWorker, number: u8, data: &[u8], is_superseded: bool) {
        let mut bytes = [0; 136];
        bytes[8..16].copy_from_slice(&(data.len() as u64).to_le_bytes());
        bytes[16..48].fill(number);
        bytes[48] = 1;
        bytes[64..96].fill(number);
        let header = RecordHeader::parse(&bytes);
        let record = Record { offset_bytes: 0, header: &header, data };
        worker.record(StorageRef { number: 0, slot: 7, id: 1 }, &record, is_superseded).expect("counted");
    }

    #[test]
    fn the_number_of_owners_is_limited() {
        let tally = OwnerTally { owner: None, owners_max: 4, counted: Mutex::default() };
        for extra_bytes in 0..2 {
            let mut worker = tally.new_worker();
            for number in 1..=10 {
                visit(worker.as_mut(), number, &vec![0; usize::from(number) * 100 + extra_bytes], false);
                visit(worker.as_mut(), number, &[0; 2000], true);
            }
        }
        let counted = tally.counted.into_inner();
        assert_eq!((counted.superseded_records, counted.superseded_bytes), (20, 20 * (136 + 2000)));
        assert_eq!((counted.owners.len(), counted.has_too_many_owners, counted.totals.accounts), (4, true, 20));
    }
}
