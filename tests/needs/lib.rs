//! `#[needs("strace")]` above `#[test]`: the test is reported as ignored, with the reason, where the program is missing.
//! `#[needs(root)]` and `#[needs(sys_admin)]` do the same for rights, `#[needs(loop_xfs)]` for xfs in a file.
//!
//! Rust's test harness cannot ignore a test while it runs, so this is decided when the tests are compiled. With another
//! `PATH` they are compiled anew. [`missing!`] lets one test check that the decision still holds.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use proc_macro::{TokenStream, TokenTree};

/// All programs that tests may need, beside coreutils and a shell. `.ci/install` installs them.
const PROGRAMS: &[&str] = &[
    "apache2",
    "aria2c",
    "bsdtar",
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
    "python3",
    "pzstd",
    "strace",
    "tar",
    "umount",
    "versitygw",
    "wget",
    "zstd",
];

/// The bit of the right to mount, in the sets of capabilities(7).
const CAP_SYS_ADMIN: u32 = 21;

/// Ignores the test where one of these programs or rights is missing.
#[proc_macro_attribute]
pub fn needs(arguments: TokenStream, test: TokenStream) -> TokenStream {
    // Another `PATH` compiles it anew.
    let mut attribute = "const _: Option<&str> = option_env!(\"PATH\");".to_string();
    let mut is_ignored = false;
    for argument in arguments {
        let text = argument.to_string();
        let (is_there, why) = match (&argument, text.trim_matches('"')) {
            (TokenTree::Literal(_), program) if PROGRAMS.contains(&program) => {
                (is_installed(program), format!("{program} is not installed"))
            }
            (TokenTree::Ident(_), "root") => (is_root(), "only root can do this".to_string()),
            (TokenTree::Ident(_), "sys_admin") => (may_mount(), "this needs the right to mount".to_string()),
            (TokenTree::Ident(_), "loop_xfs") => {
                (may_loop_xfs(), "the kernel has no loop devices, or no xfs".to_string())
            }
            (TokenTree::Punct(_), ",") => continue,
            _ => (true, String::new()), // refused below
        };
        let is_known = !why.is_empty();
        if !is_known {
            let error =
                format!("compile_error!(\"{} is not in the list of tests/needs/lib.rs\");", text.escape_default());
            return error.parse().unwrap_or_default();
        }
        if !is_there && !is_ignored {
            attribute += &format!("#[ignore = \"{why}\"]");
            is_ignored = true;
        }
    }
    let mut out: TokenStream = attribute.parse().unwrap_or_default();
    out.extend(test);
    out
}

/// The programs that were missing when the tests were compiled: a slice of names.
#[proc_macro]
pub fn missing(_: TokenStream) -> TokenStream {
    let names: Vec<&str> = PROGRAMS.iter().copied().filter(|program| !is_installed(program)).collect();
    format!("{{ let names: &[&str] = &{names:?}; names }}").parse().unwrap_or_default()
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| {
        fs::metadata(dir.join(program)).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    })
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn may_loop_xfs() -> bool {
    let file_systems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    fs::exists("/dev/loop-control").unwrap_or(false) && file_systems.lines().any(|line| line.trim() == "xfs")
}

fn may_mount() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    capabilities
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .is_some_and(|set| set & (1 << CAP_SYS_ADMIN) != 0)
}
