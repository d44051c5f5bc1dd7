//! Rows are the newest versions of all accounts, as a reader that shares no code with slotpress
//! finds them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::common::records::{Plain, newest, records};
use crate::common::{firedancer, *};
use crate::export::{manifest, pair, rows, run, tables};

const TOKEN: &str = "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA";

fn accounts_of(archives: &[&Path]) -> BTreeMap<String, Plain> {
    let all: Vec<Plain> = archives.iter().flat_map(|archive| records(archive)).collect();
    newest(&all).into_iter().filter(|(_, record)| record.lamports > 0).collect()
}

fn row(record: &Plain) -> String {
    let Plain { owner, pubkey, lamports, slot, executable, .. } = record;
    format!("{owner},{pubkey},{lamports},{slot},{},{executable}", record.data.len())
}

fn sorted(rows: impl Iterator<Item = String>) -> Vec<String> {
    let mut rows: Vec<String> = rows.collect();
    rows.sort();
    rows
}

#[test]
fn every_account_of_archives_and_ledgers() {
    for chain in ["agave-4.2.2", AGAVE_4_4, AGAVE_4_5, AGAVE_4_5_SPLIT] {
        let [full, incremental] = pair(chain);
        for archives in [vec![full.as_path()], vec![&full, &incremental]] {
            let expected = sorted(accounts_of(&archives).values().map(row));
            assert!(!expected.is_empty() && rows(&archives, &[]) == expected, "{chain}");
        }
        let ledger = ledger_of(chain, 40);
        let whole = rows(&[ledger.path()], &[]);
        assert_eq!(whole, sorted(accounts_of(&[&full, &incremental]).values().map(row)), "{chain}");
    }
}

/// Firedancer writes all storages with one slot, so its archives do not show when an account was
/// written.
#[test]
fn accounts_of_firedancers_archives_have_no_slot() {
    const CHAIN: &str = "firedancer-2026-08/chain";
    let (full, incremental) = (firedancer::full(CHAIN), firedancer::incremental(CHAIN));
    let agave = pair("agave-4.2.2");
    let mut expected = accounts_of(&[&agave[0], &agave[1]]);
    let without_slot = |row: &Plain| {
        let Plain { owner, pubkey, lamports, executable, .. } = row;
        format!("{owner},{pubkey},{lamports},,{},{executable}", row.data.len())
    };
    assert_eq!(rows(&[&full, &incremental], &[]), sorted(expected.values().map(without_slot)));
    // With Agave's full archive, accounts of the incremental one have no slot.
    let new: Vec<String> = records(&incremental).into_iter().map(|record| record.pubkey).collect();
    expected.retain(|key, _| new.contains(key));
    let mixed = rows(&[&agave[0], &incremental], &[]);
    assert_eq!(mixed.iter().filter(|row| row.contains(",,")).count(), expected.len());
    // Newer versions give each storage a slot, which has no meaning either.
    const NEWER: &str = "firedancer-2026-09/full-bank";
    let agave = pair(AGAVE_4_4);
    let expected = sorted(accounts_of(&[&agave[0], &agave[1]]).values().map(without_slot));
    let newer = [firedancer::full(NEWER), firedancer::incremental(NEWER)];
    assert_eq!(rows(&[&newer[0], &newer[1]], &[]), expected);
    let dir = temp_dir();
    let mut recompress = firedancer::command("recompress");
    assert_eq!(firedancer::run(recompress.arg(&newer[0]).arg("-o").arg(dir.path())).0, 0);
    assert_eq!(rows(&[&dir.path().join(name(&newer[0])), &newer[1]], &[]), expected);
}

#[test]
fn filters_are_those_of_a_naive_reader() {
    let [full, incremental] = pair("agave-4.2.2");
    let (pair, all) = ([full.as_path(), &incremental], accounts_of(&[&full, &incremental]));
    let expected = |is_wanted: &dyn Fn(&Plain) -> bool| sorted(all.values().filter(|one| is_wanted(one)).map(row));
    let some = all.values().find(|one| one.data.len() >= 40).expect("an account with data");
    let other = all.values().next_back().expect("an account");

    let owner = expected(&|one| one.owner == some.owner);
    assert!(!owner.is_empty() && owner.len() < all.len() && rows(&pair, &["--owner", &some.owner]) == owner);
    let length = some.data.len().to_string();
    assert_eq!(rows(&pair, &["--data-size", &length]), expected(&|one| one.data.len() == some.data.len()));
    let bytes = &some.data[8..16];
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let same = expected(&|one| one.data.get(8..16) == Some(bytes));
    assert_eq!(rows(&pair, &["--memcmp", &format!("8:0x{hex}")]), same);
    assert_eq!(rows(&pair, &["--memcmp", &format!("8:{}", bs58::encode(bytes).into_string())]), same);
    let dir = temp_dir();
    let list = dir.path().join("list");
    fs::write(&list, format!("# two\n{}\n\n{}\n", some.pubkey, other.pubkey)).expect("written");
    let two = expected(&|one| [&some.pubkey, &other.pubkey].contains(&&one.pubkey));
    assert_eq!(rows(&pair, &["--address", &format!("@{}", text(&list))]), two);
    // Filters see the newest version: an account that changed its owner does not match the old one.
    let before = accounts_of(&[&full]);
    let moved = before.values().find(|one| all.get(&one.pubkey).is_some_and(|now| now.owner != one.owner));
    if let Some(one) = moved {
        assert!(!rows(&pair, &["--owner", &one.owner]).iter().any(|row| row.contains(&one.pubkey)));
    }
    let closed = before.keys().find(|key| !all.contains_key(*key)).expect("a closed account");
    assert_eq!(rows(&pair, &["--address", closed]), Vec::<String>::new());
}

