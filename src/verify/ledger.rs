//! A ledger's storages, as they would be archived: obsolete records cut, in parallel, straight from their files.

use {
    crate::{
        archive::plan::{Plan, PlanOptions, StorageFault},
        error::{Error, ErrorKind, Result},
        format::clients::Rule,
        ledger::{
            directory::{BankSnapshot, Layout, LedgerPaths, find_bank_snapshot_with_gaps},
            fields::FieldReader,
            lock::LedgerLock,
            startup_hints::{self, check_startup_hints},
            status_cache::parse_status_cache,
        },
        pipeline::run_in_order,
        progress::Progress,
        restore::documents::{Documents, parse_bank},
        stopwatch::Stopwatch,
        verify::{
            VerifyOptions,
            accounts::{Accounts, AccountsWorker, StorageRef, Task},
            judge::{judge_documents, judge_expectations},
            records::RecordWalker,
            report::{Check, Counts, Findings, Place, VerifyReport},
            state::{new_accounts, settle},
        },
    },
    std::{
        cell::RefCell,
        collections::HashSet,
        path::{Path, PathBuf},
    },
};

/// Verifies a stopped validator's ledger, or an unpacked archive; of an incremental one, `base_slot` says what it builds
/// on. Holds the ledger's lock all the while.
pub fn verify_ledger(
    paths: &LedgerPaths,
    slot: Option<u64>,
    base_slot: Option<u64>,
    options: &VerifyOptions,
    progress: &dyn Progress,
) -> Result<VerifyReport> {
    let _lock = match paths.ledger.is_dir() && !paths.is_unpacked_archive() {
        true => Some(LedgerLock::acquire(&paths.ledger)?),
        false => None,
    };
    let findings = Findings::new();
    let stopwatch = Stopwatch::start();
    let mut report = match find_bank_snapshot_with_gaps(paths, slot) {
        Ok(snapshot) => verify_snapshot(snapshot, base_slot, options, progress)?,
        Err(error) => failed_report(error, findings, &paths.ledger, options)?,
    };
    // Clients are judged by archives; a ledger is Agave's own.
    report.clients.clear();
    report.taken = stopwatch.taken();
    Ok(report)
}

/// Verifies a bank snapshot that was found already.
pub fn verify_snapshot(
    snapshot: BankSnapshot,
    base_slot: Option<u64>,
    options: &VerifyOptions,
    progress: &dyn Progress,
) -> Result<VerifyReport> {
    let stopwatch = Stopwatch::start();
    let findings = Findings::new();
    let (slot, dir) = (snapshot.slot, snapshot.dir.clone());
    progress.stage("Planning", None);
    let documents = read_documents(&snapshot.bank_file, &snapshot.status_cache, &snapshot.version);
    let bank = judge_documents(documents, Some(slot), &findings).map(|(bank, _)| bank);
    // Every rule about storages and the storage map that the ledger must keep to.
    let faults = StorageFaults::of_list(&snapshot, base_slot, &findings);
    if let Err(error) = check_startup_hints(&dir) {
        let place = Place::entry(startup_hints::FILE_NAME);
        findings.add_error(Check::Entries, Rule::StartupHints, place, &error);
    }
    let plan_options = PlanOptions { threads: options.threads, ..PlanOptions::new(base_slot) };
    let planned = Plan::new_with(snapshot, &plan_options, progress, &mut |fault| {
        faults.add(&fault);
        Ok(())
    });
    let plan = match planned {
        Ok(plan) => plan,
        Err(error) => return failed_report(error, findings, &dir, options),
    };
    findings.skip(Check::Frames, "a ledger has none");
    if let Some(bank) = &bank {
        judge_expectations(options.expect_slot, options.expect_hash, bank, &findings);
    }
    if base_slot.is_some() {
        findings.skip(Check::State, "part of a state only");
    }
    let bytes = plan.content_bytes();
    let accounts = new_accounts(options, bytes)?;
    for storage in &plan.storages {
        accounts.add_storage(storage.file.slot, storage.file.id);
    }
    let pass = LedgerPass { plan: &plan, accounts: &accounts, findings: &findings, threads: options.threads, progress };
    if options.is_quick {
        findings.skip(Check::Records, "--quick");
    } else {
        progress.stage("Verifying", Some(plan.storages.iter().map(|storage| storage.content_bytes).sum()));
        pass.read(&Task::Add, None)?;
        if findings.has_lost_accounts() {
            findings.skip(Check::Records, "not those of storages that are missing or not sound");
            findings.skip(Check::State, "not all accounts could be read");
        }
    }
    let settled = settle(&accounts, bank.as_ref(), &findings, options, progress, &mut |task, wanted| {
        progress.stage("Subtracting", None);
        pass.read(task, Some(wanted))
    })?;
    let mut counts = Counts { input_bytes: bytes, tar_bytes: plan.tar_bytes(), ..Counts::default() };
    counts.storages = plan.storages.len() as u64;
    settled.write_into(&mut counts, &accounts);
    let mut report = findings.into_report(&options.clients, vec![dir]);
    if let Some(bank) = bank {
        report.hash = Some(bank.snapshot_hash());
        (report.slot, report.capitalization) = (Some(bank.slot), Some(bank.capitalization));
    }
    report.counts = counts;
    (report.expected_hash, report.expected_slot) = (options.expect_hash, options.expect_slot);
    report.taken = stopwatch.taken();
    Ok(report)
}

/// Missing storages beyond those of the storages list that are told apart: enough for a report, whatever a bank file
/// makes up.
const MISSING_MAX: usize = 5_000_000;

