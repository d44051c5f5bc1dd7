//! Tables in a bucket: after the verdict, whole or not at all.

use std::fs;
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::common::*;
use crate::export::{files, manifest, pair, run as run_locally};
use crate::stores::gateway::{BUCKET, Gateway, Instead, KEY, SECRET};
use crate::stores::{run, target};

#[test]
fn the_same_files_as_in_a_directory() {
    needs!("versitygw");
    let gateway = Gateway::start();
    let (archives, out) = (pair("agave-4.2.2"), temp_dir());
    let [full, incremental] = archives.each_ref().map(|archive| text(archive));
    let arguments = ["export", full, incremental, "-o", &target(), "--table", "accounts,token-accounts"];
    gateway.fail(&["PUT "], 2, Instead::Refused(503, "SlowDown"));
    gateway.fail(&["PUT ", "_SUCCESS"], 1, Instead::AnswerLost);
    let said = run(&gateway, &arguments);
    assert_eq!(said.code, Some(0), "{said:?}");
    let inputs = archives.each_ref().map(|archive| archive.as_path());
    assert!(run_locally(&inputs, out.path(), &["--table", "accounts,token-accounts"]).status.success());
    let bucket = gateway.bucket().join("mainnet");
    assert_eq!(files(&bucket), files(out.path()));
    assert_eq!(gateway.left_parts(), 0);
    for table in manifest(&bucket)["tables"].as_array().expect("a list") {
        for file in table["files"].as_array().expect("a list") {
            let content = fs::read(bucket.join(file["path"].as_str().expect("a path"))).expect("read");
            let hash: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(file["sha256"].as_str(), Some(&*hash));
        }
    }
    let again = run(&gateway, &arguments);
    assert!(again.code == Some(5) && again.stderr.contains("_manifest-40.json"), "{again:?}");
    engines_read_it(&gateway, manifest(out.path())["accounts"].as_u64().expect("a number"));
}

/// Reads the accounts from the bucket with the engines' own clients; prints how many.
const SCRIPT: &str = r#"
import sys
endpoint, bucket, key, secret = sys.argv[1:]
from pyarrow import fs, dataset
s3 = fs.S3FileSystem(endpoint_override=endpoint, scheme="http", access_key=key, secret_key=secret, region="us-east-1")
print(dataset.dataset(f"{bucket}/mainnet/accounts", filesystem=s3, partitioning="hive").count_rows())
import polars
options = {"aws_access_key_id": key, "aws_secret_access_key": secret, "aws_endpoint_url": f"http://{endpoint}",
           "aws_region": "us-east-1", "aws_allow_http": "true"}
files = f"s3://{bucket}/mainnet/accounts/*/*.parquet"
print(polars.scan_parquet(files, storage_options=options, hive_partitioning=True).select(polars.len()).collect().item())
"#;

fn engines_read_it(gateway: &Gateway, accounts: u64) {
    needs!("engines");
    let mut command = Command::new(std::env::var_os("ENGINES_PYTHON").unwrap_or("python3".into()));
    let endpoint = gateway.endpoint().replace("http://", "");
    let output = command.args(["-c", SCRIPT, &endpoint, BUCKET, KEY, SECRET]).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{accounts}\n{accounts}\n"));
}

#[test]
fn nothing_is_left_of_what_failed() {
    needs!("versitygw");
    let gateway = Gateway::start();
    let [full, incremental] = pair("agave-4.2.2");
    // An incremental archive alone, and another state than expected: nothing is sent.
    let hash = "5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt";
    for inputs in [vec![text(&incremental)], vec![text(&full), text(&incremental), "--expect-hash", hash]] {
        let target = target();
        let arguments = [&["export", "-o", &target][..], &inputs].concat();
        assert!(run(&gateway, &arguments).code.is_some_and(|code| code > 0));
    }
    assert_eq!(gateway.count(&["PUT "]) + gateway.count(&["POST "]), 0);
    for name in ["part-00000", "_SUCCESS", "_manifest-40"] {
        gateway.fail(&["PUT ", name], usize::MAX, Instead::Refused(403, "AccessDenied"));
        let said = run(&gateway, &["export", text(&full), text(&incremental), "-o", &target()]);
        assert!(said.code.is_some_and(|code| code > 0), "{name}: {said:?}");
        gateway.fail_no_more();
        let left = gateway.bucket().join("mainnet");
        assert!(!left.exists() || files(&left).is_empty(), "{name}: {:?}", files(&left));
    }
    let said = run(&gateway, &["export", text(&full), text(&incremental), "-o", &target()]);
    assert_eq!(said.code, Some(0), "{said:?}");
}
