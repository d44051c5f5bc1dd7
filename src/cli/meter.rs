//! Measures the progress of a run (steps, bytes, percentage, time left) and formats it as a line.
//! Does no output, and no input except for the clock.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use slotpress::{Arriving, Step};

use super::arrival::Arrival;
use super::lines::cut;
use super::values;

const BAR_CELLS: usize = 20;

/// Terminals with fewer columns get only the name, the percentage and the time left.
const COLUMNS_OF_BAR: usize = 50;

/// Time that must have passed, and part of the work that must be done, before the time left is
/// shown.
const TIME_LEFT_AFTER: Duration = Duration::from_secs(1);
const TIME_LEFT_PART: f64 = 0.005;

/// Columns left free at the end of the line, so that a `^C` echoed by the terminal does not start a
/// new line.
const COLUMNS_FREE: usize = 4;

/// Collects reports of progress from all threads. Never holds its lock while something is drawn.
pub struct Meter {
    input_bytes: AtomicU64,
    output_bytes: AtomicU64,
    state: Mutex<MeterState>,
}

struct MeterState {
    name: String,
    stage_start: Instant,
    total_bytes: Option<u64>,
    note: String,
    arrival: Option<Arrival>,
    steps: Vec<Step>,
    steps_start: Option<Instant>,
    /// Index of the running step in `steps`; `None` during a stage that was not announced.
    step: Option<usize>,
    next_step: usize,
}

#[derive(Clone, Debug, Default)]
pub struct MeterReading {
    pub name: String,
    pub step: Option<(usize, usize)>,
    pub elapsed: Duration,
    pub input_bytes: u64,
    pub output_bytes: u64,
    pub total_bytes: Option<u64>,
    /// Share of the work that is done, 0 to 1: of all steps if their sizes are known, otherwise of
    /// this stage.
    pub done: Option<f64>,
    /// True if `done` is the share of several steps.
    pub is_overall: bool,
    pub remaining: Option<Duration>,
    pub note: String,
}

