//! Archives with each of the changes that docs/snapshot-format.md#archive lists, and with other changes.

use std::ops::Range;
use std::path::{Path, PathBuf};

use slotpress_format::{BankStakes, FieldReader, parse_bank_file_lenient};

use super::refused::versions::*;
use crate::verify::fixtures::*;

/// A full archive, or a pair of archives, with a change.
pub struct Altered {
    /// Name of the change.
    pub label: String,
    pub full: ArchiveFile,
    pub incremental: Option<ArchiveFile>,
}

#[derive(Clone)]
pub struct ArchiveFile {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// Paths of an altered archive on disk.
pub struct AlteredPaths {
    pub full: PathBuf,
    pub incremental: Option<PathBuf>,
}

impl Altered {
    /// Creates a full archive with the name of the fixture.
    pub fn full(label: impl ToString, bytes: Vec<u8>) -> Self {
        let full = ArchiveFile { name: FULL_26.to_string(), bytes };
        Self { label: label.to_string(), full, incremental: None }
    }

    /// Returns its files, the full archive first.
    pub fn files(&self) -> impl Iterator<Item = &ArchiveFile> {
        [&self.full].into_iter().chain(&self.incremental)
    }

    /// Writes its files into a directory.
    pub fn write_to(&self, dir: &Path) -> AlteredPaths {
        let write = |file: &ArchiveFile| write_file(dir, &file.name, &file.bytes);
        AlteredPaths { full: write(&self.full), incremental: self.incremental.as_ref().map(write) }
    }
}

struct Corpus {
    tar: Tar,
    archives: Vec<Altered>,
}

impl Corpus {
    fn add_archive(&mut self, label: impl ToString, bytes: Vec<u8>) {
        self.archives.push(Altered::full(label, bytes));
    }

    fn add_altered_tar(&mut self, label: impl ToString, alter: impl FnOnce(&mut Tar)) {
        let mut tar = self.tar.clone();
        alter(&mut tar);
        self.add_archive(label, compress(&tar.write()));
    }

    fn add_altered_storage(&mut self, label: &str, alter: impl FnOnce(&mut Vec<u8>)) {
        self.add_altered_tar(format!("records: {label}"), |tar| {
            let member = tar.rich_storage();
            let mut content = member.content.clone();
            alter(&mut content);
            member.set_content(content);
        });
    }

    fn add_altered_document(&mut self, label: &str, matches: fn(&str) -> bool, alter: impl FnOnce(&mut Vec<u8>)) {
        self.add_altered_tar(label, |tar| {
            let member = tar.member(matches);
            let mut content = member.content.clone();
            alter(&mut content);
            member.set_content(content);
        });
    }

