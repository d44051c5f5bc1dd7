//! Makes rebased archives, with which nodes get from an older full archive of a target to the state
//! of its newest one. Works at the lowest priority, because nobody waits for it.

use slotpress_base::{CancelToken, Error, NICENESS_MAX, Result, panic_point, stand_back};
use slotpress_format::ArchiveName;
use slotpress_read::NamedArchive;
use slotpress_stores::{Store, Target};

use super::Run;
use super::index::IndexedStore;
use crate::archive::sink::Sink;
use crate::publish::PublishOptions;
use crate::publish::decide::choose::Key;
use crate::rebase::{RebaseInput, RebaseOptions, rebase};

/// Checks the settings for rebasing.
pub fn check_settings(options: &PublishOptions) -> Result<()> {
    let (onto, kept) = (options.rebase_onto, options.keep.rebased);
    if onto > kept {
        // Archives that are pruned would be made again.
        let message = format!("{onto} rebased archives are to be made of a full one, but only {kept} stay");
        return Err(Error::usage(message).with_hint("keep as many as are made"));
    }
    if onto > 0 && !options.targets.iter().any(|target| matches!(target, Target::Dir(_))) {
        let message = "nothing can be rebased: both full archives are read twice, and no target is a directory";
        return Err(Error::usage(message).with_hint("add a directory as a target: what is made there goes to all"));
    }
    Ok(())
}

pub fn name_of(&(base_slot, slot, hash): &Key, options: &PublishOptions) -> ArchiveName {
    ArchiveName { base_slot, slot, hash, extension: options.recompress.encoding.codec.extension() }
}

/// Makes a rebased archive from two full archives of a target, and puts it into `ready/`.
pub fn make(name: &ArchiveName, run: &Run<'_>, target: &Target, cancel: &CancelToken) -> Result<()> {
    panic_point("rebasing");
    if let Err(error) = stand_back(NICENESS_MAX) {
        run.progress.warn(&format!("cannot lower the priority for rebasing: {error}"));
    }
    let (progress, options) = (&cancel.with(run.progress), run.options);
    let gone = || Error::failed(format!("its full archives are not in {target} any more"));
    let store = Store::open(target, &options.stores, &run.client)?;
    let index = IndexedStore::of(&store, false)?.ok_or_else(gone)?.read(progress)?;
    let open = |is_it: &dyn Fn(&Key) -> bool| {
        let name = index.find(is_it).ok_or_else(gone)?;
        let source = store.open_source(&name.to_string(), cancel.clone())?;
        Ok::<_, Error>(NamedArchive::from_source(source, Some(name.clone())))
    };
    let new = open(&|key| *key == (None, name.slot, name.hash))?;
    let onto = open(&|(base, slot, _)| base.is_none() && Some(*slot) == name.base_slot)?;
    let recompress = &options.recompress;
    let how = RebaseOptions::default().encoding(recompress.encoding.clone()).check(recompress.check.clone());
    let file = run.pins.new_ready()?;
    let input = RebaseInput { new: &new, incremental: None, onto: &onto };
    let made = rebase(input, Sink::unnamed(&file), &how, progress)?;
    file.publish(&made.name.to_string(), true).map(drop)
}
