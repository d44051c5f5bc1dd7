//! Rows are the newest versions of all accounts, as found by a reader that shares no code with slotpress.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::common::records::{PlainRecord, newest, records};
use crate::common::{firedancer, *};
use crate::export::{
    PAGE, assert_exported, checked_table_names, export_rows, fixture_pair, read_manifest, run_export, sha256_hex,
    stderr_of,
};

const TOKEN: &str = "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA";

fn newest_accounts(archives: &[&Path]) -> BTreeMap<String, PlainRecord> {
    let all: Vec<PlainRecord> = archives.iter().flat_map(|archive| records(archive)).collect();
    newest(&all).into_iter().filter(|(_, record)| record.lamports > 0).collect()
}

fn csv_row(record: &PlainRecord) -> String {
    let PlainRecord { owner, pubkey, lamports, slot, executable, .. } = record;
    format!("{owner},{pubkey},{lamports},{slot},{},{executable}", record.data.len())
}

fn sorted_rows(rows: impl Iterator<Item = String>) -> Vec<String> {
    let mut rows: Vec<String> = rows.collect();
    rows.sort();
    rows
}

#[test]
fn archives_and_ledgers_export_every_account() {
    for chain in ["agave-4.2.2", AGAVE_4_4, AGAVE_4_5, AGAVE_4_5_SPLIT] {
        let [full, incremental] = fixture_pair(chain);
        for archives in [vec![full.as_path()], vec![&full, &incremental]] {
            let expected = sorted_rows(newest_accounts(&archives).values().map(csv_row));
            assert!(!expected.is_empty(), "{chain}");
            assert!(export_rows(&archives, &[]) == expected, "{chain}");
        }
        let ledger = ledger_of(chain, 40);
        let whole = export_rows(&[ledger.path()], &[]);
        assert_eq!(whole, sorted_rows(newest_accounts(&[&full, &incremental]).values().map(csv_row)), "{chain}");
    }
}

/// Firedancer's archives do not show when an account was written: older ones have the same slot in all storages.
#[test]
fn accounts_of_firedancers_archives_have_no_slot() {
    let full = firedancer::full(firedancer::OLD_CHAIN);
    let incremental = firedancer::incremental(firedancer::OLD_CHAIN);
    let agave = fixture_pair("agave-4.2.2");
    let mut expected = newest_accounts(&[&agave[0], &agave[1]]);
    let without_slot = |record: &PlainRecord| {
        let PlainRecord { owner, pubkey, lamports, executable, .. } = record;
        format!("{owner},{pubkey},{lamports},,{},{executable}", record.data.len())
    };
    assert_eq!(export_rows(&[&full, &incremental], &[]), sorted_rows(expected.values().map(without_slot)));
    // If the full archive is Agave's, only the accounts in Firedancer's incremental one have no slot.
    let new: Vec<String> = records(&incremental).into_iter().map(|record| record.pubkey).collect();
    expected.retain(|key, _| new.contains(key));
    let mixed = export_rows(&[&agave[0], &incremental], &[]);
    assert_eq!(mixed.iter().filter(|row| row.contains(",,")).count(), expected.len());
    // Newer archives have a different slot in each storage, which has no meaning either.
    let agave = fixture_pair(AGAVE_4_4);
    let expected = sorted_rows(newest_accounts(&[&agave[0], &agave[1]]).values().map(without_slot));
    let [full, incremental] = [firedancer::full(firedancer::NEW_CHAIN), firedancer::incremental(firedancer::NEW_CHAIN)];
    assert_eq!(export_rows(&[&full, &incremental], &[]), expected);
    let dir = temp_dir();
    let mut recompress = firedancer::command("recompress");
    assert_eq!(firedancer::run_command_to_first_line(recompress.arg(&full).arg("-o").arg(dir.path())).0, 0);
    assert_eq!(export_rows(&[&dir.path().join(name(&full)), &incremental], &[]), expected);
}

fn select_rows(accounts: &BTreeMap<String, PlainRecord>, is_wanted: impl Fn(&PlainRecord) -> bool) -> Vec<String> {
    sorted_rows(accounts.values().filter(|account| is_wanted(account)).map(csv_row))
}

