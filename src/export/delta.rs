//! Makes the tables of an export part of Delta tables, so that engines read the whole history of a
//! table as one, with time travel.
//!
//! Each table has a log of its own beside its files, `TABLE/_delta_log`, of one small file for each
//! version (reader 1, writer 2 of the protocol). A version is only made where it is not there yet, so
//! of two programs that make it at once, one makes the next. It comes after the manifest, and is made
//! of that alone: a later run makes what a killed one did not.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use slotpress_base::{Error, ErrorKind, Progress, Result, clock, random_name, text};

use super::added::{shown, slot_of, tables_of};
use super::place::{To, manifest_name, manifest_slot};
use super::table::Table;

/// Directory of a table's log.
const LOG: &str = "_delta_log";
/// Column that is in the paths of files only.
const PARTITION: &str = "snapshot_slot";
/// Limit on versions of others that come between: each takes them a moment.
const ATTEMPTS_MAX: u32 = 100;
/// Versions of readers and writers that a table takes.
const PROTOCOL: [u64; 2] = [1, 2];

fn version_name(version: u64) -> String {
    format!("{version:020}.json")
}

/// The end of a log.
struct Head {
    /// Number of the next version.
    next: u64,
    /// Newest slot of which the log has the files.
    slot: Option<u64>,
}

impl Head {
    /// Reads a log from its end to the newest version by slotpress.
    ///
    /// # Errors
    /// Another program has changed the table in a way that slotpress does not write; the log is none
    /// of slotpress; the disk or store fails.
    fn of(log: &To, schema: &Value, progress: &dyn Progress) -> Result<Self> {
        let names = log.names(progress)?;
        // Names of versions and checkpoints begin with their number.
        let number = |name: &str| name.get(..20)?.parse::<u64>().ok().filter(|number| *number < 1 << 53);
        let versions: BTreeSet<u64> =
            names.iter().filter_map(|name| number(name).filter(|version| version_name(*version) == *name)).collect();
        let checkpoint: Value = log
            .read("_last_checkpoint", progress)?
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        let checkpoint = checkpoint["version"].as_u64().filter(|number| *number < 1 << 53);
        let of_names = names.iter().filter(|name| name.contains(".checkpoint.")).filter_map(|name| number(name));
        let newest = versions.iter().copied().chain(of_names).chain(checkpoint).max();
        let mut slot = None;
        for version in versions.into_iter().rev() {
            let name = version_name(version);
            let refused = |why: String| {
                Error::usage(format!("{}: {why}", log.shown(&name)))
                    .with_hint("slotpress adds to tables as it made them; export a whole state into another output")
            };
            let text = log.read(&name, progress)?.unwrap_or_default();
            for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let action: Value =
                    serde_json::from_slice(line).map_err(|_| refused("is no version of a table".into()))?;
                if let Some(why) = foreign(&action, schema) {
                    return Err(refused(why));
                }
                slot = slot.or(action["commitInfo"]["slotpress"]["slot"].as_u64());
            }
            if slot.is_some() {
                break;
            }
        }
        match newest.is_some() && slot.is_none() {
            true => Err(Error::usage(format!("{} has no version by slotpress", log.shown("")))
                .with_hint("export a whole state into another output")),
            false => Ok(Self { next: newest.map_or(0, |newest| newest + 1), slot }),
        }
    }
}

/// Says what of an action is not as slotpress writes it.
fn foreign(action: &Value, schema: &Value) -> Option<String> {
    if let Some(protocol) = action.get("protocol") {
        let versions = ["minReaderVersion", "minWriterVersion"].map(|key| protocol[key].as_u64().unwrap_or(u64::MAX));
        let has_features = ["readerFeatures", "writerFeatures"].iter().any(|key| !protocol[key].is_null());
        if has_features || versions.iter().zip(PROTOCOL).any(|(found, known)| *found > known) {
            return Some(format!("the table has another protocol: {}", shown(protocol)));
        }
    }
    let metadata = action.get("metaData")?;
    let found = metadata["schemaString"].as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let is_ours = found.as_ref() == Some(schema) && metadata["partitionColumns"] == json!([PARTITION]);
    (!is_ours).then(|| "the table has other columns".to_string())
}

/// Columns of a table in the form of the log.
fn schema(table: Table, has_data: bool) -> Value {
    let field = |name: &str, kind: Value, is_nullable: bool| json!({ "name": name, "type": kind, "nullable": is_nullable, "metadata": {} });
    const AMOUNT: &str = "decimal(20,0)";
    let mut fields: Vec<Value> = Vec::new();
    for (name, kind, is_nullable) in table.columns(has_data, true) {
        let kind = match kind {
            "integer" => json!("long"),
            "amount" => json!(AMOUNT),
            "boolean" => json!("boolean"),
            "bytes" => json!("binary"),
            "credits" => {
                let mut fields = vec![field("epoch", json!("long"), true)];
                fields.extend(["credits", "previous_credits"].map(|name| field(name, json!(AMOUNT), false)));
                let element = json!({ "type": "struct", "fields": fields });
                json!({ "type": "array", "elementType": element, "containsNull": false })
            }
            _ => json!("string"),
        };
        fields.push(field(name, kind, is_nullable));
    }
    fields.push(field(PARTITION, json!("long"), true));
    json!({ "type": "struct", "fields": fields })
}

/// Refuses Delta tables whose history has begun, if a whole state would begin it, or with a log that
/// is not slotpress's.
pub(super) fn check(to: &To, ours: &Value, progress: &dyn Progress) -> Result<()> {
    if ours["delta"] != true {
        return Ok(());
    }
    for name in tables_of(ours) {
        let (Some(table), Some(of_table)) = (Table::named(name), to.below(name, false)?) else { continue };
        let Some(log) = of_table.below(LOG, false)? else { continue };
        let head = Head::of(&log, &schema(table, ours["data"] != "none"), progress)?;
        if ours["since_slot"].is_null() && head.next > 0 {
            let message = format!("{}: the history of the table has begun", log.shown(""));
            return Err(Error::usage(message).with_hint("add changes to it, or choose another output"));
        }
    }
    Ok(())
}

