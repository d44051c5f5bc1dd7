//! Decides whether a file may get an archive's final name. Every file is judged here, whether its bytes
//! arrived by ranges, in one stream, or as a complete file.
//!
//! An accepted archive was read to its end, has the compression that its name states, matches its frame
//! hashes (if it has any), and has the expected root. `restore` and `verify` check its slot, hash and content.

use std::ops::Range;
use std::path::Path;

use slotpress_base::{Error, EscapePath, Progress, Result, Stage};
use slotpress_format::{ArchiveName, ArchiveRoot};
use slotpress_read::archive::tail::check_hashes;
use slotpress_read::{ArchiveShape, LocalFile, Source, Tail, walk_shape};

/// Accepts an archive that was read to its end if its compression matches its name, its root is the expected
/// root, and its frames match their hashes. Skips the frames in the first `compared_bytes`, which have been
/// compared already. Reports the bytes of the other frames as progress. Returns the archive's root.
///
/// # Errors
/// Kind [`Damaged`](slotpress_base::ErrorKind::Damaged) if the archive is damaged, or is not the expected one.
/// Other kinds if the source cannot be read, or `progress` is interrupted.
pub fn accept(
    source: &dyn Source,
    shape: &ArchiveShape,
    name: &str,
    expected_root: Option<ArchiveRoot>,
    compared_bytes: u64,
    progress: &dyn Progress,
) -> Result<Option<ArchiveRoot>> {
    let rejection = |why: String| Error::damaged(why).with_hint("fetch it from another source");
    if let Some(length_bytes) = source.length_bytes()
        && length_bytes != shape.length_bytes
    {
        return Err(rejection(format!("the archive ends after {} of {length_bytes} bytes", shape.length_bytes)));
    }
    let compression = shape.compression;
    if let Some(name) = ArchiveName::parse(name)
        && name.compression != compression
    {
        let extension = compression.extension();
        let named_extension = name.compression.extension();
        return Err(rejection(format!("the archive is a .{extension}, but its name says .{named_extension}")));
    }
    let tail = Tail::read(source)?;
    let root = tail.as_ref().and_then(|tail| Some(tail.hashes.as_ref()?.root));
    // The end of the archive says where the hashes are. If the end is damaged, no frame can be compared.
    if shape.has_hashes && root.is_none() {
        return Err(rejection(
            "the archive has frame hashes, but its end, which leads to them, is damaged".to_string(),
        ));
    }
    if let Some(why) = root_mismatch(expected_root, root) {
        return Err(rejection(why));
    }
    if let Some(tail) = tail {
        let is_compared = |range: &Range<u64>| range.end <= compared_bytes;
        check_hashes(source, &tail, &is_compared, progress)?;
    }
    Ok(root)
}

/// Explains why an archive with this root is not the expected archive; `None` if it is.
pub fn root_mismatch(expected: Option<ArchiveRoot>, root: Option<ArchiveRoot>) -> Option<String> {
    match (expected?, root) {
        (expected, Some(root)) if root == expected => None,
        (expected, Some(root)) => Some(format!("not the archive with root {expected}: its root is {root}")),
        (expected, None) => Some(format!("not the archive with root {expected}: it has no frame hashes")),
    }
}

/// Checks a file that already has an archive's name, and returns its root.
///
/// # Errors
/// Those of [`accept`]; or the file cannot be read.
pub fn accept_file(
    path: &Path,
    expected_root: Option<ArchiveRoot>,
    progress: &dyn Progress,
) -> Result<Option<ArchiveRoot>> {
    let try_accept = || {
        let source = LocalFile::open(path)?;
        progress.stage(Stage::Checking, source.length_bytes());
        let shape = walk_shape(&source, progress)?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        accept(&source, &shape, name, expected_root, 0, progress)
    };
    try_accept().map_err(|error| error.with_place_if_damaged(path.escaped()))
}
