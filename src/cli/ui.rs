//! The terminal. [`Ui`] prints everything that commands print: results to stdout; progress, warnings and errors
//! to stderr.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle as BarStyle};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use slotpress::progress::Stage;
use slotpress::{Error, Progress, ProgressEvent, Result};
use slotpress_base::escape_lines;
use slotpress_base::text::json;

use super::json::{add_type, error_line, merge};
use super::meter::Meter;
use super::render::{self, LABEL_COLUMNS};
use super::tables::{Table, progress_columns, result_columns};
use super::values::time_now;
use super::{ScreenArgs, hints, stdout};

/// Interval of progress lines: short enough to show that the run is alive, long enough for a log.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);
const JSON_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of warnings that are remembered, so that each is shown only once.
const SHOWN_WARNINGS_MAX: usize = 1000;

/// Severity of a log line, as syslog and journald number it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Error = 3,
    Warning = 4,
    Info = 6,
}

#[derive(Default)]
pub struct Ui {
    args: ScreenArgs,
    has_color: bool,
    has_bar: bool,
    /// Time between lines of progress; `None` if progress is a bar or not shown.
    line_interval: Option<Duration>,
    /// True if stderr goes to journald, which reads the severity from a prefix of each line such as
    /// `<4>`.
    is_journal: bool,
    is_stdout_data: AtomicBool,
    /// Error that ended the printing of results.
    print_error: Mutex<Option<io::Error>>,
    interrupted: Arc<AtomicBool>,
    shown_warnings: Mutex<BTreeSet<String>>,
    meter: Arc<Meter>,
    /// Message to print once, when the work notices that the user interrupted it.
    interrupt_message: Mutex<Option<&'static str>>,
    bar: Mutex<Option<ProgressBar>>,
    /// Time at which the next progress line is due, in milliseconds since the stage began.
    next_line_ms: AtomicU64,
}

impl Ui {
    /// Prepares the terminal, and registers the signals that interrupt the run. A second signal ends the program
    /// at once, with exit code 130.
    pub(super) fn new(args: ScreenArgs, interrupt_message: Option<&'static str>) -> Result<Self> {
        let interrupted = Arc::default();
        watch_signals(&interrupted).map_err(|error| Error::failed(format!("cannot watch for signals: {error}")))?;
        let is_terminal = std::io::stderr().is_terminal();
        let has_progress = !args.quiet && args.progress.is_none();
        let interval = if args.json { JSON_INTERVAL } else { PLAIN_INTERVAL };
        Ok(Self {
            has_color: is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            has_bar: has_progress && is_terminal,
            line_interval: (has_progress && !is_terminal).then_some(interval),
            args,
            is_journal: is_journal(),
            interrupted,
            interrupt_message: Mutex::new(interrupt_message),
            ..Self::default()
        })
    }

    /// Prints a report: as an object with `--json`, otherwise as its head and rows.
    pub fn print_report(&self, kind: &str, head: &str, report: &impl Serialize, rows: &[&str]) {
        self.print_object(kind, report);
        self.print_part(head, report, rows);
    }

    /// Prints the head of a report, such as the path of a new archive, and its rows. With `-q`, prints only the
    /// head; with `--json`, nothing.
    pub fn print_part(&self, head: &str, part: &impl Serialize, rows: &[&str]) {
        self.print_quiet(head);
        self.say(head);
        if self.is_text() {
            let part = serde_json::to_value(part).unwrap_or_default();
            for line in render::fill_rows(&part, rows) {
                self.print(&line);
            }
        }
    }

    /// Prints one of many items: as an object with `--json`, as `quiet_line` with `-q`, otherwise as `line`.
    pub fn print_item(&self, kind: &str, item: &impl Serialize, quiet_line: &str, line: &str) {
        self.print_object(kind, item);
        self.print_quiet(quiet_line);
        self.say(line);
    }

    /// Prints an object, but only with `--json`.
    pub fn print_object(&self, kind: &str, object: &impl Serialize) {
        self.print_json(&add_type(kind, object));
    }

    /// Prints a line, unless it is empty, but only with `-q`.
    pub fn print_quiet(&self, line: &str) {
        if self.args.quiet && !self.args.json && !line.is_empty() {
            self.print(line);
        }
    }

    /// Prints a line for people, unless it is empty. Prints nothing with `--json` or `-q`.
    pub fn say(&self, line: &str) {
        if self.is_text() && !line.is_empty() {
            self.print(line);
        }
    }

    pub fn print_table(&self, table: &Table) {
        self.say(&table.lines(result_columns()).join("\n"));
    }

    /// Prints a row whose text is not a template, for people.
    pub fn print_row(&self, label: &str, text: &str) {
        self.say(&format!("  {label:LABEL_COLUMNS$}  {text}"));
    }

