//! Presents the state of a stopped validator as a full archive: an uncompressed tar that is made
//! from the storages while it is read, and never written to disk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotpress_base::{Progress, Result};
use slotpress_format::{ArchiveCompression, FrameSpan};
use slotpress_read::{ArchiveInput, Plan, Source};

use super::{ArchiveOptions, HeldLedger, open_snapshot, plan_snapshot};

/// Opens the state that `options` would archive, for commands that read archives. Ignores codec,
/// frames and base slot. The ledger stays locked until the last clone of the result is dropped.
///
/// # Errors
/// The ledger is in use, or its bank snapshot is not complete or not valid.
pub fn ledger_as_archive(options: &ArchiveOptions, progress: &dyn Progress) -> Result<ArchiveInput> {
    let (snapshot, held) = open_snapshot(options, progress)?;
    let plan = plan_snapshot(snapshot, None, options, progress)?;
    let name = plan.bank.archive_name(None, ArchiveCompression::None);
    let ends = plan.entry_lengths().scan(0u64, |end, length| {
        *end = end.saturating_add(length);
        Some(*end)
    });
    let source = LedgerSource { ends: ends.collect(), plan, path: options.paths.ledger.clone(), _held: held };
    Ok(ArchiveInput::from_source(Arc::new(source), Some(name)))
}

#[derive(Debug)]
struct LedgerSource {
    plan: Plan,
    /// Offset at which each entry ends in the tar: 3.4 MB for mainnet's 430,000 storages.
    ends: Vec<u64>,
    path: PathBuf,
    _held: HeldLedger,
}

impl Source for LedgerSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn length_bytes(&self) -> Option<u64> {
        self.ends.last().copied()
    }

    fn read_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        let index = self.ends.partition_point(|end| *end <= offset_bytes);
        let start = index.checked_sub(1).and_then(|previous| self.ends.get(previous)).copied().unwrap_or_default();
        let remaining_bytes = self.length_bytes().unwrap_or_default().saturating_sub(offset_bytes);
        let length_bytes = remaining_bytes.min(buf.len() as u64);
        let span =
            FrameSpan { first_entry: index as u64, offset_bytes: offset_bytes.saturating_sub(start), length_bytes };
        let buf = buf.split_at_mut(length_bytes as usize).0;
        self.plan.fill(&span, buf).map_err(io::Error::other)?;
        Ok(buf.len())
    }
}
