//! SIGKILL at single system calls, by `strace --inject`: after each, no partial file has a final name, the source is
//! unchanged, a rerun succeeds, and what looks complete verifies.
//!
//! Short by default. By hand: `FAULTS_KILLS` kills for each command and group of calls, `FAULTS_SEED`, and
//! `FAULTS_TABLE`, the file whose table is written anew (docs/reliability.md).

use {
    super::*,
    std::{
        collections::{BTreeMap, BTreeSet},
        fs,
        path::PathBuf,
    },
    tempfile::TempDir,
};

/// The calls at which a run is killed. The signal comes when a thread enters its N-th call of the group, so that what
/// precedes each call, and what follows the one before, is tried.
const GROUPS: [&str; 2] = [
    "rename,renameat,renameat2,linkat,unlink,unlinkat,rmdir,mkdir,mkdirat,openat,fsync,fdatasync,syncfs,flock",
    "write,pwrite64,ftruncate,fallocate,copy_file_range,sendfile,sync_file_range",
];

const SEED_DEFAULT: u64 = 14;

/// For each command and group: few enough for less than a minute in all.
const KILLS_DEFAULT: u64 = 6;

/// A command, its source, and what it is to leave.
struct Scenario {
    name: &'static str,
    dir: TempDir,
    source: PathBuf,
    out: PathBuf,
    kind: Kind,
}

enum Kind {
    /// An archive of this name and content.
    Archive(String, Vec<u8>),
    /// A ledger.
    Ledger,
    /// The tree of an archive.
    Tree,
}

impl Scenario {
    fn arguments(&self) -> Vec<String> {
        let (source, out) = (text(&self.source).to_string(), text(&self.out).to_string());
        let arguments = match (self.name, &self.kind) {
            (name, Kind::Archive(..)) => vec![name.into(), source, "-o".into(), out, "--force".into()],
            (_, Kind::Ledger) => {
                let accounts = text(&self.dir.path().join("disk/accounts")).to_string();
                vec!["restore".into(), source, "--ledger".into(), out, "--accounts".into(), accounts]
            }
            (_, Kind::Tree) => {
                vec!["restore".into(), source, "--tree".into(), "archive".into(), "--ledger".into(), out]
            }
        };
        arguments.into_iter().chain(["--threads".to_string(), "2".to_string()]).collect()
    }

    /// What is there when the command has not run yet.
    fn reset(&self) {
        let _ = fs::remove_dir_all(&self.out);
        let _ = fs::remove_dir_all(self.dir.path().join("disk"));
        if matches!(self.kind, Kind::Archive(..)) {
            fs::create_dir(&self.out).expect("made");
        }
    }

    fn source_tree(&self) -> BTreeMap<String, Option<Vec<u8>>> {
        if self.source.is_file() {
            return BTreeMap::from([(name(&self.source), fs::read(&self.source).ok())]);
        }
        let mut tree = tree(&self.source);
        tree.remove("ledger.lock"); // made as a validator makes it
        tree
    }

    fn is_complete(&self) -> bool {
        match &self.kind {
            Kind::Archive(name, _) => self.out.join(name).exists(),
            Kind::Ledger => fs::read_dir(self.out.join("snapshots")).is_ok_and(|mut dir| {
                dir.any(|entry| entry.is_ok_and(|it| it.path().join("fastboot_version").exists()))
            }),
            Kind::Tree => self.out.join("version").exists(),
        }
    }

    /// Whatever has a final name is whole.
    fn check_final_names(&self, at: &str) {
        let archives = fs::read_dir(&self.out).into_iter().flatten().map(|entry| entry.expect("an entry").path());
        for path in archives.filter(|path| name(path).starts_with("snapshot-") && path.is_file()) {
            let expected = match &self.kind {
                Kind::Archive(_, bytes) => bytes,
                _ => &fs::read(&self.source).expect("read"),
            };
            assert!(&fs::read(&path).expect("read") == expected, "{at}: {} is not whole", path.display());
        }
        if self.is_complete() {
            self.check_whole(at);
        }
    }

