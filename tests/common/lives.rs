//! Random lives of `publish`: what a validator, disks and targets do beside it. The simulation of
//! its decisions plays them, and the program itself plays some.

use super::draws::Draws;

/// How a target works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Works,
    /// Nothing can be written there.
    Fails,
    /// Another file has the name of what comes.
    Refuses,
    IsGone,
    IsFull,
    Hangs,
}

const MOODS: [Mood; 7] =
    [Mood::Works, Mood::Works, Mood::Fails, Mood::Refuses, Mood::IsGone, Mood::IsFull, Mood::Hangs];

/// Percentage of the archives that are damaged.
const DAMAGED_PERCENT: usize = 15;

/// Something that the publisher has no part in.
#[derive(Clone, Copy, Debug)]
pub enum Happening {
    /// The validator writes a full archive.
    Full {
        is_damaged: bool,
    },
    /// It writes an incremental one on its newest full archive.
    Incremental {
        is_damaged: bool,
    },
    /// It removes what is older than its newest two full archives.
    Purge,
    Target {
        at: usize,
        mood: Mood,
    },
    Passes {
        seconds: u64,
    },
    ClockIs {
        unix_seconds: u64,
    },
}

impl Happening {
    pub fn draw(draws: &mut Draws, targets: usize) -> Self {
        let is_damaged = draws.below(100) < DAMAGED_PERCENT;
        match draws.below(8) {
            0 => Self::Full { is_damaged },
            1 | 2 => Self::Incremental { is_damaged },
            3 => Self::Purge,
            4 => Self::Target { at: draws.below(targets), mood: MOODS[draws.below(MOODS.len())] },
            5 => Self::Passes { seconds: draws.below(400) as u64 },
            6 => Self::ClockIs { unix_seconds: 1_000 + draws.below(1 << 32) as u64 },
            _ => Self::Passes { seconds: 1 },
        }
    }
}

/// What the publisher is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    pub targets: usize,
    pub rebase_onto: usize,
    pub checks_pairs: bool,
    pub is_as_is: bool,
    /// Which slot is kept, out of 60.
    pub keep: Option<usize>,
}

impl Wishes {
    pub fn draw(draws: &mut Draws) -> Self {
        Self {
            targets: 1 + draws.below(3),
            rebase_onto: draws.below(3),
            checks_pairs: draws.below(5) == 0,
            is_as_is: draws.below(10) < 3,
            keep: (draws.below(5) == 0).then(|| draws.below(60)),
        }
    }
}
