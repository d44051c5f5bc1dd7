//! Downloads from a server that does not send ranges, such as Agave's: over one connection, from the
//! beginning, into an empty file.

use slotpress_base::quantity::bytes;
use slotpress_base::{Error, Progress, Result, hint, panic_point, saturating_add_to, split_at_most, to_usize};

use super::Download;
use super::mirrors::Mirror;
use crate::{NetError, NetErrorKind, Remote};

/// Number of new bytes that are marked at once. Readers see only marked bytes.
const MARK_BYTES: u64 = 256 * 1024;

impl Download {
    pub(super) fn fetch_in_order(&self, mirror: &Mirror, progress: &dyn Progress) -> Result<()> {
        let client = &self.client;
        let file = &self.file;
        let max_bytes = self.limits.max_bytes;
        // Bytes before this offset are marked, so readers may have seen them.
        let mut marked_bytes = 0u64;
        let end_bytes = mirror.retry(progress, || {
            let mut body = client.open(&mirror.remote, None, progress)?;
            let mut end = 0u64;
            let mut new_bytes = 0;
            while let Some(bytes) = body.next(client, progress)? {
                panic_point("whole file");
                let start = end;
                saturating_add_to(&mut end, bytes.len() as u64);
                if end > max_bytes {
                    return Err(too_long_error(&mirror.remote, max_bytes));
                }
                let (known, new) = split_at_most(&bytes, to_usize(marked_bytes.saturating_sub(start)));
                if !file.has_bytes(start, known) {
                    let why = "the server now sends a different archive under the same name";
                    return Err(NetError::new(NetErrorKind::Changed, &mirror.remote.url, why).into());
                }
                let written_bytes = file.write(start.saturating_add(known.len() as u64), new)?;
                mirror.record_bytes(written_bytes, &mut new_bytes);
                progress.advance(written_bytes, written_bytes);
                if end.saturating_sub(marked_bytes) >= MARK_BYTES {
                    file.mark(marked_bytes..end);
                    marked_bytes = end;
                }
            }
            if end > marked_bytes {
                file.mark(marked_bytes..end);
                marked_bytes = end;
            }
            Ok(end)
        })?;
        // An earlier attempt that was cut short may have written more bytes.
        file.truncate(end_bytes)?;
        if end_bytes < marked_bytes {
            let why = "the server now sends a shorter archive under the same name";
            return Err(NetError::new(NetErrorKind::Changed, &mirror.remote.url, why).into());
        }
        Ok(())
    }
}

/// Returns the error for an archive that is longer than the operator allows. The error blames the server,
/// because another source may have a shorter archive.
pub fn too_long_error(remote: &Remote, max_bytes: u64) -> Error {
    let limit = bytes(max_bytes);
    let why = match remote.length_bytes {
        Some(length) if length > max_bytes => {
            format!("the archive has {}, more than the limit of {limit}", bytes(length))
        }
        _ => format!("the archive is longer than the limit of {limit}"),
    };
    let error = NetError::new(NetErrorKind::TooLong, &remote.url, why);
    Error::failed(error.to_string()).with_hint(hint::RAISE_MAX_BYTES).with_cause(error)
}
