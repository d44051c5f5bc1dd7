//! Lists the served archives: scans their directories when a request comes, at most once a second.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slotpress_base::Result;
use slotpress_read::Catalog;
use slotpress_read::catalog::scan;
use tokio::sync::Mutex;

/// Age up to which a scan is used for an answer.
const FRESH: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct ServedArchives {
    dirs: Vec<PathBuf>,
    last: Mutex<Look>,
}

#[derive(Debug)]
struct Look {
    catalog: Arc<Catalog>,
    looked_at: Instant,
    error: Option<String>,
}

fn look(dirs: &[PathBuf], known: &Catalog) -> Result<Catalog> {
    let mut catalog = scan::scan_again(dirs, known)?;
    scan::look_for_times(&mut catalog, known);
    scan::look_for_reasons(&mut catalog, dirs);
    Ok(catalog)
}

impl ServedArchives {
    /// Makes the first scan.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn new(dirs: Vec<PathBuf>) -> Result<Self> {
        let catalog = Arc::new(look(&dirs, &Catalog::default())?);
        Ok(Self { dirs, last: Mutex::new(Look { catalog, looked_at: Instant::now(), error: None }) })
    }

    /// Result of the last scan; `None` while another one is running.
    pub fn known(&self) -> Option<Arc<Catalog>> {
        self.last.try_lock().ok().map(|last| last.catalog.clone())
    }

    /// Returns the archives. If a directory cannot be read, returns those of the last successful
    /// scan, and the error.
    pub async fn look(&self) -> (Arc<Catalog>, Option<String>) {
        // One request scans, the others wait for it.
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