    fn add_altered_pair(&mut self, label: &str, alter: impl FnOnce(&mut Tar)) {
        let mut tar = Tar::read(INCREMENTAL_26_40);
        alter(&mut tar);
        let full = std::fs::read(agave_dir().join(FULL_26)).expect("the fixture");
        let incremental = ArchiveFile { name: INCREMENTAL_26_40.to_string(), bytes: compress(&tar.write()) };
        let altered = Altered::full(format!("pair: {label}"), full);
        self.archives.push(Altered { incremental: Some(incremental), ..altered });
    }
}

/// Returns all altered archives.
pub fn corpus() -> Vec<Altered> {
    let mut corpus = Corpus { tar: Tar::read(FULL_26), archives: Vec::new() };
    add_frames(&mut corpus);
    add_ends(&mut corpus);
    add_entries(&mut corpus);
    add_names(&mut corpus);
    add_documents(&mut corpus);
    add_bank_fields(&mut corpus);
    add_leaders_and_stakes(&mut corpus);
    add_records(&mut corpus);
    add_pairs(&mut corpus);
    corpus.archives
}

fn add_frames(corpus: &mut Corpus) {
    let tar = corpus.tar.write();
    let skippable = |content: &[u8]| slotpress_format::archive::zstd_frame::skippable_frame(3, content).expect("small");
    corpus.add_archive("nothing", compress(&tar));
    for size in [1000, 65_536, 300_000] {
        corpus.add_archive(format!("frames of {size}"), tar.chunks(size).flat_map(compress).collect());
    }
    corpus.add_archive(
        "an empty frame in between",
        [compress(&tar[..4096]), compress(&[]), compress(&tar[4096..])].concat(),
    );
    corpus.add_archive("a skippable frame first", [skippable(b"hello"), compress(&tar)].concat());
    corpus.add_archive(
        "a skippable frame in between",
        [compress(&tar[..700]), skippable(&[0; 4000]), compress(&tar[700..])].concat(),
    );
    corpus.add_archive("a skippable frame last", [compress(&tar), skippable(&[])].concat());
    corpus.add_archive("no content size, checksum", {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 3).expect("an encoder");
        encoder.include_checksum(true).expect("set");
        std::io::Write::write_all(&mut encoder, &tar).expect("written");
        encoder.finish().expect("finished")
    });
    for log in [24, 25, 26, 27, 28] {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).expect("an encoder");
        encoder.window_log(log).expect("set");
        std::io::Write::write_all(&mut encoder, &tar).expect("written");
        corpus.add_archive(format!("a window of 2^{log}"), encoder.finish().expect("finished"));
    }
    for log in [25, 26, 27, 28, 31] {
        corpus.add_archive(format!("a window of 2^{log}, larger than the stated content"), wide_frame(&tar, log));
    }
    corpus.add_archive("stored, not compressed", tar.clone());
    let good = compress(&tar);
    corpus.add_archive("one byte after the end", [good.as_slice(), b"x"].concat());
    corpus.add_archive("text after the end", [good.as_slice(), b"<html>not found</html>"].concat());
    corpus.add_archive("zeros after the end", [good.as_slice(), &[0; 4096]].concat());
    corpus.add_archive("another archive after the end", [good.as_slice(), good.as_slice()].concat());
    for tenth in 1..10 {
        corpus.add_archive(format!("truncated after {tenth}0%"), good[..good.len() * tenth / 10].to_vec());
    }
    corpus.add_archive("truncated by a byte", good[..good.len() - 1].to_vec());
    for offset in (100..good.len() - 20_000).step_by(good.len() / 11) {
        let mut bytes = good.clone();
        bytes[offset] ^= 0x10;
        corpus.add_archive(format!("a flipped bit at {offset}"), bytes);
    }
    let frames: Vec<Vec<u8>> = tar.chunks(100_000).map(compress).collect();
    corpus.add_archive("a frame left out", [frames[..3].concat(), frames[4..].concat()].concat());
    corpus.add_archive("a frame twice", [frames[..4].concat(), frames[3..].concat()].concat());
    corpus.add_archive(
        "two frames swapped",
        [frames[..2].concat(), frames[3].clone(), frames[2].clone(), frames[4..].concat()].concat(),
    );
}

/// Returns a frame that states both its content size and a window of a different size.
fn wide_frame(content: &[u8], window_log: u8) -> Vec<u8> {
    use slotpress_format::{FrameStart, parse_frame_start};
    let frame = compress(content);
    let Ok(FrameStart::Zstd(header)) = parse_frame_start(&frame) else { panic!("a frame") };
    // Four bytes of content size, no single segment, no checksum.
    let mut wide = [&frame[..4], &[0b1000_0000, (window_log - 10) << 3]].concat();
    wide.extend((content.len() as u32).to_le_bytes());
    wide.extend_from_slice(&frame[header.header_bytes..]);
    wide
}

fn add_ends(corpus: &mut Corpus) {
    for zeros in [0, 100, 512, 513, 1536, 10_240] {
        corpus.add_altered_tar(format!("end: {zeros} zeros"), |tar| tar.end = vec![0; zeros]);
    }
    corpus.add_altered_tar("end: junk after it", |tar| tar.end.extend([7; 512]));
    corpus.add_altered_tar("end: an entry after it", |tar| {
        let member = Member::new("genesis.bin", b'0', b"x");
        tar.end.extend_from_slice(member.header.as_bytes());
    });
    corpus.add_altered_tar("end: zeros in the middle", |tar| {
        let index = tar.members.len() / 2;
        tar.members.insert(index, Member { header: tar::Header::new_old(), content: Vec::new() });
        tar.members[index].header.as_mut_bytes().fill(0);
    });
}

