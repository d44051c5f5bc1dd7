//! A head start: a bucket gets parts of an archive while that is being made. They become an object only when the archive is whole,
//! was checked and has its name; otherwise the store forgets them, and what is ready is sent as ever.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::fstat;
use slotpress_base::progress::wait;
use slotpress_base::{IoContext, IoHint, Progress, Result};
use slotpress_format::ArchiveName;
use slotpress_read::file_id;
use slotpress_stores::PART_BYTES_MIN;

use super::journal::State;
use super::notes::Notes;
use super::shelf::{Ready, Shelf};
use super::upload::{Begun, PARTS_CHECK, PIECE_BYTES, Sent, begin};

/// An archive that is being made.
#[derive(Debug)]
pub struct Making {
    /// The name that it gets.
    pub name: ArchiveName,
    state: State,
    now: Mutex<Now>,
}

/// How far it is.
#[derive(Clone, Debug)]
enum Now {
    /// Nothing of it is there.
    Begun,
    /// Bytes come at the end of a file; those that are there stay as they are.
    Grows { file: Arc<File>, bytes_max: u64 },
    /// It is ready, or came to nothing.
    Over(Option<Box<Ready>>),
}

impl Making {
    /// Of which nothing is there.
    pub fn new(name: ArchiveName, state: State) -> Self {
        Self { name, state, now: Mutex::new(Now::Begun) }
    }

    /// It is made in this file, and will hardly have more bytes than that.
    pub fn grows(&self, file: File, bytes_max: u64) {
        self.set(Now::Grows { file: Arc::new(file), bytes_max });
    }

    /// It is ready, or came to nothing.
    pub fn is_over(&self, ready: Option<Ready>) {
        self.set(Now::Over(ready.map(Box::new)));
    }

    fn set(&self, now: Now) {
        *self.now.lock() = now;
    }

    fn now(&self) -> Now {
        self.now.lock().clone()
    }
}

/// Sends what there is of an archive, until that is ready: returns it, and what was sent. Of a short one, nothing is. Where the
/// store fails, nothing was: what is ready is sent then.
///
/// # Errors
/// The user asks to stop.
pub fn head_start(
    shelf: &Shelf,
    making: &Making,
    io_hint: IoHint,
    notes: &Notes<'_>,
    progress: &dyn Progress,
) -> Result<Option<(Ready, Option<Sent>)>> {
    let mut sender = Sender { shelf, making, io_hint, notes, progress, sent: None, source: None, buffer: Vec::new() };
    let mut has_failed = false;
    loop {
        progress.check()?;
        match making.now() {
            Now::Over(ready) => return Ok(ready.map(|ready| (*ready.clone(), sender.sent_of(&ready)))),
            Now::Grows { file, bytes_max } if !has_failed => {
                if let Err(error) = sender.send_some(file, bytes_max) {
                    (sender.sent, has_failed) = (None, true);
                    progress.detail(&format!("{} is sent when it is ready: {error}", making.name));
                }
            }
            Now::Begun | Now::Grows { .. } => wait(progress, PARTS_CHECK),
        }
    }
}

struct Sender<'a> {
    shelf: &'a Shelf,
    making: &'a Making,
    io_hint: IoHint,
    notes: &'a Notes<'a>,
    progress: &'a dyn Progress,
    sent: Option<Sent>,
    source: Option<Arc<File>>,
    buffer: Vec<u8>,
}

impl Sender<'_> {
    /// Sends the next bytes, or waits for some.
    fn send_some(&mut self, file: Arc<File>, bytes_max: u64) -> Result<()> {
        let path = Path::new("what is being made");
        let there = file.metadata().or_path("read", path)?.len();
        if self.sent.is_none() && there >= PART_BYTES_MIN {
            let (name, state) = (&self.making.name, self.making.state);
            let upload = begin(self.shelf, name, None, state, bytes_max, self.progress)?;
            // A later run must have it forgotten.
            let begun = upload.state().map(|state| Begun { of: String::new(), state });
            self.notes.set_upload(&self.shelf.store.shown(&name.to_string()), begun)?;
            self.sent = Some((upload, 0));
        }
        match &mut self.sent {
            Some((upload, at)) if *at < there => {
                let range = *at..at.saturating_add(PIECE_BYTES).min(there);
                let piece = self.io_hint.read_range(&file, &range, there, &mut self.buffer).or_path("read", path)?;
                upload.write(piece, self.progress)?;
                *at = range.end;
            }
            sent => {
                // Tells whether a part has failed.
                sent.as_mut().map_or(Ok(()), |(upload, _)| upload.write(&[], self.progress))?;
                wait(self.progress, PARTS_CHECK);
            }
        }
        self.source = Some(file);
        Ok(())
    }

    /// What was sent, if that is of the file that is ready.
    fn sent_of(&mut self, ready: &Ready) -> Option<Sent> {
        let stat = fstat(self.source.as_ref()?).ok()?;
        let is_it = |at: u64| file_id(&stat) == ready.archive.file_id && at <= ready.archive.size_bytes;
        self.sent.take().filter(|(_, at)| is_it(*at))
    }
}
