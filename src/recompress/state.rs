//! Checks the state of a recompressed archive, and chooses where superseded records are read again.

use std::path::Path;

use slotpress_base::{Error, ErrorKind, EscapePath, Result, Stage, hint};

use slotpress_read::{
    AccountsPass, Failures, OpenArchive, PairMember, RATIO_UPPER_ESTIMATE, Rule, StagedFile, StateBuilder,
    open_written, read_archive_storages,
};

use super::input::RecompressInput;
use super::reading::DecodedSource;
use super::run::RecompressJob;
use crate::archive::writer::count_storages;

impl RecompressJob<'_> {
    /// Prepares a check of the state. Data that does not fit in memory is spilled to the directory
    /// that `CheckOptions::spill_dir` chooses.
    pub fn begin_state_check(self, input: &RecompressInput<'_>, out_dir: Option<&Path>) -> Result<StateBuilder> {
        let spill_dir = self.options.check.spill_dir(out_dir);
        let base_bytes = self.base.and_then(|base| base.archive.source.length_bytes()).unwrap_or_default();
        let bytes = input.length_bytes().unwrap_or_default().saturating_add(base_bytes);
        let unpacked_bytes = bytes.saturating_mul(RATIO_UPPER_ESTIMATE);
        let memory_bytes = self.options.check.memory_bytes;
        let accounts = StateBuilder::new(memory_bytes, &spill_dir, unpacked_bytes)?;
        accounts.log.check_expected_space(memory_bytes)?;
        Ok(accounts)
    }

    /// Finishes the check after the source has been read. Reads the base, if there is one. Then reads
    /// superseded records again, from the base and from the written file or, if there is none, from the source.
    /// Compares the state with the bank file, and returns the number of accounts.
    pub fn finish_state_check(
        self,
        mut accounts: StateBuilder,
        decoded: &DecodedSource,
        input: &RecompressInput<'_>,
        written_file: Option<&StagedFile>,
    ) -> Result<u64> {
        let options = self.options;
        let base = self.base;
        let progress = self.progress;
        let threads = options.encoding.threads;
        let base_first_storage = count_storages(&decoded.entries) as u32;
        if let Some(base) = base {
            accounts.begin_older_archive(threads)?;
            let incremental = PairMember { bank: Some(&decoded.bank), ..input.as_member(self.base_slot) };
            base.add_accounts_to(&accounts, incremental, self)
                .map_err(|error| error.with_place_if_damaged(base.archive.path().escaped()))?;
        }
        let path = match (written_file, input.archive()) {
            (Some(file), _) => file.path(),
            (None, Some(archive)) => archive.path(),
            (None, None) => return Err(pipe_to_pipe_error()),
        };
        let accounts = &accounts;
        let failures = &Failures::with_refused(Rule::is_refused_for_output);
        let checked = accounts.require_state(&decoded.bank, failures, threads, progress, &mut |task, wanted| {
            progress.stage(Stage::Subtracting, None);
            let records = AccountsPass::new(accounts, failures, task);
            if wanted.iter().any(|number| *number < base_first_storage) {
                // When dropped, removes the pages that single reads leave in the page cache: the index and
                // superseded records are read in pieces, which share pages.
                let _watch = options.encoding.io_policy.io_hint.watch([path]);
                let archive = match written_file {
                    Some(file) => OpenArchive::from_source(open_written(file)?, None, &options.encoding.io_policy)?,
                    // The index of the written file is right; the index of a source may be wrong.
                    None => OpenArchive::open(path, &options.encoding.io_policy)?.without_index(),
                };
                read_archive_storages(&archive, 0, Some(wanted), &records, threads, progress)?;
            }
            if let Some(base) = base
                && wanted.iter().any(|number| *number >= base_first_storage)
            {
                let archive = &base.archive;
                let wanted = Some(wanted);
                read_archive_storages(archive, base_first_storage, wanted, &records, threads, progress)?;
            }
            Ok(())
        });
        checked.map_err(|error| {
            let may_lack_base = base.is_none() && input.name().is_none() && error.kind() == ErrorKind::Damaged;
            let error = error.with_place_if_damaged(input.path().escaped());
            if may_lack_base { error.with_hint(hint::PASS_BASE) } else { error }
        })
    }
}

/// Makes the error for a stream into a stream: the state could be checked only after all bytes have
/// left through the pipe, where they can neither be read again nor taken back.
pub fn pipe_to_pipe_error() -> Error {
    Error::usage("a stream into a stream cannot be checked: bytes that were written to a pipe cannot be taken back")
        .with_hint(hint::WRITE_INTO_DIRECTORY)
}
