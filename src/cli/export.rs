//! Runs `slotpress export`, and prints its report.

use std::path::{Path, PathBuf};

use clap::Args;
use slotpress::tables::{
    DataPart, ExportInput, ExportOptions, ExportReport, ExportTo, Filter, Memcmp, RowOrder, Table, TableFormat, export,
};
use slotpress::types::Address;
use slotpress::verify::VerifyOptions;
use slotpress::{Error, Progress, Result};
use slotpress_read::spill_dir;

use super::arguments::{CheckArgs, WorkArgs};
use super::network::{StateArgs, StateInput};
use super::planned::{self, COMMAND_BYTES, DECODING_WORKER_BYTES, THREAD_BYTES};
use super::stores::store_of;
use super::ui::Ui;
use super::{stdout, values};

/// Write the accounts of a state as tables: Parquet files that any engine reads, or CSV
///
/// Newest versions of accounts only, of a full archive, of a full and an incremental one, or of a
/// ledger. The input is read twice. Files get their names after the state was checked; on standard
/// output, rows come before that, and only exit code 0 says that they are right. Into OUTPUT go
/// TABLE/snapshot_slot=SLOT/part-….parquet, and _manifest-SLOT.json last.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Export only what changed since this older state, which must be what the output has last: rows
    /// that were added, changed or closed. A full archive, with an incremental one on it, or a ledger
    #[arg(long, value_names = ["OLD_FULL", "OLD_INCREMENTAL"], num_args = 1..=2)]
    since: Vec<PathBuf>,
    /// The directory (made if it is missing) or store (s3://BUCKET/PREFIX) for the tables, or - for
    /// standard output: one table, as CSV
    #[arg(short, long, value_name = "TARGET")]
    output: PathBuf,
    /// A table; may be given more than once [default: accounts]
    #[arg(long = "table", value_delimiter = ',', value_name = "TABLE", value_parser = values::choice(TABLES))]
    tables: Vec<Table>,
    /// How files are written [default: parquet, and csv on standard output]
    #[arg(long, value_name = "FORMAT", value_parser = values::choice(FORMATS))]
    format: Option<TableFormat>,
    /// How rows are ordered [default: clustered; none for all accounts with data, and on standard output]
    #[arg(long, value_name = "ORDER", value_parser = values::choice(ORDERS))]
    order: Option<RowOrder>,
    /// Data of accounts: none, full, or OFFSET:LENGTH
    #[arg(long, value_name = "PART", default_value = "none", value_parser = data_part)]
    data: DataPart,
    /// Only accounts of this program, by its address or its name in `inspect --by-owner`; may be
    /// given more than once
    #[arg(long, value_name = "PROGRAM", value_delimiter = ',', value_parser = values::owner, help_heading = "Filters")]
    owner: Vec<Address>,
    /// Only this mint, and its token accounts; may be given more than once
    #[arg(long, value_name = "MINT", value_delimiter = ',', value_parser = values::pubkey, help_heading = "Filters")]
    mint: Vec<Address>,
    /// Only token accounts of this wallet; may be given more than once
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', value_parser = values::pubkey, help_heading = "Filters")]
    wallet: Vec<Address>,
    /// Only this account, or those in a file: one per line; # begins a comment; may be given more
    /// than once
    #[arg(long, value_name = "ADDRESS|@FILE", value_delimiter = ',', help_heading = "Filters")]
    address: Vec<String>,
    /// Only accounts whose data is of this length
    #[arg(long, value_name = "BYTES", help_heading = "Filters")]
    data_size: Option<u64>,
    /// Only accounts with these bytes of data at an offset. At most four filters look at data, as
    /// with getProgramAccounts
    #[arg(long, value_name = "OFFSET:BASE58|0xHEX", value_parser = memcmp, help_heading = "Filters")]
    memcmp: Vec<Memcmp>,
    /// For a test validator: also the mints of token accounts that pass the filters
    #[arg(long, help_heading = "Filters")]
    with_mints: bool,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    check: CheckArgs,
    #[command(flatten)]
    state: StateArgs,
}

