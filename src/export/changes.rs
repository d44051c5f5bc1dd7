//! Finds changes between two states. The rows of both are sorted together, so the old and the new row
//! of an account are next to each other.
//!
//! Rows are compared, not accounts, because some columns change although their account does not. The
//! slot of the storage is ignored: clients move unchanged accounts to other storages.

use slotpress_base::{Progress, Result};

use super::cells::{decode_cells, push_cell, split_cells};
use super::sort::corrupt_rows_error;
use super::table::{ADDED, Cell, Table};

struct Comparison {
    key_column_count: usize,
    /// Number of columns between the key and the slot of the storage.
    columns_to_slot: usize,
}

struct StateRow<'a> {
    key: &'a [u8],
    is_new: bool,
    rest: &'a [u8],
}

/// Compares the sorted rows of two states. The cell after a row's key is true for the new state.
/// Returns rows that were added, changed or closed, with the kind of change in place of this cell. For a
/// closed account, returns the old row.
pub(super) fn find_changes<'a>(
    table: Table,
    rows: impl Iterator<Item = Result<Vec<u8>>> + Send + 'a,
    progress: &'a dyn Progress,
) -> impl Iterator<Item = Result<Vec<u8>>> + Send + 'a {
    let key_column_count = table.key_column_count();
    let slot_column = table.columns().iter().position(|column| column.name == "storage_slot");
    let columns_to_slot = slot_column.map_or(0, |number| number - key_column_count);
    let comparison = Comparison { key_column_count, columns_to_slot };
    let mut rows = rows.peekable();
    let mut next = move || -> Result<Option<Vec<u8>>> {
        while let Some(row) = rows.next().transpose()? {
            progress.check()?;
            let following = rows.peek().and_then(|next| next.as_ref().ok());
            let (change, is_pair) = comparison.find_change(&row, following.map(Vec::as_slice))?;
            if is_pair {
                rows.next();
            }
            if change.is_some() {
                return Ok(change);
            }
        }
        Ok(None)
    };
    std::iter::from_fn(move || next().transpose())
}

impl Comparison {
    fn split_row<'a>(&self, row: &'a [u8]) -> Result<StateRow<'a>> {
        let (key, rest) = split_cells(row, self.key_column_count).ok_or_else(corrupt_rows_error)?;
        let Some(Ok(Cell::Boolean(is_new))) = decode_cells(rest).next() else { return Err(corrupt_rows_error()) };
        let (_, rest) = split_cells(rest, 1).ok_or_else(corrupt_rows_error)?;
        Ok(StateRow { key, is_new, rest })
    }

    /// Returns the compared bytes of a row after its key: those before and after the storage's slot.
    fn compared_bytes<'a>(&self, rest: &'a [u8]) -> Option<[&'a [u8]; 2]> {
        let (before, rest) = split_cells(rest, self.columns_to_slot)?;
        Some([before, split_cells(rest, 1)?.1])
    }

    /// Returns the row for a change, if there is one, and whether the following row is the new row of the
    /// same account.
    fn find_change(&self, row: &[u8], following: Option<&[u8]>) -> Result<(Option<Vec<u8>>, bool)> {
        let StateRow { key, is_new, rest } = self.split_row(row)?;
        let with_change = |change, rest: &[u8]| {
            let mut row = key.to_vec();
            push_cell(&mut row, change, None);
            row.extend_from_slice(rest);
            Some(row)
        };
        if is_new {
            return Ok((with_change(ADDED, rest), false));
        }
        let following = following.map(|following| self.split_row(following)).transpose()?;
        let Some(new) = following.filter(|following| following.is_new && following.key == key) else {
            return Ok((with_change(Cell::Text("closed"), rest), false));
        };
        let is_same = rest == new.rest
            || self.compared_bytes(rest).ok_or_else(corrupt_rows_error)?
                == self.compared_bytes(new.rest).ok_or_else(corrupt_rows_error)?;
        if is_same {
            return Ok((None, true));
        }
        Ok((with_change(Cell::Text("changed"), new.rest), true))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use slotpress_base::NoProgress;

    use super::*;
    use crate::export::cells::AddressTexts;

    type State = BTreeMap<u8, (u64, Option<i64>)>;

    fn state_row(account: u8, (lamports, slot): (u64, Option<i64>), state: Cell<'_>) -> Vec<u8> {
        let key = [account; 32];
        let slot = slot.map_or(Cell::Null, Cell::Integer);
        let front = [Cell::Address(&key), state, Cell::Address(&key)];
        let cells = front.into_iter().chain([Cell::Null; 5]).chain([Cell::Amount(lamports), slot]);
        let mut row = Vec::new();
        cells.for_each(|cell| push_cell(&mut row, cell, Some(&mut AddressTexts::new())));
        row
    }

    fn any_state() -> impl Strategy<Value = State> {
        proptest::collection::btree_map(0u8..20, (0u64..2, proptest::option::of(0i64..2)), 0..20)
    }

    proptest! {
        #[test]
        fn changes_are_the_differences_between_two_maps(old in any_state(), new in any_state()) {
            let rows_of = |state: &State, is_new| -> Vec<Vec<u8>> {
                state.iter().map(|(account, fields)| state_row(*account, *fields, Cell::Boolean(is_new))).collect()
            };
            let mut rows = [rows_of(&old, false), rows_of(&new, true)].concat();
            rows.sort();
            let changes = find_changes(Table::Programs, rows.into_iter().map(Ok), &NoProgress);
            let found: Result<Vec<Vec<u8>>> = changes.collect();
            let expected = (0..20).filter_map(|account| match (old.get(&account), new.get(&account)) {
                (None, Some(new)) => Some(state_row(account, *new, ADDED)),
                (Some(old), None) => Some(state_row(account, *old, Cell::Text("closed"))),
                (Some(old), Some(new)) if old.0 != new.0 => Some(state_row(account, *new, Cell::Text("changed"))),
                _ => None,
            });
            let mut expected: Vec<Vec<u8>> = expected.collect();
            expected.sort_by_key(|row| row[..45].to_vec());
            prop_assert_eq!(found.expect("valid"), expected);
        }

        #[test]
        fn truncated_rows_are_an_error(length in 0usize..94) {
            let whole = state_row(1, (1, Some(1)), Cell::Boolean(false));
            let next = state_row(1, (2, Some(1)), Cell::Boolean(true));
            let rows = [Ok(whole), Ok(next[..length.min(next.len() - 1)].to_vec())];
            prop_assert!(find_changes(Table::Programs, rows.into_iter(), &NoProgress).any(|row| row.is_err()));
        }
    }
}
