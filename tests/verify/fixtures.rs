//! Splits archives of the fixtures into their members, and assembles them again.

use std::path::{Path, PathBuf};

use slotpress_base::NoProgress;
use slotpress_format::LedgerPaths;
use slotpress_read::{CheckOptions, Failure, Rule, Snapshot, SnapshotClient, VerifyOptions, VerifyReport};

pub use crate::common::records::{RECORD_HEADER_BYTES, field, record_ranges, u64_at};
pub use crate::common::{FULL_26, INCREMENTAL_26_40};

pub fn agave_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/agave-4.2.2")
}

pub fn read_tar(name: &str) -> Vec<u8> {
    let bytes = std::fs::read(agave_dir().join(name)).expect("the fixture");
    zstd::stream::decode_all(bytes.as_slice()).expect("zstd")
}

/// A member of a tar stream, with the bytes of its header.
#[derive(Clone)]
pub struct Member {
    pub header: tar::Header,
    pub content: Vec<u8>,
}

impl Member {
    pub fn new(path: &str, kind: u8, content: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        // `set_path` would refuse the names of hostile archives.
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_cksum();
        Self { header, content: content.to_vec() }
    }

    pub fn path(&self) -> String {
        String::from_utf8_lossy(&self.header.path_bytes()).into_owned()
    }

    pub fn rename(&mut self, path: &str) {
        let bytes = self.header.as_mut_bytes();
        bytes[..100].fill(0);
        bytes[..path.len()].copy_from_slice(path.as_bytes());
        self.header.set_cksum();
    }

    pub fn set_content(&mut self, content: Vec<u8>) {
        self.header.set_size(content.len() as u64);
        self.header.set_cksum();
        self.content = content;
    }
}

/// A tar stream, split into members.
#[derive(Clone)]
pub struct Tar {
    pub members: Vec<Member>,
    pub end: Vec<u8>,
}

impl Tar {
    pub fn read(name: &str) -> Self {
        Self::read_from(&agave_dir().join(name))
    }

    pub fn read_from(path: &Path) -> Self {
        let bytes = std::fs::read(path).expect("the fixture");
        let bytes = zstd::stream::decode_all(bytes.as_slice()).expect("zstd");
        let mut members = Vec::new();
        let mut offset = 0;
        while bytes[offset..offset + 512].iter().any(|byte| *byte != 0) {
            let mut header = tar::Header::new_old();
            header.as_mut_bytes().copy_from_slice(&bytes[offset..offset + 512]);
            let size = header.entry_size().expect("a size") as usize;
            members.push(Member { header, content: bytes[offset + 512..offset + 512 + size].to_vec() });
            offset += 512 + size.next_multiple_of(512);
        }
        Self { members, end: vec![0; 1024] }
    }

    pub fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for member in &self.members {
            bytes.extend_from_slice(member.header.as_bytes());
            bytes.extend_from_slice(&member.content);
            bytes.resize(bytes.len().next_multiple_of(512), 0);
        }
        bytes.extend_from_slice(&self.end);
        bytes
    }

    /// Returns the index of the first member with a matching path.
    pub fn position(&self, matches: impl Fn(&str) -> bool) -> usize {
        self.members.iter().position(|member| matches(member.path().trim_end_matches('/'))).expect("a member")
    }

    pub fn member(&mut self, matches: impl Fn(&str) -> bool) -> &mut Member {
        let index = self.position(matches);
        &mut self.members[index]
    }

    /// Returns the indexes of the storages, in their order.
    pub fn storages(&self) -> Vec<usize> {
        let is_storage = |index: &usize| {
            let path = self.members[*index].path();
            path.starts_with("accounts/") && path != "accounts/"
        };
        (0..self.members.len()).filter(is_storage).collect()
    }

    /// Returns a storage with at least three records. The first two have lamports, and the first has data.
    pub fn rich_storage(&mut self) -> &mut Member {
        let index = self
            .storages()
            .into_iter()
            .find(|index| {
                let content = &self.members[*index].content;
                let ranges = record_ranges(content);
                ranges.len() >= 3
                    && ranges[0].len() > RECORD_HEADER_BYTES
                    && ranges[..2].iter().all(|range| u64_at(content, range.start + field::LAMPORTS.start) > 0)
            })
            .expect("a storage");
        &mut self.members[index]
    }
}

pub fn is_bank_file(path: &str) -> bool {
    path.strip_prefix("snapshots/").and_then(|rest| rest.split_once('/')).is_some_and(|(dir, file)| dir == file)
}

pub fn is_status_cache(path: &str) -> bool {
    path == "snapshots/status_cache"
}

pub fn compress(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 1).expect("compresses")
}

pub fn verify_options(clients: &[SnapshotClient]) -> VerifyOptions {
    VerifyOptions::default().clients(clients.to_vec()).threads(2).check(CheckOptions::default().memory_bytes(64 << 20))
}

pub fn verify(full: &Path, incremental: Option<&Path>, clients: &[SnapshotClient]) -> VerifyReport {
    slotpress_read::verify(&Snapshot::from_archives(full, incremental), &verify_options(clients), &NoProgress)
        .expect("verified")
}

pub fn verify_ledger(ledger: &Path) -> VerifyReport {
    let paths = LedgerPaths::new(ledger);
    slotpress_read::verify(&Snapshot::ledger(paths), &verify_options(&[]), &NoProgress).expect("verified")
}

/// Writes a file, and returns its path.
pub fn write_file(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).expect("written");
    path
}

/// Returns the rules of all failures.
pub fn broken_rules(report: &VerifyReport) -> Vec<Rule> {
    report.failures.iter().map(|failure| failure.rule).collect()
}

/// Returns the clients that refuse the archive.
pub fn refusing_clients(report: &VerifyReport) -> Vec<SnapshotClient> {
    report.clients.iter().filter(|verdict| !verdict.loads).map(|verdict| verdict.client).collect()
}

/// Describes all failures of a report.
pub fn describe(report: &VerifyReport) -> String {
    let failures = report.failures.iter().map(|failure| {
        format!("{:?} {:?} expected {:?} found {:?}", failure.rule, failure.place, failure.expected, failure.found)
    });
    failures.collect::<Vec<_>>().join("\n")
}

pub fn failures_of(report: &VerifyReport, rule: Rule) -> Vec<&Failure> {
    report.failures.iter().filter(|failure| failure.rule == rule).collect()
}

/// Returns true if the rule concerns only packing or naming, which unpacking corrects.
pub fn is_only_packing(rule: Rule) -> bool {
    !rule.is_refused() && !rule.is_version_specific()
}