    fn check_whole(&self, at: &str) {
        let mut arguments = vec!["verify".to_string()];
        match &self.kind {
            Kind::Archive(name, _) => arguments.push(text(&self.out.join(name)).into()),
            _ => arguments.push(text(&self.out).into()),
        }
        if matches!(self.kind, Kind::Ledger) {
            arguments.extend(["--accounts".into(), text(&self.dir.path().join("disk/accounts")).into()]);
        }
        let (code, said) = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(code, Some(0), "{at}: what looks complete is not: {said}");
    }

    /// After a kill: everything that must hold, and a rerun.
    fn check(&self, source: &BTreeMap<String, Option<Vec<u8>>>, at: &str) {
        assert!(self.source_tree() == *source, "{at}: the source has changed");
        self.check_final_names(at);
        let was_complete = self.is_complete();
        let arguments = self.arguments();
        let (code, said) = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        if matches!(self.kind, Kind::Archive(..)) || !was_complete {
            assert_eq!(code, Some(0), "{at}: a rerun fails: {said}\n{:?}", names(self.dir.path()));
        } else {
            assert!(code == Some(1) && said.contains("is there already"), "{at}: {code:?} {said}");
        }
        assert!(self.is_complete(), "{at}: a rerun leaves nothing");
        self.check_final_names(at);
        let left: Vec<String> = names(self.dir.path());
        let left: Vec<&String> =
            left.iter().filter(|name| name.contains("slotpress-partial") || name.contains("tmp")).collect();
        assert!(left.is_empty(), "{at}: {left:?} is left");
    }
}

fn scenarios() -> Vec<Scenario> {
    let make = |name, kind: &dyn Fn(&Path) -> (PathBuf, Kind)| {
        let dir = temp_dir();
        let (source, kind) = kind(dir.path());
        let out = dir.path().join("out");
        Scenario { name, dir, source, out, kind }
    };
    let into_archive = |dir: &Path, command: &str, source: PathBuf| {
        let first = dir.join("first");
        fs::create_dir(&first).expect("made");
        let (code, said) = run(&[command, text(&source), "-o", text(&first)]);
        assert_eq!(code, Some(0), "{said}");
        let archive = fs::read_dir(&first).expect("read").next().expect("an archive").expect("an entry").path();
        let kind = Kind::Archive(name(&archive), fs::read(&archive).expect("read"));
        fs::remove_dir_all(first).expect("removed");
        (source, kind)
    };
    let copied = |dir: &Path| {
        let source = dir.join(FULL_26);
        fs::copy(fixture(FULL_26), &source).expect("copied");
        source
    };
    vec![
        make("archive", &|dir| {
            let ledger = dir.join("ledger");
            unpack_into(&fixture("ledger-at-26.tar.zst"), &ledger);
            into_archive(dir, "archive", ledger)
        }),
        make("recompress", &|dir| into_archive(dir, "recompress", copied(dir))),
        make("restore", &|dir| (copied(dir), Kind::Ledger)),
        make("restore --tree archive", &|dir| (copied(dir), Kind::Tree)),
    ]
}

/// Runs under strace; returns what it logged.
fn traced(scenario: &Scenario, calls: &str, inject: Option<&(String, u64)>) -> String {
    let log = scenario.dir.path().join("strace.log");
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60", "strace", "-f", "-qq", "-o", text(&log), "-e", &format!("trace={calls}")]);
    if let Some((call, number)) = inject {
        command.arg("-e").arg(format!("inject={call}:signal=KILL:when={number}"));
    }
    command.arg(slotpress_path()).args(scenario.arguments()).output().expect("runs");
    let text = fs::read_to_string(&log).expect("a log");
    fs::remove_file(log).expect("removed");
    text
}

/// Where a run can be killed: each call by name and number. strace counts for each thread and each system call.
fn moments(log: &str) -> Vec<(String, u64)> {
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for line in log.lines().filter(|line| line.contains('(') && !line.contains("resumed")) {
        let mut words = line.split_whitespace();
        let (Some(thread), Some(call)) = (words.next(), words.next()) else { continue };
        *counts.entry((call.split('(').next().unwrap_or_default(), thread)).or_default() += 1;
    }
    let mut most: BTreeMap<&str, u64> = BTreeMap::new();
    for ((call, _), count) in counts {
        let max = most.entry(call).or_default();
        *max = count.max(*max);
    }
    most.into_iter().flat_map(|(call, max)| (1..=max).map(move |number| (call.to_string(), number))).collect()
}

