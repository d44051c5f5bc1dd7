//! Archives in formats that Agave does not read: from what was unpacked, one is made that it does.

use std::collections::HashMap;
use std::ops::Range;

use slotpress_base::Result;
use slotpress_format::StorageFile;
use slotpress_read::{Plan, Unpublished};

use crate::archive::sink::OpenSink;
use crate::archive::{ArchiveOptions, write_planned};
use crate::restore::assign::AssignedStorage;
use crate::restore::place::PartialDir;
use crate::restore::unpack::Unpacked;
use crate::restore::{RestoreTarget, Run, unpacked_snapshot};

pub struct Part {
    pub unpacked: Unpacked,
    pub bank_snapshot: PartialDir,
    /// Numbers of its storages.
    pub storages: Range<usize>,
}

impl Run<'_> {
    /// Makes an archive of a part, still without its name.
    pub fn make_archive(self, part: &Part, storages: &[AssignedStorage], roots: &[PartialDir]) -> Result<Unpublished> {
        slotpress_base::threads::panic_point("making the archive");
        let RestoreTarget { threads, io_policy, .. } = self.options;
        let snapshot = unpacked_snapshot(part.unpacked.bank.slot, &part.bank_snapshot, roots, *threads)?;
        let own = storages.get(part.storages.clone()).unwrap_or_default().iter();
        let ids: HashMap<(u64, u32), u32> =
            own.map(|storage| ((storage.slot, storage.id), storage.archive_id)).collect();
        let id_of = |file: &StorageFile| ids.get(&(file.slot, file.id)).copied();
        let plan = Plan::of_unpacked(part.unpacked.bank.clone(), snapshot, &id_of, io_policy.io_hint)?;
        self.progress.stage("Archiving", Some(plan.tar_bytes()));
        let options = ArchiveOptions::new(self.target.ledger.path()).threads(*threads).io_policy(io_policy.clone());
        let file = Unpublished::create_in(&self.target.snapshots_dir)?;
        write_planned(&plan, &options, *threads, &mut OpenSink::Unnamed(&file), self.progress)?;
        Ok(file)
    }
}
