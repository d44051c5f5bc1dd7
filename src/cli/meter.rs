//! Measures the progress of a run (steps, bytes, percentage, time left), and formats it as a line. Does no I/O
//! except reading the clock.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;
use slotpress::progress::{Arriving, Stage, Step};
use slotpress_base::text::truncate;

use super::values;

const BAR_CELLS: usize = 20;

/// Terminals with fewer columns get no bar.
const BAR_COLUMNS_MIN: usize = 60;

/// Minimum time over which the rate of a download is measured.
const ARRIVAL_WINDOW_MIN: Duration = Duration::from_millis(400);

/// The time left is shown after this time, and after this fraction of the work.
const TIME_LEFT_ELAPSED_MIN: Duration = Duration::from_secs(1);
const TIME_LEFT_FRACTION_MIN: f64 = 0.005;

/// Columns left free at the end of the line, so that a `^C` that the terminal echoes does not start a new line.
const COLUMNS_FREE: usize = 4;

/// Collects the progress that all threads report. Does not hold its lock while the progress is drawn.
#[derive(Default)]
pub struct Meter {
    input_bytes: AtomicU64,
    output_bytes: AtomicU64,
    state: Mutex<MeterState>,
}

#[derive(Default)]
struct MeterState {
    name: String,
    stage_start: Option<Instant>,
    total_bytes: Option<u64>,
    note: String,
    arrival: Option<Arrival>,
    steps: Vec<Step>,
    steps_start: Option<Instant>,
    /// Index of the running step in `steps`; `None` during a stage that was not announced.
    step: Option<usize>,
    next_step: usize,
}

/// The progress at one moment, which is also its object with `--json`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MeterReading {
    pub stage: String,
    pub step: Option<usize>,
    pub steps: Option<usize>,
    pub input_bytes: u64,
    pub output_bytes: u64,
    pub total_bytes: Option<u64>,
    /// Finished percentage of all steps if their sizes are known, otherwise of this stage.
    pub done_percent: Option<f64>,
    pub elapsed_seconds: f64,
    pub left_seconds: Option<f64>,
    pub note: Option<String>,
    /// True if `done_percent` is about several steps.
    #[serde(skip)]
    pub is_overall: bool,
}

impl Meter {
    pub fn set_steps(&self, steps: &[Step]) {
        let mut state = self.state.lock();
        state.steps = steps.to_vec();
        state.steps_start = None;
        state.step = None;
        state.next_step = 0;
    }

    /// Begins a stage. If one of the steps that are still to come has this stage, it becomes the running step.
    /// Other stages have no number.
    pub fn begin_stage(&self, stage: &Stage, total_bytes: Option<u64>) {
        self.input_bytes.store(0, Relaxed);
        self.output_bytes.store(0, Relaxed);
        let mut state = self.state.lock();
        let now = Instant::now();
        state.name = stage.to_string();
        state.stage_start = Some(now);
        state.total_bytes = total_bytes;
        state.note.clear();
        let mut upcoming = state.steps.iter().enumerate().skip(state.next_step);
        state.step = upcoming.find(|(_, step)| step.stage == *stage).map(|(index, _)| index);
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
        self.state.lock().stage_start.map_or(Duration::ZERO, |start| start.elapsed())
    }

    /// Stores a note about a download, which is shown in place of the rate.
    pub fn set_arriving(&self, arriving: &Arriving<'_>) {
        let mut state = self.state.lock();
        if let Some(previous) = &state.arrival {
            let elapsed = previous.time.elapsed();
            if elapsed < ARRIVAL_WINDOW_MIN {
                return;
            }
            state.note = previous.describe_change(arriving, elapsed);
        }
        state.arrival = Some(Arrival::new(arriving));
    }