    /// Prints a sentence for people. The template's fields are those of the report.
    pub fn say_filled(&self, report: &impl Serialize, template: &str) {
        let report = serde_json::to_value(report).unwrap_or_default();
        self.say(&render::fill(template, &report).unwrap_or_default());
    }

    fn is_text(&self) -> bool {
        !self.args.json && !self.args.quiet
    }

    /// Prints a line of results, unless printing has failed before.
    pub fn print(&self, line: &str) {
        self.end_stage();
        let line = escape_lines(line);
        if self.is_stdout_data.load(Relaxed) {
            return self.write_to_stderr(LogLevel::Info, &line);
        }
        let mut print_error = self.print_error.lock();
        if print_error.is_none() {
            *print_error = stdout::print(&line).err();
        }
    }

    /// Ends the output. Fails if results could not be printed, but not because the reader closed the pipe.
    pub fn finish(&self) -> Result<()> {
        self.end_stage();
        match self.print_error.lock().take() {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(stdout::write_error(&error)),
            _ => Ok(()),
        }
    }

    /// Reserves stdout for data: results go to stderr from now on.
    pub fn keep_stdout_for_data(&self) {
        self.is_stdout_data.store(true, Relaxed);
    }

    /// Prints an object that already has a `type`, but only with `--json`.
    pub fn print_json(&self, value: &impl Serialize) {
        if self.args.json {
            self.print(&json(value));
        }
    }

    /// Returns the flag that is set when the user interrupts the run. The flag may outlive the `Ui`.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.interrupted.clone()
    }

    /// Logs an event of a service with its time: with `--json` as an object, unless `kind` is empty, otherwise as
    /// a line.
    pub fn log_event(&self, kind: &str, level: LogLevel, event: &impl Serialize, template: &str) {
        let time = time_now();
        if !self.args.json {
            let fields = serde_json::to_value(event).unwrap_or_default();
            let text = render::fill(template, &fields).unwrap_or_default();
            self.log_line(level, &format!("{time} {text}"));
        } else if !kind.is_empty() {
            self.print_object(kind, &merge(json!({ "time": time }), event));
        }
    }

    /// Prints a log line. With `-q`, only errors are printed.
    fn log_line(&self, level: LogLevel, line: &str) {
        if self.args.quiet && level != LogLevel::Error {
            return;
        }
        let kind = if level == LogLevel::Info { "status" } else { "warning" };
        let text = if self.args.json {
            json(&add_type(kind, &json!({ "message": line })))
        } else {
            escape_lines(line).into_owned()
        };
        self.write_to_stderr(level, &text);
    }

    pub fn report_error(&self, error: &Error) {
        self.end_stage();
        let message = error.to_string();
        let hint = error.hint().and_then(hints::keep_if_flags_exist);
        if self.args.json {
            let line = error_line(&message, hint, error.kind().exit_code());
            return self.write_to_stderr(LogLevel::Error, &line);
        }
        self.print_labeled(LogLevel::Error, "error:", "1;31", &message);
        if let Some(hint) = hint {
            self.print_labeled(LogLevel::Warning, "hint:", "1;36", hint);
        }
    }

    fn print_labeled(&self, level: LogLevel, label: &str, color: &str, message: &str) {
        let message = escape_lines(message);
        if self.has_color {
            self.write_to_stderr(level, &format!("\x1b[{color}m{label}\x1b[0m {message}"));
        } else {
            self.write_to_stderr(level, &format!("{label} {message}"));
        }
    }

    /// Writes to stderr, above the progress bar if there is one.
    fn write_to_stderr(&self, level: LogLevel, text: &str) {
        let mut text = text.to_string();
        if self.is_journal {
            let lines = text.lines().map(|line| format!("<{}>{line}", level as u8));
            text = lines.collect::<Vec<_>>().join("\n");
        }
        let write = || {
            // If this fails, there is nowhere left to report that.
            let _ = writeln!(std::io::stderr().lock(), "{text}");
        };
        let bar = self.bar.lock().clone();
        match bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn end_stage(&self) {
        if let Some(bar) = self.bar.lock().take() {
            bar.finish_and_clear();
        }
    }

    /// Creates a progress bar. Its text is formatted again each time it is drawn.
    fn new_bar(&self) -> ProgressBar {
        let meter = self.meter.clone();
        let interrupted = self.interrupted.clone();
        let line = move |_: &ProgressState, to: &mut dyn std::fmt::Write| {
            // After an interruption, a message takes the place of the bar.
            let line =
                if interrupted.load(Relaxed) { String::new() } else { meter.read().bar_line(progress_columns()) };
            // Writing to a string cannot fail.
            let _ = to.write_str(&line);
        };
        // Keep the cursor away from the edge: a `^C` that the terminal echoes there would start a new line, and
        // the bar could not be cleared any more.
        let style = BarStyle::with_template("{line}   \x1b[3D").unwrap_or_else(|_| BarStyle::default_bar());
        let bar = ProgressBar::new_spinner().with_style(style.with_key("line", line));
        bar.set_draw_target(ProgressDrawTarget::stderr());
        // If no thread can be started for redrawing, the bar is redrawn only when bytes are reported.
        if std::thread::Builder::new().spawn(|| ()).is_ok_and(|thread| thread.join().is_ok()) {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        bar
    }
}

fn watch_signals(interrupted: &Arc<AtomicBool>) -> io::Result<()> {
    // signal_hook installs the handler at the first registration, and runs actions in the order of registration.
    // A signal between two registrations must not be lost, so the first action sets the stop flag. The last
    // action sets `repeated`, so only a later signal finds it set and ends the program.
    let repeated = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, interrupted.clone())?;
        flag::register_conditional_shutdown(signal, 130, repeated.clone())?;
        flag::register(signal, repeated.clone())?;
    }
    // With a handler for SIGXFSZ, writing beyond the file size limit of the process returns an error instead of
    // killing the process. If the signal were ignored instead, child processes would inherit that.
    flag::register(SIGXFSZ, Arc::default())?;
    Ok(())
}

