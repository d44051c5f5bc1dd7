//! The search itself: stock levels, candidates, and the check of what they promise, each within its part of the budget.

use {
    super::{
        Outcome, SearchOptions, Settings, Tried, Variant,
        judge::{Claim, Found, claims, judge},
        measure::{Bench, Frame, Pass, PassOptions},
        propose::{Proposer, Sizes},
        space::{LEVELS, LEVELS_CONTENT_BYTES_MIN, Params, Space, cost},
    },
    crate::{archive::layout::RecordLayout, levels::input::Input},
    slotpress_base::{
        error::{Error, Result},
        progress::Progress,
    },
    std::time::{Duration, Instant},
};

/// Rounds over the held-out frames: fewer tell nothing, more tell little.
const ROUNDS_MIN: usize = 3;
const ROUNDS_MAX: usize = 15;
/// Rounds for which time is kept, and rounds without a budget.
const ROUNDS_WANTED: usize = 7;
/// The check never gets more of the budget than this.
const CHECK_SHARE_MAX: f64 = 0.5;
/// Decompressing every frame and comparing it takes so much on top, at most.
const DECOMPRESSION_FACTOR: f64 = 1.5;
/// Times may be off by so much from what is expected.
const TIME_ERROR: f64 = 1.2;
/// Where the user ended the search, the check of what was found takes no longer than this, unless it ends sooner.
const LAST_CHECK_TIME_MAX: Duration = Duration::from_secs(20);
/// Candidates that take much longer than the strongest level cannot beat any.
const COST_MARGIN: f64 = 1.25;
/// Candidates are first tried on one of so many frames.
const FEW_FRAMES_PART: usize = 4;

/// Searches. `on_tried` gets every stock level and candidate as soon as it was tried.
pub fn search(
    input: &Input,
    options: &SearchOptions,
    progress: &dyn Progress,
    on_tried: &mut dyn FnMut(Tried) -> Result<()>,
) -> Result<Outcome> {
    // Neighbours go to different halves, so that both are like the whole.
    let all: Vec<Frame<'_>> = input.frames.iter().map(|frame| Frame::new(frame, &options.layouts)).collect();
    let half = |odd: usize| all.iter().skip(odd).step_by(2).copied().collect::<Vec<_>>();
    let (searched, held_out) = (half(0), half(1));
    if held_out.is_empty() {
        return Err(Error::usage("one frame is not enough for a search: another one is needed to check the results")
            .hint("give a larger input or a smaller `frame_size_bytes`"));
    }
    let has_records = all.iter().any(|frame| frame.has_records);
    if !has_records && options.layouts == [RecordLayout::Clustered] {
        return Err(Error::usage("no frame of the input has whole storages in it: there is nothing to cluster")
            .hint("leave out --layout, or give a ledger or a snapshot archive"));
    }
    let mut layouts = options.layouts.clone();
    layouts.retain(|layout| *layout == RecordLayout::Verbatim || has_records);
    let strongest = options.levels.iter().filter_map(|level| LEVELS.get(usize::try_from(*level - 1).ok()?)).copied();
    let cost_max = strongest.map(cost).fold(1.0, f64::max) * COST_MARGIN;
    let start = Instant::now();
    let mut search = Search {
        bench: Bench::new(options.threads, searched.len().max(held_out.len())),
        space: Space::new(input.frame_size_bytes, cost_max),
        are_levels_known: input.frame_size_bytes >= LEVELS_CONTENT_BYTES_MIN,
        options,
        progress,
        start,
        searched,
        held_out,
        stock: Vec::new(),
        stock_few_bytes: Vec::new(),
        candidates: Vec::new(),
        tried: 0,
    };
    search.try_stock(on_tried)?;
    search.try_candidates(&layouts, on_tried)?;
    let mut outcome = search.check()?;
    if layouts.contains(&RecordLayout::Clustered) {
        outcome.unclustered_frames = all.iter().filter(|frame| !frame.has_records).count();
    }
    Ok(outcome)
}

/// Two parts of one pass.
fn sum(first: &Pass, rest: &Pass) -> Pass {
    Pass {
        output_bytes: first.output_bytes + rest.output_bytes,
        cpu_seconds: first.cpu_seconds + rest.cpu_seconds,
        elapsed_seconds: first.elapsed_seconds + rest.elapsed_seconds,
        decompress_cpu_seconds: first.decompress_cpu_seconds + rest.decompress_cpu_seconds,
    }
}

fn found(tried: &Tried) -> Found {
    let Tried { variant, output_bytes, cpu_seconds, elapsed_seconds, .. } = *tried;
    Found { variant, output_bytes, cpu_seconds, elapsed_seconds }
}

struct Search<'a> {
    bench: Bench,
    space: Space,
    /// Whether frames are so large that levels choose as the table says.
    are_levels_known: bool,
    options: &'a SearchOptions,
    progress: &'a dyn Progress,
    start: Instant,
    searched: Vec<Frame<'a>>,
    held_out: Vec<Frame<'a>>,
    stock: Vec<Found>,
    /// For each, bytes of the first frames.
    stock_few_bytes: Vec<u64>,
    candidates: Vec<Found>,
    tried: u64,
}