    pub fn read(&self) -> MeterReading {
        let state = self.state.lock();
        let input_bytes = self.input_bytes.load(Relaxed);
        let output_bytes = self.output_bytes.load(Relaxed);
        let elapsed = state.stage_start.map_or(Duration::ZERO, |start| start.elapsed());
        let overall = state.step.and_then(|step| {
            let sizes: Vec<u64> = state.steps.iter().map(|step| step.input_bytes).collect::<Option<_>>()?;
            let done_bytes = sizes[..step].iter().sum::<u64>() + input_bytes.min(sizes[step]);
            let all_bytes = sizes.iter().sum::<u64>();
            Some((done_bytes, all_bytes, state.steps_start?.elapsed()))
        });
        let (done_bytes, all_bytes, elapsed_for_bytes) = match (overall, state.total_bytes) {
            // A stage without a size, such as syncing, has neither a percentage nor a time left.
            (_, None) => (0, 0, elapsed),
            (Some(overall), _) => overall,
            (None, Some(total)) => (input_bytes.min(total), total, elapsed),
        };
        let done_fraction = (all_bytes > 0).then(|| done_bytes as f64 / all_bytes as f64);
        let is_estimable =
            |done: &f64| (TIME_LEFT_FRACTION_MIN..1.0).contains(done) && elapsed_for_bytes >= TIME_LEFT_ELAPSED_MIN;
        let time_left = done_fraction.filter(is_estimable).map(|done| elapsed_for_bytes.mul_f64((1.0 - done) / done));
        MeterReading {
            stage: state.name.clone(),
            step: state.step.map(|step| step + 1),
            steps: state.step.map(|_| state.steps.len()),
            input_bytes,
            output_bytes,
            // If more was read than announced, show that as the total.
            total_bytes: state.total_bytes.map(|total| total.max(input_bytes)),
            done_percent: done_fraction.map(|done| (done * 1000.0).floor() / 10.0),
            elapsed_seconds: elapsed.as_secs_f64(),
            left_seconds: time_left.map(|time| time.as_secs_f64().round()),
            note: Some(state.note.clone()).filter(|note| !note.is_empty()),
            is_overall: overall.is_some() && state.steps.len() > 1,
        }
    }
}

/// Bytes of a download that is restored while it arrives, at one moment.
struct Arrival {
    time: Instant,
    received_bytes: u64,
    waited: Duration,
}

impl Arrival {
    fn new(arriving: &Arriving<'_>) -> Self {
        let received_bytes = sum_received_bytes(arriving);
        Self { time: Instant::now(), received_bytes, waited: arriving.waited }
    }

    /// Says how much has arrived, at which rate since this moment, and whether network or restore is
    /// slower.
    fn describe_change(&self, arriving: &Arriving<'_>, elapsed: Duration) -> String {
        let bytes = sum_received_bytes(arriving).saturating_sub(self.received_bytes);
        let rate = values::show_rate(bytes, elapsed);
        let fetched = match arriving.length_bytes.filter(|length| *length > 0) {
            Some(length) if arriving.arrived_bytes >= length => "fetched".to_string(),
            Some(length) => {
                let percent = 100.0 * arriving.arrived_bytes as f64 / length as f64;
                format!("{percent:.0}% fetched, {rate}")
            }
            None => rate,
        };
        let is_network_slower = arriving.waited.saturating_sub(self.waited) * 2 > elapsed;
        let slower = if is_network_slower { "network" } else { "restore" };
        format!("{fetched}, the {slower} is slower")
    }
}

fn sum_received_bytes(arriving: &Arriving<'_>) -> u64 {
    arriving.servers.iter().map(|(_, bytes)| bytes).sum()
}

impl MeterReading {
    /// Returns the name of the stage, with its number if there are several steps: `2 of 4
    /// Restoring`.
    fn label(&self) -> String {
        match (self.step, self.steps) {
            (Some(step), Some(steps)) if steps > 1 => format!("{step} of {steps} {}", self.stage),
            _ => self.stage.clone(),
        }
    }

