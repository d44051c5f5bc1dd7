//! Runs slotpress beside a real validator: a cluster of one, in a network namespace of its own.
//!
//! `AGAVE_VALIDATOR` names an `agave-validator` of version 4.2; `solana-genesis` lies beside it.
//! The tests need root, `ip`, `openssl` and 4 GB of disk; the validator needs a hard limit of
//! 1,000,000 open files. This command makes the figures of docs/interop.md:
//! `AGAVE_VALIDATOR=… cargo test --test suite validator:: -- --ignored --nocapture`.

mod answers;
mod cluster;
mod keys;
mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use self::cluster::{Cluster, FULL_SLOTS, INCREMENTAL_SLOTS, Node, bank_hashes};
use self::traffic::Traffic;
use crate::common::servers::{self, Running};
use crate::common::site::{JsonOutput, run};
use crate::common::*;
use crate::publish::stage::{archives_in, latest, of_type, verify};
use crate::publish::works::lives;

/// Number of common banks at which two validators agree: more than one of them keeps unrooted.
const COMMON_BANKS: usize = 100;

const MIRROR_PORT: u16 = 8890;

/// Log line of Agave when it starts from a directory. For archives, it logs that it loads them.
const FAST_BOOT: &str = "Loading bank from snapshot dir";

fn succeeds(arguments: &[&str]) -> JsonOutput {
    let said = run(arguments);
    assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
    said
}

/// Returns how long archives are published; `VALIDATOR_MINUTES` sets another time.
fn publishing_time() -> Duration {
    let minutes = std::env::var("VALIDATOR_MINUTES").ok().and_then(|text| text.parse::<u64>().ok());
    Duration::from_secs(60 * minutes.unwrap_or(20))
}

#[test]
#[ignore = "runs a validator for half an hour: AGAVE_VALIDATOR names it"]
fn a_cluster_of_one() {
    let cluster = Cluster::new();
    let ledger = cluster.at("first");
    let flags = ["--ledger", text(&ledger), "--snapshots", text(&cluster.stage.snapshots())].map(str::to_string);
    let mut first = cluster.start_first(&ledger, &flags);
    first.within("the first slot", |node| node.slot("confirmed").filter(|slot| *slot > 0));
    answers::without_archives(&first);
    let none = run(&["find", "--rpc", &first.url(), "--allow-private"]);
    println!("find, before the first archive: {none:?}");
    assert_eq!(none.code, Some(4), "{none:?}");

    fs::copy(ledger.join("genesis.tar.bz2"), cluster.stage.mirror().join("genesis.tar.bz2")).expect("copied");
    let flags = ["--every", "0s", "--grace", "5min"];
    let publishing = lives::Running::start(&cluster.stage, &flags);
    let published_since = Instant::now();
    let traffic = Traffic::start(&cluster, first.url());
    first.within("a pair on the mirror", |_| (latest(&cluster.stage.mirror()).len() == 2).then_some(()));
    answers::of_files(&first);
    answers::of_calls(&first, true);
    let _mirror = serve(&cluster.stage.mirror());
    let mirror = format!("http://127.0.0.1:{MIRROR_PORT}");
    found_and_fetched(&cluster, &first, &mirror);
    for (name, source) in [("from-rpc", &first.url()), ("from-mirror", &mirror)] {
        follows(&cluster, &mut first, name, source, &publishing);
    }
    first.within("the end of publishing", |_| (published_since.elapsed() > publishing_time()).then_some(()));
    println!("{} rounds of transfers", traffic.rounds());
    drop(traffic);
    published_well(&cluster, &publishing.stop());
    goes_on(&cluster, first);
}

fn serve(mirror: &Path) -> Running {
    let mut command = Command::new(slotpress_path());
    command.args(["serve", "--listen", &format!("127.0.0.1:{MIRROR_PORT}")]).arg(mirror);
    servers::start(&mut command, MIRROR_PORT, Path::new(""))
}

