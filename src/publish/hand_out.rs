//! What the planning thread hands out, and to whom.

use std::sync::Arc;
use std::time::SystemTime;

use slotpress_base::Result;
use slotpress_format::ArchiveName;
use slotpress_read::catalog::Archive;
use slotpress_read::unix_ns;

use super::event::Event;
use super::head_start::Making;
use super::journal::State;
use super::plan::{Wishes, key};
use super::prepare::state_of;
use super::run::Publisher;
use super::shelf::Ready;
use super::target::Task;

/// Of the bytes for what is kept apart, so many percent are said to be nearly all.
const NEARLY_FULL_PERCENT: u64 = 80;

impl Publisher<'_> {
    /// Lets go what is of no use any more, and hands out what is to be done.
    pub(super) fn hand_out(&mut self) -> Result<()> {
        let wishes = self.wishes();
        // What a target has not told is not known to be of no use.
        if self.now.targets.iter().all(|target| !target.is_silent) {
            let in_use: Vec<&ArchiveName> = self.targets.iter().filter_map(|target| target.sends.as_ref()).collect();
            let spent = self.now.spent(&wishes).into_iter().filter(|name| !in_use.contains(name));
            for name in spent.cloned().collect::<Vec<_>>() {
                self.pins.remove_ready(&name)?;
                self.notes.change(|journal| journal.forget(&name))?;
                self.now.ready.retain(|ready| *ready != name);
            }
        }
        self.prepare_next(&wishes)?;
        (0..self.targets.len()).for_each(|at| self.publish_next(at, &wishes));
        Ok(())
    }

    fn prepare_next(&mut self, wishes: &Wishes) -> Result<()> {
        let Some(next) = self.now.next_to_prepare(wishes) else { return Ok(()) };
        let is_pinned = self.now.pinned.iter().any(|pinned| pinned.name == next.name);
        if !is_pinned || !self.failing.is_due(&key(&next.name)) {
            return Ok(());
        }
        let base = next.name.base_slot.filter(|_| self.options.checks_pairs);
        let base = base.and_then(|base| {
            let fulls = self.now.pinned.iter().filter(|archive| archive.is_full());
            fulls.map(|full| &full.name).find(|name| name.slot == base).cloned()
        });
        let (state, seconds) = (state_of(&next.name, self.options), unix_ns(SystemTime::now()) / 1_000_000_000);
        let new = match self.options.is_as_is {
            true => next.name.clone(),
            false => ArchiveName { extension: self.options.recompress.codec.extension(), ..next.name.clone() },
        };
        self.notes.change(|journal| {
            journal.states.insert(new.to_string(), state);
            if !next.is_full() {
                journal.incremental_unix_seconds = Some(seconds);
            }
        })?;
        self.has_begun_incremental |= !next.is_full();
        let making = Arc::new(Making::new(new, state));
        if self.hands.prepare.try_send((next.name.clone(), base, making.clone())).is_ok() {
            (self.now.preparing, self.making) = (Some(key(&next.name)), Some(making));
        }
        Ok(())
    }

    fn publish_next(&mut self, at: usize, wishes: &Wishes) {
        let Some(target) = self.targets.get(at) else { return };
        if target.is_busy || !target.attempts.is_due() || target.attempts.is_given_up(self.options.is_once) {
            return;
        }
        let task = match target.is_known {
            false => Some(Task::Look),
            true => {
                let next = self.now.next_to_publish(at).map(|name| (name, false));
                let next = next.or_else(|| self.now.next_to_keep(at, wishes).map(|name| (name, true)));
                match next {
                    Some((name, is_kept)) => {
                        self.ready_of(name).map(|ready| Task::Publish { ready: Box::new(ready), is_kept })
                    }
                    // A directory gets a link.
                    None => self.making.clone().filter(|making| self.wants_head_start(at, making)).map(Task::HeadStart),
                }
            }
        };
        let Some(task) = task else { return };
        if let Task::Publish { ready, is_kept: true } = &task
            && !self.has_room_to_keep(at, &ready.archive)
        {
            return;
        }
        let (Some(target), Some(hand)) = (self.targets.get_mut(at), self.hands.targets.get(at)) else { return };
        target.sends = match &task {
            Task::Publish { ready, .. } => Some(ready.archive.name.clone()),
            Task::HeadStart(making) => Some(making.name.clone()),
            Task::Look => None,
        };
        target.is_busy = hand.try_send(Box::new((task, target.shelves.clone()))).is_ok();
    }

    fn wants_head_start(&self, at: usize, making: &Making) -> bool {
        matches!(self.options.targets.get(at), Some(slotpress_stores::Target::S3(_)))
            && self.now.targets.get(at).is_some_and(|target| target.wants(&making.name))
    }

    pub(super) fn ready_of(&self, name: &ArchiveName) -> Option<Ready> {
        let archive = self.ready.find(&name.to_string())?.clone();
        let state = self.notes.read(|journal| journal.states.get(&name.to_string()).copied());
        Some(Ready { archive, state: state.unwrap_or(State::Unchecked), slot_time: self.ready.slot_time })
    }

    fn has_room_to_keep(&mut self, at: usize, archive: &Archive) -> bool {
        let (Some(target), Some(bytes_max)) = (self.targets.get_mut(at), self.options.keep_bytes) else { return true };
        let bytes = target.shelves.kept_bytes.saturating_add(archive.size_bytes);
        let has_room = bytes <= bytes_max;
        if !has_room {
            // As if it were there: what has no room does not fill the directory of pins either.
            target.shelves.kept.keys.insert(key(&archive.name));
        }
        let is_nearly_full = bytes.saturating_mul(100) >= bytes_max.saturating_mul(NEARLY_FULL_PERCENT);
        let is_told = std::mem::replace(&mut target.is_told_nearly_full, is_nearly_full);
        let name = self.names.get(at).cloned().unwrap_or_default();
        if !has_room {
            let why = format!("{name}: what is kept for ever has no room for it");
            self.tell(Event::Skipped { name: archive.name.clone(), why });
        } else if is_nearly_full && !is_told {
            self.tell(Event::KeepIsNearlyFull { target: name, bytes, bytes_max });
        }
        has_room
    }
}
