//! Decides all that is done: from what is there, what was heard of earlier actions, and the time. Does no I/O, so that whole lives of a
//! publisher can be played (`life_tests`).

pub mod choose;
#[cfg(test)]
mod choose_tests;
#[cfg(test)]
mod life_tests;
mod retry;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use slotpress_base::{Error, ErrorKind, Hint, Result};
use slotpress_format::ArchiveName;
use slotpress_read::catalog::Archive;
use slotpress_stores::Target;

use self::choose::{ArchiveSet, Key, PlanOptions, Situation, key};
use self::retry::Retry;
use super::PublishOptions;
use super::act::pins::Pinned;
use super::act::rebasing::name_of;
use super::act::target::TargetContents;
use super::act::workers::state_of;
use super::remember::{Identity, StateCheck};
use super::tell::event::Event;

const HINT_NEVER: &str = "put archives and pins on one file system, with reflinks (xfs, btrfs) where Firedancer writes; where only Agave \
                          does: --writer agave";

/// What is there, as of one look.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Archives in the validator's directories.
    pub seen: Vec<Archive>,
    pub pinned: Vec<Archive>,
    pub ready: Vec<Archive>,
    /// Those seen that an earlier run refused, and that have not changed since.
    pub refused: BTreeSet<Key>,
    /// Time since the preparation of the last incremental archive began.
    pub since_incremental: Option<Duration>,
    /// Ends of epochs to keep archives around.
    pub epoch_ends: BTreeSet<u64>,
}

/// What a look into a file shows that cannot be pinned.
#[derive(Debug)]
pub enum Judged {
    Sound,
    /// It may still be being written.
    Unfinished,
    Damaged(Error),
}

/// A step.
#[derive(Clone, Debug)]
pub enum Action {
    Unpin(ArchiveName),
    Pin(Archive),
    RemoveReady(ArchiveName),
    /// Checks and recompresses a pinned archive. Its full one is pinned too, where the pair is checked.
    Prepare {
        source: ArchiveName,
        base: Option<ArchiveName>,
        made: ArchiveName,
        state: StateCheck,
    },
    /// Rebases the two full archives of a target.
    Rebase {
        name: ArchiveName,
        from: usize,
    },
    StopRebase,
    Order {
        target: usize,
        order: Order,
    },
    /// Remembers that a file is damaged.
    Refuse(ArchiveName, Identity),
    /// Moves a damaged archive aside, and remembers it.
    Quarantine {
        name: ArchiveName,
        was: Option<Identity>,
        error: Error,
    },
    /// Forgets an archive that is not made.
    Forget(ArchiveName),
    Tell(Event),
}

/// What a target is to do.
#[derive(Clone, Debug)]
pub enum Order {
    Look,
    /// Publishes a ready archive, into `kept/` or not.
    Publish(ArchiveName, bool),
    /// Sends the archive that is being made.
    HeadStart(ArchiveName),
    /// Nothing: counts an archive as kept for which `kept/` has no room, so that pins do not wait for it either.
    NoRoom(ArchiveName),
}

/// A target, as it was heard of last.
#[derive(Clone, Debug, Default)]
pub struct TargetState {
    contents: TargetContents,
    is_known: bool,
    is_busy: bool,
    sends: Option<ArchiveName>,
    retry: Retry,
}

/// What runs, and what was heard of what ran.
#[derive(Debug)]
pub struct State<'a> {
    options: &'a PublishOptions,
    targets: Vec<TargetState>,
    /// The pinned archive that is being prepared, and what is made of it.
    preparing: Option<(Key, ArchiveName)>,
    rebasing: Option<Key>,
    /// Preparations and rebases that failed although no archive is damaged.
    failing: BTreeMap<Key, Retry>,
    /// Rebased states that cannot be made, or failed too often: a few for each full archive.
    unmade: BTreeSet<Key>,
    /// Files that cannot be pinned as they are: tried again once they change.
    skipped: Vec<(Key, Identity)>,
    /// Those that could not be pinned at the last look.
    passed: BTreeSet<Key>,
    /// With `--once`: archives left out, and the reasons.
    left_out: BTreeMap<Key, (ArchiveName, Error)>,
    has_begun_incremental: bool,
    looking: Retry,
}

