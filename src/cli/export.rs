//! Runs `slotpress export`, and prints its report.

use std::path::{Path, PathBuf};

use clap::Args;
use slotpress::export::{
    DataPart, ExportOptions, ExportReport, ExportTo, Filter, Memcmp, RowOrder, Table, TableFormat, export,
};
use slotpress::types::Address;
use slotpress::verify::VerifyOptions;
use slotpress::{Error, Progress, Result};
use slotpress_read::choose_spill_dir;

use super::arguments::{CheckArgs, ResourceArgs};
use super::memory::{DECODING_WORKER_BYTES, divide_memory};
use super::network::{READ_TWICE, StateArgs, print_transfers};
use super::stores::open_store;
use super::ui::Ui;
use super::values::Choice;
use super::{stdout, values};

/// Write the accounts of a state as tables: Parquet files that any engine reads, or CSV
///
/// Exports only the newest version of each account, from a full archive, a full and an incremental
/// one, or a ledger. The input is read twice. Files get their names once the state has been checked. On standard
/// output, rows are written before the check, and only exit code 0 means that they are correct. TARGET receives
/// TABLE/snapshot_slot=SLOT/part-….parquet, and last TABLE/_manifest-SLOT.json.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Export only accounts that were added, changed or closed since this older state
    ///
    /// The older state is a full archive, a full and an incremental one, or a ledger. It must be the state that
    /// was last exported to TARGET.
    #[arg(long, value_names = ["OLD_FULL", "OLD_INCREMENTAL"], num_args = 1..=2)]
    since: Vec<PathBuf>,
    /// The directory (created if it is missing) or store (s3://BUCKET/PREFIX) for the tables, or - to
    /// write one table as CSV to standard output
    #[arg(short, long, value_name = "TARGET")]
    output: PathBuf,
    /// A table; may be given more than once [default: accounts]
    #[arg(long = "table", value_delimiter = ',', value_name = "TABLE", value_parser = values::choice_parser(TABLES))]
    tables: Vec<Table>,
    /// Format of the files [default: parquet, and csv on standard output]
    #[arg(long, value_name = "FORMAT", value_parser = values::choice_parser(FORMATS))]
    format: Option<TableFormat>,
    /// Order of the rows [default: clustered; none for all accounts with data, and on standard output]
    #[arg(long, value_name = "ORDER", value_parser = values::choice_parser(ORDERS))]
    order: Option<RowOrder>,
    /// Account data to export: none, full, or OFFSET:LENGTH
    #[arg(long, value_name = "PART", default_value = "none", value_parser = parse_data_part)]
    data: DataPart,
    /// Only accounts of this program, by its address or its name in `inspect --by-owner`
    #[arg(long, value_name = "PROGRAM", value_delimiter = ',', value_parser = values::parse_owner, help_heading = "Filters")]
    owner: Vec<Address>,
    /// Only this mint, and its token accounts
    #[arg(long, value_name = "MINT", value_delimiter = ',', value_parser = values::parse_pubkey, help_heading = "Filters")]
    mint: Vec<Address>,
    /// Only token accounts of this wallet
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', value_parser = values::parse_pubkey, help_heading = "Filters")]
    wallet: Vec<Address>,
    /// Only this account, or the accounts that a file lists, one per line; # begins a comment
    #[arg(long, value_name = "ADDRESS|@FILE", value_delimiter = ',', help_heading = "Filters")]
    address: Vec<String>,
    /// Only accounts whose data is of this length
    #[arg(long, value_name = "BYTES", help_heading = "Filters")]
    data_size: Option<u64>,
    /// Only accounts with these bytes at an offset of their data; with --data-size, at most four such filters, as
    /// in getProgramAccounts
    #[arg(long, value_name = "OFFSET:BASE58|0xHEX", help_heading = "Filters")]
    memcmp: Vec<Memcmp>,
    /// Also export the mints of token accounts that pass the filters; a test validator needs them
    #[arg(long, help_heading = "Filters")]
    with_mints: bool,
    #[command(flatten)]
    resources: ResourceArgs,
    #[command(flatten)]
    check: CheckArgs,
    #[command(flatten)]
    state: StateArgs,
}

const TABLES: &[Choice<Table>] = &[
    Choice("accounts", Table::Accounts, "All accounts: owner, lamports, length of data"),
    Choice("token-accounts", Table::TokenAccounts, "Accounts of Token and Token-2022: mint, owner, amount"),
    Choice("mints", Table::Mints, "Supply, authorities, metadata"),
    Choice("stakes", Table::Stakes, "Stake accounts, stake in the epoch"),
    Choice("votes", Table::Votes, "Vote accounts: authorities, credits"),
    Choice("programs", Table::Programs, "Upgrade authority, hash of code"),
];

const FORMATS: &[Choice<TableFormat>] = &[
    Choice("parquet", TableFormat::Parquet, "Compressed with zstd"),
    Choice("csv", TableFormat::Csv, "Text, only on standard output; data as hexadecimal digits"),
    Choice("test-validator", TableFormat::TestValidator, "A JSON file per account, for --account-dir"),
    Choice("surfpool", TableFormat::Surfpool, "One JSON object of these accounts, for surfpool's --snapshot"),
];

const ORDERS: &[Choice<RowOrder>] = &[
    Choice(
        "clustered",
        RowOrder::Clustered,
        "By owner, mint or voter, then address, so that queries for one read little",
    ),
    Choice("none", RowOrder::Unordered, "In the order in which they are read, which takes less time"),
];

