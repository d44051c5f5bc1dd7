//! The tables of mints, stakes, votes and programs equal those of simple readers that read fields at
//! fixed offsets. The stakes equal those of the bank file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::common::records::{PlainRecord, newest, records, stake_field, u64_at};
use crate::common::*;
use crate::export::{
    assert_exported, csv_lines, export_rows, fixture_pair, read_manifest, run_export, sha256_hex, stderr_of,
};
use crate::verify::refused::fields::{BANK_FILE, ListItems, field_places};

pub const TOKEN: &str = "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA";
pub const TOKEN_2022: &str = "TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb";
const STAKE: &str = "Stake11111111111111111111111111111111111111";
const VOTE: &str = "Vote111111111111111111111111111111111111111";
pub const LOADER: &str = "BPFLoaderUpgradeab1e11111111111111111111111";
const OLD_LOADERS: [&str; 2] =
    ["BPFLoader1111111111111111111111111111111111", "BPFLoader2111111111111111111111111111111111"];

/// Columns of stakes: effective, activating and deactivating lamports.
const ACTIVATION_COLUMNS: [usize; 3] = [13, 14, 15];

/// Columns of votes that [`vote_row`] leaves out: authorized voter, root slot, last vote slot, credits.
const UNREAD_VOTE_COLUMNS: [usize; 4] = [3, 10, 11, 12];

/// Newest accounts of archives, by their addresses.
pub struct Accounts(pub BTreeMap<String, PlainRecord>);

impl Accounts {
    pub fn read(archives: &[&Path]) -> Self {
        let all: Vec<PlainRecord> = archives.iter().flat_map(|archive| records(archive)).collect();
        Self(newest(&all).into_iter().filter(|(_, record)| record.lamports > 0).collect())
    }

    fn rows(&self, row: impl Fn(&PlainRecord) -> Option<Vec<String>>) -> Vec<String> {
        let whole_row = |account: &PlainRecord| {
            let last_cells = vec![account.lamports.to_string(), account.slot.to_string()];
            Some([row(account)?, last_cells].concat().join(","))
        };
        let mut rows: Vec<String> = self.0.values().filter_map(whole_row).collect();
        rows.sort();
        rows
    }
}

