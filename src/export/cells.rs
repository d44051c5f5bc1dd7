//! Encodes rows as bytes. In key columns, the order of the bytes is the order of the values.

use slotpress_base::Result;

use super::sort::{corrupt_rows_error, split_counted};
use super::table::Cell;
use five8::BASE58_ENCODED_32_MAX_LEN;

// The first byte of each cell. Null is lowest, so rows without a voter come first.
const NULL: u8 = 0;
const BASE58: u8 = 1;
const ADDRESS: u8 = 2;
const FALSE: u8 = 3;
const TRUE: u8 = 4;
const TEXT: u8 = 5;
const BYTES: u8 = 6;
const CREDITS: u8 = 7;
// The number of bytes that follow, at most 8, is added to these two.
const INTEGER: u8 = 16;
const AMOUNT: u8 = 32;

/// A cache of base58 texts for a column in which addresses recur, such as owners. For each value of the
/// last byte, it keeps the latest address.
pub(super) struct AddressTexts(Vec<([u8; 32], [u8; BASE58_ENCODED_32_MAX_LEN])>);

impl AddressTexts {
    pub fn new() -> Self {
        Self(vec![([0; 32], padded_base58(&[0; 32])); 1 << u8::BITS])
    }

    fn get(&mut self, key: &[u8; 32]) -> [u8; BASE58_ENCODED_32_MAX_LEN] {
        let (last, text) = &mut self.0[usize::from(key[31])];
        if last != key {
            (*last, *text) = (*key, padded_base58(key));
        }
        *text
    }
}

fn padded_base58(key: &[u8; 32]) -> [u8; BASE58_ENCODED_32_MAX_LEN] {
    let mut text = [0; BASE58_ENCODED_32_MAX_LEN];
    let length = five8::encode_32(key, &mut text);
    text[usize::from(length)..].fill(0);
    text
}

/// Adds a cell to a row. With `texts`, an address is encoded as text, and padded to the maximum length, so
/// that the bytes sort as the column's text does.
pub(super) fn push_cell(row: &mut Vec<u8>, cell: Cell<'_>, texts: Option<&mut AddressTexts>) {
    let number = match cell {
        Cell::Integer(integer) => integer as u64,
        Cell::Amount(amount) => amount,
        _ => 0,
    };
    let length = 8 - number.leading_zeros() as usize / 8;
    let number = number.to_le_bytes();
    let text;
    let (kind, bytes) = match (cell, texts) {
        (Cell::Null, _) => (NULL, &[][..]),
        (Cell::Boolean(is_true), _) => (if is_true { TRUE } else { FALSE }, &[][..]),
        (Cell::Address(key), Some(texts)) => {
            text = texts.get(key);
            (BASE58, &text[..])
        }
        (Cell::Address(key), None) => (ADDRESS, &key[..]),
        (Cell::Integer(_), _) => (INTEGER + length as u8, &number[..length]),
        (Cell::Amount(_), _) => (AMOUNT + length as u8, &number[..length]),
        (Cell::Text(text), _) => (TEXT, text.as_bytes()),
        (Cell::Bytes(bytes), _) => (BYTES, bytes),
        (Cell::Credits(items), _) => (CREDITS, items),
    };
    row.push(kind);
    if [TEXT, BYTES, CREDITS].contains(&kind) {
        row.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    }
    row.extend_from_slice(bytes);
}

pub(super) fn decode_cells(row: &[u8]) -> impl Iterator<Item = Result<Cell<'_>>> {
    let mut rest = row;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some((cell, after)) = split_cell(rest) else {
            rest = &[];
            return Some(Err(corrupt_rows_error()));
        };
        rest = after;
        Some(Ok(cell))
    })
}

/// Splits a row after its first `count` cells.
pub(super) fn split_cells(row: &[u8], count: usize) -> Option<(&[u8], &[u8])> {
    let mut rest = row;
    for _ in 0..count {
        rest = split_cell(rest)?.1;
    }
    row.split_at_checked(row.len() - rest.len())
}

