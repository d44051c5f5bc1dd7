//! An archive, until it has its name: as many attempts as make sense, and what others have left under the name already.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotpress_base::quantity::bytes;
use slotpress_base::{Error, ErrorKind, Progress, Result, ShowPath};
use slotpress_read::Publishable;

use super::partial::PartialFile;
use super::{Download, Ended, Fetched, Limits};
use crate::{Client, Remote, shown};

/// Attempts at one archive: more do not help where it is published again and again, or damaged everywhere.
const ATTEMPTS_MAX: usize = 4;

/// So much of a file's beginning is compared with what a server has.
const BEGINNING_BYTES: u64 = 64 * 1024;

/// Fetches an archive into a directory and gives it its name. `on_begin` is told of each attempt.
///
/// An attempt follows another where a server turns out to send no ranges, where the archive was published again with
/// other bytes, where bytes of an earlier run may be what is wrong, and where the first server fails and there are more.
pub fn fetch_whole(
    client: &Client,
    dir: &Path,
    name: &str,
    mut remotes: Vec<Remote>,
    limits: &Limits,
    progress: &dyn Progress,
    on_begin: &mut dyn FnMut(&Download),
) -> Result<(PathBuf, Fetched), Ended> {
    for attempt in 1.. {
        let file = Arc::new(PartialFile::open(dir, name).map_err(Ended::Failed)?);
        let had_bytes = file.done_bytes() > 0;
        let (mut given_bytes, mut rejected) = (0, Vec::new());
        let first = remotes.first().map(|remote| remote.url.clone());
        let began = Download::begin(client.clone(), file.clone(), remotes.clone(), limits.clone(), progress);
        let fetched = began.and_then(|download| {
            on_begin(&download);
            let fetched = download.run(progress);
            (given_bytes, rejected) = (download.given_bytes(), download.rejected());
            fetched
        });
        let ended = match fetched.and_then(|fetched| Ok((file.publish(name).map_err(Ended::Failed)?, fetched))) {
            Ok(done) => return Ok(done),
            Err(ended) => ended,
        };
        // It was said that these are not used any more.
        remotes.retain(|remote| !rejected.contains(&shown(&remote.url)));
        let has_more = attempt < ATTEMPTS_MAX && !progress.is_interrupted() && !remotes.is_empty();
        let error = ended.error();
        match ended {
            Ended::NoRanges if has_more => remotes.iter_mut().for_each(|remote| remote.accepts_ranges = false),
            // What is wrong may have come from another server, in an earlier run.
            Ended::Wrong(_) if has_more && had_bytes && given_bytes < file.done_bytes() => {
                progress.warn(&format!("{error}: an earlier run may have fetched what is wrong"));
            }
            Ended::Wrong(_) | Ended::Failed(_) | Ended::First(_)
                if has_more
                    && is_of_servers(&error)
                    && remotes.iter().any(|remote| Some(&remote.url) != first.as_ref()) =>
            {
                remotes.retain(|remote| Some(&remote.url) != first.as_ref());
                progress.warn(&format!("{error}: the next server is asked"));
            }
            Ended::Lost(_) if has_more => {
                let again = heads(client, &remotes, name, progress);
                // What is gone everywhere is not to be had; what is unchanged was lost for another reason.
                let is_as_before =
                    again.len() == remotes.len() && again.iter().zip(&remotes).all(|(now, before)| now.is_as(before));
                if again.is_empty() || is_as_before {
                    return Err(ended);
                }
                remotes = again;
                progress.warn(&format!("{error}: beginning again with what is there now"));
            }
            Ended::Wrong(_) => {
                if file.done_bytes() == 0 {
                    drop(file.remove());
                }
                return Err(ended);
            }
            _ => return Err(ended),
        }
    }
    Err(Ended::Failed(Error::failed("no server to fetch from")))
}

fn is_of_servers(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Network | ErrorKind::Damaged)
}

/// What servers have of this name now. Those that do not answer, or have another name there, are left out.
fn heads(client: &Client, remotes: &[Remote], name: &str, progress: &dyn Progress) -> Vec<Remote> {
    let heads = remotes.iter().filter_map(|remote| client.head(&remote.asked, progress).ok());
    heads.filter(|remote| remote.file_name == name).collect()
}

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