impl<'a> State<'a> {
    pub fn new(options: &'a PublishOptions) -> Self {
        Self {
            options,
            targets: vec![TargetState::default(); options.targets.len()],
            preparing: None,
            rebasing: None,
            failing: BTreeMap::new(),
            unmade: BTreeSet::new(),
            skipped: Vec::new(),
            passed: BTreeSet::new(),
            left_out: BTreeMap::new(),
            has_begun_incremental: false,
            looking: Retry::default(),
        }
    }

    /// Whether it is time to look; what could not be pinned then may be tried again.
    pub fn looks(&mut self, now: Instant) -> bool {
        let is_due = self.looking.is_due(now);
        if is_due {
            self.passed.clear();
        }
        is_due
    }

    fn settings(&self, facts: &Facts) -> PlanOptions {
        PlanOptions {
            // With `--once`, at most one incremental archive is prepared.
            every: if self.options.is_once { Duration::MAX } else { self.options.every },
            keep_slots: self.options.keep_slots.union(&facts.epoch_ends).copied().collect(),
            pin_bytes: self.options.pin_bytes,
            checks_pairs: self.options.checks_pairs,
            rebase_onto: self.options.rebase_onto,
        }
    }

    fn situation(&self, facts: &Facts, now: Instant) -> Situation {
        let is_once = self.options.is_once;
        let skipped = self.skipped.iter().map(|(key, _)| key);
        let waiting = self.failing.iter().filter(|(_, retry)| retry.lets_others_go(is_once, now));
        let published = |(state, target): (&TargetState, &Target)| {
            let is_silent = !state.is_known && state.retry.failures == 0;
            ArchiveSet { is_silent, is_dir: matches!(target, Target::Dir(_)), ..state.contents.published.clone() }
        };
        let mut is = Situation {
            seen: facts.seen.clone(),
            pinned: facts.pinned.clone(),
            ready: facts.ready.iter().map(|archive| archive.name.clone()).collect(),
            rebased: BTreeSet::new(),
            targets: self.targets.iter().zip(&self.options.targets).map(published).collect(),
            kept: self.targets.iter().map(|target| target.contents.kept.clone()).collect(),
            refused: facts.refused.iter().chain(skipped).chain(&self.passed).chain(&self.unmade).copied().collect(),
            waiting: waiting.map(|(key, _)| *key).collect(),
            preparing: self.preparing.as_ref().map(|(key, _)| *key),
            since_incremental: match is_once {
                true => self.has_begun_incremental.then_some(Duration::ZERO),
                false => facts.since_incremental,
            },
        };
        let rebased = facts.ready.iter().filter(|archive| archive.is_rebased()).map(|archive| key(&archive.name));
        is.rebased = rebased.filter(|key| is.has_full_of(key)).collect();
        is
    }

    /// All that is to be done now. What of it is begun is told by [`begun`](Self::begun).
    pub fn plan(&mut self, facts: &Facts, now: Instant) -> Vec<Action> {
        self.skipped.retain(|(skipped, was)| {
            facts.seen.iter().any(|seen| key(&seen.name) == *skipped && Identity::from(seen) == *was)
        });
        let (is, how) = (self.situation(facts, now), self.settings(facts));
        let to_rebase = is.to_rebase(&how);
        let there: BTreeSet<Key> = is.seen.iter().chain(&is.pinned).map(|archive| key(&archive.name)).collect();
        self.failing.retain(|key, _| there.contains(key) || to_rebase.contains(key) || is.rebased.contains(key));

        let pins = is.pins(&how);
        let mut actions: Vec<Action> = pins.drop.into_iter().map(Action::Unpin).collect();
        for name in pins.no_room {
            actions.push(self.leave_out(name, "there is no room for its pin".to_string(), Hint::MorePinBytes));
        }
        let to_pin = is.seen.iter().filter(|archive| pins.add.contains(&archive.name));
        actions.extend(to_pin.cloned().map(Action::Pin));
        // A target that has not reported yet may need any archive.
        if is.targets.iter().all(|target| !target.is_silent) {
            let is_sent = |name: &&ArchiveName| self.targets.iter().any(|target| target.sends.as_ref() == Some(name));
            let unneeded = is.unneeded(&how).into_iter().filter(|name| !is_sent(name));
            actions.extend(unneeded.cloned().map(Action::RemoveReady));
        }
        let prepares = self.to_prepare(&is, &how, now);
        let is_all_prepared = prepares.is_none() && is_all_prepared(&is, &how);
        actions.extend(prepares);
        match self.rebasing {
            Some(running) => {
                let is_wanted = to_rebase.contains(&running) || is.rebased.contains(&running);
                actions.extend((!is_wanted).then_some(Action::StopRebase));
            }
            None if is_all_prepared => actions.extend(self.next_rebase(&is, &to_rebase, now)),
            None => {}
        }
        let orders = (0..self.targets.len()).filter_map(|at| self.order(at, &is, &how, facts, now));
        actions.extend(orders.collect::<Vec<_>>());
        actions
    }