impl Search<'_> {
    fn end(&self) -> Option<Instant> {
        self.options.budget.map(|budget| self.start + budget)
    }

    /// Compresses frames that are searched; `None` where time is over.
    fn pass(&mut self, from: usize, to: usize, variant: &Variant, end: Option<Instant>) -> Result<Option<Pass>> {
        let progress = self.progress;
        let is_over = move || progress.is_interrupted() || end.is_some_and(|end| Instant::now() >= end);
        self.bench.pass(&self.searched[from..to], variant, &PassOptions { has_decompression: false, is_over: &is_over })
    }

    fn tried(&self, variant: Variant, number: u64, frames: usize, pass: &Pass) -> Tried {
        Tried {
            variant,
            number,
            frames,
            input_bytes: self.searched[..frames].iter().map(Frame::content_bytes).sum(),
            output_bytes: pass.output_bytes,
            cpu_seconds: pass.cpu_seconds,
            elapsed_seconds: pass.elapsed_seconds,
        }
    }

    fn try_stock(&mut self, on_tried: &mut dyn FnMut(Tried) -> Result<()>) -> Result<()> {
        self.progress.stage("Stock levels", None);
        let frames = self.searched.len();
        // The first pass of all maps memory: it does not count.
        self.pass(0, frames, &Variant::stock(1), self.end())?;
        for level in &self.options.levels {
            let variant = Variant::stock(*level);
            let Some(first) = self.pass(0, self.few(), &variant, self.end())? else { return Ok(()) };
            let Some(rest) = self.pass(self.few(), frames, &variant, self.end())? else { return Ok(()) };
            let pass = sum(&first, &rest);
            let tried = self.tried(variant, 0, frames, &pass);
            on_tried(tried)?;
            self.stock.push(found(&tried));
            self.stock_few_bytes.push(first.output_bytes);
        }
        Ok(())
    }

    /// The first frames, on which a candidate is tried first.
    fn few(&self) -> usize {
        self.searched.len().div_ceil(FEW_FRAMES_PART)
    }

    /// How long the check will take: rounds of the stock levels, and half as much again for candidates, which are faster
    /// than the levels that they beat.
    fn check_time(&self) -> Duration {
        let stock: f64 = self.stock.iter().map(|found| self.check_seconds(found)).sum();
        Duration::from_secs_f64(ROUNDS_WANTED as f64 * 1.5 * stock)
    }

    /// About how long one round of a contestant will take.
    fn check_seconds(&self, found: &Found) -> f64 {
        let bytes = |frames: &[Frame<'_>]| frames.iter().map(Frame::content_bytes).sum::<u64>() as f64;
        found.elapsed_seconds * DECOMPRESSION_FACTOR * bytes(&self.held_out) / bytes(&self.searched).max(1.0)
    }

    /// Who is checked: of stock levels and candidates as many as the time allows, the fastest first; a candidate that
    /// was to beat levels which are not checked is not checked either.
    fn contestants(&self, end: Option<Instant>) -> (Vec<Found>, Vec<Claim>) {
        let mut stock = self.stock.clone();
        loop {
            let claims = claims(&stock, &self.candidates);
            let claimed = self.candidates.iter().filter(|one| claims.iter().any(|claim| claim.variant == one.variant));
            let round: f64 = stock.iter().chain(claimed).map(|found| self.check_seconds(found)).sum();
            let left = end.map(|end| end.saturating_duration_since(Instant::now()).as_secs_f64());
            if stock.len() <= 1 || left.is_none_or(|left| round * ROUNDS_MIN as f64 * TIME_ERROR <= left) {
                return (stock, claims);
            }
            let slowest = (0..stock.len()).max_by(|a, b| stock[*a].cpu_seconds.total_cmp(&stock[*b].cpu_seconds));
            stock.remove(slowest.unwrap_or(0).max(1));
        }
    }

    fn try_candidates(
        &mut self,
        layouts: &[RecordLayout],
        on_tried: &mut dyn FnMut(Tried) -> Result<()>,
    ) -> Result<()> {
        self.progress.stage("Searching", None);
        let end = self
            .options
            .budget
            .map(|budget| self.start + budget - self.check_time().min(budget.mul_f64(CHECK_SHARE_MAX)));
        let mut proposers: Vec<(RecordLayout, Proposer)> =
            layouts.iter().map(|layout| (*layout, self.proposer(*layout))).collect();
        // Layouts take turns, until none has anything new.
        let mut idle = 0;
        while idle < proposers.len() && self.options.evaluations_max.is_none_or(|max| self.tried < max) {
            proposers.rotate_left(1);
            let Some((layout, proposer)) = proposers.last_mut() else { break };
            let layout = *layout;
            let Some(params) = proposer.propose() else {
                idle += 1;
                continue;
            };
            idle = 0;
            let variant = Variant { layout, settings: self.settings(params) };
            let Some((tried, sizes)) = self.try_one(variant, params, proposer, end)? else { break };
            proposer.note(params, sizes);
            self.tried += 1;
            on_tried(tried)?;
            if tried.frames == self.searched.len() && variant.stock_level().is_none() {
                self.candidates.push(found(&tried));
            }
        }
        Ok(())
    }

    /// A proposer that knows what was measured: of verbatim records, the stock levels.
    fn proposer(&self, layout: RecordLayout) -> Proposer {
        let mut proposer = Proposer::new(self.space, &self.options.levels, self.options.seed);
        for (found, few_bytes) in self.stock.iter().zip(&self.stock_few_bytes) {
            let level = found.variant.stock_level().and_then(|level| LEVELS.get(usize::try_from(level - 1).ok()?));
            if let Some(level) = level
                && layout == RecordLayout::Verbatim
                && self.are_levels_known
            {
                let sizes = Sizes { few_bytes: *few_bytes, all_bytes: Some(found.output_bytes) };
                proposer.note(self.space.canonical(*level), sizes);
            }
        }
        proposer
    }

    /// Settings that are a level's are measured as that level.
    fn settings(&self, params: Params) -> Settings {
        let level = LEVELS.iter().position(|level| self.space.canonical(*level) == params);
        match level {
            Some(at) if self.are_levels_known => Settings::Level(at as i32 + 1),
            _ => Settings::Params(params),
        }
    }

    /// First a few frames; where these promise enough, all others.
    fn try_one(
        &mut self,
        variant: Variant,
        params: Params,
        proposer: &Proposer,
        end: Option<Instant>,
    ) -> Result<Option<(Tried, Sizes)>> {
        let frames = self.searched.len();
        let few = self.few();
        let number = self.tried + 1;
        let Some(first) = self.pass(0, few, &variant, end)? else { return Ok(None) };
        let few_bytes = first.output_bytes;
        if !proposer.is_promising(params, few_bytes) {
            return Ok(Some((self.tried(variant, number, few, &first), Sizes { few_bytes, all_bytes: None })));
        }
        let Some(rest) = self.pass(few, frames, &variant, end)? else { return Ok(None) };
        let all = sum(&first, &rest);
        let sizes = Sizes { few_bytes, all_bytes: Some(all.output_bytes) };
        Ok(Some((self.tried(variant, number, frames, &all), sizes)))
    }

    /// Checks what candidates promise on the frames that were not searched.
    fn check(mut self) -> Result<Outcome> {
        let is_ended = self.progress.is_interrupted();
        let end = if is_ended { Some(Instant::now() + LAST_CHECK_TIME_MAX) } else { self.end() };
        let (stock, claims) = self.contestants(end);
        let levels: Vec<i32> = stock.iter().filter_map(|found| found.variant.stock_level()).collect();
        let contestants: Vec<Variant> =
            stock.iter().map(|found| found.variant).chain(claims.iter().map(|claim| claim.variant)).collect();
        if is_ended && !contestants.is_empty() {
            self.progress.warn("checking what was found so far; Ctrl-C again ends at once");
        }
        self.progress.stage("Checking on held-out frames", None);
        let rounds_max = match (is_ended, end) {
            (true, _) => ROUNDS_MIN,
            (false, Some(_)) => ROUNDS_MAX,
            (false, None) => ROUNDS_WANTED,
        };
        let mut rounds = Vec::new();
        while rounds.len() < rounds_max && !contestants.is_empty() {
            if rounds.len() >= ROUNDS_MIN && self.progress.is_interrupted() {
                break;
            }
            let Some(round) = self.round(&contestants, rounds.len(), end)? else { break };
            rounds.push(round);
        }
        let is_enough = rounds.len() >= ROUNDS_MIN;
        let input_bytes = self.held_out.iter().map(Frame::content_bytes).sum();
        let points = if is_enough { judge(&levels, &claims, input_bytes, &rounds) } else { Vec::new() };
        let left_out = self.options.levels.iter().copied().filter(|level| !levels.contains(level)).collect();
        Ok(Outcome {
            space: self.space,
            searched_frames: self.searched.len(),
            held_out_frames: self.held_out.len(),
            unclustered_frames: 0,
            tried: self.tried,
            tried_in_full: self.candidates.len() as u64,
            claims: claims.iter().map(|claim| claim.levels.len()).sum(),
            claims_held: points.iter().map(|point| point.beats.len()).sum(),
            points,
            rounds: rounds.len(),
            levels_left_out: left_out,
            is_interrupted: self.progress.is_interrupted(),
            elapsed: self.start.elapsed(),
        })
    }

    /// All contestants once, each round beginning with another one, so that what changes over time (heat, other loads)
    /// meets all alike.
    fn round(&mut self, contestants: &[Variant], number: usize, end: Option<Instant>) -> Result<Option<Vec<Pass>>> {
        let is_over = move || end.is_some_and(|end| Instant::now() >= end);
        let options = PassOptions { has_decompression: true, is_over: &is_over };
        let mut passes = vec![Pass::default(); contestants.len()];
        for step in 0..contestants.len() {
            let at = (step + number * contestants.len() / ROUNDS_WANTED) % contestants.len();
            let Some(pass) = self.bench.pass(&self.held_out, &contestants[at], &options)? else { return Ok(None) };
            passes[at] = pass;
        }
        Ok(Some(passes))
    }
}