fn add_entries(corpus: &mut Corpus) {
    let insert = |tar: &mut Tar, member: Member| {
        let index = tar.members.len() - 3;
        tar.members.insert(index, member);
    };
    for (path, kind) in [
        ("genesis.bin", b'0'),
        ("accounts/readme", b'0'),
        ("accounts/1.2.3", b'0'),
        ("snapshots/26/readme", b'0'),
        ("snapshots/status_cache2", b'0'),
        ("../version", b'0'),
        ("/version", b'0'),
        ("rocksdb/", b'5'),
        ("accounts/99.99", b'5'),
        ("version/", b'5'),
        ("accounts/7.1000", b'1'),
        ("accounts/7.1000", b'2'),
        ("accounts/7.1000", b'3'),
        ("accounts/7.1000", b'6'),
        ("pax_global_header", b'g'),
        ("accounts/", b'5'),
        ("snapshots/", b'5'),
        ("snapshots/27/", b'5'),
    ] {
        corpus.add_altered_tar(format!("entry: {path} of kind {}", char::from(kind)), |tar| {
            insert(tar, Member::new(path, kind, b""))
        });
    }
    corpus.add_altered_tar("entry: ./ in front of every name", |tar| {
        for member in &mut tar.members {
            let path = format!("./{}", member.path());
            member.rename(&path);
        }
    });
    corpus.add_altered_tar("entry: no directories", |tar| {
        tar.members
            .retain(|member| !member.path().ends_with('/') && member.header.entry_type() != tar::EntryType::Directory)
    });
    corpus.add_altered_tar("entry: other times, owners and modes", |tar| {
        for (number, member) in tar.members.iter_mut().enumerate() {
            member.header.set_mtime(number as u64 * 1000);
            member.header.set_uid(1000);
            member.header.set_gid(7);
            member.header.set_mode(0o600);
            member.header.set_cksum();
        }
    });
    corpus.add_altered_tar("entry: a PAX header with a time", |tar| {
        insert_extension(tar, b'x', b"20 mtime=1700000000\n")
    });
    corpus.add_altered_tar("entry: a PAX header with a path", |tar| insert_extension(tar, b'x', b"16 path=version\n"));
    corpus.add_altered_tar("entry: a long name equal to the entry's own", |tar| {
        let path = tar.members[tar.members.len() - 3].path();
        insert_extension(tar, b'L', format!("{path}\0").as_bytes());
    });
    corpus.add_altered_tar("entry: a long name of a different file", |tar| {
        insert_extension(tar, b'L', b"accounts/readme\0")
    });
    corpus.add_altered_tar("entry: a header from before ustar", |tar| {
        let index = tar.members.len() - 3;
        tar.members[index].header.as_mut_bytes()[257..265].fill(0);
        tar.members[index].header.set_cksum();
    });
    corpus.add_altered_tar("entry: ustar headers", |tar| {
        for member in &mut tar.members {
            member.header.as_mut_bytes()[257..265].copy_from_slice(b"ustar\x0000");
            member.header.set_cksum();
        }
    });
    corpus.add_altered_tar("entry: unknown bytes after ustar", |tar| {
        for member in &mut tar.members {
            member.header.as_mut_bytes()[262..265].copy_from_slice(b"xyz");
            member.header.set_cksum();
        }
    });
    corpus.add_altered_tar("entry: a name split into the prefix", |tar| {
        let index = tar.members.len() - 3;
        let path = tar.members[index].path();
        let (prefix, name) = path.split_once('/').expect("a directory");
        tar.members[index].rename(name);
        let header = tar.members[index].header.as_mut_bytes();
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[345..500].fill(0);
        header[345..345 + prefix.len()].copy_from_slice(prefix.as_bytes());
        tar.members[index].header.set_cksum();
    });
    corpus.add_altered_tar("entry: type NUL", |tar| {
        let index = tar.members.len() - 3;
        tar.members[index].header.as_mut_bytes()[156] = 0;
        tar.members[index].header.set_cksum();
    });
    corpus.add_altered_tar("entry: a wrong checksum", |tar| tar.members[9].header.as_mut_bytes()[0] ^= 1);
    corpus.add_altered_tar("entry: a different checksum", |tar| tar.members[9].header.as_mut_bytes()[150] ^= 1);
    corpus.add_altered_tar("entry: a checksum that is not a number", |tar| {
        tar.members[9].header.as_mut_bytes()[148] = b'x'
    });
    corpus.add_altered_tar("entry: a directory without a size", |tar| {
        let index = tar.position(|path| path == "snapshots");
        tar.members[index].header.as_mut_bytes()[124..136].fill(0);
        tar.members[index].header.set_cksum();
    });
    for (label, matches, name) in [
        ("versionX", (|path| path == "version") as fn(&str) -> bool, "versionX".to_string()),
        ("status_cache2", is_status_cache, "snapshots/status_cache2".to_string()),
        ("snapshots/x for the bank file", is_bank_file, "snapshots/x".to_string()),
        ("leading zeros and + for the bank file", is_bank_file, "snapshots/026/+26".to_string()),
    ] {
        corpus.add_altered_tar(format!("name: {label}"), |tar| tar.member(matches).rename(&name));
    }
    for (label, rename) in [
        ("leading zeros for a storage", (|slot, id| format!("00{slot}.0{id}")) as fn(&str, &str) -> String),
        ("+ for a storage", |slot, id| format!("+{slot}.+{id}")),
        ("an id of 2^64 - 1", |slot, _| format!("{slot}.{}", u64::MAX)),
    ] {
        corpus.add_altered_tar(format!("name: {label}"), |tar| {
            let index = tar.storages()[7];
            let path = tar.members[index].path();
            let (slot, id) = path.strip_prefix("accounts/").and_then(|name| name.split_once('.')).expect("a storage");
            tar.members[index].rename(&format!("accounts/{}", rename(slot, id)));
        });
    }
    corpus.add_altered_tar("entry: a size too large by a block", |tar| {
        let size = tar.members[12].content.len() as u64;
        tar.members[12].header.set_size(size + 512);
        tar.members[12].header.set_cksum();
    });
    corpus.add_altered_tar("entry: version twice", |tar| insert(tar, Member::new("version", b'0', b"1.2.0")));
    for (label, matches) in [
        ("version", (|path| path == "version") as fn(&str) -> bool),
        ("status cache", is_status_cache),
        ("bank file", is_bank_file),
    ] {
        corpus.add_altered_tar(format!("entry: no {label}"), |tar| {
            let index = tar.position(matches);
            tar.members.remove(index);
        });
        corpus.add_altered_tar(format!("entry: {label} twice, alike"), |tar| {
            let member = tar.members[tar.position(matches)].clone();
            tar.members.push(member);
        });
        corpus.add_altered_tar(format!("entry: {label} twice, the first damaged"), |tar| {
            let index = tar.position(matches);
            let mut member = tar.members[index].clone();
            member.content[0] ^= 1;
            tar.members.insert(index, member);
        });
        corpus.add_altered_tar(format!("entry: {label} last"), |tar| {
            let index = tar.position(matches);
            let member = tar.members.remove(index);
            tar.members.push(member);
        });
    }
    corpus.add_altered_tar("entry: bank files of two slots", |tar| {
        let mut member = tar.members[tar.position(is_bank_file)].clone();
        member.rename("snapshots/25/25");
        tar.members.push(member);
    });
    corpus.add_altered_tar("order: reversed", |tar| tar.members.reverse());
    corpus
        .add_altered_tar("order: storages by size", |tar| tar.members[6..].sort_by_key(|member| member.content.len()));
    for nth in [0, 5, 20] {
        corpus.add_altered_tar(format!("storage: the {nth}th is missing"), |tar| {
            let index = tar.storages()[nth];
            tar.members.remove(index);
        });
        corpus.add_altered_tar(format!("storage: the {nth}th twice"), |tar| {
            let index = tar.storages()[nth];
            let member = tar.members[index].clone();
            tar.members.push(member);
        });
        corpus.add_altered_tar(format!("storage: the {nth}th empty"), |tar| {
            let index = tar.storages()[nth];
            tar.members[index].set_content(Vec::new());
        });
        corpus.add_altered_tar(format!("storage: a different id for the {nth}th"), |tar| {
            let index = tar.storages()[nth];
            let slot = tar.members[index].path().split(['/', '.']).nth(1).expect("a slot").to_string();
            tar.members[index].rename(&format!("accounts/{slot}.4000000000"));
        });
    }
    corpus.add_altered_tar("storage: an extra one, empty", |tar| {
        insert(tar, Member::new("accounts/1000.1000", b'0', b""))
    });
    corpus.add_altered_tar("storage: newer than the bank", |tar| {
        let index = *tar.storages().last().expect("a storage");
        tar.members[index].rename("accounts/99.99");
    });
    corpus.add_altered_tar("storage: of slot 2^32", |tar| {
        let index = *tar.storages().last().expect("a storage");
        tar.members[index].rename("accounts/4294967296.99");
    });
    for ids in [&[99][..], &[99, 98], &[26]] {
        corpus.add_altered_tar(format!("storage: additional ones of the bank's slot: {ids:?}"), |tar| {
            let member = tar.members[tar.position(|path| path == "accounts/26.26")].clone();
            for id in ids {
                tar.members.push(member.clone());
                tar.members.last_mut().expect("a storage").rename(&format!("accounts/26.{id}"));
            }
        });
    }
    corpus.add_altered_tar("storage: two of one slot", |tar| {
        let index = tar.storages()[3];
        let mut member = tar.members[index].clone();
        let slot = member.path().split(['/', '.']).nth(1).expect("a slot").to_string();
        member.rename(&format!("accounts/{slot}.77777"));
        tar.members.push(member);
    });
}

