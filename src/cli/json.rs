//! Shapes of JSON lines that are not reports of the library.

use serde::Serialize;

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

#[derive(Serialize)]
#[serde(tag = "type", rename = "error")]
pub struct ErrorLine<'a> {
    pub message: String,
    pub hint: Option<&'a str>,
    pub exit_code: u8,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "status")]
pub struct StatusLine<'a> {
    pub message: &'a str,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "warning")]
pub struct WarningLine<'a> {
    pub message: &'a str,
}