#[test]
fn filters_select_owners() {
    let [full, incremental] = fixture_pair("agave-4.2.2");
    let archives = [full.as_path(), &incremental];
    let all = newest_accounts(&archives);
    let owner = &all.values().find(|account| account.data.len() >= 40).expect("an account with data").owner;
    let expected = select_rows(&all, |account| account.owner == *owner);
    assert!(!expected.is_empty());
    assert!(expected.len() < all.len());
    assert_eq!(export_rows(&archives, &["--owner", owner]), expected);
}

#[test]
fn filters_select_lengths_and_bytes_of_data() {
    let [full, incremental] = fixture_pair("agave-4.2.2");
    let archives = [full.as_path(), &incremental];
    let all = newest_accounts(&archives);
    let data = &all.values().find(|account| account.data.len() >= 40).expect("an account with data").data;
    let same_length = select_rows(&all, |account| account.data.len() == data.len());
    assert_eq!(export_rows(&archives, &["--data-size", &data.len().to_string()]), same_length);
    let bytes = &data[8..16];
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let base58 = bs58::encode(bytes).into_string();
    let same_bytes = select_rows(&all, |account| account.data.get(8..16) == Some(bytes));
    assert_eq!(export_rows(&archives, &["--memcmp", &format!("8:0x{hex}")]), same_bytes);
    assert_eq!(export_rows(&archives, &["--memcmp", &format!("8:{base58}")]), same_bytes);
}

#[test]
fn filters_select_addresses() {
    let [full, incremental] = fixture_pair("agave-4.2.2");
    let archives = [full.as_path(), &incremental];
    let all = newest_accounts(&archives);
    let first = all.values().find(|account| account.data.len() >= 40).expect("an account with data");
    let last = all.values().next_back().expect("an account");
    let dir = temp_dir();
    let list = dir.path().join("list");
    fs::write(&list, format!("# two\n{}\n\n{}\n", first.pubkey, last.pubkey)).expect("written");
    let expected = select_rows(&all, |account| [&first.pubkey, &last.pubkey].contains(&&account.pubkey));
    assert_eq!(export_rows(&archives, &["--address", &format!("@{}", text(&list))]), expected);
}

/// A filter by owner does not select an account that has a different owner now. No filter selects a closed
/// account.
#[test]
fn filters_see_the_newest_version() {
    let [full, incremental] = fixture_pair("agave-4.2.2");
    let archives = [full.as_path(), &incremental];
    let all = newest_accounts(&archives);
    let before = newest_accounts(&[&full]);
    let has_moved = |account: &&PlainRecord| all.get(&account.pubkey).is_some_and(|now| now.owner != account.owner);
    let moved = before.values().find(has_moved).expect("an account with a different owner");
    assert!(!export_rows(&archives, &["--owner", &moved.owner]).iter().any(|row| row.contains(&moved.pubkey)));
    let closed = before.keys().find(|key| !all.contains_key(*key)).expect("a closed account");
    assert_eq!(export_rows(&archives, &["--address", closed]), Vec::<String>::new());
}

#[test]
fn data_is_exported_whole_or_in_part() {
    let [full, _] = fixture_pair("agave-4.2.2");
    let all = newest_accounts(&[&full]);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let with_data = |data: &dyn Fn(&PlainRecord) -> String| {
        sorted_rows(all.values().map(|account| format!("{},{}", csv_row(account), data(account))))
    };
    assert_eq!(export_rows(&[&full], &["--data", "full"]), with_data(&|account| hex(&account.data)));
    let part = |account: &PlainRecord| {
        let end = account.data.len().min(12);
        hex(account.data.get(4..end).unwrap_or_default())
    };
    assert_eq!(export_rows(&[&full], &["--data", "4:8"]), with_data(&part));
}

