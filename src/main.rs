//! Parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    slotpress::cli::main(std::env::args_os())
}
