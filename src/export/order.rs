//! Checks that changes are relative to the state that was last exported to their table. Otherwise, the
//! table would lack accounts that changed in between.

use serde_json::Value;
use slotpress_base::{Error, Progress, Result, text};
use slotpress_stores::Store;

use super::output::{MANIFEST_BYTES_MAX, manifest_name, manifest_slot};

/// Fields that must be the same in all manifests of a table.
const FIXED_FIELDS: [&str; 3] = ["filter", "data", "format"];

const SHOWN_CHARS_MAX: usize = 200;

fn show_field(field: &Value) -> String {
    text::json(field).chars().take(SHOWN_CHARS_MAX).collect()
}

/// Describes the first of these fields in which a published manifest differs from ours.
fn describe_difference(published: &Value, ours: &Value, keys: &[&str]) -> Option<String> {
    let key = keys.iter().find(|key| ours[**key] != published[**key])?;
    let [published, ours] = [published, ours].map(|manifest| show_field(&manifest[*key]));
    Some(format!("its `{key}` is {published}, not {ours}"))
}

/// Refuses changes that are not relative to the newest state of a table, and a whole state that would
/// come between changes and the state to which they are relative. `table` is the table's directory.
pub fn check_order(ours: &Value, table: &Store, progress: &dyn Progress) -> Result<()> {
    let slot = ours["slot"].as_u64().unwrap_or_default();
    let location = table.location_of("");
    let objects = table.list(progress)?.into_iter();
    let slots = objects.filter_map(|object| manifest_slot(&object.name));
    let others: Vec<u64> = slots.filter(|other| *other != slot).collect();
    let read_manifest = |slot: u64| -> Result<Value> {
        let file = table.get_small_file(&manifest_name(slot), MANIFEST_BYTES_MAX, progress)?;
        Ok(file.and_then(|file| serde_json::from_slice(&file.bytes).ok()).unwrap_or_default())
    };
    match ours["since_slot"].as_u64() {
        None => {
            let Some(next) = others.into_iter().filter(|other| *other > slot).min() else { return Ok(()) };
            let Some(since) = read_manifest(next)?["since_slot"].as_u64() else { return Ok(()) };
            let message =
                format!("{location} has changes of slot {next} since {since}: the older slot {slot} cannot be added");
            Err(Error::usage(message).with_hint("choose another output"))
        }
        Some(since) => match others.into_iter().max() {
            Some(last) => check_changes(ours, since, last, &read_manifest(last)?, &location),
            None => {
                let message =
                    format!("{location}: changes since slot {since} must follow an exported state, and none exists");
                Err(Error::usage(message).with_hint("export the state of that slot first, or choose another output"))
            }
        },
    }
}

/// Refuses changes since a slot, unless they are relative to the newest state of the table.
fn check_changes(ours: &Value, since: u64, last: u64, newest: &Value, location: &str) -> Result<()> {
    let refuse = |newest: String| {
        let message = format!("{location}: changes since slot {since} do not follow the newest state there: {newest}");
        Err(Error::usage(message).with_hint(
            "as the older state, use the last one that was exported there, with the same filters, format and tables; or choose another output",
        ))
    };
    if last != since || newest["hash"] != ours["since_hash"] {
        return refuse(format!("slot {last}, hash {}", show_field(&newest["hash"])));
    }
    if let Some(why) = describe_difference(newest, ours, &["schema_version"]) {
        let message = format!("{location} has files of a different version of slotpress: {why}");
        return Err(Error::usage(message).with_hint("choose another output"));
    }
    match describe_difference(newest, ours, &FIXED_FIELDS) {
        Some(why) => refuse(format!("slot {last}, but {why}")),
        None => Ok(()),
    }
}