/// Storages that are missing, or not as long as they should be.
struct StorageFaults<'a> {
    findings: &'a Findings,
    /// The slots of those that are missing: several lists may name them.
    missing: RefCell<HashSet<u64>>,
    expected: String,
}

impl<'a> StorageFaults<'a> {
    /// Says which storages of the storages list are missing.
    fn of_list(snapshot: &BankSnapshot, base_slot: Option<u64>, findings: &'a Findings) -> Self {
        for missing in &snapshot.missing {
            let expected = match missing.ending {
                "" => format!("a file in {}, as the storages list says", snapshot.shown_roots()),
                _ => format!("{missing} in {}, as the storages list says", snapshot.shown_roots()),
            };
            Self::say_missing(missing.slot, u64::from(missing.id), expected, findings);
        }
        let missing = RefCell::new(snapshot.missing.iter().map(|missing| missing.slot).collect());
        let mut expected = format!("a file in {}, as the bank file says", snapshot.shown_roots());
        if snapshot.layout == Layout::Unpacked && base_slot.is_none() {
            expected += "; or --base-slot, of an incremental archive";
        }
        Self { findings, missing, expected }
    }

    fn say_missing(slot: u64, id: u64, expected: String, findings: &Findings) {
        let place = Place::entry(format!("accounts/{slot}.{id}"));
        findings.add(Check::Entries, Rule::MissingStorage, place, expected, "none");
        findings.lose_accounts();
    }

    /// A fault that planning came upon.
    fn add(&self, fault: &StorageFault) {
        let StorageFault { slot, id, is_missing, error } = fault;
        if *is_missing {
            let mut missing = self.missing.borrow_mut();
            if missing.len() < MISSING_MAX && missing.insert(*slot) {
                Self::say_missing(*slot, *id, self.expected.clone(), self.findings);
            }
            return;
        }
        let place = Place::entry(format!("accounts/{slot}.{id}"));
        self.findings.add_error(Check::Entries, Rule::Ledger, place, error);
        self.findings.lose_accounts();
    }
}

/// The report of a ledger whose storages could not be planned; other errors stay errors.
fn failed_report(error: Error, findings: Findings, path: &Path, options: &VerifyOptions) -> Result<VerifyReport> {
    if error.kind() != ErrorKind::Damaged {
        return Err(error);
    }
    findings.add_error(Check::Entries, Rule::Ledger, Place::default(), &error);
    for check in [Check::Records, Check::State] {
        findings.skip(check, "the storages are not sound");
    }
    findings.skip(Check::Frames, "a ledger has none");
    let mut report = findings.into_report(&options.clients, vec![PathBuf::from(path)]);
    report.clients.clear();
    Ok(report)
}

/// Read at once: large enough for a disk, small enough for the caches.
const READ_BYTES: usize = 1024 * 1024;

/// What to read of a ledger.
pub struct LedgerPass<'a> {
    /// What would be archived.
    pub plan: &'a Plan,
    /// The state in the making.
    pub accounts: &'a Accounts,
    /// Where failures go.
    pub findings: &'a Findings,
    /// Workers.
    pub threads: usize,
    /// Who is told.
    pub progress: &'a dyn Progress,
}

impl LedgerPass<'_> {
    /// Reads the storages, or those that are wanted; all must have been numbered, in the order of the plan.
    pub fn read(&self, task: &Task<'_>, wanted: Option<&HashSet<u32>>) -> Result<()> {
        let numbers = 0..self.plan.storages.len();
        let numbers = numbers.filter(|number| wanted.is_none_or(|wanted| wanted.contains(&(*number as u32))));
        let new_worker = || {
            let mut accounts = AccountsWorker::new(self.accounts, self.findings, task);
            let mut walker = RecordWalker::default();
            Ok(move |number: usize, buffer: &mut Vec<u8>| {
                let storage = &self.plan.storages[number];
                let (slot, id) = (storage.file.slot, storage.file.id);
                accounts.begin(StorageRef { number: number as u32, slot, id });
                walker.restart();
                let mut at = 0;
                while at < storage.content_bytes {
                    self.progress.check()?;
                    self.accounts.check()?;
                    buffer.resize((storage.content_bytes - at).min(READ_BYTES as u64) as usize, 0);
                    match self.plan.read_storage(storage, at, buffer) {
                        Ok(()) => {}
                        // A split storage's large data is looked at only here; the other storages are read all the same.
                        Err(error) if error.kind() == ErrorKind::Damaged => {
                            let place = Place::entry(format!("accounts/{slot}.{id}"));
                            self.findings.add_error(Check::Entries, Rule::Ledger, place, &error);
                            self.findings.lose_accounts();
                            return Ok(());
                        }
                        Err(error) => return Err(error),
                    }
                    walker.feed(buffer, &mut accounts);
                    at += buffer.len() as u64;
                    self.progress.advance(buffer.len() as u64, 0);
                }
                walker.finish(&mut accounts);
                Ok(())
            })
        };
        run_in_order(numbers.map(Ok), self.threads, &new_worker, self.progress, &mut |_, ()| Ok(()))?;
        self.accounts.check()
    }
}

/// Reads the bank file, the status cache and the version of a bank snapshot.
fn read_documents(bank_file: &Path, status_cache: &Path, version: &Path) -> Documents {
    Documents {
        bank: Some(FieldReader::open(bank_file, "the bank file").and_then(parse_bank)),
        status_cache: Some(
            FieldReader::open(status_cache, "the status cache").and_then(|r| parse_status_cache(r, u64::MAX)),
        ),
        version: std::fs::read(version).ok(),
    }
}