/// Alters fields of the bank file that occur twice, or that have rules of their own.
fn add_bank_fields(corpus: &mut Corpus) {
    let mut add = |label: &str, tar: Tar| corpus.add_archive(label, compress(&tar.write()));
    for (label, tar) in refused_only_by_firedancer() {
        add(&format!("bank: {label}"), tar);
    }
    for error in NEWER_ERRORS {
        add(
            &format!("bank: an error of {} bytes that older versions do not know", error.len()),
            tar_with_transaction_error(error),
        );
    }
    add("bank: a different hash", tar_with_changed_bank(|bank, offsets| bank[offsets.hash] ^= 1));
    add(
        "bank: no blockhashes",
        tar_with_changed_bank(|bank, offsets| {
            bank.drain(49..49 + 56 * offsets.items.len());
            bank[41..49].fill(0);
        }),
    );
    add(
        "bank: a blockhash too many",
        tar_with_changed_bank(|bank, offsets| {
            let newest = offsets.newest(bank);
            let item = bank[newest..newest + 56].to_vec();
            let index = u64_at(&item, 40);
            for number in 1..=301 {
                let mut item = item.clone();
                item[..8].copy_from_slice(&u64::to_le_bytes(number));
                item[40..48].copy_from_slice(&(index + number).to_le_bytes());
                bank.splice(49..49, item);
            }
            bank[41..49].copy_from_slice(&(offsets.items.len() as u64 + 301).to_le_bytes());
        }),
    );
    type Alter = fn(&mut [u8], &BankOffsets, usize);
    let fields: [(&str, Alter); 6] = [
        ("a parent of its own slot", |bank, offsets, _| bank[offsets.hash + 64] = 26),
        ("one tick too few", |bank, _, after_forks| bank[after_forks + 8] -= 1),
        ("a tick height of a different slot", |bank, _, after_forks| bank[after_forks + 32] ^= 64),
        ("more blocks than slots", |bank, _, _| {
            let offset = StakesOffsets::find(bank).leader - 8;
            bank[offset] = 27;
        }),
        ("as many blocks as slots", |bank, _, _| {
            let offset = StakesOffsets::find(bank).leader - 8;
            bank[offset] = 26;
        }),
        ("stakes of the next epoch", |bank, _, _| {
            let delegation = StakesOffsets::find(bank).delegation;
            let count = u64_at(bank, delegation - 8) as usize;
            bank[delegation + 96 * count + 8] += 1;
        }),
    ];
    for (label, alter) in fields {
        // After the hard forks: transactions, ticks, signatures, lamports, the highest tick.
        add(
            &format!("bank: {label}"),
            tar_with_changed_bank(|bank, offsets| {
                let after_forks = offsets.hash + 80 + 16 * u64_at(bank, offsets.hash + 72) as usize;
                alter(bank, offsets, after_forks);
            }),
        );
    }
}