    fn to_prepare(&self, is: &Situation, how: &PlanOptions, now: Instant) -> Option<Action> {
        let next = is.next_to_prepare(how)?;
        let is_due = self.failing.get(&key(&next.name)).is_none_or(|retry| retry.is_due(now));
        if !is_due || !is.pinned.iter().any(|pinned| pinned.name == next.name) {
            return None;
        }
        let base = next.name.base_slot.filter(|_| self.options.checks_pairs);
        let is_base = |full: &&Archive| full.is_full() && Some(full.name.slot) == base;
        let base = is.pinned.iter().find(is_base).map(|base| base.name.clone());
        let (state, mut made) = (state_of(&next.name, self.options), next.name.clone());
        if !self.options.is_as_is {
            made.extension = self.options.recompress.encoding.codec.extension();
        }
        Some(Action::Prepare { source: next.name, base, made, state })
    }

    /// The next state to rebase, if no working target lacks a full archive: onto the newest full archive first, because most
    /// nodes have that.
    fn next_rebase(&self, is: &Situation, wanted: &BTreeSet<Key>, now: Instant) -> Option<Action> {
        let is_due = |key: &&Key| self.failing.get(key).is_none_or(|retry| retry.is_due(now));
        let next = wanted.iter().rev().find(is_due)?;
        let lacks_full = |at: usize| is.next_to_publish(at).is_some_and(|name| name.base_slot.is_none());
        let mut working = (0..).zip(&self.targets).filter(|(_, target)| target.retry.failures == 0);
        if working.any(|(at, _)| lacks_full(at)) {
            return None;
        }
        let from = is.targets.iter().position(|target| target.can_rebase(next))?;
        Some(Action::Rebase { name: name_of(next, self.options), from })
    }

    fn order(&self, at: usize, is: &Situation, how: &PlanOptions, facts: &Facts, now: Instant) -> Option<Action> {
        let target = self.targets.get(at)?;
        if target.is_busy || !target.retry.is_due(now) || target.retry.is_given_up(self.options.is_once) {
            return None;
        }
        let order = match next_for(is, at, how) {
            _ if !target.is_known => Order::Look,
            Some((name, is_kept)) => {
                let archive = facts.ready.iter().find(|archive| archive.name == *name)?;
                let bytes = target.contents.kept_bytes.saturating_add(archive.size_bytes);
                let has_room = !is_kept || self.options.keep_bytes.is_none_or(|bytes_max| bytes <= bytes_max);
                if has_room { Order::Publish(name.clone(), is_kept) } else { Order::NoRoom(name.clone()) }
            }
            None => {
                // A directory needs no head start: it gets a hard link at the end.
                let is_bucket = matches!(self.options.targets.get(at), Some(Target::S3(_)));
                let (_, made) = self.preparing.as_ref().filter(|_| is_bucket)?;
                Order::HeadStart(is.targets.get(at)?.wants(made).then(|| made.clone())?)
            }
        };
        Some(Action::Order { target: at, order })
    }

    /// What a target had when it was heard of last.
    pub fn contents(&self, target: usize) -> TargetContents {
        self.targets.get(target).map(|target| target.contents.clone()).unwrap_or_default()
    }

