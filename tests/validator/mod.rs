//! Runs slotpress beside a real validator, which forms a cluster of its own in a network namespace.
//!
//! `AGAVE_VALIDATOR` names an `agave-validator` of version 4.2, beside which is `solana-genesis`. The
//! test needs root, `ip`, `openssl` and 4 GB of disk; the validator needs a hard limit of 1,000,000 open
//! files. This command prints the figures of docs/interop.md:
//! `AGAVE_VALIDATOR=… cargo test --test suite validator:: -- --ignored --nocapture`.

mod cluster;
mod keys;
mod rpc_responses;
mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use self::cluster::{Cluster, FULL_INTERVAL_SLOTS, INCREMENTAL_INTERVAL_SLOTS, Node, bank_hashes};
use self::rpc_responses::RpcApi;
use self::traffic::Traffic;
use crate::common::servers::{self, Running};
use crate::common::site::{JsonOutput, run_to_json};
use crate::common::*;
use crate::publish::setup::{archives_in, events_of_type, read_latest, verify_published};
use crate::publish::works::running;

/// Number of common banks on which two validators must agree. It is larger than the number of unrooted
/// banks of a validator.
const COMMON_BANKS: usize = 100;

const MIRROR_PORT: u16 = 8890;

/// Line that Agave logs when it starts from the directory of a bank snapshot instead of archives.
const FAST_BOOT: &str = "Loading bank from snapshot dir";

fn run_successfully(arguments: &[&str]) -> JsonOutput {
    let output = run_to_json(arguments);
    assert_eq!(output.code, Some(0), "{arguments:?}: {output:?}");
    output
}

/// Returns the time for which archives are published: 20 minutes, unless `VALIDATOR_MINUTES` is set.
fn publishing_time() -> Duration {
    let minutes = std::env::var("VALIDATOR_MINUTES").ok().and_then(|text| text.parse::<u64>().ok());
    Duration::from_secs(60 * minutes.unwrap_or(20))
}

#[test]
#[ignore = "runs a validator for half an hour: AGAVE_VALIDATOR names it"]
fn validators_start_from_archives_of_a_running_one() {
    let cluster = Cluster::new();
    let ledger = cluster.path("first");
    let flags = ["--ledger", text(&ledger), "--snapshots", text(&cluster.setup.snapshots())].map(str::to_string);
    let mut first = cluster.start_first(&ledger, &flags);
    first.wait_for("the first slot", |node| node.slot("confirmed").filter(|slot| *slot > 0));
    rpc_responses::assert_there_are_no_archives(&first);
    let output = run_to_json(&["find", "--rpc", &first.url(), "--allow-private"]);
    println!("find, before the first archive: {output:?}");
    assert_eq!(output.code, Some(4), "{output:?}");

    fs::copy(ledger.join("genesis.tar.bz2"), cluster.setup.mirror().join("genesis.tar.bz2")).expect("copied");
    let flags = ["--every", "0s", "--grace", "5min"];
    let publishing = running::PublishProcess::start(&cluster.setup, &flags);
    let published_since = Instant::now();
    let traffic = Traffic::start(&cluster, first.url());
    first.wait_for("a pair on the mirror", |_| (read_latest(&cluster.setup.mirror()).len() == 2).then_some(()));
    rpc_responses::assert_files_are_sent_whole(&first);
    rpc_responses::assert_calls_answer(&first, RpcApi::Full);
    let _mirror = serve(&cluster.setup.mirror());
    let mirror = format!("http://127.0.0.1:{MIRROR_PORT}");
    assert_archives_are_found_and_fetched(&cluster, &first, &mirror);
    for (name, source) in [("from-rpc", &first.url()), ("from-mirror", &mirror)] {
        assert_follower_catches_up(&cluster, &mut first, name, source, &publishing);
    }
    first.wait_for("the end of publishing", |_| (published_since.elapsed() > publishing_time()).then_some(()));
    println!("{} rounds of transfers", traffic.rounds());
    drop(traffic);
    assert_all_archives_are_published(&cluster, &publishing.stop());
    assert_validator_continues_from_archives(&cluster, first);
}

fn serve(mirror: &Path) -> Running {
    let mut command = Command::new(slotpress_path());
    command.args(["serve", "--listen", &format!("127.0.0.1:{MIRROR_PORT}")]).arg(mirror);
    servers::start(&mut command, MIRROR_PORT, Path::new(""))
}