/// Archives of its RPC service and of the mirror are found, ranked by age, and fetched.
fn found_and_fetched(cluster: &Cluster, first: &Node, mirror: &str) {
    let (rpc, out) = (first.url(), cluster.at("fetched"));
    let said = succeeds(&["find", "--rpc", &rpc, mirror, "--allow-private"]);
    said.lines.iter().for_each(|line| println!("find: {line}"));
    let servers: BTreeSet<String> =
        of_type(&said.lines, "candidate").iter().map(|line| line["full"].to_string()).collect();
    assert!(servers.len() >= 2 && said.line("find")["cluster"]["peer_count"] == 1, "{said:?}");
    for (number, source) in [&rpc[..], mirror, &format!("{rpc}/snapshot.tar.bz2")].into_iter().enumerate() {
        let said = succeeds(&["fetch", source, "-o", text(&out.join(number.to_string()))]);
        let archives = said.line("fetch")["archives"].as_array().expect("archives").clone();
        println!("fetch {source}: {archives:?}");
        assert_eq!(archives.len(), if source.ends_with("bz2") { 1 } else { 2 });
        let paths: Vec<&str> = archives.iter().map(|archive| archive["path"].as_str().expect("a path")).collect();
        succeeds(&[&["verify"][..], &paths].concat());
    }
}

/// A second validator boots from a bootstrapped ledger, catches up, and has the same banks as the
/// first.
fn follows(cluster: &Cluster, first: &mut Node, name: &str, source: &str, publishing: &lives::Running) {
    let ledger = cluster.at(name);
    let genesis_hash = first.ask("getGenesisHash", json!([])).expect("a hash");
    let genesis_hash = genesis_hash.as_str().expect("a hash");
    let (flags, url) = (["--ledger", text(&ledger), "--expect-genesis-hash", genesis_hash], first.url());
    // A source does not confirm its own archive.
    let trust = if source.starts_with(&url) { &[][..] } else { &["--trust", &url] };
    let said = succeeds(&[&["bootstrap", source][..], &flags, trust].concat());
    println!("bootstrap {source}: {}", said.line("bootstrap"));
    let slot = said.line("restore")["slot"].as_u64().expect("a slot");
    let mut follower = cluster.start_follower(&ledger, &flags_of(&said));
    follower.within("the follower's first slot", |node| node.slot("processed"));
    let starts = follower.age();
    first.within("the follower to catch up", |first| {
        let (behind, ahead) = (follower.slot("finalized")?, first.slot("finalized")?);
        let is_healthy = follower.ask("getHealth", json!([])).is_some_and(|health| health == "ok");
        (is_healthy && behind + 5 >= ahead).then_some(())
    });
    let catches_up = follower.age();
    answers::of_calls(&follower, false);
    let banks = first.within("common banks", |first| {
        let banks = agree(&first.bank_hashes(), &follower.bank_hashes());
        (banks >= COMMON_BANKS).then_some(banks)
    });
    let written = first.within("an archive of both", |_| {
        let ours: BTreeSet<String> = archives_in(&ledger).into_iter().collect();
        let fetched = said.line("bootstrap")["archives"].as_array().expect("archives");
        let written = ours.iter().filter(|name| !fetched.iter().any(|archive| archive["name"] == **name));
        let published: BTreeMap<String, String> = of_type(&publishing.lines(), "published")
            .iter()
            .map(|line| state_of_name(line["name"].as_str().expect("a name")))
            .collect();
        let common: Vec<(String, String)> =
            written.map(|name| state_of_name(name)).filter(|(slots, _)| published.contains_key(slots)).collect();
        common.iter().for_each(|(slots, hash)| assert_eq!(published[slots], *hash, "{slots}"));
        (!common.is_empty()).then_some(common.len())
    });
    let text = follower.log_text();
    assert!(text.contains(FAST_BOOT), "it started from the directory");
    println!(
        "from {source}, at slot {slot}: RPC after {starts:.1?}, caught up after {catches_up:.1?}, {banks} bank hashes and {written} archives agree"
    );
    follower.exit();
}

/// Returns the slots and the hash of an archive's name.
fn state_of_name(name: &str) -> (String, String) {
    let (slots, hash) = name.rsplit_once('-').expect("a name");
    (slots.to_string(), hash.split('.').next().expect("a hash").to_string())
}

