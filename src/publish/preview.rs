//! What a run would do first: nothing is made or changed.

use slotpress_base::{Progress, Result};
use slotpress_format::ArchiveName;
use slotpress_net::Client;
use slotpress_read::scan_names;
use slotpress_stores::Store;

use super::plan::{Situation, Wishes, key};
use super::shelf::Shelf;
use super::{PublishOptions, genesis, places};

/// What a run would do first: what it would pin, check and publish, to which targets.
///
/// # Errors
/// A directory or a target cannot be read.
pub fn preview(options: &PublishOptions, progress: &dyn Progress) -> Result<Vec<(ArchiveName, Vec<String>)>> {
    let seen = scan_names(std::slice::from_ref(&options.snapshots))?.archives().to_vec();
    let (mut now, client) = (Situation { seen, ..Situation::default() }, Client::new(&options.client)?);
    places::check(options)?;
    options.genesis.as_deref().map(genesis::read).transpose()?;
    for target in &options.targets {
        let store = Store::open(target, &options.stores, &client)?;
        let shelf = Shelf::of(&store, None, false)?;
        let index = shelf.map(|shelf| shelf.read(progress)).transpose()?;
        now.targets.push(index.map(|index| index.published()).unwrap_or_default());
    }
    let (wishes, mut first) = (Wishes::default(), Vec::new());
    while let Some(archive) = now.next_to_prepare(&wishes) {
        let wanting = now.targets.iter_mut().zip(&options.targets).filter(|(target, _)| target.wants(&archive.name));
        let wanting = wanting.map(|(target, at)| {
            target.keys.insert(key(&archive.name));
            at.to_string()
        });
        first.push((archive.name.clone(), wanting.collect()));
    }
    Ok(first)
}