/// Checks that archives of the RPC service and of the mirror are found and fetched, and are valid.
fn assert_archives_are_found_and_fetched(cluster: &Cluster, first: &Node, mirror: &str) {
    let rpc = first.url();
    let out = cluster.path("fetched");
    let found = run_successfully(&["find", "--rpc", &rpc, mirror, "--allow-private"]);
    found.lines.iter().for_each(|line| println!("find: {line}"));
    let urls: BTreeSet<String> =
        events_of_type(&found.lines, "candidate").iter().map(|line| line["full"].to_string()).collect();
    assert!(urls.len() >= 2, "{found:?}");
    assert_eq!(found.line("find")["cluster"]["peer_count"], 1, "{found:?}");
    for (number, source) in [&rpc[..], mirror, &format!("{rpc}/snapshot.tar.bz2")].into_iter().enumerate() {
        let fetched = run_successfully(&["fetch", source, "-o", text(&out.join(number.to_string()))]);
        let archives = fetched.line("fetch")["archives"].as_array().expect("archives").clone();
        println!("fetch {source}: {archives:?}");
        assert_eq!(archives.len(), if source.ends_with("bz2") { 1 } else { 2 });
        let paths: Vec<&str> = archives.iter().map(|archive| archive["path"].as_str().expect("a path")).collect();
        run_successfully(&[&["verify"][..], &paths].concat());
    }
}

/// Bootstraps a ledger, and starts a second validator from it. Checks that this validator catches up, and has
/// the same banks and archives as the first one.
fn assert_follower_catches_up(
    cluster: &Cluster,
    first: &mut Node,
    name: &str,
    source: &str,
    publishing: &running::PublishProcess,
) {
    let ledger = cluster.path(name);
    let genesis_hash = first.ask("getGenesisHash", json!([])).expect("a hash");
    let genesis_hash = genesis_hash.as_str().expect("a hash");
    let flags = ["--ledger", text(&ledger), "--expect-genesis-hash", genesis_hash];
    let url = first.url();
    // A source does not confirm its own archive.
    let trust = if source.starts_with(&url) { &[][..] } else { &["--trust", &url] };
    let bootstrapped = run_successfully(&[&["bootstrap", source][..], &flags, trust].concat());
    println!("bootstrap {source}: {}", bootstrapped.line("bootstrap"));
    let slot = bootstrapped.line("restore")["slot"].as_u64().expect("a slot");
    let mut follower = cluster.start_follower(&ledger, &validator_flags(&bootstrapped));
    follower.wait_for("the follower's first slot", |node| node.slot("processed"));
    let time_to_rpc = follower.time_since_start();
    first.wait_for("the follower to catch up", |first| {
        let follower_slot = follower.slot("finalized")?;
        let first_slot = first.slot("finalized")?;
        let is_healthy = follower.ask("getHealth", json!([])).is_some_and(|health| health == "ok");
        (is_healthy && follower_slot + 5 >= first_slot).then_some(())
    });
    let time_to_catch_up = follower.time_since_start();
    rpc_responses::assert_calls_answer(&follower, RpcApi::Minimal);
    let banks = first.wait_for("common banks", |first| {
        let banks = count_equal_banks(&first.bank_hashes(), &follower.bank_hashes());
        (banks >= COMMON_BANKS).then_some(banks)
    });
    let archives = first.wait_for("an archive of both", |_| {
        let fetched = bootstrapped.line("bootstrap")["archives"].as_array().expect("archives");
        let mut written = archives_in(&ledger);
        written.retain(|name| !fetched.iter().any(|archive| archive["name"] == *name));
        let published: BTreeMap<String, String> = events_of_type(&publishing.events(), "published")
            .iter()
            .map(|line| slots_and_hash(line["name"].as_str().expect("a name")))
            .collect();
        let mut common: Vec<(String, String)> = written.iter().map(|name| slots_and_hash(name)).collect();
        common.retain(|(slots, _)| published.contains_key(slots));
        common.iter().for_each(|(slots, hash)| assert_eq!(published[slots], *hash, "{slots}"));
        (!common.is_empty()).then_some(common.len())
    });
    assert!(follower.log_text().contains(FAST_BOOT), "the follower did not start from the directory");
    println!("from {source}, at slot {slot}: RPC after {time_to_rpc:.1?}, caught up after {time_to_catch_up:.1?}");
    println!("from {source}, at slot {slot}: {banks} bank hashes and {archives} archives agree");
    follower.exit();
}

/// Returns the slots and the hash of an archive's name.
fn slots_and_hash(name: &str) -> (String, String) {
    let (slots, hash) = name.rsplit_once('-').expect("a name");
    (slots.to_string(), hash.split('.').next().expect("a hash").to_string())
}

