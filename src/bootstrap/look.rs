//! Asks the sources what they have, and looks for archives on this node: for a plan, before a run,
//! and again after failures.

use std::path::Path;

use slotpress_base::{ErrorKind, Progress, Result, quantity};
use slotpress_net::fetch::partial::kept_bytes;
use slotpress_net::find::{Expected, Node, find};
use slotpress_net::{Client, FetchLimits, FindOptions, FindReport, Offer};

use super::next::{Selection, only_local_error};
use super::trust::Trust;
use super::{BootstrapOptions, bases};
use crate::restore::ExistingState;

/// Settings that `fetch` and `bootstrap` share.
pub struct FetchContext<'a> {
    pub client: &'a Client,
    pub progress: &'a dyn Progress,
    pub find: &'a FindOptions,
    pub limits: &'a FetchLimits,
    pub trust: Trust<'a>,
    pub dir: &'a Path,
    /// `None` for `fetch`: complete downloads are checked and get their names, which a restore
    /// does otherwise.
    pub bootstrap: Option<&'a BootstrapOptions>,
}

impl FetchContext<'_> {
    pub fn is_fetch(&self) -> bool {
        self.bootstrap.is_none()
    }

    /// Asks the sources for their archives, and looks for archives and partial files in the
    /// directory.
    pub fn look(&self, is_plan: bool) -> Result<(FindReport, Selection)> {
        let progress = self.progress;
        let mut options = self.find.clone();
        // Ages are read from bank files for a plan, and where that takes no request. For a maximum
        // age, `find` reads them anyway.
        let asks_servers = options.asks_cluster() || options.sources.iter().any(|source| source.url().is_some());
        options.read_bank_times |= is_plan || !asks_servers;
        // Local full archives are candidates too: they need not be fetched.
        let named = self.bootstrap.map_or(&[][..], |bootstrap| &bootstrap.bases);
        let local = bases::local_sources(self.dir, named)?;
        options.sources.extend(local);
        let mut report = find(self.client, &options, progress)?;
        let mut node = Node::default();
        if let Some(bootstrap) = self.bootstrap {
            node.expected = Expected::from_check(&bootstrap.restore.check);
        }
        // A run that replaces a state moves newer archives, which would hide its own, aside.
        let replaces =
            self.bootstrap.is_some_and(|bootstrap| bootstrap.restore.existing_state != ExistingState::Refuse);
        if !replaces {
            let fulls = bases::fulls_in(self.dir);
            node.full_slots = fulls.iter().map(|name| name.slot).collect();
        }
        for offer in &report.ranking.offers {
            node.record_kept(&offer.name, kept_bytes(self.dir, &offer.name.to_string()));
        }
        let mut selection = Selection { ranking: report.ranking.clone(), node, ..Selection::default() };
        if !self.is_fetch() {
            selection.leave_out_unread()?;
        }
        let found = std::mem::replace(&mut report.candidates, selection.candidates());
        let expected = selection.node.expected;
        if report.candidates.is_empty() && expected.is_set() && !found.is_empty() {
            return Err(expected.not_found_error(&found));
        }
        self.warn_of_silent(&report, expected)?;
        if let Some(given_up) = &selection.given_up {
            progress.warn(&format!("{}: it is passed over", given_up.why));
        }
        let age = report.candidates.first().and_then(|best| best.expected_age);
        if let Some(age) = age.filter(|age| *age > report.max_age) {
            let age = quantity::age(age);
            let limit = quantity::age(report.max_age);
            progress.warn(&format!("by its bank file, the state will be {age} old at boot, more than {limit}"));
        }
        Ok((report, selection))
    }

    /// Warns of each named source that has no archive.
    ///
    /// # Errors
    /// No source has an archive, and the operator did not ask for a certain state: the node's own
    /// archives may be too old.
    fn warn_of_silent(&self, report: &FindReport, expected: Expected) -> Result<()> {
        // If there is no candidate at all, another error lists the sources.
        let Some(best) = report.candidates.first() else { return Ok(()) };
        let offers = &report.ranking.offers;
        let mut silent = Vec::new();
        let sources = self.find.sources.iter();
        for source in sources.filter(|source| source.url().is_some()) {
            let source = source.to_string();
            let has_offer = offers.iter().any(|offer| offer.source == source);
            let mut refused = report.refused.iter();
            match refused.find(|refused| refused.source == source) {
                Some(refused) if !has_offer => silent.push(refused.message()),
                _ => {}
            }
        }
        let asks_servers = !silent.is_empty() || self.find.asks_cluster();
        let expects_root = match self.bootstrap {
            Some(bootstrap) => !bootstrap.expect_roots.is_empty(),
            None => self.limits.expect_root.is_some(),
        };
        let is_asked_for = expected.is_set() || expects_root;
        if asks_servers && !is_asked_for && offers.iter().all(Offer::is_local) {
            let mut why = silent.join("; ");
            if silent.is_empty() {
                why = "no server has a usable snapshot".to_string();
            }
            return Err(only_local_error(best, &why, ErrorKind::Network));
        }
        for why in silent {
            self.progress.warn(&format!("{why}: this source is passed over"));
        }
        Ok(())
    }
}
