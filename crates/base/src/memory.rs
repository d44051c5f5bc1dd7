//! Finds how much memory the machine, control groups and resource limits leave to this process. Works
//! only on Linux.

#![warn(missing_docs)]

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

/// Returns how many bytes can be allocated without swapping or reaching a [`MemoryLimit`], or `None` if
/// the system does not report this.
pub fn available_bytes() -> Option<u64> {
    let machine_bytes = machine_available_bytes()?;
    Some(tightest_limit().map_or(machine_bytes, |limit| limit.left_bytes.min(machine_bytes)))
}

/// Returns how many bytes this machine can allocate without swapping, or `None` if the system does not
/// report this. Ignores the limits of this process.
pub fn machine_available_bytes() -> Option<u64> {
    kib_field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// A memory limit of this process. Beyond the limit, allocations fail, or the kernel kills the process
/// or, at a soft limit, slows it down almost to a halt.
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
    let resource_limit = |resource, used_field, name| {
        let used_bytes = kib_field(&status, used_field).unwrap_or(0);
        let left_bytes = getrlimit(resource).current?.saturating_sub(used_bytes);
        Some(MemoryLimit { name, left_bytes })
    };
    let limits = [
        resource_limit(Resource::As, "VmSize:", "the address space limit (ulimit -v)"),
        resource_limit(Resource::Data, "VmData:", "the data limit (ulimit -d)"),
        tightest_group_limit(Path::new("/")),
    ];
    limits.into_iter().flatten().min_by_key(|limit| limit.left_bytes)
}

const GROUP_LIMIT: &str = "the memory limit of the control group (MemoryMax of the service)";
const SOFT_GROUP_LIMIT: &str = "the soft memory limit of the control group (MemoryHigh of the service)";

/// Returns the limit with the fewest bytes left in the control group (version 2) of this process and its
/// ancestors. In a container, the group's path may be the host's. Then only the mounted root exists,
/// which is the container's group.
fn tightest_group_limit(root: &Path) -> Option<MemoryLimit> {
    let memberships = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let group = memberships.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = root.join("sys/fs/cgroup");
    let limits = Path::new(group).ancestors().filter_map(|dir| group_limit(&mount.join(dir)));
    limits.min_by_key(|limit| limit.left_bytes)
}

/// Returns the lower of a control group's two limits. A process beyond `memory.max` is killed; a process
/// beyond `memory.high` is slowed down.
fn group_limit(dir: &Path) -> Option<MemoryLimit> {
    let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
    // Without a limit, the file contains `max`.
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let (limit_bytes, name) = match (number("memory.max"), number("memory.high")) {
        (max, Some(high)) if max.is_none_or(|max| high < max) => (high, SOFT_GROUP_LIMIT),
        (max, _) => (max?, GROUP_LIMIT),
    };
    let used_bytes = number("memory.current")?;
    let statistics = read("memory.stat").unwrap_or_default();
    let statistic = |name: &str| {
        let line = statistics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|bytes| bytes.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    // The kernel can reclaim the pages of files.
    let file_bytes = statistic("inactive_file").saturating_add(statistic("active_file"));
    Some(MemoryLimit { name, left_bytes: limit_bytes.saturating_sub(used_bytes.saturating_sub(file_bytes)) })
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

    fn tightest_group_limit_with(files: &[(&str, &str)]) -> Option<MemoryLimit> {
        let root = tempfile::tempdir().expect("a directory");
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("created");
            fs::write(path, content).expect("written");
        }
        tightest_group_limit(root.path())
    }

    fn left_bytes_with(files: &[(&str, &str)]) -> Option<u64> {
        tightest_group_limit_with(files).map(|limit| limit.left_bytes)
    }

    #[test]
    fn control_groups_without_a_limit_are_ignored() {
        assert_eq!(tightest_group_limit_with(&[]), None);
        let unlimited = [
            ("proc/self/cgroup", "4:memory:/a\n3:cpu:/b\n0::/a\n"),
            ("sys/fs/cgroup/a/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.current", "5000\n"),
        ];
        assert_eq!(tightest_group_limit_with(&unlimited), None);
        assert_eq!(tightest_group_limit_with(&[("proc/self/cgroup", "nonsense\n::\n0:\n")]), None);
    }

    #[test]
    fn the_tightest_limit_of_all_control_groups_is_found() {
        let service = [
            ("proc/self/cgroup", "0::/system.slice/slotpress.service\n"),
            ("sys/fs/cgroup/system.slice/slotpress.service/memory.max", "10000\n"),
            ("sys/fs/cgroup/system.slice/slotpress.service/memory.current", "7000\n"),
            (
                "sys/fs/cgroup/system.slice/slotpress.service/memory.stat",
                "anon 3\ninactive_file 900\nactive_file 100\n",
            ),
        ];
        let limit = tightest_group_limit_with(&service).expect("a limit");
        assert_eq!(limit, MemoryLimit { name: GROUP_LIMIT, left_bytes: 4000 }, "the kernel can reclaim file pages");
        let parent_group =
            [("sys/fs/cgroup/system.slice/memory.max", "9000"), ("sys/fs/cgroup/system.slice/memory.current", "8999")];
        assert_eq!(left_bytes_with(&[&service[..], &parent_group].concat()), Some(1), "the parent group has less left");
        let full = ("sys/fs/cgroup/system.slice/slotpress.service/memory.max", "10\n");
        assert_eq!(left_bytes_with(&[&service[..], &[full]].concat()), Some(0));
        let container = [
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "500\n"),
            ("sys/fs/cgroup/memory.current", "100\n"),
        ];
        assert_eq!(left_bytes_with(&container), Some(400));
    }

    #[test]
    fn a_soft_limit_has_its_own_name() {
        let service = [
            ("proc/self/cgroup", "0::/a\n"),
            ("sys/fs/cgroup/a/memory.max", "10000\n"),
            ("sys/fs/cgroup/a/memory.current", "6000\n"),
        ];
        for (high, name, left_bytes) in [
            ("8000\n", SOFT_GROUP_LIMIT, 2000),
            ("10000\n", GROUP_LIMIT, 4000),
            ("20000\n", GROUP_LIMIT, 4000),
            ("max\n", GROUP_LIMIT, 4000),
        ] {
            let files = [&service[..], &[("sys/fs/cgroup/a/memory.high", high)]].concat();
            assert_eq!(tightest_group_limit_with(&files), Some(MemoryLimit { name, left_bytes }), "{high}");
        }
        let only_soft = [service[0], service[2], ("sys/fs/cgroup/a/memory.high", "8000\n")];
        assert_eq!(
            tightest_group_limit_with(&only_soft),
            Some(MemoryLimit { name: SOFT_GROUP_LIMIT, left_bytes: 2000 })
        );
    }
}