    /// Notes that an action was begun.
    pub fn begun(&mut self, action: &Action) {
        match action {
            Action::Prepare { source, made, .. } => {
                self.preparing = Some((key(source), made.clone()));
                self.has_begun_incremental |= source.base_slot.is_some();
            }
            Action::Rebase { name, .. } => self.rebasing = Some(key(name)),
            Action::Order { target, order } => {
                let Some(target) = self.targets.get_mut(*target) else { return };
                target.is_busy = !matches!(order, Order::NoRoom(_));
                match order {
                    Order::Publish(name, _) | Order::HeadStart(name) => target.sends = Some(name.clone()),
                    Order::NoRoom(name) => drop(target.contents.kept.keys.insert(key(name))),
                    Order::Look => {}
                }
            }
            _ => {}
        }
    }

    fn leave_out(&mut self, name: ArchiveName, why: String, hint: impl Into<Hint>) -> Action {
        if self.options.is_once {
            let error = Error::failed(format!("{name} was left out, and is not published: {why}")).with_hint(hint);
            self.left_out.insert(key(&name), (name.clone(), error));
        }
        Action::Tell(Event::Skipped { name, why })
    }

    /// A look ended, and what it asked for. A failing or full disk may recover: only a run with `--once` ends.
    pub fn looked(&mut self, result: Result<()>, now: Instant) -> Result<Option<Action>> {
        match result {
            Ok(()) => self.looking = Retry::default(),
            Err(error) if self.options.is_once => return Err(error),
            Err(error) => {
                let retry = self.looking.failed(false, now);
                return Ok(Some(failed(error, None, retry)));
            }
        }
        Ok(None)
    }

    /// An archive could not be pinned.
    pub fn not_pinned(&mut self, archive: &Archive, why: Pinned, judged: Judged, now: Instant) -> Vec<Action> {
        let (name, was) = (archive.name.clone(), Identity::from(archive));
        match (why, judged) {
            (Pinned::NotNow, _) if self.options.is_once => {
                // Not for ever.
                let retry = self.failing.entry(key(&name)).or_default();
                if retry.is_due(now) {
                    retry.failed(true, now);
                }
                Vec::new()
            }
            (Pinned::Never(why), judged) => {
                self.passed.insert(key(&name));
                match judged {
                    Judged::Damaged(error) => {
                        let told = Event::Refused { name: name.clone(), error, kept: None };
                        return vec![Action::Refuse(name, was), Action::Tell(told)];
                    }
                    // It may become whole later, or stay as it is.
                    Judged::Unfinished => {}
                    Judged::Sound => self.skipped.push((key(&name), was)),
                }
                vec![self.leave_out(name, why, HINT_NEVER)]
            }
            _ => Vec::new(),
        }
    }

    pub fn prepared(&mut self) {
        self.preparing = None;
    }

    /// A preparation failed. `was` is the identity of the file when it was pinned.
    pub fn not_prepared(
        &mut self,
        source: &ArchiveName,
        error: Error,
        was: Option<Identity>,
        facts: &Facts,
        now: Instant,
    ) -> Vec<Action> {
        self.preparing = None;
        if error.kind() == ErrorKind::Interrupted {
            return Vec::new();
        }
        // With `--once`, another incremental archive may be prepared instead.
        self.has_begun_incremental &= source.base_slot.is_none();
        let find = |archives: &[Archive]| archives.iter().find(|it| it.name == *source).map(Identity::from);
        let is_changed = find(&facts.seen).is_some_and(|seen| was != Some(seen))
            || find(&facts.pinned).zip(was).is_none_or(|(now, was)| !now.is_same_content(&was));
        let is_damaged = error.kind() == ErrorKind::Damaged;
        if is_damaged && !is_changed {
            return vec![Action::Quarantine { name: source.clone(), was, error }];
        }
        let retry = self.failing.entry(key(source)).or_default().failed(self.options.is_once, now);
        if !is_damaged {
            return vec![failed(error, None, retry)];
        }
        // The file was modified after it got its name, for example by a program that copies it there.
        let error =
            Error::failed(format!("{source} changed while it was read")).with_hint("it is taken when it is whole");
        vec![Action::Unpin(source.clone()), failed(error, None, retry)]
    }

