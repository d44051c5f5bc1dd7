//! `strace` kills the program at system calls. After each kill, no partial file has a final name, the source is
//! unchanged, output that looks complete is whole, and a rerun succeeds.
//!
//! By default, the tests run a sample. `FAULTS_KILLS` sets the number of kills for each command and stage,
//! `FAULTS_SEED` selects them, `FAULTS_ONLY` names one command. Prints a table; docs/reliability.md
//! has its sum.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::runs::*;
use crate::common::scenarios::{MUTATING_CALLS, RENAMING, Scenario, scenarios, skip_loading};
use crate::common::seeded_rng::SeededRng;
use crate::common::strace::{Call, Trace, number_from_env, trace};
use crate::common::*;

const SEED_DEFAULT: u64 = 14;

/// Kills for each command and stage: few enough that all take half a minute.
const KILLS_DEFAULT: u64 = 2;

/// Attempts for each kill. With two workers and other load, the same call may occur in a different stage.
const ATTEMPTS: u64 = 10;

/// Returns the calls at which a run can be killed, by stage. Each call has a name and a number: the
/// process is killed when one of its threads makes that call.
fn killable_calls(scenario: &Scenario, calls: &[Call]) -> BTreeMap<usize, Vec<(String, u64)>> {
    let mut seen = BTreeSet::new();
    let mut moments: BTreeMap<usize, Vec<(String, u64)>> = BTreeMap::new();
    let skipped = calls.len() - skip_loading(calls).len();
    for (number, (call, stage)) in calls.iter().zip(scenario.stages(calls)).enumerate() {
        let moment = (call.name.clone(), call.number);
        // Otherwise, most of the calls would be those that open the system's hundreds of certificates.
        let is_ours = number >= skipped && !call.line.contains("\"/etc/");
        if seen.insert(moment.clone()) && is_ours {
            moments.entry(stage).or_default().push(moment);
        }
    }
    moments
}

/// Returns the stage in which a run was killed at the last `call` in its log.
fn stage_of(scenario: &Scenario, trace: &Trace, call: &str) -> usize {
    let index = trace.calls.iter().rposition(|logged| logged.name == call).expect("the call is in the log");
    scenario.stages(&trace.calls)[index]
}

/// A restore moves old bank snapshots aside, whether older, newer or of the same slot. None of them is
/// lost if the restore is killed at a rename.
#[test]
fn a_replaced_state_survives_a_kill_at_each_rename() {
    needs!("strace");
    let all = scenarios();
    let scenario = all.iter().find(|scenario| scenario.name == "restore --replace-state").expect("the scenario");
    scenario.reset();
    let source = scenario.source_tree();
    let whole = trace(&scenario.arguments(), MUTATING_CALLS, None);
    let stages = scenario.stages(&whole.calls);
    let is_move = |call: &Call, stage: usize| stage == RENAMING && call.name.starts_with("rename");
    let moves: Vec<&Call> =
        whole.calls.iter().zip(stages).filter(|(call, stage)| is_move(call, *stage)).map(|(call, _)| call).collect();
    assert!(moves.len() > 7, "{}", whole.log);
    for Call { name, number, .. } in moves {
        scenario.reset();
        let killed = trace(&scenario.arguments(), MUTATING_CALLS, Some(&format!("{name}:signal=KILL:when={number}")));
        assert!(killed.is_killed, "{}", killed.log);
        scenario.check(&source, &format!("killed at {name} {number}\n{}", killed.log));
    }
}

/// Kills of one command in one stage, and the system calls at which they happened.
#[derive(Default)]
struct StageKills {
    name: &'static str,
    kills: u64,
    calls: BTreeSet<String>,
}

#[test]
fn runs_killed_at_system_calls_can_be_repeated() {
    needs!("strace");
    let seed = number_from_env("FAULTS_SEED", SEED_DEFAULT);
    let kills = number_from_env("FAULTS_KILLS", KILLS_DEFAULT);
    let mut rng = SeededRng::new(seed);
    let mut counts: BTreeMap<(&str, usize), StageKills> = BTreeMap::new();
    #[cfg(not(feature = "net"))]
    let all = scenarios();
    #[cfg(feature = "net")]
    let all = scenarios().into_iter().chain(crate::common::scenarios::net_scenarios());
    let only = std::env::var("FAULTS_ONLY").ok();
    for scenario in all
        .into_iter()
        .filter(|scenario| scenario.has_result() && only.as_ref().is_none_or(|only| scenario.name == only))
    {
        let scenario = &scenario;
        let names = scenario.stage_names();
        scenario.reset();
        let source = scenario.source_tree();
        let whole = trace(&scenario.arguments(), MUTATING_CALLS, None);
        assert!(scenario.looks_complete(), "{}: {:?}", scenario.name, code_and_stderr(&whole.output));
        let moments = killable_calls(scenario, &whole.calls);
        let stages: Vec<usize> = moments.keys().copied().collect();
        assert!(stages.iter().copied().eq(0..names.len()), "{}: stages {stages:?}\n{}", scenario.name, whole.log);
        for (stage, moments) in moments {
            for _ in 0..kills * ATTEMPTS {
                if counts.get(&(scenario.name, stage)).is_some_and(|stage| stage.kills >= kills) {
                    break;
                }
                let (call, number) = &moments[rng.below(moments.len())];
                scenario.reset();
                let killed =
                    trace(&scenario.arguments(), MUTATING_CALLS, Some(&format!("{call}:signal=KILL:when={number}")));
                if !killed.is_killed {
                    continue;
                }
                let killed_stage = stage_of(scenario, &killed, call);
                let name = names[killed_stage];
                let context = format!("{}, killed at {call} {number}, {}", scenario.name, name);
                scenario.check(&source, &format!("{context}\n{}", killed.log));
                let stage_kills = counts.entry((scenario.name, killed_stage)).or_default();
                stage_kills.name = name;
                stage_kills.kills += 1;
                stage_kills.calls.insert(call.clone());
            }
            let count = counts.get(&(scenario.name, stage)).map_or(0, |stage| stage.kills);
            assert!(count >= kills, "{}, {}: {count} kills", scenario.name, names[stage]);
        }
    }
    let mut table = format!("Seed {seed}, at least {kills} for each command and stage.\n\n");
    table += "| Command | Stage | Kills | Killed when entering |\n|---|---|---:|---|\n";
    for ((command, _), StageKills { name, kills, calls }) in &counts {
        let calls: Vec<String> = calls.iter().map(|call| format!("`{call}`")).collect();
        table += &format!("| `{command}` | {name} | {kills} | {} |\n", calls.join(", "));
    }
    table += &format!("| all | | {} | |\n", counts.values().map(|stage| stage.kills).sum::<u64>());
    println!("{table}");
}
