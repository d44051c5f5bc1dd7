//! Archives appear and disappear, and the server is started and stopped.

use std::fs;
use std::io::Read;
use std::time::Duration;

use crate::common::served::{ServeProcess, large_archive, read_head, send, two_archives};
use crate::common::*;

#[test]
fn new_archives_are_served() {
    let server = ServeProcess::start(&[]);
    let (name, content) = large_archive(server.dir.path(), 60, 1 << 20);
    wait_for("the archive", || server.get(&format!("/{name}"), "").body == content);
    assert_eq!(server.get("/snapshot.tar.bz2", "").header("location"), format!("/{name}"));
    assert_eq!(server.get("/incremental-snapshot.tar.bz2", "").status, 404, "no incremental archive is based on it");
    fs::create_dir(server.path("remote")).expect("created");
    let (downloaded, _) = large_archive(&server.path("remote"), 70, 1 << 10);
    let newest = || server.get("/snapshot.tar.bz2", "").header("location").to_string();
    wait_for("the downloaded archive", || newest() == format!("/{downloaded}"));
    assert_eq!(server.get(&format!("/{downloaded}"), "").status, 200);
    assert_eq!(server.get(&format!("/remote/{downloaded}"), "").status, 404);
}

#[test]
fn a_pruned_archive_is_sent_to_its_end() {
    let dir = two_archives();
    let (name, content) = large_archive(dir.path(), 60, 32 << 20);
    let server = ServeProcess::start_in(dir, &[]);
    let mut stream = server.connect();
    send(&mut stream, "GET", &format!("/{name}"), "");
    read_head(&mut stream).expect("a head");
    large_archive(server.dir.path(), 80, 1 << 10);
    let flags = ["--keep-full", "1", "--keep-incremental", "0"];
    slotpress().arg("prune").arg(server.dir.path()).args(flags).assert().success();
    assert!(!server.path(&name).exists());
    let mut body = vec![0; content.len()];
    stream.read_exact(&mut body).expect("all of it");
    assert!(body == content);
    wait_for("the end of the archive", || server.get(&format!("/{name}"), "").status == 404);
}

#[test]
fn a_transfer_is_finished_before_the_server_ends() {
    let dir = two_archives();
    let (name, content) = large_archive(dir.path(), 60, 32 << 20);
    let mut server = ServeProcess::start_in(dir, &["--grace", "50s"]);
    let mut stream = server.connect();
    let idle = server.connect();
    send(&mut stream, "GET", &format!("/{name}"), "");
    read_head(&mut stream).expect("a head");
    server.signal(rustix::process::Signal::TERM);
    server.wait_for_line(&["stopping"]);
    wait_for("the end of the listener", || std::net::TcpStream::connect(server.address).is_err());
    let mut body = vec![0; content.len()];
    stream.read_exact(&mut body).expect("all of it");
    assert!(body == content);
    assert!(server.wait().success());
    drop(idle);
}

#[test]
fn transfers_are_cut_off_after_the_grace_period() {
    let dir = two_archives();
    let (name, _) = large_archive(dir.path(), 60, 32 << 20);
    let mut server = ServeProcess::start_in(dir, &["--grace", "1s"]);
    let mut stream = server.connect();
    send(&mut stream, "GET", &format!("/{name}"), "");
    read_head(&mut stream).expect("a head");
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait().success());
    server.wait_for_line(&["\"served\"", "\"complete\":false"]);
}

#[test]
fn the_service_manager_is_notified() {
    let dir = temp_dir();
    let path = dir.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).expect("bound");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    let archives = two_archives();
    let mut child = std::process::Command::new(slotpress_path())
        .args(["-q", "serve", "--listen", "127.0.0.1:0"])
        .arg(archives.path())
        .env("NOTIFY_SOCKET", &path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("started");
    let notification = || {
        let mut buffer = [0; 200];
        let length = socket.recv(&mut buffer).expect("notified");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    assert!(notification().contains("READY=1"));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .expect("sent");
    // Watchdog notifications may come first.
    while !notification().contains("STOPPING=1") {}
    assert!(child.wait().expect("ended").success());
}

#[test]
fn wrong_options_fail_at_the_start() {
    let dir = two_archives();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("an address").to_string();
    for (arguments, code, part) in [
        (vec!["--listen", &address], 1, "cannot listen on"),
        (vec!["--listen", "127.0.0.1:0", "--tls-cert", "/none", "--tls-key", "/none"], 1, "/none"),
        (vec!["--tls-cert", "/none"], 2, "--tls-key"),
        (vec!["--max-rate", "1"], 2, "is too slow"),
        (vec!["--listen", "here"], 2, "--listen"),
    ] {
        let output = slotpress().arg("serve").arg(dir.path()).args(&arguments).output().expect("run");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    }
    slotpress().args(["serve", "--listen", "127.0.0.1:0", "/none"]).assert().failure().code(1);
}

/// Pages that were in the cache stay there. Pages that transfers read are dropped.
#[test]
fn the_page_cache_is_left_as_it_was() {
    needs!("fincore");
    const BYTES: usize = 48 << 20;
    const WARM_BYTES: usize = 8 << 20;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (name, content) = large_archive(dir.path(), 60, BYTES);
    let path = dir.path().join(&name);
    let file = fs::File::open(&path).expect("opened");
    file.sync_all().expect("on disk");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("dropped");
    let resident_bytes = || {
        let output =
            std::process::Command::new("fincore").args(["-b", "-n", "-o", "RES"]).arg(&path).output().expect("run");
        String::from_utf8_lossy(&output.stdout).trim().parse::<usize>().expect("a number")
    };
    assert_eq!(resident_bytes(), 0, "pages of {} cannot be dropped: it must be on a disk", path.display());
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).expect("taken");
    // The system may drop pages that were just read, so they are read again.
    let mut warm = vec![0; WARM_BYTES];
    wait_for("the pages that are read", || {
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut warm, 0).expect("read");
        resident_bytes() >= WARM_BYTES
    });
    let before = resident_bytes();
    let server = ServeProcess::start_in(dir, &[]);
    std::thread::scope(|scope| {
        for start in [0, 0, 30 << 20] {
            let server = &server;
            let content = &content;
            let name = &name;
            scope.spawn(move || {
                let response = server.get(&format!("/{name}"), &format!("Range: bytes={start}-\r\n"));
                assert!(response.body == content[start..]);
            });
        }
    });
    // Pages that are on their way through a socket cannot be dropped, and the system itself may drop
    // pages. The test therefore requires only that most cold pages go, and that most warm pages stay.
    wait_for("the cold pages to go", || resident_bytes() <= before + BYTES / 8);
    assert!(resident_bytes() >= WARM_BYTES / 2, "only {} of {before} bytes are left", resident_bytes());
}
