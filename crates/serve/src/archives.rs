//! Lists the served archives by scanning their directories every second.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use slotpress_base::Result;
use slotpress_read::Catalog;
use slotpress_read::catalog::scan;

use super::Server;

const SCAN_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct ServedArchives {
    dirs: Vec<PathBuf>,
    /// Archives of the last successful scan.
    last_scan: Mutex<Arc<Catalog>>,
    /// True if the last scan failed.
    pub has_failed: AtomicBool,
}

fn scan_dirs(dirs: &[PathBuf], previous: &Catalog) -> Result<Catalog> {
    let mut catalog = scan::scan_again(dirs, previous)?;
    scan::read_newest_bank_times(&mut catalog, previous);
    scan::read_keep_reasons(&mut catalog, dirs);
    Ok(catalog)
}

impl ServedArchives {
    pub fn new(dirs: Vec<PathBuf>) -> Result<Self> {
        let catalog = Arc::new(scan_dirs(&dirs, &Catalog::default())?);
        Ok(Self { dirs, last_scan: Mutex::new(catalog), has_failed: AtomicBool::default() })
    }

    pub fn last_scan(&self) -> Arc<Catalog> {
        self.last_scan.lock().clone()
    }
}

/// Scans the directories every second, on a thread that may wait for the disk.
pub async fn keep_scanning(server: Arc<Server>) {
    let archives = &server.archives;
    loop {
        tokio::time::sleep(SCAN_INTERVAL).await;
        let dirs = archives.dirs.clone();
        let previous = archives.last_scan();
        let scan = tokio::task::spawn_blocking(move || scan_dirs(&dirs, &previous)).await;
        archives.has_failed.store(!matches!(scan, Ok(Ok(_))), Relaxed);
        if let Ok(Ok(catalog)) = scan {
            *archives.last_scan.lock() = Arc::new(catalog);
        }
    }
}
