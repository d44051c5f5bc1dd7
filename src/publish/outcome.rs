//! What the planning thread does about what it hears.

use std::time::Duration;

use slotpress_base::{Error, ErrorKind, Result};
use slotpress_format::ArchiveName;
use slotpress_net::{NetError, NetErrorKind};
use slotpress_stores::Target;

use super::event::Event;
use super::journal::{Identity, Journal};
use super::plan::key;
use super::run::Publisher;
use super::shelf::Ready;
use super::threads::Message;

impl Publisher<'_> {
    /// Something was heard.
    pub(super) fn hear(&mut self, message: Message) -> Result<()> {
        match message {
            Message::Changed => {}
            Message::Event(event) => self.tell(event),
            Message::Prepared { source, result, elapsed } => {
                self.now.preparing = None;
                let making = self.making.take();
                let ready = match result {
                    Ok(name) => self.prepared(&name, elapsed),
                    Err(error) => self.not_prepared(&source, error).map(|()| None),
                };
                if let Some(making) = making {
                    making.is_over(ready.as_ref().ok().cloned().flatten());
                }
                ready.map(drop)?;
            }
            Message::Target { at, result } => {
                let Some(target) = self.targets.get_mut(at) else { return Ok(()) };
                (target.is_busy, target.sends) = (false, None);
                match result {
                    Ok(shelves) => {
                        (target.shelves, target.is_known) = (shelves, true);
                        target.attempts.succeeded();
                        self.names.get(at).into_iter().for_each(|name| self.metrics.succeeded(name));
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => {
                        let is_missing =
                            matches!(self.options.targets.get(at), Some(Target::Dir(dir)) if !dir.exists());
                        let retry = match is_missing || is_refusal(&error) {
                            true => target.attempts.refused(self.options.is_once),
                            false => target.attempts.failed(self.options.is_once),
                        };
                        let target = self.names.get(at).cloned();
                        self.tell(Event::Failed { error, target, retry, is_of_hook: false });
                    }
                }
            }
        }
        Ok(())
    }

    fn prepared(&mut self, name: &ArchiveName, elapsed: Duration) -> Result<Option<Ready>> {
        self.look()?;
        let Some(ready) = self.ready_of(name) else { return Ok(None) };
        let (archive, state) = (&ready.archive, ready.state);
        let root = archive.hashes.map(|hashes| hashes.root);
        self.tell(Event::Prepared { name: archive.name.clone(), state, bytes: archive.size_bytes, root, elapsed });
        Ok(Some(ready))
    }

    fn not_prepared(&mut self, source: &ArchiveName, error: Error) -> Result<()> {
        let is_of_archive = matches!(error.kind(), ErrorKind::Damaged);
        if error.kind() == ErrorKind::Interrupted {
            return Ok(());
        }
        // Once: another may be published in its place.
        self.has_begun_incremental &= source.base_slot.is_none();
        let was = self.notes.read(|journal: &Journal| journal.pins.get(&source.to_string()).copied());
        self.look()?;
        let pinned = &self.now.pinned;
        let is_now = pinned.iter().find(|archive| archive.name == *source).map(Identity::from);
        let is_seen_changed =
            self.now.seen.iter().any(|seen| seen.name == *source && was != Some(Identity::from(seen)));
        let is_changed = is_seen_changed || is_now.zip(was).is_none_or(|(now, was)| !now.is_same_content(&was));
        if !is_of_archive {
            let retry = self.failing.failed(key(source), self.options.is_once);
            self.tell(Event::Failed { error, target: None, retry, is_of_hook: false });
        } else if is_changed {
            // It was written to after it had its name, as a copy of some other program is: when it is whole, it is taken.
            self.pins.unpin(source)?;
            let retry = self.failing.failed(key(source), self.options.is_once);
            let error =
                Error::failed(format!("{source} changed while it was read")).with_hint("it is taken when it is whole");
            self.tell(Event::Failed { error, target: None, retry, is_of_hook: false });
        } else {
            let kept = self.pins.quarantine(source);
            self.notes.change(|journal| was.map(|was| journal.refuse(source, was)))?;
            let kept = match kept {
                Ok(path) => Some(path),
                Err(error) => {
                    self.progress.warn(&error.to_string());
                    self.pins.unpin(source)?;
                    None
                }
            };
            self.tell(Event::Refused { name: source.clone(), error, kept });
        }
        Ok(())
    }
}

/// Whether a target is as it should not be, and stays so until somebody changes that: another file has the name, credentials
/// are missing or do not suffice.
fn is_refusal(error: &Error) -> bool {
    error.kind() == ErrorKind::Exists
        || NetError::of(error).is_some_and(|error| error.kind() == NetErrorKind::Forbidden)
}