const TABLES: &[(&str, Table, &str)] = &[
    ("accounts", Table::Accounts, "All accounts: owner, lamports, length of data"),
    ("token-accounts", Table::TokenAccounts, "Accounts of Token and Token-2022: mint, owner, amount"),
    ("mints", Table::Mints, "Supply, authorities, metadata"),
    ("stakes", Table::Stakes, "Stake accounts, stake in the epoch"),
    ("votes", Table::Votes, "Vote accounts: authorities, credits"),
    ("programs", Table::Programs, "Upgrade authority, hash of code"),
];

const FORMATS: &[(&str, TableFormat, &str)] = &[
    ("parquet", TableFormat::Parquet, "Compressed by zstd"),
    ("csv", TableFormat::Csv, "Text, on standard output only; data as hexadecimal digits"),
    ("test-validator", TableFormat::TestValidator, "An account's JSON each, for --account-dir"),
    ("surfpool", TableFormat::Surfpool, "One JSON object of these accounts, for surfpool's --snapshot"),
];

const ORDERS: &[(&str, RowOrder, &str)] = &[
    ("clustered", RowOrder::Clustered, "By owner, mint or voter, then address: queries for these read little"),
    ("none", RowOrder::Unordered, "As they are read, which takes less time"),
];

/// Shares of `--memory`.
#[derive(Debug, PartialEq, Eq)]
struct Share {
    /// Number of workers, which take at most half of the memory.
    threads: usize,
    /// Bytes for files being written, and as much again for finding superseded records.
    files_bytes: u64,
}

impl Share {
    /// # Errors
    /// If one worker and one file do not fit into the memory that was asked for.
    fn of(bytes: u64, is_asked: bool, threads: usize, worker_bytes: u64, options: &ExportOptions) -> Result<Self> {
        let worker_bytes = worker_bytes + THREAD_BYTES;
        let least = COMMAND_BYTES + worker_bytes + 2 * options.memory_bytes_min();
        if is_asked && bytes < least {
            let [asked, least] = [bytes, least].map(values::show_bytes);
            return Err(Error::usage(format!("--memory {asked}: one worker and the files that it fills take {least}"))
                .with_hint("give that much, or fewer tables"));
        }
        let bytes = bytes.max(least);
        let fit = (bytes / 2).saturating_sub(COMMAND_BYTES) / worker_bytes;
        let threads = (threads as u64).min(fit).max(1);
        let files_bytes = (bytes - COMMAND_BYTES - threads * worker_bytes) / 2;
        Ok(Self { threads: threads as usize, files_bytes })
    }
}

fn data_part(text: &str) -> Result<DataPart, String> {
    let wrong = || "it is none, full, or OFFSET:LENGTH, as in 0:32".to_string();
    match text {
        "none" => Ok(DataPart::None),
        "full" => Ok(DataPart::Full),
        slice => {
            let (offset, length) = slice.split_once(':').ok_or_else(wrong)?;
            let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
            Ok(DataPart::Slice { offset: number(offset)?, length: number(length)? })
        }
    }
}

fn memcmp(text: &str) -> Result<Memcmp, String> {
    text.parse().map_err(|error: Error| error.to_string())
}

/// Parses an address, or reads those in a file (`@FILE`).
fn addresses_of(text: &str) -> Result<Vec<Address>> {
    let parse = |text: &str| values::pubkey(text).map_err(|error| Error::usage(format!("--address {text}: {error}")));
    let Some(path) = text.strip_prefix('@').map(Path::new) else { return Ok(vec![parse(text)?]) };
    // An empty filter would select every account, so an empty list is an error.
    values::listed(path, "address", |line| values::pubkey(line).map_err(Error::usage))
}

impl ExportArgs {
    fn filter(&self) -> Result<Filter> {
        let mut addresses = Vec::new();
        for text in &self.address {
            addresses.extend(addresses_of(text)?);
        }
        Ok(Filter {
            owners: self.owner.iter().copied().collect(),
            mints: self.mint.iter().copied().collect(),
            wallets: self.wallet.iter().copied().collect(),
            addresses: addresses.into_iter().collect(),
            data_size: self.data_size,
            memcmp: self.memcmp.clone(),
            with_mints: self.with_mints,
        })
    }

