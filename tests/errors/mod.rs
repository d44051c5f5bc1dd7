//! Errors, as a program that embeds the library sees them.

mod kinds;
#[cfg(all(feature = "net", feature = "stores"))]
mod texts;