pub fn address_at(data: &[u8], offset: usize) -> String {
    bs58::encode(&data[offset..offset + 32]).into_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn optional_address_at(data: &[u8], tag_offset: usize) -> String {
    if data[tag_offset] == 1 { address_at(data, tag_offset + 4) } else { String::new() }
}

fn mint_row(account: &PlainRecord) -> Option<Vec<String>> {
    let data = &account.data;
    let is_2022 = account.owner == TOKEN_2022;
    let has_extensions = is_2022 && data.len() > 165 && data.len() != 355 && data[165] == 1;
    if !is_2022 && account.owner != TOKEN || data.len() != 82 && !has_extensions {
        return None;
    }
    // The mints with extensions are those of `synth`: a pointer of 64 bytes, then the metadata.
    let mut texts = vec![String::new(); 3];
    if has_extensions {
        let mut offset = 166 + 4 + 64 + 4 + 64;
        for text in &mut texts {
            let length = u32::from_le_bytes(data[offset..offset + 4].try_into().expect("4 bytes")) as usize;
            let start = offset + 4;
            *text = String::from_utf8(data[start..start + length].to_vec()).expect("text");
            offset = start + length;
        }
    }
    let extensions = if has_extensions { "metadataPointer tokenMetadata" } else { "" };
    let front = [account.pubkey.clone(), account.owner.clone(), data[44].to_string(), u64_at(data, 36).to_string()];
    let back = [
        optional_address_at(data, 0),
        optional_address_at(data, 46),
        (data[45] == 1).to_string(),
        extensions.to_string(),
    ];
    Some([&front[..], &back[..], &texts[..]].concat())
}

/// Returns all cells but the effective, activating and deactivating lamports.
fn stake_row(account: &PlainRecord) -> Option<Vec<String>> {
    let data = &account.data;
    if account.owner != STAKE {
        return None;
    }
    let epoch_cell = |number: u64| if number == u64::MAX { String::new() } else { number.to_string() };
    let has_meta = [1, 2].contains(&data[0]);
    let meta = if has_meta {
        vec![
            address_at(data, 12),
            address_at(data, 44),
            u64_at(data, 76).to_string(),
            u64_at(data, 84).to_string(),
            address_at(data, 92),
            u64_at(data, 4).to_string(),
        ]
    } else {
        vec![String::new(); 6]
    };
    let delegation = match data[0] {
        2 => [
            u64_at(data, 156).to_string(),
            epoch_cell(u64_at(data, stake_field::ACTIVATION_EPOCH.start)),
            epoch_cell(u64_at(data, stake_field::DEACTIVATION_EPOCH.start)),
            u64_at(data, stake_field::CREDITS_OBSERVED.start).to_string(),
        ],
        _ => Default::default(),
    };
    let state = ["uninitialized", "initialized", "delegated", "rewardsPool"][usize::from(data[0])];
    let voter = if data[0] == 2 { address_at(data, 124) } else { String::new() };
    Some([&[voter, account.pubkey.clone(), state.to_string()][..], &meta[..], &delegation[..]].concat())
}

/// Returns all cells but the authorized voter, slots and credits.
fn vote_row(account: &PlainRecord) -> Option<Vec<String>> {
    let data = &account.data;
    if account.owner != VOTE {
        return None;
    }
    let u16_at = |offset: usize| u16::from_le_bytes([data[offset], data[offset + 1]]).to_string();
    let version_cells = match data[0] {
        1 | 2 => [(100 * u64::from(data[68])).to_string(), String::new(), String::new(), String::new(), String::new()],
        3 => {
            let bls_key = if data[144] == 1 { hex(&data[145..193]) } else { String::new() };
            [u16_at(132), u16_at(134), address_at(data, 68), address_at(data, 100), bls_key]
        }
        other => panic!("{other}"),
    };
    let version = ["", "1.14.11", "3", "4"][usize::from(data[0])];
    Some(
        [
            &[account.pubkey.clone(), version.to_string(), address_at(data, 4), address_at(data, 36)][..],
            &version_cells[..],
        ]
        .concat(),
    )
}

fn remove_columns(rows: Vec<String>, columns: &[usize]) -> Vec<String> {
    let kept = |row: &String| {
        let fields = row.split(',').enumerate().filter(|(column, _)| !columns.contains(column));
        fields.map(|(_, field)| field).collect::<Vec<_>>().join(",")
    };
    let mut rows: Vec<String> = rows.iter().map(kept).collect();
    rows.sort();
    rows
}

fn code_cells(data: &[u8]) -> [String; 2] {
    let end = data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    [end.to_string(), sha256_hex(&data[..end])]
}

fn program_rows(accounts: &Accounts) -> Vec<String> {
    accounts.rows(|account| {
        let data = &account.data;
        let front = [account.pubkey.clone(), account.owner.clone()];
        if OLD_LOADERS.contains(&account.owner.as_str()) && account.executable {
            return Some([&front[..], &vec![String::new(); 3][..], &code_cells(data)[..]].concat());
        }
        match data.first() {
            Some(2) if account.owner == LOADER => {
                Some([&front[..], &[address_at(data, 4)][..], &vec![String::new(); 4][..]].concat())
            }
            Some(3) if account.owner == LOADER => {
                let authority = if data[12] == 1 { address_at(data, 13) } else { String::new() };
                let back = [String::new(), authority, u64_at(data, 4).to_string()];
                Some([&front[..], &back[..], &code_cells(&data[45..])[..]].concat())
            }
            _ => None,
        }
    })
}

fn table_rows(archives: &[&Path], name: &str) -> Vec<String> {
    export_rows(archives, &["--table", name])
}

/// Returns the stake of each vote account in the bank file of an archive.
fn stakes_of_bank(archive: &Path) -> BTreeMap<String, u64> {
    let is_bank = |entry: &TarEntry| {
        let mut parts = entry.path.strip_prefix("snapshots/").into_iter().flat_map(|rest| rest.split('/'));
        parts.next().is_some_and(|slot| parts.next() == Some(slot))
    };
    let content = entries(archive).into_iter().find(is_bank).expect("a bank file").content;
    let places = field_places(&content, BANK_FILE, ListItems::All);
    let offsets = |name: &str| {
        let name = format!("stakes / vote accounts / {name}");
        let found = places.iter().filter(move |place| place.name == name);
        found.map(|place| place.range.start).collect::<Vec<_>>()
    };
    offsets("address")
        .iter()
        .zip(&offsets("stake"))
        .map(|(address, stake)| (address_at(&content, *address), u64_at(&content, *stake)))
        .collect()
}

/// Checks that the stake of each voter is that of the bank file. Returns the sums of effective,
/// activating and deactivating lamports.
fn assert_stake_by_voter(archives: &[&Path], stakes: &[String]) -> [u64; 3] {
    let mut by_voter = BTreeMap::<String, u64>::new();
    let mut sums = [0; 3];
    for row in stakes {
        let fields: Vec<&str> = row.split(',').collect();
        let lamports = ACTIVATION_COLUMNS.map(|column| fields[column].parse::<u64>().expect("a number"));
        *by_voter.entry(fields[0].to_string()).or_default() += lamports[0];
        sums.iter_mut().zip(lamports).for_each(|(sum, lamports)| *sum += lamports);
    }
    let of_bank = stakes_of_bank(archives.last().expect("an archive"));
    assert!(of_bank.values().any(|stake| *stake > 0), "{archives:?}");
    for (voter, stake) in of_bank {
        assert_eq!(by_voter.get(&voter).copied().unwrap_or_default(), stake, "{archives:?}: {voter}");
    }
    sums
}

struct RowCounts {
    stakes: usize,
    votes: usize,
}

/// Checks all four tables.
fn assert_tables(archives: &[&Path]) -> RowCounts {
    let accounts = Accounts::read(archives);
    let mints = table_rows(archives, "mints");
    assert_eq!(mints, accounts.rows(mint_row), "{archives:?}");
    let stakes = table_rows(archives, "stakes");
    assert_stake_by_voter(archives, &stakes);
    let stake_count = stakes.len();
    assert_eq!(remove_columns(stakes, &ACTIVATION_COLUMNS), accounts.rows(stake_row), "{archives:?}");
    let votes = remove_columns(table_rows(archives, "votes"), &UNREAD_VOTE_COLUMNS);
    assert_eq!(votes, accounts.rows(vote_row), "{archives:?}");
    assert_eq!(table_rows(archives, "programs"), program_rows(&accounts), "{archives:?}");
    RowCounts { stakes: stake_count, votes: votes.len() }
}

#[test]
fn tables_of_every_chain_equal_those_of_simple_readers() {
    for chain in ["agave-4.2.2", AGAVE_4_4, AGAVE_4_5, AGAVE_4_5_SPLIT] {
        let [full, incremental] = fixture_pair(chain);
        assert_tables(&[&full]);
        let counts = assert_tables(&[&full, &incremental]);
        assert!(counts.stakes > 0, "{chain}");
        assert!(counts.votes > 0, "{chain}");
    }
    let full = fixture_of("agave-4.2.2-epoch", "snapshot-32-");
    let incremental = fixture_of("agave-4.2.2-epoch", "incremental-snapshot-32-48-");
    assert_tables(&[&full]);
    assert_tables(&[&full, &incremental]);
    let validator = fixture_of("agave-validator-4.2.2", "snapshot-3500-");
    assert_tables(&[&validator]);
}

pub struct SyntheticPair {
    pub dir: TempDir,
    pub full: PathBuf,
    pub incremental: PathBuf,
}

pub fn make_synthetic_pair(flags: &[&str]) -> SyntheticPair {
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    slotpress().arg("synth").arg(&ledger).args(["--incremental", "1MiB"]).args(flags).assert().success();
    let full = archive(&ledger.join("at-full"), dir.path(), &[]);
    let base_slot = name(&full).split('-').nth(1).expect("a slot").to_string();
    let incremental = archive(&ledger, dir.path(), &["--base-slot", &base_slot]);
    SyntheticPair { dir, full, incremental }
}

#[test]
fn tables_of_synthetic_states_equal_those_of_simple_readers() {
    for mix in ["mainnet", "tokens", "programs"] {
        let made = make_synthetic_pair(&["--mix", mix, "--size", "24MiB"]);
        let archives = [made.full.as_path(), &made.incremental];
        let counts = assert_tables(&archives);
        assert!(counts.stakes > 0, "{mix}");
        assert!(counts.votes > 0, "{mix}");
        match mix {
            "tokens" => {
                let has_metadata = |row: &&String| row.contains("metadataPointer tokenMetadata");
                assert!(table_rows(&archives, "mints").iter().filter(has_metadata).count() > 20);
            }
            "programs" => {
                let [programs, codes] = [2, 4].map(|column| {
                    let has_cell = |row: &&String| row.split(',').nth(column) != Some("");
                    table_rows(&archives, "programs").iter().filter(has_cell).count()
                });
                assert!(programs > 20, "{programs}");
                assert!(codes > 20, "{codes}");
            }
            _ => {
                let [effective, _, deactivating] = assert_stake_by_voter(&archives, &table_rows(&archives, "stakes"));
                assert!(effective > deactivating, "{effective} {deactivating}");
                assert!(deactivating > 0);
            }
        }
    }
}

pub const ALL_TABLES: &str = "accounts,token-accounts,mints,stakes,votes,programs";

/// Returns the lines of a whole table without the header and without the change, which must be `added`
/// in each.
pub fn remove_change(lines: Vec<String>) -> Vec<String> {
    let column = lines[0].split(',').position(|name| name == "change").expect("a column");
    let cut = |line: &String| {
        let mut cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells.remove(column), "added", "{line}");
        cells.join(",")
    };
    lines[1..].iter().map(cut).collect()
}

