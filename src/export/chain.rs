//! Keeps changes in the order in which they were made: changes must follow the state that their table
//! had last. Otherwise, an account that was closed and made again in between would be lost.

use serde_json::Value;
use slotpress_base::{Error, Progress, Result, text};
use slotpress_stores::Store;

use super::output::{MANIFEST_BYTES_MAX, manifest_name, manifest_slot};

/// Fields that must be the same in all manifests of a table.
const SAME_FIELDS: [&str; 3] = ["filter", "data", "format"];

/// Limit on what a message shows of a field.
const SHOWN_CHARS_MAX: usize = 200;

fn show_field(field: &Value) -> String {
    text::json(field).chars().take(SHOWN_CHARS_MAX).collect()
}

/// Describes how a published manifest differs from ours in one of these fields.
fn compare(published: &Value, ours: &Value, keys: &[&str]) -> Option<String> {
    let key = keys.iter().find(|key| ours[**key] != published[**key])?;
    Some(format!("its `{key}` is {}, not {}", show_field(&published[*key]), show_field(&ours[*key])))
}

/// Refuses changes that do not follow the newest state of a table, and a whole state that would come
/// between changes and the state that they follow. `table` holds the manifests.
pub fn check(ours: &Value, table: &Store, progress: &dyn Progress) -> Result<()> {
    let slot = ours["slot"].as_u64().unwrap_or_default();
    let place = table.location_of("");
    let slots = table.list(progress)?.into_iter().filter_map(|object| manifest_slot(&object.name));
    let others: Vec<u64> = slots.filter(|other| *other != slot).collect();
    let manifest = |slot: u64| -> Result<Value> {
        let small = table.get_small_file(&manifest_name(slot), MANIFEST_BYTES_MAX, progress)?;
        Ok(small.and_then(|small| serde_json::from_slice(&small.bytes).ok()).unwrap_or_default())
    };
    let Some(since) = ours["since_slot"].as_u64() else {
        let Some(next) = others.into_iter().filter(|other| *other > slot).min() else { return Ok(()) };
        let Some(since) = manifest(next)?["since_slot"].as_u64() else { return Ok(()) };
        let message =
            format!("{place} has changes of slot {next} since {since}: the older slot {slot} cannot be added");
        return Err(Error::usage(message).with_hint("choose another output"));
    };
    let refused = |newest: String| {
        let message = format!("{place}: changes since slot {since} do not follow the newest state there: {newest}");
        Err(Error::usage(message).with_hint(
            "as the older state, give the last one that was exported there, with the same filters, format and tables; or choose another output",
        ))
    };
    let Some(last) = others.into_iter().max() else {
        let message =
            format!("{place}: changes since slot {since} must follow a state that is there, and there is none");
        return Err(Error::usage(message).with_hint("export the state of that slot first, or choose another output"));
    };
    let newest = manifest(last)?;
    if last != since || newest["hash"] != ours["since_hash"] {
        return refused(format!("slot {last}, hash {}", show_field(&newest["hash"])));
    }
    if let Some(why) = compare(&newest, ours, &["schema_version"]) {
        let message = format!("{place} has files of another version of slotpress: {why}");
        return Err(Error::usage(message).with_hint("choose another output"));
    }
    match compare(&newest, ours, &SAME_FIELDS) {
        Some(why) => refused(format!("slot {last}, but {why}")),
        None => Ok(()),
    }
}
