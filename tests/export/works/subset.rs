//! Accounts exported for a test validator equal those found by a reader that shares no code with slotpress.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::tables::{
    Accounts, LOADER, TOKEN, TOKEN_2022, address_at, executable_record_bytes, make_synthetic_pair, record_bytes,
};
use crate::common::records::{PlainRecord, decode_base64};
use crate::common::*;
use crate::export::{
    PAGE, assert_exported, assert_refused, fixture_pair, list_files, read_manifest, run_export, sha256_hex,
};

const FORMAT: [&str; 2] = ["--format", "test-validator"];

const VOTE: &str = "Vote111111111111111111111111111111111111111";

/// Returns the accounts in the files of an export. Checks that the manifest lists the files.
fn exported_accounts(out: &Path) -> BTreeMap<String, PlainRecord> {
    let manifest = read_manifest(out);
    let table = &manifest["tables"][0];
    let listed = table["files"].as_array().expect("a list");
    assert_eq!(list_files(out).len(), 1 + listed.len());
    assert_eq!((&manifest["format"], &table["rows"]), (&"test-validator".into(), &listed.len().into()));
    let account = |file: &serde_json::Value| {
        let path = file["path"].as_str().expect("a path");
        let content = fs::read(out.join(path)).expect("read");
        assert_eq!(file["bytes"], content.len());
        assert_eq!(file["sha256"], sha256_hex(&content));
        let json: serde_json::Value = serde_json::from_slice(&content).expect("JSON");
        let pubkey = json["pubkey"].as_str().expect("an address").to_string();
        let account = &json["account"];
        let slot = manifest["slot"].as_u64().expect("a slot");
        assert_eq!(path, format!("accounts/snapshot_slot={slot}/{pubkey}.json"));
        let data = decode_base64(account["data"][0].as_str().expect("data"));
        assert_eq!((&account["data"][1], &account["space"]), (&"base64".into(), &data.len().into()));
        let number = |name: &str| account[name].as_u64().expect("a number");
        let plain = PlainRecord {
            slot: 0,
            id: 0,
            offset: 0,
            pubkey: pubkey.clone(),
            owner: account["owner"].as_str().expect("an owner").to_string(),
            lamports: number("lamports"),
            rent_epoch: number("rentEpoch"),
            executable: account["executable"].as_bool().expect("true or false"),
            data,
        };
        (pubkey, plain)
    };
    listed.iter().map(account).collect()
}

fn is_token_account(account: &PlainRecord) -> bool {
    let data = &account.data;
    let has_extensions = account.owner == TOKEN_2022 && data.len() > 165 && data[165] == 2;
    [TOKEN, TOKEN_2022].contains(&account.owner.as_str()) && (data.len() == 165 || has_extensions) && data[108] > 0
}

fn is_program(account: &PlainRecord) -> bool {
    account.owner == LOADER && account.data[0] == 2
}

/// Returns the account with the code of a program; `None` if the program is closed, or names an account
/// without code. `synth` makes such programs.
fn code_of<'a>(all: &'a Accounts, program: &PlainRecord) -> Option<&'a PlainRecord> {
    all.0.get(&address_at(&program.data, 4)).filter(|code| code.owner == LOADER)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mints {
    Included,
    Excluded,
}

/// Returns the selected accounts, the code of programs among them and, if included, the mints of token accounts.
fn expected_accounts(
    all: &Accounts,
    mints: Mints,
    is_selected: impl Fn(&PlainRecord) -> bool,
) -> BTreeMap<String, PlainRecord> {
    let mut expected = BTreeMap::new();
    for account in all.0.values().filter(|account| is_selected(account)) {
        let code = if is_program(account) { code_of(all, account) } else { None };
        let has_mint = mints == Mints::Included && is_token_account(account);
        let mint = if has_mint { all.0.get(&address_at(&account.data, 0)) } else { None };
        let mint = mint.filter(|mint| mint.owner == account.owner);
        for account in [Some(account), code, mint].into_iter().flatten() {
            let without_place = PlainRecord { slot: 0, id: 0, offset: 0, ..account.clone() };
            expected.insert(account.pubkey.clone(), without_place);
        }
    }
    expected
}

fn assert_export(archives: &[&Path], flags: &[&str], expected: &BTreeMap<String, PlainRecord>) {
    let out = temp_dir();
    assert_exported(archives, out.path(), &[&FORMAT, flags].concat());
    let exported = exported_accounts(out.path());
    assert!(exported.keys().eq(expected.keys()), "{flags:?}: {} and {}", exported.len(), expected.len());
    assert!(exported == *expected, "{flags:?}");
}

