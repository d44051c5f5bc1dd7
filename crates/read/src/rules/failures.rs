//! Collects failures, which are broken rules, each with its place in the archive or ledger.
//!
//! `verify` collects all failures. `restore` and `recompress` stop at the first failure that would make their
//! result worthless. [`Failures`] serves both.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::Serialize;
use slotpress_base::{Error, Result};
use slotpress_format::Address;

use super::clients::{ClientVerdict, merge_versions, verdicts};
use super::rule::{Check, Rule, SnapshotClient};

/// Position of a failure, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct FailurePlace {
    /// Path of the archive, or of the bank snapshot's directory.
    #[serde(serialize_with = "slotpress_base::text::optional_path")]
    pub path: Option<PathBuf>,
    /// Index among the frames with tar data, from 0.
    pub frame: Option<u64>,
    /// Offset in the content of the entry. Without an entry, the offset is in the file if the check is
    /// [`Check::Frames`], and otherwise in the tar stream.
    pub offset_bytes: Option<u64>,
    /// Path of the entry in the tar.
    pub entry: Option<String>,
    /// Address of the account.
    pub account: Option<Address>,
}

impl FailurePlace {
    pub(crate) fn entry(path: impl ToString) -> Self {
        Self { entry: Some(path.to_string()), ..Self::default() }
    }

    pub(crate) fn storage(slot: u64, id: impl fmt::Display) -> Self {
        Self::entry(format!("accounts/{slot}.{id}"))
    }

    pub(crate) fn frame(frame: Option<u64>, offset_bytes: Option<u64>) -> Self {
        Self { frame, offset_bytes, ..Self::default() }
    }

    pub(crate) fn account(address: [u8; 32]) -> Self {
        Self { account: Some(Address(address)), ..Self::default() }
    }

    #[must_use]
    pub(crate) fn with_offset(mut self, offset_bytes: u64) -> Self {
        self.offset_bytes = Some(offset_bytes);
        self
    }
}

/// A broken rule of an archive or ledger: its description, its place, and advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct Failure {
    /// Check that found the failure.
    pub check: Check,
    /// Rule that is broken.
    pub rule: Rule,
    /// Description of the failure, without place or values.
    pub message: String,
    /// Place of the failure, as far as it is known.
    #[serde(flatten)]
    pub place: FailurePlace,
    /// Expected value; `None` if the message implies it.
    pub expected: Option<String>,
    /// Value found instead; `None` if the message implies it.
    pub found: Option<String>,
    /// Advice for the operator.
    pub hint: Cow<'static, str>,
}

impl Failure {
    /// Returns the failure that caused an error of the kind
    /// [`Damaged`](slotpress_base::ErrorKind::Damaged), with its rule, entry and account.
    pub fn from_error(error: &Error) -> Option<&Self> {
        error.cause()?.downcast_ref()
    }

    /// Creates a failure. Its expected value is [`Rule::expected`].
    fn new(rule: Rule, place: FailurePlace, found: String) -> Self {
        Self {
            check: rule.check(),
            rule,
            message: rule.description().to_string(),
            place,
            expected: rule.expected().map(str::to_string),
            found: Some(found),
            hint: rule.remedy().into(),
        }
    }

    /// Creates a failure if every client refuses the archive; `None` if a client loads it.
    pub(crate) fn from_verdicts(verdicts: &[ClientVerdict]) -> Option<Self> {
        let refusals = verdicts.iter().map(|verdict| Some((verdict.client, verdict.refusal_reason?)));
        let lines = merge_versions(refusals.collect::<Option<_>>()?).into_iter();
        let found: Vec<String> = lines.map(|(client, why)| format!("{client}: {why}")).collect();
        Some(Self::new(Rule::NoClient, FailurePlace::default(), found.join("; ")))
    }

