//! Takes up incomplete archives under their final names, such as an interrupted `curl` leaves.

use std::fs;
use std::path::Path;

use slotpress_base::quantity::bytes;
use slotpress_base::{Error, Progress, Result, ShowPath, open_file};

use super::partial::{PartialFile, holds};
use crate::{Client, Remote};

/// Number of bytes at the beginning of a file that are compared with the server's archive.
const BEGINNING_BYTES: u64 = 64 * 1024;

/// Turns an incomplete archive under its final name into a partial file. It must be shorter than
/// the first server's archive, and begin with the same bytes. `broken` says why it is not complete.
///
/// # Errors
/// The file is something else, which the user must move, or the server does not answer.
pub fn take_up(
    client: &Client,
    path: &Path,
    remotes: &[Remote],
    broken: &Error,
    progress: &dyn Progress,
) -> Result<()> {
    let in_the_way = |why: &str| {
        let hint = format!("move {} away, then run the same command again", path.shown());
        Err(Error::damaged(format!("{broken}; {why}")).with_hint(hint))
    };
    let metadata = fs::symlink_metadata(path).map_err(|error| Error::io("read", path, &error))?;
    let Some(first) = remotes.first() else { return in_the_way("no server has it") };
    if !metadata.is_file() {
        return in_the_way("it is a link");
    }
    let length_bytes = metadata.len();
    if first.length_bytes.is_some_and(|length| length_bytes >= length) {
        return in_the_way("it is not the beginning of what the server has");
    }
    let file = open_file(path)?;
    let beginning = 0..length_bytes.min(BEGINNING_BYTES);
    if length_bytes > 0 && !client.sends_same(first, &beginning, progress, &mut holds(&file))? {
        return in_the_way("the server's archive begins in another way");
    }
    PartialFile::take_up(path, length_bytes)?;
    progress.warn(&format!("{}: cut off after {}, goes on from there", path.shown(), bytes(length_bytes)));
    Ok(())
}
