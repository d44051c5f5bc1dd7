//! What is wrong, as it is found: rules that are broken, each at its place.
//!
//! One book of rules serves two kinds of readers: `verify` collects everything that is wrong; `restore`, `recompress` and
//! `archive --verify` end at the first rule whose breach would make their result worthless. [`Findings`] is what both
//! report to, and knows which of the two it is.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use slotpress_base::{Error, Result};
use slotpress_format::Address;

use crate::Rule;

/// The checks, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Check {
    /// Frames: magic, sizes, checksums, windows, what follows; index and seek table against them.
    Frames,
    /// Entries: names, kinds, order, duplicates, sizes, end of archive.
    Entries,
    /// The name against the bank file; the version.
    Name,
    /// Bank file and status cache, to their last byte; the storage map against the storages.
    Bank,
    /// Every record of every storage.
    Records,
    /// Capitalization and lattice hash, over the newest version of every account.
    State,
}

impl Check {
    /// All of them, in their order.
    pub const ALL: [Self; 6] = [Self::Frames, Self::Entries, Self::Name, Self::Bank, Self::Records, Self::State];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Frames => "frames",
            Self::Entries => "entries",
            Self::Name => "name",
            Self::Bank => "bank",
            Self::Records => "records",
            Self::State => "state",
        }
    }
}

/// Where something is: as much of it as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Place {
    /// The archive's or the ledger's path.
    #[serde(serialize_with = "slotpress_base::text::optional_path")]
    pub path: Option<PathBuf>,
    /// The number of the frame that holds tar, from 0.
    pub frame: Option<u64>,
    /// With an entry: the offset in its content. With a frame and no entry: in the file. Otherwise: in the tar stream.
    pub offset_bytes: Option<u64>,
    /// The entry's path.
    pub entry: Option<String>,
    /// The account.
    pub account: Option<Address>,
}

impl Place {
    /// In an entry.
    pub(crate) fn entry(path: impl ToString) -> Self {
        Self { entry: Some(path.to_string()), ..Self::default() }
    }

    /// In a frame that starts at this offset of the file.
    pub(crate) fn frame(frame: Option<u64>, offset_bytes: Option<u64>) -> Self {
        Self { frame, offset_bytes, ..Self::default() }
    }

    /// At an offset.
    #[must_use]
    pub(crate) fn at(mut self, offset_bytes: u64) -> Self {
        self.offset_bytes = Some(offset_bytes);
        self
    }
}

/// One broken rule at one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Failure {
    /// The check that found it.
    pub check: Check,
    /// The rule.
    pub rule: Rule,
    /// What is wrong, in words.
    pub message: String,
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// What should be there.
    pub expected: Option<String>,
    /// What is there.
    pub found: Option<String>,
    /// What to do.
    pub hint: Cow<'static, str>,
}

impl Failure {
    /// The same as an error.
    pub(crate) fn to_error(&self) -> Error {
        let mut message = self.message.clone();
        let account = self.place.account.map(|account| format!("account {account}"));
        for part in self.place.entry.iter().chain(&account) {
            message += &format!(", in {part}");
        }
        for (word, text) in [("expected", &self.expected), ("found", &self.found)] {
            if let Some(text) = text {
                message += &format!(", {word} {text}");
            }
        }
        let error = Error::damaged(message).with_hint(self.hint.clone());
        match self.place.offset_bytes {
            Some(offset_bytes) => error.at_offset(offset_bytes),
            None => error,
        }
    }
}

/// Collects failures from all workers, or ends the work at the first that must not be.
#[derive(Debug, Default)]
pub struct Findings {
    inner: Mutex<FoundSoFar>,
    /// Tells the rules whose breach is an error; `None`: none is.
    refused: Option<fn(Rule) -> bool>,
}

#[derive(Debug, Default)]
struct FoundSoFar {
    failures: Vec<Failure>,
    per_rule: BTreeMap<Rule, u64>,
    skipped: BTreeMap<Check, String>,
    is_state_incomplete: bool,
}

/// Of each rule, so many failures are kept: a damaged archive of 5,000,000 storages must not fill the memory.
pub const FAILURES_PER_RULE_MAX: u64 = 50;

impl Findings {
    /// Nothing found yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the work when a rule is broken that `refused` tells; collects the others.
    pub fn refusing(refused: fn(Rule) -> bool) -> Self {
        Self { refused: Some(refused), ..Self::default() }
    }

    /// Whether a breach of the rule ends the work.
    pub fn refuses(&self, rule: Rule) -> bool {
        self.refused.is_some_and(|refused| refused(rule))
    }

