//! Tells what a run would publish.

use std::time::Instant;

use slotpress_base::{Progress, Result};
use slotpress_format::ArchiveName;
use slotpress_net::Client;
use slotpress_read::scan_names;
use slotpress_stores::Store;

use super::PublishOptions;
use super::act::index::IndexedStore;
use super::act::pins::check_dirs;
use super::act::rebasing;
use super::act::target::{TargetContents, read_genesis};
use super::decide::{Facts, State};

/// Lists the archives that a run would publish first, each with its targets. Changes nothing.
///
/// # Errors
/// If a directory or a target cannot be read.
#[doc(hidden)]
pub fn preview(options: &PublishOptions, progress: &dyn Progress) -> Result<Vec<(ArchiveName, Vec<String>)>> {
    let mut state = State::new(options, Instant::now());
    let seen = scan_names(&options.validator_dirs())?.archives().to_vec();
    state.see(Facts { seen, ..Facts::none(Instant::now()) });
    let client = Client::new(&options.client)?;
    check_dirs(options)?;
    rebasing::check_settings(options)?;
    options.genesis.as_deref().map(read_genesis).transpose()?;
    for (at, target) in options.targets.iter().enumerate() {
        let store = Store::open(target, &options.stores, &client)?;
        let index = IndexedStore::of(&store, "", false)?.map(|there| there.read(progress)).transpose()?;
        let published = index.map(|index| index.published()).unwrap_or_default();
        state.answered(at, Ok(TargetContents { published, ..TargetContents::default() }), false);
    }
    Ok(state.forecast())
}
