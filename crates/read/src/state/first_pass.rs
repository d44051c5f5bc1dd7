//! The visitor of all commands that read a whole archive: applies the rules, logs records for the
//! state check, and passes contents to the command's [`Contents`].

use slotpress_base::Result;
use slotpress_format::{Entry, EntryKind};

use super::pass::AccountsPass;
use crate::archive::visit::{NoEntrySink, Problem};
use crate::{ArchiveRules, EntrySink, EntryUse, RecordVisitor, SeenFrame, Visitor};

pub trait Contents: Sync {
    /// Called for each entry that passes the rules, in the order of the archive.
    fn entry(&self, entry: &Entry) -> Result<()>;

    /// Makes a sink for contents, see [`Visitor::new_sink`]. Callers of
    /// [`read_in_order`](crate::read_in_order) pass a sink of their own instead.
    fn new_sink(&self) -> Box<dyn EntrySink + '_> {
        Box::new(NoEntrySink)
    }
}

pub struct FirstPass<'a> {
    pub rules: ArchiveRules<'a>,
    pub records: Option<&'a AccountsPass<'a>>,
    /// Receives the contents of entries.
    pub contents: Option<&'a dyn Contents>,
}

impl Visitor for FirstPass<'_> {
    fn entry(&self, _: u32, entry: &Entry) -> Result<EntryUse> {
        self.rules.entry(entry)?;
        self.contents.map_or(Ok(()), |contents| contents.entry(entry))?;
        let is_for_sink = self.contents.is_some();
        let EntryKind::Storage { slot, id } = entry.kind else {
            return Ok(EntryUse { is_document: true, is_for_sink, records_of: None });
        };
        // An empty storage has no number: `recompress` leaves it out.
        let records = self.records.filter(|_| entry.content_bytes > 0);
        let records_of = records.map(|records| records.accounts.add_storage(slot, id, entry.content_bytes));
        Ok(EntryUse { is_document: false, is_for_sink, records_of })
    }

    fn frame(&self, frame: SeenFrame) -> Result<()> {
        self.rules.frame(frame)
    }

    fn problem(&self, problem: Problem<'_>) -> Result<()> {
        self.rules.problem(problem)
    }

    fn records(&self) -> Option<&dyn RecordVisitor> {
        self.records.map(|records| records as &dyn RecordVisitor)
    }

    fn check(&self) -> Result<()> {
        self.records.map_or(Ok(()), |records| records.accounts.check())
    }

    fn new_sink(&self) -> Box<dyn EntrySink + '_> {
        self.contents.map_or_else(|| Box::new(NoEntrySink) as _, Contents::new_sink)
    }
}
