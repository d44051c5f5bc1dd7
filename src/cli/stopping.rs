//! What the terminal shows at once when the user asks to stop, however long the work then takes to end: the bar goes, and
//! one line says what happens. Ending the work is not done here: everybody looks at the flag for that.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use indicatif::ProgressBar;
use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use slotpress_base::text::json;

use super::Verb;
use super::json::StatusLine;

/// What a command does when it is stopped.
pub fn what_happens(verb: &Verb) -> Option<&'static str> {
    match verb {
        Verb::Archive(_) | Verb::Restore(_) | Verb::Recompress(_) | Verb::Synth(_) => {
            Some("stopping: removing what was written")
        }
        Verb::Fetch(_) => Some("stopping: downloaded bytes are kept, and the next run continues from there"),
        Verb::Bootstrap(_) => Some("stopping: downloaded bytes are kept for the next run, everything else is removed"),
        Verb::Serve(_) => None,
        Verb::Publish(_) => None,
        _ => Some("stopping"),
    }
}

/// The bar that goes when the user asks to stop.
#[derive(Clone, Debug, Default)]
pub struct Shown(Arc<Mutex<Option<ProgressBar>>>);

impl Shown {
    /// This bar is on the screen now.
    pub fn set(&self, bar: ProgressBar) {
        *self.0.lock() = Some(bar);
    }

    fn clear(&self) {
        if let Some(bar) = self.0.lock().take() {
            bar.finish_and_clear();
        }
    }
}

/// Says `text` as soon as a signal arrives that asks to stop. Where no thread or pipe is to be had, nothing is said.
pub fn watch(shown: Shown, is_json: bool, stops_on_hangup: bool, text: &'static str) {
    let Ok((mut reader, writer)) = UnixStream::pair() else { return };
    for signal in [SIGINT, SIGTERM].into_iter().chain(stops_on_hangup.then_some(SIGHUP)) {
        let Ok(writer) = writer.try_clone() else { return };
        if pipe::register(signal, writer).is_err() {
            return;
        }
    }
    let say = move || {
        if reader.read_exact(&mut [0]).is_err() {
            return;
        }
        shown.clear();
        let line = match is_json {
            true => json(&StatusLine { message: text }),
            false => text.to_string(),
        };
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    };
    let _ = std::thread::Builder::new().name("stopping".into()).stack_size(STACK_BYTES).spawn(say);
}

/// Enough for a line of text.
const STACK_BYTES: usize = 128 * 1024;
