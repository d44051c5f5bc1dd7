//! Flags for the checks made while an archive is read, and the printed results of such checks.

use clap::Args;
use slotpress::check::{Assurance, ReadBackReport};
use slotpress::{CheckMode, CheckOptions, Hash};
use slotpress_read::STATE_MEMORY_BYTES_DEFAULT;

use super::ui::Ui;
use super::{planned, values};

#[derive(Debug, Args)]
#[command(next_help_heading = "Check")]
pub struct CheckArgs {
    /// What to check while the archive is read
    #[arg(long, value_name = "WHAT", default_value = "state", value_parser = values::choice(CHECK_MODES))]
    check: CheckMode,
    /// Expected snapshot hash, as a trusted node advertises it; implies --check state
    #[arg(long, value_name = "HASH", value_parser = values::hash)]
    expect_hash: Option<Hash>,
    /// Expected slot
    #[arg(long, value_parser = values::slot, value_name = "SLOT")]
    expect_slot: Option<u64>,
}

pub const CHECK_MODES: &[(&str, CheckMode, &str)] = &[
    (
        "state",
        CheckMode::State,
        "The state too: whether all accounts are those of the bank file (capitalization and lattice hash)",
    ),
    ("frames", CheckMode::Frames, "Frames, entries, bank file and status cache only"),
];

impl CheckArgs {
    pub fn options(&self, memory_bytes: Option<u64>) -> CheckOptions {
        let memory_bytes = planned::memory_or(memory_bytes, STATE_MEMORY_BYTES_DEFAULT);
        let mut options = CheckOptions::default().mode(self.check).memory_bytes(memory_bytes);
        options.expect_hash = self.expect_hash;
        options.expect_slot = self.expect_slot;
        options
    }
}

pub fn print_assurance(assurance: &Assurance, ui: &Ui) {
    let accounts = assurance.accounts_checked.map(|accounts| values::count_of(accounts, "account"));
    let state = match (accounts, assurance.state_reason) {
        (Some(accounts), _) => format!("checked, {accounts}"),
        (None, why) => format!("not checked ({})", why.unwrap_or_default()),
    };
    ui.print(&format!("  state    {state}; complete: {}", assurance.complete.as_str()));
}

pub fn print_read_back(read_back: &Option<ReadBackReport>, ui: &Ui) {
    let Some(report) = read_back else { return };
    let storages = values::count_of(report.storages, "storage");
    let accounts = report.accounts.map(|accounts| format!(", {}", values::count_of(accounts, "account")));
    let (accounts, checks) = (accounts.unwrap_or_default(), report.checks.join(", "));
    let checked = format!("read back: {storages}{accounts}; checked: {checks}");
    let verdict = match report.unknown.as_slice() {
        [] => format!("GOOD: {checked}"),
        unknown => format!("no failure was found; {checked}; not checked: {}", unknown.join("; ")),
    };
    ui.print_wrapped("", &verdict);
}
