//! Flags that limit the load on processor, disk and page cache, shared by all commands that run for
//! long.

use clap::Args;
use slotpress::{IoHint, IoPolicy, Progress};
use slotpress_base::{NICENESS_MAX, RATE_MIN, stand_back};

use super::ui::Ui;
use super::values;

/// Use of the page cache, and priority of the process.
#[derive(Clone, Debug, Args)]
pub struct PriorityArgs {
    /// How to use the page cache, which a validator on the same machine needs
    #[arg(long, value_name = "HOW", default_value = "gentle", value_parser = values::choice(IO_HINTS), env = "SLOTPRESS_IO_HINT")]
    io_hint: IoHint,
    /// Lower the CPU and disk priority: 1 to 19; at 19, the disk is used only while it is idle
    /// otherwise
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true,
          value_parser = clap::value_parser!(u8).range(0..=i64::from(NICENESS_MAX)), env = "SLOTPRESS_NICE")]
    nice: u8,
}

impl PriorityArgs {
    /// Lowers the process's priority, and returns how to use the page cache. Call it before
    /// starting threads: they inherit the priority.
    pub fn apply(&self, ui: &Ui) -> IoHint {
        if let Err(error) = stand_back(self.nice) {
            ui.warn(&format!("cannot set the priority for --nice {}: {error}", self.nice));
        }
        self.io_hint
    }
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Resource use")]
pub struct IoPolicyArgs {
    #[command(flatten)]
    priority: PriorityArgs,
    /// Limit reading to this many bytes per second, for example 300MiB
    #[arg(long, value_name = "SIZE", value_parser = rate, env = "SLOTPRESS_MAX_RATE")]
    max_rate: Option<u64>,
}

const IO_HINTS: &[(&str, IoHint, &str)] = &[
    ("gentle", IoHint::Gentle, "Keep what was cached before; drop what slotpress itself reads and writes"),
    ("none", IoHint::None, "Use the cache as any program does"),
];

impl IoPolicyArgs {
    /// Takes `--max-rate` out of the flags, for commands where it limits the network instead of the
    /// disk.
    pub fn take_max_rate(&mut self) -> Option<u64> {
        self.max_rate.take()
    }

    /// Lowers the process's priority, and returns the policy for reading and writing: see
    /// [`PriorityArgs::apply`].
    pub fn apply(&self, ui: &Ui) -> IoPolicy {
        let policy = IoPolicy::default().io_hint(self.priority.apply(ui));
        match self.max_rate {
            Some(bytes_per_second) => policy.rate(bytes_per_second),
            None => policy,
        }
    }
}

/// Parses bytes per second. Refuses rates too low to make progress.
pub fn rate(text: &str) -> Result<u64, String> {
    match values::size(text)? {
        bytes if bytes >= RATE_MIN => Ok(bytes),
        bytes => Err(format!("{bytes} bytes per second is too slow; for example, 100MiB is 100 MiB per second")),
    }
}
