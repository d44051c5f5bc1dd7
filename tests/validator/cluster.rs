//! A cluster with one voting validator: its network namespace, keys and genesis, and the processes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

use super::keys::Key;
use crate::common::servers::Running;
use crate::common::*;
use crate::publish::setup::Setup;

/// Snapshot intervals. A validator's defaults are 100,000 and 100 slots.
pub const FULL_INTERVAL_SLOTS: u64 = 200;
pub const INCREMENTAL_INTERVAL_SLOTS: u64 = 50;

/// Number of accounts in the genesis that never change, with 960 bytes of data each.
const IDLE_ACCOUNTS: u32 = 4000;

/// Number of slots per epoch, so few that some epochs end during the test.
const EPOCH_SLOTS: &str = "512";

/// Feature that is turned off. It demands a key that no validator here has, so no validator would be left
/// after an epoch.
const DEACTIVATED_FEATURE: &str = "VAT9huvhPjRN9cyrPytq9rwvEJ3J4ADtjdncgZRyANJ";

const FIRST_GOSSIP: u16 = 8001;
pub const FIRST_RPC: u16 = 8899;

/// Waits until `find` returns a value, for work that takes a validator minutes.
pub fn wait_within<T>(limit: Duration, what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(start.elapsed() < limit, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Limit on the time of starting, catching up or stopping, far above what each takes.
pub const STEP_LIMIT: Duration = Duration::from_secs(600);

/// Moves this thread and its children into a new network namespace with only a loopback device. The
/// namespace has no name, so it ends with its last process.
fn enter_new_network_namespace() {
    let name = format!("slotpress-test-{}", std::process::id());
    let ip = |arguments: &[&str]| run_program(Command::new("ip").args(arguments));
    ip(&["netns", "add", &name]);
    let namespace = File::open(Path::new("/run/netns").join(&name));
    ip(&["netns", "del", &name]);
    let namespace = namespace.expect("a namespace");
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("entered");
    ip(&["link", "set", "lo", "up"]);
}

/// Runs a program, which must succeed, and returns its standard output.
pub fn run_program(command: &mut Command) -> Vec<u8> {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

pub struct Cluster {
    /// Directories of the first validator's archives and of the published ones.
    pub setup: Setup,
    program: PathBuf,
    identity: Key,
    vote: Key,
    /// Account whose lamports the test moves.
    pub faucet: Key,
    /// Account that is opened and closed repeatedly.
    pub recipient: Key,
}

impl Cluster {
    pub fn new() -> Self {
        let program = std::env::var_os("AGAVE_VALIDATOR").map(PathBuf::from).expect("AGAVE_VALIDATOR names a program");
        enter_new_network_namespace();
        // The directory is on disk, because blocks take gigabytes.
        let setup = Setup::new_in(tempfile::tempdir().expect("a directory"), &[]);
        let dir = setup.dir.path();
        let [identity, vote, stake, faucet, recipient] =
            ["identity", "vote", "stake", "faucet", "recipient"].map(|name| Key::new(dir, name));
        let idle: String = (0..IDLE_ACCOUNTS)
            .map(|number| {
                let hash = blake3::hash(&number.to_le_bytes());
                // Hexadecimal digits are also digits of base 64.
                let data: String = (0u8..20)
                    .map(|part| blake3::hash(&[hash.as_bytes(), &[part][..]].concat()).to_hex().to_string())
                    .collect();
                let owner = "11111111111111111111111111111111";
                let address = bs58::encode(hash.as_bytes()).into_string();
                format!(
                    "{address}: {{balance: 10000000000, owner: \"{owner}\", data: \"{data}\", executable: false}}\n"
                )
            })
            .collect();
        fs::write(dir.join("idle.yml"), idle).expect("written");
        run_program(
            Command::new(program.with_file_name("solana-genesis"))
                .args(["--cluster-type", "development", "--hashes-per-tick", "sleep", "--inflation", "full"])
                .args(["--slots-per-epoch", EPOCH_SLOTS, "--deactivate-feature", DEACTIVATED_FEATURE])
                .args(["--bootstrap-validator-lamports", "500000000000"])
                .args(["--bootstrap-validator-stake-lamports", "500000000000"])
                .args(["--faucet-lamports", "500000000000000", "--faucet-pubkey", &faucet.address])
                .args(["--bootstrap-validator", &identity.address, &vote.address, &stake.address])
                .arg("--primordial-accounts-file")
                .arg(dir.join("idle.yml"))
                .arg("--ledger")
                .arg(dir.join("first")),
        );
        Self { setup, program, identity, vote, faucet, recipient }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.setup.dir.path().join(name)
    }

    /// Copies the files that a new ledger of this cluster needs.
    pub fn put_genesis_into(&self, ledger: &Path) {
        for file in ["genesis.bin", "genesis.tar.bz2"] {
            fs::copy(self.path("first").join(file), ledger.join(file)).expect("copied");
        }
    }

    /// Starts the validator that votes and makes blocks.
    pub fn start_first(&self, ledger: &Path, flags: &[String]) -> Node {
        let mut command = self.command(ledger, &self.identity, FIRST_GOSSIP, FIRST_RPC);
        command.args(["--vote-account", &self.vote.address, "--full-rpc-api", "--no-wait-for-vote-to-start-leader"]);
        Node::start(command.args(flags), &self.program, ledger, FIRST_RPC)
    }

    /// Starts a validator that follows the first one, with its own key and the minimal RPC service.
    pub fn start_follower(&self, ledger: &Path, flags: &[String]) -> Node {
        let identity = Key::new(self.setup.dir.path(), &format!("{}-identity", name(ledger)));
        let mut command = self.command(ledger, &identity, FIRST_GOSSIP + 100, FIRST_RPC + 100);
        command.args(["--no-voting", "--no-genesis-fetch", "--known-validator", &self.identity.address]);
        command.args(["--entrypoint", &format!("127.0.0.1:{FIRST_GOSSIP}")]);
        // The flags that slotpress prints include `--no-snapshot-fetch`.
        Node::start(command.args(flags), &self.program, ledger, FIRST_RPC + 100)
    }

    fn command(&self, ledger: &Path, identity: &Key, gossip_port: u16, rpc_port: u16) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--identity").arg(&identity.file).arg("--log").arg(log_path(ledger));
        command.args(["--bind-address", "127.0.0.1", "--allow-private-addr", "--no-port-check", "--no-xdp"]);
        command.args(["--no-poh-speed-test", "--no-os-network-limits-test"]);
        command.args(["--gossip-port", &gossip_port.to_string(), "--rpc-port", &rpc_port.to_string()]);
        command.args(["--dynamic-port-range", &format!("{}-{}", gossip_port + 1, gossip_port + 60)]);
        command.args(["--full-snapshot-interval-slots", &FULL_INTERVAL_SLOTS.to_string()]);
        command.args(["--snapshot-interval-slots", &INCREMENTAL_INTERVAL_SLOTS.to_string()]);
        command.env("RUST_LOG", "warn,solana_runtime=info,agave_snapshots=info,solana_core::validator=info");
        command
    }
}

fn log_path(ledger: &Path) -> PathBuf {
    ledger.with_extension("log")
}

fn log_text(ledger: &Path) -> String {
    String::from_utf8_lossy(&fs::read(log_path(ledger)).unwrap_or_default()).into_owned()
}

/// Returns the hashes of all banks that a validator has frozen, from its log.
pub fn bank_hashes(ledger: &Path) -> BTreeMap<u64, String> {
    let text = log_text(ledger);
    let frozen = text.lines().filter_map(|line| line.split_once("bank frozen: ")?.1.split_once(" hash: "));
    frozen.filter_map(|(slot, rest)| Some((slot.parse().ok()?, rest.split(' ').next()?.to_string()))).collect()
}

/// A running validator.
pub struct Node {
    running: Running,
    program: PathBuf,
    pub ledger: PathBuf,
    pub rpc_port: u16,
    started: Instant,
}

impl Node {
    fn start(command: &mut Command, program: &Path, ledger: &Path, rpc_port: u16) -> Self {
        let output = || File::options().create(true).append(true).open(ledger.with_extension("out")).expect("open");
        let child = command.stdin(Stdio::null()).stdout(output()).stderr(output()).spawn().expect("started");
        Self {
            running: Running(child),
            program: program.to_path_buf(),
            ledger: ledger.to_path_buf(),
            rpc_port,
            started: Instant::now(),
        }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.rpc_port)
    }

    /// Calls the node's RPC service. Returns its result or error, or `None` without an answer.
    pub fn call(&self, method: &str, parameters: Value) -> Option<Result<Value, Value>> {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters});
        let answer = minreq::post(self.url()).with_timeout(20).with_json(&call).ok()?.send().ok()?;
        let mut answer: Value = answer.json().ok()?;
        Some(if answer["error"].is_null() { Ok(answer["result"].take()) } else { Err(answer["error"].take()) })
    }

    /// Calls the node's RPC service. Returns `None` without a result.
    pub fn ask(&self, method: &str, parameters: Value) -> Option<Value> {
        self.call(method, parameters)?.ok()
    }

    pub fn slot(&self, commitment: &str) -> Option<u64> {
        self.ask("getSlot", json!([{"commitment": commitment}]))?.as_u64()
    }

    /// Waits until `find` returns a value. The validator must keep running.
    pub fn wait_for<T>(&mut self, what: &str, mut find: impl FnMut(&Self) -> Option<T>) -> T {
        wait_within(STEP_LIMIT, what, || {
            if let Some(status) = self.running.0.try_wait().expect("a child") {
                panic!("the validator ended while the test waited for {what}, {status}: {}", self.last_lines());
            }
            find(self)
        })
    }

    /// Returns the last lines of the validator's output and log.
    fn last_lines(&self) -> String {
        let parts = ["out", "log"].map(|extension| {
            let text = fs::read(self.ledger.with_extension(extension)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(15)..].join("\n")
        });
        parts.join("\n")
    }

    pub fn log_text(&self) -> String {
        log_text(&self.ledger)
    }

    pub fn bank_hashes(&self) -> BTreeMap<u64, String> {
        bank_hashes(&self.ledger)
    }

    pub fn time_since_start(&self) -> Duration {
        self.started.elapsed()
    }

    /// Stops the validator gracefully, and returns its ledger. `agave-validator exit` must not wait: it would
    /// wait until this test has reaped the process.
    pub fn exit(mut self) -> PathBuf {
        let exit = ["exit", "--force", "--no-wait-for-exit"];
        run_program(Command::new(&self.program).arg("--ledger").arg(&self.ledger).args(exit));
        let status = wait_within(STEP_LIMIT, "the validator's end", || self.running.0.try_wait().expect("a child"));
        assert!(status.success(), "{status}: {}", self.last_lines());
        self.ledger.clone()
    }
}
