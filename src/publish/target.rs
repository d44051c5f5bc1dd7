//! One target, on a thread of its own: a target that fails or is slow holds up no other.

use {
    super::{
        PublishOptions,
        event::{Event, Published as PublishedEvent},
        head_start::{Making, head_start},
        notes::Notes,
        plan::Published,
        shelf::{Index, Ready, Shelf},
        upload::{Sent, forget, upload},
    },
    slotpress_base::{
        error::{Error, Result},
        progress::Progress,
        threads::panic_point,
    },
    slotpress_net::Client,
    slotpress_read::catalog::prune::Keep,
    std::{sync::Arc, time::Instant},
};

/// Where kept archives are on a target: a shelf of its own, with its own index, which is never pruned.
const KEPT: &str = "kept";

/// What is done.
#[derive(Clone, Debug)]
pub enum Task {
    /// What it has.
    Look,
    /// An archive is put there.
    Publish {
        /// The archive.
        ready: Box<Ready>,
        /// Whether it is kept apart.
        is_kept: bool,
    },
    /// The same for nodes, as far as it goes before the archive is ready.
    HeadStart(Arc<Making>),
}

/// What it has.
#[derive(Clone, Debug, Default)]
pub struct Shelves {
    /// What nodes are to take.
    pub published: Published,
    /// The newest of it: slot, and when it was published in seconds since 1970.
    pub newest: Option<(u64, u64)>,
    /// What is kept apart.
    pub kept: Published,
    /// How many bytes that has.
    pub kept_bytes: u64,
}

/// A target.
pub struct Target<'a> {
    /// Where it is.
    pub at: slotpress_stores::Target,
    /// The connections to stores.
    pub client: &'a Client,
    /// How to publish.
    pub options: &'a PublishOptions,
    /// What is remembered.
    pub notes: &'a Notes<'a>,
    /// Told what happens.
    pub tell: &'a (dyn Fn(Event) + Sync),
}

impl Target<'_> {
    /// Does one thing, and returns what the target has then.
    ///
    /// # Errors
    /// The target fails: trying again may do.
    pub fn run(&self, task: &Task, shelves: &Shelves, progress: &dyn Progress) -> Result<Shelves> {
        panic_point("publishing");
        let mut shelves = shelves.clone();
        match task {
            Task::Look => {
                if let Some(kept) = self.shelf(true, false)? {
                    shelves.see_kept(&kept.publish(None, None, &mut |_| Ok(()), progress)?);
                }
                match self.shelf(false, false)? {
                    Some(shelf) => shelves.see(&self.publish(&shelf, None, progress)?),
                    None => shelves.published = Published::default(),
                }
            }
            Task::Publish { ready, is_kept } => self.put(&mut shelves, ready, None, *is_kept, progress)?,
            Task::HeadStart(making) => {
                let shelf = self.made_shelf(false)?;
                let io_hint = self.options.recompress.io_policy.io_hint;
                if let Some((ready, sent)) = head_start(&shelf, making, io_hint, self.notes, progress)? {
                    self.put(&mut shelves, &ready, sent, false, progress)?;
                }
            }
        }
        for is_kept in [false, true] {
            self.shelf(is_kept, false)?.map_or(Ok(()), |shelf| forget(&shelf, self.notes, progress))?;
        }
        Ok(shelves)
    }

    /// Puts an archive there, of which some may be sent, and then into the index.
    fn put(
        &self,
        shelves: &mut Shelves,
        ready: &Ready,
        sent: Option<Sent>,
        is_kept: bool,
        progress: &dyn Progress,
    ) -> Result<()> {
        let (start, shelf) = (Instant::now(), self.made_shelf(is_kept)?);
        upload(&shelf, ready, sent, self.options.recompress.io_policy.io_hint, self.notes, progress)?;
        match is_kept {
            true => shelves.see_kept(&shelf.publish(Some(ready), None, &mut |_| Ok(()), progress)?),
            false => shelves.see(&self.publish(&shelf, Some(ready), progress)?),
        }
        (self.tell)(Event::Published(PublishedEvent {
            name: ready.archive.name.clone(),
            target: self.at.to_string(),
            is_kept,
            bytes: ready.archive.size_bytes,
            state: ready.state,
            root: ready.archive.hashes.map(|hashes| hashes.root),
            elapsed: start.elapsed(),
        }));
        Ok(())
    }

    fn made_shelf(&self, is_kept: bool) -> Result<Shelf> {
        let gone = || Error::failed(format!("{} is not there any more", self.at));
        self.shelf(is_kept, true)?.ok_or_else(gone)
    }

    fn shelf(&self, is_kept: bool, makes: bool) -> Result<Option<Shelf>> {
        let below = if is_kept { &[KEPT][..] } else { &[] };
        Shelf::open(&self.at, below, makes, &self.options.stores, self.client)
    }

    fn publish(&self, shelf: &Shelf, ready: Option<&Ready>, progress: &dyn Progress) -> Result<Index> {
        let name = self.at.to_string();
        let keep = Keep { within: self.options.keep.within.max(self.options.grace), ..self.options.keep };
        let mut condemn = |names: &[String]| self.notes.condemn(&name, names);
        let index = shelf.publish(ready, Some(&keep), &mut condemn, progress)?;
        let condemned = self.notes.condemned(&name);
        if condemned.is_empty() {
            return Ok(index);
        }
        let (mut gone, mut failed): (Vec<String>, Option<Error>) = Default::default();
        for archive in condemned {
            match shelf.delete(&index, &archive, progress) {
                Ok(()) => gone.push(archive),
                Err(error) => failed = Some(error),
            }
        }
        self.notes.pardon(&name, &gone)?;
        (self.tell)(Event::Pruned { target: name.clone(), names: gone });
        if let Some(error) = failed {
            // What was to be published is: the rest goes another time.
            (self.tell)(Event::Failed { error, target: Some(name), retry: None });
        }
        Ok(index)
    }
}

impl Shelves {
    fn see(&mut self, index: &Index) {
        (self.published, self.newest) = (index.published(), index.newest());
    }

    fn see_kept(&mut self, index: &Index) {
        (self.kept, self.kept_bytes) = (index.published(), index.bytes());
    }
}
