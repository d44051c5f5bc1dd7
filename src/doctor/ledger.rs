//! Checks the ledger's directories: lock, bank snapshot, owner, archives, free space.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use slotpress::LedgerPaths;
use slotpress::catalog::{find_partials, scan};
use slotpress_base::{EscapePath, clock, quantity};
use slotpress_format::{GRACEFUL_STOP, LockState, bank_snapshot_slots, is_complete, ledger_lock_state};
use slotpress_read::{RESTORE_JOURNAL_HINT, find_restore_journal};

use super::{Finding, Verdict};

/// Maximum number of files to look at in each accounts directory, so that a ledger with millions of
/// storages takes no longer than others.
const SEARCHED_FILES_MAX: usize = 20_000;

const MEASURED_FILES_MAX: usize = 64;

pub fn examine(paths: &LedgerPaths) -> Vec<Finding> {
    let lock = examine_lock(&paths.ledger);
    let bank = examine_bank_snapshot(paths.snapshots_dir(), lock.verdict == Verdict::Good);
    let mut findings = vec![lock, bank, examine_owner(&paths.ledger)];
    if let Some(journal) = find_restore_journal(paths.snapshots_dir()) {
        let found = format!("{}: a restore was killed before its end", journal.escaped());
        findings.push(Finding::bad("restore", found, RESTORE_JOURNAL_HINT));
    }
    findings.extend(examine_archives(paths.snapshots_dir()));
    let mut seen_devices = BTreeSet::new();
    for dir in [paths.ledger.clone(), paths.snapshots_dir().to_path_buf()].into_iter().chain(paths.accounts_dirs()) {
        // Directories on the same file system share their free space, so each file system is
        // reported once.
        if let Ok(metadata) = fs::metadata(&dir)
            && seen_devices.insert(metadata.dev())
        {
            findings.extend(examine_space(&dir));
        }
    }
    findings
}

fn examine_lock(ledger: &Path) -> Finding {
    const UNREADABLE: &str = "/proc/locks cannot be read: archive and restore will try to take the lock";
    match ledger_lock_state(ledger) {
        LockState::Free => Finding::good("lock", "free", "no validator runs on the ledger"),
        LockState::Held(holder) => Finding::bad("lock", format!("held by {holder}"), format!("{GRACEFUL_STOP}.")),
        LockState::Unknown => Finding::note("lock", "unknown", UNREADABLE),
    }
}

fn examine_bank_snapshot(snapshots_dir: &Path, is_lock_free: bool) -> Finding {
    const SUBJECT: &str = "bank";
    let slots = match bank_snapshot_slots(snapshots_dir) {
        Ok(slots) => slots,
        Err(error) => {
            let meaning = "the bank snapshots cannot be read";
            return Finding::bad(SUBJECT, error.to_string(), meaning);
        }
    };
    let Some(newest) = slots.first() else {
        let meaning = "nothing to archive; a node can be restored here";
        return Finding::note(SUBJECT, "no bank snapshot", meaning);
    };
    let Some(complete) = slots.iter().find(|slot| is_complete(snapshots_dir, **slot).unwrap_or(false)) else {
        let found = format!("slot {newest} is not complete: it has no fastboot_version");
        let meaning = "the ledger cannot be archived: start the validator, wait until it has caught up";
        return Finding::bad(SUBJECT, found, format!("{meaning}, then {GRACEFUL_STOP}"));
    };
    if newest == complete {
        let found = format!("slot {complete}, complete");
        let meaning = if is_lock_free { "it can be archived" } else { "it can be archived once the lock is free" };
        return Finding::good(SUBJECT, found, meaning);
    }
    let found = format!("slot {complete} is complete; the newest, {newest}, is not");
    Finding::note(SUBJECT, found, format!("`archive` uses slot {complete}"))
}

/// Reports damaged archives, which a starting validator may choose by their names, and unfinished
/// downloads, which take up space.
fn examine_archives(dir: &Path) -> Vec<Finding> {
    let now = clock::now();
    let Ok(catalog) = scan(&[dir]) else { return Vec::new() };
    let mut findings = Vec::new();
    for unusable in catalog.unusable() {
        let found = format!("{}: {}", unusable.archive.path().escaped(), unusable.fault);
        let meaning = "a validator may choose it by its name; `slotpress prune --unusable` removes it";
        findings.push(Finding::note("archive", found, meaning));
    }
    for partial in find_partials(dir).unwrap_or_default() {
        if partial.is_in_use {
            continue;
        }
        let size = quantity::bytes(partial.size_bytes);
        let age = quantity::age(partial.age(now));
        let found = format!("{partial}: unfinished download, {size} on disk, {age} old");
        let meaning = "`fetch` and `bootstrap` continue it; `slotpress prune --unusable` removes it";
        findings.push(Finding::note("download", found, meaning));
    }
    findings
}

fn examine_owner(ledger: &Path) -> Finding {
    let user = rustix::process::geteuid().as_raw();
    let owner = match fs::metadata(ledger) {
        Ok(metadata) => metadata.uid(),
        Err(error) => {
            let found = format!("unknown: {error}");
            return Finding::bad("owner", found, "the ledger directory cannot be read");
        }
    };
    if owner == user {
        let found = format!("user {user}, who runs this");
        return Finding::good("owner", found, "restored files will belong to this user");
    }
    if user == 0 {
        let found = format!("user {owner}, and root runs this");
        let meaning = "restored files will belong to the ledger's owner";
        return Finding::good("owner", found, meaning);
    }
    let meaning = "run slotpress as the ledger's owner, usually the validator's user";
    let found = format!("user {owner}, but user {user} runs this");
    Finding::bad("owner", found, meaning)
}

fn examine_space(dir: &Path) -> Option<Finding> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let total = stat.f_blocks.saturating_mul(stat.f_frsize).max(1);
    let [free_text, total_text] = [free, total].map(quantity::bytes);
    let found = format!("{free_text} free of {total_text}, for {}", dir.escaped());
    let meaning = "`archive --dry-run` and `bootstrap --dry-run` show how much they need";
    if (free as f64) < 0.05 * total as f64 {
        let meaning = format!("nearly full; {meaning}");
        return Some(Finding::note("space", found, meaning));
    }
    Some(Finding::good("space", found, meaning))
}

/// Returns the paths and lengths in bytes of the largest files in the accounts paths, largest first. Looks at
/// only some of the files in a large directory.
pub fn find_largest_files(paths: &LedgerPaths) -> Vec<(PathBuf, u64)> {
    let mut files = Vec::new();
    let dirs = paths.accounts_dirs().into_iter();
    for dir in dirs.flat_map(|dir| [dir.join("run"), dir]) {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        for entry in entries.take(SEARCHED_FILES_MAX) {
            if let Ok(metadata) = entry.metadata()
                && metadata.is_file()
            {
                files.push((entry.path(), metadata.len()));
            }
        }
    }
    files.sort_by_key(|(_, length)| Reverse(*length));
    files.truncate(MEASURED_FILES_MAX);
    files
}
