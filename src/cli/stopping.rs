//! Responds on the terminal as soon as the user interrupts the run: removes the progress bar, and
//! prints one line that says what happens now. The work ends elsewhere, where the stop flag is
//! checked.

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

/// Message shown on interruption; `None` for commands that log it themselves.
pub fn what_happens(verb: &Verb) -> Option<&'static str> {
    match verb {
        Verb::Archive(_) | Verb::Restore(_) | Verb::Recompress(_) | Verb::Rebase(_) | Verb::Synth(_) => {
            Some("stopping: removing what was written")
        }
        Verb::Fetch(_) => Some("stopping: downloaded bytes are kept, and the next run continues from there"),
        Verb::Bootstrap(_) => Some("stopping: downloaded bytes are kept for the next run, everything else is removed"),
        Verb::Serve(_) => None,
        Verb::Publish(_) => None,
        _ => Some("stopping"),
    }
}

/// The progress bar on the screen, shared with the thread that removes it.
#[derive(Clone, Debug, Default)]
pub struct Shown(Arc<Mutex<Option<ProgressBar>>>);

impl Shown {
    pub fn set(&self, bar: ProgressBar) {
        *self.0.lock() = Some(bar);
    }

    fn clear(&self) {
        if let Some(bar) = self.0.lock().take() {
            bar.finish_and_clear();
        }
    }
}

/// Starts a thread that prints `text` when a signal to stop arrives. If the thread or its pipe
/// cannot be created, nothing is printed; the run stops all the same.
pub fn watch(shown: Shown, is_json: bool, text: &'static str) {
    let Ok((mut reader, writer)) = UnixStream::pair() else { return };
    for signal in [SIGINT, SIGTERM, SIGHUP] {
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

/// Stack size of the thread that prints the message.
const STACK_BYTES: usize = 128 * 1024;