/// Adds the files of a manifest to the tables' logs. Returns false if they were there already.
pub(super) fn commit(to: &To, manifest: &Value, progress: &dyn Progress) -> Result<bool> {
    let mut is_made = false;
    for fields in manifest["tables"].as_array().into_iter().flatten() {
        is_made |= commit_table(to, manifest, fields, progress)?;
    }
    Ok(is_made)
}

/// Makes the commit of an export that was killed before it. Only the last one may lack it.
pub(super) fn finish_killed(to: &To, progress: &dyn Progress) -> Result<()> {
    let Some(slot) = to.names(progress)?.iter().filter_map(|name| manifest_slot(name)).max() else { return Ok(()) };
    let text = to.read(&manifest_name(slot), progress)?.unwrap_or_default();
    let manifest: Value = serde_json::from_slice(&text).unwrap_or_default();
    if manifest["delta"] == true && commit(to, &manifest, progress)? {
        let place = to.shown("");
        progress.warn(&format!("{place}: added slot {slot} to the Delta tables, of an export that ended before that"));
    }
    Ok(())
}

fn commit_table(to: &To, manifest: &Value, fields: &Value, progress: &dyn Progress) -> Result<bool> {
    let no_table = || Error::failed(format!("{}: its manifest has a table that is unknown", to.shown("")));
    let table = fields["table"].as_str().and_then(Table::named).ok_or_else(no_table)?;
    let of_table = to.below(table.name(), true)?.ok_or_else(no_table)?;
    let log = of_table.below(LOG, true)?.ok_or_else(no_table)?;
    let schema = schema(table, manifest["data"] != "none");
    let (slot, run) = (slot_of(manifest), random_name("").to_string_lossy().into_owned());
    for _ in 0..ATTEMPTS_MAX {
        let head = Head::of(&log, &schema, progress)?;
        if head.slot >= Some(slot) {
            return Ok(false);
        }
        if head.next == 0 && !manifest["since_slot"].is_null() {
            return Err(Error::failed(format!("{}: the history of the table is gone", log.shown("")))
                .with_hint("export a whole state into another output"));
        }
        let mut actions = vec![info(manifest, &run)];
        if head.next == 0 {
            actions.extend(first_actions(table, &schema));
        }
        actions.extend(fields["files"].as_array().into_iter().flatten().map(|file| add(table, slot, file)));
        let lines: String = actions.iter().map(|action| text::json(action) + "\n").collect();
        if log.put_new(&version_name(head.next), lines.as_bytes(), progress)? {
            return Ok(true);
        }
        progress.check()?;
    }
    let message = format!("{}: other programs made {ATTEMPTS_MAX} versions meanwhile", log.shown(""));
    Err(Error::new(ErrorKind::InUse, message).with_hint("try again when they have ended"))
}

fn now_ms() -> u64 {
    u64::try_from(clock::since_1970(clock::now()).as_millis()).unwrap_or_default()
}

/// Says who made a version. The random name tells it from one that another run makes.
fn info(manifest: &Value, run: &str) -> Value {
    let of_slotpress = json!({ "slot": manifest["slot"], "hash": manifest["hash"], "run": run });
    let parameters = json!({ "mode": "Append", "partitionBy": format!("[\"{PARTITION}\"]") });
    json!({ "commitInfo": {
        "timestamp": now_ms(), "operation": "WRITE", "operationParameters": parameters, "isBlindAppend": true,
        "engineInfo": format!("slotpress/{}", env!("CARGO_PKG_VERSION")), "slotpress": of_slotpress,
    }})
}

/// Protocol and columns. Old versions are kept, for time travel, and so that slotpress finds its own.
fn first_actions(table: Table, schema: &Value) -> [Value; 2] {
    let id = [(); 2].map(|()| random_name("").to_string_lossy().into_owned()).concat();
    let part = |from: usize, to: usize| id.get(from..to).unwrap_or_default();
    let id = [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-");
    let [reader, writer] = PROTOCOL;
    let configuration = json!({ "delta.appendOnly": "true", "delta.enableExpiredLogCleanup": "false" });
    [
        json!({ "protocol": { "minReaderVersion": reader, "minWriterVersion": writer } }),
        json!({ "metaData": {
            "id": id, "name": table.name(), "format": { "provider": "parquet", "options": {} },
            "schemaString": text::json(schema), "partitionColumns": [PARTITION], "configuration": configuration,
            "createdTime": now_ms(),
        }}),
    ]
}

/// A file, with the range of the column by which rows are sorted first.
fn add(table: Table, slot: u64, file: &Value) -> Value {
    let path = file["path"].as_str().unwrap_or_default();
    let path = path.strip_prefix(table.name()).and_then(|path| path.strip_prefix('/')).unwrap_or(path);
    let first = table.columns(false, false).next().map_or("", |(name, ..)| name);
    let bound = |key: &str| match &file[key][0] {
        // Null comes first, so the least value is not known.
        Value::String(value) => json!({ first: value }),
        _ => json!({}),
    };
    let stats =
        json!({ "numRecords": file["rows"], "minValues": bound("least_key"), "maxValues": bound("greatest_key") });
    json!({ "add": {
        "path": path, "partitionValues": { PARTITION: slot.to_string() }, "size": file["bytes"],
        "modificationTime": now_ms(), "dataChange": true, "stats": text::json(&stats),
    }})
}
