//! Shapes of JSON lines that are not reports of the library.

use serde::Serialize;
use slotpress_base::text;

#[derive(Serialize)]
pub struct Typed<'a, R> {
    #[serde(rename = "type")]
    pub kind: &'a str,
    #[serde(flatten)]
    pub report: &'a R,
}

#[derive(Serialize)]
pub struct Both<'a, A, B> {
    #[serde(flatten)]
    pub first: &'a A,
    #[serde(flatten)]
    pub second: &'a B,
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