#[test]
fn programs_are_exported_with_their_code() {
    let made = make_synthetic_pair(&["--mix", "programs", "--size", "24MiB"]);
    let archives = [made.full.as_path(), &made.incremental];
    let all = Accounts::read(&archives);
    let programs = || all.0.values().filter(|account| is_program(account));
    let open: Vec<&PlainRecord> = programs().filter(|program| code_of(&all, program).is_some()).collect();
    let closed: Vec<&PlainRecord> = programs().filter(|program| code_of(&all, program).is_none()).collect();
    let addresses: Vec<&str> = open[..5].iter().chain(&closed[..5]).map(|program| program.pubkey.as_str()).collect();
    let by_address = expected_accounts(&all, Mints::Excluded, |account| addresses.contains(&account.pubkey.as_str()));
    assert_eq!(by_address.len(), 15);
    assert_export(&archives, &["--address", &addresses.join(",")], &by_address);
    let by_size =
        expected_accounts(&all, Mints::Excluded, |account| account.owner == LOADER && account.data.len() == 36);
    assert!(by_size.len() > programs().count());
    assert_export(&archives, &["--owner", LOADER, "--data-size", "36"], &by_size);
}

#[test]
fn token_accounts_are_exported_with_their_mints() {
    let made = make_synthetic_pair(&["--mix", "tokens", "--size", "8MiB"]);
    let archives = [made.full.as_path(), &made.incremental];
    let all = Accounts::read(&archives);
    let account = all.0.values().find(|account| is_token_account(account)).expect("a token account");
    let mint = address_at(&account.data, 0);
    let wallet = address_at(&account.data, 32);
    let is_of_wallet = |account: &PlainRecord| is_token_account(account) && address_at(&account.data, 32) == wallet;
    let is_of_mint = |account: &PlainRecord| {
        account.pubkey == mint || is_token_account(account) && address_at(&account.data, 0) == mint
    };
    assert_export(&archives, &["--wallet", &wallet], &expected_accounts(&all, Mints::Excluded, is_of_wallet));
    assert_export(
        &archives,
        &["--wallet", &wallet, "--with-mints"],
        &expected_accounts(&all, Mints::Included, is_of_wallet),
    );
    assert_export(&archives, &["--mint", &mint], &expected_accounts(&all, Mints::Excluded, is_of_mint));
}

/// The JSON object has the selected accounts, in the form that surfpool's `AccountSnapshot` reads.
#[test]
fn surfpool_reads_the_object_of_all_accounts() {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct AccountSnapshot {
        lamports: u64,
        owner: String,
        executable: bool,
        rent_epoch: u64,
        data: String,
    }
    let archives = fixture_pair("agave-4.2.2");
    let inputs = archives.each_ref().map(|archive| archive.as_path());
    let all = Accounts::read(&inputs);
    let expected = expected_accounts(&all, Mints::Excluded, |account| account.owner == VOTE);
    assert!(!expected.is_empty());
    for (owner, expected) in [(VOTE, expected), ("AddressLookupTab1e1111111111111111111111111", BTreeMap::new())] {
        let outs = [temp_dir(), temp_dir()];
        for out in &outs {
            assert_exported(&inputs, out.path(), &["--format", "surfpool", "--owner", owner]);
        }
        assert!(tree(outs[0].path()).keys().eq(tree(outs[1].path()).keys()));
        let paths = outs.each_ref().map(|out| out.path().join("accounts/snapshot_slot=40/surfpool.json"));
        let [content, again] = paths.map(|path| fs::read(path).expect("read"));
        assert!(content == again, "the same bytes");
        let read: BTreeMap<String, AccountSnapshot> = serde_json::from_slice(&content).expect("surfpool's form");
        assert!(read.keys().eq(expected.keys()));
        for (address, read) in read {
            let plain = &expected[&address];
            assert_eq!((read.lamports, read.rent_epoch), (plain.lamports, plain.rent_epoch), "{address}");
            assert_eq!((read.owner, read.executable), (plain.owner.clone(), plain.executable), "{address}");
            assert!(decode_base64(&read.data) == plain.data, "{address}");
        }
    }
}

