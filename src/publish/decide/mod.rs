//! Decides everything that is done, from what a look finds, the results of earlier actions, and the
//! time. Does no I/O, so that whole lives of a publisher can be played (`life_tests`).

pub mod choose;
#[cfg(test)]
mod choose_tests;
mod hear;
#[cfg(test)]
mod life_tests;
mod retry;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use slotpress_base::{Error, Hint, Result};
use slotpress_format::ArchiveName;
use slotpress_read::catalog::Archive;
use slotpress_stores::Target;

use self::choose::{Key, key};
use self::retry::Retry;
use super::PublishOptions;
use super::act::index::Ready;
use super::act::rebasing::name_of;
use super::act::target::TargetContents;
use super::remember::Identity;
use super::tell::event::Event;

/// Results of one look.
#[derive(Clone, Debug)]
pub struct Facts {
    pub now: Instant,
    /// Archives in the validator's directories.
    pub seen: Vec<Archive>,
    pub pinned: Vec<Archive>,
    pub ready: Vec<Ready>,
    /// Archives in `seen` that this run or an earlier one refused, and that have not changed since.
    pub refused: BTreeSet<Key>,
    /// Time since the preparation of the last incremental archive began.
    pub since_incremental: Option<Duration>,
}

impl Facts {
    /// The facts before the first look.
    pub fn none(now: Instant) -> Self {
        Self {
            now,
            seen: Vec::new(),
            pinned: Vec::new(),
            ready: Vec::new(),
            refused: BTreeSet::new(),
            since_incremental: None,
        }
    }
}

/// One thing to do.
#[derive(Clone, Debug)]
pub enum Action {
    Unpin(ArchiveName),
    Pin(Archive),
    RemoveReady(ArchiveName),
    /// Checks and recompresses a pinned archive.
    Prepare {
        source: ArchiveName,
        made: ArchiveName,
    },
    /// Makes a rebased archive from two full archives of the target with the index `from`.
    Rebase {
        name: ArchiveName,
        from: usize,
    },
    StopRebase,
    Order {
        target: usize,
        order: Order,
    },
    /// Remembers that a file is damaged, and moves it aside if it is pinned.
    Refuse {
        name: ArchiveName,
        was: Option<Identity>,
        error: Error,
    },
    Tell(Event),
}

impl Action {
    /// True if the action changes what the next look finds.
    pub fn changes_pins(&self) -> bool {
        !matches!(self, Self::Rebase { .. } | Self::StopRebase | Self::Order { .. } | Self::Tell(_))
    }
}

/// What a target's thread is to do.
#[derive(Clone, Debug)]
pub enum Order {
    Look,
    /// Publishes a ready archive.
    Publish(Box<Ready>),
}

impl Order {
    fn sends(&self) -> Option<&ArchiveName> {
        match self {
            Self::Look => None,
            Self::Publish(ready) => Some(&ready.archive.name),
        }
    }
}

/// A target, as of its last answer.
#[derive(Clone, Debug, Default)]
pub struct TargetState {
    contents: TargetContents,
    is_known: bool,
    is_dir: bool,
    does: Option<Order>,
    retry: Retry,
}

/// The facts of the last look, the work that is running, and the results of earlier work.
#[derive(Debug)]
pub struct State<'a> {
    options: &'a PublishOptions,
    facts: Facts,
    targets: Vec<TargetState>,
    /// Name of the archive that is being made.
    preparing: Option<ArchiveName>,
    rebasing: Option<Key>,
    /// Preparations and rebases that failed although no archive is damaged.
    failing: BTreeMap<Key, Retry>,
    /// Files that cannot be pinned as they are, or that no client of today loads: skipped until they
    /// change.
    skipped: BTreeMap<Key, Identity>,
    /// With `--once`: archives left out, and the reasons.
    left_out: BTreeMap<Key, (ArchiveName, Error)>,
    has_begun_incremental: bool,
    looking: Retry,
}

