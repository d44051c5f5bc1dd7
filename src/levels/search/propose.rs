//! Which settings to try next: first what is known to be good, then small steps from the best so far. Pure.
//!
//! What steers it are sizes, which are exact, and [`cost`], which is a rule, not a measurement. So the sequence follows
//! from the seed and the content alone, whatever the machine and its load.
//!
//! Halving: every candidate is first tried on a few frames. Only one that nothing known beats there by more than the
//! rule of costs may err goes on to all frames.

use {
    super::{
        draws::Draws,
        front::front,
        space::{LEVELS, PRESETS, Params, Space, cost},
    },
    std::collections::{BTreeMap, VecDeque},
};

/// What is known of settings that were tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// Bytes of the first frames.
    pub few_bytes: u64,
    /// Bytes of all frames; `None` where the first ones did not promise enough.
    pub all_bytes: Option<u64>,
}

/// Proposes settings of one layout.
#[derive(Debug)]
pub struct Proposer {
    space: Space,
    draws: Draws,
    /// Tried before any steps.
    first: VecDeque<Params>,
    known: BTreeMap<Params, Option<Sizes>>,
    turn: u64,
}

/// Where so many steps in turn lead to settings that were tried before, the surroundings are exhausted.
const STEPS_MAX: usize = 400;

/// The rule of costs may be wrong by so much for one candidate against another.
const COST_ERROR: f64 = 0.12;

impl Proposer {
    /// `first` are levels that are tried as they are.
    pub fn new(space: Space, levels: &[i32], seed: u64) -> Self {
        let presets = PRESETS.map(|(_, preset)| space.preset(preset));
        let rows = levels.iter().filter_map(|level| LEVELS.get(usize::try_from(*level - 1).ok()?));
        let rows = rows.map(|row| space.canonical(*row));
        let first = presets.into_iter().filter(|params| space.allows(*params)).chain(rows).collect();
        Self { space, draws: Draws::new(seed), first, known: BTreeMap::new(), turn: 0 }
    }

    /// The next settings; `None` when nothing new is found.
    pub fn propose(&mut self) -> Option<Params> {
        // Levels in turn with steps, since the strong ones take long.
        let parents = self.parents();
        self.turn += 1;
        let is_level = self.turn.is_multiple_of(4) || parents.is_empty();
        let level = if is_level { self.next_level() } else { None };
        level.or_else(|| self.step(&parents)).or_else(|| self.next_level())
    }

    fn next_level(&mut self) -> Option<Params> {
        while let Some(params) = self.first.pop_front() {
            if self.take(params) {
                return Some(params);
            }
        }
        None
    }

    /// Something new near the best so far.
    fn step(&mut self, parents: &[Params]) -> Option<Params> {
        for _ in 0..STEPS_MAX {
            // The cheaper of two: it is tried sooner, and there is more to find among what is fast.
            let mut draw = || self.draws.below(parents.len() as u64) as usize;
            let parent = *parents.get(draw().min(draw()))?;
            let params = if self.draws.one_in(6) {
                let other = parents[self.draws.below(parents.len() as u64) as usize];
                self.space.cross(parent, other, &mut self.draws)
            } else {
                self.space.step(parent, &mut self.draws)
            };
            if self.space.allows(params) && self.take(params) {
                return Some(params);
            }
        }
        None
    }

    /// Whether these are new.
    fn take(&mut self, params: Params) -> bool {
        if self.known.contains_key(&params) {
            return false;
        }
        self.known.insert(params, None);
        true
    }

    /// Whether what the first frames compress to is worth trying all of them.
    pub fn is_promising(&self, params: Params, few_bytes: u64) -> bool {
        let cost = cost(params);
        !self.known.iter().any(|(other, sizes)| {
            sizes.is_some_and(|sizes| sizes.few_bytes <= few_bytes && self::cost(*other) * (1.0 + COST_ERROR) < cost)
        })
    }

    /// Takes note of what came of settings.
    pub fn note(&mut self, params: Params, sizes: Sizes) {
        self.known.insert(params, Some(sizes));
    }

    /// The best so far, by size and cost.
    fn parents(&self) -> Vec<Params> {
        let full: Vec<(Params, u64)> =
            self.known.iter().filter_map(|(params, sizes)| Some((*params, (*sizes)?.all_bytes?))).collect();
        let points: Vec<(f64, f64)> = full.iter().map(|(params, bytes)| (*bytes as f64, cost(*params))).collect();
        front(&points).into_iter().map(|at| full[at].0).collect()
    }
}

#[cfg(test)]
mod tests {
    use {super::*, proptest::prelude::*};

    /// Made-up sizes with one best place that no level has: a large window, `mml` 6, a table of 2^16.
    fn size(params: Params) -> u64 {
        let [wlog, clog, hlog, slog, mml, tlen, strat] = params.0.map(f64::from);
        let off = (23.0 - wlog).abs() * 3.0 + (hlog - 16.0).abs() * 2.0 + (mml - 6.0).abs() * 5.0;
        (100_000.0 + 300.0 * off + 40.0 * tlen - 900.0 * strat - 20.0 * slog - 10.0 * clog) as u64
    }

    fn run(seed: u64, evaluations: usize) -> Vec<(Params, Option<u64>)> {
        let mut proposer = Proposer::new(Space::new(8 << 20, 8.0), &[1, 2, 3, 5, 10], seed);
        let mut tried = Vec::new();
        while tried.len() < evaluations
            && let Some(params) = proposer.propose()
        {
            let few_bytes = size(params) / 4;
            let all_bytes = proposer.is_promising(params, few_bytes).then(|| size(params));
            proposer.note(params, Sizes { few_bytes, all_bytes });
            tried.push((params, all_bytes));
        }
        tried
    }

    #[test]
    fn it_finds_what_no_level_has() {
        for seed in 0..5 {
            let tried = run(seed, 150);
            let cheap = |params: &Params| params.0[6] == 1 && cost(*params) <= 1.2;
            let best = tried.iter().filter(|(params, _)| cheap(params)).map(|(params, _)| size(*params)).min();
            let least = size(Params([23, 13, 16, 1, 6, 0, 1]));
            assert!(best.is_some_and(|best| best <= least + 700), "seed {seed}: {best:?} against {least}");
            let in_full = tried.iter().filter(|(_, all)| all.is_some()).count();
            assert!(in_full < tried.len(), "seed {seed}: nothing was given up early");
        }
    }

    proptest! {
        /// The same seed proposes the same, each once, all allowed; a longer run begins as a shorter one.
        #[test]
        fn a_seed_tells_the_sequence(seed in any::<u64>(), shorter in 1usize..60) {
            let (long, short) = (run(seed, 60), run(seed, shorter));
            prop_assert_eq!(&long[..short.len()], &short[..]);
            let mut once: Vec<Params> = long.iter().map(|(params, _)| *params).collect();
            once.sort();
            once.dedup();
            prop_assert_eq!(once.len(), long.len());
        }
    }
}