/// Offsets of the stakes in the bank file.
struct StakesOffsets {
    leader: usize,
    /// Offset of the first vote account's address. Stake, lamports, length of the data and data follow.
    vote_account: usize,
    vote_data_bytes: usize,
    /// Offset of the first delegation's stake account. Voter, stake, two epochs and a rate follow.
    delegation: usize,
}

impl StakesOffsets {
    fn find(content: &[u8]) -> Self {
        let fields = FieldReader::new(content, content.len() as u64, "the bank file");
        let (bank, _) = parse_bank_file_lenient(fields, &mut |_| Ok(()), BankStakes::Keep).expect("a bank file");
        let find = |key: &[u8; 32]| content.windows(32).position(|bytes| bytes == key).expect("an address");
        let vote_account = find(&bank.stakes.vote_accounts[0].0);
        let vote_data_bytes = u64_at(content, vote_account + 48) as usize;
        let delegation = find(&bank.stakes.delegations[0].0);
        Self { leader: find(&bank.leader.0), vote_account, vote_data_bytes, delegation }
    }
}

/// Places of fields in a bank file.
pub struct BankFieldRanges {
    /// All fields from the bank hash to the first vote account.
    pub fields: Range<usize>,
    /// Fields that Agave compares with `genesis.bin`: creation time and epoch schedule.
    pub of_genesis: [Range<usize>; 2],
}

