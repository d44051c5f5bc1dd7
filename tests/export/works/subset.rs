//! Accounts for a test validator, against a reader that shares no code with slotpress.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::tables::{Accounts, LOADER, TOKEN, TOKEN_2022, key, record, synthetic};
use crate::common::records::{Plain, unbase64};
use crate::common::*;
use crate::export::{files, manifest, pair, run};

const FORMAT: [&str; 2] = ["--format", "test-validator"];

/// The accounts in the files of an export, which its manifest must list, with their rent epochs.
fn written(out: &Path) -> BTreeMap<String, Plain> {
    let manifest = manifest(out);
    let table = &manifest["tables"][0];
    let listed = table["files"].as_array().expect("a list");
    assert_eq!(files(out).len(), 1 + listed.len());
    assert_eq!((&manifest["format"], &table["rows"]), (&"test-validator".into(), &listed.len().into()));
    let account = |file: &serde_json::Value| {
        let path = file["path"].as_str().expect("a path");
        let content = fs::read(out.join(path)).expect("read");
        let hash: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((file["bytes"].as_u64(), file["sha256"].as_str()), (Some(content.len() as u64), Some(&*hash)));
        let json: serde_json::Value = serde_json::from_slice(&content).expect("JSON");
        let (pubkey, account) = (json["pubkey"].as_str().expect("an address").to_string(), &json["account"]);
        let slot = manifest["slot"].as_u64().expect("a slot");
        assert_eq!(path, format!("accounts/snapshot_slot={slot}/{pubkey}.json"));
        let data = unbase64(account["data"][0].as_str().expect("data"));
        assert_eq!((&account["data"][1], &account["space"]), (&"base64".into(), &data.len().into()));
        let number = |name: &str| account[name].as_u64().expect("a number");
        let plain = Plain {
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

fn is_token_account(one: &Plain) -> bool {
    let is_account = one.data.len() == 165 || one.owner == TOKEN_2022 && one.data.len() > 165 && one.data[165] == 2;
    [TOKEN, TOKEN_2022].contains(&one.owner.as_str()) && is_account && one.data[108] > 0
}

/// The account with the code of a program. Those of `synth` may be closed, or name another account.
fn code<'a>(all: &'a Accounts, program: &Plain) -> Option<&'a Plain> {
    all.0.get(&key(&program.data, 4)).filter(|it| it.owner == LOADER)
}

/// The wanted accounts, with the code of programs, and with mints if these are wanted.
fn expected(all: &Accounts, with_mints: bool, is_wanted: impl Fn(&Plain) -> bool) -> BTreeMap<String, Plain> {
    let mut found = BTreeMap::new();
    for one in all.0.values().filter(|one| is_wanted(one)) {
        let is_program = one.owner == LOADER && one.data[0] == 2;
        let code = if is_program { code(all, one) } else { None };
        let mint = if with_mints && is_token_account(one) { all.0.get(&key(&one.data, 0)) } else { None };
        for it in [Some(one), code, mint.filter(|it| it.owner == one.owner)].into_iter().flatten() {
            found.insert(it.pubkey.clone(), Plain { slot: 0, id: 0, offset: 0, ..it.clone() });
        }
    }
    found
}

fn judge(archives: &[&Path], flags: &[&str], expected: BTreeMap<String, Plain>) {
    let out = temp_dir();
    let done = run(archives, out.path(), &[&FORMAT, flags].concat());
    assert!(done.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&done.stderr));
    let written = written(out.path());
    assert!(written.keys().eq(expected.keys()), "{flags:?}: {} and {}", written.len(), expected.len());
    assert!(written == expected, "{flags:?}");
}

