//! Appends cells to columns in memory and to lines of CSV.

use arrow_array::ArrayRef;
use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, BooleanBuilder, Decimal128Builder, Int64Builder, ListBuilder, StringBuilder,
    StructBuilder,
};
use slotpress_base::{Error, Result};

use super::filter::to_hex;
use super::schema::{AMOUNT, ColumnKind, credits_element, credits_fields};
use super::table::Cell;

pub(super) enum ColumnValues {
    Text(StringBuilder),
    Integer(Int64Builder),
    Amount(Decimal128Builder),
    Boolean(BooleanBuilder),
    Bytes(BinaryBuilder),
    Credits(Box<ListBuilder<StructBuilder>>),
}

impl ColumnValues {
    pub fn new(kind: ColumnKind) -> Self {
        match kind {
            ColumnKind::Address | ColumnKind::Text => Self::Text(StringBuilder::new()),
            ColumnKind::Integer => Self::Integer(Int64Builder::new()),
            ColumnKind::Amount => Self::Amount(Decimal128Builder::new().with_data_type(AMOUNT)),
            ColumnKind::Boolean => Self::Boolean(BooleanBuilder::new()),
            ColumnKind::Bytes => Self::Bytes(BinaryBuilder::new()),
            ColumnKind::Credits => {
                let items = StructBuilder::from_fields(credits_fields(), 0);
                Self::Credits(Box::new(ListBuilder::new(items).with_field(credits_element())))
            }
        }
    }

    pub fn push(&mut self, cell: Cell<'_>) -> Result<()> {
        match (self, cell) {
            (Self::Text(column), Cell::Null) => column.append_null(),
            (Self::Text(column), Cell::Text(text)) => column.append_value(text),
            (Self::Text(column), Cell::Address(key)) => with_base58(key, |key| column.append_value(key)),
            (Self::Integer(column), Cell::Null) => column.append_null(),
            (Self::Integer(column), Cell::Integer(number)) => column.append_value(number),
            (Self::Amount(column), Cell::Null) => column.append_null(),
            (Self::Amount(column), Cell::Amount(amount)) => column.append_value(amount.into()),
            (Self::Boolean(column), Cell::Boolean(is_true)) => column.append_value(is_true),
            (Self::Bytes(column), Cell::Null) => column.append_null(),
            (Self::Bytes(column), Cell::Bytes(bytes)) => column.append_value(bytes),
            (Self::Credits(column), Cell::Credits(items)) => {
                for item in parse_credits(items) {
                    push_credits(column.values(), &item)?;
                }
                column.append(true);
            }
            (_, cell) => return Err(Error::failed(format!("a column cannot hold {cell:?}"))),
        }
        Ok(())
    }

    pub fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Text(column) => ArrayBuilder::finish(column),
            Self::Integer(column) => ArrayBuilder::finish(column),
            Self::Amount(column) => ArrayBuilder::finish(column),
            Self::Boolean(column) => ArrayBuilder::finish(column),
            Self::Bytes(column) => ArrayBuilder::finish(column),
            Self::Credits(column) => ArrayBuilder::finish(&mut **column),
        }
    }
}

struct EpochCredits {
    epoch: u64,
    credits: u64,
    previous_credits: u64,
}

fn parse_credits(items: &[u8]) -> impl Iterator<Item = EpochCredits> {
    items.as_chunks::<24>().0.iter().map(|item| {
        let number = |field: usize| u64::from_le_bytes(item.as_chunks().0[field]);
        EpochCredits { epoch: number(0), credits: number(1), previous_credits: number(2) }
    })
}

fn push_credits(column: &mut StructBuilder, item: &EpochCredits) -> Result<()> {
    let type_error = || Error::failed("the fields of credits have different types");
    let epoch = i64::try_from(item.epoch).ok();
    let epochs = column.field_builder::<Int64Builder>(0);
    epochs.ok_or_else(type_error)?.append_option(epoch);
    for (field, number) in [(1, item.credits), (2, item.previous_credits)] {
        let amounts = column.field_builder::<Decimal128Builder>(field);
        amounts.ok_or_else(type_error)?.append_value(number.into());
    }
    column.append(true);
    Ok(())
}

fn with_base58<T>(key: &[u8; 32], use_text: impl FnOnce(&str) -> T) -> T {
    let mut text = [0; five8::BASE58_ENCODED_32_MAX_LEN];
    let length = usize::from(five8::encode_32(key, &mut text));
    use_text(std::str::from_utf8(&text[..length]).unwrap_or_default())
}

pub(super) fn push_csv(text: &mut Vec<u8>, cell: Cell<'_>) {
    match cell {
        Cell::Null => {}
        Cell::Address(key) => with_base58(key, |key| text.extend_from_slice(key.as_bytes())),
        Cell::Integer(number) => text.extend_from_slice(number.to_string().as_bytes()),
        Cell::Amount(amount) => text.extend_from_slice(amount.to_string().as_bytes()),
        Cell::Boolean(is_true) => text.extend_from_slice(if is_true { b"true" } else { b"false" }),
        Cell::Text(word) => push_csv_text(text, word),
        Cell::Bytes(bytes) => text.extend_from_slice(to_hex(bytes).as_bytes()),
        Cell::Credits(items) => {
            for (number, item) in parse_credits(items).enumerate() {
                let space = if number > 0 { " " } else { "" };
                text.extend_from_slice(
                    format!("{space}{}:{}:{}", item.epoch, item.credits, item.previous_credits).as_bytes(),
                );
            }
        }
    }
}

/// Adds text, in quotes if necessary. Replaces control characters, because a row must be one line, and may
/// be shown on a terminal.
fn push_csv_text(text: &mut Vec<u8>, word: &str) {
    if !word.contains(|character: char| character.is_control() || matches!(character, ',' | '"')) {
        return text.extend_from_slice(word.as_bytes());
    }
    let word = word.replace(char::is_control, "\u{fffd}").replace('"', "\"\"");
    text.extend_from_slice(format!("\"{word}\"").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_in_csv_is_quoted_and_has_no_control_characters() {
        for (word, expected) in [
            ("plain", "plain"),
            ("", ""),
            ("a,b", "\"a,b\""),
            ("a\"b", "\"a\"\"b\""),
            ("\"\"", "\"\"\"\"\"\""),
            ("a\n\r\nb\u{1b}[31m\u{9b}\0", "\"a\u{fffd}\u{fffd}\u{fffd}b\u{fffd}[31m\u{fffd}\u{fffd}\""),
            ("ö,\n", "\"ö,\u{fffd}\""),
        ] {
            let mut text = Vec::new();
            push_csv_text(&mut text, word);
            assert_eq!(String::from_utf8(text).expect("text"), expected, "{word:?}");
        }
    }
}
