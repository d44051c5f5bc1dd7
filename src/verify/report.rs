//! What verifying found: checks, failures with their place, and each client's verdict.

use {
    crate::{
        format::clients::{Client, Rule},
        ledger::names::Hash,
        stopwatch::Taken,
    },
    serde::Serialize,
    std::{
        collections::BTreeMap,
        path::PathBuf,
        sync::{Mutex, PoisonError},
    },
};

/// The checks, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
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
pub struct Place {
    /// The archive's or the ledger's path.
    pub path: Option<PathBuf>,
    /// The number of the frame that holds tar, from 0.
    pub frame: Option<u64>,
    /// With an entry: the offset in its content. With a frame and no entry: in the file. Otherwise: in the tar stream.
    pub offset_bytes: Option<u64>,
    /// The entry's path.
    pub entry: Option<String>,
    /// The account.
    pub account: Option<Hash>,
}

impl Place {
    /// In an entry.
    pub fn entry(path: impl ToString) -> Self {
        Self { entry: Some(path.to_string()), ..Self::default() }
    }

    /// In a frame that starts at this offset of the file.
    pub fn frame(frame: Option<u64>, offset_bytes: Option<u64>) -> Self {
        Self { frame, offset_bytes, ..Self::default() }
    }

    /// At an offset.
    #[must_use]
    pub fn at(mut self, offset_bytes: u64) -> Self {
        self.offset_bytes = Some(offset_bytes);
        self
    }
}

/// One broken rule at one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    pub hint: &'static str,
}

/// Whether a check was made, and what it said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    /// The check.
    pub name: Check,
    /// Whether nothing was wrong, as far as it was made.
    pub ok: bool,
    /// Why it was not made, or not to its end.
    pub skipped: Option<String>,
}

/// A client's verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClientVerdict {
    /// The client.
    pub client: Client,
    /// Whether it loads the archive, as far as was checked.
    pub loads: bool,
    /// Why not.
    pub because: Option<&'static str>,
}

/// Everything that verifying found out.
#[derive(Clone, Debug)]
pub struct VerifyReport {
    /// What was verified: an archive, a full and an incremental one, or a ledger.
    pub paths: Vec<PathBuf>,
    /// Whether everything that was asked about is right.
    pub ok: bool,
    /// The clients that were asked about; empty for all, and without any departure.
    pub asked: Vec<Client>,
    /// The snapshot hash that the state was compared with.
    pub expected_hash: Option<Hash>,
    /// The slot that it was compared with.
    pub expected_slot: Option<u64>,
    /// The state's slot.
    pub slot: Option<u64>,
    /// The base slot, for an incremental archive.
    pub base_slot: Option<u64>,
    /// The snapshot hash of the state, as the bank file gives it.
    pub hash: Option<Hash>,
    /// Lamports in existence, as recomputed, or as the bank file says.
    pub capitalization: Option<u64>,
    /// The checks, in order.
    pub checks: Vec<CheckResult>,
    /// What is wrong.
    pub failures: Vec<Failure>,
    /// What is odd, but tolerated by every client that was asked about.
    pub warnings: Vec<Failure>,
    /// Failures and warnings beyond those listed, which are of the same kinds.
    pub unlisted_count: u64,
    /// Each client's verdict.
    pub clients: Vec<ClientVerdict>,
    /// What was counted.
    pub counts: Counts,
    /// Time and CPU time.
    pub taken: Taken,
}

/// What was counted on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Bytes of archives or storages read.
    pub input_bytes: u64,
    /// Bytes of tar, or of storages.
    pub tar_bytes: u64,
    /// Frames that hold tar.
    pub frames: u64,
    /// Storages.
    pub storages: u64,
    /// Records of all versions.
    pub records: u64,
    /// Accounts in the state: with lamports, newest version.
    pub accounts: u64,
    /// Records that close an account.
    pub tombstones: u64,
    /// Records that a newer one supersedes, as far as they were counted.
    pub superseded: u64,
    /// Bytes spilled to a temporary directory.
    pub spilled_bytes: u64,
}

/// Collects failures from all workers.
#[derive(Debug, Default)]
pub struct Findings {
    inner: Mutex<FoundSoFar>,
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

