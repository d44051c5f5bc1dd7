//! Makes a zstd archive from the unpacked files, if Agave does not read the compression of the
//! archive that was restored.

use std::collections::HashMap;

use slotpress_base::Result;
use slotpress_format::StorageFile;
use slotpress_format::ledger::names::Extension;
use slotpress_read::{Plan, Unpublished};

use crate::archive::encoding::EncodingOptions;
use crate::archive::sink::OpenSink;
use crate::archive::write_planned;
use crate::restore::assign::AssignedStorage;
use crate::restore::copies::ArchiveCopy;
use crate::restore::input::Opened;
use crate::restore::place::PartialDir;
use crate::restore::unpack::Unpacked;
use crate::restore::{RestoreTarget, Run};

impl Run<'_> {
    /// Makes a zstd archive, if Agave does not read the compression of the one that was restored.
    /// Returns the new archive, which has no name yet, or else the restored one; and the extension
    /// for its name.
    pub fn make(
        self,
        opened: Opened,
        one: &Unpacked,
        storages: &[AssignedStorage],
        roots: &[PartialDir],
    ) -> Result<(Opened, Extension)> {
        let extension = opened.archive.compression.extension();
        Ok(match opened.way {
            ArchiveCopy::ToMake(download) => {
                let made = self.make_archive(one, storages, roots)?;
                (Opened { way: ArchiveCopy::Made(made, download), ..opened }, Extension::TarZstd)
            }
            _ => (opened, extension),
        })
    }

    fn make_archive(self, one: &Unpacked, storages: &[AssignedStorage], roots: &[PartialDir]) -> Result<Unpublished> {
        slotpress_base::threads::panic_point("making the archive");
        let RestoreTarget { threads, io_policy, .. } = self.options;
        let snapshot = one.snapshot(roots, *threads)?;
        let own = storages.get(one.storages.clone()).unwrap_or_default().iter();
        let ids: HashMap<(u64, u32), u32> =
            own.map(|storage| ((storage.slot, storage.id), storage.archive_id)).collect();
        let id_of = |file: &StorageFile| ids.get(&(file.slot, file.id)).copied();
        let plan = Plan::of_unpacked(one.bank.clone(), snapshot, &id_of, io_policy.io_hint)?;
        self.progress.stage("Archiving", Some(plan.tar_bytes()));
        let encoding = EncodingOptions::default().threads(*threads).io_policy(io_policy.clone());
        let file = Unpublished::create_in(&self.target.snapshots_dir)?;
        write_planned(&plan, &encoding, *threads, &mut OpenSink::Unnamed(&file), self.progress)?;
        Ok(file)
    }
}
