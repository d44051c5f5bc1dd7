//! `serve` and `bootstrap` together: a server is killed and started again while twenty nodes bootstrap
//! from it.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::site::*;
use crate::common::*;

/// Nodes that bootstrap at the same time.
const NODES: usize = 20;

fn start_server(dir: &Path, address: SocketAddr) -> Child {
    let child = Command::new(slotpress_path())
        .args(["-q", "serve", "--listen", &address.to_string(), "--max-connections-per-client", "512"])
        // At this rate, the nodes need about three seconds.
        .args(["--max-rate", "32MiB"])
        .arg(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    wait_for("the server", || TcpStream::connect(address).is_ok());
    child
}

/// Estimates how many bytes of archives have arrived at a node. The files have their full length from the
/// start, so this counts the blocks that do not begin with zeros.
fn estimate_arrived_bytes(ledger: &Path) -> u64 {
    const STEP_BYTES: u64 = 16 * 1024;
    let files = fs::read_dir(ledger).into_iter().flatten().flatten();
    let archives = files.filter(|file| file.file_name().to_string_lossy().contains("snapshot-"));
    let steps = archives.filter_map(|file| fs::File::open(file.path()).ok()).flat_map(|file| {
        (0..).map_while(move |step| {
            let mut bytes = [0; 16];
            file.read_exact_at(&mut bytes, step * STEP_BYTES).ok().map(|()| bytes)
        })
    });
    steps.filter(|bytes| bytes.iter().any(|byte| *byte != 0)).count() as u64 * STEP_BYTES
}

#[test]
fn nodes_survive_kills_of_their_server() {
    let files = larger_archive();
    let www = temp_dir();
    let nodes = temp_dir();
    for (name, bytes) in &files {
        fs::write(www.path().join(name), bytes).expect("written");
    }
    // The servers need the same port. It is free now.
    let address = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let url = format!("http://{address}");
    let length_bytes = files.values().map(Vec::len).sum::<usize>() as u64;
    let arrived =
        || (0..NODES).map(|node| estimate_arrived_bytes(&nodes.path().join(node.to_string()))).collect::<Vec<_>>();
    let mut server = start_server(www.path(), address);
    let bootstraps: Vec<Child> = (0..NODES)
        .map(|node| {
            Command::new(slotpress_path())
                .args(["bootstrap", &url, "--streams", "4", "--threads", "1", "-q", "--ledger"])
                .arg(nodes.path().join(node.to_string()))
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("starts")
        })
        .collect();
    for _ in 0..2 {
        // Between two kills, wait until each node has received another eighth: a node gives up on a server
        // that sends nothing between two failures.
        let before = arrived();
        let more = length_bytes / 8;
        let nearly_all = length_bytes / 4 * 3;
        wait_for("an eighth more at each node", || {
            before.iter().zip(arrived()).all(|(before, now)| now >= nearly_all.min(before + more))
        });
        server.kill().expect("killed");
        server.wait().expect("ends");
        server = start_server(www.path(), address);
    }
    let mut trees = Vec::new();
    for (node, bootstrap) in bootstraps.into_iter().enumerate() {
        let output = bootstrap.wait_with_output().expect("ends");
        assert_eq!(output.status.code(), Some(0), "node {node}: {}", String::from_utf8_lossy(&output.stderr));
        trees.push(ledger_tree(&nodes.path().join(node.to_string())));
    }
    assert!(trees.windows(2).all(|pair| pair[0] == pair[1]), "the ledgers differ");
    server.kill().expect("killed");
    server.wait().expect("ends");
}
