//! Who writes the archives of a directory: whether a file may have a second name.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use slotpress_base::{Error, IoPolicy, ShowPath};
use slotpress_format::BankFile;
use slotpress_read::archive::{Archive as OpenArchive, front};
use slotpress_read::catalog::Archive;
use slotpress_read::{Fault, IndexPolicy, LocalFile, judge_file};

use super::journal::Identity;
use super::plan::{Key, key};
use super::{PublishOptions, Writer};

/// Who wrote a file, as far as its second name is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenBy {
    /// It is written once and may have other names.
    Agave,
    /// It is written anew later, and may have no other name.
    Firedancer,
    /// It cannot be read as far as its bank file, as a file that is being written anew.
    Unknown,
}

/// What was learned of files that are still the same.
#[derive(Debug, Default)]
pub struct Writers {
    known: BTreeMap<Key, (Identity, Option<BankFile>)>,
    /// An archive of Firedancer's was seen in the directory.
    has_firedancers: bool,
}

impl Writers {
    /// Who uses this file. One archive of Firedancer's in the directory makes all of it Firedancer's, also after that one is
    /// gone: it fetches others' archives too, and a file that is being written anew tells nothing.
    pub fn written_by(&mut self, options: &PublishOptions, seen: &[Archive], archive: &Archive) -> WrittenBy {
        match options.writer {
            Writer::Agave => return WrittenBy::Agave,
            Writer::Firedancer => return WrittenBy::Firedancer,
            Writer::Auto => {}
        }
        self.see(seen.iter().chain([archive]));
        self.has_firedancers |=
            self.known.values().any(|(_, bank)| bank.as_ref().is_some_and(BankFile::is_of_firedancer));
        if self.has_firedancers || is_owned_by_firedancer(options) {
            return WrittenBy::Firedancer;
        }
        let bank = self.known.get(&key(&archive.name)).and_then(|(_, bank)| bank.as_ref());
        bank.map_or(WrittenBy::Unknown, |_| WrittenBy::Agave)
    }

    /// A bank file of the directory, as far as its epoch schedule; none where no archive can be read.
    pub fn any_bank(&mut self, seen: &[Archive]) -> Option<BankFile> {
        self.see(seen);
        self.known.values().find_map(|(_, bank)| bank.clone())
    }

    fn see<'a>(&mut self, archives: impl IntoIterator<Item = &'a Archive>) {
        let mut known = std::mem::take(&mut self.known);
        for archive in archives {
            let (key, identity) = (key(&archive.name), Identity::from(archive));
            let bank = known.remove(&key).filter(|(same, _)| *same == identity).map(|(_, bank)| bank);
            self.known.insert(key, (identity, bank.unwrap_or_else(|| front_of(archive))));
        }
    }
}

/// What few reads tell to be wrong with a file, if anything.
pub fn damage_of(archive: &Archive) -> Option<Error> {
    let fault = judge_file(archive).err().filter(|fault| *fault != Fault::Unreadable)?;
    Some(Error::damaged(format!("{}: {fault}", archive.path().shown())))
}

fn front_of(archive: &Archive) -> Option<BankFile> {
    let (file, _) = archive.open().ok()?;
    let source = LocalFile::new(archive.path(), file, archive.size_bytes);
    let (name, io_policy) = (Some(archive.name.clone()), IoPolicy::default());
    let open = OpenArchive::of_source(Arc::new(source), name, IndexPolicy::Ignore, &io_policy);
    open.and_then(|open| front::bank(&open)).ok().flatten()
}

/// Whether the directory belongs to the user that Firedancer's own instructions make.
fn is_owned_by_firedancer(options: &PublishOptions) -> bool {
    let Ok(metadata) = fs::metadata(&options.snapshots) else { return false };
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut fields = users.lines().map(|line| line.split(':'));
    fields.any(|mut fields| {
        fields.next() == Some("firedancer") && fields.nth(1).and_then(|uid| uid.parse().ok()) == Some(metadata.uid())
    })
}
