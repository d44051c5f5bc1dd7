//! Bootstraps a ledger from one or more servers, and prints what happens:
//! `cargo run --release --example bootstrap -- LEDGER SOURCE...`

use std::env;
use std::error::Error;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use slotpress::bootstrap::{BootstrapOptions, bootstrap};
use slotpress::net::{Client, ClientOptions, SourceLocation};
use slotpress::{Progress, ProgressEvent};

/// Prints events, one per line, and counts the bytes that were read.
#[derive(Default)]
struct Lines {
    bytes: AtomicU64,
}

impl Progress for Lines {
    fn event(&self, event: ProgressEvent<'_>) {
        match event {
            ProgressEvent::Stage { stage, .. } => println!("{stage}"),
            ProgressEvent::Bytes { input, .. } => {
                self.bytes.fetch_add(input, Relaxed);
            }
            ProgressEvent::Status(message) => println!("{message}"),
            ProgressEvent::Warning(message) => println!("warning: {message}"),
            _ => {}
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let ledger = arguments.next().ok_or("usage: bootstrap LEDGER SOURCE...")?;
    let sources: Vec<SourceLocation> =
        arguments.map(|source| source.parse::<SourceLocation>()).collect::<Result<_, _>>()?;
    let options = BootstrapOptions::new(sources, &ledger);
    let progress = Lines::default();
    let report = bootstrap(&Client::new(&ClientOptions::default())?, &options, &progress)?;
    println!(
        "slot {}, hash {}: {} bytes read in {:.1?}; confirmed by: {}",
        report.restore.slot,
        report.restore.hash,
        progress.bytes.load(Relaxed),
        report.elapsed.wall,
        report.confirmations
    );
    Ok(())
}
