//! Exports accounts for a test validator: one JSON file for each, as `solana account` prints it, or one
//! object with all accounts, as surfpool loads it.
//!
//! Accounts to which the selected accounts refer are exported too: the code of programs, and on request the
//! mints of token accounts. If the first read did not export one of them, because it came too early or does
//! not exist, the input is read once more.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::OnceLock;

use base64::engine::{Engine, general_purpose::STANDARD};
use parking_lot::Mutex;
use serde_json::json;
use slotpress_base::{Error, IoContext, Progress, Result, SpaceWatch, text};
use slotpress_format::ledger::programs::UPGRADEABLE_LOADER;
use slotpress_format::{Address, LoaderAccount, Record, RecordHeader, TokenData, programdata_candidates};
use slotpress_read::{StateFacts, StateVisitor, StateWorker, StorageRef, visit_state};

use super::filter::{Filter, parse_token};
use super::output::{ExportOutput, slot_dir};
use super::parts::{ExportedFile, PartFile};
use super::report::{Manifest, TableFields};
use super::table::Table;
use super::visitor::no_bank_error;
use super::{ExportOptions, RowOrder, TableFormat};

/// Limit on the number of accounts: a manifest, which lists their files, may have at most 8 MiB, and a
/// test validator holds all accounts in memory.
const FILES_MAX: usize = 30_000;

const SURFPOOL_NAME: &str = "surfpool.json";

/// Maximum number of the filter's addresses for which programdata addresses are derived: this bounds memory. The
/// second read finds the code of other programs.
const DERIVED_MAX: usize = 10_000;

/// Addresses of accounts to which exported accounts refer, each with the owner that the account must have.
type ReferencedAccounts = HashMap<[u8; 32], [u8; 32]>;

#[derive(Default)]
struct FoundAccounts {
    files: BTreeMap<[u8; 32], ExportedFile>,
    referenced: ReferencedAccounts,
}

struct Subset<'a> {
    /// `None` in the second read, when only referenced accounts are wanted.
    filter: Option<&'a Filter>,
    referenced: ReferencedAccounts,
    options: &'a ExportOptions,
    output: &'a ExportOutput,
    progress: &'a dyn Progress,
    watch: SpaceWatch,
    manifest: OnceLock<Manifest>,
    found: Mutex<FoundAccounts>,
}

/// Writes accounts into the work directory. Returns the manifest, and the fields of the table.
pub(super) fn write_accounts(
    options: &ExportOptions,
    output: &ExportOutput,
    progress: &dyn Progress,
) -> Result<(Manifest, Vec<TableFields>)> {
    let programs = options.filter.addresses.iter().take(DERIVED_MAX);
    let programdata = programs.flat_map(|program| programdata_candidates(&program.0));
    let mut subset = Subset {
        filter: Some(&options.filter),
        referenced: programdata.map(|key| (key, UPGRADEABLE_LOADER)).collect(),
        options,
        output,
        progress,
        watch: SpaceWatch::default(),
        manifest: OnceLock::new(),
        found: Mutex::default(),
    };
    let report = visit_state(&options.snapshot, &options.verify, progress, &subset)?;
    let FoundAccounts { files, referenced } = subset.found.get_mut();
    referenced.retain(|address, _| !files.contains_key(address));
    if !referenced.is_empty() {
        subset.referenced = std::mem::take(referenced);
        subset.filter = None;
        visit_state(&options.snapshot, &options.verify, progress, &subset)?;
    }
    let files = std::mem::take(&mut subset.found.get_mut().files);
    let mut files: Vec<ExportedFile> = files.into_values().collect();
    if options.format == TableFormat::Surfpool {
        files = vec![subset.join_files(&files)?];
    }
    let mut manifest = subset.manifest.into_inner().ok_or_else(no_bank_error)?;
    manifest.accounts = report.counts.accounts;
    let dir = format!("{}/{}", Table::Accounts.name(), slot_dir(manifest.slot));
    files.iter_mut().for_each(|file| file.path = format!("{dir}/{}", file.part));
    let table = TableFields::new(Table::Accounts, RowOrder::Unordered, files);
    Ok((manifest, vec![table]))
}

