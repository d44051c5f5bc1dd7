//! Accounts that Agave reads between loading an archive and its first block, and fields that must agree in a pair.
//! If one of them is altered and everything that depends on it is recomputed, `verify`, `restore`, `recompress` and
//! `rebase` refuse the result, except for the accounts in `LOOSER`, which only the state's hash protects.

use std::path::Path;

use slotpress_format::ledger::programs::address;
use slotpress_format::{FEATURE, SHORTER_SLOTS, SLOT_HISTORY, STAKE};
use slotpress_read::{Rule, SnapshotClient, VerifyReport};

use super::fields::{BANK_FILE, Change, FieldPlace, ListItems, PlaceKind, field_places};
use crate::common::oracle::Oracle;
use crate::common::records::stake_field;
use crate::common::{slotpress, temp_dir};
use crate::verify::altered::{Altered, AlteredPaths};
use crate::verify::fixtures::*;
use crate::verify::recomputed::{Account, State, StateKind, parse_bank};

/// Accounts that Agave reads. `verify` does not read them, because the state's hash covers them.
const RENT: [u8; 32] = address("SysvarRent111111111111111111111111111111111");
const EPOCH_REWARDS: [u8; 32] = address("SysvarEpochRewards1111111111111111111111111");
const OLD_CERTIFICATE: [u8; 32] = address("aeApwREFa7cKFciqYJvKMuZ9GvV5mxSaUg3xaxGTVMW");
const OLD_REWARD_STAKES: [u8; 32] = address("FEhusMkCSpywBcjYA7j3NwrSKGH7oPmM1BbHZNFtjzkU");
const CERTIFICATE: [u8; 32] = address("42Ym56TQ7AKFThRv5nyoSABq5ZPgE2TLKo8BALZEtoU1");
const REWARD_STAKES: [u8; 32] = address("CHfmHwNcskfxg1ZnLatbHbmVvYbA6rLDz3Xok5a3Ku8i");

/// A state of the fixtures.
#[derive(Debug, PartialEq)]
struct Origin {
    /// Name of the fixture's directory.
    chain: &'static str,
    kind: StateKind,
}

impl Origin {
    const fn full(chain: &'static str) -> Self {
        Self { chain, kind: StateKind::Full }
    }

    const fn pair(chain: &'static str) -> Self {
        Self { chain, kind: StateKind::Pair }
    }

    fn read(&self) -> State {
        State::read(self.chain, self.kind)
    }
}

const FULL_4_2: Origin = Origin::full("agave-4.2.2");

/// A state in which rewards are being paid out.
const PAYING_REWARDS: Origin = Origin::full("agave-4.2.2-epoch");

const PAIR_4_2: Origin = Origin::pair("agave-4.2.2");

/// A state with a feature for shorter slots.
const SHORTER_SLOTS_4_4: Origin = Origin::pair("agave-4.4.0");

const PAIR_4_5: Origin = Origin::pair("agave-4.5.0-alpha.4");

/// A state with votes, for which rewards are due. It has thousands of storages, so a loader takes ten times as long.
const WITH_VOTES: Origin = Origin::full("agave-validator-4.2.2");

/// States of several epochs, with several features.
const STATES: [Origin; 6] = [FULL_4_2, PAYING_REWARDS, PAIR_4_2, SHORTER_SLOTS_4_4, PAIR_4_5, WITH_VOTES];

/// Returns the state with votes, without rewards for any stake account.
fn state_without_rewards() -> State {
    let mut state = WITH_VOTES.read();
    for (address, mut account) in state.accounts().into_iter().filter(|(_, account)| account.owner == STAKE) {
        account.data[stake_field::CREDITS_OBSERVED].fill(0);
        state.put(&address, &account);
    }
    state
}

/// Returns an EpochRewards sysvar while rewards are being paid out, all in one block.
fn epoch_rewards(lamports: u64, points: u128) -> Account {
    let points = points.to_le_bytes();
    let data = [&to_le_bytes(&[1, 1, 0, 0, 0, 0])[..], &points, &to_le_bytes(&[lamports, 0]), &[1]].concat();
    Account { lamports: 1_454_640, owner: [5; 32], data }
}

/// A change of a state.
type Alter = fn(&mut State);

