//! Who writes the archives of a directory: whether a file may have a second name.

use {
    super::{
        PublishOptions, Writer,
        journal::Identity,
        plan::{Key, key},
    },
    slotpress_base::io::IoPolicy,
    slotpress_read::{
        archive::{Archive as OpenArchive, IndexPolicy, front::is_of_firedancer, source::LocalFile},
        catalog::Archive,
    },
    std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, sync::Arc},
};

/// What was learned of files that are still the same.
#[derive(Debug, Default)]
pub struct Writers(BTreeMap<Key, (Identity, bool)>);

impl Writers {
    /// Whether Firedancer uses this file again, and refuses it with a second name. One archive of Firedancer's in the
    /// directory makes all of it Firedancer's: it fetches others' archives too.
    pub fn is_firedancers(&mut self, options: &PublishOptions, seen: &[Archive], archive: &Archive) -> bool {
        match options.writer {
            Writer::Agave => return false,
            Writer::Firedancer => return true,
            Writer::Auto => {}
        }
        let known = std::mem::take(&mut self.0);
        for archive in seen.iter().chain([archive]) {
            let (key, identity) = (key(&archive.name), Identity::from(archive));
            let by = known.get(&key).filter(|(same, _)| *same == identity).map(|(_, by)| *by);
            self.0.insert(key, (identity, by.unwrap_or_else(|| looks_like_firedancers(archive))));
        }
        self.0.values().any(|(_, by)| *by) || is_owned_by_firedancer(options)
    }
}

/// By its bank file; what cannot be read is for the check to tell of.
fn looks_like_firedancers(archive: &Archive) -> bool {
    let Ok((file, _)) = archive.open() else { return false };
    let source = LocalFile::new(archive.path(), file, archive.size_bytes);
    let (name, io_policy) = (Some(archive.name.clone()), IoPolicy::default());
    let open = OpenArchive::of_source(Arc::new(source), name, IndexPolicy::Ignore, &io_policy);
    open.and_then(|open| is_of_firedancer(&open)).unwrap_or(false)
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