#[test]
fn data_whole_and_in_part() {
    let [full, _] = pair("agave-4.2.2");
    let all = accounts_of(&[&full]);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let with = |data: &dyn Fn(&Plain) -> String| sorted(all.values().map(|one| format!("{},{}", row(one), data(one))));
    assert_eq!(rows(&[&full], &["--data", "full"]), with(&|one| hex(&one.data)));
    let part = |one: &Plain| {
        let end = one.data.len().min(12);
        hex(one.data.get(4..end).unwrap_or_default())
    };
    assert_eq!(rows(&[&full], &["--data", "4:8"]), with(&part));
}

/// Fields of token accounts lie at fixed offsets: mint, owner, amount.
#[test]
fn token_accounts() {
    let [full, incremental] = pair("agave-4.2.2");
    let all = accounts_of(&[&full, &incremental]);
    let key = |bytes: &[u8]| bs58::encode(bytes).into_string();
    let of_token = |one: &&Plain| one.owner == TOKEN && one.data.len() == 165 && one.data[108] > 0;
    let expected = sorted(all.values().filter(of_token).map(|one| {
        let amount = u64::from_le_bytes(one.data[64..72].try_into().expect("8"));
        format!("{},{},{},{TOKEN},{amount}", key(&one.data[..32]), one.pubkey, key(&one.data[32..64]))
    }));
    let found = rows(&[&full, &incremental], &["--table", "token-accounts"]);
    let front: Vec<String> = found.iter().map(|row| row.split(',').take(5).collect::<Vec<_>>().join(",")).collect();
    let of_program: Vec<String> = front.into_iter().filter(|row| row.contains(TOKEN)).collect();
    assert!(!expected.is_empty() && of_program == expected, "{} and {}", of_program.len(), expected.len());
    let (mint, wallet) = (expected[0].split(',').next().expect("it"), expected[0].split(',').nth(2).expect("it"));
    let of_mint = rows(&[&full, &incremental], &["--table", "token-accounts", "--mint", mint]);
    assert!(of_mint.len() < found.len() && of_mint.iter().all(|row| row.starts_with(mint)) && !of_mint.is_empty());
    let of_wallet = rows(&[&full, &incremental], &["--table", "token-accounts", "--wallet", wallet]);
    assert!(!of_wallet.is_empty() && of_wallet.iter().all(|row| row.split(',').nth(2) == Some(wallet)));
}

#[test]
fn files_and_what_the_manifest_says_of_them() {
    let [full, incremental] = pair("agave-4.2.2");
    let out = temp_dir();
    let done = run(&[&full, &incremental], out.path(), &["--table", "accounts,token-accounts"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(tables(out.path()), ["accounts", "token_accounts"]);
    let manifest = manifest(out.path());
    assert_eq!((&manifest["slot"], &manifest["state"]), (&40.into(), &"checked".into()));
    let of_agave = expected_of("agave-4.2.2", 40);
    assert_eq!(manifest["accounts"], of_agave["accounts"]);
    let clock = &accounts_of(&[&full, &incremental])["SysvarC1ock11111111111111111111111111111111"].data;
    let number = |at: usize| i64::from_le_bytes(clock[at..at + 8].try_into().expect("8 bytes"));
    assert_eq!((&manifest["epoch"], &manifest["block_time"]), (&number(16).into(), &number(32).into()));
    assert!(number(0) == 40 && number(32) > 1_500_000_000, "{clock:?}");
    for table in manifest["tables"].as_array().expect("a list") {
        for file in table["files"].as_array().expect("a list") {
            let content = fs::read(out.path().join(file["path"].as_str().expect("a path"))).expect("read");
            let hash: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!((file["bytes"].as_u64(), file["sha256"].as_str()), (Some(content.len() as u64), Some(&*hash)));
        }
    }
    let docs = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/export.md")).expect("the page");
    let others = ["token-accounts", "mints", "stakes", "votes", "programs"].map(|table| vec!["--table", table]);
    for flags in [vec!["--data", "full"]].iter().chain(&others) {
        let header = run(&[&full], Path::new("-"), flags).stdout;
        let header = String::from_utf8(header).expect("text").lines().next().expect("a header").to_string();
        let column = |name: &str| docs.lines().any(|line| line.starts_with("| ") && line.contains(name));
        assert!(header.split(',').all(column), "{header}");
    }
    let again = run(&[&full, &incremental], out.path(), &[]);
    assert_eq!(again.status.code(), Some(5), "{}", String::from_utf8_lossy(&again.stderr));
    // A table alone has the same files.
    let one = temp_dir();
    for table in ["token-accounts", "accounts"] {
        assert!(run(&[&full, &incremental], one.path(), &["--table", table]).status.success());
    }
    assert_eq!(crate::export::manifest(one.path())["tables"], manifest["tables"]);
}
