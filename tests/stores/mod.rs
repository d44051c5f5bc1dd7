//! Commands that use a bucket, run against `versitygw`.

mod refused;
mod survives {
    mod commands;
    mod completions;
}
mod works;

use std::fs;
use std::process::Command;

use gateway::{BUCKET, Gateway, KEY, SECRET};

use crate::common::site::{JsonOutput, files_in};
use crate::common::slotpress_path;

#[path = "../../crates/stores/tests/gateway/mod.rs"]
pub mod gateway;

/// Prepares a command with the bucket's credentials, endpoint and region. Removes all other variables whose names
/// begin with `SLOTPRESS_` or `AWS_`.
pub fn command(gateway: &Gateway, arguments: &[&str]) -> Command {
    let mut command = Command::new(slotpress_path());
    for (name, _) in std::env::vars_os() {
        if ["SLOTPRESS_", "AWS_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.args(arguments).env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET);
    command.env("AWS_CONFIG_FILE", "/dev/null").env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
    command.env("SLOTPRESS_ENDPOINT", gateway.endpoint()).env("SLOTPRESS_REGION", "us-east-1");
    command
}

/// Runs a command; no output may contain a secret.
pub fn run_command(mut command: Command) -> JsonOutput {
    let output = command.arg("--json").output().expect("runs");
    let lines = output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let all = format!("{stderr}{}", String::from_utf8_lossy(&output.stdout));
    for secret in [SECRET, KEY, "X-Amz"] {
        assert!(!all.contains(secret), "{all}");
    }
    JsonOutput { code: output.status.code(), lines: lines.collect(), stderr }
}

/// Runs a command with the credentials of the gateway.
pub fn run_with_gateway(gateway: &Gateway, arguments: &[&str]) -> JsonOutput {
    run_command(command(gateway, arguments))
}

pub fn target() -> String {
    format!("s3://{BUCKET}/mainnet")
}

/// Writes files straight into the directory of the bucket, without requests.
pub fn put_files(gateway: &Gateway, files: &crate::common::site::Files) {
    let dir = gateway.bucket().join("mainnet");
    fs::create_dir_all(&dir).expect("made");
    for (name, bytes) in files {
        fs::write(dir.join(name), bytes).expect("written");
    }
}

pub fn files_in_bucket(gateway: &Gateway) -> Vec<String> {
    let dir = gateway.bucket().join("mainnet");
    if dir.exists() { files_in(&dir).into_keys().collect() } else { Vec::new() }
}
