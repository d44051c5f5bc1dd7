use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn split_rows(group: &[u8]) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    let mut rest = group;
    while let Some((row, after)) = split_counted(rest) {
        rows.push(row.to_vec());
        rest = after;
    }
    assert!(rest.is_empty());
    rows
}

fn push(run: &mut SortRun, row: &[u8]) {
    run.push(|to| to.extend_from_slice(row));
}

/// Merges runs, of which those with `true` are in the file. Returns the groups, and the bytes in the file.
fn merged(runs: &[(bool, Vec<&[u8]>)], memory_bytes: u64, limits: (usize, usize)) -> (Vec<Vec<Vec<u8>>>, u64) {
    let dir = tempfile::tempdir().expect("a directory");
    let sorter = Sorter::new(dir.path());
    for (is_spilled, rows) in runs {
        let mut run = SortRun::new(if *is_spilled { 0 } else { 64 << 20 }, usize::MAX, 0);
        rows.iter().for_each(|row| push(&mut run, row));
        sorter.add(&mut run).expect("added");
        assert_eq!(run.row_count(), 0);
    }
    let rows = sorter.rows(memory_bytes, 2, &slotpress_base::NoProgress).expect("merged");
    let groups = group_rows(rows, limits.0, limits.1).map(|group| split_rows(&group.expect("read"))).collect();
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0, "no name is left");
    (groups, sorter.spill.bytes())
}

/// Keys that have much in common, and what follows them, which may be long.
fn table() -> impl Strategy<Value = BTreeMap<Vec<u8>, Vec<u8>>> {
    let part = prop_oneof![
        4 => (0u8..3, 0u8..3).prop_map(|(one, other)| [vec![one; 40], vec![other; 5]].concat()),
        1 => proptest::collection::vec(0u8..2, 45),
        1 => proptest::collection::vec(any::<u8>(), 45),
    ];
    let key = (part.clone(), part).prop_map(|(one, other)| [one, other].concat());
    let length = prop_oneof![8 => 0usize..20, 1 => 3900usize..4100, 1 => 100_000usize..100_003];
    proptest::collection::btree_map(key, (length, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]), 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However rows are divided among runs, in memory and in the file, the groups are those of the sorted rows.
    #[test]
    fn groups_depend_only_on_rows(
        table in table(),
        picks in proptest::collection::vec(0usize..12, 200),
        spilled in proptest::collection::vec(any::<bool>(), 12),
        memory_bytes in prop_oneof![Just(0u64), Just(1 << 30)],
        rows_max in 1usize..50,
        bytes_max in 1usize..300_000,
    ) {
        let rows: Vec<Vec<u8>> = table.iter().map(|(key, tail)| [&key[..], tail].concat()).collect();
        let mut expected: Vec<Vec<Vec<u8>>> = Vec::new();
        let mut bytes = usize::MAX;
        for row in &rows {
            if bytes >= bytes_max || expected.last().is_none_or(|group| group.len() >= rows_max) {
                expected.push(Vec::new());
                bytes = 0;
            }
            expected.last_mut().expect("one").push(row.clone());
            bytes += 4 + row.len();
        }
        let mut runs: Vec<(bool, Vec<&[u8]>)> = spilled.into_iter().map(|is_spilled| (is_spilled, Vec::new())).collect();
        for (row, pick) in rows.iter().zip(&picks).rev() {
            runs[*pick].1.push(row);
        }
        let has_spilled = runs.iter().any(|(is_spilled, rows)| *is_spilled && !rows.is_empty());
        let (groups, spilled_bytes) = merged(&runs, memory_bytes, (rows_max, bytes_max));
        prop_assert_eq!(groups, expected);
        prop_assert_eq!(spilled_bytes > 0, has_spilled);
    }
}

/// Runs in the file have less than their rows: most bytes of a key are those of the key before.
#[test]
fn little_memory_takes_more_passes() {
    let rows: Vec<Vec<u8>> = (0..4000u32).map(|number| [&[7; 80][..], &number.to_be_bytes()].concat()).collect();
    let run_of = |first: usize| (true, rows.iter().skip(first).step_by(8).map(Vec::as_slice).collect::<Vec<_>>());
    let runs: Vec<_> = (0..8).map(run_of).collect();
    let (one_pass, bytes) = merged(&runs, 1 << 30, (1000, 1 << 20));
    assert!(bytes < 4000 * 10, "{bytes}");
    // Two runs at a time, which makes seven longer ones of eight.
    let (more_passes, more_bytes) = merged(&runs, 0, (1000, 1 << 20));
    assert!(one_pass == more_passes, "{more_bytes}");
    assert!(more_bytes > 2 * bytes, "{more_bytes}");
}

#[test]
fn a_run_is_full_by_its_memory() {
    let mut run = SortRun::new(8 << 20, usize::MAX, 100);
    let reserved = |run: &SortRun| (run.bytes.capacity() + run.rows.capacity() * 16) as u64;
    let before = reserved(&run);
    assert!(before <= SortRun::reserved_bytes(8 << 20, 100));
    while !run.is_full() {
        push(&mut run, &[0; 84]);
    }
    let taken = run.bytes.len() + run.rows.len() * 16;
    assert!((8 << 20..(8 << 20) + 1000).contains(&taken), "{taken}");
    assert!(reserved(&run) == before, "{taken}");
}

#[test]
fn an_altered_file_is_found() {
    let mut head = vec![7; 3];
    let sound = [&[2, 1, 1, 0, 9][..], &5u64.to_le_bytes(), &6u32.to_le_bytes()].concat();
    assert_eq!(next_row(&sound, &mut head), Some(((5, 6), 0)));
    assert_eq!(head, [7, 7, 9]);
    for length in 0..sound.len() {
        assert_eq!(next_row(&sound[..length], &mut head), None, "{length}");
    }
}