impl<'a> State<'a> {
    pub fn new(options: &'a PublishOptions, now: Instant) -> Self {
        let target = |target: &Target| TargetState { is_dir: matches!(target, Target::Dir(_)), ..Default::default() };
        Self {
            options,
            facts: Facts::none(now),
            targets: options.targets.iter().map(target).collect(),
            preparing: None,
            rebasing: None,
            failing: BTreeMap::new(),
            skipped: BTreeMap::new(),
            left_out: BTreeMap::new(),
            has_begun_incremental: false,
            looking: Retry::default(),
        }
    }

    /// Sets the time for the decisions that follow.
    pub fn set_time(&mut self, now: Instant) {
        self.facts.now = now;
    }

    /// Returns true if it is time to look.
    pub fn wants_look(&self) -> bool {
        self.looking.is_due(self.facts.now)
    }

    /// Returns everything to be done according to these facts. The caller reports by
    /// [`begun`](Self::begun) what it has begun.
    pub fn plan(&mut self, facts: Facts) -> Vec<Action> {
        self.see(facts);
        let (to_rebase, rebased) = (self.to_rebase(), self.rebased_ready());
        let pins = self.pins();
        let mut actions: Vec<Action> = pins.drop.into_iter().map(Action::Unpin).collect();
        for name in pins.no_room {
            actions.push(self.leave_out(name, "there is no room for its pin".to_string(), Hint::MorePinBytes));
        }
        let to_pin = self.facts.seen.iter().filter(|archive| pins.add.contains(&archive.name));
        actions.extend(to_pin.cloned().map(Action::Pin));
        // A target that has not reported yet may need any archive.
        if !self.targets.iter().any(TargetState::is_silent) {
            let is_sent = |name: &ArchiveName| {
                self.targets.iter().any(|target| target.does.as_ref().and_then(Order::sends) == Some(name))
            };
            let unneeded = self.unneeded().into_iter().filter(|name| !is_sent(name));
            actions.extend(unneeded.cloned().map(Action::RemoveReady));
        }
        let prepares = self.to_prepare();
        let is_all_prepared = prepares.is_none() && self.is_all_prepared();
        actions.extend(prepares);
        match self.rebasing {
            Some(running) => {
                let is_wanted = to_rebase.contains(&running) || rebased.contains(&running);
                actions.extend((!is_wanted).then_some(Action::StopRebase));
            }
            None if is_all_prepared => actions.extend(self.next_rebase(&to_rebase)),
            None => {}
        }
        actions.extend((0..self.targets.len()).filter_map(|at| self.order(at)));
        actions
    }

    /// Takes the result of a look, and forgets failures of archives that no longer exist.
    pub fn see(&mut self, facts: Facts) {
        self.facts = facts;
        let seen: BTreeMap<Key, Identity> =
            self.facts.seen.iter().map(|archive| (key(&archive.name), Identity::from(archive))).collect();
        self.skipped.retain(|key, was| seen.get(key) == Some(was));
        let pinned = self.facts.pinned.iter().map(|archive| key(&archive.name));
        let rebases = self.targets.iter().flat_map(|target| self.lacked_rebased(target)).chain(self.rebased_ready());
        let there: BTreeSet<Key> = seen.into_keys().chain(pinned).chain(rebases).collect();
        self.failing.retain(|key, _| there.contains(key));
    }

    fn is_due(&self, key: &Key) -> bool {
        self.failing.get(key).is_none_or(|retry| retry.is_due(self.facts.now))
    }

    fn is_all_prepared(&self) -> bool {
        let has_no_room = |next: &Archive| self.pins().no_room.contains(&next.name);
        self.preparing.is_none() && self.next_to_prepare().is_none_or(has_no_room)
    }

    fn to_prepare(&self) -> Option<Action> {
        let next = &self.next_to_prepare()?.name;
        let pinned = &self.facts.pinned;
        if !self.is_due(&key(next)) || !pinned.iter().any(|pinned| pinned.name == *next) {
            return None;
        }
        let mut made = next.clone();
        if !self.options.is_as_is {
            made.extension = self.options.recompress.encoding.codec.extension();
        }
        Some(Action::Prepare { source: next.clone(), made })
    }

