//! Shapes of JSON lines that are not reports of the library.

use serde::Serialize;
use slotpress_base::text;

/// An object with its type before its fields.
pub fn typed<'a, R: Serialize>(kind: &'a str, report: &'a R) -> impl Serialize + 'a {
    #[derive(Serialize)]
    struct Typed<'a, R> {
        #[serde(rename = "type")]
        kind: &'a str,
        #[serde(flatten)]
        report: &'a R,
    }
    Typed { kind, report }
}

/// The fields of two objects.
pub fn both<'a, A: Serialize, B: Serialize>(first: &'a A, second: &'a B) -> impl Serialize + 'a {
    #[derive(Serialize)]
    struct Both<'a, A, B> {
        #[serde(flatten)]
        first: &'a A,
        #[serde(flatten)]
        second: &'a B,
    }
    Both { first, second }
}

/// An error as a line of JSON.
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