#[test]
fn programs_with_their_code() {
    let made = synthetic(&["--mix", "programs", "--size", "24MiB"]);
    let archives = [made.full.as_path(), &made.incremental];
    let all = Accounts::of(&archives);
    let programs: Vec<&Plain> = all.0.values().filter(|one| one.owner == LOADER && one.data[0] == 2).collect();
    let [closed, open]: [Vec<&Plain>; 2] = [false, true].map(|is_open| {
        let has_code = |one: &&&Plain| code(&all, one).is_some() == is_open;
        programs.iter().filter(has_code).copied().collect()
    });
    let some: Vec<&str> = open[..5].iter().chain(&closed[..5]).map(|one| one.pubkey.as_str()).collect();
    let wanted = expected(&all, false, |one| some.contains(&one.pubkey.as_str()));
    assert_eq!(wanted.len(), 15);
    judge(&archives, &["--address", &some.join(",")], wanted);
    let wanted = expected(&all, false, |one| one.owner == LOADER && one.data.len() == 36);
    assert!(wanted.len() > programs.len());
    judge(&archives, &["--owner", LOADER, "--data-size", "36"], wanted);
}

#[test]
fn token_accounts() {
    let made = synthetic(&["--mix", "tokens", "--size", "8MiB"]);
    let archives = [made.full.as_path(), &made.incremental];
    let all = Accounts::of(&archives);
    let some = all.0.values().find(|one| is_token_account(one)).expect("a token account");
    let (mint, wallet) = (key(&some.data, 0), key(&some.data, 32));
    let is_of_wallet = |one: &Plain| is_token_account(one) && key(&one.data, 32) == wallet;
    let is_of_mint = |one: &Plain| one.pubkey == mint || is_token_account(one) && key(&one.data, 0) == mint;
    judge(&archives, &["--wallet", &wallet], expected(&all, false, is_of_wallet));
    judge(&archives, &["--wallet", &wallet, "--with-mints"], expected(&all, true, is_of_wallet));
    judge(&archives, &["--mint", &mint], expected(&all, false, is_of_mint));
}