    /// The next state to rebase, unless a working target lacks a full archive. Rebases onto the
    /// newest of the older full archives first, because most nodes have that one.
    fn next_rebase(&self, wanted: &BTreeSet<Key>) -> Option<Action> {
        let next = wanted.iter().rev().find(|key| self.is_due(key))?;
        let lacks_full = |at: &TargetState| self.next_to_publish(at).is_some_and(|name| name.base_slot.is_none());
        if self.targets.iter().any(|target| target.retry.failures == 0 && lacks_full(target)) {
            return None;
        }
        let from = self.targets.iter().position(|target| target.can_rebase(next))?;
        Some(Action::Rebase { name: name_of(next, self.options), from })
    }

    fn order(&self, at: usize) -> Option<Action> {
        let target = self.targets.get(at)?;
        let is_given_up = target.retry.is_given_up(self.options.is_once);
        if target.does.is_some() || !target.retry.is_due(self.facts.now) || is_given_up {
            return None;
        }
        let order = match self.next_for(target) {
            _ if !target.is_known => Order::Look,
            Some(name) => Order::Publish(Box::new(self.ready(name)?.clone())),
            None => return None,
        };
        Some(Action::Order { target: at, order })
    }

    pub fn ready(&self, name: &ArchiveName) -> Option<&Ready> {
        self.facts.ready.iter().find(|ready| ready.archive.name == *name)
    }

    pub fn pinned(&self) -> &[Archive] {
        &self.facts.pinned
    }

    /// What a target had as of its last answer.
    pub fn contents(&self, target: usize) -> TargetContents {
        self.targets.get(target).map(|target| target.contents.clone()).unwrap_or_default()
    }

    /// With `--once`: true if nothing is left to do, or it has failed.
    pub fn is_over(&self) -> bool {
        let is_done = |target: &TargetState| {
            let has_all = || target.is_known && self.next_for(target).is_none();
            target.does.is_none() && (target.retry.is_given_up(true) || has_all())
        };
        let is_rebased = self.rebasing.is_none() && self.to_rebase().is_empty();
        self.options.is_once && is_rebased && self.is_all_prepared() && self.targets.iter().all(is_done)
    }

    /// With `--once`: fails if a target lacks an archive that was left out.
    pub fn check_left_out(&self) -> Result<()> {
        let is_lacked = |name| self.targets.iter().any(|it| !it.is_silent() && it.contents.published.wants(name));
        let lacked = self.left_out.values().filter(|(name, _)| is_lacked(name));
        lacked.max_by_key(|(name, _)| name.slot).map_or(Ok(()), |(_, error)| Err(error.clone()))
    }

    /// With `--once`: fails if one of the archives that were refused as damaged is newer than all
    /// that a target has.
    pub fn check_refused(&self, refused: impl Iterator<Item = ArchiveName>) -> Result<()> {
        let is_newer = |slot, target: &TargetState| target.contents.published.keys.iter().all(|key| key.1 < slot);
        let is_lacked = |name: &ArchiveName| self.targets.iter().any(|it| it.is_known && is_newer(name.slot, it));
        match refused.filter(is_lacked).max_by_key(|name| name.slot) {
            None => Ok(()),
            Some(name) => Err(Error::damaged(format!("{name} is damaged, and no archive as new as it is published"))
                .with_hint("it is refused until its file changes; the next archive of the validator takes its place")),
        }
    }

    /// For each target: what it has, how many ready archives it lacks, and whether it works.
    pub fn targets(&self) -> impl Iterator<Item = (&TargetContents, usize, bool)> {
        self.targets.iter().map(|target| {
            let is_lacked = |ready: &&Ready| target.contents.published.wants(&ready.archive.name);
            let lacks = if target.is_silent() { 0 } else { self.facts.ready.iter().filter(is_lacked).count() };
            (&target.contents, lacks, target.is_known && target.retry.failures == 0)
        })
    }
}
