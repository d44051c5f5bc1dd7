//! The journal as all threads write it: what is changed is on disk when the change returns.

use parking_lot::Mutex;
use slotpress_base::Result;

use super::journal::Journal;
use super::pins::PinDir;
use super::upload::Begun;

/// The journal, and where it is.
#[derive(Debug)]
pub struct Notes<'a> {
    pins: &'a PinDir,
    journal: Mutex<Journal>,
}

impl<'a> Notes<'a> {
    /// What the run before has left.
    ///
    /// # Errors
    /// See [`Journal::load`].
    pub fn open(pins: &'a PinDir) -> Result<Self> {
        Ok(Self { pins, journal: Mutex::new(pins.journal()?) })
    }

    /// Looks at it.
    pub fn read<R>(&self, look: impl FnOnce(&Journal) -> R) -> R {
        look(&self.journal.lock())
    }

    /// Changes it, and writes it where something has changed.
    ///
    /// # Errors
    /// The disk fails or is full.
    pub fn change<R>(&self, change: impl FnOnce(&mut Journal) -> R) -> Result<R> {
        // Held while it is written, so that no older one comes after a newer one.
        let mut journal = self.journal.lock();
        let mut new = journal.clone();
        let result = change(&mut new);
        if new != *journal {
            self.pins.save(&new)?;
            *journal = new;
        }
        Ok(result)
    }

    /// An upload that was begun.
    pub fn upload(&self, of: &str) -> Option<Begun> {
        self.read(|journal| journal.uploads.get(of).cloned())
    }

    /// How far an upload is; nothing to go on with.
    ///
    /// # Errors
    /// See [`change`](Self::change).
    pub fn set_upload(&self, of: &str, begun: Option<Begun>) -> Result<()> {
        self.change(|journal| {
            match begun {
                Some(begun) => journal.uploads.insert(of.to_string(), begun),
                None => journal.uploads.remove(of),
            };
        })
    }

    /// Archives of a target are to be deleted.
    ///
    /// # Errors
    /// See [`change`](Self::change).
    pub fn condemn(&self, target: &str, names: &[String]) -> Result<()> {
        self.change(|journal| {
            let condemned = &mut journal.targets.entry(target.to_string()).or_default().condemned;
            condemned.extend(names.iter().cloned());
            condemned.sort();
            condemned.dedup();
        })
    }

    /// What is to be deleted.
    pub fn condemned(&self, target: &str) -> Vec<String> {
        self.read(|journal| journal.targets.get(target).map(|notes| notes.condemned.clone()).unwrap_or_default())
    }

    /// Archives were deleted.
    ///
    /// # Errors
    /// See [`change`](Self::change).
    pub fn pardon(&self, target: &str, names: &[String]) -> Result<()> {
        self.change(|journal| {
            if let Some(notes) = journal.targets.get_mut(target) {
                notes.condemned.retain(|name| !names.contains(name));
            }
        })
    }
}
