//! Tests of the program and the library, in one binary, which is linked once. `common` has shared
//! helpers; every other module has one subject.

#![allow(clippy::disallowed_methods)] // paths of tests hold no control characters
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot continue has failed

mod archive;
#[cfg(feature = "net")]
mod bootstrap;
mod common;
mod demo;
mod doctor;
mod errors;
#[cfg(feature = "export")]
mod export;
#[cfg(feature = "net")]
mod fetch;
#[cfg(feature = "net")]
mod find;
mod inspect;
mod levels;
mod library;
mod list;
#[cfg(feature = "net")]
mod net;
mod oracle;
mod parsers;
mod program;
mod prune;
#[cfg(all(feature = "serve", feature = "stores"))]
mod publish;
mod rebase;
mod recompress;
mod restore;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "stores")]
mod stores;
mod synth;
#[cfg(all(feature = "serve", feature = "stores"))]
mod validator;
mod verify;