/// A balance and the amounts of tokens have the highest value. A program and a token account refer to an account
/// whose owner fits neither.
#[test]
fn hostile_accounts_are_exported_as_they_are() {
    let archive = fixture_of(AGAVE_4_4, "snapshot-26-");
    let mut entries = entries(&archive);
    let program = |code: u8| [&[2, 0, 0, 0][..], &[code; 32]].concat();
    let token = |mint: u8| [&[mint; 32][..], &[9; 32], &u64::MAX.to_le_bytes(), &[0; 36], &[1], &[0; 56]].concat();
    let accounts = [
        executable_record_bytes(1, LOADER, u64::MAX, &program(4)),
        executable_record_bytes(2, LOADER, 1, &program(2)),
        record_bytes(3, TOKEN, 1, &token(4)),
        record_bytes(5, TOKEN_2022, 1, &token(6)),
        record_bytes(6, TOKEN_2022, 1, &[255; 82]),
        // Program 1 refers to this account as its code, and token account 3 as its mint.
        record_bytes(4, "Stake11111111111111111111111111111111111111", 1, &[7; 300]),
    ];
    let storage = entries.iter_mut().find(|entry| entry.path.starts_with("accounts/")).expect("a storage");
    storage.content.resize(storage.content.len().next_multiple_of(8), 0);
    storage.content.extend(accounts.concat());
    let dir = temp_dir();
    let forged = dir.path().join(name(&archive));
    write_archive(&forged, &entries);
    let address = |number: u8| bs58::encode([number; 32]).into_string();
    let all = Accounts::read(&[&forged]);
    let selected = [1, 2, 3, 5].map(address);
    let flags = ["--check", "frames", "--address", &selected.join(",")];
    let is_selected = |account: &PlainRecord| selected.contains(&account.pubkey);
    assert_export(&[&forged], &flags, &expected_accounts(&all, Mints::Excluded, is_selected));
    let with_mints = expected_accounts(&all, Mints::Included, is_selected);
    assert_eq!(with_mints.len(), 5);
    assert_export(&[&forged], &[&flags[..], &["--with-mints"]].concat(), &with_mints);
}

#[test]
fn invalid_flags_for_a_test_validator_are_usage_errors() {
    let archives = fixture_pair("agave-4.2.2");
    let inputs = archives.each_ref().map(|archive| archive.as_path());
    for (flags, message) in [
        (&[][..], "accounts that a filter selects"),
        (&["--owner", VOTE, "--table", "votes"], "no other tables"),
        (&["--owner", VOTE, "--data", "full"], "whole"),
    ] {
        assert_refused(&inputs, &[&FORMAT, flags].concat(), 2, message);
    }
    let output = run_export(&inputs, Path::new("-"), &[&FORMAT[..], &["--owner", VOTE]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
}

#[test]
fn mints_are_added_for_a_test_validator_only() {
    let archives = fixture_pair("agave-4.2.2");
    let inputs = archives.each_ref().map(|archive| archive.as_path());
    assert_refused(&inputs, &["--with-mints"], 2, "mints of token accounts are only added for a test validator");
}

#[test]
fn an_unexpected_state_is_refused() {
    let archives = fixture_pair("agave-4.2.2");
    let inputs = archives.each_ref().map(|archive| archive.as_path());
    let flags = [&FORMAT[..], &["--owner", VOTE, "--expect-slot", "41"]].concat();
    assert_refused(&inputs, &flags, 3, "41");
}

#[test]
fn too_many_accounts_for_a_test_validator_are_refused() {
    let made = make_synthetic_pair(&["--mix", "tokens", "--size", "16MiB"]);
    let flags = [&FORMAT[..], &["--owner", TOKEN]].concat();
    assert_refused(&[&made.full], &flags, 1, "at most 30000 accounts");
}

/// Runs the commands in docs/export.md as they are printed there.
#[test]
fn commands_in_the_docs_export_programs_with_their_code() {
    let (_, section) = PAGE.split_once("## Accounts for a test validator").expect("the section");
    let (section, questions) = section.split_once("## Questions").expect("another");
    let dir = temp_dir();
    let is_command = |part: &&str| part.starts_with("slotpress ");
    let synth = questions.split('`').filter(is_command).take(1);
    let commands: Vec<&str> = synth.chain(section.split('`').filter(is_command)).collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for command in commands {
        slotpress().current_dir(dir.path()).args(command.split_whitespace().skip(1)).assert().success();
    }
    let accounts = exported_accounts(&dir.path().join("subset"));
    assert!(accounts.values().any(is_program));
    assert!(accounts.values().any(|account| account.owner == LOADER && account.data[0] == 3));
}
