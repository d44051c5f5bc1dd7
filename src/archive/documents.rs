//! Reads a bank snapshot's status cache in bounded memory, and judges it and the bank file before an
//! archive is written. The plan reads the bank file, and `find_bank_snapshot` the version file.

use std::io::BufReader;
use std::path::Path;

use slotpress_base::{
    Error, EscapePath, InterruptibleReader, IoContext, Progress, Result, catch_panic, join_thread, open_file,
    panic_point, quantity, spawn,
};
use slotpress_format::{BankFile, ENTRY_BYTES_MAX, FieldReader, READ_BUFFER_BYTES, StatusCache, parse_status_cache};
use slotpress_read::{Documents, Failures, ParsedBank, Rule, judge_documents};

const REWRITE_HINT: &str = "the bank snapshot is damaged: let the validator write another one";

pub fn read_status_cache_during<R>(
    path: &Path,
    progress: &dyn Progress,
    work: impl FnOnce() -> Result<R>,
) -> Result<(R, StatusCache)> {
    std::thread::scope(|scope| {
        let reading = spawn(scope, || catch_panic(|| read_status_cache(path, progress)))?;
        // On an early return, the scope waits for the reader, which stops at the end of the file.
        let result = work()?;
        Ok((result, join_thread(reading)?))
    })
}

fn read_status_cache(path: &Path, progress: &dyn Progress) -> Result<StatusCache> {
    panic_point("status cache");
    let file = open_file(path)?;
    let length = file.metadata().or_path("read", path)?.len();
    let description = format!("the status cache {}", path.escaped());
    if length > ENTRY_BYTES_MAX {
        let [length, max] = [length, ENTRY_BYTES_MAX].map(quantity::bytes);
        let message = format!("{description} has {length}, and no file of a snapshot has more than {max}");
        return Err(Error::damaged(message).with_hint(REWRITE_HINT));
    }
    let input = BufReader::with_capacity(READ_BUFFER_BYTES, InterruptibleReader::new(file, progress));
    // The bank's slot is not known yet, so any slot is accepted here (`u64::MAX`).
    // `judge_bank_snapshot` compares the slots.
    let cache = parse_status_cache(FieldReader::new(input, length, description), u64::MAX);
    progress.check()?;
    cache.map_err(|error| error.with_hint(REWRITE_HINT))
}

/// Refuses a bank file or status cache that Agave or Firedancer would refuse when it boots from the
/// archive, and a status cache of a different bank. Content that is normal for one version of Agave is
/// accepted, even if another version or Firedancer refuses it.
pub fn judge_bank_snapshot(cache: StatusCache, bank: &BankFile) -> Result<()> {
    let bank = ParsedBank { bank: bank.clone(), end_error: None };
    let slot = bank.bank.slot;
    let documents = Documents { bank: Some(Ok(bank)), status_cache: Some(Ok(cache)), version: None };
    let judged = judge_documents(documents, Some(slot), &Failures::with_refused(Rule::is_refused));
    judged.map(drop).map_err(|error| error.with_hint(REWRITE_HINT))
}