/// The call at which the run was killed; `None` when it came to its end.
fn killed_at(log: &str) -> Option<String> {
    log.contains("killed by SIGKILL").then_some(())?;
    let line = log.lines().rev().find(|line| line.contains('(') && !line.contains("resumed"))?;
    Some(line.split_whitespace().nth(1)?.split('(').next()?.to_string())
}

/// One number of each of `count` equal parts of 1 to `max`.
fn sample(seed: u64, count: u64, max: u64) -> BTreeSet<u64> {
    let draw = |number: u64| {
        // splitmix64
        let mut z = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let count = count.min(max);
    (0..count)
        .map(|part| {
            let (start, end) = (part * max / count, (part + 1) * max / count);
            1 + start + draw(part) % (end - start).max(1)
        })
        .collect()
}

fn number_of(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
#[ignore = "by hand, until it has been seen to work on more than one machine"]
fn killed_at_system_calls() {
    if !has_tool("strace") {
        return;
    }
    let (seed, kills) = (number_of("FAULTS_SEED", SEED_DEFAULT), number_of("FAULTS_KILLS", KILLS_DEFAULT));
    let mut counts: BTreeMap<(&str, String), u64> = BTreeMap::new();
    for scenario in scenarios() {
        for group in GROUPS {
            scenario.reset();
            let source = scenario.source_tree();
            let moments = moments(&traced(&scenario, group, None));
            assert!(!moments.is_empty() && scenario.is_complete(), "{}: cannot be traced", scenario.name);
            for number in sample(seed, kills, moments.len() as u64) {
                let moment = &moments[number as usize - 1];
                scenario.reset();
                let log = traced(&scenario, group, Some(moment));
                let Some(call) = killed_at(&log) else { continue };
                let at = format!("{}, killed at {moment:?} ({call})\n{log}", scenario.name);
                scenario.check(&source, &at);
                *counts.entry((scenario.name, call)).or_default() += 1;
            }
        }
    }
    let total: u64 = counts.values().sum();
    println!("{total} kills");
    assert!(total >= kills * 2, "the calls were missed: {counts:?}");
    if let Some(path) = std::env::var_os("FAULTS_TABLE") {
        write_table(Path::new(&path), &counts, seed, kills);
    }
}

/// Replaces the table between its two marks.
fn write_table(path: &Path, counts: &BTreeMap<(&str, String), u64>, seed: u64, kills: u64) {
    const MARKS: [&str; 2] = ["<!-- kills: begin -->\n", "<!-- kills: end -->"];
    let document = fs::read_to_string(path).expect("read");
    let (before, rest) = document.split_once(MARKS[0]).expect("a table");
    let (_, after) = rest.split_once(MARKS[1]).expect("the end of the table");
    let mut table = format!("Seed {seed}, at most {kills} for each command and group of calls.\n\n");
    table += "| Command | Killed when entering | Kills |\n|---|---|---:|\n";
    for ((command, call), count) in counts {
        table += &format!("| `{command}` | `{call}` | {count} |\n");
    }
    table += &format!("| all | | {} |\n", counts.values().sum::<u64>());
    fs::write(path, format!("{before}{}{table}{}{after}", MARKS[0], MARKS[1])).expect("written");
}

#[test]
fn samples_cover_everything() {
    assert_eq!(sample(1, 5, 5), (1..=5).collect());
    assert!(sample(1, 10, 100).iter().all(|number| (1..=100).contains(number)) && sample(1, 10, 100).len() == 10);
    assert_eq!(killed_at("1 rename(\"a\", \"b\") = ?\n1 +++ killed by SIGKILL +++\n").as_deref(), Some("rename"));
    assert_eq!(moments("1 open(1)\n2 open(2)\n1 open(3)\n"), [("open".to_string(), 1), ("open".to_string(), 2)]);
}
