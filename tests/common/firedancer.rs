//! Archives that Firedancer's own producer wrote, and conversions of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use slotpress_format::{BankFile, FieldReader, parse_bank_file_and_end};

use crate::common::*;

/// Chains as Firedancer archived them, and Agave's archives of the same states.
pub const CHAINS: [(&str, &str, &str); 3] = [
    ("firedancer-2026-08/chain", "agave-4.2.2", "26"),
    ("firedancer-2026-08/chain-4.5", AGAVE_4_5, "26"),
    ("firedancer-2026-08/validator", "agave-validator-4.2.2", "3500"),
];

pub fn full(chain: &str) -> PathBuf {
    fixture_of(chain, "snapshot-")
}

pub fn incremental(chain: &str) -> PathBuf {
    fixture_of(chain, "incremental-")
}

/// Runs a command; returns its exit code, the JSON object on its first line, and its errors.
pub fn run(command: &mut Command) -> (i32, serde_json::Value, String) {
    let output = command.arg("--json").stdin(Stdio::null()).output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("a code"), first_line(&output.stdout), stderr)
}

pub fn command(word: &str) -> Command {
    let mut command = Command::new(slotpress_path());
    command.arg(word);
    command
}

pub fn verify(archives: &[&Path], flags: &[&str]) -> (i32, serde_json::Value, String) {
    run(command("verify").args(archives).args(flags))
}

/// Makes an archive for Agave in `dir`; returns its path.
pub fn convert(archive: &Path, base: Option<&Path>, genesis: &Path, dir: &Path) -> PathBuf {
    let mut recompress = command("recompress");
    recompress.arg(archive).args(["--for", "agave", "--genesis"]).arg(genesis).arg("-o").arg(dir);
    base.map(|base| recompress.arg("--base").arg(base));
    let (code, _, stderr) = run(&mut recompress);
    assert_eq!(code, 0, "{}: {stderr}", archive.display());
    dir.join(name(archive))
}

/// Converts the archives of a pair that Agave does not load into `dir`; returns the pair.
pub fn pair_for_agave(agave: &str, pair: &[PathBuf], dir: &Path) -> Vec<PathBuf> {
    pair_for_agave_of(&genesis_of(agave), pair, dir)
}

pub fn pair_for_agave_of(genesis: &Path, pair: &[PathBuf], dir: &Path) -> Vec<PathBuf> {
    let lacks_stakes = |path: &Path| bank_of(path).lacks_stakes();
    let one_for_agave = |(number, archive): (usize, &PathBuf)| match (number, pair.get(1)) {
        _ if !lacks_stakes(archive) => archive.clone(),
        (0, Some(newer)) => {
            let mut recompress = command("recompress");
            recompress.arg(archive).args(["--for", "agave", "--genesis"]).arg(genesis).arg("-o").arg(dir);
            let (code, _, stderr) = run(recompress.arg("--incremental").arg(newer));
            assert_eq!(code, 0, "{stderr}");
            dir.join(name(archive))
        }
        (0, None) => convert(archive, None, genesis, dir),
        _ => convert(archive, Some(&pair[0]), genesis, dir),
    };
    pair.iter().enumerate().map(one_for_agave).collect()
}

pub fn genesis_of(agave: &str) -> PathBuf {
    fixture_of(agave, "genesis.bin")
}

pub fn loads(report: &serde_json::Value, client: &str) -> bool {
    let clients = report["clients"].as_array().expect("verdicts");
    clients.iter().find(|verdict| verdict["client"] == client).expect("a verdict")["loads"] == true
}

pub fn is_storage(entry: &TarEntry) -> bool {
    entry.path.starts_with("accounts/") && !entry.path.ends_with('/')
}

pub fn bank_of(archive: &Path) -> BankFile {
    let entries = entries(archive);
    let is_bank = |path: &str| path.starts_with("snapshots/") && path.ends_with(|char: char| char.is_ascii_digit());
    let bank = entries.iter().find(|entry| entry.kind != b'5' && is_bank(&entry.path)).expect("a bank file");
    let bytes = &bank.content;
    let fields = FieldReader::new(bytes.as_slice(), bytes.len() as u64, "the bank file");
    let (bank, error) = parse_bank_file_and_end(fields, &mut |_| Ok(()), true).expect("parsed");
    assert!(error.is_none());
    bank
}