    #[doc(hidden)]
    pub fn to_error(&self) -> Error {
        if self.rule.is_unsupported() {
            return self.rule.unsupported_error();
        }
        let error = Error::damaged(self.to_string()).with_hint(self.hint.clone()).with_cause(self.clone());
        match self.place.offset_bytes {
            Some(offset_bytes) => error.at_offset(offset_bytes),
            None => error,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(entry) = &self.place.entry {
            write!(f, ", in {entry}")?;
        }
        if let Some(account) = self.place.account {
            write!(f, ", in account {account}")?;
        }
        if let Some(expected) = &self.expected {
            write!(f, ", expected {expected}")?;
        }
        if let Some(found) = &self.found {
            write!(f, ", found {found}")?;
        }
        Ok(())
    }
}

impl StdError for Failure {}

/// Collects failures from all workers, or ends the work at the first failure of a refused rule.
#[derive(Debug, Default)]
pub struct Failures {
    inner: Mutex<FailureList>,
    /// Decides which rules end the work when they are broken; `None` if no rule does.
    refused: Option<fn(Rule) -> bool>,
    is_base: bool,
}

/// Collected failures, the number of failures of each rule, and the reasons why checks were skipped.
#[derive(Debug, Default)]
pub(crate) struct FailureList {
    pub failures: Vec<Failure>,
    pub per_rule: BTreeMap<Rule, u64>,
    pub skipped: BTreeMap<Check, String>,
    has_lost_accounts: bool,
}

/// Limit on the failures kept for each rule, so that a damaged archive of 5,000,000 storages does not fill
/// the memory.
pub const FAILURES_PER_RULE_MAX: u64 = 50;

impl Failures {
    pub fn new() -> Self {
        Self::default()
    }

    /// Collects failures, but ends the work at the first broken rule for which `refused` is true.
    pub fn with_refused(refused: fn(Rule) -> bool) -> Self {
        Self { refused: Some(refused), ..Self::default() }
    }

    /// Ends the work at the first broken rule.
    pub fn strict() -> Self {
        Self::with_refused(|_| true)
    }

    /// Sets whether the failures concern the full archive of a pair, whose bank clients do not use.
    #[must_use]
    pub fn for_base(self, is_base: bool) -> Self {
        Self { is_base, ..self }
    }

    pub fn refuses(&self, rule: Rule) -> bool {
        self.refused.is_some_and(|refused| refused(rule))
    }

    /// Records a broken rule; returns an error if the rule ends the work.
    pub fn add(&self, rule: Rule, expected: impl ToString, found: impl ToString) -> Result<()> {
        self.at(FailurePlace::default()).add(rule, expected, found)
    }

    pub(crate) fn at(&self, place: FailurePlace) -> FailuresAt<'_> {
        FailuresAt { failures: self, place }
    }

    fn push(&self, failure: Failure) {
        let mut inner = self.inner.lock();
        let count = inner.per_rule.entry(failure.rule).or_default();
        *count = count.saturating_add(1);
        if *count <= FAILURES_PER_RULE_MAX {
            inner.failures.push(failure);
        }
    }

    /// Fails if every client refuses the archive because of a version-specific rule, even if each of these
    /// rules is tolerated by some client.
    pub fn require_client(&self) -> Result<()> {
        let broken = self.broken_rules();
        let version_specific = broken.keys().copied().filter(|rule| rule.is_version_specific());
        match Failure::from_verdicts(&verdicts(version_specific, &SnapshotClient::JUDGED_BY_DEFAULT)) {
            Some(failure) => Err(failure.to_error()),
            None => Ok(()),
        }
    }

    /// Records that a check was not completed; keeps the first reason.
    pub fn skip(&self, check: Check, why: impl ToString) {
        self.inner.lock().skipped.entry(check).or_insert_with(|| why.to_string());
    }

    pub fn skip_reason(&self, check: Check) -> Option<String> {
        self.inner.lock().skipped.get(&check).cloned()
    }

    /// Records that some accounts could not be read, so the state cannot be judged.
    pub fn set_lost_accounts(&self) {
        self.inner.lock().has_lost_accounts = true;
    }

    pub fn has_lost_accounts(&self) -> bool {
        self.inner.lock().has_lost_accounts
    }

    pub fn has(&self, rule: Rule) -> bool {
        self.inner.lock().per_rule.contains_key(&rule)
    }

