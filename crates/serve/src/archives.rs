//! Lists the served archives: scans their directories each second.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
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
    last: Mutex<Arc<Catalog>>,
    /// True if a later scan has failed.
    pub has_failed: AtomicBool,
}

fn scan_dirs(dirs: &[PathBuf], known: &Catalog) -> Result<Catalog> {
    let mut catalog = scan::scan_again(dirs, known)?;
    scan::read_newest_bank_times(&mut catalog, known);
    scan::read_keep_reasons(&mut catalog, dirs);
    Ok(catalog)
}

impl ServedArchives {
    pub fn new(dirs: Vec<PathBuf>) -> Result<Self> {
        let catalog = Arc::new(scan_dirs(&dirs, &Catalog::default())?);
        Ok(Self { dirs, last: Mutex::new(catalog), has_failed: AtomicBool::default() })
    }

    pub fn last_scan(&self) -> Arc<Catalog> {
        self.last.lock().clone()
    }
}

/// Scans again and again. A scan may wait for the disk, so it has a thread of its own.
pub async fn keep_scanning(server: Arc<Server>) {
    let archives = &server.archives;
    loop {
        tokio::time::sleep(SCAN_INTERVAL).await;
        let scanned = server.clone();
        let known = archives.last_scan();
        let found = tokio::task::spawn_blocking(move || scan_dirs(&scanned.archives.dirs, &known)).await;
        let found = found.ok().and_then(Result::ok);
        archives.has_failed.store(found.is_none(), Relaxed);
        if let Some(catalog) = found {
            *archives.last.lock() = Arc::new(catalog);
        }
    }
}
