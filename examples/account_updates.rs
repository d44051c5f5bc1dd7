//! Writes the newest version of every account to standard output, as the updates that indexers receive
//! when a validator starts: `SubscribeUpdateAccount` of Yellowstone's gRPC protocol, each prefixed with its
//! length as a varint:
//! `cargo run --release --example account_updates -- ARCHIVE [INCREMENTAL] > updates`
//!
//! Use the updates only if the exit code is 0, because the state is checked at the end.

use std::env;
use std::error::Error;
use std::io::{Write, stdout};
use std::sync::Mutex;

use prost::Message;
use slotpress::accounts::{Account, AccountVisitor, visit_accounts};
use slotpress::verify::VerifyOptions;
use slotpress::{NoProgress, Snapshot};

/// The message of that name in Yellowstone's `geyser.proto`.
#[derive(Clone, PartialEq, Message)]
pub struct SubscribeUpdateAccount {
    #[prost(message, optional, tag = "1")]
    pub account: Option<SubscribeUpdateAccountInfo>,
    #[prost(uint64, tag = "2")]
    pub slot: u64,
    #[prost(bool, tag = "3")]
    pub is_startup: bool,
}

/// The message of that name in Yellowstone's `geyser.proto`.
#[derive(Clone, PartialEq, Message)]
pub struct SubscribeUpdateAccountInfo {
    #[prost(bytes = "vec", tag = "1")]
    pub pubkey: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub lamports: u64,
    #[prost(bytes = "vec", tag = "3")]
    pub owner: Vec<u8>,
    #[prost(bool, tag = "4")]
    pub executable: bool,
    #[prost(uint64, tag = "5")]
    pub rent_epoch: u64,
    #[prost(bytes = "vec", tag = "6")]
    pub data: Vec<u8>,
    #[prost(uint64, tag = "7")]
    pub write_version: u64,
    #[prost(bytes = "vec", optional, tag = "8")]
    pub txn_signature: Option<Vec<u8>>,
}

/// Number of bytes that a worker collects before it writes them, so that workers seldom wait for each
/// other.
const BATCH_BYTES: usize = 1 << 20;

struct Updates<'a, W: Write> {
    batch: Vec<u8>,
    output: &'a Mutex<W>,
}

impl<W: Write> Updates<'_, W> {
    fn flush(&mut self) -> std::io::Result<()> {
        let mut output = self.output.lock().map_err(|_| std::io::Error::other("a worker panicked"))?;
        output.write_all(&self.batch)?;
        self.batch.clear();
        Ok(())
    }
}

impl<W: Write> AccountVisitor for Updates<'_, W> {
    type Error = Box<dyn Error + Send + Sync>;

    fn account(&mut self, account: &Account<'_>) -> Result<(), Self::Error> {
        let info = SubscribeUpdateAccountInfo {
            pubkey: account.address.0.to_vec(),
            lamports: account.lamports,
            owner: account.owner.0.to_vec(),
            executable: account.is_executable,
            // The value for rent-exempt accounts. All accounts are rent-exempt now.
            rent_epoch: u64::MAX,
            data: account.data.to_vec(),
            write_version: 0,
            txn_signature: None,
        };
        let update = SubscribeUpdateAccount { account: Some(info), slot: account.slot, is_startup: true };
        update.encode_length_delimited(&mut self.batch)?;
        if self.batch.len() >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }
}

/// Writes the updates, and returns the number of accounts.
pub fn write_updates<W: Write + Send>(
    snapshot: &Snapshot,
    output: &Mutex<W>,
) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let new_worker = || Updates { batch: Vec::new(), output };
    let (workers, report) = visit_accounts(snapshot, &VerifyOptions::default(), &NoProgress, new_worker)?;
    for mut worker in workers {
        worker.flush()?;
    }
    Ok(report.counts.accounts)
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut archives = env::args_os().skip(1);
    let full = archives.next().ok_or("usage: account_updates ARCHIVE [INCREMENTAL]")?;
    let snapshot = Snapshot::from_archives(full, archives.next());
    let count = write_updates(&snapshot, &Mutex::new(stdout()))?;
    eprintln!("{count} accounts");
    Ok(())
}