/// Returns the number of banks that both validators have. Their hashes must be equal.
fn count_equal_banks(first: &BTreeMap<u64, String>, follower: &BTreeMap<u64, String>) -> usize {
    let mut count = 0;
    for (slot, hash) in follower {
        if let Some(first_hash) = first.get(slot) {
            assert_eq!(first_hash, hash, "the bank hash of slot {slot}");
            count += 1;
        }
    }
    count
}

fn validator_flags(output: &JsonOutput) -> Vec<String> {
    let flags = output.line("restore")["validator_flags"].as_array().expect("flags");
    flags.iter().map(|flag| flag.as_str().expect("text").to_string()).collect()
}

/// Checks that no archive failed, was left out or is missing, and that all archives of the mirror are valid.
fn assert_all_archives_are_published(cluster: &Cluster, lines: &[serde_json::Value]) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    lines.iter().for_each(|line| *counts.entry(line["type"].as_str().expect("a type")).or_default() += 1);
    println!("publish: {counts:?}");
    for failure in ["publish_failed", "publish_refused", "publish_skipped"] {
        assert_eq!(events_of_type(lines, failure), Vec::<&serde_json::Value>::new());
    }
    let published: Vec<&str> =
        events_of_type(lines, "published").iter().map(|line| line["name"].as_str().expect("a name")).collect();
    let slot = |name: &str| name.split('-').rev().nth(1).and_then(|slot| slot.parse::<u64>().ok()).expect("a slot");
    let full_slots: Vec<u64> =
        published.iter().filter(|name| name.starts_with("snapshot-")).map(|name| slot(name)).collect();
    let incremental_count = published.len() - full_slots.len();
    println!("{} full archives of slots {full_slots:?}, {incremental_count} incremental ones", full_slots.len());
    let are_complete = full_slots.windows(2).all(|pair| pair[1] - pair[0] == FULL_INTERVAL_SLOTS);
    assert!(are_complete, "a full archive is missing: {full_slots:?}");
    verify_published(&cluster.setup.mirror());
}

/// Stops the validator, archives and restores its state, and checks that it continues from each of the
/// archives.
fn assert_validator_continues_from_archives(cluster: &Cluster, first: Node) {
    let stopped_at = first.slot("finalized").expect("a slot");
    let ledger = first.exit();
    let hashes = bank_hashes(&ledger);
    let snapshots = cluster.setup.snapshots();
    let out = cluster.path("archived");
    fs::create_dir(&out).expect("made");
    let base = archives_in(&snapshots).into_iter().rfind(|name| name.starts_with("snapshot-")).expect("a full archive");
    let base_slot = base.split('-').nth(1).expect("a slot").to_string();
    let flags = ["--snapshots", text(&snapshots), "--verify"];
    let full = archive(&ledger, &out, &flags);
    let incremental = archive(&ledger, &out, &[&flags[..], &["--base-slot", &base_slot]].concat());
    for (number, archives) in [vec![full], vec![snapshots.join(base), incremental]].iter().enumerate() {
        let paths: Vec<&str> = archives.iter().map(|path| text(path)).collect();
        let ledger = cluster.path(&format!("again-{number}"));
        let restored = run_successfully(&[&["restore"][..], &paths, &["--ledger", text(&ledger)]].concat());
        let slot = restored.line("restore")["slot"].as_u64().expect("a slot");
        let inspected = run_successfully(&["inspect", paths[paths.len() - 1]]);
        assert_eq!(inspected.line("inspect")["bank_hash"], hashes[&slot], "the validator's bank of slot {slot}");
        assert!(slot >= stopped_at, "{slot} {stopped_at}");
        cluster.put_genesis_into(&ledger);
        let mut restarted = cluster.start_first(&ledger, &validator_flags(&restored));
        restarted.wait_for("roots", |node| {
            node.slot("finalized").filter(|rooted| *rooted > slot + INCREMENTAL_INTERVAL_SLOTS)
        });
        let time_to_roots = restarted.time_since_start();
        let newer = restarted.wait_for("a new archive", |node| {
            archives_in(&node.ledger).into_iter().find(|name| !paths.iter().any(|path| path.ends_with(name)))
        });
        assert!(restarted.log_text().contains(FAST_BOOT), "the validator did not start from the directory");
        println!(
            "archived at slot {slot}: {INCREMENTAL_INTERVAL_SLOTS} roots after {time_to_roots:.1?} from {paths:?}"
        );
        println!("archived at slot {slot}: the validator writes {newer}");
        restarted.exit();
    }
}