fn to_le_bytes(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// A change that breaks a rule.
struct BreakingChange {
    label: &'static str,
    /// The state that is changed.
    origin: Origin,
    rule: Rule,
    alter: Alter,
}

const fn breaking(label: &'static str, origin: Origin, rule: Rule, alter: Alter) -> BreakingChange {
    BreakingChange { label, origin, rule, alter }
}

impl BreakingChange {
    fn write_to(&self, dir: &Path) -> AlteredPaths {
        let mut state = self.origin.read();
        (self.alter)(&mut state);
        state.into_altered(self.label).write_to(dir)
    }
}

const BREAKING_CHANGES: &[BreakingChange] = &[
    breaking("SlotHistory closed", PAIR_4_2, Rule::SlotHistory, |state| {
        state.put(&SLOT_HISTORY, &Account { lamports: 0, owner: [0; 32], data: Vec::new() });
    }),
    breaking("slots longer than those of a feature", SHORTER_SLOTS_4_4, Rule::SlotTime, |state| {
        state.set_bank("ns per slot", &400_000_000u128.to_le_bytes());
    }),
    breaking("slots of a feature that is not active", SHORTER_SLOTS_4_4, Rule::SlotTime, |state| {
        state.delete(&SHORTER_SLOTS[0].feature)
    }),
    breaking("hashes per tick that differ from those of a feature", SHORTER_SLOTS_4_4, Rule::SlotTime, |state| {
        set_hashes_per_tick(state, 62_500)
    }),
    breaking("no hash in a tick", FULL_4_2, Rule::NoHashesPerTick, |state| set_hashes_per_tick(state, 0)),
    breaking("one hash in a tick", FULL_4_2, Rule::HashesPerTick, |state| set_hashes_per_tick(state, 1)),
    breaking("a pair of two chains", PAIR_4_2, Rule::BaseMismatch, |state| {
        state.change_bank("genesis creation time", |content, place| content[place.range.start] ^= 1);
    }),
    breaking("a pair with other ticks", PAIR_4_2, Rule::BaseMismatch, |state| {
        state.set_bank("ticks per slot", &32u64.to_le_bytes());
        let slot = parse_bank(&state.bank_content()).slot;
        for name in ["tick height", "max tick height"] {
            state.set_bank(name, &((slot + 1) * 32).to_le_bytes());
        }
    }),
    breaking("a pair with other epochs", PAIR_4_2, Rule::BaseMismatch, |state| {
        state.change_bank("epoch schedule / leader schedule offset", |content, place| content[place.range.start] ^= 1);
    }),
];

/// Sets the number of hashes per tick in the bank file.
fn set_hashes_per_tick(state: &mut State, number: u64) {
    state.change_bank("hashes per tick", |content, place| {
        content.splice(place.range.start..place.items.end, [&[1][..], &number.to_le_bytes()].concat());
    });
}

fn verify_for_agave(paths: &AlteredPaths) -> VerifyReport {
    verify(&paths.full, paths.incremental.as_deref(), &SnapshotClient::AGAVE)
}

#[test]
fn unchanged_states_are_valid() {
    for origin in &STATES {
        let dir = temp_dir();
        let report = verify_for_agave(&origin.read().into_altered("nothing").write_to(dir.path()));
        assert!(report.ok, "{origin:?}: {}", describe(&report));
    }
}

#[test]
fn each_breaking_change_is_reported_by_its_rule_alone() {
    for change in BREAKING_CHANGES {
        let dir = temp_dir();
        let report = verify_for_agave(&change.write_to(dir.path()));
        assert_eq!(broken_rules(&report), [change.rule], "{}: {}", change.label, describe(&report));
    }
}

/// `restore`, `recompress` and `rebase` refuse a state that breaks a rule, and write no files. Only `recompress` accepts
/// a state that Firedancer loads.
#[test]
fn commands_refuse_states_that_break_a_rule() {
    for change in BREAKING_CHANGES {
        let label = change.label;
        let dir = temp_dir();
        let AlteredPaths { full, incremental } = change.write_to(dir.path());
        let ledger = dir.path().join("ledger");
        let mut restore = slotpress();
        restore.arg("restore").arg(&full).args(&incremental).arg("--ledger").arg(&ledger);
        let firedancer_loads_it = change.rule == Rule::NoHashesPerTick;
        restore.assert().code(if firedancer_loads_it { 1 } else { 3 });
        assert!(!ledger.join("snapshots").exists(), "{label}: restored");
        let out = dir.path().join("out");
        std::fs::create_dir(&out).expect("made");
        let mut recompress = slotpress();
        match &incremental {
            Some(incremental) => recompress.arg("recompress").arg(incremental).arg("--base").arg(&full),
            None => recompress.arg("recompress").arg(&full),
        };
        let recompressed = recompress.arg("-o").arg(&out).assert();
        if firedancer_loads_it {
            recompressed.success();
            continue;
        }
        recompressed.code(3);
        if let Some(incremental) = &incremental {
            // The changed state is the new one, on an older full archive.
            let mut rebase = slotpress();
            rebase.arg("rebase").arg(&full).arg(incremental).arg("--onto").arg(&full).arg("-o").arg(&out);
            rebase.assert().failure();
        }
        assert_eq!(std::fs::read_dir(&out).expect("a directory").count(), 0, "{label}: recompressed");
    }
}

/// A stake account that is no longer delegated may be missing from the bank file's stakes
/// (SIMD-0599). If `AGAVE_ORACLE` is set, Agave must accept that too.
#[test]
fn inactive_stakes_may_be_missing() {
    let mut state = PAIR_4_2.read();
    let (_, mut account) = state.accounts().into_iter().find(|(_, account)| account.owner == STAKE).expect("a stake");
    // Activated and deactivated in epoch 0, the stake was never active.
    account.data[stake_field::ACTIVATION_EPOCH].fill(0);
    account.data[stake_field::DEACTIVATION_EPOCH].fill(0);
    state.put(&[0x55; 32], &account);
    let chain = state.chain.clone();
    let dir = temp_dir();
    let AlteredPaths { full, incremental } = state.into_altered("an inactive stake").write_to(dir.path());
    let incremental = incremental.expect("an incremental archive");
    let report = verify(&full, Some(&incremental), &SnapshotClient::JUDGED_BY_DEFAULT);
    assert!(report.ok, "{}", describe(&report));
    for oracle in Oracle::all() {
        oracle.load(&full, Some(&incremental), &chain);
    }
    slotpress().arg("restore").args([&full, &incremental]).arg("--ledger").arg(dir.path().join("l")).assert().success();
    for (command, option, archives) in
        [("recompress", "--base", vec![&incremental]), ("rebase", "--onto", vec![&full, &incremental])]
    {
        let out = dir.path().join(command);
        std::fs::create_dir(&out).expect("made");
        let mut run = slotpress();
        run.arg(command).args(archives).arg(option).arg(&full).arg("-o").arg(&out).assert().success();
        let new_archive =
            std::fs::read_dir(&out).expect("a directory").next().expect("an archive").expect("an entry").path();
        let report = verify(&full, Some(&new_archive), &SnapshotClient::AGAVE);
        assert!(report.ok, "{command}: {}", describe(&report));
    }
}

/// Alters accounts, one at a time: deletes, closes, empties, halves or extends one, or changes its
/// owner. Numbers that Agave reads are set to the ends of their ranges.
fn altered_accounts(origin: &Origin) -> Vec<Altered> {
    let state = origin.read();
    let mut altered = Vec::new();
    let accounts = state.accounts();
    // A few accounts of each owner represent the accounts that no client reads.
    let mut seen: std::collections::BTreeMap<[u8; 32], usize> = std::collections::BTreeMap::new();
    for (address, account) in &accounts {
        let text = bs58::encode(address).into_string();
        let is_read = text.starts_with("Sysvar") || SHORTER_SLOTS.iter().any(|params| params.feature == *address);
        let is_native = account.owner == [0; 32] || bs58::encode(&account.owner).into_string().contains("111111");
        let count = seen.entry(account.owner).or_default();
        *count += 1;
        if !is_read && (!is_native || *count > if account.owner == FEATURE { 12 } else { 3 }) {
            continue;
        }
        let mut alter = |change: &str, changed: Option<Account>| {
            let mut state = state.clone();
            match changed {
                Some(account) => state.put(address, &account),
                None => state.delete(address),
            }
            altered.push(state.into_altered(format!("{:?}: {text} {change}", origin.chain)));
        };
        let data = &account.data;
        let with_data = |data: Vec<u8>| Some(Account { data, ..account.clone() });
        alter("deleted", None);
        alter("closed", Some(Account { lamports: 0, owner: [0; 32], data: Vec::new() }));
        alter("of a different owner", Some(Account { owner: [7; 32], ..account.clone() }));
        if !data.is_empty() {
            alter("emptied", with_data(Vec::new()));
            alter("halved", with_data(data[..data.len() / 2].to_vec()));
            alter("a byte shorter", with_data(data[..data.len() - 1].to_vec()));
            alter("longer", with_data([&data[..], &[1; 9]].concat()));
        }
        if account.owner == FEATURE && data.len() == 9 {
            for slot in [0, 31, 32, u64::MAX] {
                alter(&format!("active since {slot}"), with_data([&[1][..], &slot.to_le_bytes()].concat()));
            }
        }
    }
    altered.extend(altered_account_fields(origin));
    altered
}

/// Sets numbers that Agave reads to the ends of their ranges, and adds accounts that the chain
/// lacks.
fn altered_account_fields(origin: &Origin) -> Vec<Altered> {
    let state = if *origin == WITH_VOTES { state_without_rewards() } else { origin.read() };
    let mut altered = Vec::new();
    let mut alter = |label: &str, address: &[u8; 32], account: Account| {
        let mut state = state.clone();
        state.put(address, &account);
        altered.push(state.into_altered(format!("{:?}: {label}", origin.chain)));
    };
    let accounts = state.accounts();
    for (name, address, fields) in [
        ("Rent", RENT, &[("lamports", 0, 8), ("years", 8, 8), ("burn", 16, 1)][..]),
        (
            "EpochRewards",
            EPOCH_REWARDS,
            &[
                ("height", 0, 8),
                ("partitions", 8, 8),
                ("blockhash", 16, 32),
                ("points", 48, 16),
                ("lamports", 64, 8),
                ("distributed", 72, 8),
                ("active", 80, 1),
            ],
        ),
    ] {
        let Some(account) = accounts.get(&address) else { continue };
        for (field, start, length) in fields {
            let range = *start..start + length;
            let old = account.data[range.clone()].to_vec();
            let number = |number: u64| {
                let mut bytes = number.to_le_bytes().to_vec();
                bytes.resize(*length, 0);
                bytes
            };
            let highest = |last: u8| [vec![0xFF; length - 1], vec![last]].concat();
            for (value, bytes) in [
                ("0", number(0)),
                ("1", number(1)),
                ("2", number(2)),
                ("2^40", number(1 << 40)),
                ("highest", highest(0xFF)),
                ("highest of its sign", highest(0x7F)),
                ("another", [&[old[0] ^ 1], &old[1..]].concat()),
            ] {
                let mut account = account.clone();
                account.data[range.clone()].copy_from_slice(&bytes);
                alter(&format!("{name}: {field} {value}"), &address, account);
            }
        }
        if name == "Rent" {
            for (lamports, years) in [(879_598_564_933, 2.0), (879_598_564_934, 2.0), (1_759_197_129_868, 1.0f64)] {
                let data = [&to_le_bytes(&[lamports])[..], &years.to_le_bytes(), &[50]].concat();
                alter(&format!("Rent: {lamports} for {years} years"), &RENT, Account { data, ..account.clone() });
            }
        }
    }
    for (lamports, points) in [(u64::MAX, 1u128), (1 << 40, 1), (1 << 20, 1), (1, 1), (1, 0), (1 << 40, 1 << 40)]
        .into_iter()
        .chain([(u64::MAX, u128::MAX), (1 << 62, 1 << 70), (1 << 50, 1 << 80)])
    {
        alter(
            &format!("EpochRewards: {lamports} lamports for {points} points"),
            &EPOCH_REWARDS,
            epoch_rewards(lamports, points),
        );
    }
    if *origin == WITH_VOTES {
        return altered;
    }
    let certificate = |slot: u64, signers: u64| [to_le_bytes(&[slot]), vec![0; 224], to_le_bytes(&[signers])].concat();
    for (version, certificate_address, stakes_address) in
        [("4.2", OLD_CERTIFICATE, OLD_REWARD_STAKES), ("4.3", CERTIFICATE, REWARD_STAKES)]
    {
        for (label, data) in [
            ("nothing", Vec::new()),
            ("a byte", vec![1]),
            ("zeros", vec![0; 100]),
            ("a certificate", certificate(3, 0)),
            ("a certificate and spare bytes", [certificate(3, 0), vec![1; 50]].concat()),
            ("a certificate without signers", certificate(3, 1)),
            ("a certificate of a slot to come", certificate(1 << 50, 0)),
        ] {
            alter(
                &format!("{label} where {version} keeps the certificate"),
                &certificate_address,
                Account::owned_by_system(data),
            );
        }
        for (label, data) in [
            ("nothing", Vec::new()),
            ("a byte", vec![1]),
            ("no stakes", to_le_bytes(&[0, 0])),
            ("one stake too few", to_le_bytes(&[0, 1])),
            ("2001 stakes", [to_le_bytes(&[0, 2001]), vec![0; 2001 * 40]].concat()),
        ] {
            let label = format!("{label} where {version} keeps the stakes of rewards");
            alter(&label, &stakes_address, Account::owned_by_system(data));
        }
    }
    for params in &SHORTER_SLOTS {
        for slot in [None, Some(0), Some(1), Some(40), Some(u64::MAX)] {
            let data = slot.map_or(vec![0; 9], |slot: u64| [&[1][..], &slot.to_le_bytes()].concat());
            let ms = params.ns_per_slot / 1_000_000;
            for (label, owner, data) in [
                ("", FEATURE, data.clone()),
                (", of a different owner", [9; 32], data.clone()),
                (", cut", FEATURE, data[..8].to_vec()),
            ] {
                let account = Account { lamports: 1_000_000, owner, data };
                alter(&format!("a feature for {ms} ms since {slot:?}{label}"), &params.feature, account);
            }
        }
    }
    altered
}

/// Alters fields of the newest bank file, one at a time, and recomputes what depends on them. Leaves
/// out those fields of a full archive that are compared with the genesis.
fn altered_bank_fields(origin: &Origin) -> Vec<Altered> {
    let mut state = origin.read();
    let content = state.bank_content();
    let places = field_places(&content, BANK_FILE, ListItems::First);
    let stakes_start = places.iter().find(|place| place.name.starts_with("stakes / ")).expect("stakes").range.start;
    let is_front = |place: &FieldPlace| {
        !place.name.contains(" / ") && place.range.start < stakes_start || place.name.starts_with("epoch schedule")
    };
    let mut altered = Vec::new();
    for place in &places {
        let is_recomputed = ["capitalization", "hash", "slot"].contains(&place.name.as_str());
        let genesis_fields = ["ticks per slot", "genesis creation time", "epoch schedule / "];
        if origin.kind == StateKind::Full && genesis_fields.iter().any(|name| place.name.starts_with(name)) {
            continue;
        }
        if place.kind == PlaceKind::Number && is_front(place) && !is_recomputed {
            for change in Change::all_for(place).into_iter().chain([Change::Set(1), Change::Set(1 << 20)]) {
                let mut state = state.clone();
                state.change_bank(&place.name, |content, place| change.apply(content, place, 0));
                altered.push(state.into_altered(format!("{origin:?}: {} {change:?}", place.name)));
            }
        }
    }
    for number_of_hashes in [0, 1, 2, 31_250, 39_062, 62_500, u64::MAX] {
        let mut state = state.clone();
        set_hashes_per_tick(&mut state, number_of_hashes);
        altered.push(state.into_altered(format!("{origin:?}: {number_of_hashes} hashes per tick")));
    }
    for params in &SHORTER_SLOTS {
        for hashes in [None, Some(params.hashes_per_tick), Some(7)] {
            let mut state = state.clone();
            state.set_bank("ns per slot", &params.ns_per_slot.to_le_bytes());
            state.set_bank("slots per year", &params.slots_per_year.to_le_bytes());
            if let Some(hashes) = hashes {
                set_hashes_per_tick(&mut state, hashes);
            }
            altered
                .push(state.into_altered(format!("{origin:?}: slots of {} ns, {hashes:?} hashes", params.ns_per_slot)));
        }
    }
    altered
}

/// Rules that are stricter than Agave's loader on purpose: if a tick has fewer than two hashes, the validator's PoH
/// service exits in the first block.
const STRICTER: [Rule; 2] = [Rule::HashesPerTick, Rule::NoHashesPerTick];

/// Alterations that `verify` accepts although Agave may refuse them. Each row has a part of their labels, and the reason
/// why they may be accepted.
const LOOSER: &[(&str, &str)] = &[
    ("SysvarRent1111", COVERED_BY_THE_HASH),
    ("Rent: ", COVERED_BY_THE_HASH),
    ("SysvarS1otHashes", COVERED_BY_THE_HASH),
    ("SysvarEpochRewards", COVERED_BY_THE_HASH),
    ("EpochRewards: ", COVERED_BY_THE_HASH),
    ("keeps the certificate", COVERED_BY_THE_HASH),
    ("keeps the stakes of rewards", COVERED_BY_THE_HASH),
];

const COVERED_BY_THE_HASH: &str =
    "no writer breaks it, and the state's hash covers it, so a state with the cluster's hash is right";

/// No version of Agave refuses a state that `verify` accepts for it, with the exceptions of `LOOSER`. States that
/// `verify` refuses although a version loads them are only printed. `ACCOUNTS_CHAINS` selects some of `STATES` by their
/// chains, such as `agave-4.2.2,agave-4.4.0`.
#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn verdicts_on_accounts_agree_with_agave() {
    let oracles = Oracle::required();
    let selection = std::env::var("ACCOUNTS_CHAINS").ok();
    let is_selected =
        |origin: &&Origin| selection.as_ref().is_none_or(|chains| chains.split(',').any(|chain| chain == origin.chain));
    let mut states = 0;
    let mut equal = 0;
    // Disagreements on purpose: only `verify` refuses the state (a rule of `STRICTER`), or only Agave (`LOOSER`).
    let mut stricter = 0;
    let mut looser = 0;
    // Other disagreements: only `verify` refuses the state, or only Agave.
    let mut cautious = Vec::new();
    let mut dangerous = Vec::new();
    for origin in STATES.iter().filter(is_selected) {
        let archives = if *origin == WITH_VOTES {
            altered_account_fields(origin)
        } else if [PAIR_4_2, PAIR_4_5].contains(origin) {
            // The accounts of these states are the same as in earlier ones.
            altered_bank_fields(origin)
        } else {
            altered_accounts(origin).into_iter().chain(altered_bank_fields(origin)).collect()
        };
        let chain = origin.read().chain;
        for altered in archives {
            let dir = temp_dir();
            let paths = altered.write_to(dir.path());
            let report = verify_for_agave(&paths);
            states += 1;
            if states % 100 == 0 {
                eprintln!("{states} states: {equal} equal");
            }
            for oracle in &oracles {
                let ours = report.clients.iter().find(|verdict| verdict.client == oracle.client).expect("a verdict");
                let answer = oracle.try_load(&paths.full, paths.incremental.as_deref(), &chain);
                let rules = report.failures.iter().map(|failure| failure.rule);
                let mut refusing = rules.filter(|rule| !rule.is_tolerated_by(oracle.client));
                let is_stricter = |rule: Rule| STRICTER.contains(&rule);
                let text = || format!("{}, {}: {}\n  {answer:?}", altered.label, oracle.client, describe(&report));
                match (ours.loads, answer.is_ok()) {
                    (true, true) | (false, false) => equal += 1,
                    (false, true) if refusing.all(is_stricter) => stricter += 1,
                    (false, true) => {
                        eprintln!("cautious: {}", text());
                        cautious.push(text());
                    }
                    (true, false) if LOOSER.iter().any(|(name, _)| altered.label.contains(name)) => looser += 1,
                    (true, false) => {
                        eprintln!("dangerous: {}", text());
                        dangerous.push(text());
                    }
                }
            }
        }
    }
    let cautious_count = cautious.len();
    let dangerous_count = dangerous.len();
    eprintln!(
        "{states} states: {equal} agreed, {stricter} stricter, {looser} looser, {cautious_count} cautious, {dangerous_count} dangerous"
    );
    assert!(dangerous.is_empty(), "{}", dangerous.join("\n"));
}