/// One object with the same accounts, in the form that surfpool's `AccountSnapshot` reads.
#[test]
fn an_object_for_surfpool() {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct AccountSnapshot {
        lamports: u64,
        owner: String,
        executable: bool,
        rent_epoch: u64,
        data: String,
    }
    let archives = pair("agave-4.2.2");
    let inputs = archives.each_ref().map(|archive| archive.as_path());
    let all = Accounts::of(&inputs);
    let vote = "Vote111111111111111111111111111111111111111";
    let expected = expected(&all, false, |one| one.owner == vote);
    assert!(!expected.is_empty());
    for (owner, expected) in [(vote, expected), ("AddressLookupTab1e1111111111111111111111111", BTreeMap::new())] {
        let outs = [temp_dir(), temp_dir()];
        for out in &outs {
            let done = run(&inputs, out.path(), &["--format", "surfpool", "--owner", owner]);
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        assert!(tree(outs[0].path()).keys().eq(tree(outs[1].path()).keys()));
        let [one, other] = outs.each_ref().map(|out| out.path().join("accounts/snapshot_slot=40/surfpool.json"));
        let content = fs::read(one).expect("read");
        assert!(content == fs::read(other).expect("read"), "the same bytes");
        let read: BTreeMap<String, AccountSnapshot> = serde_json::from_slice(&content).expect("surfpool's form");
        assert!(read.keys().eq(expected.keys()));
        for (address, read) in read {
            let plain = &expected[&address];
            assert_eq!((read.lamports, read.rent_epoch), (plain.lamports, plain.rent_epoch), "{address}");
            assert_eq!((read.owner, read.executable), (plain.owner.clone(), plain.executable), "{address}");
            assert!(unbase64(&read.data) == plain.data, "{address}");
        }
    }
}

/// Numbers without a limit, and accounts that name what is not theirs.
#[test]
fn hostile_accounts() {
    let archive = fixture_of(AGAVE_4_4, "snapshot-26-");
    let mut entries = entries(&archive);
    let program = |code: u8| [&[2, 0, 0, 0][..], &[code; 32]].concat();
    let token = |mint: u8| [&[mint; 32][..], &[9; 32], &u64::MAX.to_le_bytes(), &[0; 36], &[1], &[0; 56]].concat();
    let accounts = [
        record(1, LOADER, u64::MAX, true, &program(4)),
        record(2, LOADER, 1, true, &program(2)),
        record(3, TOKEN, 1, false, &token(4)),
        record(5, TOKEN_2022, 1, false, &token(6)),
        record(6, TOKEN_2022, 1, false, &[255; 82]),
        // Named by a program and by a token account, whose owners it does not have.
        record(4, "Stake11111111111111111111111111111111111111", 1, false, &[7; 300]),
    ];
    let storage = entries.iter_mut().find(|entry| entry.path.starts_with("accounts/")).expect("a storage");
    storage.content.resize(storage.content.len().next_multiple_of(8), 0);
    storage.content.extend(accounts.concat());
    let dir = temp_dir();
    let forged = dir.path().join(name(&archive));
    fs::write(&forged, zstd::encode_all(make_tar(&entries).as_slice(), 1).expect("compressed")).expect("written");
    let address = |number: u8| bs58::encode([number; 32]).into_string();
    let all = Accounts::of(&[&forged]);
    let some = [1, 2, 3, 5].map(address);
    let flags = ["--check", "frames", "--address", &some.join(",")];
    judge(&[&forged], &flags, expected(&all, false, |one| some.contains(&one.pubkey)));
    let with_mints = expected(&all, true, |one| some.contains(&one.pubkey));
    assert_eq!(with_mints.len(), 5);
    judge(&[&forged], &[&flags[..], &["--with-mints"]].concat(), with_mints);
}

#[test]
fn what_is_refused() {
    let archives = pair("agave-4.2.2");
    let inputs = archives.each_ref().map(|archive| archive.as_path());
    let out = temp_dir();
    let vote = "Vote111111111111111111111111111111111111111";
    for (flags, words) in [
        (&[][..], "accounts that filters name"),
        (&["--owner", vote, "--table", "votes"], "no other tables"),
        (&["--owner", vote, "--data", "full"], "whole"),
    ] {
        let done = run(&inputs, out.path(), &[&FORMAT, flags].concat());
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(2) && said.contains(words), "{flags:?}: {said}");
    }
    let done = run(&inputs, out.path(), &["--with-mints"]);
    assert_eq!(done.status.code(), Some(2), "{}", String::from_utf8_lossy(&done.stderr));
    let done = run(&inputs, Path::new("-"), &[&FORMAT[..], &["--owner", vote]].concat());
    assert!(done.status.code() == Some(2) && done.stdout.is_empty());
    let wrong = ["--owner", vote, "--expect-slot", "41"];
    assert_eq!(run(&inputs, out.path(), &[&FORMAT[..], &wrong].concat()).status.code(), Some(3));
    let made = synthetic(&["--mix", "tokens", "--size", "16MiB"]);
    let done = run(&[&made.full], out.path(), &[&FORMAT[..], &["--owner", TOKEN]].concat());
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code() == Some(1) && said.contains("more than 30000 accounts"), "{said}");
    assert_eq!(names(out.path()), Vec::<String>::new());
}

/// The command of docs/export.md, as it is printed.
#[test]
fn command_of_the_page() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/export.md")).expect("the page");
    let (_, section) = page.split_once("## Accounts for a test validator").expect("the section");
    let (section, questions) = section.split_once("## Questions").expect("another");
    let dir = temp_dir();
    let is_command = |part: &&str| part.starts_with("slotpress ");
    let synth = questions.split('`').filter(is_command).take(1);
    let commands: Vec<&str> = synth.chain(section.split('`').filter(is_command)).collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for command in commands {
        slotpress().current_dir(dir.path()).args(command.split_whitespace().skip(1)).assert().success();
    }
    let accounts = written(&dir.path().join("subset"));
    let is_code = |one: &Plain| one.owner == LOADER && one.data[0] == 3;
    assert!(accounts.values().any(is_code) && accounts.values().any(|one| one.owner == LOADER && one.data[0] == 2));
}
