//! Many nodes fetch published archives at the same time: from the bucket, and through a web server in
//! front of the bucket's directory.

use std::process::{Child, Stdio};

use crate::common::servers::{Nginx, free_port};
use crate::common::site::{files_in, ledger_tree, run_to_json};
use crate::common::*;
use crate::publish::setup::*;
use crate::publish::survives::stores;
use crate::stores::gateway::Gateway;
use crate::stores::{command, target};

const NODES: usize = 30;

#[test]
fn thirty_nodes_fetch_published_archives_at_once() {
    needs!("versitygw", "nginx");
    let (gateway, setup) = (Gateway::start(), Setup::with_pair());
    let published = stores::publish_once_to_bucket(&gateway, &setup, &[]);
    assert!(published.status.success(), "{}", String::from_utf8_lossy(&published.stderr));
    let mirror = gateway.bucket().join("mainnet");
    let port = free_port();
    let root = mirror.display();
    let server = format!("server {{ listen 127.0.0.1:{port}; root {root}; }}");
    let _nginx = Nginx::start(port, "", &server);

    // nginx lists no directories, so `list` reads the published index.
    let mirror_url = format!("http://127.0.0.1:{port}");
    for url in [mirror_url.clone(), format!("{mirror_url}/")] {
        let listed = run_to_json(&["list", &url]);
        assert_eq!(listed.code, Some(0), "{listed:?}");
        assert_eq!(listed.line("choice")["incremental"], INCREMENTAL_26_40, "{listed:?}");
    }

    let dir = temp_dir();
    let expected = dir.path().join("expected");
    let pair = [FULL_26, INCREMENTAL_26_40].map(|name| mirror.join(name));
    slotpress().arg("restore").args(pair).arg("--ledger").arg(&expected).assert().success();
    let expected = ledger_tree(&expected);
    for source in [target(), mirror_url] {
        let ledger = |node: usize| dir.path().join(node.to_string());
        let start = |node: usize| {
            let mut command = command(&gateway, &["-q", "bootstrap", &source, "--threads", "1", "--ledger"]);
            command
                .arg(ledger(node))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("starts")
        };
        let nodes: Vec<Child> = (0..NODES).map(start).collect();
        for (node, child) in nodes.into_iter().enumerate() {
            let ended = child.wait_with_output().expect("ended");
            assert!(ended.status.success(), "{source}, {node}: {}", String::from_utf8_lossy(&ended.stderr));
            assert!(ledger_tree(&ledger(node)) == expected, "{source}, {node}: the ledger differs");
            std::fs::remove_dir_all(ledger(node)).expect("removed");
        }
    }
    assert_eq!(files_in(&mirror).len(), 3, "the archives and latest.json, and nothing that a reader left");
}
