//! Settings of a verification, and the job that its parts share: options, visitors and progress.

use derive_setters::Setters;
use slotpress_base::{EscapePath, IoPolicy, Progress, Result, Stage, Step, available_threads, quantity};
use slotpress_format::ArchiveRoot;

use crate::state::check::unpaired_error;
use crate::{ArchiveInput, CheckMode, CheckOptions, SnapshotClient, StateBuilder, StateVisitor, Task};

/// Clients, checks and settings of a verification.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// Clients that must load the input. If this is empty, every broken rule is a failure, except differences
    /// between client versions. Default: empty.
    #[setters(into)]
    pub clients: Vec<SnapshotClient>,
    /// Extent of the checks, and expected values. Default: all checks, no expected value.
    pub check: CheckOptions,
    /// Accepts a part of a state, such as an incremental archive alone, and checks everything else.
    #[setters(skip)]
    pub(crate) allows_part: bool,
    /// Threads that decode and hash, 1 to 1024. Default: one per core.
    pub threads: usize,
    /// Policy for the page cache and the rate while reading. Default: gentle on the page
    /// cache, without a rate limit.
    pub io_policy: IoPolicy,
    /// Expected roots: the full archive's first, then the incremental one's. An archive without a root in this
    /// list may have any root. Default: none.
    #[setters(into)]
    pub expect_roots: Vec<ArchiveRoot>,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self {
            clients: Vec::new(),
            check: CheckOptions::default(),
            allows_part: false,
            threads: available_threads(),
            io_policy: IoPolicy::default(),
            expect_roots: Vec::new(),
        }
    }
}

impl VerifyOptions {
    /// Returns the reason why records and state are not checked. `None` if they are.
    pub(crate) fn state_skip_reason(&self) -> Option<String> {
        match self.check.mode {
            CheckMode::Quick => Some("quick check".to_string()),
            CheckMode::Frames => Some("not asked for".to_string()),
            CheckMode::State => None,
        }
    }

    /// Fails if the input is only a part of a state, and the state should be checked.
    pub(crate) fn require_whole_state(&self, is_part: bool) -> Result<()> {
        if is_part && self.state_skip_reason().is_none() && !self.allows_part { Err(unpaired_error()) } else { Ok(()) }
    }
}

/// Visitor of a job's records, and the pass in which it receives them.
#[derive(Clone, Copy)]
pub(crate) enum JobVisitor<'a> {
    None,
    FirstPass(&'a dyn StateVisitor),
    /// The second pass takes place even if the state is not checked.
    SecondPass(&'a dyn StateVisitor),
}

#[derive(Clone, Copy)]
pub(crate) struct VerifyJob<'a> {
    pub options: &'a VerifyOptions,
    pub visitor: JobVisitor<'a>,
    pub progress: &'a dyn Progress,
}

impl<'a> VerifyJob<'a> {
    pub fn new(options: &'a VerifyOptions, progress: &'a dyn Progress) -> Self {
        Self { options, visitor: JobVisitor::None, progress }
    }

    pub fn second_pass_visitor(&self) -> Option<&'a dyn StateVisitor> {
        if let JobVisitor::SecondPass(visitor) = self.visitor { Some(visitor) } else { None }
    }

    pub fn reads_records(&self) -> bool {
        self.options.state_skip_reason().is_none() || self.second_pass_visitor().is_some()
    }

    pub fn first_task(&self) -> Task<'a> {
        match self.visitor {
            JobVisitor::None => Task::HashAndLog(None),
            JobVisitor::FirstPass(visitor) => Task::HashAndLog(Some(visitor)),
            JobVisitor::SecondPass(_) => Task::Log,
        }
    }

    pub fn report_steps(&self, archives: &[&ArchiveInput]) {
        let Self { options, progress, .. } = *self;
        let mut stages = vec![self.stage()];
        if self.second_pass_visitor().is_some() {
            stages.push(Stage::Visiting);
        }
        let length_of = |archive: &&ArchiveInput| archive.length_bytes().ok().flatten();
        let lengths: Vec<Option<u64>> = archives.iter().map(length_of).collect();
        let mut steps = Vec::new();
        for stage in stages {
            steps.extend(lengths.iter().map(|length_bytes| Step::new(stage.clone(), *length_bytes)));
        }
        progress.steps(&steps);
        progress.detail(&format!(
            "plan: {} to read; workers: {}, temporary files in {}",
            quantity::bytes(lengths.iter().flatten().sum()),
            options.threads,
            options.check.spill_dir(None).escaped()
        ));
    }

    pub fn stage(&self) -> Stage {
        if self.second_pass_visitor().is_some() { Stage::Reading } else { Stage::Verifying }
    }
}

/// Prepares the check of the state for storages of this length. If the log is not expected to fit in memory, a
/// temporary directory that the user chose must have space for all of it. If the default directory lacks
/// space, there is only a warning, because the estimate may be too high.
pub(crate) fn new_state_builder(job: &VerifyJob<'_>, storages_bytes: u64) -> Result<StateBuilder> {
    let CheckOptions { memory_bytes, temporary_dir, .. } = &job.options.check;
    let spill_dir = job.options.check.spill_dir(None);
    let state = match job.second_pass_visitor() {
        None => StateBuilder::with_kept_records(*memory_bytes, &spill_dir, storages_bytes)?,
        // The visit needs the other half to mark superseded records.
        Some(_) => StateBuilder::new(*memory_bytes / 2, &spill_dir, storages_bytes)?,
    };
    if !job.reads_records() {
        return Ok(state);
    }
    match state.log.check_expected_space(*memory_bytes) {
        Err(error) if temporary_dir.is_none() => {
            job.progress.warn(&format!("the log of records may not fit in the temporary directory: {error}"));
        }
        result => result?,
    }
    Ok(state)
}
