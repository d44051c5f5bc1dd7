//! The documents of what is archived, judged before anything is written. The status cache is read to its last byte, in bounded
//! memory, while the archive is planned. Not here: reading the bank file, which the plan does, and the version, which tells what
//! a bank snapshot is.

use std::io::BufReader;
use std::path::Path;

use slotpress_base::threads::{guarded, panicked, spawn};
use slotpress_base::{Error, Interruptible, Progress, Result, ShowPath, open_file, panic_point, quantity};
use slotpress_format::{BankFile, ENTRY_BYTES_MAX, FieldReader, READ_BUFFER_BYTES, StatusCache, parse_status_cache};
use slotpress_read::{Documents, Findings, ParsedBank, Rule, judge_documents};

/// Does `work` while the status cache at `path` is read; where no thread can be started, one after the other.
pub fn while_reading<R>(
    path: &Path,
    progress: &dyn Progress,
    work: impl FnOnce() -> Result<R>,
) -> Result<(R, StatusCache)> {
    let read = || guarded(|| read_status_cache(path, progress));
    std::thread::scope(|scope| {
        let reading = spawn(scope, read).ok();
        // Should it panic, the scope waits for the reader, which ends with the file.
        let done = work()?;
        let cache = match reading {
            Some(reading) => reading.join().unwrap_or_else(|payload| Err(panicked(payload.as_ref()))),
            None => read(),
        };
        Ok((done, cache?))
    })
}

fn read_status_cache(path: &Path, progress: &dyn Progress) -> Result<StatusCache> {
    panic_point("status cache");
    let file = open_file(path)?;
    let length = file.metadata().map_err(|error| Error::io("read", path, &error))?.len();
    let what = format!("the status cache {}", path.shown());
    if length > ENTRY_BYTES_MAX {
        let [length, most] = [length, ENTRY_BYTES_MAX].map(quantity::bytes);
        return Err(Error::damaged(format!("{what} has {length}, and no file of a snapshot has more than {most}"))
            .with_hint("the bank snapshot is damaged: let the validator write another one"));
    }
    let input = BufReader::with_capacity(READ_BUFFER_BYTES, Interruptible::new(file, progress));
    // The bank's slot is not known yet.
    let cache = parse_status_cache(FieldReader::new(input, length, what), u64::MAX);
    progress.check()?;
    cache.map_err(|error| error.with_hint("the bank snapshot is damaged: let the validator write another one"))
}

/// Refuses a bank file that is not sound, and a status cache that is not of this bank: whatever a client that boots from the
/// archive refuses. What only some versions mind is Agave's to write.
pub fn judge(cache: StatusCache, bank: &BankFile) -> Result<()> {
    let bank = ParsedBank { bank: bank.clone(), map: Vec::new(), end_error: None };
    let slot = bank.bank.slot;
    let documents = Documents { bank: Some(Ok(bank)), status_cache: Some(Ok(cache)), version: None };
    let judged = judge_documents(documents, Some(slot), &Findings::refusing(Rule::is_refused)).map(drop);
    judged.map_err(|error| error.with_hint("the bank snapshot is damaged: let the validator write another one"))
}
