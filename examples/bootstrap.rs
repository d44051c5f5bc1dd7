//! Bootstraps a ledger directory from one or more servers, and prints what happens:
//! `cargo run --release --example bootstrap -- LEDGER SOURCE...`

use std::env;
use std::error::Error;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use slotpress::net::SourceArg;
use slotpress::{BootstrapOptions, CheckMode, CheckOptions, Client, ClientOptions, Progress, RestoreTarget, bootstrap};

/// Prints each event on one line.
#[derive(Default)]
struct Lines {
    bytes: AtomicU64,
}

impl Progress for Lines {
    fn stage(&self, name: &str, _total_bytes: Option<u64>) {
        println!("{name}");
    }

    fn advance(&self, input_bytes: u64, _output_bytes: u64) {
        self.bytes.fetch_add(input_bytes, Relaxed);
    }

    fn tell(&self, message: &str) {
        println!("{message}");
    }

    fn warn(&self, message: &str) {
        println!("warning: {message}");
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let ledger = arguments.next().ok_or("usage: bootstrap LEDGER SOURCE...")?;
    let sources: Vec<SourceArg> = arguments.map(|source| source.parse::<SourceArg>()).collect::<Result<_, _>>()?;
    let check = CheckOptions::default().mode(CheckMode::State);
    let restore = RestoreTarget::new(&ledger).check(check);
    let options = BootstrapOptions::new(sources, &ledger).restore(restore);
    let progress = Lines::default();
    let report = bootstrap(&Client::new(&ClientOptions::default())?, &options, &progress)?;
    println!(
        "slot {}, hash {}: {} bytes read in {:.1?}; vouched by: {}",
        report.restore.slot,
        report.restore.hash,
        progress.bytes.load(Relaxed),
        report.elapsed.wall,
        report.vouchers
    );
    Ok(())
}
