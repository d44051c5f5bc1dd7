//! The state of what is recompressed: when it is checked, and where superseded records are read again.

use {
    super::{RecompressOptions, input::Input, is_refused},
    crate::archive::sink::OpenSink,
    slotpress_base::{
        error::{Error, Result},
        progress::Progress,
    },
    slotpress_format::ledger::bank_file::BankFile,
    slotpress_read::{
        archive::{Archive, IndexPolicy},
        state::{
            again::read_again,
            check::{StateCheck, StateOutcome},
            settle::RATIO_TYPICAL,
        },
    },
    std::path::Path,
};

/// Gets ready for checking the state. What does not fit in memory is spilled beside the output; of a stream, where other
/// programs put what is temporary.
pub fn new_state_check(input: &Input<'_>, sink: &OpenSink<'_>, options: &RecompressOptions) -> Result<StateCheck> {
    let spill_dir = sink.file_path().and_then(Path::parent).map_or_else(std::env::temp_dir, Path::to_path_buf);
    let bytes = input.length_bytes().unwrap_or_default().saturating_mul(RATIO_TYPICAL);
    StateCheck::new(options.check.memory_bytes, &spill_dir, bytes, is_refused)
}

/// Everything has been read and written: has superseded records read again, from the new archive where that is a file,
/// from the source where only that is one, and compares.
pub fn finish_state(
    state: &StateCheck,
    bank: &BankFile,
    input: &Input<'_>,
    sink: &OpenSink<'_>,
    options: &RecompressOptions,
    progress: &dyn Progress,
) -> Result<StateOutcome> {
    let path = match (sink.file_path(), input) {
        (Some(path), _) => Some(path.to_path_buf()),
        (None, Input::File { archive, .. }) => Some(archive.path_buf()),
        (None, Input::Stream { .. }) => None,
    };
    let mut is_lost = false;
    let outcome = state.finish(bank, options.threads, progress, &mut |task, wanted| {
        let Some(path) = &path else {
            is_lost = true;
            return Err(Error::failed("superseded accounts cannot be read again from a pipe"));
        };
        progress.stage("Subtracting", None);
        let mut archive = Archive::open(path, IndexPolicy::Hint, &options.manners)?;
        // A source is not known to be indexed rightly; what was just written is.
        if sink.file_path().is_none() {
            archive.tail = None;
        }
        Ok(read_again(&archive, 0, wanted, &state.pass(task), options.threads, progress)?)
    });
    match outcome {
        Err(error) if is_lost => Ok(StateOutcome::NotChecked(error.to_string())),
        outcome => outcome.map_err(|error| error.within_damaged(input.place())),
    }
}
