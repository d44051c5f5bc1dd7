//! What a run would publish.

use slotpress_base::{Progress, Result};
use slotpress_format::ArchiveName;
use slotpress_net::Client;
use slotpress_read::scan_names;
use slotpress_stores::Store;

use super::PublishOptions;
use super::act::index::IndexedStore;
use super::act::pins::check_dirs;
use super::act::rebasing;
use super::act::target::read_genesis;
use super::decide::choose::{ArchiveSet, PlanOptions, Situation, key};

/// Lists the archives that a run would publish first, each with its targets. Changes nothing.
///
/// # Errors
/// If a directory or a target cannot be read.
pub fn preview(options: &PublishOptions, progress: &dyn Progress) -> Result<Vec<(ArchiveName, Vec<String>)>> {
    let seen = scan_names(&options.validator_dirs())?.archives().to_vec();
    let mut now = Situation { seen, ..Situation::default() };
    let client = Client::new(&options.client)?;
    check_dirs(options)?;
    rebasing::check_settings(options)?;
    options.genesis.as_deref().map(read_genesis).transpose()?;
    for target in &options.targets {
        let store = Store::open(target, &options.stores, &client)?;
        let index = IndexedStore::of(&store, "", false)?.map(|there| there.read(progress)).transpose()?;
        let published = index.map(|index| index.published()).unwrap_or_default();
        now.targets.push(ArchiveSet { is_dir: store.dir().is_some(), ..published });
    }
    let mut first = Vec::new();
    while let Some(archive) = now.next_to_prepare(&PlanOptions::default()) {
        let wanting = now.targets.iter_mut().zip(&options.targets).filter(|(has, _)| has.wants(&archive.name));
        let wanting = wanting.map(|(has, target)| {
            has.keys.insert(key(&archive.name));
            target.to_string()
        });
        first.push((archive.name.clone(), wanting.collect()));
    }
    let plan_options = PlanOptions { rebase_onto: options.rebase_onto, ..PlanOptions::default() };
    for rebased in now.to_rebase(&plan_options).iter().rev() {
        let all = now.targets.iter().zip(&options.targets);
        let wanting = all.filter(|(has, _)| has.lacked_rebased(options.rebase_onto).contains(rebased));
        first.push((rebasing::name_of(rebased, options), wanting.map(|(_, target)| target.to_string()).collect()));
    }
    Ok(first)
}
