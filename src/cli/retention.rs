//! Flags of `prune` and `publish` that keep archives by days, weeks and epochs.

use clap::Args;
use slotpress::catalog::Keep;

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Retention")]
pub struct RetentionArgs {
    /// Also keep the newest state of each of the newest N days that have one: by UTC and the time
    /// in the bank file; an archive of unknown time stays
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    keep_daily: Option<u64>,
    /// The same of weeks, which begin on Monday
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    keep_weekly: Option<u64>,
    /// The same of epochs that are over
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    keep_epoch_ends: Option<u64>,
}

impl RetentionArgs {
    /// Flags that have the value 0 ask for nothing.
    pub fn is_any(&self) -> bool {
        let Keep { daily, weekly, epoch_ends, .. } = self.apply(Keep::new(0, 0));
        daily > 0 || weekly > 0 || epoch_ends > 0
    }

    pub fn apply(&self, keep: Keep) -> Keep {
        let count = |flag: Option<u64>| flag.unwrap_or_default() as usize;
        keep.daily(count(self.keep_daily)).weekly(count(self.keep_weekly)).epoch_ends(count(self.keep_epoch_ends))
    }
}
