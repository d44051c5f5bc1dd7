//! Which archives may go: a plan without a look at the disk, and its execution.

use {
    super::{Archive, Catalog, scan},
    rustix::fs::{AtFlags, FileType},
    slotpress_base::error::{Error, Result},
    slotpress_base::text::ShowPath,
    std::{collections::BTreeSet, time::Duration},
};

/// What to keep.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// So many of the newest full archives.
    pub full: usize,
    /// So many of the newest incremental archives.
    pub incremental: usize,
    /// Whatever was modified since.
    pub within: Duration,
}

/// Why an archive stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// One of the newest.
    Newest,
    /// Modified a short while ago.
    Recent,
    /// An incremental archive that stays builds on it.
    Base,
    /// A node would choose it, or it is part of the newest pair.
    LastPair,
}

impl Reason {
    /// As JSON has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::Recent => "recent",
            Self::Base => "base",
            Self::LastPair => "last_pair",
        }
    }
}

/// For each archive of the catalog, in its order: why it stays; `None` for those that go.
///
/// Never goes: the full archive of an incremental one that stays; what a node would choose; the newest incremental archive
/// whose full one is here, and that one.
pub fn plan(catalog: &Catalog, keep: &Keep, now_ns: u64) -> Vec<Option<Reason>> {
    let archives = catalog.archives();
    let mut reasons = vec![None; archives.len()];
    // Incremental archives are ordered by base first: here their own slot counts.
    let newest = |is_full: bool, count: usize| {
        let mut numbers: Vec<usize> =
            (0..archives.len()).filter(|number| archives[*number].is_full() == is_full).collect();
        numbers.sort_by_cached_key(|number| archives[*number].order());
        numbers.truncate(count);
        numbers
    };
    for number in newest(true, keep.full).into_iter().chain(newest(false, keep.incremental)) {
        reasons[number] = Some(Reason::Newest);
    }
    let mut stay = |wanted: &dyn Fn(&Archive) -> bool, reason: Reason| {
        for (archive, kept) in archives.iter().zip(&mut reasons) {
            if kept.is_none() && wanted(archive) {
                *kept = Some(reason);
            }
        }
    };
    let is_recent = |archive: &Archive| !keep.within.is_zero() && archive.age(now_ns) <= keep.within;
    stay(&is_recent, Reason::Recent);
    if let Some(choice) = catalog.choice() {
        let names = [Some(&choice.full.name), choice.incremental.map(|archive| &archive.name)];
        stay(&|archive| names.contains(&Some(&archive.name)), Reason::LastPair);
    }
    let whole = archives.iter().filter(|archive| catalog.base_of(archive).is_some());
    if let Some(last) = whole.max_by_key(|archive| archive.name.slot) {
        stay(&|archive| archive.name == last.name, Reason::LastPair);
    }
    let bases: BTreeSet<u64> = archives
        .iter()
        .zip(&reasons)
        .filter(|(_, reason)| reason.is_some())
        .filter_map(|(archive, _)| archive.name.base_slot)
        .collect();
    for (archive, kept) in archives.iter().zip(&mut reasons) {
        if kept.is_none() && archive.is_full() && bases.contains(&archive.name.slot) {
            *kept = Some(Reason::Base);
        }
    }
    reasons
}

/// Removes a file that is still the one that was looked at.
///
/// # Errors
/// It is another file now, or the system refuses.
pub fn remove(archive: &Archive) -> Result<()> {
    let path = archive.path();
    let failed = |error: rustix::io::Errno| Error::io("remove", &path, &error.into());
    let name = archive.name.to_string();
    let parent = archive.open_parent().map_err(failed)?;
    let stat = match rustix::fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        // Somebody was faster.
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let is_same = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && scan::file_id(&stat) == archive.file_id
        && scan::modified_ns(&stat) == archive.modified_ns;
    if !is_same {
        return Err(Error::failed(format!("{} changed in the meantime, and was not removed", path.shown()))
            .hint("run the command again"));
    }
    rustix::fs::unlinkat(&parent, &name, AtFlags::empty()).map_err(failed)
}
