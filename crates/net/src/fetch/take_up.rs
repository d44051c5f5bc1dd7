//! Archives that another program has left unfinished under their final names, as an interrupted `curl` does.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use slotpress_base::quantity::bytes;
use slotpress_base::{Error, Progress, Result, ShowPath};

use super::partial::PartialFile;
use crate::{Client, Remote};

/// So much of a file's beginning is compared with what a server has.
const BEGINNING_BYTES: u64 = 64 * 1024;

/// Takes up what another program has left of an archive under its final name: it becomes the partial file. It must be
/// shorter than what the first of the servers has, and begin in the same way; `broken` says why it is no archive.
///
/// # Errors
/// It is something else, which the user has to move; or the server cannot be asked.
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
    if length_bytes > 0 && !begins_alike(client, path, length_bytes, first, progress)? {
        return in_the_way("the server's archive begins in another way");
    }
    PartialFile::take_up(path, length_bytes)?;
    progress.warn(&format!("{}: cut off after {}, goes on from there", path.shown(), bytes(length_bytes)));
    Ok(())
}

fn begins_alike(
    client: &Client,
    path: &Path,
    length_bytes: u64,
    remote: &Remote,
    progress: &dyn Progress,
) -> Result<bool> {
    use std::os::unix::fs::FileExt;
    let file = slotpress_base::files::open_file(path)?;
    let end = length_bytes.min(BEGINNING_BYTES);
    let (mut is_same, mut at) = (true, 0u64);
    let mut buffer = Vec::new();
    let range = Some(0..end).filter(|_| remote.accepts_ranges);
    client.get(remote, range, progress, &mut |offset_bytes, bytes| {
        let left = slotpress_base::bytes::to_usize(end.saturating_sub(offset_bytes));
        let bytes = bytes.get(..left.min(bytes.len())).unwrap_or_default();
        buffer.resize(bytes.len(), 0);
        is_same &= file.read_exact_at(&mut buffer, offset_bytes).is_ok() && buffer == bytes;
        at = offset_bytes.saturating_add(bytes.len() as u64);
        if is_same && at < end { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(is_same && at == end)
}
