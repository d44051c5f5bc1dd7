//! Messages of rare errors: name, value, limit and hint.

use std::fs;
use std::sync::Arc;

use slotpress::net::{Client, ClientOptions, FetchLimits};
use slotpress::stores::{Store, StoreOptions, Target};
use slotpress::{Error, ErrorKind, NoProgress};
use slotpress_base::{KeptDir, hint};
use slotpress_net::{Download, NetError, NetErrorKind, PartialFile, Remote};
use slotpress_stores::{Attributes, Condition};

use crate::common::site::{TransferMode, files_in, serve};
use crate::common::{FULL_26, fixture, temp_dir};

fn client() -> Client {
    Client::new(&ClientOptions::default()).expect("a client")
}

fn download_error(remotes: Vec<Remote>, max_bytes: u64) -> Error {
    let dir = temp_dir();
    let file =
        Arc::new(PartialFile::open(&Arc::new(KeptDir::open(dir.path()).expect("opened")), FULL_26).expect("opened"));
    let limits = FetchLimits::default().max_bytes(max_bytes);
    Download::begin(client(), file, remotes, limits, &NoProgress).expect_err("refused")
}

#[test]
fn a_download_without_servers_is_a_network_error() {
    let error = download_error(Vec::new(), u64::MAX);
    assert_eq!(error.to_string(), format!("{FULL_26}: no known server has it"));
    // The kind tells the caller to try another source.
    assert_eq!((error.kind(), error.hint()), (ErrorKind::Network, Some(hint::USE_FIND)));
}

#[test]
fn an_archive_beyond_the_limit_is_refused() {
    let from = temp_dir();
    fs::copy(fixture(FULL_26), from.path().join(FULL_26)).expect("copied");
    let length = fs::metadata(fixture(FULL_26)).expect("metadata").len();
    let server = serve(&files_in(from.path()), TransferMode::Ranges);
    let url = server.url(&format!("/{FULL_26}"));
    let remote = client().head(&url.parse().expect("a URL"), &NoProgress).expect("asked");
    let error = download_error(vec![remote], 1024);
    let length = slotpress_base::quantity::bytes(length);
    assert_eq!(error.to_string(), format!("{url}: the archive has {length}, more than the limit of 1 KiB"));
    assert_eq!(error.hint(), Some(hint::RAISE_MAX_BYTES));
    assert_eq!(NetError::find_in(&error).map(NetError::kind), Some(NetErrorKind::TooLong));
}

#[test]
fn a_small_file_beyond_the_limit_is_refused() {
    let dir = temp_dir();
    let target: Target = dir.path().to_str().expect("a path").parse().expect("a target");
    let store = Store::open(&target, &StoreOptions::default(), &client()).expect("a store");
    let put = |bytes: &[u8]| store.put_small_file("list", bytes, &Attributes::new(), &Condition::Always, &NoProgress);
    let error = put(&vec![b' '; (8 << 20) + 1]).expect_err("refused");
    let message = error.to_string();
    assert!(message.contains("/list would have 8388609 bytes, more than the 8 MiB"), "{message}");
    assert!(error.hint().is_some());
    assert!(!dir.path().join("list").exists());
    put(&vec![b' '; 8 << 20]).expect("written");
}