/// True if stderr is connected to journald: `JOURNAL_STREAM` then holds its device and inode (see
/// `systemd.exec(5)`).
fn is_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let stat = rustix::fs::fstat(rustix::stdio::stderr());
    stat.is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

impl Progress for Ui {
    fn event(&self, event: ProgressEvent<'_>) {
        match event {
            ProgressEvent::Steps(steps) => self.meter.set_steps(steps),
            ProgressEvent::Stage { stage, input_bytes } => self.begin_stage(stage, input_bytes),
            ProgressEvent::Bytes { input, output } => self.count_bytes(input, output),
            ProgressEvent::Arriving(arriving) => self.meter.set_arriving(&arriving),
            ProgressEvent::Detail(_) if !self.args.verbose => {}
            ProgressEvent::Status(text) | ProgressEvent::Detail(text) => self.log_line(LogLevel::Info, text),
            ProgressEvent::Warning(message) => self.print_warning(message),
            _ => {}
        }
    }

    fn is_interrupted(&self) -> bool {
        let is_interrupted = self.interrupted.load(Relaxed);
        if is_interrupted && let Some(message) = self.interrupt_message.lock().take() {
            self.end_stage();
            self.log_line(LogLevel::Info, message);
        }
        is_interrupted
    }
}

impl Ui {
    fn begin_stage(&self, stage: &Stage, total_bytes: Option<u64>) {
        self.end_stage();
        self.meter.begin_stage(stage, total_bytes);
        let interval = self.line_interval.unwrap_or_default();
        self.next_line_ms.store(interval.as_millis() as u64, Relaxed);
        // After an interruption, a message has taken the place of the bar.
        if self.has_bar && !self.is_interrupted() {
            *self.bar.lock() = Some(self.new_bar());
        }
    }

    fn count_bytes(&self, input_bytes: u64, output_bytes: u64) {
        let input_bytes = self.meter.advance(input_bytes, output_bytes);
        // If another thread holds the lock, it is about to draw.
        let Some(bar) = self.bar.try_lock() else { return };
        if let Some(bar) = &*bar {
            return bar.set_position(input_bytes);
        }
        let Some(interval) = self.line_interval else { return };
        let elapsed_ms = self.meter.stage_elapsed().as_millis() as u64;
        if elapsed_ms >= self.next_line_ms.load(Relaxed) {
            self.next_line_ms.store(elapsed_ms + interval.as_millis() as u64, Relaxed);
            // `write_to_stderr` locks the bar too.
            drop(bar);
            let reading = self.meter.read();
            if self.args.json {
                self.write_to_stderr(LogLevel::Info, &json(&add_type("progress", &reading)));
            } else {
                self.write_to_stderr(LogLevel::Info, &reading.plain_line());
            }
        }
    }

    fn print_warning(&self, message: &str) {
        let mut shown = self.shown_warnings.lock();
        if shown.len() < SHOWN_WARNINGS_MAX && !shown.insert(message.to_string()) {
            return;
        }
        drop(shown);
        if self.args.json {
            self.log_line(LogLevel::Warning, message);
        } else if !self.args.quiet {
            self.print_labeled(LogLevel::Warning, "warning:", "1;33", message);
        }
    }
}