/// Writes the state of an archive by Agave as Firedancer would, with `compressors` that get
/// accounts and `idle` ones that get none.
pub fn as_firedancer_writes(agave: &Path, compressors: usize, idle: usize, dir: &Path) -> PathBuf {
    let bank = bank_of(agave);
    let mut storages: Vec<(u64, Vec<u8>)> = Vec::new();
    let (mut bank_file, bank_path) = (Vec::new(), format!("snapshots/{0}/{0}", bank.slot));
    for entry in entries(agave) {
        match entry.path.strip_prefix("accounts/").and_then(|name| name.split_once('.')) {
            Some((slot, _)) => storages.push((slot.parse().expect("a slot"), entry.content)),
            None if entry.path == bank_path => bank_file = entry.content,
            None => {}
        }
    }
    storages.sort_by_key(|(slot, _)| *slot);
    let mut accounts: BTreeMap<[u8; 32], Vec<u8>> = BTreeMap::new();
    for (_, content) in &storages {
        let mut at = 0;
        while at + 136 <= content.len() {
            let data_bytes = u64::from_le_bytes(content[at + 8..at + 16].try_into().expect("8 bytes")) as usize;
            let mut record = content[at..at + 136 + data_bytes].to_vec();
            at = (at + record.len()).next_multiple_of(8);
            record.resize(record.len().next_multiple_of(8), 0);
            [0..8, 56..64, 97..136].into_iter().for_each(|field| record[field].fill(0));
            accounts.insert(record[16..48].try_into().expect("an address"), record);
        }
    }
    let mut written = vec![Vec::new(); compressors + idle];
    let is_full = name(agave).starts_with("snapshot-");
    for record in accounts.values_mut().filter(|record| record[48..56] == [0; 8]) {
        // A full archive has no tombstones. In an incremental one, they have no data or owner.
        record.truncate(136);
        [8..16, 64..97].into_iter().for_each(|field| record[field].fill(0));
    }
    let is_written = |record: &&Vec<u8>| !is_full || record[48..56] != [0; 8];
    for (number, record) in accounts.values().filter(is_written).enumerate() {
        written[number % compressors].extend_from_slice(record);
    }
    let places = bank.places;
    let map = places.is_delta as usize + 1;
    let no_stakes: Vec<u8> = [0, 0, 0, bank.stakes_epoch, 0].iter().flat_map(|it: &u64| it.to_le_bytes()).collect();
    let map_end = map + 8 + 32 * bank.storage_count as usize;
    let (before, between) = (&bank_file[..places.stakes as usize], &bank_file[places.stakes_end as usize..map]);
    let bank_file = [before, &no_stakes, between, &[0; 8], &bank_file[map_end..]].concat();
    let last_blockhash = bank.blockhashes.last.expect("a blockhash");
    let group = [&1u64.to_le_bytes()[..], &last_blockhash.0, &[0; 16]].concat();
    let status_cache = [&1u64.to_le_bytes()[..], &bank.slot.to_le_bytes(), &[1], &group].concat();
    let entry = |path: &str, kind, content| TarEntry { path: path.to_string(), kind, content };
    let mut made = vec![
        entry("version", b'0', b"1.2.0".to_vec()),
        entry("snapshots/", b'5', Vec::new()),
        entry(&format!("snapshots/{}/", bank.slot), b'5', Vec::new()),
        entry(&bank_path, b'0', bank_file),
    ];
    let storage = |(id, content)| entry(&format!("accounts/{}.{id}", bank.slot), b'0', content);
    made.extend((0..).zip(written).map(storage));
    made.push(entry("snapshots/status_cache", b'0', status_cache));
    let path = dir.join(name(agave));
    fs::write(&path, zstd::stream::encode_all(make_tar(&made).as_slice(), 1).expect("compresses")).expect("written");
    path
}

/// Makes an empty ledger of a chain.
pub fn empty_ledger_of(agave: &str, dir: &Path, name: &str) -> PathBuf {
    let ledger = dir.join(name);
    fs::create_dir(&ledger).expect("made");
    fs::copy(genesis_of(agave), ledger.join("genesis.bin")).expect("copied");
    ledger
}

/// Returns a ledger's files without its lock and the archives beside it.
pub fn files_without_archives(ledger: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut files = tree(ledger);
    files.retain(|path, _| !path.ends_with(".lock") && !path.ends_with(".tar.zst"));
    files
}
