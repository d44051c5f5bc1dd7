//! The terminal. Results go to stdout; progress, warnings and errors to stderr. All output of
//! commands goes through [`Ui`].

use std::collections::BTreeSet;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle as BarStyle};
use parking_lot::Mutex;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use slotpress::{Error, Progress, ProgressEvent, Result};
use slotpress_base::text::{escaped_lines, json};

use super::json::{Both, ErrorLine, ProgressLine, StatusLine, Typed, WarningLine};
use super::meter::Meter;
use super::stopping::Shown;
use super::{ScreenArgs, hints, lines, stdout};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgressStyle {
    /// A bar on a terminal.
    Bar,
    /// A line every 10 seconds.
    Plain,
    /// A JSON object every second.
    Json,
    None,
}

/// Interval of progress lines: short enough to show that the run is alive, long enough for a log.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);
const JSON_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of warnings remembered, to show each only once.
const SHOWN_WARNINGS_MAX: usize = 1000;

/// Severity of a log line, as syslog and journald number it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Error = 3,
    Warning = 4,
    Info = 6,
}

/// How to print: flags, and what stderr is.
struct Screen {
    is_json: bool,
    is_quiet: bool,
    is_verbose: bool,
    has_color: bool,
    style: ProgressStyle,
    is_terminal: bool,
    /// True if stderr goes to journald, which reads the severity from a prefix of each line such as
    /// `<4>`.
    is_journal: bool,
}

/// State of stdout.
#[derive(Default)]
struct Results {
    is_stdout_data: AtomicBool,
    is_pipe_broken: AtomicBool,
    /// First failure to print results. A pipe closed by the reader is not one.
    print_error: Mutex<Option<Error>>,
}

pub struct Ui {
    screen: Screen,
    results: Results,
    interrupted: Arc<AtomicBool>,
    shown_warnings: Mutex<BTreeSet<String>>,
    meter: Arc<Meter>,
    shown: Shown,
    bar: Mutex<Option<ProgressBar>>,
    /// Time at which the next progress line is due, in milliseconds since the stage began.
    next_line_ms: AtomicU64,
}

