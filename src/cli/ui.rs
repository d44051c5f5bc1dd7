//! The terminal: results on stdout, progress, warnings and errors on stderr. Nothing else in slotpress writes there.

use {
    super::{ScreenArgs, stdout, stopping::Shown, values},
    crate::{
        error::{Error, Result},
        progress::Progress,
    },
    clap::ColorChoice,
    indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle as BarStyle},
    serde::Serialize,
    signal_hook::consts::{SIGHUP, SIGINT, SIGTERM},
    std::{
        collections::BTreeSet,
        io::{ErrorKind, IsTerminal, Write},
        sync::{
            Arc, Mutex,
            atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        },
        time::{Duration, Instant},
    },
};

/// How progress is shown on stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ProgressStyle {
    /// A bar on a terminal, plain lines otherwise
    #[default]
    Auto,
    /// A bar
    Bar,
    /// A line every 10 seconds
    Plain,
    /// A JSON object every second
    Json,
    /// Nothing
    None,
}

/// Often enough to see that it lives, seldom enough for a log.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);
const JSON_INTERVAL: Duration = Duration::from_secs(1);

/// Warnings that are remembered, so that each is shown once.
const SHOWN_WARNINGS_MAX: usize = 1000;

/// The terminal, and the signals that it sends.
pub struct Ui {
    is_json: bool,
    is_quiet: bool,
    is_verbose: bool,
    has_color: bool,
    style: ProgressStyle,
    interrupted: Arc<AtomicBool>,
    is_pipe_broken: AtomicBool,
    /// Why results could not be printed; a reader that went away is none.
    print_error: Mutex<Option<Error>>,
    /// Warnings that were shown: each is shown once.
    shown_warnings: Mutex<BTreeSet<String>>,
    is_stdout_data: AtomicBool,
    shown: Shown,
    stage: Mutex<Stage>,
    input_bytes: AtomicU64,
    output_bytes: AtomicU64,
    /// When the next line is due, in milliseconds after the stage began.
    next_line_ms: AtomicU64,
}

struct Stage {
    name: String,
    start: Instant,
    total_bytes: Option<u64>,
    /// A few words beside the figures.
    note: String,
    bar: Option<ProgressBar>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "progress")]
struct ProgressLine<'a> {
    stage: &'a str,
    input_bytes: u64,
    output_bytes: u64,
    total_bytes: Option<u64>,
    elapsed_seconds: f64,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "error")]
pub(super) struct ErrorLine<'a> {
    pub message: String,
    pub hint: Option<&'a str>,
    pub exit_code: u8,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "status")]
struct StatusLine<'a> {
    message: &'a str,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "warning")]
struct WarningLine<'a> {
    message: &'a str,
}

