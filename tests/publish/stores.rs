//! Publishing to a bucket: `versitygw`, behind a proxy that lets requests fail.

use {
    super::stage::*,
    crate::{
        common::*,
        stores::{
            command,
            gateway::{Gateway, Instead},
            target,
        },
    },
    serde_json::Value,
    std::{
        fs,
        process::{Child, Output, Stdio},
    },
};

fn arguments(stage: &Stage, flags: &[&str]) -> Vec<String> {
    let dir = stage.snapshots().to_str().expect("UTF-8").to_string();
    let mut arguments = vec!["publish".into(), dir, "--to".into(), target(), "--json".into()];
    arguments.extend(flags.iter().map(ToString::to_string));
    arguments
}

pub fn once(gateway: &Gateway, stage: &Stage, flags: &[&str]) -> Output {
    let arguments = arguments(stage, &[&["--once"], flags].concat());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    command(gateway, &arguments).output().expect("runs")
}

fn start(gateway: &Gateway, stage: &Stage, flags: &[&str]) -> Child {
    let arguments = arguments(stage, flags);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    command(gateway, &arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts")
}

#[needs("versitygw")]
#[test]
fn a_bucket_gets_what_a_directory_gets() {
    let (gateway, stage) = (Gateway::start(), Stage::with_pair());
    let mirror = stage.mirror();
    let flags = ["--to", mirror.to_str().expect("UTF-8"), "--keep-slot", "40"];
    // Answers that are lost, of what must not be done twice; a store that is busy.
    gateway.fail(&["PUT ", "api/v1/archives"], 1, Instead::AnswerLost);
    gateway.fail(&["PUT ", "latest.json"], 1, Instead::AnswerLost);
    gateway.fail(&["PUT ", "partNumber=1&"], 1, Instead::Refused(503, "SlowDown"));
    let output = once(&gateway, &stage, &flags);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bucket = gateway.bucket().join("mainnet");
    assert_eq!(latest(&bucket), [FULL_26, INCREMENTAL_26_40]);
    for name in [FULL_26, INCREMENTAL_26_40] {
        assert!(fs::read(bucket.join(name)).expect("read") == fs::read(mirror.join(name)).expect("read"), "{name}");
    }
    assert_eq!(latest(&bucket.join("kept")), [FULL_26, INCREMENTAL_26_40]);
    let root = of_type(&lines(&output), "published")[0]["root"].as_str().expect("a root").to_string();
    assert!(
        gateway.count(&["POST ", "uploads=", &format!("x-amz-meta-slotpress-root: {root}")]) > 0,
        "readers are told the root"
    );
    assert_eq!(gateway.left_parts(), 0);
    stage.assert_nothing_is_pinned();

    let puts = gateway.count(&["PUT "]);
    let again = once(&gateway, &stage, &flags);
    assert!(again.status.success() && gateway.count(&["PUT "]) == puts, "nothing is sent");
    let gone = ["--keep-full", "1", "--keep-incremental", "0", "--grace", "0s"];
    fs::copy(fixture(FULL_3500), stage.snapshots().join(FULL_3500)).expect("copied");
    assert!(once(&gateway, &stage, &gone).status.success());
    assert_eq!(latest(&bucket), [FULL_3500]);
}

/// Nothing is sent twice but the part that was on its way.
#[needs("versitygw")]
#[test]
fn killed_while_parts_are_sent() {
    let (gateway, stage) = (Gateway::start(), Stage::new(&[]));
    let ledger = stage.dir.path().join("ledger");
    slotpress().arg("synth").arg(&ledger).args(["--size", "40MiB", "--mix", "random"]).assert().success();
    let made = archive(&ledger, &stage.snapshots(), &[]);
    assert!(fs::metadata(&made).expect("metadata").len() > 2 * (16 << 20), "three parts");
    gateway.fail(&["PUT ", "partNumber=3&"], usize::MAX, Instead::Refused(503, "SlowDown"));
    let mut child = start(&gateway, &stage, &[]);
    wait_for("two parts in the journal", || {
        let journal = fs::read(stage.pins().join("journal.json")).unwrap_or_default();
        let journal: Value = serde_json::from_slice(&journal).unwrap_or_default();
        let uploads = journal["uploads"].as_object().cloned().unwrap_or_default();
        uploads.values().any(|upload| upload["state"]["tags"].as_array().is_some_and(|tags| tags.len() == 2))
    });
    child.kill().expect("killed");
    child.wait().expect("ended");
    gateway.fail_no_more();
    let (sent, begun) = (gateway.count(&["partNumber=1&"]), gateway.count(&["POST ", "uploads="]));
    let output = once(&gateway, &stage, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(of_type(&lines(&output), "publish_prepared").len(), 0);
    assert_eq!((gateway.count(&["partNumber=1&"]), gateway.count(&["POST ", "uploads="])), (sent, begun));
    let bucket = gateway.bucket().join("mainnet");
    assert_eq!(latest(&bucket), [name(&made)]);
    verify(&bucket);
    assert_eq!(gateway.left_parts(), 0);
    stage.assert_nothing_is_pinned();
}

/// A store that is away holds up no other target, and gets the newest pair when it is back.
#[needs("versitygw")]
#[test]
fn a_store_that_is_away() {
    let (gateway, stage) = (Gateway::start(), Stage::with_pair());
    gateway.set_gone(true);
    let mirror = stage.mirror();
    let mut child = start(&gateway, &stage, &["--to", mirror.to_str().expect("UTF-8")]);
    wait_for("the directory", || latest(&mirror).len() == 2);
    gateway.set_gone(false);
    let bucket = gateway.bucket().join("mainnet");
    wait_for("the bucket", || latest(&bucket).len() == 2);
    child.kill().expect("killed");
    child.wait().expect("ended");
}
