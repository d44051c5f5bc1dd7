//! Adds tables to an export of the same state that is there already.

use std::path::Path;

use serde_json::Value;
use slotpress_base::{Error, Result, ShowPath, text};

/// Limit on the size of a manifest, which is read in one piece.
pub const MANIFEST_BYTES_MAX: u64 = 8 << 20;

/// Fields that both exports must have in common.
const SAME: [&str; 10] =
    ["schema_version", "slot", "hash", "state", "archives", "filter", "data", "format", "since_slot", "since_hash"];

/// Limit on what a message shows of a field.
const SHOWN_CHARS_MAX: usize = 200;

/// Slot of a manifest.
pub fn slot_of(manifest: &Value) -> u64 {
    manifest["slot"].as_u64().unwrap_or_default()
}

/// Names of a manifest's tables.
pub fn tables_of(manifest: &Value) -> impl Iterator<Item = &str> {
    manifest["tables"].as_array().into_iter().flatten().filter_map(|table| table["table"].as_str())
}

/// Says how a manifest that is there differs from ours in one of these fields. Before the
/// state was read, not all of ours are known.
pub fn difference(there: &Value, ours: &Value, keys: &[&str]) -> Option<String> {
    let differs = |key: &&&str| ours.get(**key).is_some_and(|wanted| *wanted != there[**key]);
    keys.iter().find(differs).map(|key| format!("its `{key}` is {}, not {}", shown(&there[*key]), shown(&ours[*key])))
}

pub fn shown(field: &Value) -> String {
    text::json(field).chars().take(SHOWN_CHARS_MAX).collect()
}

/// Adds the tables of `ours` to the manifest at `path`, if one is there.
///
/// # Errors
/// It is of another state or has other filters, it has one of the tables, or it is none.
pub fn added(there: Option<&[u8]>, ours: &Value, path: &Path) -> Result<Value> {
    let Some(there) = there else { return Ok(ours.clone()) };
    let mut there = serde_json::from_slice::<Value>(there).unwrap_or_default();
    let refused = |why: String| {
        let hint = format!("{why}. An export replaces nothing: remove what is there, or choose another output");
        Err(Error::exists(path).with_hint(hint))
    };
    if let Some(why) = difference(&there, ours, &SAME) {
        return refused(why);
    }
    if let Some(table) = tables_of(ours).find(|table| tables_of(&there).any(|has| has == *table)) {
        return refused(format!("it has the table {table}"));
    }
    for key in ["unparsed_accounts", "cut_off_extensions"] {
        let [before, more] = [&there, ours].map(|manifest| manifest[key].as_u64().unwrap_or_default());
        there[key] = before.saturating_add(more).into();
    }
    match (there["tables"].as_array_mut(), ours["tables"].as_array()) {
        (Some(tables), Some(more)) => tables.extend_from_slice(more),
        _ => return Err(Error::failed(format!("{} lists no tables", path.shown()))),
    }
    Ok(there)
}