fn split_cell(row: &[u8]) -> Option<(Cell<'_>, &[u8])> {
    let (kind, rest) = row.split_first()?;
    let (bytes, rest) = match *kind {
        BASE58 => rest.split_at_checked(BASE58_ENCODED_32_MAX_LEN)?,
        ADDRESS => rest.split_at_checked(32)?,
        TEXT | BYTES | CREDITS => split_counted(rest)?,
        kind if kind < INTEGER => (&[][..], rest),
        kind => rest.split_at_checked((kind % INTEGER).into())?,
    };
    let number = || bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let cell = match *kind {
        NULL => Cell::Null,
        FALSE | TRUE => Cell::Boolean(*kind == TRUE),
        BASE58 => Cell::Text(text(bytes)?.trim_end_matches('\0')),
        ADDRESS => Cell::Address(bytes.first_chunk()?),
        TEXT => Cell::Text(text(bytes)?),
        BYTES => Cell::Bytes(bytes),
        CREDITS => Cell::Credits(bytes),
        kind if kind < AMOUNT => Cell::Integer(number() as i64),
        _ => Cell::Amount(number()),
    };
    Some((cell, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded_row(cells: &[Cell<'_>], mut texts: Option<&mut AddressTexts>) -> Vec<u8> {
        let mut row = Vec::new();
        cells.iter().for_each(|cell| push_cell(&mut row, *cell, texts.as_deref_mut()));
        row
    }

    proptest! {
        #[test]
        fn cells_round_trip(
            key: [u8; 32],
            number: u64,
            shift in 0u32..64,
            text in ".{0,40}",
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            is_true: bool,
        ) {
            let number = number >> shift;
            let cells = [
                Cell::Address(&key), Cell::Null, Cell::Integer(number as i64), Cell::Amount(number), Cell::Text(&text),
                Cell::Boolean(is_true), Cell::Bytes(&bytes), Cell::Credits(&bytes), Cell::Integer(-1), Cell::Amount(u64::MAX),
            ];
            let row = encoded_row(&cells, None);
            let decoded: Vec<Cell<'_>> = decode_cells(&row).collect::<Result<_>>().expect("valid");
            prop_assert_eq!(format!("{decoded:?}"), format!("{cells:?}"));
            for length in 0..row.len() {
                // A row that is truncated has fewer cells, or is an error.
                let decoded: Result<Vec<Cell<'_>>> = decode_cells(&row[..length]).collect();
                prop_assert!(decoded.is_err() || decoded.is_ok_and(|decoded| decoded.len() < cells.len()));
            }
        }

        #[test]
        fn hostile_rows_never_panic(row in proptest::collection::vec(any::<u8>(), 0..200)) {
            decode_cells(&row).for_each(drop);
        }

        #[test]
        fn keys_sort_as_their_texts(keys in proptest::collection::vec((0usize..33, any::<[u8; 32]>(), 0u8..2), 2)) {
            // With the same last byte, one text replaces the other.
            let keys: Vec<[u8; 32]> = keys.into_iter().map(|(zeros, mut key, last)| {
                key[..zeros.min(32)].fill(0);
                key[31] = last;
                key
            }).collect();
            let texts: Vec<String> = keys.iter().map(|key| bs58::encode(key).into_string()).collect();
            let mut cache = AddressTexts::new();
            let rows: Vec<_> =
                keys.iter().cycle().take(4).map(|key| encoded_row(&[Cell::Address(key)], Some(&mut cache))).collect();
            for (row, text) in rows.iter().zip(texts.iter().cycle()) {
                let cell = decode_cells(row).next().expect("a cell").expect("valid");
                prop_assert!(matches!(cell, Cell::Text(decoded) if decoded == text), "{cell:?}: {text}");
            }
            prop_assert_eq!(rows[0].cmp(&rows[1]), texts[0].cmp(&texts[1]));
            prop_assert!(encoded_row(&[Cell::Null], None) < rows[0]);
        }
    }
}