    fn lock(&self) -> std::sync::MutexGuard<'_, FoundSoFar> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A rule is broken.
    pub fn add(&self, check: Check, rule: Rule, place: Place, expected: impl Into<Expected>, found: impl ToString) {
        let Expected(expected) = expected.into();
        let found = Some(found.to_string()).filter(|found| !found.is_empty());
        self.push(Failure {
            check,
            rule,
            message: rule.what().to_string(),
            place,
            expected: expected.or_else(|| rule.expected().map(str::to_string)),
            found,
            hint: rule.remedy(),
        });
    }

    /// A rule is broken, in the words of an error.
    pub fn add_error(&self, check: Check, rule: Rule, mut place: Place, error: &crate::Error) {
        place.offset_bytes = place.offset_bytes.or(error.offset_bytes());
        self.push(Failure {
            check,
            rule,
            message: rule.what().to_string(),
            place,
            expected: rule.expected().map(str::to_string),
            found: Some(error.to_string()),
            hint: rule.remedy(),
        });
    }

    fn push(&self, failure: Failure) {
        let mut inner = self.lock();
        let count = inner.per_rule.entry(failure.rule).or_default();
        *count += 1;
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
        let other = other.inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut inner = self.lock();
        for mut failure in other.failures {
            failure.place.path.get_or_insert_with(|| path.to_path_buf());
            inner.failures.push(failure);
        }
        for (rule, count) in other.per_rule {
            *inner.per_rule.entry(rule).or_default() += count;
        }
        for (check, why) in other.skipped {
            inner.skipped.entry(check).or_insert(why);
        }
        inner.is_state_incomplete |= other.is_state_incomplete;
    }

    /// Puts everything together. With `asked`, what all of those clients tolerate is a warning.
    pub fn into_report(self, asked: &[Client], paths: Vec<PathBuf>) -> VerifyReport {
        let FoundSoFar { mut failures, per_rule, skipped, .. } =
            self.inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        failures.sort_by(|a, b| {
            let key = |failure: &Failure| (failure.check, failure.place.frame, failure.place.offset_bytes);
            key(a).cmp(&key(b)).then_with(|| a.place.entry.cmp(&b.place.entry))
        });
        // What was asked for is nothing that a client minds, but whoever asked.
        let is_failure = |rule: Rule| {
            asked.is_empty() || rule == Rule::NotExpected || asked.iter().any(|client| !rule.is_tolerated_by(*client))
        };
        let clients = Client::ALL
            .into_iter()
            .map(|client| {
                let because = per_rule.keys().find(|rule| !rule.is_tolerated_by(client)).map(|rule| rule.what());
                ClientVerdict { client, loads: because.is_none(), because }
            })
            .collect();
        let listed = failures.len() as u64;
        let (failures, warnings): (Vec<Failure>, Vec<Failure>) =
            failures.into_iter().partition(|failure| is_failure(failure.rule));
        let checks = Check::ALL
            .into_iter()
            .map(|name| CheckResult {
                name,
                ok: !failures.iter().any(|failure| failure.check == name),
                skipped: skipped.get(&name).cloned(),
            })
            .collect();
        VerifyReport {
            paths,
            ok: failures.is_empty(),
            asked: asked.to_vec(),
            expected_hash: None,
            expected_slot: None,
            slot: None,
            base_slot: None,
            hash: None,
            capitalization: None,
            checks,
            unlisted_count: per_rule.values().sum::<u64>() - listed.min(per_rule.values().sum()),
            failures,
            warnings,
            clients,
            counts: Counts::default(),
            taken: Taken::default(),
        }
    }
}

/// What was expected, where that can be said.
pub struct Expected(Option<String>);

impl From<&str> for Expected {
    fn from(text: &str) -> Self {
        Self(Some(text.to_string()).filter(|text| !text.is_empty()))
    }
}

impl From<String> for Expected {
    fn from(text: String) -> Self {
        Self(Some(text))
    }
}

impl From<u64> for Expected {
    fn from(number: u64) -> Self {
        Self(Some(number.to_string()))
    }
}

impl From<Hash> for Expected {
    fn from(hash: Hash) -> Self {
        Self(Some(hash.to_string()))
    }
}

impl VerifyReport {
    /// Whether a check was made to its end.
    pub fn was_made(&self, check: Check) -> bool {
        self.checks.iter().any(|result| result.name == check && result.skipped.is_none())
    }
}
