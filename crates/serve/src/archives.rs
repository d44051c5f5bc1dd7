//! Lists the served archives: scans their directories each second.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use slotpress_base::Result;
use slotpress_read::Catalog;
use slotpress_read::catalog::scan;

use super::Server;

const SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// The archives of the last successful scan, and the error of a later one.
#[derive(Debug)]
pub struct ServedArchives {
    dirs: Vec<PathBuf>,
    last: Mutex<(Arc<Catalog>, Option<String>)>,
}

fn look(dirs: &[PathBuf], known: &Catalog) -> Result<Catalog> {
    let mut catalog = scan::scan_again(dirs, known)?;
    scan::read_newest_bank_times(&mut catalog, known);
    scan::read_keep_reasons(&mut catalog, dirs);
    Ok(catalog)
}

impl ServedArchives {
    pub fn new(dirs: Vec<PathBuf>) -> Result<Self> {
        let catalog = Arc::new(look(&dirs, &Catalog::default())?);
        Ok(Self { dirs, last: Mutex::new((catalog, None)) })
    }

    pub fn last(&self) -> Arc<Catalog> {
        self.last.lock().0.clone()
    }

    pub fn error(&self) -> Option<String> {
        self.last.lock().1.clone()
    }
}

/// Scans again and again. A scan may wait for the disk, so it has a thread of its own.
pub async fn keep_scanning(server: Arc<Server>) {
    loop {
        tokio::time::sleep(SCAN_INTERVAL).await;
        let scanned = server.clone();
        let known = server.archives.last();
        let found = tokio::task::spawn_blocking(move || look(&scanned.archives.dirs, &known)).await;
        let found = found.map_err(|error| error.to_string());
        let mut last = server.archives.last.lock();
        match found.and_then(|found| found.map_err(|error| error.to_string())) {
            Ok(catalog) => *last = (Arc::new(catalog), None),
            Err(error) => last.1 = Some(error),
        }
    }
}