    /// Returns percentage, time left, rate or the note about a download, bytes, and ratio, the most important
    /// first.
    fn details(&self) -> String {
        let mut details = vec![match self.done_percent {
            Some(percent) if self.is_overall => format!("{}% of all", percent as u64),
            Some(percent) => format!("{}%", percent as u64),
            None => show_whole_seconds(self.elapsed_seconds),
        }];
        let show_left = |seconds| format!("{} left", show_whole_seconds(seconds));
        details.extend(self.left_seconds.map(show_left));
        details.extend(self.note.clone());
        if self.input_bytes > 0 {
            if self.note.is_none() {
                let elapsed = Duration::from_secs_f64(self.elapsed_seconds);
                details.push(values::show_rate(self.input_bytes, elapsed));
            }
            let read = values::show_bytes(self.input_bytes);
            details.push(match self.total_bytes {
                Some(total) => format!("{read} of {}", values::show_bytes(total)),
                None => read,
            });
        }
        if self.output_bytes > 0 && self.output_bytes < self.input_bytes {
            let ratio = values::show_ratio(self.input_bytes, self.output_bytes);
            details.push(format!("ratio {ratio}"));
        }
        details.join(", ")
    }

    pub fn plain_line(&self) -> String {
        format!("{}: {}", self.label(), self.details())
    }

    /// Returns the text of [`Self::plain_line`] with a bar, truncated to the width of a terminal.
    pub fn bar_line(&self, columns: usize) -> String {
        let mut line = self.label() + " ";
        if let Some(percent) = self.done_percent
            && columns >= BAR_COLUMNS_MIN
        {
            let cells = ((percent / 100.0 * BAR_CELLS as f64) as usize).min(BAR_CELLS);
            line += &format!("[{}{}] ", "#".repeat(cells), "-".repeat(BAR_CELLS - cells));
        }
        line += &self.details();
        truncate(&line, columns.saturating_sub(COLUMNS_FREE).max(1))
    }
}

