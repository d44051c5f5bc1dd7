//! Archives a stopped validator's ledger, with a progress bar:
//! `cargo run --release --example archive -- LEDGER OUT_DIR`

use std::env;
use std::process::ExitCode;
use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressStyle};
use slotpress::archive::{ArchiveOptions, Codec, DirSink, EncodingOptions, archive};
use slotpress::progress::Stage;
use slotpress::{Error, ErrorKind, Progress, ProgressEvent};

/// Shows the bytes read, as a progress bar.
#[derive(Default)]
struct Bar(Mutex<Option<ProgressBar>>);

impl Progress for Bar {
    fn event(&self, event: ProgressEvent<'_>) {
        match event {
            ProgressEvent::Stage { stage, input_bytes } => self.begin(stage, input_bytes),
            ProgressEvent::Bytes { input, .. } => {
                if let Ok(bar) = self.0.lock()
                    && let Some(bar) = &*bar
                {
                    bar.inc(input);
                }
            }
            ProgressEvent::Warning(message) => eprintln!("warning: {message}"),
            _ => {}
        }
    }
}

impl Bar {
    fn begin(&self, stage: &Stage, total_bytes: Option<u64>) {
        let bar = match total_bytes {
            Some(bytes) => ProgressBar::new(bytes),
            None => ProgressBar::new_spinner(),
        };
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {binary_bytes} {binary_bytes_per_sec} {eta}") {
            bar.set_style(style);
        }
        bar.set_message(stage.to_string());
        if let Ok(mut shown) = self.0.lock() {
            *shown = Some(bar);
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [ledger, out_dir] = arguments.as_slice() else {
        eprintln!("usage: archive LEDGER OUT_DIR");
        return ExitCode::from(2);
    };
    let options = ArchiveOptions::new(ledger).encoding(EncodingOptions::default().codec(Codec::zstd(1)));
    let bar = Bar::default();
    match DirSink::open(out_dir).and_then(|mut sink| archive(&options, &mut sink, &bar)) {
        Ok(report) => {
            let archive = &report.archive;
            println!("{}: {} bytes in {:.1?}", archive.name, archive.output_bytes, archive.elapsed.wall);
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error),
    }
}

fn fail(error: &Error) -> ExitCode {
    // If the archive already exists, the exit code is 0, so that the program may run repeatedly.
    if error.kind() == ErrorKind::Exists {
        eprintln!("skipped: {error}");
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {error}");
    if let Some(hint) = error.hint() {
        eprintln!("hint: {hint}");
    }
    ExitCode::FAILURE
}
