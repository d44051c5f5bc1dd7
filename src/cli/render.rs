//! Formats a report for the screen: fills templates with the fields of the report's JSON. The end of a field's
//! name is its unit.

use std::time::Duration;

use serde_json::{Value, json};

use super::values::{count_of, show_age, show_bytes, show_count, show_duration, show_rate, show_ratio};

/// Formats the rows of a report. A row is a label, a colon and a template. In the template, `{name}` is a field,
/// `{a/b}` a ratio or a rate, and `{a%b}` a percentage. A part in brackets is left out if one of its fields is
/// null, 0, false or empty. A row is left out if one of its other fields is null, or if its text is empty. A
/// count has no unit if the row's label already names it.
pub fn fill_rows(report: &Value, rows: &[&str]) -> Vec<String> {
    let rows: Vec<(&str, &str)> = rows.iter().filter_map(|row| row.split_once(": ")).collect();
    let width = rows.iter().map(|(label, _)| label.len()).max().unwrap_or_default().max(LABEL_COLUMNS);
    let mut lines = Vec::new();
    for (label, template) in rows {
        if let Some(text) = fill_row(template, report, label) {
            lines.push(format!("  {label:width$}  {text}"));
        }
    }
    lines
}

/// Minimum width of labels, which aligns the parts of a report.
pub const LABEL_COLUMNS: usize = 9;

/// Returns the text of a template without a label; `None` if it is left out.
pub fn fill(template: &str, report: &Value) -> Option<String> {
    fill_row(template, report, "")
}

fn fill_row(template: &str, report: &Value, label: &str) -> Option<String> {
    let mut text = String::new();
    for (number, part) in template.split(['[', ']']).enumerate() {
        let is_in_brackets = number % 2 == 1;
        match fill_fields(part, report, label, is_in_brackets) {
            Some(part) => text += &part,
            None if is_in_brackets => {}
            None => return None,
        }
    }
    (!text.is_empty()).then_some(text)
}

fn fill_fields(template: &str, report: &Value, label: &str, is_in_brackets: bool) -> Option<String> {
    let mut text = String::new();
    for (number, part) in template.split(['{', '}']).enumerate() {
        if number % 2 == 0 {
            text += part;
        } else if let Some((name, base)) = part.split_once(['/', '%']) {
            text += &show_quotient(name, base, part.contains('%'), report)?;
        } else {
            let value = report.get(part)?;
            if is_in_brackets && [json!(0), json!(false), json!("")].contains(value) {
                return None;
            }
            text += &match value.as_u64() {
                Some(count) if part == label && part.ends_with('s') => show_count(count),
                _ => show_value(part, value)?,
            };
        }
    }
    Some(text)
}

/// Formats a value in the unit at the end of its name. The unit of a count is what it counts.
fn show_value(name: &str, value: &Value) -> Option<String> {
    let is_age = name.contains("age_") || name.ends_with("_behind");
    let name = name.trim_end_matches("_max").trim_end_matches("_behind");
    let unit = name.rsplit('_').next().unwrap_or(name);
    match value {
        Value::Bool(value) => Some(if *value { "yes" } else { "no" }.to_string()),
        // Some lamports are strings in JSON, because they may exceed the numbers that its readers can represent.
        Value::String(text) => Some(match (unit, text.parse()) {
            ("lamports", Ok(lamports)) => count_of(lamports, "lamport"),
            _ => text.clone(),
        }),
        Value::Array(items) => join(items.iter().filter_map(|item| show_value(name, item)), ", "),
        // For example a server, and the bytes that came from it.
        Value::Object(fields) => {
            let (names, amounts): (Vec<_>, Vec<_>) = fields.iter().partition(|(_, value)| value.is_string());
            let parts = names.into_iter().chain(amounts).filter_map(|(name, value)| show_value(name, value));
            join(parts, ": ")
        }
        _ => {
            let number = value.as_f64()?;
            let whole = value.as_u64().unwrap_or_default();
            Some(match unit {
                _ if name == "offset_bytes" => value.to_string(),
                "bytes" => show_bytes(whole),
                "seconds" if is_age => show_age(Duration::from_secs_f64(number.max(0.0))),
                "seconds" => show_duration(Duration::from_secs_f64(number)),
                "slot" | "epoch" | "height" | "level" | "status" => value.to_string(),
                _ => unit.strip_suffix('s').map_or(show_count(whole), |singular| count_of(whole, singular)),
            })
        }
    }
}

fn join(items: impl Iterator<Item = String>, separator: &str) -> Option<String> {
    let text = items.collect::<Vec<_>>().join(separator);
    (!text.is_empty()).then_some(text)
}

fn show_quotient(name: &str, base_name: &str, is_percent: bool, report: &Value) -> Option<String> {
    let number = report.get(name)?.as_f64()?;
    let base = report.get(base_name)?.as_f64()?;
    let percent = 100.0 * number / base.max(1e-9);
    Some(match (is_percent, base_name.ends_with("_bytes")) {
        (true, true) => format!("{percent:.1}%"),
        (true, false) => format!("{percent:.0}%"),
        (false, true) => show_ratio(number as u64, base as u64),
        (false, false) => show_rate(number as u64, Duration::from_secs_f64(base)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_shown_by_their_units() {
        let report = json!({
            "slot": 350006937, "base_slot": null, "output_bytes": 1 << 20, "input_bytes": 3 << 20, "root": null,
            "elapsed_seconds": 1.5, "cpu_seconds": 3.0, "storages": 1, "frames": 1234, "accounts_new": 0,
            "names": ["a", "b"], "none": [], "in_use": true, "servers": [{ "server": "a", "bytes": 5 }],
            "balance_lamports": "18446744073709551615", "status": 404,
        });
        let rows = [
            "slot: {slot}[ on {base_slot}], {storages}, {frames}",
            "size: {output_bytes} from {input_bytes} (ratio {input_bytes/output_bytes})",
            "root: {root}",
            "elapsed: {elapsed_seconds} at {input_bytes/elapsed_seconds}, CPU load {cpu_seconds%elapsed_seconds}",
            ": {accounts_new} new[, {accounts_new} more], {names}, {in_use}; {servers}",
            "frames: {frames}, {storages}, {status}",
            "supply: {balance_lamports}",
            "none: {none}",
            "new: [{accounts_new} accounts]",
            "more: {no_such_field}",
        ];
        let expected = [
            "  slot       350006937, 1 storage, 1,234 frames",
            "  size       1 MiB from 3 MiB (ratio 3.000)",
            "  elapsed    1.50 s at 2 MiB/s, CPU load 200%",
            "             0 new, a, b, yes; a: 5 B",
            "  frames     1,234, 1 storage, 404",
            "  supply     18,446,744,073,709,551,615 lamports",
        ];
        assert_eq!(fill_rows(&report, &rows), expected);
    }
}