#[test]
fn one_pass_writes_the_same_as_one_pass_per_table() {
    let made = make_synthetic_pair(&["--size", "8MiB"]);
    let archives = [made.full.as_path(), &made.incremental];
    let dir = temp_dir();
    assert_exported(&archives, dir.path(), &["--table", ALL_TABLES]);
    let manifest = read_manifest(dir.path());
    assert_eq!(manifest["unparsed_accounts"], 0);
    for (name, fields) in ALL_TABLES.split(',').zip(manifest["tables"].as_array().expect("tables")) {
        let expected = table_rows(&archives, name);
        assert_eq!(fields["table"], name.replace('-', "_"));
        assert_eq!(fields["rows"], expected.len());
        let file = dir.path().join(fields["files"][0]["path"].as_str().expect("a path"));
        let mut written = remove_change(csv_lines(&file));
        written.sort_unstable();
        assert_eq!(written, expected, "{name}");
    }
}

#[test]
fn filters_select_programs() {
    let made = make_synthetic_pair(&["--mix", "programs", "--size", "24MiB"]);
    let archives = [made.full.as_path(), &made.incremental];
    let all = table_rows(&archives, "programs");
    let with_code = all.iter().find(|row| row.split(',').nth(4) != Some("")).expect("a program");
    let address = with_code.split(',').next().expect("an address");
    assert_eq!(export_rows(&archives, &["--table", "programs", "--address", address]), [with_code.as_str()]);
    assert_eq!(export_rows(&archives, &["--table", "programs", "--owner", STAKE]), Vec::<String>::new());
}

