//! The state of what is recompressed: when it is checked, and where superseded records are read again.

use std::path::Path;

use slotpress_base::{Error, Hint, Result};
use slotpress_format::{Entry, EntryKind};
use slotpress_read::archive::Archive;
use slotpress_read::archive::source::written;
use slotpress_read::{IndexPolicy, RATIO_TYPICAL, Rule, StateCheck, StateOutcome, Unpublished, read_again};

use super::base::{Base, Newest};
use super::input::Input;
use super::plan::Job;
use super::reading::Decoded;

impl Job<'_> {
    /// Gets ready for checking the state. What does not fit in memory is spilled beside the output; of a stream, where other
    /// programs put what is temporary. Firedancer's archives lack rent epochs.
    pub fn new_state_check(
        self,
        input: &Input<'_>,
        written: Option<&Path>,
        is_of_firedancer: bool,
    ) -> Result<StateCheck> {
        let spill_dir = self.options.check.spill_dir(written.and_then(Path::parent));
        let bytes = input.length_bytes().unwrap_or_default().saturating_add(self.base.map_or(0, Base::length_bytes));
        let unpacked_bytes = bytes.saturating_mul(RATIO_TYPICAL);
        let memory_bytes = self.options.check.memory_bytes;
        let check = StateCheck::new(memory_bytes, &spill_dir, unpacked_bytes, Rule::is_refused_of_source)?;
        Ok(check.without_rent_epochs(is_of_firedancer || self.base.is_some_and(|base| base.lacks_stakes)))
    }

    /// Everything has been read: has the full archive read, if there is one, and superseded records again, from what was
    /// `written_file` where there is one, from the source where only that is one; and compares.
    pub fn finish_state(
        self,
        mut state: StateCheck,
        decoded: &Decoded,
        input: &Input<'_>,
        written_file: Option<&Unpublished>,
    ) -> Result<(StateOutcome, StateCheck)> {
        let (options, base, progress) = (self.options, self.base, self.progress);
        let threads = options.encoding.threads;
        let storages: Vec<(u64, u64)> = decoded.entries.iter().filter_map(storage_of).collect();
        let first_of_base = storages.len() as u32 + decoded.left_out as u32;
        if let Some(base) = base {
            state.everything_so_far_is_newer(threads)?;
            base.add_to(&state, &Newest { bank: &decoded.bank, storages: &storages, map: &decoded.map }, self)?;
        }
        // Storages that were left out shift the numbers of the others.
        let (path, written_file) = match (written_file.filter(|_| decoded.left_out == 0), input) {
            (Some(file), _) => (file.path().to_path_buf(), Some(file)),
            (None, Input::File { archive, .. }) => (archive.path_buf(), None),
            (None, Input::Stream { .. }) => return Err(pipe_to_pipe()),
        };
        let outcome = state.finish(&decoded.bank, threads, progress, &mut |task, wanted| {
            progress.stage("Subtracting", None);
            let records = state.pass(task);
            if wanted.iter().any(|number| *number < first_of_base) {
                // Index and superseded records are read by pieces that share pages.
                let _watch = options.encoding.io_policy.io_hint.watch([&path]);
                let archive = match written_file {
                    Some(file) => {
                        Archive::of_source(written(file)?, None, IndexPolicy::Hint, &options.encoding.io_policy)?
                    }
                    // A source is not known to be indexed rightly; what was just written is.
                    None => Archive::open(&path, IndexPolicy::Ignore, &options.encoding.io_policy)?,
                };
                read_again(&archive, 0, Some(wanted), &records, false, threads, progress)?;
            }
            base.map_or(Ok(()), |base| base.read_again(first_of_base, wanted, &records, self))
        });
        outcome.map(|outcome| (outcome, state)).map_err(|error| error.within_damaged(input.place()))
    }
}

fn storage_of(entry: &Entry) -> Option<(u64, u64)> {
    match entry.kind {
        EntryKind::Storage { slot, .. } => Some((slot, entry.content_bytes)),
        _ => None,
    }
}

/// Refuses what could not be checked before it is too late: bytes in a pipe cannot be read again, or taken back.
pub fn pipe_to_pipe() -> Error {
    Error::usage("a stream into a stream cannot be checked: what was written to a pipe cannot be taken back")
        .with_hint(Hint::WriteIntoDirectory)
}