impl StateVisitor for Subset<'_> {
    fn begin(&self, facts: &StateFacts<'_>) -> Result<()> {
        let manifest = Manifest::new(facts, None, self.options);
        self.output.check_new_tables(&manifest.to_value(), &[Table::Accounts], self.progress)?;
        if self.manifest.get_or_init(|| manifest.clone()).hash != manifest.hash {
            let error = Error::failed("the input changed between two reads");
            return Err(error.with_hint("run the export again"));
        }
        Ok(())
    }

    fn new_worker(&self) -> Box<dyn StateWorker + '_> {
        Box::new(SubsetWorker(self))
    }
}

struct SubsetWorker<'w, 'a>(&'w Subset<'a>);

impl StateWorker for SubsetWorker<'_, '_> {
    fn record(&mut self, _: StorageRef, record: &Record<'_>, is_superseded: bool) -> Result<()> {
        let subset = self.0;
        let header = record.header;
        let data = record.data;
        // Without a bank file, `write_accounts` fails at the end, so nothing is exported.
        if is_superseded || header.lamports == 0 || subset.manifest.get().is_none() {
            return Ok(());
        }
        let filter = subset.filter.filter(|filter| filter.allows(header, data));
        let token = filter.and_then(|_| parse_token(header, data));
        let is_wanted = filter.is_some_and(|filter| filter.allows_token(header, &token));
        if !is_wanted && subset.referenced.get(&header.pubkey) != Some(&header.owner) {
            return Ok(());
        }
        let file = subset.write_account(header, data)?;
        let found = &mut *subset.found.lock();
        found.files.insert(header.pubkey, file);
        if let Some(LoaderAccount::Program(address)) = LoaderAccount::parse(&header.owner, header.executable == 1, data)
        {
            found.referenced.insert(address, UPGRADEABLE_LOADER);
        }
        if let Some(TokenData::Account(token)) = token
            && subset.options.filter.with_mints
        {
            found.referenced.insert(token.mint, header.owner);
        }
        if found.files.len() > FILES_MAX {
            let error = Error::failed(format!("a test validator takes at most {FILES_MAX} accounts"));
            return Err(error.with_hint("use filters that select fewer accounts"));
        }
        Ok(())
    }
}

impl Subset<'_> {
    fn write_account(&self, header: &RecordHeader, data: &[u8]) -> Result<ExportedFile> {
        let address = Address(header.pubkey).to_string();
        let mut account = json!({
            "lamports": header.lamports, "owner": Address(header.owner).to_string(), "executable": header.executable == 1,
            "rentEpoch": header.rent_epoch, "data": STANDARD.encode(data),
        });
        let json = if self.options.format == TableFormat::Surfpool {
            account
        } else {
            account["data"] = json!([account["data"], "base64"]);
            account["space"] = json!(data.len());
            json!({"pubkey": address, "account": account})
        };
        let dir = self.output.work.dir();
        let part = format!("{address}.json");
        let mut file = PartFile::create(dir, &part, &self.watch)?;
        file.write_all((text::json(&json) + "\n").as_bytes()).or_path("write", &dir.path_of(&part))?;
        file.close(1)
    }

    /// Joins the files of all accounts as the members of one object, and removes them.
    fn join_files(&self, files: &[ExportedFile]) -> Result<ExportedFile> {
        let dir = self.output.work.dir();
        let path = dir.path_of(SURFPOOL_NAME);
        let mut joined = PartFile::create(dir, SURFPOOL_NAME, &self.watch)?;
        let mut separator = '{';
        for file in files {
            let address = file.part.trim_end_matches(".json");
            write!(joined, "{separator}\n\"{address}\": ").or_path("write", &path)?;
            io::copy(&mut dir.open_file(&file.part)?, &mut joined).or_path("write", &path)?;
            let removed = dir.remove_file(&file.part).map_err(io::Error::from);
            removed.or_path("remove", &dir.path_of(&file.part))?;
            separator = ',';
        }
        joined.write_all(if files.is_empty() { b"{}\n" } else { b"}\n" }).or_path("write", &path)?;
        joined.close(files.len() as u64)
    }
}