/// Formats a duration as `12 s`, `4 min 10 s` or `1 h 02 min`, without fractions of a second, which
/// would flicker.
fn show_whole_seconds(seconds: f64) -> String {
    match seconds as u64 {
        seconds @ 0..100 => format!("{seconds} s"),
        seconds => values::show_duration(Duration::from_secs(seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading_of_restore() -> MeterReading {
        MeterReading {
            stage: "Restoring".to_string(),
            step: Some(2),
            steps: Some(4),
            elapsed_seconds: 100.0,
            input_bytes: 45 << 30,
            output_bytes: 160 << 30,
            total_bytes: Some(87 << 30),
            done_percent: Some(45.0),
            is_overall: true,
            left_seconds: Some(122.0),
            note: None,
        }
    }

    #[test]
    fn lines_fit_every_terminal() {
        let notes = [None, Some("45% fetched, 1118.2 MiB/s, the network is slower".to_string())];
        let readings = notes.iter().flat_map(|note| {
            let known = MeterReading { note: note.clone(), ..reading_of_restore() };
            let unknown = MeterReading { done_percent: None, left_seconds: None, total_bytes: None, ..known.clone() };
            [known, unknown, MeterReading { stage: "Checking on held-out frames".into(), ..reading_of_restore() }]
        });
        for reading in readings {
            for columns in 1..200 {
                let line = reading.bar_line(columns);
                let fits = line.chars().count() <= columns.saturating_sub(COLUMNS_FREE).max(1);
                assert!(fits, "{columns}: {line:?}");
                assert!(!line.contains('\n'), "{columns}: {line:?}");
            }
        }
    }

    #[test]
    fn each_width_shows_the_most_important_parts() {
        let reading = reading_of_restore();
        assert_eq!(
            reading.bar_line(120),
            "2 of 4 Restoring [#########-----------] 45% of all, 2 min 02 s left, 461 MiB/s, 45 GiB of 87 GiB"
        );
        assert_eq!(
            reading.bar_line(80),
            "2 of 4 Restoring [#########-----------] 45% of all, 2 min 02 s left, 461 Mi…"
        );
        assert_eq!(reading.bar_line(50), "2 of 4 Restoring 45% of all, 2 min 02 s left,…");
        let noted =
            MeterReading { note: Some("45% fetched, 118.2 MiB/s, the network is slower".to_string()), ..reading };
        assert_eq!(
            noted.plain_line(),
            "2 of 4 Restoring: 45% of all, 2 min 02 s left, 45% fetched, 118.2 MiB/s, the network is slower, \
             45 GiB of 87 GiB"
        );
    }

    #[test]
    fn ratio_and_time_left_are_shown_only_where_they_are_meaningful() {
        let archiving = MeterReading { output_bytes: 15 << 30, ..reading_of_restore() };
        assert!(archiving.plain_line().contains("ratio 3.000"));
        assert!(!reading_of_restore().plain_line().contains("ratio"));
        let meter = Meter::default();
        meter.begin_stage(&Stage::Restoring, Some(100));
        assert!(!meter.read().bar_line(80).contains("left"));
        meter.advance(50, 0);
        assert_eq!(meter.read().done_percent, Some(50.0));
        assert!(meter.read().left_seconds.is_none(), "too early for an estimate");
    }

    #[test]
    fn the_slower_side_is_named() {
        let (second, before) = (Duration::from_secs(1), [("http://a/x".to_string(), 5 << 20)]);
        let later = [("http://a/x".to_string(), 8 << 20), ("http://b/x".to_string(), 1 << 20)];
        let arriving =
            |arrived_bytes, servers, waited| Arriving { arrived_bytes, length_bytes: Some(100), servers, waited };
        let before = Arrival::new(&arriving(0, &before, second));
        let note = |arrived_bytes, waited| before.describe_change(&arriving(arrived_bytes, &later, waited), second);
        assert_eq!(note(45, second.mul_f32(1.6)), "45% fetched, 4 MiB/s, the network is slower");
        assert_eq!(note(45, second), "45% fetched, 4 MiB/s, the restore is slower");
        assert_eq!(note(100, second), "fetched, the restore is slower");
    }

    #[test]
    fn the_percentage_is_of_all_steps() {
        let meter = Meter::default();
        let step = Step::new;
        meter.set_steps(&[
            step(Stage::Restoring, Some(60)),
            step(Stage::Restoring, Some(20)),
            step(Stage::Verifying, Some(20)),
            step(Stage::Syncing, Some(0)),
        ]);
        let progress = |meter: &Meter| (meter.read().step.zip(meter.read().steps), meter.read().done_percent);
        meter.begin_stage(&Stage::Restoring, Some(60));
        meter.advance(30, 0);
        assert_eq!(progress(&meter), (Some((1, 4)), Some(30.0)));
        meter.begin_stage(&Stage::Restoring, Some(20));
        assert_eq!(progress(&meter), (Some((2, 4)), Some(60.0)));
        meter.begin_stage(&Stage::Subtracting, None);
        assert_eq!(progress(&meter), (None, None), "a stage that was not announced is not a step");
        meter.begin_stage(&Stage::Verifying, Some(40));
        meter.advance(20, 0);
        assert_eq!(progress(&meter), (Some((3, 4)), Some(83.3)), "the size from the start of the step is used");
        meter.begin_stage(&Stage::Syncing, None);
        assert_eq!(progress(&meter), (Some((4, 4)), None));
        meter.set_steps(&[step(Stage::Measurement("1".into()), None), step(Stage::Measurement("2".into()), None)]);
        meter.begin_stage(&Stage::Measurement("1".into()), Some(10));
        meter.advance(5, 0);
        assert_eq!(progress(&meter), (Some((1, 2)), Some(50.0)), "the percentage of the stage, if steps have no sizes");
        assert!(meter.read().plain_line().contains("50%,"), "{}", meter.read().plain_line());
        meter.advance(9, 0);
        assert!(meter.read().plain_line().ends_with("14 B of 14 B"), "{}", meter.read().plain_line());
    }
}
