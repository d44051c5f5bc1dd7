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
    run.push(|bytes| bytes.extend_from_slice(row));
}

struct TestRun<'a> {
    is_spilled: bool,
    rows: Vec<&'a [u8]>,
}

struct MergedRuns {
    groups: Vec<Vec<Vec<u8>>>,
    spilled_bytes: u64,
}

fn merge_runs(runs: &[TestRun<'_>], memory_bytes: u64, rows_max: usize, bytes_max: usize) -> MergedRuns {
    let dir = tempfile::tempdir().expect("a directory");
    let sorter = Sorter::new(dir.path());
    for TestRun { is_spilled, rows } in runs {
        let mut run = SortRun::new(if *is_spilled { 0 } else { 64 << 20 }, usize::MAX, 0);
        rows.iter().for_each(|row| push(&mut run, row));
        sorter.add(&mut run).expect("added");
        assert_eq!(run.row_count(), 0);
    }
    let rows = sorter.take_sorted_rows(memory_bytes, 2, &slotpress_base::NoProgress).expect("merged");
    let groups = group_rows(rows, rows_max, bytes_max).map(|group| split_rows(&group.expect("read"))).collect();
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0, "the temporary file has no name");
    MergedRuns { groups, spilled_bytes: sorter.spill.bytes() }
}

/// Generates a map from keys, which have many bytes in common, to the remaining bytes of each row, which may
/// be many.
fn any_table() -> impl Strategy<Value = BTreeMap<Vec<u8>, Vec<u8>>> {
    let part = prop_oneof![
        4 => (0u8..3, 0u8..3).prop_map(|(start, end)| [vec![start; 40], vec![end; 5]].concat()),
        1 => proptest::collection::vec(0u8..2, 45),
        1 => proptest::collection::vec(any::<u8>(), 45),
    ];
    let key = (part.clone(), part).prop_map(|(first, second)| [first, second].concat());
    let length = prop_oneof![8 => 0usize..20, 1 => 3900usize..4100, 1 => 100_000usize..100_003];
    proptest::collection::btree_map(key, (length, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]), 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The groups are those of the sorted rows, no matter how rows are divided among runs in memory and in the file.
    #[test]
    fn groups_depend_only_on_rows(
        table in any_table(),
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
        let mut runs: Vec<TestRun<'_>> =
            spilled.into_iter().map(|is_spilled| TestRun { is_spilled, rows: Vec::new() }).collect();
        for (row, pick) in rows.iter().zip(&picks).rev() {
            runs[*pick].rows.push(row);
        }
        let has_spilled = runs.iter().any(|run| run.is_spilled && !run.rows.is_empty());
        let merged = merge_runs(&runs, memory_bytes, rows_max, bytes_max);
        prop_assert_eq!(merged.groups, expected);
        prop_assert_eq!(merged.spilled_bytes > 0, has_spilled);
    }
}

/// Runs in the file are shorter than their rows, because a key is written without the bytes that it has in
/// common with the previous key.
#[test]
fn merging_in_little_memory_takes_more_passes() {
    let rows: Vec<Vec<u8>> = (0..4000u32).map(|number| [&[7; 80][..], &number.to_be_bytes()].concat()).collect();
    let every_eighth = |first: usize| rows.iter().skip(first).step_by(8).map(Vec::as_slice).collect();
    let runs: Vec<_> = (0..8).map(|first| TestRun { is_spilled: true, rows: every_eighth(first) }).collect();
    let one_pass = merge_runs(&runs, 1 << 30, 1000, 1 << 20);
    assert!(one_pass.spilled_bytes < 4000 * 10, "{}", one_pass.spilled_bytes);
    // Merging two runs at a time writes six longer runs. The last merge is not written.
    let more_passes = merge_runs(&runs, 0, 1000, 1 << 20);
    assert!(one_pass.groups == more_passes.groups);
    assert!(more_passes.spilled_bytes > 2 * one_pass.spilled_bytes, "{}", more_passes.spilled_bytes);
}

#[test]
fn a_run_is_full_when_it_uses_its_memory() {
    let mut run = SortRun::new(8 << 20, usize::MAX, 100);
    let reserved = |run: &SortRun| (run.bytes.capacity() + run.rows.capacity() * 16) as u64;
    let before = reserved(&run);
    assert!(before <= SortRun::reserved_bytes(8 << 20, 100));
    while !run.is_full() {
        push(&mut run, &[0; 84]);
    }
    let used = run.bytes.len() + run.rows.len() * 16;
    assert!((8 << 20..(8 << 20) + 1000).contains(&used), "{used}");
    assert!(reserved(&run) == before, "{used}");
}

#[test]
fn a_truncated_row_is_not_read() {
    let mut head = vec![7; 3];
    let intact = [&[2, 1, 1, 0, 9][..], &5u64.to_le_bytes(), &6u32.to_le_bytes()].concat();
    assert_eq!(next_row(&intact, &mut head), Some((SpillRange { offset: 5, length: 6 }, 0)));
    assert_eq!(head, [7, 7, 9]);
    for length in 0..intact.len() {
        assert_eq!(next_row(&intact[..length], &mut head), None, "{length}");
    }
}
