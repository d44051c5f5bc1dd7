//! Tells incremental archives made by `rebase` from those made by validators.

/// Key of a setting in the index of an archive made by `rebase`. The value is the snapshot hash of
/// the full archive on which it builds.
pub const REBASED_ON: &str = "rebased-on=";

/// Finds the value of [`REBASED_ON`] in the settings of an index.
pub fn rebased_on(settings: &str) -> Option<&str> {
    settings.split(' ').find_map(|setting| setting.strip_prefix(REBASED_ON))
}

/// True if `rebase` made the archive of `slot` with these storages (slot and id). `rebase` gives
/// the storage of a slot `s` the id `slot - s + 1`. In archives of validators, ids rise with slots.
pub fn is_rebased(slot: u64, storages: impl IntoIterator<Item = (u64, u32)>) -> bool {
    let mut storages = storages.into_iter().peekable();
    let is_in_row =
        |(at, id): (u64, u32)| at.checked_sub(1).and_then(|below| below.checked_add(id.into())) == Some(slot);
    storages.peek().is_some() && storages.all(is_in_row)
}

#[cfg(test)]
mod tests {
    use super::is_rebased;

    #[test]
    fn storages_of_a_rebased_archive() {
        assert!(is_rebased(40, [(39, 2), (40, 1)]));
        assert!(is_rebased(40, [(40, 1)]));
        assert!(!is_rebased(40, []));
        assert!(!is_rebased(40, [(39, 38), (40, 39)]));
        assert!(is_rebased(u64::MAX, [(u64::MAX, 1)]));
        assert!(!is_rebased(u64::MAX, [(u64::MAX, 2)]));
    }
}
