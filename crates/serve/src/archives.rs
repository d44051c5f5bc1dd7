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
pub struct ServedArchives {
    dirs: Vec<PathBuf>,
    last: Mutex<Look>,
}

#[derive(Debug)]
struct Look {
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

impl ServedArchives {
    /// Looks for the first time.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn new(dirs: Vec<PathBuf>) -> Result<Self> {
        let catalog = Arc::new(look(&dirs, &Catalog::default())?);
        Ok(Self { dirs, last: Mutex::new(Look { catalog, looked_at: Instant::now(), error: None }) })
    }

    /// What there was at the last look; `None` while another one is under way.
    pub fn known(&self) -> Option<Arc<Catalog>> {
        self.last.try_lock().ok().map(|last| last.catalog.clone())
    }

    /// What there is. While a directory cannot be read, what there was, and why the last look failed.
    pub async fn look(&self) -> (Arc<Catalog>, Option<String>) {
        // One looks, the others wait for it.
        let mut last = self.last.lock().await;
        if last.looked_at.elapsed() >= FRESH {
            let (dirs, known) = (self.dirs.clone(), last.catalog.clone());
            let scanned = tokio::task::spawn_blocking(move || look(&dirs, &known)).await;
            last.looked_at = Instant::now();
            match scanned {
                Ok(Ok(catalog)) => {
                    last.catalog = Arc::new(catalog);
                    last.error = None;
                }
                Ok(Err(error)) => last.error = Some(error.to_string()),
                Err(error) => last.error = Some(error.to_string()),
            }
        }
        (last.catalog.clone(), last.error.clone())
    }
}