impl Ui {
    /// Sets up the screen and catches the signals that ask to stop. A second such signal ends the program at once.
    /// A command to which hanging up means something else keeps that signal.
    pub(super) fn new(args: &ScreenArgs, stops_on_hangup: bool) -> Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM].into_iter().chain(stops_on_hangup.then_some(SIGHUP)) {
            signal_hook::flag::register_conditional_shutdown(signal, 130, interrupted.clone())
                .and_then(|_| signal_hook::flag::register(signal, interrupted.clone()))
                .map_err(|error| Error::failed(format!("cannot watch for signals: {error}")))?;
        }
        let is_terminal = std::io::stderr().is_terminal();
        let style = match args.progress {
            _ if args.quiet => ProgressStyle::None,
            ProgressStyle::Auto if is_terminal => ProgressStyle::Bar,
            ProgressStyle::Auto => ProgressStyle::Plain,
            style => style,
        };
        let has_color = match args.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        };
        Ok(Self {
            is_json: args.json,
            is_quiet: args.quiet,
            is_verbose: args.verbose,
            has_color,
            style,
            interrupted,
            is_pipe_broken: AtomicBool::new(false),
            print_error: Mutex::default(),
            shown_warnings: Mutex::default(),
            is_stdout_data: AtomicBool::new(false),
            shown: Shown::default(),
            stage: Mutex::new(Stage {
                name: String::new(),
                start: Instant::now(),
                total_bytes: None,
                note: String::new(),
                bar: None,
            }),
            input_bytes: AtomicU64::new(0),
            output_bytes: AtomicU64::new(0),
            next_line_ms: AtomicU64::new(0),
        })
    }

    /// Whether results are JSON.
    pub fn is_json(&self) -> bool {
        self.is_json
    }

    /// Whether only results and errors are shown.
    pub fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// The bar that goes when the user asks to stop.
    pub(super) fn shown(&self) -> Shown {
        self.shown.clone()
    }

    /// Whether what is said on stderr is JSON.
    pub fn is_stderr_json(&self) -> bool {
        self.is_json || self.style == ProgressStyle::Json
    }

    /// Prints a line of results. A reader that has gone away is not an error; any other is told by [`Ui::finish`].
    pub fn print(&self, line: &str) {
        self.end_stage();
        if self.is_stdout_data.load(Relaxed) {
            self.stderr(line);
        } else if let Err(error) = stdout::print(line) {
            self.is_pipe_broken.store(true, Relaxed);
            if error.kind() != ErrorKind::BrokenPipe
                && let Ok(mut print_error) = self.print_error.lock()
            {
                print_error.get_or_insert(stdout::error(&error));
            }
        }
    }

    /// Prints a text after a label, in lines that fit a terminal of 80 columns; a word that is too long for a line has one
    /// of its own.
    pub fn print_wrapped(&self, label: &str, text: &str) {
        const COLUMNS: usize = 80;
        let indent = " ".repeat(label.chars().count());
        let mut line = label.to_string();
        let mut is_empty = true;
        for word in text.split(' ') {
            if !is_empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
                self.print(&std::mem::replace(&mut line, indent.clone()));
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line.push_str(word);
            is_empty = false;
        }
        self.print(&line);
    }

    /// Everything is printed: an error where results did not get to where they should.
    pub fn finish(&self) -> Result<()> {
        self.end_stage();
        match self.print_error.lock().ok().and_then(|mut error| error.take()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// An archive goes to stdout: from here on, results go to stderr.
    pub fn keep_stdout_for_data(&self) {
        self.is_stdout_data.store(true, Relaxed);
    }

    /// Prints a result as one line of JSON.
    pub fn print_json(&self, value: &impl Serialize) {
        self.print(&to_json(value));
    }

    /// Is set when the user asks to stop: for what must outlive the screen.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.interrupted.clone()
    }

    /// Whether nobody gets the results any more.
    pub fn is_pipe_broken(&self) -> bool {
        self.is_pipe_broken.load(Relaxed)
    }

    /// Prints what only some want to know.
    pub fn detail(&self, line: &str) {
        if self.is_verbose {
            self.stderr(line);
        }
    }

    /// Prints what has happened, as a log has it.
    pub fn log(&self, line: &str) {
        if !self.is_quiet {
            self.stderr(line);
        }
    }

    /// Prints an error and what to do about it.
    pub fn error(&self, error: &Error) {
        self.end_stage();
        if self.is_json || self.style == ProgressStyle::Json {
            let line =
                ErrorLine { message: error.to_string(), hint: error.hint_text(), exit_code: error.kind().exit_code() };
            self.stderr(&to_json(&line));
            return;
        }
        self.stderr(&format!("{} {error}", self.paint("error:", "1;31")));
        if let Some(hint) = error.hint_text() {
            self.stderr(&format!("{} {hint}", self.paint("hint:", "1;36")));
        }
    }

    fn paint(&self, text: &str, code: &str) -> String {
        if self.has_color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    /// Writes above the bar, where there is one.
    fn stderr(&self, line: &str) {
        let write = || drop(writeln!(std::io::stderr().lock(), "{line}"));
        match self.stage.lock().ok().and_then(|stage| stage.bar.clone()) {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn end_stage(&self) {
        if let Ok(mut stage) = self.stage.lock()
            && let Some(bar) = stage.bar.take()
        {
            bar.finish_and_clear();
        }
    }

    fn progress_line(&self, stage: &Stage, elapsed: Duration) -> String {
        let (input_bytes, output_bytes) = (self.input_bytes.load(Relaxed), self.output_bytes.load(Relaxed));
        if self.style == ProgressStyle::Json {
            return to_json(&ProgressLine {
                stage: &stage.name,
                input_bytes,
                output_bytes,
                total_bytes: stage.total_bytes,
                elapsed_seconds: elapsed.as_secs_f64(),
            });
        }
        let mut line = format!("{}: {}", stage.name, values::show_bytes(input_bytes));
        if let Some(total) = stage.total_bytes.filter(|total| *total > 0) {
            line += &format!(" of {} ({} %)", values::show_bytes(total), input_bytes * 100 / total);
        }
        line += &format!(", {}", values::show_rate(input_bytes, elapsed));
        if !stage.note.is_empty() {
            line += &format!(", {}", stage.note);
        } else if output_bytes > 0 {
            line += &format!(", ratio {}", values::show_ratio(input_bytes, output_bytes));
        }
        if let Some(total) = stage.total_bytes.filter(|total| input_bytes > 0 && *total >= input_bytes) {
            let left = elapsed.mul_f64((total - input_bytes) as f64 / input_bytes as f64);
            line += &format!(", {} left", values::show_duration(left));
        }
        line
    }
}

impl Progress for Ui {
    fn stage(&self, name: &str, total_bytes: Option<u64>) {
        self.end_stage();
        self.input_bytes.store(0, Relaxed);
        self.output_bytes.store(0, Relaxed);
        let Ok(mut stage) = self.stage.lock() else { return };
        let note = String::new();
        *stage = Stage { name: name.to_string(), start: Instant::now(), total_bytes, note, bar: None };
        let interval = if self.style == ProgressStyle::Json { JSON_INTERVAL } else { PLAIN_INTERVAL };
        self.next_line_ms.store(interval.as_millis() as u64, Relaxed);
        if self.style == ProgressStyle::Bar {
            let bar = match total_bytes {
                // The cursor rests before the edge: a ^C that the terminal echoes there must not begin a new line, or
                // the bar could not be cleared.
                Some(total) => ProgressBar::new(total).with_style(style(
                    "{prefix} {wide_bar} {percent}% {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {msg}{eta} left   \x1b[3D",
                )),
                None => ProgressBar::new_spinner().with_style(style("{prefix} {spinner} {elapsed}")),
            };
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.set_prefix(name.to_string());
            // Where no thread can be started, the bar moves when there is something to show.
            if std::thread::Builder::new().spawn(|| ()).is_ok_and(|thread| thread.join().is_ok()) {
                bar.enable_steady_tick(Duration::from_millis(200));
            }
            self.shown.set(bar.clone());
            stage.bar = Some(bar);
        }
    }

    fn advance(&self, input_bytes: u64, output_bytes: u64) {
        let input_bytes = self.input_bytes.fetch_add(input_bytes, Relaxed) + input_bytes;
        let output_bytes = self.output_bytes.fetch_add(output_bytes, Relaxed) + output_bytes;
        // Whoever else holds the lock is about to draw.
        let Ok(stage) = self.stage.try_lock() else { return };
        match self.style {
            ProgressStyle::Bar => {
                if let Some(bar) = &stage.bar {
                    bar.set_position(input_bytes);
                    if output_bytes > 0 && stage.note.is_empty() {
                        bar.set_message(format!("ratio {}, ", values::show_ratio(input_bytes, output_bytes)));
                    }
                }
            }
            ProgressStyle::Plain | ProgressStyle::Json => {
                let elapsed = stage.start.elapsed();
                let interval = if self.style == ProgressStyle::Json { JSON_INTERVAL } else { PLAIN_INTERVAL };
                let elapsed_ms = elapsed.as_millis() as u64;
                if elapsed_ms >= self.next_line_ms.load(Relaxed) {
                    self.next_line_ms.store(elapsed_ms + interval.as_millis() as u64, Relaxed);
                    let line = self.progress_line(&stage, elapsed);
                    drop(writeln!(std::io::stderr().lock(), "{line}"));
                }
            }
            ProgressStyle::None | ProgressStyle::Auto => {}
        }
    }

    fn note(&self, text: &str) {
        let Ok(mut stage) = self.stage.lock() else { return };
        stage.note = text.to_string();
        if let Some(bar) = &stage.bar {
            bar.set_message(format!("{text}, "));
        }
    }

    fn tell(&self, message: &str) {
        if self.style == ProgressStyle::Json || self.is_json {
            self.stderr(&to_json(&StatusLine { message }));
        } else if !self.is_quiet {
            self.stderr(message);
        }
    }

    fn warn(&self, message: &str) {
        if let Ok(mut shown) = self.shown_warnings.lock()
            && shown.len() < SHOWN_WARNINGS_MAX
            && !shown.insert(message.to_string())
        {
            return;
        }
        if self.style == ProgressStyle::Json || self.is_json {
            self.stderr(&to_json(&WarningLine { message }));
        } else if !self.is_quiet {
            self.stderr(&format!("{} {message}", self.paint("warning:", "1;33")));
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }
}

fn style(template: &str) -> BarStyle {
    BarStyle::with_template(template).unwrap_or_else(|_| BarStyle::default_bar())
}

fn to_json(value: &impl Serialize) -> String {
    // Cannot fail: what is printed are plain structures with string keys.
    serde_json::to_string(value).unwrap_or_default()
}
