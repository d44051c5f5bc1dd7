//! What is wanted, and what the sources and this node have of it: asked before a run, for its plan, and again after failures.

use std::path::{Path, PathBuf};

use slotpress_base::{ErrorKind, Progress, Result, quantity};
use slotpress_net::fetch::partial::kept_bytes;
use slotpress_net::find::{Expected, Node, Refused, find};
use slotpress_net::{Client, FindOptions, FindReport, Limits};

use super::bases;
use super::next::{Left, only_here};
use super::trust::Trust;

pub struct FetchContext<'a> {
    pub client: &'a Client,
    pub find: FindOptions,
    pub limits: &'a Limits,
    pub trust: Trust<'a>,
    pub expected: Expected,
    /// True if the archives must have certain roots, wherever they come from.
    pub expects_roots: bool,
    pub dir: &'a Path,
    /// Full archives elsewhere that the node has.
    pub bases: &'a [PathBuf],
    /// True if archives in the directory that are in the way of the state are moved aside.
    pub replaces_state: bool,
    /// True if complete files are checked and named here, because no one does it later.
    pub accepts_files: bool,
}

impl FetchContext<'_> {
    /// Asks the sources for their archives, and looks for files in the directory.
    pub fn look(&self, is_plan: bool, progress: &dyn Progress) -> Result<(FindReport, Left)> {
        // A single source is fetched sooner without measuring it.
        let mut options = self.find.clone().measures_single(false);
        // A plan shows how old the state is; a run needs to know only what it must refuse.
        options.dates_by_banks = is_plan;
        // A full archive that is here need not be fetched.
        options.sources.extend(bases::local_sources(self.dir, self.bases)?);
        let mut report = find(self.client, &options, progress)?;
        let fulls = if self.replaces_state { Vec::new() } else { bases::fulls_in(self.dir) };
        let mut node = Node {
            expected: self.expected,
            full_slots: fulls.iter().map(|name| name.slot).collect(),
            ..Node::default()
        };
        for (offer, ..) in &report.ranking.offers {
            match kept_bytes(self.dir, &offer.name.to_string()) {
                0 => {}
                kept => node.keeps(&offer.name, kept),
            }
        }
        let left = Left { found: report.ranking.clone(), node, ..Left::default() };
        let found = std::mem::replace(&mut report.candidates, left.candidates());
        if report.candidates.is_empty() && self.expected.is_any() && !found.is_empty() {
            return Err(self.expected.is_nowhere(&found));
        }
        self.tell_of_silent(&report, progress)?;
        if let Some(age) =
            report.candidates.first().and_then(|best| best.expected_age).filter(|age| *age > report.max_age)
        {
            let (age, limit) = (quantity::age(age), quantity::age(report.max_age));
            progress.warn(&format!("by its bank file, the state will be {age} old at boot, more than {limit}"));
        }
        Ok((report, left))
    }

    /// Warns of each named source that has nothing.
    ///
    /// # Errors
    /// That is so for all of them, and what is here is not known to be what is wanted.
    fn tell_of_silent(&self, report: &FindReport, progress: &dyn Progress) -> Result<()> {
        // With nothing else, the error says it.
        let Some(best) = report.candidates.first() else { return Ok(()) };
        let offers = &report.ranking.offers;
        let named = self.find.sources.iter().filter(|source| source.url().is_some()).map(ToString::to_string);
        let silent = named.filter(|source| !offers.iter().any(|(_, from, _)| from == source));
        let silent: Vec<String> = silent
            .filter_map(|source| report.refused.iter().find(|refused| refused.source == source))
            .map(Refused::told)
            .collect();
        let asks_servers = !silent.is_empty() || !self.find.rpc.is_empty() || self.find.cluster.is_some();
        let is_asked_for = self.expected.is_any() || self.expects_roots;
        if asks_servers && !is_asked_for && offers.iter().all(|(offer, ..)| offer.is_local()) {
            let why = match silent.is_empty() {
                true => "no server has a usable snapshot".to_string(),
                false => silent.join("; "),
            };
            return Err(only_here(best, &why, ErrorKind::Network));
        }
        silent.iter().for_each(|why| progress.warn(&format!("{why}: this source is passed over")));
        Ok(())
    }
}
