//! JSON lines: one object per row. Field names are stable (docs/json.md).

use serde::ser::{Error, SerializeMap};
use serde::{Serialize, Serializer};

use super::{Table, Value};

/// A row as an object.
#[derive(Debug)]
pub struct Line<'a> {
    kind: &'a str,
    fields: Fields<'a>,
}

/// Names and values in their order; a name with a dot is a field of an object.
#[derive(Debug)]
struct Fields<'a>(Vec<(&'a str, &'a Value)>);

/// The lines of a table; none if its rows are for people only.
pub fn lines(table: &Table) -> Vec<Line<'_>> {
    (0..table.rows.len()).filter_map(|row| line(table, row)).collect()
}

/// The line of a row.
pub fn line(table: &Table, row: usize) -> Option<Line<'_>> {
    let is_there = |(_, value): &(&str, &Value)| **value != Value::Absent;
    let fields = table.named_cells(row).map(|(name, _, value)| (name, value)).filter(is_there).collect();
    (!table.kind.is_empty()).then_some(Line { kind: table.kind, fields: Fields(fields) })
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", self.kind)?;
        self.fields.add_to(&mut map)?;
        map.end()
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.add_to(&mut map)?;
        map.end()
    }
}

impl Fields<'_> {
    fn add_to<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let mut rest = self.0.as_slice();
        while let Some(((name, value), others)) = rest.split_first() {
            let Some((object, _)) = name.split_once('.') else {
                map.serialize_entry(name, value)?;
                rest = others;
                continue;
            };
            // The fields of one object stand together.
            let inner = |name: &'_ str| name.strip_prefix(object).is_some_and(|rest| rest.starts_with('.'));
            let count = rest.iter().take_while(|(name, _)| inner(name)).count();
            let (own, others) = rest.split_at(count);
            let own = own.iter().map(|(name, value)| (&name[object.len() + 1..], *value)).collect();
            map.serialize_entry(object, &Fields(own))?;
            rest = others;
        }
        Ok(())
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent | Self::Unknown => serializer.serialize_none(),
            Self::Text(text) | Self::Class(text, _) => serializer.serialize_str(text),
            Self::Whole(number) => match (u64::try_from(*number), i64::try_from(*number)) {
                (Ok(number), _) => serializer.serialize_u64(number),
                (_, Ok(number)) => serializer.serialize_i64(number),
                _ => Err(S::Error::custom("a number out of range")),
            },
            Self::Number(number) => serializer.serialize_f64(*number),
            Self::Nested(value, _) => value.serialize(serializer),
        }
    }
}