pub fn find_bank_field_ranges(content: &[u8]) -> BankFieldRanges {
    let fields = FieldReader::new(content, content.len() as u64, "the bank file");
    let (bank, _) = parse_bank_file_lenient(fields, &mut |_| Ok(()), BankStakes::Keep).expect("a bank file");
    let hash = content.windows(32).position(|bytes| bytes == bank.hash.0).expect("the bank hash");
    let find = |bytes: &[u8]| content.windows(bytes.len()).position(|window| window == bytes).expect("the field");
    let ns_per_slot = [&bank.ticks_per_slot.to_le_bytes()[..], &bank.ns_per_slot.to_le_bytes()].concat();
    let time = find(&ns_per_slot) + ns_per_slot.len();
    let schedule =
        [bank.epoch_schedule.slots_per_epoch, bank.leader_schedule_slot_offset].map(u64::to_le_bytes).concat();
    let schedule = find(&schedule);
    BankFieldRanges {
        fields: hash..StakesOffsets::find(content).vote_account,
        of_genesis: [time..time + 8, schedule..schedule + 33],
    }
}

/// Alters values that Agave compares with the epoch stakes and the accounts.
fn add_leaders_and_stakes(corpus: &mut Corpus) {
    let mut add_altered = |label: &str, alter: &dyn Fn(&mut Vec<u8>, StakesOffsets)| {
        corpus.add_altered_document(&format!("stakes: {label}"), is_bank_file, |content| {
            alter(content, StakesOffsets::find(content))
        });
    };
    add_altered("a different leader", &|content, offsets| content[offsets.leader] ^= 1);
    add_altered("no leader", &|content, offsets| content[offsets.leader..offsets.leader + 32].fill(0));
    add_altered("a vote account's stake", &|content, offsets| content[offsets.vote_account + 32] ^= 1);
    add_altered("a vote account's lamports", &|content, offsets| content[offsets.vote_account + 40] ^= 1);
    add_altered("the last byte of a vote account", &|content, offsets| {
        content[offsets.vote_account + 56 + offsets.vote_data_bytes - 1] ^= 1
    });
    add_altered("a vote account's node", &|content, offsets| content[offsets.vote_account + 56 + 4] ^= 1);
    add_altered("a vote account's executable flag", &|content, offsets| {
        content[offsets.vote_account + 56 + offsets.vote_data_bytes + 32] ^= 1
    });
    add_altered("a vote account's rent epoch", &|content, offsets| {
        content[offsets.vote_account + 56 + offsets.vote_data_bytes + 33] ^= 1
    });
    add_altered("the address of a vote account", &|content, offsets| content[offsets.vote_account] ^= 1);
    add_altered("a vote account of an unknown version", &|content, offsets| content[offsets.vote_account + 56] = 9);
    add_altered("a vote account of a different owner", &|content, offsets| {
        content[offsets.vote_account + 56 + offsets.vote_data_bytes] ^= 1
    });
    add_altered("one vote account too few", &|content, offsets| {
        content[offsets.vote_account - 8] -= 1;
        content.drain(offsets.vote_account..offsets.vote_account + 56 + offsets.vote_data_bytes + 32 + 1 + 8);
    });
    add_altered("the address of a delegation", &|content, offsets| content[offsets.delegation] ^= 1);
    add_altered("a delegation's voter", &|content, offsets| content[offsets.delegation + 32] ^= 1);
    add_altered("a delegation's stake", &|content, offsets| content[offsets.delegation + 64] ^= 1);
    add_altered("a delegation's activation epoch", &|content, offsets| content[offsets.delegation + 72] ^= 1);
    add_altered("a delegation's deactivation epoch", &|content, offsets| content[offsets.delegation + 80] ^= 1);
    add_altered("a delegation's rate", &|content, offsets| content[offsets.delegation + 88] ^= 1);
    add_altered("one delegation too few", &|content, offsets| {
        content[offsets.delegation - 8] -= 1;
        content.drain(offsets.delegation..offsets.delegation + 96);
    });
    // The same account in the stakes of an epoch.
    add_altered("a vote account of an unknown version in the epoch stakes", &|content, offsets| {
        let data = content[offsets.vote_account + 56..][..200].to_vec();
        let last = content.windows(200).rposition(|bytes| bytes == data).expect("in the epoch stakes");
        assert!(last > offsets.delegation);
        content[last] = 9;
    });
}

/// Inserts an extension before the last three entries.
fn insert_extension(tar: &mut Tar, kind: u8, content: &[u8]) {
    let index = tar.members.len() - 3;
    tar.members.insert(index, Member::new("@extension", kind, content));
}