impl Ui {
    /// Prepares the terminal and registers the signals that interrupt the run. A second such signal
    /// ends the program at once, with exit code 130.
    pub(super) fn new(args: &ScreenArgs) -> Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        // signal_hook installs the handler at the first registration, and runs actions in the order
        // of registration. A signal between two registrations must not be lost, so the first action
        // sets the stop flag. `repeated` is set last: only a later signal finds it set, and ends
        // the program.
        let repeated = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, interrupted.clone())
                .and_then(|_| signal_hook::flag::register_conditional_shutdown(signal, 130, repeated.clone()))
                .and_then(|_| signal_hook::flag::register(signal, repeated.clone()))
                .map_err(|error| Error::failed(format!("cannot watch for signals: {error}")))?;
        }
        // With a handler for SIGXFSZ, writing beyond the file size limit of the process returns an
        // error instead of killing the process. Ignoring the signal instead would be inherited by
        // child processes.
        signal_hook::flag::register(SIGXFSZ, Arc::default())
            .map_err(|error| Error::failed(format!("cannot watch for signals: {error}")))?;
        let is_terminal = std::io::stderr().is_terminal();
        let style = match args.json {
            _ if args.quiet || args.progress.is_some() => ProgressStyle::None,
            _ if is_terminal => ProgressStyle::Bar,
            true => ProgressStyle::Json,
            false => ProgressStyle::Plain,
        };
        let has_color = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let screen = Screen {
            is_json: args.json,
            is_quiet: args.quiet,
            is_verbose: args.verbose,
            has_color,
            style,
            is_terminal,
            is_journal: is_journal(),
        };
        Ok(Self {
            screen,
            results: Results::default(),
            interrupted,
            shown_warnings: Mutex::default(),
            meter: Arc::new(Meter::new()),
            shown: Shown::default(),
            bar: Mutex::default(),
            next_line_ms: AtomicU64::new(0),
        })
    }

    pub fn is_json(&self) -> bool {
        self.screen.is_json
    }

    pub fn is_verbose(&self) -> bool {
        self.screen.is_verbose
    }

    pub fn is_quiet(&self) -> bool {
        self.screen.is_quiet
    }

    pub(super) fn shown(&self) -> Shown {
        self.shown.clone()
    }

    pub fn is_stderr_json(&self) -> bool {
        self.screen.is_json
    }

    /// Prints a line of results, wrapped at words on a terminal. Ignores a closed pipe;
    /// [`Ui::finish`] returns any other error.
    pub fn print(&self, line: &str) {
        match lines::columns_of_results() {
            Some(columns) => {
                let wrapped = line.split('\n').flat_map(|line| lines::wrap_line(line, columns));
                wrapped.for_each(|line| self.print_verbatim(&line));
            }
            None => self.print_verbatim(line),
        }
    }

    /// Prints a line of results without wrapping it: a path to be copied, or a line that is laid
    /// out already.
    pub fn print_verbatim(&self, line: &str) {
        self.end_stage();
        let line = escaped_lines(line);
        if self.results.is_stdout_data.load(Relaxed) {
            self.stderr(&line);
        } else if let Err(error) = stdout::print(&line) {
            self.results.is_pipe_broken.store(true, Relaxed);
            if error.kind() != ErrorKind::BrokenPipe {
                self.results.print_error.lock().get_or_insert(stdout::error(&error));
            }
        }
    }

    /// Prints a text after a label, wrapped to the terminal, at most 80 columns.
    pub fn print_wrapped(&self, label: &str, text: &str) {
        lines::wrap(label, text, self.columns()).iter().for_each(|line| self.print_verbatim(line));
    }

    /// Width for wrapped text: that of the terminal, at most 80 columns, because longer lines are
    /// hard to read.
    pub fn columns(&self) -> usize {
        const COLUMNS_MAX: usize = 80;
        lines::columns_of_results().unwrap_or(COLUMNS_MAX).min(COLUMNS_MAX)
    }

    pub fn finish(&self) -> Result<()> {
        self.end_stage();
        self.results.print_error.lock().take().map_or(Ok(()), Err)
    }

    /// Reserves stdout for an archive: results go to stderr from now on.
    pub fn keep_stdout_for_data(&self) {
        self.results.is_stdout_data.store(true, Relaxed);
    }

    pub fn print_report(&self, kind: &str, report: &impl Serialize) {
        self.print_json(&Typed { kind, report });
    }

    pub fn print_reports(&self, kind: &str, first: &impl Serialize, second: &impl Serialize) {
        self.print_report(kind, &Both { first, second });
    }

    /// Prints a report as JSON, or its first line as text. Returns true if the caller must print
    /// the other lines: not with `--json` or `-q`.
    pub fn print_head(&self, kind: &str, report: &impl Serialize, head: &str) -> bool {
        match self.screen.is_json {
            true => self.print_report(kind, report),
            false => self.print_verbatim(head),
        }
        !self.screen.is_json && !self.screen.is_quiet
    }

    /// Prints a value that contains its own `type` as one line of JSON.
    pub fn print_json(&self, value: &impl Serialize) {
        self.print_verbatim(&json(value));
    }

    /// The flag that is set when the user interrupts the run, for owners that outlive the `Ui`.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.interrupted.clone()
    }

    pub fn is_pipe_broken(&self) -> bool {
        self.results.is_pipe_broken.load(Relaxed)
    }

    pub fn log(&self, line: &str) {
        self.log_at(Level::Info, line);
    }

    /// Prints a log line. With `-q`, only errors are printed.
    pub fn log_at(&self, level: Level, line: &str) {
        match self.is_stderr_json() {
            _ if self.screen.is_quiet && level != Level::Error => {}
            true if level == Level::Info => self.stderr(&json(&StatusLine { message: line })),
            true => self.stderr_at(level, &json(&WarningLine { message: line })),
            false => self.stderr_at(level, &escaped_lines(line)),
        }
    }

    pub fn error(&self, error: &Error) {
        self.end_stage();
        let (message, hint) = (error.to_string(), error.hint().and_then(hints::text));
        if self.is_stderr_json() {
            let exit_code = error.kind().exit_code();
            self.stderr(&json(&ErrorLine { message, hint: hint.as_deref(), exit_code }));
            return;
        }
        self.labelled("error:", "1;31", &message);
        if let Some(hint) = hint {
            self.labelled("hint:", "1;36", &hint);
        }
    }

    fn labelled(&self, label: &str, code: &str, message: &str) {
        let message = &escaped_lines(message);
        if !self.screen.is_terminal {
            let level = if label == "error:" { Level::Error } else { Level::Warning };
            return self.stderr_at(level, &format!("{} {message}", self.paint(label, code)));
        }
        let text = lines::wrap_all(&format!("{label} "), message, lines::columns());
        self.stderr(&match text.strip_prefix(label) {
            Some(rest) => format!("{}{rest}", self.paint(label, code)),
            None => text,
        });
    }

    fn wrapped(&self, message: &str) {
        let message = &escaped_lines(message);
        match self.screen.is_terminal {
            true => self.stderr(&lines::wrap_all("", message, lines::columns())),
            false => self.stderr(message),
        }
    }

    fn paint(&self, text: &str, code: &str) -> String {
        if self.screen.has_color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    fn stderr(&self, line: &str) {
        self.stderr_at(Level::Info, line);
    }

    /// Writes to stderr, above the progress bar if there is one.
    fn stderr_at(&self, level: Level, text: &str) {
        let levelled = || text.lines().map(|line| format!("<{}>{line}", level as u8)).collect::<Vec<_>>().join("\n");
        let line = if self.screen.is_journal { levelled() } else { text.to_string() };
        let write = || drop(writeln!(std::io::stderr().lock(), "{line}"));
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

    fn progress_line(&self) -> String {
        let reading = self.meter.read();
        if self.screen.style != ProgressStyle::Json {
            return reading.plain_line();
        }
        json(&ProgressLine {
            stage: &reading.name,
            step: reading.step.map(|(step, _)| step),
            steps: reading.step.map(|(_, steps)| steps),
            input_bytes: reading.input_bytes,
            output_bytes: reading.output_bytes,
            total_bytes: reading.total_bytes,
            done_percent: reading.done.map(|done| (done * 1000.0).floor() / 10.0),
            elapsed_seconds: reading.elapsed.as_secs_f64(),
            left_seconds: reading.remaining.map(|time| time.as_secs_f64().round()),
            note: Some(reading.note.as_str()).filter(|note| !note.is_empty()),
        })
    }

    /// Creates a progress bar. Its text is formatted anew each time it is drawn.
    fn new_bar(&self) -> ProgressBar {
        let (meter, interrupted) = (self.meter.clone(), self.interrupted.clone());
        let line = move |_: &ProgressState, to: &mut dyn std::fmt::Write| {
            // After an interruption, draw nothing: the thread of `stopping` has printed a message.
            let line = match interrupted.load(Relaxed) {
                true => String::new(),
                false => meter.read().bar_line(lines::columns(), lines::is_utf8()),
            };
            // Writing to a string cannot fail.
            let _ = to.write_str(&line);
        };
        // Keep the cursor before the edge: a `^C` that the terminal echoes there would start a new
        // line, and the bar could not be cleared any more.
        let style = BarStyle::with_template("{line}   \x1b[3D").unwrap_or_else(|_| BarStyle::default_bar());
        let bar = ProgressBar::new_spinner().with_style(style.with_key("line", line));
        bar.set_draw_target(ProgressDrawTarget::stderr());
        // If no thread can be started for redrawing, the bar is redrawn only when bytes are
        // reported.
        if std::thread::Builder::new().spawn(|| ()).is_ok_and(|thread| thread.join().is_ok()) {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        bar
    }

    fn interval(&self) -> Duration {
        if self.screen.style == ProgressStyle::Json { JSON_INTERVAL } else { PLAIN_INTERVAL }
    }
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
            ProgressEvent::Steps(steps) => self.meter.steps(steps),
            ProgressEvent::Stage { name, input_bytes } => self.begin_stage(name, input_bytes),
            ProgressEvent::Bytes { input, output } => self.count(input, output),
            ProgressEvent::Arriving(arriving) => self.meter.arriving(&arriving),
            ProgressEvent::Status(message) => self.status(message),
            ProgressEvent::Detail(message) if self.screen.is_verbose => self.status(message),
            ProgressEvent::Warning(message) => self.warning(message),
            _ => {}
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }
}

impl Ui {
    fn begin_stage(&self, name: &str, total_bytes: Option<u64>) {
        self.end_stage();
        self.meter.stage(name, total_bytes);
        self.next_line_ms.store(self.interval().as_millis() as u64, Relaxed);
        // After an interruption, a message has taken the place of the bar.
        if self.screen.style == ProgressStyle::Bar && !self.is_interrupted() {
            let new = self.new_bar();
            self.shown.set(new.clone());
            *self.bar.lock() = Some(new);
        }
    }

    fn count(&self, input_bytes: u64, output_bytes: u64) {
        let input_bytes = self.meter.advance(input_bytes, output_bytes);
        // If another thread holds the lock, it is about to draw.
        let Some(bar) = self.bar.try_lock() else { return };
        match self.screen.style {
            ProgressStyle::Bar => {
                if let Some(bar) = &*bar {
                    bar.set_position(input_bytes);
                }
            }
            ProgressStyle::Plain | ProgressStyle::Json => {
                let elapsed_ms = self.meter.stage_elapsed().as_millis() as u64;
                if elapsed_ms >= self.next_line_ms.load(Relaxed) {
                    self.next_line_ms.store(elapsed_ms + self.interval().as_millis() as u64, Relaxed);
                    // Printing looks for a bar, and takes the lock.
                    drop(bar);
                    self.stderr(&self.progress_line());
                }
            }
            ProgressStyle::None => {}
        }
    }

    fn status(&self, message: &str) {
        if self.is_stderr_json() {
            self.stderr(&json(&StatusLine { message }));
        } else if !self.screen.is_quiet {
            self.wrapped(message);
        }
    }

    fn warning(&self, message: &str) {
        let mut shown = self.shown_warnings.lock();
        if shown.len() < SHOWN_WARNINGS_MAX && !shown.insert(message.to_string()) {
            return;
        }
        drop(shown);
        if self.is_stderr_json() {
            self.stderr(&json(&WarningLine { message }));
        } else if !self.screen.is_quiet {
            self.labelled("warning:", "1;33", message);
        }
    }
}
