//! The ledger's directories: lock, owner, room.

use {
    super::Finding,
    slotpress_base::text::ShowPath,
    slotpress_format::ledger::{directory::LedgerPaths, held_lock::is_ledger_lock_held},
    slotpress_read::store::{RESTORE_JOURNAL_HINT, restore_journal},
    std::{
        collections::BTreeSet,
        fs,
        os::unix::fs::MetadataExt,
        path::{Path, PathBuf},
    },
};

/// Entries of a directory that are looked at for large files.
const LOOKED_AT_MAX: usize = 20_000;

/// Files that are measured with.
const FILES_MAX: usize = 64;

/// Everything about the directories.
pub fn examine(paths: &LedgerPaths) -> Vec<Finding> {
    let mut findings = vec![lock(&paths.ledger), owner(&paths.ledger)];
    findings.extend(restore_journal(paths.snapshots_dir()).map(|journal| {
        let found = format!("{}: a restore was killed before its end", journal.shown());
        Finding::bad("restore", found, RESTORE_JOURNAL_HINT)
    }));
    let mut seen = BTreeSet::new();
    for dir in [paths.ledger.clone(), paths.snapshots_dir().to_path_buf()].into_iter().chain(paths.accounts_dirs()) {
        // Each file system once.
        if let Ok(metadata) = fs::metadata(&dir)
            && seen.insert(metadata.dev())
        {
            findings.extend(space(&dir));
        }
    }
    findings
}

fn lock(ledger: &Path) -> Finding {
    match is_ledger_lock_held(ledger) {
        Some(false) => Finding::good("lock", "free", "no validator runs on the ledger: it can be archived"),
        Some(true) => Finding::bad(
            "lock",
            "held",
            "a validator or another slotpress uses the ledger: stop it, gracefully, before archiving",
        ),
        None => Finding::note("lock", "unknown", "not known; archiving takes the lock, or says which process holds it"),
    }
}

fn owner(ledger: &Path) -> Finding {
    let own = rustix::process::geteuid().as_raw();
    match fs::metadata(ledger) {
        Err(error) => Finding::bad("owner", format!("unknown: {error}"), "the ledger directory cannot be read"),
        Ok(metadata) if metadata.uid() == own => Finding::good(
            "owner",
            format!("user {own}, who runs this"),
            "what is restored belongs to the validator's user",
        ),
        Ok(metadata) if own == 0 => Finding::good(
            "owner",
            format!("user {}, and root runs this", metadata.uid()),
            "restore gives its files to the ledger's owner",
        ),
        Ok(metadata) => Finding::bad(
            "owner",
            format!("user {}, but user {own} runs this", metadata.uid()),
            "run slotpress as the ledger's owner, usually the validator's user",
        ),
    }
}

fn space(dir: &Path) -> Option<Finding> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let all = stat.f_blocks.saturating_mul(stat.f_frsize).max(1);
    let found = format!(
        "{} free of {}, for {}",
        slotpress_base::quantity::bytes(free),
        slotpress_base::quantity::bytes(all),
        dir.shown()
    );
    Some(match free as f64 / (all as f64) < 0.05 {
        true => Finding::note("space", found, "nearly full; archive and restore --dry-run tell what they need"),
        false => Finding::good("space", found, "archive and restore --dry-run tell what they need"),
    })
}

/// The largest files of the accounts paths, with their lengths, the largest first.
pub fn largest_files(paths: &LedgerPaths) -> Vec<(PathBuf, u64)> {
    let dirs = paths.accounts_dirs().into_iter().flat_map(|dir| [dir.join("run"), dir]);
    let entries = dirs.filter_map(|dir| fs::read_dir(dir).ok()).flat_map(|dir| dir.flatten().take(LOOKED_AT_MAX));
    let mut files: Vec<(PathBuf, u64)> = entries
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            metadata.is_file().then(|| (entry.path(), metadata.len()))
        })
        .collect();
    files.sort_by(|(_, one), (_, other)| other.cmp(one));
    files.truncate(FILES_MAX);
    files
}
