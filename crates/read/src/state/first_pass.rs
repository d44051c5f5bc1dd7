//! The visitor of all commands that read a whole archive: applies the rules, and logs records for
//! the state check.

use slotpress_base::Result;
use slotpress_format::{Entry, EntryKind};

use super::pass::AccountsPass;
use crate::archive::visit::ReadFault;
use crate::{ArchiveRules, EntryUse, RecordVisitor, SeenFrame, Visitor};

pub struct FirstPass<'a> {
    pub rules: ArchiveRules<'a>,
    pub records: Option<&'a AccountsPass<'a>>,
    /// True if a sink gets all contents.
    pub has_sink: bool,
}

impl Visitor for FirstPass<'_> {
    fn entry(&self, entry: &Entry) -> Result<EntryUse> {
        self.rules.entry(entry)?;
        let is_for_sink = self.has_sink;
        let EntryKind::Storage { slot, id } = entry.kind else {
            return Ok(EntryUse { is_document: true, is_for_sink, records_of: None });
        };
        // An empty storage has no number: `recompress` leaves it out.
        let records = self.records.filter(|_| entry.content_bytes > 0);
        let records_of = records.map(|records| records.accounts.add_storage(slot, id));
        Ok(EntryUse { is_document: false, is_for_sink, records_of })
    }

    fn frame(&self, frame: SeenFrame) -> Result<()> {
        self.rules.frame(frame)
    }

    fn fault(&self, fault: ReadFault<'_>) -> Result<()> {
        self.rules.fault(fault)
    }

    fn records(&self) -> Option<&dyn RecordVisitor> {
        self.records.map(|records| records as &dyn RecordVisitor)
    }
}
