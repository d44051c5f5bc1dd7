//! Finds the candidates of a `fetch` or `bootstrap`: asks the sources, and looks for archives on this
//! node. This happens for a plan, before a run, and again after failures.

use slotpress_base::{ErrorKind, Progress, Result, quantity};
use slotpress_net::fetch::partial::kept_bytes;
use slotpress_net::find::{ExpectedState, Node, RefusedSource, find};
use slotpress_net::{Client, FindReport, Offer};

use super::fetch::FetchOptions;
use super::next::{Selection, only_local_error};
use super::{BootstrapOptions, bases};
use crate::restore::ExistingState;

/// Settings of a `fetch` or `bootstrap`.
pub struct FetchContext<'a> {
    pub client: &'a Client,
    pub progress: &'a dyn Progress,
    /// Sources, settings, and the directory for archives, which for `bootstrap` is the snapshots directory.
    pub options: FetchOptions,
    /// `None` for `fetch`, which checks complete downloads itself and gives them their names. For
    /// `bootstrap`, the restore does both.
    pub bootstrap: Option<&'a BootstrapOptions>,
    /// True if nothing is fetched: the candidates are only shown.
    pub is_plan: bool,
}

impl FetchContext<'_> {
    pub fn is_fetch(&self) -> bool {
        self.bootstrap.is_none()
    }

    /// Asks the sources for their archives, and looks for archives and partial files in the archives
    /// directory.
    ///
    /// # Errors
    /// No candidate has the expected state. No state is expected, and only this node has usable archives,
    /// although servers were asked.
    pub fn find_candidates(&self) -> Result<(FindReport, Selection)> {
        let progress = self.progress;
        let mut options = self.options.find.clone();
        // Ages are read from bank files for a plan, and if no server is asked. `find` always reads them
        // if there is a maximum age.
        let asks_servers = options.asks_cluster() || options.sources.iter().any(|source| source.url().is_some());
        options.read_bank_times |= self.is_plan || !asks_servers;
        // Local full archives are candidates too: they need not be fetched.
        let bases = self.bootstrap.map_or(&[][..], |bootstrap| &bootstrap.bases);
        let local_sources = bases::local_sources(&self.options.dir, bases)?;
        options.sources.extend(local_sources);
        let mut report = find(self.client, &options, progress)?;
        let mut node = Node::default();
        if let Some(bootstrap) = self.bootstrap {
            node.expected = ExpectedState::from_check(&bootstrap.target.check);
        }
        // A run that replaces a state moves newer archives aside, which would hide its own.
        let target = self.bootstrap.map(|bootstrap| &bootstrap.target);
        if target.is_none_or(|target| target.existing_state == ExistingState::Refuse) {
            let fulls = bases::full_archives_in(&self.options.dir);
            node.full_slots = fulls.iter().map(|name| name.slot).collect();
        }
        for offer in &report.ranking.offers {
            node.record_kept(&offer.name, kept_bytes(&self.options.dir, &offer.name.to_string()));
        }
        let mut selection = Selection { ranking: report.ranking.clone(), node, ..Selection::default() };
        if !self.is_fetch() {
            selection.exclude_unread_by_agave()?;
        }
        let all_candidates = std::mem::replace(&mut report.candidates, selection.candidates());
        let expected = selection.node.expected;
        if report.candidates.is_empty() && expected.is_set() && !all_candidates.is_empty() {
            return Err(expected.not_found_error(&all_candidates));
        }
        self.warn_of_unusable_sources(&report, expected)?;
        if let Some(abandoned) = &selection.abandoned {
            progress.warn(&format!("{}: it is passed over", abandoned.reason));
        }
        let age = report.candidates.first().and_then(|best| best.expected_age);
        if let Some(age) = age.filter(|age| *age > report.max_age) {
            let age = quantity::age(age);
            let limit = quantity::age(report.max_age);
            progress
                .warn(&format!("according to its bank file, the state will be {age} old at boot, more than {limit}"));
        }
        Ok((report, selection))
    }

    /// Warns of each server that the operator named and that has no usable archive.
    ///
    /// # Errors
    /// No server has an archive, and the operator did not ask for a certain state: the node's own
    /// archives may be too old.
    fn warn_of_unusable_sources(&self, report: &FindReport, expected: ExpectedState) -> Result<()> {
        // Without a candidate, another error lists the sources.
        let Some(best) = report.candidates.first() else { return Ok(()) };
        let offers = &report.ranking.offers;
        let mut refusals = Vec::new();
        let sources = self.options.find.sources.iter();
        for source in sources.filter(|source| source.url().is_some()) {
            let source = source.to_string();
            if !offers.iter().any(|offer| offer.source == source) {
                let refused = report.refused.iter().find(|refused| refused.source == source);
                refusals.extend(refused.map(RefusedSource::message));
            }
        }
        let asks_servers = !refusals.is_empty() || self.options.find.asks_cluster();
        let expects_root = match self.bootstrap {
            Some(bootstrap) => !bootstrap.expect_roots.is_empty(),
            None => self.options.expect_root.is_some(),
        };
        let has_expectation = expected.is_set() || expects_root;
        if asks_servers && !has_expectation && offers.iter().all(Offer::is_local) {
            let mut why = refusals.join("; ");
            if refusals.is_empty() {
                why = "no server has a usable snapshot".to_string();
            }
            return Err(only_local_error(best, &why, ErrorKind::Network));
        }
        for why in refusals {
            self.progress.warn(&format!("{why}: this source is passed over"));
        }
        Ok(())
    }
}
