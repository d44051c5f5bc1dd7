//! The tests of the whole program and of the library, in one binary: linked once. What tests share is in `common`;
//! every other module is a subject.

#![allow(clippy::disallowed_methods)] // paths of tests hold no control characters
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on has failed

mod archive_fixtures;
mod bad_input;
#[cfg(feature = "net")]
mod bootstrap;
mod clustered;
mod common;
mod damage;
mod determinism;
mod environment;
mod faults;
mod firedancer;
mod forged;
mod frame_hashes;
mod inspect;
mod interrupts;
#[cfg(all(feature = "serve", feature = "stores"))]
mod json;
mod kill;
mod levels;
mod levels_codecs;
mod levels_frames;
mod levels_link;
mod library;
#[cfg(feature = "net")]
mod lies;
mod limits;
mod lost_results;
mod manners;
#[cfg(feature = "net")]
mod net;
mod newer_agave;
mod older_archives;
mod operator;
mod oracle;
mod page;
mod panics;
mod parsers;
#[cfg(all(feature = "serve", feature = "stores"))]
mod publish;
mod races;
mod readers;
mod readme;
mod recompress;
mod release;
mod restore_layouts;
mod screen;
#[cfg(feature = "serve")]
mod serve;
mod state_check;
#[cfg(feature = "stores")]
mod stores;
mod synth;
mod terminal;
mod threads;
mod verify;
