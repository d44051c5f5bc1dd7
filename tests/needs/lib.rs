//! `needs!("strace")` at the start of a test skips the test if the program is missing, and prints a message. If
//! `CI` is set, the test fails instead.
//!
//! `needs!("root")` and `needs!("sys_admin")` check rights, `needs!("loop_xfs")` checks whether the kernel can mount an
//! XFS file system that is in a file, and `needs!("engines")` checks for packages of Python.

use std::env;
use std::fs;
use std::io::{Write, stderr};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// Programs that tests may need besides coreutils and a shell. `.ci/install` installs them.
const PROGRAMS: &[&str] = &[
    "apache2",
    "aria2c",
    "bsdtar",
    "buildah",
    "bzip2",
    "cc",
    "chromedriver",
    "chromium",
    "curl",
    "fincore",
    "gzip",
    "lz4",
    "mkfs.xfs",
    "mount",
    "nginx",
    "openssl",
    "prlimit",
    "psql",
    "python3",
    "pzstd",
    "strace",
    "tar",
    "umount",
    "versitygw",
    "wget",
    "zstd",
];

/// Number of the bit for the capability that mounting requires; see capabilities(7).
const CAP_SYS_ADMIN: u32 = 21;

/// Skips a test if one of these programs or rights is missing.
#[macro_export]
macro_rules! needs {
    ($($need:literal),+) => {
        // The type name of a closure begins with the name of the function that contains it: the test.
        if $crate::is_skipped(&[$($need),+], std::any::type_name_of_val(&|| ())) {
            return;
        }
    };
}

/// Returns true, and prints the reason, if the test must be skipped. `closure` is the type name of a closure in the
/// test.
pub fn is_skipped(needs: &[&str], closure: &str) -> bool {
    let Some((need, why)) = needs.iter().find_map(|need| Some((*need, reason_to_skip(need)?))) else { return false };
    let is_ci = env::var_os("CI").is_some_and(|value| !value.is_empty());
    // Features of the kernel cannot be installed. `.ci/test --as-root` runs the tests that need root.
    let may_be_missing = needs.contains(&"loop_xfs") || ["root", "sys_admin"].contains(&need) && !is_root();
    assert!(!is_ci || may_be_missing, "{why}, and tests are not skipped in CI: run .ci/install");
    let test = closure.trim_end_matches("::{{closure}}");
    // The test runner hides the text of `eprintln!` unless the test fails.
    let _ = writeln!(stderr(), "skipped: {test}: {why}");
    true
}

fn reason_to_skip(need: &str) -> Option<String> {
    let (is_available, why) = match need {
        "root" => (is_root(), "only root can do this".to_string()),
        "sys_admin" => (has_mount_capability(), "this needs the right to mount".to_string()),
        "loop_xfs" => (can_mount_xfs_files(), "the kernel has no loop devices, or no xfs".to_string()),
        "engines" => {
            (has_engines(), "python3 cannot import duckdb, pyarrow, polars, datafusion and deltalake".to_string())
        }
        program => {
            assert!(PROGRAMS.contains(&program), "{program} is not in the list of tests/needs/lib.rs");
            (is_installed(program), format!("{program} is not installed"))
        }
    };
    (!is_available).then_some(why)
}

fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| {
        fs::metadata(dir.join(program))
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    })
}

/// True if Python has the packages. `ENGINES_PYTHON` may name another program than `python3`.
fn has_engines() -> bool {
    let python = env::var_os("ENGINES_PYTHON").unwrap_or("python3".into());
    let mut command = std::process::Command::new(python);
    let output = command.args(["-c", "import duckdb, pyarrow, polars, datafusion, deltalake"]).output();
    output.is_ok_and(|output| output.status.success())
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn can_mount_xfs_files() -> bool {
    let file_systems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    fs::exists("/dev/loop-control").unwrap_or(false) && file_systems.lines().any(|line| line.trim() == "xfs")
}

fn has_mount_capability() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    capabilities
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .is_some_and(|set| set & (1 << CAP_SYS_ADMIN) != 0)
}