fn add_names(corpus: &mut Corpus) {
    let good = compress(&corpus.tar.write());
    for (label, name) in [
        ("a different slot", FULL_26.replace("-26-", "-27-")),
        ("a different hash", FULL_26.replace("5vEh", "6vEh")),
        ("not a snapshot's", "archive.tar.zst".to_string()),
        ("an invalid hash", FULL_26.replace("5vEh", "0OIl")),
        ("named as bzip2", FULL_26.replace("zst", "bz2")),
    ] {
        let full = ArchiveFile { name, bytes: good.clone() };
        corpus.archives.push(Altered { label: format!("name: {label}"), full, incremental: None });
    }
}

fn add_documents(corpus: &mut Corpus) {
    let is_version = |path: &str| path == "version";
    for version in ["1.2.0\n", "  1.2.0 ", "1.2.1", "2.0.0", "", "1.2.0.0", "one"] {
        corpus.add_altered_document(&format!("version: {version:?}"), is_version, |content| *content = version.into());
    }
    corpus.add_altered_document("status cache: a byte more", is_status_cache, |content| content.push(0));
    corpus.add_altered_document("status cache: a byte less", is_status_cache, |content| {
        content.truncate(content.len() - 1)
    });
    corpus.add_altered_document("status cache: not a root", is_status_cache, |content| content[16] = 0);
    corpus.add_altered_document("status cache: a slot of the future", is_status_cache, |content| content[9] = 99);
    corpus.add_altered_document("status cache: empty", is_status_cache, |content| content.clear());
    corpus.add_altered_document("bank file: a byte more", is_bank_file, |content| content.push(0));
    corpus.add_altered_document("bank file: a byte less", is_bank_file, |content| content.truncate(content.len() - 1));
    corpus
        .add_altered_document("bank file: 33 bytes less", is_bank_file, |content| content.truncate(content.len() - 33));
    corpus
        .add_altered_document("bank file: 34 bytes less", is_bank_file, |content| content.truncate(content.len() - 34));
    corpus
        .add_altered_document("bank file: 40 bytes less", is_bank_file, |content| content.truncate(content.len() - 40));
    corpus.add_altered_document("bank file: 2000 bytes less", is_bank_file, |content| {
        content.truncate(content.len() - 2000)
    });
    corpus.add_altered_document("bank file: half", is_bank_file, |content| content.truncate(content.len() / 2));
    corpus.add_altered_document("bank file: a different lattice hash", is_bank_file, |content| {
        let offset = content.len() - 1000;
        content[offset] ^= 4;
    });
    // For the full archive, and for the incremental one.
    let capitalizations = [1101927935518954u64, 1102994308621166].map(u64::to_le_bytes);
    corpus.add_altered_document("bank file: a different capitalization", is_bank_file, |content| {
        let offset = content
            .windows(8)
            .position(|bytes| capitalizations.iter().any(|capitalization| bytes == capitalization))
            .expect("the capitalization");
        content[offset] ^= 1;
    });
    corpus.add_altered_document("bank file: empty", is_bank_file, |content| content.clear());
}