    fn options(&self, is_stdout: bool, store_bytes: u64, ui: &Ui) -> Result<ExportOptions> {
        let memory_bytes = planned::memory_or(self.work.memory, values::memory_or_half(None));
        let mut options = ExportOptions::default().filter(self.filter()?).data(self.data);
        options.order = self.order;
        options.changes = !self.since.is_empty();
        options.format = self.format.unwrap_or(if is_stdout { TableFormat::Csv } else { TableFormat::Parquet });
        if !self.tables.is_empty() {
            options.tables.clear();
            for table in &self.tables {
                if !options.tables.contains(table) {
                    options.tables.push(*table);
                }
            }
        }
        let worker_bytes = DECODING_WORKER_BYTES + options.worker_bytes();
        let share =
            Share::of(memory_bytes, self.work.memory.is_some(), self.work.workers.threads(), worker_bytes, &options)?;
        options.memory_bytes = share.files_bytes;
        let other_bytes = (2 * share.files_bytes).saturating_add(store_bytes);
        let threads = self.work.workers.that_fit(|| Ok(worker_bytes), other_bytes, ui)?.min(share.threads);
        options.visit = VerifyOptions::default().threads(threads).check(self.check.options(Some(share.files_bytes)));
        Ok(options)
    }
}

pub fn run(args: &ExportArgs, ui: &Ui) -> Result<()> {
    let is_stdout = stdout::is_meant(&args.output, ui)?;
    let store = store_of(&args.output, args.work.memory, &args.state.network.connection)?;
    let options = args.options(is_stdout, store.as_ref().map_or(0, |store| store.options().memory_bytes), ui)?;
    let mut stream = is_stdout.then(|| stdout::for_rows(ui)).transpose()?;
    let to = match (&mut stream, &store) {
        (Some(stream), _) => ExportTo::Stream(stream),
        (None, Some(store)) => ExportTo::Store(store, spill_dir(None)),
        (None, None) => ExportTo::Dir(args.output.clone()),
    };
    let input = args.state.open(true, ui)?;
    let since = (!args.since.is_empty()).then(|| args.state.open_other(&args.since, true, ui)).transpose()?;
    let exported = export(
        ExportInput { snapshot: input.snapshot(), since: since.as_ref().map(StateInput::snapshot) },
        to,
        &options,
        ui,
    );
    if stream.is_some_and(|stream| stream.is_closed) {
        // A reader such as `head` closes it when it has read enough: no failure, as for other
        // results.
        ui.tell("standard output was closed before the end: the state was not checked");
        return Ok(());
    }
    show(&exported?, ui);
    [Some(&input), since.as_ref()].into_iter().flatten().for_each(|input| input.show_transfers(ui));
    Ok(())
}

fn show(report: &ExportReport, ui: &Ui) {
    let facts = &report.facts;
    // Rows went to standard output, so the report goes to stderr.
    if report.manifests.is_empty() {
        return ui.tell(&format!("slot {}, state {}: rows are right", facts.slot, facts.state));
    }
    let unparsed = ("unparsed", "[{unparsed_accounts}: see the table accounts]");
    let rows = [
        ("slot", "{slot}, hash {hash}, state {state}"),
        unparsed,
        ("elapsed", "{elapsed_seconds}, CPU load {cpu_seconds%elapsed_seconds}"),
    ];
    ui.report("export", &report.manifests.join("\n"), report, &rows);
    for table in &report.tables {
        let [rows, files] = [values::count_of(table.rows, "row"), values::count_of(table.files.len() as u64, "file")];
        ui.row(table.table.name(), &format!("{rows} in {files}, {}", values::show_bytes(table.bytes)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn all_that_is_used_fits(bytes in 0u64..1 << 40, threads in 1usize..512, is_asked: bool, tables in 1usize..3) {
            let options = ExportOptions::default().tables([Table::Accounts, Table::TokenAccounts][..tables].to_vec());
            let worker_bytes = DECODING_WORKER_BYTES + options.worker_bytes();
            match Share::of(bytes, is_asked, threads, worker_bytes, &options) {
                Ok(share) => {
                    let used = share.threads as u64 * (worker_bytes + THREAD_BYTES) + 2 * share.files_bytes + COMMAND_BYTES;
                    proptest::prop_assert!(used <= bytes || !is_asked);
                    proptest::prop_assert!(share.files_bytes >= options.memory_bytes_min() && (1..=threads).contains(&share.threads));
                }
                Err(_) => proptest::prop_assert!(is_asked && bytes < 512 << 20),
            }
        }
    }
}
