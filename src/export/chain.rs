//! Keeps changes in the order in which they were made: those of a state are since the state that its
//! place had last. Else an account that was closed and made again in between would be lost.

use serde_json::Value;
use slotpress_base::{Error, Result};

use super::added::{difference, shown, slot_of, tables_of};
use super::place::{manifest_name, manifest_slot};

/// Fields that both manifests must have in common.
const SAME: [&str; 3] = ["filter", "data", "format"];

/// Refuses changes that do not follow what is there last, and a whole state that would come between
/// two of which the later one has changes only. `names` are the names in `place`, and `read` reads a
/// file there.
pub fn check(
    ours: &Value,
    names: impl Iterator<Item = String>,
    read: impl Fn(&str) -> Result<Option<Vec<u8>>>,
    place: &str,
) -> Result<()> {
    let slot = slot_of(ours);
    let others: Vec<u64> = names.filter_map(|name| manifest_slot(&name)).filter(|other| *other != slot).collect();
    let manifest = |slot: u64| -> Result<Value> {
        let text = read(&manifest_name(slot))?.unwrap_or_default();
        Ok(serde_json::from_slice(&text).unwrap_or_default())
    };
    let Some(since) = ours["since_slot"].as_u64() else {
        let Some(next) = others.into_iter().filter(|other| *other > slot).min() else { return Ok(()) };
        let there = manifest(next)?;
        let Some(since) = there["since_slot"].as_u64() else { return Ok(()) };
        let message =
            format!("{place} has changes of slot {next} since {since}: none may come between, as {slot} would");
        return Err(Error::usage(message).with_hint("choose another output"));
    };
    let refused = |there: String| {
        let message = format!("{place}: changes since slot {since} do not follow what is there last: {there}");
        Err(Error::usage(message).with_hint(
            "as the older state, give the last one that was exported there, with the same filters, format and tables; or choose another output",
        ))
    };
    let Some(last) = others.into_iter().max() else { return refused("nothing".to_string()) };
    let there = manifest(last)?;
    if last != since || there["hash"] != ours["since_hash"] {
        return refused(format!("slot {last}, hash {}", shown(&there["hash"])));
    }
    if let Some(why) = difference(&there, ours, &["schema_version"]) {
        let message = format!("{place} has tables of another version of slotpress: {why}");
        return Err(Error::usage(message).with_hint("choose another output"));
    }
    if let Some(why) = difference(&there, ours, &SAME) {
        return refused(format!("slot {last}, but {why}"));
    }
    match tables_of(ours).find(|table| !tables_of(&there).any(|has| has == *table)) {
        Some(table) => refused(format!("slot {last}, without the table {table}")),
        None => Ok(()),
    }
}
