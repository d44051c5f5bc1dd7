//! Checks an archive that is pinned, and recompresses it on the way: what gets a name in the directory of ready ones is whole.

use std::fs::File;
use std::path::Path;

use slotpress_base::{Error, IoContext, Progress, Result};
use slotpress_format::ArchiveName;
use slotpress_read::{CheckMode, NamedArchive, VerifyOptions, verify_archives};

use super::PublishOptions;
use super::head_start::Making;
use super::journal::State;
use super::pins::PinDir;
use crate::archive::sink::Sink;
use crate::recompress::{RecompressOptions, Source, recompress};

/// For its head start, a new archive is taken to have at most so many times the bytes of its source: one of level 19 has half
/// of one of level 1. One that has more is sent when it is ready.
const RATIO_MAX: u64 = 2;

/// How the state of an archive will have been checked. An incremental one's takes reading its full one.
pub fn state_of(name: &ArchiveName, options: &PublishOptions) -> State {
    match name.base_slot.is_none() || options.checks_pairs {
        true => State::Checked,
        false => State::Unchecked,
    }
}

/// Prepares one; returns its new name. `base`: the full archive below it, pinned too. `making` is told where it is made.
///
/// # Errors
/// Of [`ErrorKind::Damaged`](slotpress_base::error::ErrorKind::Damaged) where the archive is not sound; the disk fails, or
/// is full.
pub fn prepare(
    pins: &PinDir,
    name: &ArchiveName,
    base: Option<&ArchiveName>,
    making: &Making,
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
    let path = pins.pinned_path(name);
    let pinned = File::open(&path).or_path("open", &path)?;
    let source_bytes = pinned.metadata().or_path("read", &path)?.len();
    if options.is_as_is {
        making.grows(pinned, source_bytes);
        check_as_is(&path, &how, progress)?;
        pins.pinned_is_ready(name)?;
        return Ok(name.clone());
    }
    let new = pins.new_ready()?;
    // Opened anew: what is written around the page cache is read through it.
    making.grows(File::open(new.path()).or_path("open", new.path())?, source_bytes.saturating_mul(RATIO_MAX));
    let name = recompress(Source::File(path), Sink::unnamed(&new), &how, progress)?.name;
    new.publish(&name.to_string(), true)?;
    Ok(name)
}

/// Checks an archive that is published as it is. Recompressing makes good how an archive is packed, and so tolerates more than
/// `verify`; here nothing is made good.
fn check_as_is(path: &Path, how: &RecompressOptions, progress: &dyn Progress) -> Result<()> {
    let options =
        VerifyOptions::default().check(how.check.clone()).threads(how.threads).io_policy(how.io_policy.clone());
    // Superseded records are read again by pieces that share pages.
    let _watch = how.io_policy.io_hint.watch(how.base.as_deref().into_iter().chain([path]));
    let archive = NamedArchive::from_path(path);
    let report = match &how.base {
        Some(base) => verify_archives(&NamedArchive::from_path(base), Some(&archive), &options, progress),
        None => verify_archives(&archive, None, &options, progress),
    };
    report?.require_ok()
}