/// Mint, owner and amount of a token account are at fixed offsets.
#[test]
fn token_accounts_have_the_fields_of_their_data() {
    let [full, incremental] = fixture_pair("agave-4.2.2");
    let all = newest_accounts(&[&full, &incremental]);
    let key = |bytes: &[u8]| bs58::encode(bytes).into_string();
    let is_token_account =
        |account: &&PlainRecord| account.owner == TOKEN && account.data.len() == 165 && account.data[108] > 0;
    let expected = sorted_rows(all.values().filter(is_token_account).map(|account| {
        let data = &account.data;
        let amount = u64::from_le_bytes(data[64..72].try_into().expect("8 bytes"));
        format!("{},{},{},{TOKEN},{amount}", key(&data[..32]), account.pubkey, key(&data[32..64]))
    }));
    let found = export_rows(&[&full, &incremental], &["--table", "token-accounts"]);
    let front: Vec<String> = found.iter().map(|row| row.split(',').take(5).collect::<Vec<_>>().join(",")).collect();
    let of_program: Vec<String> = front.into_iter().filter(|row| row.contains(TOKEN)).collect();
    assert!(!expected.is_empty());
    assert!(of_program == expected, "{} and {}", of_program.len(), expected.len());
    let mint = expected[0].split(',').next().expect("a mint");
    let of_mint = export_rows(&[&full, &incremental], &["--table", "token-accounts", "--mint", mint]);
    assert!(!of_mint.is_empty());
    assert!(of_mint.len() < found.len());
    assert!(of_mint.iter().all(|row| row.starts_with(mint)));
    let wallet = expected[0].split(',').nth(2).expect("a wallet");
    let of_wallet = export_rows(&[&full, &incremental], &["--table", "token-accounts", "--wallet", wallet]);
    assert!(!of_wallet.is_empty());
    assert!(of_wallet.iter().all(|row| row.split(',').nth(2) == Some(wallet)));
}

#[test]
fn manifests_describe_the_state_and_the_files() {
    let [full, incremental] = fixture_pair("agave-4.2.2");
    let out = temp_dir();
    assert_exported(&[&full, &incremental], out.path(), &["--table", "accounts,token-accounts"]);
    assert_eq!(checked_table_names(out.path()), ["accounts", "token_accounts"]);
    let manifest = read_manifest(out.path());
    assert_eq!(manifest["slot"], 40);
    assert_eq!(manifest["state"], "checked");
    let of_agave = expected_facts("agave-4.2.2", 40);
    assert_eq!(manifest["accounts"], of_agave["accounts"]);
    let clock = &newest_accounts(&[&full, &incremental])["SysvarC1ock11111111111111111111111111111111"].data;
    let number = |offset: usize| i64::from_le_bytes(clock[offset..offset + 8].try_into().expect("8 bytes"));
    assert_eq!((&manifest["epoch"], &manifest["block_time"]), (&number(16).into(), &number(32).into()));
    assert_eq!(number(0), 40);
    assert!(number(32) > 1_500_000_000, "{clock:?}");
    for table in manifest["tables"].as_array().expect("a list") {
        for file in table["files"].as_array().expect("a list") {
            let content = fs::read(out.path().join(file["path"].as_str().expect("a path"))).expect("read");
            assert_eq!(file["bytes"], content.len());
            assert_eq!(file["sha256"], sha256_hex(&content));
        }
    }
}

#[test]
fn the_page_describes_every_column() {
    let [full, _] = fixture_pair("agave-4.2.2");
    let others = ["token-accounts", "mints", "stakes", "votes", "programs"].map(|table| vec!["--table", table]);
    for flags in [vec!["--data", "full"]].iter().chain(&others) {
        let header = run_export(&[&full], Path::new("-"), flags).stdout;
        let header = String::from_utf8(header).expect("text").lines().next().expect("a header").to_string();
        let is_described = |name: &str| PAGE.lines().any(|line| line.starts_with("| ") && line.contains(name));
        assert!(header.split(',').all(is_described), "{header}");
    }
}

/// Tables that are exported one by one have the same files as tables that are exported together. A table
/// is never exported twice.
#[test]
fn tables_can_be_added_one_by_one() {
    let [full, incremental] = fixture_pair("agave-4.2.2");
    let together = temp_dir();
    assert_exported(&[&full, &incremental], together.path(), &["--table", "accounts,token-accounts"]);
    let again = run_export(&[&full, &incremental], together.path(), &[]);
    assert_eq!(again.status.code(), Some(5), "{}", stderr_of(&again));
    let one_by_one = temp_dir();
    for table in ["token-accounts", "accounts"] {
        assert_exported(&[&full, &incremental], one_by_one.path(), &["--table", table]);
    }
    assert_eq!(read_manifest(one_by_one.path())["tables"], read_manifest(together.path())["tables"]);
}