#[test]
fn filters_select_mints() {
    let made = make_synthetic_pair(&["--mix", "tokens", "--size", "4MiB"]);
    let archives = [made.full.as_path(), &made.incremental];
    let mints = table_rows(&archives, "mints");
    let mint = mints[0].split(',').next().expect("an address");
    assert_eq!(export_rows(&archives, &["--table", "mints", "--mint", mint]), [mints[0].as_str()]);
    assert!(export_rows(&archives, &["--mint", mint]).iter().all(|row| !row.contains(mint)), "token accounts only");
    for (table, filter) in [("mints", "--wallet"), ("stakes", "--mint"), ("votes", "--wallet"), ("programs", "--mint")]
    {
        let output = run_export(&archives, Path::new("-"), &["--table", table, filter, mint]);
        let stderr = stderr_of(&output);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains(&format!("a filter by mint or wallet excludes all rows of the table {table}")),
            "{stderr}"
        );
        assert!(output.stdout.is_empty());
    }
}

pub fn record_bytes(address: u8, owner: &str, lamports: u64, data: &[u8]) -> Vec<u8> {
    record_bytes_with_flag(address, owner, lamports, 0, data)
}

pub fn executable_record_bytes(address: u8, owner: &str, lamports: u64, data: &[u8]) -> Vec<u8> {
    record_bytes_with_flag(address, owner, lamports, 1, data)
}