fn add_records(corpus: &mut Corpus) {
    for (label, offset) in [
        ("write version", 3),
        ("pubkey", field::PUBKEY.start + 4),
        ("lamports", field::LAMPORTS.start),
        ("rent epoch", field::RENT_EPOCH.start + 1),
        ("owner", field::OWNER.start + 6),
        ("executable", field::EXECUTABLE),
        ("padding", field::PADDING.start + 2),
        ("stored hash", field::STORED_HASH.start + 16),
        ("data", RECORD_HEADER_BYTES),
    ] {
        corpus.add_altered_storage(&format!("a bit of {label}"), |content| content[offset] ^= 1);
    }
    corpus.add_altered_storage("executable 2", |content| content[field::EXECUTABLE] = 2);
    corpus.add_altered_storage("data length one more", |content| content[field::DATA_LEN.start] += 1);
    corpus.add_altered_storage("data length of 2^40", |content| content[field::DATA_LEN.start + 5] = 1);
    corpus.add_altered_storage("the last record truncated", |content| {
        let last = record_ranges(content).pop().expect("a record");
        content.truncate(last.start + 100);
    });
    corpus.add_altered_storage("part of a header after the last record", |content| content.extend([1; 50]));
    corpus.add_altered_storage("zeros after the last record", |content| {
        content.resize(content.len().next_multiple_of(4096) + 4096, 0)
    });
    corpus.add_altered_storage("junk as long as a record after the last one", |content| {
        content.resize(content.len().next_multiple_of(8), 0);
        content.extend([0xAB; 200]);
    });
    corpus.add_altered_storage("records in a different order", |content| {
        let old = content.clone();
        content.clear();
        for range in record_ranges(&old).into_iter().rev() {
            content.resize(content.len().next_multiple_of(8), 0);
            content.extend_from_slice(&old[range]);
        }
    });
    corpus.add_altered_storage("a record twice", |content| {
        let record = content[record_ranges(content)[1].clone()].to_vec();
        content.resize(content.len().next_multiple_of(8), 0);
        content.extend(record);
    });
    corpus.add_altered_storage("a record left out", |content| {
        let second = record_ranges(content)[1].start;
        content.drain(..second);
    });
    corpus.add_altered_storage("a tombstone of an account that never existed", |content| {
        content.resize(content.len().next_multiple_of(8), 0);
        let mut record = [0; RECORD_HEADER_BYTES];
        record[field::PUBKEY].fill(0x77);
        content.extend(record);
    });
    corpus.add_altered_storage("an extra account", |content| {
        content.resize(content.len().next_multiple_of(8), 0);
        let mut record = [0; RECORD_HEADER_BYTES];
        record[field::PUBKEY].fill(0x77);
        record[field::LAMPORTS.start] = 1;
        content.extend(record);
    });
    corpus.add_altered_tar("records: lamports moved between accounts", |tar| {
        let content = &mut tar.rich_storage().content;
        let second = record_ranges(content)[1].start;
        content[field::LAMPORTS.start] ^= 1;
        content[second + field::LAMPORTS.start] ^= 1;
    });
    corpus.add_altered_tar("records: an older version in an older storage", |tar| {
        let storages = tar.storages();
        let newest = &tar.members[*storages.last().expect("a storage")].content;
        let record = newest[record_ranges(newest)[0].clone()].to_vec();
        let old = &mut tar.members[storages[0]];
        let mut content = old.content.clone();
        content.resize(content.len().next_multiple_of(8), 0);
        let lamports = content.len() + field::LAMPORTS.start;
        content.extend(record);
        content[lamports] ^= 0x55;
        old.set_content(content);
    });
}

fn add_pairs(corpus: &mut Corpus) {
    corpus.add_altered_pair("nothing", |_| ());
    corpus.add_altered_pair("a storage of the base's slot", |tar| {
        let index = tar.storages()[0];
        tar.members[index].rename("accounts/26.500");
    });
    corpus.add_altered_pair("a storage of a slot that the storage map does not name", |tar| {
        let index = tar.storages()[0];
        tar.members[index].rename("accounts/41.500");
    });
    corpus.add_altered_pair("a storage missing", |tar| {
        let index = tar.storages()[2];
        tar.members.remove(index);
    });
    corpus.add_altered_pair("different lamports", |tar| {
        let index = tar.storages()[2];
        tar.members[index].content[48] ^= 1;
    });
    corpus.add_altered_pair("ids of the full archive", |tar| {
        for (nth, index) in tar.storages().into_iter().enumerate() {
            let slot = tar.members[index].path().split(['/', '.']).nth(1).expect("a slot").to_string();
            tar.members[index].rename(&format!("accounts/{slot}.{nth}"));
        }
    });
    corpus.add_altered_pair("no storages", |tar| {
        for index in tar.storages().into_iter().rev() {
            tar.members.remove(index);
        }
    });
    corpus.add_altered_pair("end: no zeros", |tar| tar.end.clear());
    let full = std::fs::read(agave_dir().join(FULL_26)).expect("the fixture");
    let incremental = std::fs::read(agave_dir().join(INCREMENTAL_26_40)).expect("the fixture");
    for (label, full_name, incremental_name) in [
        ("a different base in the name", FULL_26.to_string(), INCREMENTAL_26_40.replace("-26-", "-25-")),
        ("a different slot in the name", FULL_26.to_string(), INCREMENTAL_26_40.replace("-40-", "-41-")),
        (
            "a base slot in the name that equals the slot",
            FULL_26.to_string(),
            INCREMENTAL_26_40.replace("-26-", "-40-"),
        ),
    ] {
        corpus.archives.push(Altered {
            label: format!("pair: {label}"),
            full: ArchiveFile { name: full_name, bytes: full.clone() },
            incremental: Some(ArchiveFile { name: incremental_name, bytes: incremental.clone() }),
        });
    }
}