    /// A rebase ended.
    pub fn rebased(&mut self, name: &ArchiveName, result: Result<()>, now: Instant) -> Vec<Action> {
        self.rebasing = None;
        let Err(error) = result else { return Vec::new() };
        let told = match error.kind() {
            ErrorKind::Interrupted => None,
            // The same archives would fail again.
            ErrorKind::Usage => {
                self.unmade.insert(key(name));
                Some(Action::Tell(Event::Skipped { name: name.clone(), why: error.to_string() }))
            }
            _ => {
                let retry = self.failing.entry(key(name)).or_default().failed_costly(self.options.is_once, now);
                if retry.is_none() {
                    self.unmade.insert(key(name));
                }
                Some(failed(error.within(name), None, retry))
            }
        };
        [Action::Forget(name.clone())].into_iter().chain(told).collect()
    }

    /// A target has done what it was asked for, or failed; `is_lasting` if trying again soon does not mend it.
    pub fn answered(
        &mut self,
        at: usize,
        result: Result<TargetContents>,
        is_lasting: bool,
        now: Instant,
    ) -> Option<Action> {
        let (is_once, name) = (self.options.is_once, self.options.targets.get(at)?.to_string());
        let target = self.targets.get_mut(at)?;
        (target.is_busy, target.sends) = (false, None);
        match result {
            Ok(contents) => {
                (target.contents, target.is_known, target.retry) = (contents, true, Retry::default());
                None
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => None,
            Err(error) => {
                let retry = match is_lasting {
                    true => target.retry.refused(is_once, now),
                    false => target.retry.failed(is_once, now),
                };
                Some(failed(error, Some(name), retry))
            }
        }
    }

    /// With `--once`: true if nothing is left to do, or all attempts at it are used up.
    pub fn is_over(&self, facts: &Facts, now: Instant) -> bool {
        let (is, how) = (self.situation(facts, now), self.settings(facts));
        let is_done = |(at, target): (usize, &TargetState)| {
            let has_all = || next_for(&is, at, &how).is_none();
            !target.is_busy && (target.retry.is_given_up(true) || target.is_known && has_all())
        };
        let is_rebased = self.rebasing.is_none() && is.to_rebase(&how).is_empty();
        is_rebased && is_all_prepared(&is, &how) && self.targets.iter().enumerate().all(is_done)
    }

    /// With `--once`: fails if a target lacks an archive that was left out.
    pub fn check_left_out(&self, facts: &Facts, now: Instant) -> Result<()> {
        let targets = self.situation(facts, now).targets;
        let lacked = self.left_out.values().filter(|(name, _)| targets.iter().any(|target| target.wants(name)));
        lacked.max_by_key(|(name, _)| name.slot).map_or(Ok(()), |(_, error)| Err(error.clone()))
    }

    /// Each target: what it has, how many ready archives it lacks, and whether it works.
    pub fn targets(&self, facts: &Facts) -> impl Iterator<Item = (&TargetContents, usize, bool)> {
        self.targets.iter().map(|TargetState { contents, is_known, retry, .. }| {
            let is_up = *is_known && retry.failures == 0;
            let is_silent = !is_known && is_up;
            let has = ArchiveSet { is_silent, ..contents.published.clone() };
            (contents, facts.ready.iter().filter(|ready| has.wants(&ready.name)).count(), is_up)
        })
    }
}

fn failed(error: Error, target: Option<String>, retry: Option<Duration>) -> Action {
    Action::Tell(Event::Failed { error, target, retry, is_of_hook: false })
}

fn is_all_prepared(is: &Situation, how: &PlanOptions) -> bool {
    let has_no_room = |next: Archive| is.pins(how).no_room.contains(&next.name);
    is.preparing.is_none() && is.next_to_prepare(how).is_none_or(has_no_room)
}

/// The next archive for a target, and whether it goes into `kept/`.
fn next_for<'i>(is: &'i Situation, at: usize, how: &PlanOptions) -> Option<(&'i ArchiveName, bool)> {
    let next = is.next_to_publish(at).map(|name| (name, false));
    let next = next.or_else(|| is.next_to_keep(at, how).map(|name| (name, true)));
    next.or_else(|| is.next_rebased(at, how).map(|name| (name, false)))
}
