//! Random events of validators, disks and targets around a run of `publish`. The simulation of the publisher's
//! decisions uses all of them; runs of the program use some.

use super::seeded_rng::SeededRng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetCondition {
    Works,
    /// Nothing can be written there.
    Fails,
    /// Another file has the name of the next archive.
    Refuses,
    IsGone,
    IsFull,
    Hangs,
}

/// Conditions to draw from. A target works in two of seven draws.
const CONDITIONS: [TargetCondition; 7] = [
    TargetCondition::Works,
    TargetCondition::Works,
    TargetCondition::Fails,
    TargetCondition::Refuses,
    TargetCondition::IsGone,
    TargetCondition::IsFull,
    TargetCondition::Hangs,
];

/// Percentage of damaged archives.
const DAMAGED_PERCENT: usize = 15;

/// An event outside the publisher.
#[derive(Clone, Copy, Debug)]
pub enum OutsideEvent {
    /// The validator writes a full archive.
    Full {
        is_damaged: bool,
    },
    /// The validator writes an incremental archive on its newest full one.
    Incremental {
        is_damaged: bool,
    },
    /// The validator removes archives older than its newest two full ones.
    Purge,
    Target {
        number: usize,
        condition: TargetCondition,
    },
    TimePasses {
        seconds: u64,
    },
    ClockJumps {
        unix_seconds: u64,
    },
}

impl OutsideEvent {
    pub fn draw(rng: &mut SeededRng, targets: usize) -> Self {
        let is_damaged = rng.below(100) < DAMAGED_PERCENT;
        match rng.below(8) {
            0 => Self::Full { is_damaged },
            1 | 2 => Self::Incremental { is_damaged },
            3 => Self::Purge,
            4 => Self::Target { number: rng.below(targets), condition: CONDITIONS[rng.below(CONDITIONS.len())] },
            5 => Self::TimePasses { seconds: rng.below(400) as u64 },
            6 => Self::ClockJumps { unix_seconds: 1_000 + rng.below(1 << 32) as u64 },
            _ => Self::TimePasses { seconds: 1 },
        }
    }
}

/// The publisher's options.
#[derive(Clone, Copy, Debug)]
pub struct RandomOptions {
    pub targets: usize,
    pub rebase_onto: usize,
    pub as_is: bool,
}

impl RandomOptions {
    pub fn draw(rng: &mut SeededRng) -> Self {
        Self { targets: 1 + rng.below(3), rebase_onto: rng.below(3), as_is: rng.below(10) < 3 }
    }
}
