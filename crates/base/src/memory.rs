//! Finds how much memory the machine, control groups and resource limits leave to this process.
//! Linux only; unknown on other systems.

#![warn(missing_docs)]

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

/// Returns how many bytes can be allocated without swapping or reaching a [`MemoryLimit`], or `None` if
/// the system does not report this.
pub fn available_bytes() -> Option<u64> {
    let available = available_bytes_below(Path::new("/"))?;
    Some(tightest_limit().map_or(available, |limit| limit.left_bytes.min(available)))
}

/// A memory limit of this process. Beyond it, allocations fail or the process is killed.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Name of the limit, and where an operator finds it.
    pub name: &'static str,
    pub left_bytes: u64,
}

/// Returns the limit with the fewest bytes left, if there is any.
pub fn tightest_limit() -> Option<MemoryLimit> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resource = |resource, field, name| {
        let used_bytes = kib_field(&status, field).unwrap_or(0);
        let left_bytes = getrlimit(resource).current?.saturating_sub(used_bytes);
        Some(MemoryLimit { name, left_bytes })
    };
    let group = left_in_all_groups(Path::new("/")).map(|left_bytes| MemoryLimit {
        name: "the memory limit of the control group (MemoryMax of the service)",
        left_bytes,
    });
    let limits = [
        resource(Resource::As, "VmSize:", "the limit of address space (ulimit -v)"),
        resource(Resource::Data, "VmData:", "the limit of data (ulimit -d)"),
        group,
    ];
    limits.into_iter().flatten().min_by_key(|limit| limit.left_bytes)
}

fn available_bytes_below(root: &Path) -> Option<u64> {
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let available = kib_field(&meminfo, "MemAvailable:")?;
    Some(left_in_all_groups(root).unwrap_or(u64::MAX).min(available))
}

/// Returns the fewest bytes left in the control group (version 2) of this process and its ancestors.
/// In a container, the group's path may be the host's. Then only the mounted root exists, which is
/// the container's group.
fn left_in_all_groups(root: &Path) -> Option<u64> {
    let memberships = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let group = memberships.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = root.join("sys/fs/cgroup");
    Path::new(group).ancestors().filter_map(|dir| left_in_group(&mount.join(dir))).min()
}

fn left_in_group(dir: &Path) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
    // A process that exceeds `memory.high` is not killed, but slowed down almost to a halt. Without a
    // limit, the file contains `max`.
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let limit = ["memory.max", "memory.high"].into_iter().filter_map(number).min()?;
    let usage = number("memory.current")?;
    let statistics = read("memory.stat").unwrap_or_default();
    // The kernel can reclaim file pages.
    let pages_of = |name: &str| {
        let line = statistics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|bytes| bytes.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let file_pages = pages_of("inactive_file").saturating_add(pages_of("active_file"));
    Some(limit.saturating_sub(usage.saturating_sub(file_pages)))
}

fn kib_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_in_kib_are_parsed() {
        assert_eq!(kib_field("MemTotal:  9 kB\nMemAvailable:    8 kB\n", "MemAvailable:"), Some(8192));
        assert_eq!(kib_field("MemAvailable: x kB", "MemAvailable:"), None);
        assert_eq!(kib_field("", "VmHWM:"), None);
    }

    /// Returns the available bytes with these files, and 1 GiB free on the machine.
    fn available(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().expect("a directory");
        for (path, content) in [("proc/meminfo", "MemAvailable: 1048576 kB\n")].iter().chain(files) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("created");
            fs::write(path, content).expect("written");
        }
        available_bytes_below(root.path())
    }

    #[test]
    fn control_groups_without_a_limit_do_not_count() {
        assert_eq!(available(&[]), Some(1 << 30));
        assert_eq!(available(&[("proc/meminfo", "MemTotal: 1 kB\n")]), None);
        let unlimited = [
            ("proc/self/cgroup", "4:memory:/a\n3:cpu:/b\n0::/a\n"),
            ("sys/fs/cgroup/a/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.current", "5000\n"),
        ];
        assert_eq!(available(&unlimited), Some(1 << 30));
        assert_eq!(available(&[("proc/self/cgroup", "nonsense\n::\n0:\n")]), Some(1 << 30));
    }

    #[test]
    fn the_tightest_control_group_counts() {
        let service = [
            ("proc/self/cgroup", "0::/system.slice/slotpress.service\n"),
            ("sys/fs/cgroup/system.slice/slotpress.service/memory.max", "10000\n"),
            ("sys/fs/cgroup/system.slice/slotpress.service/memory.current", "7000\n"),
            (
                "sys/fs/cgroup/system.slice/slotpress.service/memory.stat",
                "anon 3\ninactive_file 900\nactive_file 100\n",
            ),
        ];
        assert_eq!(available(&service), Some(4000), "the kernel can reclaim file pages");
        let high = ("sys/fs/cgroup/system.slice/slotpress.service/memory.high", "8000\n");
        assert_eq!(available(&[&service[..], &[high]].concat()), Some(2000));
        let around =
            [("sys/fs/cgroup/system.slice/memory.max", "9000"), ("sys/fs/cgroup/system.slice/memory.current", "8999")];
        assert_eq!(available(&[&service[..], &around].concat()), Some(1), "the group around it has less");
        let full = ("sys/fs/cgroup/system.slice/slotpress.service/memory.max", "10\n");
        assert_eq!(available(&[&service[..], &[full]].concat()), Some(0));
        let container = [
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "500\n"),
            ("sys/fs/cgroup/memory.current", "100\n"),
        ];
        assert_eq!(available(&container), Some(400));
    }
}
