//! Reading one archive for the first time, and again for what is superseded.

use {
    crate::{
        error::{Error, ErrorKind, Result},
        format::clients::Rule,
        ledger::bank_file::{BankFile, StorageMapItem},
        progress::Progress,
        verify::{
            NamedArchive, VerifyOptions,
            accounts::{Accounts, Task},
            entries::EntryChecker,
            in_order::read_in_order,
            indexed::read_indexed,
            judge::{judge_documents, judge_name},
            pass::{Pass, SourceArchive},
            report::{Check, Counts, Findings, Place},
        },
    },
    std::collections::HashSet,
};

/// An archive that has been read.
pub struct ReadArchive {
    /// The archive.
    pub source: SourceArchive,
    /// What is wrong with it.
    pub findings: Findings,
    /// Its entries.
    pub entries: EntryChecker,
    /// Its bank file and storage map.
    pub bank: Option<(BankFile, Vec<StorageMapItem>)>,
    /// Bytes and frames.
    pub counts: Counts,
    first_storage: u32,
}

/// Why an archive could not be read.
pub enum ReadError {
    /// The index contradicts what was decoded: read it without.
    Index {
        /// Which archive.
        archive: usize,
        /// How.
        error: Error,
    },
    /// Something other than the archive failed.
    Other(Error),
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl ReadError {
    /// Says which archive it was.
    pub fn of_archive(self, archive: usize) -> Self {
        match self {
            Self::Index { error, .. } => Self::Index { archive, error },
            other => other,
        }
    }
}

impl ReadArchive {
    /// Reads an archive; in order, where its index has turned out to be `distrusted`.
    pub fn read(
        archive: &NamedArchive,
        distrusted: Option<&Error>,
        accounts: &Accounts,
        seen_slots: &mut HashSet<u64>,
        options: &VerifyOptions,
        progress: &dyn Progress,
    ) -> Result<Self, ReadError> {
        let findings = Findings::new();
        let mut source = SourceArchive::open(&archive.path, archive.name.clone(), &findings)?;
        if let Some(error) = distrusted {
            findings.add_error(Check::Frames, Rule::Index, Place::default(), error);
            source.tail = None;
        }
        progress.stage("Verifying", Some(source.file.length_bytes));
        let first_storage = accounts.storage_count();
        let pass = Pass {
            archive: &source,
            accounts,
            findings: &findings,
            task: (!options.is_quick).then_some(&Task::Add),
            wanted: None,
            first_storage,
            threads: options.threads,
            progress,
        };
        let passed = match &source.tail {
            Some(tail) => read_indexed(&pass, tail, seen_slots).map_err(|error| match error.kind() {
                ErrorKind::Damaged => ReadError::Index { archive: 0, error },
                _ => ReadError::Other(error),
            })?,
            None => read_in_order(&pass, seen_slots)?,
        };
        let bank = judge_documents(passed.documents, passed.entries.bank_slot(), &findings);
        judge_name(source.name.as_ref(), source.file.compression, bank.as_ref().map(|(bank, _)| bank), &findings);
        let (entries, counts) = (passed.entries, passed.counts);
        Ok(Self { source, findings, entries, bank, counts, first_storage })
    }

    /// Reads the records of some storages again.
    pub fn read_again(
        &self,
        accounts: &Accounts,
        task: &Task<'_>,
        wanted: &HashSet<u32>,
        options: &VerifyOptions,
        progress: &dyn Progress,
    ) -> Result<()> {
        let numbers = self.first_storage..self.first_storage + self.entries.storages().len() as u32;
        if !wanted.iter().any(|number| numbers.contains(number)) {
            return Ok(());
        }
        progress.stage("Subtracting", None);
        let pass = Pass {
            archive: &self.source,
            accounts,
            findings: &self.findings,
            task: Some(task),
            wanted: Some(wanted),
            first_storage: self.first_storage,
            threads: options.threads,
            progress,
        };
        let mut seen_slots = HashSet::new();
        match &self.source.tail {
            Some(tail) => read_indexed(&pass, tail, &mut seen_slots),
            None => read_in_order(&pass, &mut seen_slots),
        }?;
        Ok(())
    }
}
