//! Runs the recipe in docs/export.md for PostgreSQL on a server.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::common::*;
use crate::export::{PAGE, export_rows, fixture_pair};

/// User and group of the server, which refuses to run as root.
const NOBODY: u32 = 65534;

/// A server with an empty database that listens on a socket in its directory.
struct Postgres {
    dir: TempDir,
    server: Child,
}

impl Postgres {
    fn start() -> Self {
        let dir = temp_dir();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("readable");
        let is_root = rustix::process::geteuid().is_root();
        let data = dir.path().join("data");
        fs::create_dir(&data).expect("made");
        if is_root {
            chown(dir.path(), Some(NOBODY), Some(NOBODY)).expect("given");
            chown(&data, Some(NOBODY), Some(NOBODY)).expect("given");
        }
        let command = |name: &str| {
            let program = server_programs_dir().join(name);
            if !is_root {
                return Command::new(program);
            }
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
            command
        };
        let mut initdb = command("initdb");
        initdb.args(["--auth=trust", "--username=postgres", "--no-sync", "--pgdata", text(&data)]);
        let output = initdb.env("LC_ALL", "C").output().expect("runs");
        assert!(output.status.success(), "{output:?}");
        let mut server = command("postgres");
        server.args(["-D", text(&data), "-k", text(dir.path()), "-c", "listen_addresses=", "-c", "fsync=off"]);
        let server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
        let this = Self { dir, server };
        wait_for("the database", || this.run_script("psql -c 'select 1'").status.success());
        this
    }

    /// Runs a script whose `psql` talks to this server, and whose `slotpress` is the tested program.
    fn run_script(&self, script: &str) -> std::process::Output {
        let programs = slotpress_path().parent().expect("a directory").to_path_buf();
        let path = format!("{}:{}", text(&programs), std::env::var("PATH").expect("set"));
        let mut command = Command::new("bash");
        command.args(["-c", script]).env("PATH", path).env("PGUSER", "postgres").env("PGHOST", self.dir.path());
        command.output().expect("runs")
    }

    fn query(&self, query: &str) -> String {
        let output = self.run_script(&format!("psql -At -c \"{query}\""));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text").trim().to_string()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.server);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let _ = self.server.wait();
    }
}

/// Returns the directory of the server's programs, which Debian keeps out of `PATH`.
fn server_programs_dir() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin")).find(|dir| dir.join("initdb").exists());
    found.unwrap_or_else(|| PathBuf::from("/usr/bin"))
}

/// Returns the recipe for these archives.
fn recipe_for(full: &Path, incremental: &Path) -> String {
    let block = PAGE.split("```sh\n").skip(1).find(|block| block.contains("\\copy")).expect("a recipe");
    let block = block.split("```").next().expect("its lines");
    block.replace("FULL", text(full)).replace("INCREMENTAL", text(incremental))
}

#[test]
fn a_database_is_filled_only_with_a_checked_state() {
    needs!("psql");
    let postgres = Postgres::start();
    let [full, incremental] = fixture_pair("agave-4.2.2");
    let dir = temp_dir();
    let damaged = dir.path().join(name(&full));
    let mut content = fs::read(&full).expect("read");
    let half = content.len() / 2;
    content[half] ^= 0x40;
    fs::write(&damaged, content).expect("written");
    let output = postgres.run_script(&recipe_for(&damaged, &incremental));
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(postgres.query("select count(*) from pg_tables where tablename = 'accounts'"), "0");
    let output = postgres.run_script(&recipe_for(&full, &incremental));
    assert!(output.status.success(), "{output:?}");
    let [count, lamports] =
        ["count(*)", "sum(lamports)"].map(|expression| postgres.query(&format!("select {expression} from accounts")));
    let expected = expected_facts(AGAVE_4_2, 40);
    assert_eq!(count, export_rows(&[&full, &incremental], &[]).len().to_string());
    assert_eq!((count, lamports), (expected["accounts"].to_string(), expected["capitalization"].to_string()));
}
