//! Decides whether a file may have an archive's name. It is the only place that decides this, no
//! matter how the bytes arrived: by ranges, in one stream, or as a complete file.
//!
//! An accepted archive was read to its end, matches its name as far as can be told without
//! unpacking, matches its frame hashes, and is the requested one. The content is checked by
//! `restore` and `verify`.

use std::ops::Range;
use std::path::Path;

use slotpress_base::{Error, EscapePath, Progress, Result, Stage};
use slotpress_format::{ArchiveName, Root};
use slotpress_read::archive::tail::check_hashes;
use slotpress_read::{ArchiveShape, LocalFile, Source, Tail, walk_shape};

/// Proof that an archive was accepted. Only [`accept`] creates one.
#[derive(Clone, Copy, Debug)]
pub struct Accepted {
    pub root: Option<Root>,
}

/// Accepts an archive that was read to its end, if it has the requested name and root. Skips the frames
/// in the first `compared_bytes`, whose hashes have been compared already, and reports the bytes of the
/// other frames as progress.
///
/// # Errors
/// Kind [`Damaged`](slotpress_base::ErrorKind::Damaged) if the archive is damaged, or not the requested one.
pub fn accept(
    source: &dyn Source,
    shape: &ArchiveShape,
    name: &str,
    expected_root: Option<Root>,
    compared_bytes: u64,
    progress: &dyn Progress,
) -> Result<Accepted> {
    let wrong = |why: String| Err(Error::damaged(why).with_hint("fetch it from another source"));
    if let Some(length_bytes) = source.length_bytes()
        && length_bytes != shape.length_bytes
    {
        return wrong(format!("the archive ends after {} of {length_bytes} bytes", shape.length_bytes));
    }
    let compression = shape.compression;
    if let Some(name) = ArchiveName::parse(name)
        && name.compression != compression
    {
        let extension = compression.extension();
        let named = name.compression.extension();
        return wrong(format!("the archive is a .{extension}, and its name says .{named}"));
    }
    let tail = Tail::read(source)?;
    let root = tail.as_ref().and_then(|tail| Some(tail.hashes.as_ref()?.root));
    // The end of the archive leads to the hashes: if it is damaged, nothing would be compared.
    if shape.has_hashes && root.is_none() {
        return wrong("the archive has frame hashes, but its end, which leads to them, is damaged".to_string());
    }
    if let Some(why) = root_mismatch(expected_root, root) {
        return wrong(why);
    }
    if let Some(tail) = tail {
        let is_compared = |range: &Range<u64>| range.end <= compared_bytes;
        check_hashes(source, &tail, &is_compared, progress)?;
    }
    Ok(Accepted { root })
}

/// Explains why an archive with this root is not the expected one; `None` if it is.
pub fn root_mismatch(expected: Option<Root>, root: Option<Root>) -> Option<String> {
    match (expected?, root) {
        (expected, Some(root)) if root == expected => None,
        (expected, Some(root)) => Some(format!("not the archive of root {expected}: its root is {root}")),
        (expected, None) => Some(format!("not the archive of root {expected}: it has no frame hashes")),
    }
}

/// Checks a file that already has an archive's name.
///
/// # Errors
/// See [`accept`]; or the file cannot be read.
pub fn accept_file(path: &Path, root: Option<Root>, progress: &dyn Progress) -> Result<Accepted> {
    let accepted = || {
        let source = LocalFile::open(path)?;
        progress.stage(Stage::Checking, source.length_bytes());
        let shape = walk_shape(&source, progress)?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        accept(&source, &shape, name, root, 0, progress)
    };
    accepted().map_err(|error| error.within_damaged(path.escaped()))
}
