//! The size classes, in units of 1000 bytes, as transactions and blocks have been measured by others.

use super::SizeClassRow;

/// The least bytes of each class, and its name.
pub const CLASSES: [(u64, &str); 16] = [
    (0, "0-250 B"),
    (250, "250-500 B"),
    (500, "500 B-1 KB"),
    (1_000, "1-10 KB"),
    (10_000, "10-100 KB"),
    (100_000, "100-200 KB"),
    (200_000, "200-300 KB"),
    (300_000, "300-400 KB"),
    (400_000, "400-500 KB"),
    (500_000, "500-600 KB"),
    (600_000, "600-700 KB"),
    (700_000, "700-800 KB"),
    (800_000, "800-900 KB"),
    (900_000, "900 KB-1 MB"),
    (1_000_000, "1-2 MB"),
    (2_000_000, "larger"),
];

/// The number of the class that a unit of this many bytes is in.
pub fn class_of(bytes: u64) -> usize {
    CLASSES.partition_point(|(from, _)| *from <= bytes).saturating_sub(1)
}

/// A row for each class, without units.
pub fn empty_rows() -> Vec<SizeClassRow> {
    let below = CLASSES.iter().skip(1).map(|(from, _)| Some(*from)).chain([None]);
    let row = |((from, name), below_bytes): (&(u64, &str), Option<u64>)| SizeClassRow {
        class: name.to_string(),
        from_bytes: *from,
        below_bytes,
        ..SizeClassRow::default()
    };
    CLASSES.iter().zip(below).map(row).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_size_has_its_class(bytes in 0u64..3_000_000) {
            let row = &empty_rows()[class_of(bytes)];
            prop_assert!(row.from_bytes <= bytes && row.below_bytes.is_none_or(|below| bytes < below));
        }
    }

    #[test]
    fn the_ends() {
        assert_eq!((class_of(0), class_of(249), class_of(250), class_of(u64::MAX)), (0, 0, 1, CLASSES.len() - 1));
    }
}