fn record_bytes_with_flag(address: u8, owner: &str, lamports: u64, executable: u8, data: &[u8]) -> Vec<u8> {
    let owner = bs58::decode(owner).into_vec().expect("an address");
    let numbers = |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let mut record = [numbers(&[0, data.len() as u64]), vec![address; 32], numbers(&[lamports, u64::MAX])].concat();
    record.extend([&owner[..], &[executable], &[0; 7 + 32], data].concat());
    record.resize(record.len().next_multiple_of(8), 0);
    record
}

fn mint_data(extensions: &[u8]) -> Vec<u8> {
    [&[0; 45][..], &[1], &[0; 36 + 83], &[1], extensions].concat()
}

fn metadata_extension(name: &[u8]) -> Vec<u8> {
    let value = [&[7; 64][..], &(name.len() as u32).to_le_bytes(), name, &[0; 12]].concat();
    [&[19, 0][..], &(value.len() as u16).to_le_bytes(), &value].concat()
}

/// The export continues after accounts that no program would write.
#[test]
fn hostile_accounts_have_no_wrong_row() {
    let archive = fixture_of(AGAVE_4_4, "snapshot-26-");
    let mut entries = entries(&archive);
    let vote_4 = [&[3, 0, 0, 0][..], &[255; 140], &[0], &1u64.to_le_bytes(), &[255; 13], &[0; 9]].concat();
    let vote_4 = [&vote_4[..], &1u64.to_le_bytes(), &[255; 24], &[0; 16]].concat();
    let highest = [&[2, 0, 0, 0][..], &[255; 193]].concat();
    let program_of_itself = [&[2, 0, 0, 0][..], &[9; 32]].concat();
    let accounts = [
        record_bytes(1, TOKEN_2022, 1, &mint_data(&metadata_extension(b"a,\"b\x1b[31m\n"))),
        record_bytes(2, TOKEN_2022, 1, &mint_data(&metadata_extension(b"\xff\xfe"))),
        record_bytes(3, TOKEN_2022, 1, &mint_data(&[255, 255, 0, 0].repeat(1_000_000))),
        record_bytes(4, TOKEN_2022, 1, &mint_data(&[19, 0, 255, 255])),
        record_bytes(5, TOKEN_2022, 1, &mint_data(&metadata_extension(&[b'x'; 65_000]))),
        record_bytes(6, TOKEN, 1, &[255; 82]),
        record_bytes(7, STAKE, 1, &highest),
        record_bytes(8, VOTE, 1, &vote_4),
        executable_record_bytes(9, LOADER, 1, &program_of_itself),
        executable_record_bytes(10, OLD_LOADERS[1], 1, &[]),
        record_bytes(11, STAKE, 1, &highest[..100]),
        record_bytes(12, VOTE, 1, &vote_4[..100]),
        record_bytes(13, LOADER, 1, &[3, 0, 0, 0, 9]),
        record_bytes(14, STAKE, 1, &[]),
    ];
    // The first storage contains all of these accounts, and account 15. In the last storage, which is the
    // newest, account 15 has a different owner.
    let mut storages: Vec<&mut TarEntry> =
        entries.iter_mut().filter(|entry| entry.path.starts_with("accounts/")).collect();
    let slot_of =
        |entry: &TarEntry| entry.path["accounts/".len()..].split('.').next().and_then(|slot| slot.parse::<u64>().ok());
    storages.sort_by_key(|entry| slot_of(entry));
    let (first, last) = storages.split_first_mut().expect("storages");
    first.content.resize(first.content.len().next_multiple_of(8), 0);
    first.content.extend(accounts.concat());
    first.content.extend(record_bytes(15, STAKE, 1, &highest));
    let last = last.last_mut().expect("another");
    last.content.resize(last.content.len().next_multiple_of(8), 0);
    last.content.extend(record_bytes(15, "11111111111111111111111111111111", 1, &[]));
    let dir = temp_dir();
    let forged = dir.path().join(name(&archive));
    write_archive(&forged, &entries);

    let known = |name: &str| table_rows(&[&archive], name).into_iter().collect::<BTreeSet<String>>();
    let new = |name: &str| {
        let all = export_rows(&[&forged], &["--table", name, "--check", "frames"]);
        let known = known(name);
        all.into_iter().filter(|row| !known.contains(row)).collect::<Vec<String>>()
    };
    let address = |number: u8| bs58::encode([number; 32]).into_string();
    let max = u64::MAX;
    let mints = new("mints");
    let mint = |number: u8| mints.iter().find(|row| row.starts_with(&address(number))).expect("a mint");
    assert_eq!(mints.len(), 5, "{mints:?}");
    assert!(mint(1).contains(",tokenMetadata,\"a,\"\"b\u{fffd}[31m\u{fffd}\",,,1,"), "{}", mint(1));
    assert!(mint(2).contains(",tokenMetadata,,,,1,"), "{}", mint(2));
    assert!(mint(3).contains("extension65535 extension65535"), "{}", mint(3));
    assert!(mint(3).len() < 1000, "{}", mint(3));
    assert!(mint(4).contains(",true,,,,,1,"), "{}", mint(4));
    assert!(mint(5).len() > 65_000);
    let key = bs58::encode([255; 32]).into_string();
    let stakes = new("stakes");
    assert_eq!(stakes.len(), 1, "{stakes:?}");
    let start = format!("{key},{},delegated,{key},{key},-1,{max},{key},{max},{max},,,{max},{max},0,0,1,", address(7));
    assert!(stakes[0].starts_with(&start), "{stakes:?}");
    let votes = new("votes");
    assert_eq!(votes.len(), 1, "{votes:?}");
    let start = format!("{},4,{key},,{key},65535,65535,{key},{key},,,,{max}:{max}:{max},1,", address(8));
    assert!(votes[0].starts_with(&start), "{votes:?}");
    let programs = new("programs");
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let expected = [
        format!("{},{},,,,0,{empty},1,", address(10), OLD_LOADERS[1]),
        format!("{},{LOADER},{},,,,,1,", address(9), address(9)),
    ];
    assert_eq!(programs.len(), 2, "{programs:?}");
    assert!(expected.iter().all(|start| programs.iter().any(|row| row.starts_with(start))), "{programs:?}");
    let out = dir.path().join("tables");
    assert_exported(&[&forged], &out, &["--table", ALL_TABLES, "--check", "frames"]);
    let manifest = read_manifest(&out);
    assert_eq!((&manifest["unparsed_accounts"], &manifest["cut_off_extensions"]), (&5.into(), &1.into()));
}
