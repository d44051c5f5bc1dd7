//! Shapes of JSON lines that are not reports of the library.

use std::collections::BTreeMap;

use serde::Serialize;
use slotpress_base::text;

/// Returns an object with its type before its fields.
pub fn add_type(kind: &str, report: &impl Serialize) -> impl Serialize {
    merge(BTreeMap::from([("type", kind)]), report)
}

/// Returns the fields of two objects as one.
pub fn merge(first: impl Serialize, second: impl Serialize) -> impl Serialize {
    #[derive(Serialize)]
    struct Merged<A, B> {
        #[serde(flatten)]
        first: A,
        #[serde(flatten)]
        second: B,
    }
    Merged { first, second }
}

pub fn error_line(message: &str, hint: Option<&str>, exit_code: u8) -> String {
    #[derive(Serialize)]
    #[serde(tag = "type", rename = "error")]
    struct ErrorLine<'a> {
        message: &'a str,
        hint: Option<&'a str>,
        exit_code: u8,
    }
    text::json(&ErrorLine { message, hint, exit_code })
}