    pub fn absorb(&self, other: Self, path: &Path) {
        let other = other.into_list();
        let mut inner = self.inner.lock();
        for mut failure in other.failures {
            failure.place.path.get_or_insert_with(|| path.to_path_buf());
            inner.failures.push(failure);
        }
        for (rule, count) in other.per_rule {
            let total = inner.per_rule.entry(rule).or_default();
            *total = total.saturating_add(count);
        }
        for (check, why) in other.skipped {
            inner.skipped.entry(check).or_insert(why);
        }
    }

    pub(crate) fn into_list(self) -> FailureList {
        self.inner.into_inner()
    }

    pub fn broken_rules(&self) -> BTreeMap<Rule, u64> {
        self.inner.lock().per_rule.clone()
    }
}

pub(crate) struct FailuresAt<'a> {
    pub failures: &'a Failures,
    pub place: FailurePlace,
}

impl FailuresAt<'_> {
    /// Records a broken rule; returns an error if the rule ends the work.
    pub fn add(&self, rule: Rule, expected: impl ToString, found: impl ToString) -> Result<()> {
        let failures = self.failures;
        if failures.is_base && rule.concerns_newest_bank() {
            return Ok(());
        }
        let failure = Failure::new(rule, self.place.clone(), found.to_string());
        let failure = Failure { expected: Some(expected.to_string()), ..failure };
        if failures.refuses(rule) {
            return Err(failure.to_error());
        }
        failures.push(failure);
        Ok(())
    }

    /// Records a broken rule that an error describes; returns the error if the rule ends the work.
    pub fn add_error(&self, rule: Rule, error: &Error) -> Result<()> {
        self.add_error_to(rule.check(), rule, error)
    }

    /// Like [`add_error`](Self::add_error), for a check other than the rule's own.
    pub fn add_error_to(&self, check: Check, rule: Rule, error: &Error) -> Result<()> {
        let place = &self.place;
        let place = FailurePlace { offset_bytes: place.offset_bytes.or(error.offset_bytes()), ..place.clone() };
        let failure = Failure { check, ..Failure::new(rule, place, error.to_string()) };
        if self.failures.refuses(rule) {
            return Err(if error.cause().is_none() { error.clone().with_cause(failure) } else { error.clone() });
        }
        self.failures.push(failure);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absorbed_failures_are_added() {
        let first = Failures::new();
        let second = Failures::new();
        let add = |failures: &Failures, entry: &str| {
            failures.at(FailurePlace::entry(entry)).add(Rule::BankHash, "a hash", "another").expect("collected");
        };
        add(&first, "a");
        add(&second, "b");
        first.skip(Check::Name, "first");
        second.skip(Check::Name, "second");
        second.skip(Check::State, "no bank file");
        let path = Path::new("archive");
        first.absorb(second, path);
        let skipped = [Check::Name, Check::State, Check::Bank].map(|check| first.skip_reason(check));
        assert_eq!(skipped, [Some("first".to_string()), Some("no bank file".to_string()), None]);
        let FailureList { failures, per_rule, .. } = first.into_list();
        let places = failures.iter().map(|Failure { place, .. }| (place.entry.as_deref(), place.path.as_deref()));
        assert_eq!(places.collect::<Vec<_>>(), [(Some("a"), None), (Some("b"), Some(path))]);
        assert_eq!(per_rule.into_iter().collect::<Vec<_>>(), [(Rule::BankHash, 2)]);
    }

    #[test]
    fn only_the_first_failures_of_a_rule_are_kept() {
        let failures = Failures::new();
        for number in 0..FAILURES_PER_RULE_MAX + 3 {
            failures
                .at(FailurePlace::default().with_offset(number))
                .add(Rule::BankHash, "a hash", "another")
                .expect("collected");
        }
        let FailureList { failures, per_rule, .. } = failures.into_list();
        let last = failures.last().and_then(|failure| failure.place.offset_bytes);
        assert_eq!((failures.len() as u64, last), (FAILURES_PER_RULE_MAX, Some(FAILURES_PER_RULE_MAX - 1)));
        assert_eq!(per_rule[&Rule::BankHash], FAILURES_PER_RULE_MAX + 3);
    }
}
