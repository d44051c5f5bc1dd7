//! The target of a restore in a test.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::common::*;

/// A target that does not exist yet, and the directory around it.
pub struct Target {
    pub dir: TempDir,
    pub ledger: PathBuf,
    pub accounts: Vec<PathBuf>,
}

impl Target {
    /// Prepares a target with this number of accounts paths, or with the default accounts path if the number is 0.
    pub fn new(accounts_paths: usize) -> Self {
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let accounts = match accounts_paths {
            0 => vec![ledger.join("accounts")],
            count => (0..count).map(|number| dir.path().join(format!("accounts-{number}"))).collect(),
        };
        Self { dir, ledger, accounts }
    }

    pub fn command(&self, archives: &[&Path]) -> assert_cmd::Command {
        let mut command = slotpress();
        command.arg("restore").args(archives).arg("--ledger").arg(&self.ledger);
        if self.accounts[0] != self.ledger.join("accounts") {
            for dir in &self.accounts {
                command.arg("--accounts").arg(dir);
            }
        }
        command
    }

    pub fn restore(&self, archives: &[&Path]) {
        self.command(archives).assert().success();
    }
}

/// Returns the content of every storage of an archive, by slot.
pub fn storages(archive: &Path) -> BTreeMap<u64, Vec<u8>> {
    contents(archive)
        .into_iter()
        .filter_map(|(path, content)| {
            let slot = path.strip_prefix("accounts/")?.split_once('.')?.0.parse().ok()?;
            Some((slot, content))
        })
        .collect()
}
