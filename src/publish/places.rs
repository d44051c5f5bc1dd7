//! Which directories publishing writes into: none of the validator's. Told by device and inode, whatever the path.

use std::path::Path;

use slotpress_base::{Error, Hint, KeptDir, Result, ShowPath};
use slotpress_read::check_output_dir;
use slotpress_stores::Target;

use super::PublishOptions;

/// Checks all directories before one is made or written.
///
/// # Errors
/// One lies where nothing of its kind may be; no target is there.
pub fn check(options: &PublishOptions) -> Result<()> {
    of_pins(&nearest(&options.pins)?, &options.snapshots)?;
    options.quarantine.as_deref().map_or(Ok(()), |path| of_pins(&nearest(path)?, &options.snapshots))?;
    let mut missing = Vec::new();
    for target in &options.targets {
        let Target::Dir(path) = target else { continue };
        of_target(&nearest(path)?, options)?;
        missing.extend(check_output_dir(path).err());
    }
    // Beside a target that is there, one that is not is tried again, and holds up nothing.
    let is_none_there = missing.len() == options.targets.len();
    missing.into_iter().next().filter(|_| is_none_there).map_or(Ok(()), Err)
}

/// Refuses a directory of pins, or of damaged archives, that is the validator's or below it.
///
/// # Errors
/// Of that.
pub fn of_pins(dir: &KeptDir, snapshots: &Path) -> Result<()> {
    refuse_within(dir, snapshots, "the validator's directory")
        .map_err(|error| error.with_hint(Hint::PinsOnSameFileSystem))
}

/// Refuses a target in the validator's directory, or in that of pins.
///
/// # Errors
/// Of that.
pub fn of_target(dir: &KeptDir, options: &PublishOptions) -> Result<()> {
    refuse_within(dir, &options.snapshots, "the validator's directory")?;
    refuse_within(dir, &options.pins, "the directory of pins")
}

fn refuse_within(dir: &KeptDir, above: &Path, whose: &str) -> Result<()> {
    let Ok(above) = KeptDir::open(above) else { return Ok(()) };
    match dir.is_within(&above.itself()?)? {
        true => {
            let (dir, above) = (dir.path().shown(), above.path().shown());
            Err(Error::usage(format!("{dir} is in {above}, {whose}: nothing else may be written there"))
                .with_hint("give a directory outside of it"))
        }
        false => Ok(()),
    }
}

/// The directory at a path, or the nearest one above it that is there.
fn nearest(path: &Path) -> Result<KeptDir> {
    let mut failed = None;
    for path in path.ancestors() {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match KeptDir::open(path) {
            Ok(dir) => return Ok(dir),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    Err(failed.unwrap_or_else(|| Error::failed(format!("{} cannot be opened", path.shown()))))
}