fn parse_data_part(text: &str) -> Result<DataPart, String> {
    let error = || "data is none, full, or OFFSET:LENGTH, such as 0:32".to_string();
    match text {
        "none" => Ok(DataPart::None),
        "full" => Ok(DataPart::Full),
        slice => {
            let (offset, length) = slice.split_once(':').ok_or_else(error)?;
            let number = |text: &str| text.parse::<u32>().map_err(|_| error());
            let [offset, length] = [number(offset)?, number(length)?];
            Ok(DataPart::Slice { offset, length })
        }
    }
}

/// Parses an address, or reads the addresses in a file (`@FILE`).
fn read_addresses(text: &str) -> Result<Vec<Address>> {
    let parse = |text: &str| values::parse_pubkey(text).map_err(Error::usage);
    match text.strip_prefix('@') {
        // An empty filter would select every account, so an empty list is an error.
        Some(path) => values::read_list(Path::new(path), "address", parse),
        None => {
            let address = parse(text).map_err(|error| error.with_place(format!("--address {text}")))?;
            Ok(vec![address])
        }
    }
}

impl ExportArgs {
    fn filter(&self) -> Result<Filter> {
        let mut addresses = Vec::new();
        for text in &self.address {
            addresses.extend(read_addresses(text)?);
        }
        let mut filter = Filter::default()
            .owners(self.owner.iter().copied().collect())
            .mints(self.mint.iter().copied().collect())
            .wallets(self.wallet.iter().copied().collect())
            .addresses(addresses.into_iter().collect())
            .memcmp(self.memcmp.clone())
            .with_mints(self.with_mints);
        filter.data_size = self.data_size;
        Ok(filter)
    }

    fn options(&self, is_stdout: bool, store_bytes: u64, ui: &Ui) -> Result<ExportOptions> {
        let snapshot = self.state.open(READ_TWICE, ui)?;
        let mut options = ExportOptions::new(snapshot).filter(self.filter()?).data(self.data);
        if !self.since.is_empty() {
            options.since = Some(self.state.open_paths(&self.since, READ_TWICE, ui)?);
        }
        options.order = self.order;
        let default_format = if is_stdout { TableFormat::Csv } else { TableFormat::Parquet };
        options.format = self.format.unwrap_or(default_format);
        if !self.tables.is_empty() {
            options.tables.clear();
        }
        for table in &self.tables {
            if !options.tables.contains(table) {
                options.tables.push(*table);
            }
        }
        let worker_bytes = DECODING_WORKER_BYTES + options.worker_bytes();
        // One share is for the files being written, the other for finding superseded records.
        let threads = self.resources.workers.threads();
        let bytes_min = options.memory_bytes_min();
        let (threads, share_bytes) = divide_memory(self.resources.memory, threads, worker_bytes, bytes_min)?;
        options.memory_bytes = share_bytes;
        let other_bytes = (2 * share_bytes).saturating_add(store_bytes);
        let threads = threads.min(self.resources.threads(worker_bytes, other_bytes, ui)?);
        options.verify = VerifyOptions::default().threads(threads).check(self.check.options(Some(share_bytes)));
        Ok(options)
    }
}

pub fn run(args: &ExportArgs, ui: &Ui) -> Result<()> {
    let is_stdout = stdout::reserve_for_data(&args.output, ui)?;
    let connection = &args.state.network.connection;
    let store = open_store(&args.output, args.resources.memory, connection)?;
    let store_bytes = store.as_ref().map_or(0, |store| store.options().memory_bytes);
    let options = args.options(is_stdout, store_bytes, ui)?;
    let mut stream = is_stdout.then(|| stdout::open_rows(ui)).transpose()?;
    let to = match (&mut stream, &store) {
        (Some(stream), _) => ExportTo::Stream(stream),
        (None, Some(store)) => ExportTo::Store { store, scratch: choose_spill_dir(None) },
        (None, None) => ExportTo::Dir(args.output.clone()),
    };
    let exported = export(&options, to, ui);
    if stream.is_some_and(|stream| stream.is_closed) {
        // A reader such as `head` closes the pipe when it has read enough. That is not a failure.
        ui.status("standard output was closed before the end: the state was not checked");
        return Ok(());
    }
    print_report(&exported?, ui);
    for snapshot in [&options.snapshot].into_iter().chain(&options.since) {
        print_transfers(snapshot, ui);
    }
    Ok(())
}

fn print_report(report: &ExportReport, ui: &Ui) {
    let facts = &report.facts;
    // The rows are on standard output, so the report is printed to stderr.
    if report.manifests.is_empty() {
        let state = facts.state;
        return ui.status(&format!("slot {}, state {state}: all rows were written", facts.slot));
    }
    let rows = [
        "slot: {slot}, hash {hash}, state {state}",
        "unparsed: [{unparsed_accounts}: see the table accounts]",
        "elapsed: {elapsed_seconds}, CPU load {cpu_seconds%elapsed_seconds}",
    ];
    ui.print_report("export", &report.manifests.join("\n"), report, &rows);
    for table in &report.tables {
        let rows = values::count_of(table.rows, "row");
        let files = values::count_of(table.files.len() as u64, "file");
        let bytes = values::show_bytes(table.bytes);
        ui.print_row(table.table.name(), &format!("{rows} in {files}, {bytes}"));
    }
}
