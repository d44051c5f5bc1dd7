//! SIGKILL at single system calls, by `strace --inject`: after each, no partial file has a final name, the source is
//! unchanged, a rerun succeeds, and what looks complete verifies.
//!
//! A sample by default. By hand: `FAULTS_KILLS` kills for each command and stage, `FAULTS_SEED`, and `FAULTS_TABLE`, the
//! document whose table is written anew (docs/reliability.md).

use {
    super::{
        scenarios::{CHANGING, STAGES, Scenario, after_loading, scenarios},
        strace::{Call, Draws, Trace, number_of, trace, write_table},
        *,
    },
    std::collections::{BTreeMap, BTreeSet},
};

const SEED_DEFAULT: u64 = 14;

/// For each command and stage: few enough for half a minute in all.
const KILLS_DEFAULT: u64 = 2;

/// Kills that are tried for each that is wanted: with two workers, the same call does not always come in the same stage.
const TRIES: u64 = 3;

/// Where a run can be killed, by stage: each call by name and number. A thread that gets there first is killed.
fn moments(scenario: &Scenario, calls: &[Call]) -> BTreeMap<usize, Vec<(String, u64)>> {
    let mut seen = BTreeSet::new();
    let mut moments: BTreeMap<usize, Vec<(String, u64)>> = BTreeMap::new();
    let skipped = calls.len() - after_loading(calls).len();
    for (number, (call, stage)) in calls.iter().zip(scenario.stages(calls)).enumerate() {
        let moment = (call.name.clone(), call.number);
        if seen.insert(moment.clone()) && number >= skipped {
            moments.entry(stage).or_default().push(moment);
        }
    }
    moments
}

/// The stage in which a run was killed, by the call that it was killed at.
fn stage_of(scenario: &Scenario, trace: &Trace, call: &str) -> usize {
    let at = trace.calls.iter().rposition(|one| one.name == call).expect("the call is in the log");
    scenario.stages(&trace.calls)[at]
}

#[test]
fn killed_at_system_calls() {
    if !has_tool("strace") {
        return;
    }
    let (seed, kills) = (number_of("FAULTS_SEED", SEED_DEFAULT), number_of("FAULTS_KILLS", KILLS_DEFAULT));
    let mut draws = Draws(seed);
    let mut counts: BTreeMap<(&str, usize), (u64, BTreeSet<String>)> = BTreeMap::new();
    for scenario in scenarios().iter().filter(|scenario| scenario.has_result()) {
        scenario.reset();
        let source = scenario.source_tree();
        let whole = trace(&scenario.arguments(), CHANGING, None);
        assert!(scenario.is_complete(), "{}: {:?}", scenario.name, said(&whole.output));
        let moments = moments(scenario, &whole.calls);
        let stages: Vec<usize> = moments.keys().copied().collect();
        assert!(stages.iter().eq(&[0, 1, 2, 3, 4]), "{}: stages {stages:?}\n{}", scenario.name, whole.log);
        for (stage, moments) in moments {
            for _ in 0..kills * TRIES {
                if counts.get(&(scenario.name, stage)).is_some_and(|(count, _)| *count >= kills) {
                    break;
                }
                let (call, number) = &moments[draws.below(moments.len())];
                scenario.reset();
                let killed = trace(&scenario.arguments(), CHANGING, Some(&format!("{call}:signal=KILL:when={number}")));
                if !killed.is_killed {
                    continue;
                }
                let stage = stage_of(scenario, &killed, call);
                let at = format!("{}, killed at {call} {number}, {}", scenario.name, STAGES[stage]);
                scenario.check(&source, &format!("{at}\n{}", killed.log));
                let (count, calls) = counts.entry((scenario.name, stage)).or_default();
                *count += 1;
                calls.insert(call.clone());
            }
            let count = counts.get(&(scenario.name, stage)).map_or(0, |(count, _)| *count);
            assert!(count >= kills, "{}, {}: {count} kills", scenario.name, STAGES[stage]);
        }
    }
    let mut table = format!("Seed {seed}, at least {kills} for each command and stage.\n\n");
    table += "| Command | Stage | Kills | Killed when entering |\n|---|---|---:|---|\n";
    for ((command, stage), (count, calls)) in &counts {
        let calls: Vec<String> = calls.iter().map(|call| format!("`{call}`")).collect();
        table += &format!("| `{command}` | {} | {count} | {} |\n", STAGES[*stage], calls.join(", "));
    }
    table += &format!("| all | | {} | |\n", counts.values().map(|(count, _)| count).sum::<u64>());
    write_table("kills", &table);
}
