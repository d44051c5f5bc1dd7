//! The genesis of the cluster on a target, beside the archives: it is put there once, and never replaced.

use std::io::Read;
use std::path::Path;

use slotpress_base::{Error, ErrorKind, IoContext, IoHint, Progress, Result, ShowPath};
use slotpress_format::archive::genesis_archive::unpack;
use slotpress_format::{ARCHIVE_NAME, GENESIS_BYTES_MAX};
use slotpress_read::LocalFile;
use slotpress_read::archive::source::stream;
use slotpress_stores::{Condition, Metadata, Put, Store};

/// Reads an archive of a genesis.
///
/// # Errors
/// It cannot be read, or holds no genesis.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let (source, mut bytes) = (LocalFile::open(path)?, Vec::new());
    stream(&source, IoHint::Gentle).take(GENESIS_BYTES_MAX + 1).read_to_end(&mut bytes).or_path("read", path)?;
    unpack(&bytes).map_err(|error| {
        error.within(path.shown()).with_hint("give genesis.tar.bz2 of the validator's ledger directory")
    })?;
    Ok(bytes)
}

/// Puts it on a target that has none.
///
/// # Errors
/// The target has the genesis of another cluster, or fails.
pub fn put(store: &Store, archive: &[u8], progress: &dyn Progress) -> Result<()> {
    let metadata = Metadata::default().content_type("application/x-bzip2".to_string());
    let there = match store.get_small(ARCHIVE_NAME, GENESIS_BYTES_MAX, progress)? {
        None => match store.put_small(ARCHIVE_NAME, archive, &metadata, &Condition::Absent, progress)? {
            Put::Done(_) => return Ok(()),
            Put::Refused => store.get_small(ARCHIVE_NAME, GENESIS_BYTES_MAX, progress)?,
        },
        there => there,
    };
    // The same genesis may be packed otherwise.
    if there.is_some_and(|there| there.bytes == archive || unpack(&there.bytes).ok() == unpack(archive).ok()) {
        return Ok(());
    }
    let message = format!("{} is not the genesis that would be published", store.shown(ARCHIVE_NAME));
    Err(Error::new(ErrorKind::Exists, message)
        .with_hint("archives of another cluster may be there: give another target, or move that file away"))
}
