//! `serve` and `bootstrap` together: a server that is killed and started again under twenty nodes.

use {
    super::site::*,
    crate::common::*,
    std::{
        fs,
        net::{SocketAddr, TcpListener, TcpStream},
        path::Path,
        process::{Child, Command, Stdio},
        thread,
        time::{Duration, Instant},
    },
};

/// Nodes that bootstrap at the same time.
const NODES: usize = 20;

fn start(dir: &Path, address: SocketAddr) -> Child {
    let child = Command::new(slotpress_path())
        .args(["-q", "serve", "--listen", &address.to_string(), "--max-connections-per-client", "512"])
        // All of them need about three seconds.
        .args(["--max-rate", "32MiB"])
        .arg(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let until = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < until, "it does not listen");
        thread::sleep(Duration::from_millis(20));
    }
    child
}

#[test]
fn nodes_outlive_their_server() {
    let files = larger_archive();
    let (www, nodes) = (temp_dir(), temp_dir());
    for (name, bytes) in &files {
        fs::write(www.path().join(name), bytes).expect("written");
    }
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let url = format!("http://{address}");
    let mut server = start(www.path(), address);
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
        thread::sleep(Duration::from_millis(1200));
        server.kill().expect("killed");
        server.wait().expect("ends");
        thread::sleep(Duration::from_millis(300));
        server = start(www.path(), address);
    }
    let mut trees = Vec::new();
    for (node, bootstrap) in bootstraps.into_iter().enumerate() {
        let output = bootstrap.wait_with_output().expect("ends");
        assert_eq!(output.status.code(), Some(0), "node {node}: {}", String::from_utf8_lossy(&output.stderr));
        trees.push(ledger_tree(&nodes.path().join(node.to_string())));
    }
    assert!(trees.windows(2).all(|pair| pair[0] == pair[1]), "all have the same ledger");
    server.kill().expect("killed");
    server.wait().expect("ends");
}
