//! Gives each storage of an archive of Firedancer a slot of its own, since Firedancer wrote all of
//! them under one slot until August 2026. Pure.

use slotpress_base::{Result, to_usize};
use slotpress_format::ledger::rebuilt_bank::cannot;
use slotpress_format::{Entry, EntryKind, STORAGE_BYTES_MAX};

/// A storage of Firedancer as a part of a new storage: its only part if there are enough slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoragePart {
    /// The new storage.
    pub entry: Entry,
    /// True for the first part of the new storage.
    pub begins: bool,
    /// True for the last part of the new storage.
    pub ends: bool,
}

/// Limit on the length of merged storages in bytes; doubled while there are too few slots.
const STORAGE_BYTES_AIM: u64 = 64 * 1024 * 1024;

/// Gives each storage a slot of its own, in ascending order, above `base_slot` and up to `slot`. If
/// there are more storages than slots, merges neighbours. For Firedancer, the last record of an
/// account in the stream is the newest version. Ascending slots make it the newest for Agave too.
pub fn place_storages(entries: &[Entry], base_slot: u64, slot: u64) -> Result<Vec<Option<StoragePart>>> {
    let slots = slot.saturating_sub(base_slot);
    let mut aim_bytes = STORAGE_BYTES_AIM;
    let alone = groups(entries, 0)?;
    let (groups, count) = match alone {
        (_, count) if count <= slots => alone,
        _ => loop {
            let found = groups(entries, aim_bytes)?;
            match found.1 <= slots {
                true => break found,
                false if aim_bytes >= STORAGE_BYTES_MAX => {
                    return Err(cannot(&format!("slots for all storages: there are only {slots}")));
                }
                false => aim_bytes = aim_bytes.saturating_mul(2).min(STORAGE_BYTES_MAX),
            }
        },
    };
    // First part, last part and length of each new storage.
    let mut spans = vec![(usize::MAX, 0usize, 0u64); to_usize(count)];
    for (at, (entry, group)) in entries.iter().zip(&groups).enumerate() {
        if let Some((first, last, bytes)) = group.and_then(|group| spans.get_mut(to_usize(group))) {
            (*first, *last, *bytes) = (at.min(*first), at, bytes.saturating_add(entry.content_bytes));
        }
    }
    let first_slot = slot.saturating_sub(count).saturating_add(1);
    let part = |(at, group): (usize, &Option<u64>)| {
        let group = (*group)?;
        let (first, last, content_bytes) = *spans.get(to_usize(group))?;
        let id = u32::try_from(group).ok()?.checked_add(1)?;
        let kind = EntryKind::Storage { slot: first_slot.saturating_add(group), id };
        Some(StoragePart { entry: Entry { kind, content_bytes }, begins: at == first, ends: at == last })
    };
    Ok(groups.iter().enumerate().map(part).collect())
}

/// Merges neighbouring storages into new ones of at most `aim_bytes`; a longer storage stays alone.
/// Returns the number of the new storage for each entry, and the count of new storages.
fn groups(entries: &[Entry], aim_bytes: u64) -> Result<(Vec<Option<u64>>, u64)> {
    let (mut count, mut group_bytes, mut is_open) = (0u64, 0u64, false);
    let mut groups = Vec::with_capacity(entries.len());
    for entry in entries {
        if !matches!(entry.kind, EntryKind::Storage { .. }) {
            is_open = false;
            groups.push(None);
            continue;
        }
        if entry.content_bytes == 0 {
            groups.push(None);
            continue;
        }
        // Records start at multiples of 8 bytes, so no part can follow a storage whose length is not
        // a multiple of 8.
        let both_bytes = group_bytes.saturating_add(entry.content_bytes);
        let fits = is_open && group_bytes.is_multiple_of(8) && both_bytes <= aim_bytes;
        if !fits {
            (count, group_bytes, is_open) = (count.saturating_add(1), 0, true);
        }
        group_bytes = group_bytes.saturating_add(entry.content_bytes);
        if u32::try_from(count).is_err() {
            return Err(cannot("an id for every storage: there are too many storages"));
        }
        groups.push(count.checked_sub(1));
    }
    Ok((groups, count))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn storages(lengths: &[u64]) -> Vec<Entry> {
        let storage =
            |(id, length): (u32, &u64)| Entry { kind: EntryKind::Storage { slot: 100, id }, content_bytes: *length };
        (0..).zip(lengths).map(storage).collect()
    }

    /// Slot, length and number of parts of each new storage.
    fn placed(entries: &[Entry], base_slot: u64, slot: u64) -> Vec<(u64, u64, usize)> {
        let parts = place_storages(entries, base_slot, slot).expect("placed");
        let mut placed: Vec<(u64, u64, usize)> = Vec::new();
        let mut is_open = false;
        for StoragePart { entry, begins, ends } in parts.into_iter().flatten() {
            let EntryKind::Storage { slot, id } = entry.kind else { panic!("a storage") };
            assert_eq!(begins, !is_open);
            is_open = !ends;
            if begins {
                assert_eq!(id as usize, placed.len() + 1);
                placed.push((slot, entry.content_bytes, 0));
            }
            placed.last_mut().expect("begun").2 += 1;
        }
        assert!(!is_open);
        placed
    }

    #[test]
    fn each_storage_has_a_slot() {
        assert_eq!(placed(&storages(&[8, 0, 16]), 0, 100), [(99, 8, 1), (100, 16, 1)]);
        assert_eq!(placed(&storages(&[8, 16, 24]), 97, 100), [(98, 8, 1), (99, 16, 1), (100, 24, 1)]);
        // If there are more storages than slots, neighbours are merged.
        assert_eq!(placed(&storages(&[8, 16, 24]), 99, 100), [(100, 48, 3)]);
        const M: u64 = 1 << 20;
        assert_eq!(placed(&storages(&[32 * M; 5]), 97, 100), [(98, 64 * M, 2), (99, 64 * M, 2), (100, 32 * M, 1)]);
        assert_eq!(placed(&storages(&[32 * M; 5]), 98, 100), [(99, 128 * M, 4), (100, 32 * M, 1)]);
        // Refuses to merge after a length that is no multiple of 8: the next record would not be
        // found.
        assert!(place_storages(&storages(&[9, 16]), 99, 100).is_err());
        assert!(place_storages(&storages(&[STORAGE_BYTES_MAX, 8]), 99, 100).is_err(), "longer than a storage may be");
        assert!(place_storages(&storages(&[8]), 100, 100).is_err(), "no slot above the base slot");
        let mut apart = storages(&[8, 8]);
        apart.insert(1, Entry { kind: EntryKind::StatusCache, content_bytes: 1 });
        assert!(place_storages(&apart, 99, 100).is_err(), "another entry between the storages");
    }

    proptest! {
        /// All storages are placed in their order and in free slots, whatever their lengths.
        #[test]
        fn nothing_is_lost(lengths in proptest::collection::vec(0u64..1000, 1..60), slots in 1u64..80) {
            let entries = storages(&lengths.iter().map(|length| length * 8).collect::<Vec<_>>());
            let placed = placed(&entries, 100 - slots, 100);
            prop_assert!(placed.len() as u64 <= slots);
            prop_assert_eq!(placed.iter().map(|it| it.1).sum::<u64>(), entries.iter().map(|it| it.content_bytes).sum::<u64>());
            prop_assert_eq!(placed.iter().map(|it| it.2).sum::<usize>(), lengths.iter().filter(|it| **it > 0).count());
            prop_assert!(placed.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0));
            prop_assert!(placed.last().is_none_or(|it| it.0 == 100));
        }
    }
}
