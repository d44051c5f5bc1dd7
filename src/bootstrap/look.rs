//! Asks the sources what they have, and looks for archives on this node: for a plan, before a run,
//! and again after failures.

use std::path::{Path, PathBuf};

use slotpress_base::{ErrorKind, Progress, Result, quantity};
use slotpress_net::fetch::partial::kept_bytes;
use slotpress_net::find::{Expected, Node, Refused, find};
use slotpress_net::{Client, FetchLimits, FindOptions, FindReport, Offer};

use super::bases;
use super::next::{Selection, only_here};
use super::trust::Trust;

/// Settings that `fetch` and `bootstrap` share.
pub struct FetchContext<'a> {
    pub client: &'a Client,
    pub find: FindOptions,
    pub limits: &'a FetchLimits,
    pub trust: Trust<'a>,
    pub expected: Expected,
    /// True if the operator gave roots that the archives must have.
    pub expects_roots: bool,
    /// Archives directory.
    pub dir: &'a Path,
    /// Full archives that the node has elsewhere.
    pub bases: &'a [PathBuf],
    /// True if newer archives in the directory, which would hide the state, are moved aside.
    pub replaces_state: bool,
    /// True for `fetch`: complete downloads are checked and get their names, which a restore
    /// does otherwise.
    pub accepts_files: bool,
}

impl FetchContext<'_> {
    /// Asks the sources for their archives, and looks for archives and partial files in the
    /// directory.
    pub fn look(&self, is_plan: bool, progress: &dyn Progress) -> Result<(FindReport, Selection)> {
        // A single source need not be measured, so the download begins sooner.
        let mut options = self.find.clone().measures_single(false);
        // Ages are read from bank files for a plan, and where that takes no request. For a maximum
        // age, `find` reads them anyway.
        let asks_servers = options.asks_cluster() || options.sources.iter().any(|source| source.url().is_some());
        options.dates_by_banks = is_plan || !asks_servers;
        // Local full archives are candidates too: they need not be fetched.
        options.sources.extend(bases::local_sources(self.dir, self.bases)?);
        let mut report = find(self.client, &options, progress)?;
        let fulls = if self.replaces_state { Vec::new() } else { bases::fulls_in(self.dir) };
        let mut node = Node {
            expected: self.expected,
            full_slots: fulls.iter().map(|name| name.slot).collect(),
            ..Node::default()
        };
        for offer in &report.ranking.offers {
            match kept_bytes(self.dir, &offer.name.to_string()) {
                0 => {}
                kept => node.keeps(&offer.name, kept),
            }
        }
        let mut selection = Selection { found: report.ranking.clone(), node, ..Selection::default() };
        if !self.accepts_files {
            selection.leave_out_unread()?;
        }
        let found = std::mem::replace(&mut report.candidates, selection.candidates());
        if report.candidates.is_empty() && self.expected.is_any() && !found.is_empty() {
            return Err(self.expected.is_nowhere(&found));
        }
        self.warn_of_silent(&report, progress)?;
        if let Some(given_up) = &selection.given_up {
            progress.warn(&format!("{}: it is passed over", given_up.why));
        }
        if let Some(age) =
            report.candidates.first().and_then(|best| best.expected_age).filter(|age| *age > report.max_age)
        {
            let (age, limit) = (quantity::age(age), quantity::age(report.max_age));
            progress.warn(&format!("by its bank file, the state will be {age} old at boot, more than {limit}"));
        }
        Ok((report, selection))
    }

    /// Warns of each named source that has no archive.
    ///
    /// # Errors
    /// No source has an archive, and the operator did not ask for a certain state: the node's own
    /// archives may be too old.
    fn warn_of_silent(&self, report: &FindReport, progress: &dyn Progress) -> Result<()> {
        // If there is no candidate at all, another error lists the sources.
        let Some(best) = report.candidates.first() else { return Ok(()) };
        let offers = &report.ranking.offers;
        let named = self.find.sources.iter().filter(|source| source.url().is_some()).map(ToString::to_string);
        let silent = named.filter(|source| !offers.iter().any(|offer| offer.source == *source));
        let silent: Vec<String> = silent
            .filter_map(|source| report.refused.iter().find(|refused| refused.source == source))
            .map(Refused::told)
            .collect();
        let asks_servers = !silent.is_empty() || self.find.asks_cluster();
        let is_asked_for = self.expected.is_any() || self.expects_roots;
        if asks_servers && !is_asked_for && offers.iter().all(Offer::is_local) {
            let why = if silent.is_empty() { "no server has a usable snapshot".to_string() } else { silent.join("; ") };
            return Err(only_here(best, &why, ErrorKind::Network));
        }
        silent.iter().for_each(|why| progress.warn(&format!("{why}: this source is passed over")));
        Ok(())
    }
}
