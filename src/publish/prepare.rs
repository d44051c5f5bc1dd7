//! Checks an archive that is pinned, and recompresses it on the way: what gets a name in the directory of ready ones is whole.

use {
    super::{PublishOptions, journal::State, pins::PinDir},
    crate::{
        archive::{
            encode::{Codec, Format},
            sink::Sink,
        },
        recompress::{Source, recompress},
    },
    slotpress_base::{
        error::{Error, Result},
        progress::Progress,
    },
    slotpress_format::ledger::names::ArchiveName,
    slotpress_read::state::check::CheckMode,
    std::io,
};

/// How the state of an archive will have been checked. An incremental one's takes reading its full one.
pub fn state_of(name: &ArchiveName, options: &PublishOptions) -> State {
    match name.base_slot.is_none() || options.checks_pairs {
        true => State::Checked,
        false => State::Unchecked,
    }
}

/// Prepares one; returns its new name. `base`: the full archive below it, pinned too.
///
/// # Errors
/// Of [`ErrorKind::Damaged`](slotpress_base::error::ErrorKind::Damaged) where the archive is not sound; the disk fails, or
/// is full.
pub fn prepare(
    pins: &PinDir,
    name: &ArchiveName,
    base: Option<&ArchiveName>,
    options: &PublishOptions,
    progress: &dyn Progress,
) -> Result<ArchiveName> {
    let mut how = options.recompress.clone();
    how.base = base.map(|base| pins.pinned_path(base));
    if state_of(name, options) == State::Unchecked {
        how.check.mode = CheckMode::Frames;
    } else if name.base_slot.is_some() && base.is_none() {
        return Err(Error::failed(format!("the full archive below {name} is not there any more")));
    }
    let source = Source::File(pins.pinned_path(name));
    if options.is_as_is {
        // By the same rules; nothing is compressed, and what is made is thrown away.
        how.codec = Codec { format: Format::None, ..how.codec };
        recompress(source, Sink::Stream(&mut io::sink()), &how, progress)?;
        pins.pinned_is_ready(name)?;
        return Ok(name.clone());
    }
    let sink = Sink::Dir { dir: pins.ready_dir(), replace: true };
    Ok(recompress(source, sink, &how, progress)?.name)
}