    fn lock(&self) -> MutexGuard<'_, FoundSoFar> {
        self.inner.lock()
    }

    /// A rule is broken. An error where that ends the work.
    pub fn add(
        &self,
        check: Check,
        rule: Rule,
        place: Place,
        expected: impl ToString,
        found: impl ToString,
    ) -> Result<()> {
        let stated = |text: String| Some(text).filter(|text| !text.is_empty());
        let failure = Failure {
            check,
            rule,
            message: rule.what().to_string(),
            place,
            expected: stated(expected.to_string()).or_else(|| rule.expected().map(str::to_string)),
            found: stated(found.to_string()),
            hint: rule.remedy().into(),
        };
        match self.refuses(rule) {
            true => Err(failure.to_error()),
            false => {
                self.push(failure);
                Ok(())
            }
        }
    }

    /// A rule is broken, in the words of an error; that error, where it ends the work.
    pub fn add_error(&self, check: Check, rule: Rule, mut place: Place, error: &Error) -> Result<()> {
        if self.refuses(rule) {
            return Err(error.clone());
        }
        place.offset_bytes = place.offset_bytes.or(error.offset_bytes());
        self.push(Failure {
            check,
            rule,
            message: rule.what().to_string(),
            place,
            expected: rule.expected().map(str::to_string),
            found: Some(error.to_string()),
            hint: rule.remedy().into(),
        });
        Ok(())
    }

    fn push(&self, failure: Failure) {
        let mut inner = self.lock();
        let count = inner.per_rule.entry(failure.rule).or_default();
        *count = count.saturating_add(1);
        if *count <= FAILURES_PER_RULE_MAX {
            inner.failures.push(failure);
        }
    }

    /// A check was not made, or not to its end; the first reason stays.
    pub fn skip(&self, check: Check, why: impl ToString) {
        self.lock().skipped.entry(check).or_insert_with(|| why.to_string());
    }

    /// Whether a check is not made, or not to its end.
    pub fn is_skipped(&self, check: Check) -> bool {
        self.lock().skipped.contains_key(&check)
    }

    /// Why a check is not made, or not to its end.
    pub fn skipped(&self, check: Check) -> Option<String> {
        self.lock().skipped.get(&check).cloned()
    }

    /// Some accounts could not be read: the state cannot be judged.
    pub fn lose_accounts(&self) {
        self.lock().is_state_incomplete = true;
    }

    /// Whether some accounts could not be read.
    pub fn has_lost_accounts(&self) -> bool {
        self.lock().is_state_incomplete
    }

    /// Whether a rule was broken.
    pub fn has(&self, rule: Rule) -> bool {
        self.lock().per_rule.contains_key(&rule)
    }

    /// Takes another's findings, which were made on the same path.
    pub fn absorb(&self, other: Self, path: &std::path::Path) {
        let other = other.inner.into_inner();
        let mut inner = self.lock();
        for mut failure in other.failures {
            failure.place.path.get_or_insert_with(|| path.to_path_buf());
            inner.failures.push(failure);
        }
        for (rule, count) in other.per_rule {
            let known = inner.per_rule.entry(rule).or_default();
            *known = known.saturating_add(count);
        }
        for (check, why) in other.skipped {
            inner.skipped.entry(check).or_insert(why);
        }
        inner.is_state_incomplete |= other.is_state_incomplete;
    }

    /// Everything that was found: failures, how many there were of each rule, and why checks were not made.
    pub fn into_parts(self) -> (Vec<Failure>, BTreeMap<Rule, u64>, BTreeMap<Check, String>) {
        let found = self.inner.into_inner();
        (found.failures, found.per_rule, found.skipped)
    }

    /// How often each rule was broken.
    pub fn broken_rules(&self) -> BTreeMap<Rule, u64> {
        self.lock().per_rule.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_found_is_taken_over() {
        let (one, other) = (Findings::new(), Findings::new());
        let add = |findings: &Findings, entry: &str| {
            findings.add(Check::Bank, Rule::BankHash, Place::entry(entry), "", "another").expect("collected");
        };
        add(&one, "a");
        add(&other, "b");
        one.skip(Check::Name, "first");
        other.skip(Check::Name, "second");
        other.skip(Check::State, "no bank file");
        other.lose_accounts();
        assert!(!one.has_lost_accounts());
        one.absorb(other, std::path::Path::new("it"));
        assert!(one.has_lost_accounts());
        one.absorb(Findings::new(), std::path::Path::new("nothing"));
        assert!(one.has_lost_accounts(), "that does not end");
        let skipped = [Check::Name, Check::State, Check::Bank].map(|check| one.skipped(check));
        assert_eq!(skipped, [Some("first".to_string()), Some("no bank file".to_string()), None]);
        let (failures, per_rule, _) = one.into_parts();
        let places: Vec<_> = failures.iter().map(|it| (it.place.entry.as_deref(), it.place.path.as_deref())).collect();
        assert_eq!(places, [(Some("a"), None), (Some("b"), Some(std::path::Path::new("it")))]);
        assert_eq!(per_rule.into_iter().collect::<Vec<_>>(), [(Rule::BankHash, 2)]);
    }

    /// Of each rule, as many are kept as may be, and all are counted.
    #[test]
    fn few_are_kept_of_many() {
        let findings = Findings::new();
        for number in 0..FAILURES_PER_RULE_MAX + 3 {
            findings.add(Check::Bank, Rule::BankHash, Place::default().at(number), "", "").expect("collected");
        }
        let (failures, per_rule, _) = findings.into_parts();
        let last = failures.last().and_then(|failure| failure.place.offset_bytes);
        assert_eq!((failures.len() as u64, last), (FAILURES_PER_RULE_MAX, Some(FAILURES_PER_RULE_MAX - 1)));
        assert_eq!(per_rule[&Rule::BankHash], FAILURES_PER_RULE_MAX + 3);
    }
}
