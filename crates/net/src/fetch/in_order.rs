//! Downloads from a server that does not send ranges, such as Agave's: always from the beginning,
//! over one connection.
//!
//! Bytes of an earlier run or attempt are compared with those that arrive, and only differing ones
//! are written. So no byte of another archive stays, and readers see only bytes that the server
//! sent in this run.

use std::ops::ControlFlow;

use slotpress_base::bytes::count;
use slotpress_base::quantity::bytes;
use slotpress_base::{Error, Hint, Progress, Result, split_at_most, to_usize};

use super::Download;
use super::lease::Lease;
use super::mirrors::Mirror;
use crate::{NetError, NetErrorKind, Remote};

/// Number of bytes after which readers are woken.
const MARK_BYTES: u64 = 256 * 1024;

impl Download {
    pub(super) fn fetch_in_order(&self, mirror: &Mirror, progress: &dyn Progress) -> Result<()> {
        let Self { client, file, limits, .. } = self;
        let lease = file.lease(0..u64::MAX, &mirror.shown());
        let mut buffer = Vec::new();
        // How far readers may have read, and how far the longest attempt has come.
        let (mut shown_bytes, mut most_bytes) = (0, 0u64);
        let mut trouble = None;
        let transfer = mirror.ask(progress, || {
            let (mut marked_bytes, mut tally) = (0u64, mirror.tally());
            let transfer = client.get(&mirror.remote, None, progress, &mut |offset_bytes, bytes| {
                let end = offset_bytes.saturating_add(bytes.len() as u64);
                let written = match end > limits.max_bytes {
                    true => Err(too_long(&mirror.remote, limits.max_bytes)),
                    false => put(&lease, mirror, offset_bytes, bytes, shown_bytes, &mut buffer),
                };
                if let Err(error) = written {
                    trouble = Some(error);
                    return ControlFlow::Break(());
                }
                if end.saturating_sub(marked_bytes) >= MARK_BYTES {
                    file.mark(marked_bytes..end);
                    marked_bytes = end;
                }
                // Bytes that an earlier attempt brought do not count as progress.
                let new = end.saturating_sub(most_bytes);
                most_bytes = most_bytes.max(end);
                tally.gave(new);
                progress.advance(new, new);
                shown_bytes = shown_bytes.max(marked_bytes);
                ControlFlow::Continue(())
            });
            tally.end();
            if let (None, Ok(transfer)) = (&trouble, &transfer) {
                file.mark(marked_bytes..transfer.got_bytes);
            }
            transfer
        });
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
        let transfer = transfer?;
        if !transfer.is_complete {
            let got_bytes = transfer.got_bytes;
            let length = mirror.remote.length_bytes.map_or(String::new(), |length| format!(" of {}", bytes(length)));
            let why = format!("the transfer was ended after {}{length}", bytes(got_bytes));
            return Err(NetError::new(NetErrorKind::Truncated { got_bytes }, &mirror.remote.url, why).into());
        }
        // Bytes of an earlier run beyond the end belong to another archive.
        file.forget_from(transfer.got_bytes)?;
        file.truncate(transfer.got_bytes)
    }
}

/// Writes bytes where they differ from those in the file.
///
/// # Errors
/// Readers may have seen other bytes at this place (before `shown_bytes`).
fn put(
    lease: &Lease<'_>,
    mirror: &Mirror,
    offset_bytes: u64,
    bytes: &[u8],
    shown_bytes: u64,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    slotpress_base::threads::panic_point("whole file");
    let file = lease.file();
    let (mut at, mut bytes) = (offset_bytes, bytes);
    // What an earlier run left may have gaps.
    while !bytes.is_empty() {
        let (kept, _) = split_at_most(bytes, to_usize(file.kept_from(at)));
        let same = file.compare(at, kept, buffer)?;
        count(&mut at, same as u64);
        bytes = split_at_most(bytes, same).1;
        if same < kept.len() {
            if at < shown_bytes {
                let why = format!("sends another archive under the same name now: byte {at} differs");
                return Err(NetError::new(NetErrorKind::Changed, &mirror.remote.url, why).into());
            }
            file.forget_from(at)?;
        }
        let (missing, rest) = split_at_most(bytes, to_usize(file.missing_from(at)));
        lease.put(at, missing)?;
        count(&mut at, missing.len() as u64);
        bytes = rest;
    }
    Ok(())
}

/// Error for an archive that is longer than the operator allows. It counts as a fault of the
/// server, since another source may have a shorter archive.
pub fn too_long(remote: &Remote, max_bytes: u64) -> Error {
    let limit = bytes(max_bytes);
    let why = match remote.length_bytes {
        Some(length) if length > max_bytes => {
            format!("the archive has {}, more than the limit of {limit}", bytes(length))
        }
        _ => format!("the archive is longer than the limit of {limit}"),
    };
    let error = NetError::new(NetErrorKind::TooLong, &remote.url, why);
    Error::failed(error.to_string()).with_hint(Hint::RaiseMaxBytes).caused_by(error)
}