impl Meter {
    pub fn new() -> Self {
        let state = MeterState {
            name: String::new(),
            stage_start: Instant::now(),
            total_bytes: None,
            note: String::new(),
            arrival: None,
            steps: Vec::new(),
            steps_start: None,
            step: None,
            next_step: 0,
        };
        Self { input_bytes: AtomicU64::new(0), output_bytes: AtomicU64::new(0), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, MeterState> {
        self.state.lock()
    }

    pub fn steps(&self, steps: &[Step]) {
        let mut state = self.state();
        (state.steps, state.steps_start, state.step, state.next_step) = (steps.to_vec(), None, None, 0);
    }

    /// Begins a stage. It counts as a step if its name is that of a step still to come; other
    /// stages run without a number.
    pub fn stage(&self, name: &str, total_bytes: Option<u64>) {
        self.input_bytes.store(0, Relaxed);
        self.output_bytes.store(0, Relaxed);
        let mut state = self.state();
        let now = Instant::now();
        (state.name, state.stage_start, state.total_bytes) = (name.to_string(), now, total_bytes);
        state.note.clear();
        let next = state.next_step;
        state.step = state.steps.iter().skip(next).position(|step| step.name == name).map(|at| next + at);
        if let Some(step) = state.step {
            state.next_step = step + 1;
            state.steps_start.get_or_insert(now);
            if total_bytes.is_some() {
                state.steps[step].input_bytes = total_bytes;
            }
        }
    }

    /// Adds bytes read and written; returns the total read in this stage.
    pub fn advance(&self, input_bytes: u64, output_bytes: u64) -> u64 {
        self.output_bytes.fetch_add(output_bytes, Relaxed);
        self.input_bytes.fetch_add(input_bytes, Relaxed) + input_bytes
    }

    pub fn stage_elapsed(&self) -> Duration {
        self.state().stage_start.elapsed()
    }

    /// Shows how a download proceeds, in place of the rate.
    pub fn arriving(&self, now: &Arriving<'_>) {
        let mut state = self.state();
        match state.arrival.as_ref().map(|before| before.note(now)) {
            Some(None) => return,
            Some(Some(note)) => state.note = note,
            None => {}
        }
        state.arrival = Some(Arrival::new(now));
    }

    pub fn read(&self) -> MeterReading {
        let state = self.state();
        let (input_bytes, output_bytes) = (self.input_bytes.load(Relaxed), self.output_bytes.load(Relaxed));
        let elapsed = state.stage_start.elapsed();
        let overall = state.step.and_then(|step| {
            let steps: Vec<u64> = state.steps.iter().map(|step| step.input_bytes).collect::<Option<_>>()?;
            let done = steps[..step].iter().sum::<u64>() + input_bytes.min(steps[step]);
            Some((done, steps.iter().sum::<u64>(), state.steps_start?.elapsed()))
        });
        let (done_bytes, all_bytes, elapsed_for_them) = match (overall, state.total_bytes) {
            // A step without a size, such as syncing, tells nothing about the time left.
            (_, None) => (0, 0, elapsed),
            (Some(overall), _) => overall,
            (None, Some(total)) => (input_bytes.min(total), total, elapsed),
        };
        let done = (all_bytes > 0).then(|| done_bytes as f64 / all_bytes as f64);
        let is_known = |done: &f64| *done >= TIME_LEFT_PART && *done < 1.0 && elapsed_for_them >= TIME_LEFT_AFTER;
        let remaining = done.filter(is_known).map(|done| elapsed_for_them.mul_f64((1.0 - done) / done));
        MeterReading {
            name: state.name.clone(),
            step: state.step.map(|step| (step + 1, state.steps.len())),
            elapsed,
            input_bytes,
            output_bytes,
            // If more was read than announced, show that as the total.
            total_bytes: state.total_bytes.map(|total| total.max(input_bytes)),
            done,
            is_overall: overall.is_some() && state.steps.len() > 1,
            remaining,
            note: state.note.clone(),
        }
    }
}

impl MeterReading {
    /// Name of the stage, with its number if there are several steps: `2 of 4 Restoring`.
    fn label(&self) -> String {
        match self.step {
            Some((step, steps)) if steps > 1 => format!("{step} of {steps} {}", self.name),
            _ => self.name.clone(),
        }
    }

    fn percent(&self) -> Option<String> {
        self.done.map(|done| format!("{} %", (done * 100.0) as u64))
    }

    fn remaining(&self) -> Option<String> {
        self.remaining.map(|time| format!("{} left", show_whole_seconds(time)))
    }

    fn rate(&self) -> Option<String> {
        (self.input_bytes > 0 && !self.elapsed.is_zero()).then(|| values::show_rate(self.input_bytes, self.elapsed))
    }

    /// The compression ratio, if the output is smaller than the input.
    fn ratio(&self) -> Option<String> {
        (self.output_bytes > 0 && self.output_bytes < self.input_bytes)
            .then(|| format!("ratio {}", values::show_ratio(self.input_bytes, self.output_bytes)))
    }

    fn note(&self) -> Option<String> {
        (!self.note.is_empty()).then(|| self.note.clone())
    }

    /// Formats one line that fits into the columns of a terminal. Leaves out details, least
    /// important first, until it fits.
    pub fn bar_line(&self, columns: usize, is_utf8: bool) -> String {
        let columns = columns.saturating_sub(COLUMNS_FREE).max(1);
        let join = |parts: &[&Option<String>]| -> String {
            parts.iter().filter_map(|part| part.as_deref()).collect::<Vec<_>>().join(", ")
        };
        let line = |bar: &Option<String>, parts: &[&Option<String>]| {
            let words = [self.label(), bar.clone().unwrap_or_default(), join(parts)];
            words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
        };
        let elapsed = self.done.is_none().then(|| show_whole_seconds(self.elapsed));
        let (percent, remaining) = (self.percent(), self.remaining());
        if columns + COLUMNS_FREE < COLUMNS_OF_BAR {
            let parts = join(&[&percent, &elapsed, &remaining]);
            let fits = |line: &String| line.chars().count() <= columns;
            let variants = [format!("{} {parts}", self.label()), format!("{} {parts}", self.name), parts];
            return variants.iter().find(|line| fits(line)).cloned().unwrap_or_else(|| cut(&variants[2], columns));
        }
        let bar = self.done.map(|done| show_bar(done, is_utf8));
        let read = || (self.input_bytes > 0).then(|| values::show_bytes(self.input_bytes));
        let bytes = match self.total_bytes.filter(|_| self.done.is_some()) {
            Some(total) => Some(format!("{} of {}", values::show_bytes(self.input_bytes), values::show_bytes(total))),
            None => read(),
        };
        // A note already contains the rate that matters.
        let (note, rate) = (self.note(), self.rate().filter(|_| self.note.is_empty()));
        let detail = note.clone().or_else(|| self.ratio());
        let variants = [
            line(&bar, &[&percent, &bytes, &rate, &detail, &elapsed, &remaining]),
            line(&bar, &[&percent, &bytes, &rate, &note, &elapsed, &remaining]),
            line(&bar, &[&percent, &rate, &note, &elapsed, &remaining]),
            line(&None, &[&percent, &rate, &note, &elapsed, &remaining]),
            line(&None, &[&percent, &note, &elapsed]),
            line(&None, &[&percent, &elapsed, &remaining]),
        ];
        let fitting = variants.iter().find(|line| line.chars().count() <= columns);
        fitting.cloned().unwrap_or_else(|| cut(&variants[variants.len() - 1], columns))
    }

    pub fn plain_line(&self) -> String {
        let mut line = format!("{}: {}", self.label(), values::show_bytes(self.input_bytes));
        if let Some(total) = self.total_bytes.filter(|total| *total > 0) {
            line += &format!(" of {}", values::show_bytes(total));
        }
        if let Some(percent) = self.percent() {
            let of = if self.is_overall { " of all" } else { "" };
            line += &format!(" ({percent}{of})");
        }
        for part in [self.rate(), self.note().or_else(|| self.ratio()), self.remaining()].into_iter().flatten() {
            line += &format!(", {part}");
        }
        line
    }
}

/// Draws `[████████░░░░░░░░░░░░]`, or the same with `#` and `-` without UTF-8.
fn show_bar(done: f64, is_utf8: bool) -> String {
    let full = ((done * BAR_CELLS as f64) as usize).min(BAR_CELLS);
    let (done, left) = if is_utf8 { ("█", "░") } else { ("#", "-") };
    format!("[{}{}]", done.repeat(full), left.repeat(BAR_CELLS - full))
}

/// Formats a duration as `12 s`, `4 min 10 s` or `1 h 02 min`, without fractions of a second, which
/// would flicker.
fn show_whole_seconds(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..100 => format!("{seconds} s"),
        _ => values::show_duration(duration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restoring() -> MeterReading {
        MeterReading {
            name: "Restoring".to_string(),
            step: Some((2, 4)),
            elapsed: Duration::from_secs(100),
            input_bytes: 45 << 30,
            output_bytes: 160 << 30,
            total_bytes: Some(87 << 30),
            done: Some(0.45),
            is_overall: true,
            remaining: Some(Duration::from_secs(122)),
            note: String::new(),
        }
    }

    #[test]
    fn lines_fit_every_terminal() {
        let notes = ["", "45 % fetched, 1118.2 MiB/s, the network is slower"];
        let readings = notes.iter().flat_map(|note| {
            let known = MeterReading { note: note.to_string(), ..restoring() };
            let unknown = MeterReading { done: None, remaining: None, total_bytes: None, ..known.clone() };
            [known, unknown, MeterReading { name: "Checking on held-out frames".into(), ..restoring() }]
        });
        for reading in readings {
            for columns in 1..200 {
                let line = reading.bar_line(columns, true);
                let fits = line.chars().count() <= columns.saturating_sub(COLUMNS_FREE).max(1);
                assert!(fits && !line.contains('\n'), "{columns}: {line:?}");
            }
        }
    }

    #[test]
    fn what_each_width_shows() {
        let reading = restoring();
        assert_eq!(
            reading.bar_line(120, true),
            "2 of 4 Restoring [█████████░░░░░░░░░░░] 45 %, 45 GiB of 87 GiB, 461 MiB/s, 2 min 02 s left"
        );
        assert_eq!(
            reading.bar_line(80, true),
            "2 of 4 Restoring [█████████░░░░░░░░░░░] 45 %, 461 MiB/s, 2 min 02 s left"
        );
        assert!(reading.bar_line(80, false).contains("[#########-----------]"));
        assert_eq!(reading.bar_line(40, true), "Restoring 45 %, 2 min 02 s left");
        let noted = MeterReading { note: "45 % fetched, 118.2 MiB/s, the network is slower".to_string(), ..reading };
        assert_eq!(noted.bar_line(80, true), "2 of 4 Restoring 45 %, 45 % fetched, 118.2 MiB/s, the network is slower");
    }

    #[test]
    fn ratio_and_time_left_are_shown_only_where_they_are_meaningful() {
        let archiving = MeterReading { output_bytes: 15 << 30, ..restoring() };
        assert!(
            archiving.bar_line(120, true).contains("ratio 3.000") && archiving.plain_line().contains("ratio 3.000")
        );
        assert!(!restoring().bar_line(150, true).contains("ratio") && !restoring().plain_line().contains("ratio"));
        let meter = Meter::new();
        meter.stage("Restoring", Some(100));
        assert!(!meter.read().bar_line(80, true).contains("left"));
        meter.advance(50, 0);
        assert_eq!(meter.read().done, Some(0.5));
        assert!(meter.read().remaining.is_none(), "too early for an estimate");
    }

    #[test]
    fn the_percentage_is_of_all_steps() {
        let meter = Meter::new();
        let step = |name: &str, input_bytes| Step { name: name.to_string(), input_bytes };
        meter.steps(&[
            step("Restoring", Some(60)),
            step("Restoring", Some(20)),
            step("Verifying", Some(20)),
            step("Syncing", Some(0)),
        ]);
        let at = |meter: &Meter| (meter.read().step, meter.read().done);
        meter.stage("Restoring", Some(60));
        meter.advance(30, 0);
        assert_eq!(at(&meter), (Some((1, 4)), Some(0.3)));
        meter.stage("Restoring", Some(20));
        assert_eq!(at(&meter), (Some((2, 4)), Some(0.6)));
        meter.stage("Subtracting", None);
        assert_eq!(at(&meter), (None, None), "a stage that was not announced is no step");
        meter.stage("Verifying", Some(40));
        meter.advance(20, 0);
        assert_eq!(at(&meter), (Some((3, 4)), Some(100.0 / 120.0)), "the size stated at the start of a step counts");
        meter.stage("Syncing", None);
        assert_eq!(at(&meter), (Some((4, 4)), None));
        meter.steps(&[step("1", None), step("2", None)]);
        meter.stage("1", Some(10));
        meter.advance(5, 0);
        assert_eq!(at(&meter), (Some((1, 2)), Some(0.5)), "of the stage, where steps have no known size");
        assert!(meter.read().plain_line().contains("(50 %)"), "{}", meter.read().plain_line());
        meter.advance(9, 0);
        assert!(meter.read().plain_line().contains("14 B of 14 B (100 %)"), "{}", meter.read().plain_line());
    }
}