/// Returns the number of banks that both have. Their hashes must be equal.
fn agree(one: &BTreeMap<u64, String>, other: &BTreeMap<u64, String>) -> usize {
    let common: Vec<_> = other.iter().filter_map(|(slot, hash)| Some((slot, one.get(slot)?, hash))).collect();
    common.iter().for_each(|(slot, one, other)| assert_eq!(one, other, "the bank hash of slot {slot}"));
    common.len()
}

fn flags_of(said: &JsonOutput) -> Vec<String> {
    let flags = said.line("restore")["validator_flags"].as_array().expect("flags");
    flags.iter().map(|flag| flag.as_str().expect("text").to_string()).collect()
}

/// Checks that no archive failed or was left out, and that the mirror is whole.
fn published_well(cluster: &Cluster, said: &[serde_json::Value]) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    said.iter().for_each(|line| *counts.entry(line["type"].as_str().expect("a type")).or_default() += 1);
    println!("publish: {counts:?}");
    for failure in ["publish_failed", "publish_refused", "publish_skipped"] {
        assert_eq!(of_type(said, failure), Vec::<&serde_json::Value>::new());
    }
    let published: Vec<&str> =
        of_type(said, "published").iter().map(|line| line["name"].as_str().expect("a name")).collect();
    let slot = |name: &str| name.split('-').rev().nth(1).and_then(|slot| slot.parse::<u64>().ok()).expect("a slot");
    let fulls: Vec<u64> =
        published.iter().filter(|name| name.starts_with("snapshot-")).map(|name| slot(name)).collect();
    println!("{} full archives, {} incremental ones, of slots {fulls:?}", fulls.len(), published.len() - fulls.len());
    assert!(fulls.windows(2).all(|pair| pair[1] - pair[0] == FULL_SLOTS), "all full archives: {fulls:?}");
    verify(&cluster.stage.mirror());
}

/// The validator stops, its state is archived and restored, and it continues from each of the
/// archives.
fn goes_on(cluster: &Cluster, first: Node) {
    let stopped_at = first.slot("finalized").expect("a slot");
    let ledger = first.exit();
    let before = bank_hashes(&ledger);
    let (snapshots, out) = (cluster.stage.snapshots(), cluster.at("archived"));
    fs::create_dir(&out).expect("made");
    let base = archives_in(&snapshots).into_iter().rfind(|name| name.starts_with("snapshot-")).expect("a full archive");
    let base_slot = base.split('-').nth(1).expect("a slot").to_string();
    let at = ["--snapshots", text(&snapshots), "--verify"];
    let full = archive(&ledger, &out, &at);
    let incremental = archive(&ledger, &out, &[&at[..], &["--base-slot", &base_slot]].concat());
    for (number, archives) in [vec![full], vec![snapshots.join(base), incremental]].iter().enumerate() {
        let paths: Vec<&str> = archives.iter().map(|path| text(path)).collect();
        let ledger = cluster.at(&format!("again-{number}"));
        let said = succeeds(&[&["restore"][..], &paths, &["--ledger", text(&ledger)]].concat());
        let slot = said.line("restore")["slot"].as_u64().expect("a slot");
        let inspected = succeeds(&["inspect", paths[paths.len() - 1]]);
        assert_eq!(inspected.line("inspect")["bank_hash"], before[&slot], "as the validator had it");
        assert!(slot >= stopped_at, "{slot} {stopped_at}");
        cluster.put_genesis_into(&ledger);
        let mut again = cluster.start_first(&ledger, &flags_of(&said));
        again.within("roots", |node| node.slot("finalized").filter(|rooted| *rooted > slot + INCREMENTAL_SLOTS));
        let roots = again.age();
        let newer = again.within("a new archive", |node| {
            archives_in(&node.ledger).into_iter().find(|name| !paths.iter().any(|path| path.ends_with(name)))
        });
        assert!(again.log_text().contains(FAST_BOOT), "it started from the directory");
        println!(
            "archived at slot {slot}: goes on from {paths:?}, {INCREMENTAL_SLOTS} roots after {roots:.1?}, and archives {newer}"
        );
        again.exit();
    }
}
