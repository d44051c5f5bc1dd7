//! What is served: the archives of some directories, looked at again at requests, at most once a second.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slotpress_base::Result;
use slotpress_read::Catalog;
use slotpress_read::catalog::scan;
use tokio::sync::Mutex;

/// How old an answer may be.
const FRESH: Duration = Duration::from_secs(1);

/// The directories.
#[derive(Debug)]
pub struct Shelf {
    dirs: Vec<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    catalog: Arc<Catalog>,
    looked_at: Instant,
    /// Why the last look failed.
    error: Option<String>,
}

/// What there is, and how long its slots take.
fn look(dirs: &[PathBuf], known: &Catalog) -> Result<Catalog> {
    let mut catalog = scan::scan_again(dirs, known)?;
    scan::look_for_slot_time(&mut catalog, known);
    Ok(catalog)
}

impl Shelf {
    /// Looks for the first time.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn new(dirs: Vec<PathBuf>) -> Result<Self> {
        let catalog = Arc::new(look(&dirs, &Catalog::default())?);
        Ok(Self { dirs, state: Mutex::new(State { catalog, looked_at: Instant::now(), error: None }) })
    }

    /// What there was at the last look; `None` while another one is under way.
    pub fn known(&self) -> Option<Arc<Catalog>> {
        self.state.try_lock().ok().map(|state| state.catalog.clone())
    }

    /// Where it looks.
    pub fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// What there is. While a directory cannot be read, what there was, and why the last look failed.
    pub async fn look(&self) -> (Arc<Catalog>, Option<String>) {
        // One looks, the others wait for it.
        let mut state = self.state.lock().await;
        if state.looked_at.elapsed() >= FRESH {
            let (dirs, known) = (self.dirs.clone(), state.catalog.clone());
            let scanned = tokio::task::spawn_blocking(move || look(&dirs, &known)).await;
            state.looked_at = Instant::now();
            match scanned {
                Ok(Ok(catalog)) => {
                    state.catalog = Arc::new(catalog);
                    state.error = None;
                }
                Ok(Err(error)) => state.error = Some(error.to_string()),
                Err(error) => state.error = Some(error.to_string()),
            }
        }
        (state.catalog.clone(), state.error.clone())
    }
}
