//! Every command with every variable, parsed in this process: the environment is a map.

use {
    super::*,
    crate::cli::{Cli, Verb, command},
    std::{collections::BTreeSet, fs, path::Path},
    tempfile::TempDir,
};

/// A valid value of every variable, one that changes something; of some flags, another one of another kind.
const VALUES: [(&str, &str); 119] = [
    ("SLOTPRESS_ACCOUNT", "SysvarC1ock11111111111111111111111111111111"),
    ("SLOTPRESS_ACCOUNTS", "/a:/b"),
    ("SLOTPRESS_AGAVE", "4.4"),
    ("SLOTPRESS_ALL", "1"),
    ("SLOTPRESS_ALLOW_PRIVATE", "1"),
    ("SLOTPRESS_ANY_FORMAT", "1"),
    ("SLOTPRESS_BANDWIDTH", "1Gbit"),
    ("SLOTPRESS_BASE", "/full.tar.zst"),
    ("SLOTPRESS_BASE_SLOT", "26"),
    ("SLOTPRESS_BUDGET", "10s"),
    ("SLOTPRESS_BUNDLES", "1,2"),
    ("SLOTPRESS_BY_OWNER", "true"),
    ("SLOTPRESS_CHECK", "state"),
    ("SLOTPRESS_CA_FILE", "/tmp/ca.pem"),
    ("SLOTPRESS_CLUSTER", "testnet"),
    ("SLOTPRESS_CODEC", "lz4,zlib:1,6"),
    ("SLOTPRESS_COLOR", "never"),
    ("SLOTPRESS_CONGESTION", "bbr"),
    ("SLOTPRESS_CSV", "/tmp/x.csv"),
    ("SLOTPRESS_DATA_LIMIT", "1KiB"),
    ("SLOTPRESS_EGRESS_PRICE", "0.1"),
    ("SLOTPRESS_END_TO_END", "1"),
    ("SLOTPRESS_EVALUATIONS", "10"),
    ("SLOTPRESS_EXPECT_HASH", "5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt"),
    ("SLOTPRESS_EXPECT_ROOT", "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
    ("SLOTPRESS_EXPECT_SLOT", "26"),
    ("SLOTPRESS_FOR", "agave,firedancer"),
    ("SLOTPRESS_FORCE", "yes"),
    ("SLOTPRESS_FORCE_BASE", "on"),
    ("SLOTPRESS_FORMAT", "lz4"),
    ("SLOTPRESS_FORMAT", "zstd"),
    ("SLOTPRESS_FRAMES_CODEC", "lz4"),
    ("SLOTPRESS_FRAMES_UNIT", "line"),
    ("SLOTPRESS_FRAME_SIZE", "64KiB"),
    ("SLOTPRESS_GRACE", "5s"),
    ("SLOTPRESS_HEAD_TIMEOUT", "5s"),
    ("SLOTPRESS_HTML", "/tmp/x.html"),
    ("SLOTPRESS_IGNORE_INDEX", "1"),
    ("SLOTPRESS_INCREMENTAL", "1MiB"),
    ("SLOTPRESS_IO_HINT", "none"),
    ("SLOTPRESS_JSON", "1"),
    ("SLOTPRESS_KEEP", "/tmp/x"),
    ("SLOTPRESS_KEEP_FULL", "3"),
    ("SLOTPRESS_KEEP_INCREMENTAL", "3"),
    ("SLOTPRESS_KEEP_WITHIN", "24h"),
    ("SLOTPRESS_LARGEST", "3"),
    ("SLOTPRESS_LAYOUT", "clustered"),
    ("SLOTPRESS_LEDGER", "/ledger"),
    ("SLOTPRESS_LEVELS", "-5--1"),
    ("SLOTPRESS_LISTEN", "127.0.0.1:1"),
    ("SLOTPRESS_LOSS", "0.1%"),
    ("SLOTPRESS_MARKDOWN", "/tmp/x.md"),
    ("SLOTPRESS_MIN_RATE", "1MiB"),
    ("SLOTPRESS_TRUST", "http://127.0.0.1:8899"),
    ("SLOTPRESS_EXPECTED_GENESIS_HASH", "5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d"),
    ("SLOTPRESS_NO_INCREMENTAL", "1"),
    ("SLOTPRESS_REPLACE_STATE", "1"),
    ("SLOTPRESS_DRY_RUN", "1"),
    ("SLOTPRESS_MAX_AGE", "5000"),
    ("SLOTPRESS_MAX_BYTES", "1TiB"),
    ("SLOTPRESS_MAX_CONNECTIONS", "9"),
    ("SLOTPRESS_MAX_CONNECTIONS_PER_CLIENT", "3"),
    ("SLOTPRESS_MAX_RATE", "100MiB"),
    ("SLOTPRESS_MAX_RATE_PER_CLIENT", "50MiB"),
    ("SLOTPRESS_MEMORY", "1GiB"),
    ("SLOTPRESS_METRICS", "127.0.0.1:2"),
    ("SLOTPRESS_MIN_SAVINGS", "5"),
    ("SLOTPRESS_MIN_TIME", "0.1"),
    ("SLOTPRESS_MIX", "nfts"),
    ("SLOTPRESS_MSS", "1000"),
    ("SLOTPRESS_NICE", "5"),
    ("SLOTPRESS_NODES", "2"),
    ("SLOTPRESS_NO_CHECKSUM", "true"),
    ("SLOTPRESS_OUTPUT", "/archives"),
    ("SLOTPRESS_OUTPUT", "-"),
    ("SLOTPRESS_OWNER", "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA"),
    ("SLOTPRESS_PLACE_RATE", "1GB/s"),
    ("SLOTPRESS_PRESET", "small"),
    ("SLOTPRESS_PROGRESS", "none"),
    ("SLOTPRESS_PROXY", "http://127.0.0.1:3128"),
    ("SLOTPRESS_QUICK", "1"),
    ("SLOTPRESS_QUIET", "1"),
    ("SLOTPRESS_READ_RATE", "1GB/s"),
    ("SLOTPRESS_REPEAT", "2"),
    ("SLOTPRESS_RPC", "http://127.0.0.1:8899,https://rpc.example"),
    ("SLOTPRESS_RTT", "60ms"),
    ("SLOTPRESS_SAMPLE", "1MiB"),
    ("SLOTPRESS_SCRATCH", "/tmp"),
    ("SLOTPRESS_SEARCH_LAYOUT", "both"),
    ("SLOTPRESS_SEARCH_LEVELS", "1,3"),
    ("SLOTPRESS_SEED", "3"),
    ("SLOTPRESS_SIZE", "1MiB"),
    ("SLOTPRESS_SIZES", "4KiB"),
    ("SLOTPRESS_SIZES_CODEC", "lz4"),
    ("SLOTPRESS_SIZES_UNIT", "record"),
    ("SLOTPRESS_SKIP_EXISTING", "1"),
    ("SLOTPRESS_SLOT", "26"),
    ("SLOTPRESS_SNAPSHOTS", "/snapshots"),
    ("SLOTPRESS_SOURCE", "http://127.0.0.1:8899,/archives"),
    ("SLOTPRESS_STALL_TIMEOUT", "5s"),
    ("SLOTPRESS_STORAGES", "9"),
    ("SLOTPRESS_STREAMS", "2"),
    ("SLOTPRESS_STYLE", "zstd"),
    ("SLOTPRESS_STYLE", "table"),
    ("SLOTPRESS_SVG", "/tmp/x.svg"),
    ("SLOTPRESS_TEMPORARY_DIR", "/tmp"),
    ("SLOTPRESS_THREADS", "2"),
    ("SLOTPRESS_TLS_CERT", "/tmp/cert.pem"),
    ("SLOTPRESS_TLS_KEY", "/tmp/key.pem"),
    ("SLOTPRESS_TREE", "archive"),
    ("SLOTPRESS_VERBOSE", "1"),
    ("SLOTPRESS_VERIFY", "1"),
    ("SLOTPRESS_WINDOW", "1MiB"),
    ("SLOTPRESS_ZSTD_LEVEL", "-3"),
    ("SLOTPRESS_ZSTD_PARAMS", "wlog=21"),
    // What other programs, other versions and other people set.
    ("SLOTPRESS", "x"),
    ("SLOTPRESS_HELP", "1"),
    ("SLOTPRESS_VERSION", "1"),
    ("SLOTPRESS_INPUT", "x"),
];

/// A ledger, an unpacked archive and a file, for what looks at the kind of its input.
struct Inputs(TempDir);

impl Inputs {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(dir.path().join("ledger")).expect("created");
        fs::create_dir_all(dir.path().join("unpacked/snapshots")).expect("created");
        for file in ["unpacked/snapshots/status_cache", "unpacked/version", "full", "newer"] {
            fs::write(dir.path().join(file), "x").expect("written");
        }
        Self(dir)
    }

    /// Splits a command line; words with an @ are names of inputs.
    fn words(&self, line: &str) -> Vec<OsString> {
        let path = |name: &str| self.0.path().join(name).into_os_string();
        let word = |word: &str| word.strip_prefix('@').map_or_else(|| word.into(), path);
        std::iter::once("slotpress").chain(line.split(' ')).map(word).collect()
    }
}

/// Every command, with what it needs, and with flags that others conflict with.
const LINES: [&str; 50] = [
    "bootstrap http://127.0.0.1:8899 --ledger @new",
    "bootstrap --cluster testnet --ledger @new --replace-state",
    "fetch http://127.0.0.1:8899 -o @",
    "find --rpc http://127.0.0.1:8899",
    "find --source @ --cluster devnet",
    "archive @ledger -o @",
    "archive @ledger -o -",
    "archive @ledger -o @ --verify",
    "archive @ledger -o @ --zstd-level 3",
    "archive @ledger -o @ --preset fast",
    "archive @ledger -o @ --zstd-params wlog=20",
    "archive @ledger -o @ --format none -v",
    "restore @full --ledger @new",
    "restore @full @newer --ledger @new --accounts @a",
    "restore @full --ledger @new --tree archive",
    "verify @full",
    "verify @full @newer",
    "verify @ledger",
    "verify @unpacked",
    "recompress @full -o @",
    "recompress - -o -",
    "inspect @full",
    "inspect @full --by-owner",
    "inspect @full --by-owner --largest 3",
    "inspect @full --account SysvarC1ock11111111111111111111111111111111",
    "inspect @ledger --accounts @a",
    "serve @",
    "list @",
    "prune @ --keep-full 2 --keep-incremental 4",
    "synth @new --size 1MiB",
    "demo",
    "doctor",
    "doctor @ledger",
    "levels @full",
    "levels @ledger --levels 1-3",
    "levels @full --codec zstd:1,lz4",
    "levels @ledger --end-to-end",
    "levels @ledger --sample 1MiB",
    "levels @full --style zstd",
    "levels sizes @full",
    "levels sizes @ledger --unit record",
    "levels frames @full",
    "levels frames @ledger --unit line",
    "levels link @full --bandwidth 1Gbit",
    "levels link @full --bandwidth 1Gbit --levels 1-3",
    "levels search @full",
    "levels search @ledger --layout both",
    "completions bash",
    "man @",
    "-q --progress none inspect @full",
];

fn parse_line(words: &[OsString], variables: &[(&str, &str)]) -> Result<(Cli, Vec<Setting>), clap::Error> {
    let lookup = |name: &str| {
        variables.iter().rev().find(|(variable, _)| *variable == name).map(|(_, value)| OsString::from(value))
    };
    crate::cli::parse(words, &lookup)
}

fn variables_of(command: &Command, path: &[&str], found: &mut BTreeSet<String>) {
    found.extend(flags(command).map(|(_, flag)| variable_of(path, flag)));
    for subcommand in command.get_subcommands() {
        variables_of(subcommand, &[path, &[subcommand.get_name()]].concat(), found);
    }
}

fn paths_of(command: &Command, path: &str, found: &mut BTreeSet<String>) {
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
        let path = format!("{path} {}", subcommand.get_name()).trim().to_string();
        paths_of(subcommand, &path, found);
        found.insert(path);
    }
}

#[test]
fn the_lists_of_this_test_are_complete() {
    let mut built = command();
    built.build();
    let (mut variables, mut paths) = (BTreeSet::new(), BTreeSet::new());
    variables_of(&built, &[], &mut variables);
    let listed: BTreeSet<String> = VALUES.iter().map(|(variable, _)| variable.to_string()).collect();
    assert_eq!(variables.difference(&listed).collect::<Vec<_>>(), [""; 0], "variables without a value");
    assert_eq!(listed.difference(&variables).count(), 4, "those that are none");
    paths_of(&built, "", &mut paths);
    for path in paths {
        assert!(LINES.iter().any(|line| line.starts_with(&format!("{path} ")) || *line == path), "{path}");
    }
    for (path, flag, _) in OWN_VARIABLES {
        let command = path.iter().fold(&built, |command, name| command.find_subcommand(name).expect(name));
        assert!(flags(command).any(|(_, name)| name == flag), "{path:?} --{flag}");
    }
}

/// What one name stands for is the same everywhere: the same words, or the same kind of value.
#[test]
fn a_variable_has_one_meaning() {
    fn meanings(command: &Command, path: &[&str], found: &mut BTreeMap<String, BTreeSet<String>>) {
        for (arg, flag) in flags(command) {
            let words: Vec<String> = arg.get_possible_values().iter().map(|value| value.get_name().into()).collect();
            let names = arg.get_value_names().map(|names| names.to_vec());
            let meaning = if words.is_empty() { format!("{names:?}") } else { words.join("|") };
            found.entry(variable_of(path, flag)).or_default().insert(format!("{:?} {meaning}", arg.get_action()));
        }
        for subcommand in command.get_subcommands() {
            meanings(subcommand, &[path, &[subcommand.get_name()]].concat(), found);
        }
    }
    let mut built = command();
    built.build();
    let mut found = BTreeMap::new();
    meanings(&built, &[], &mut found);
    // The directory for archives, and of a ledger: one word each.
    let several: Vec<_> = found.iter().filter(|(_, meanings)| meanings.len() > 1).collect();
    assert!(several.is_empty(), "{several:#?}");
    // Several values are split as paths are, or at the flag's own delimiter.
    let lists: Vec<_> = found.iter().filter(|(_, meanings)| meanings.iter().any(|m| m.starts_with("Append"))).collect();
    assert_eq!(
        lists.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        [
            "SLOTPRESS_ACCOUNTS",
            "SLOTPRESS_EXPECT_ROOT",
            "SLOTPRESS_FOR",
            "SLOTPRESS_RPC",
            "SLOTPRESS_SOURCE",
            "SLOTPRESS_TRUST"
        ]
    );
}

#[test]
fn no_variable_makes_a_command_fail() {
    let inputs = Inputs::new();
    for line in LINES {
        let words = inputs.words(line);
        if let Err(error) = parse_line(&words, &[]) {
            panic!("{line}: {error}");
        }
        for variable in VALUES {
            if let Err(error) = parse_line(&words, &[variable]) {
                panic!("{line} with {variable:?}: {error}");
            }
        }
        if let Err(error) = parse_line(&words, &VALUES) {
            panic!("{line} with everything: {error}");
        }
    }
}

/// What a command line gives stays, whatever the environment says.
#[test]
fn the_command_line_wins() {
    let inputs = Inputs::new();
    for line in LINES {
        let words = inputs.words(line);
        let given = command().try_get_matches_from(&words).expect(line);
        let lookup = |name: &str| VALUES.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value));
        let (matches, _) = super::parse(&command(), &words, &lookup).expect(line);
        let (mut given, mut matches) = (&given, &matches);
        loop {
            for id in given.ids().filter(|id| is_given(given, id.as_str())) {
                let raw = |matches: &ArgMatches| -> Option<Vec<OsString>> {
                    let values = matches.try_get_raw(id.as_str()).ok()??;
                    Some(values.map(OsString::from).collect())
                };
                assert_eq!(raw(matches), raw(given), "{line}: {id}");
            }
            let (Some((_, one)), Some((_, other))) = (given.subcommand(), matches.subcommand()) else { break };
            (given, matches) = (one, other);
        }
    }
}

/// The variables that a command line takes over.
fn applied(inputs: &Inputs, line: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let (_, settings) = parse_line(&inputs.words(line), variables).unwrap_or_else(|error| panic!("{line}: {error}"));
    settings.into_iter().map(|setting| setting.variable["SLOTPRESS_".len()..].to_lowercase()).collect()
}

#[test]
fn only_what_applies_is_taken() {
    let inputs = Inputs::new();
    let ledger_flags = [
        ("SLOTPRESS_ACCOUNTS", "/a"),
        ("SLOTPRESS_BASE_SLOT", "26"),
        ("SLOTPRESS_SLOT", "40"),
        ("SLOTPRESS_SNAPSHOTS", "/s"),
    ];
    for (line, expected) in [
        ("archive @ledger -o @", "accounts base_slot slot snapshots"),
        ("verify @full", ""),
        ("verify @ledger", "accounts slot snapshots"),
        ("verify @unpacked", "accounts base_slot slot snapshots"),
        ("inspect @full", ""),
        ("inspect @ledger", "accounts slot snapshots"),
        ("recompress @full -o @", ""),
        ("recompress - -o @", "base_slot"),
        ("restore @full --ledger @new", "accounts snapshots"),
        ("restore @full --ledger @new --tree archive", ""),
        ("levels @full", ""),
        ("levels search @ledger", "accounts base_slot slot snapshots"),
        ("synth @new --size 1MiB", ""),
    ] {
        assert_eq!(applied(&inputs, line, &ledger_flags).join(" "), expected, "{line}");
    }
    for (line, variables, expected) in [
        ("restore @full --ledger @new", &[("LAYOUT", "clustered"), ("TREE", "archive")][..], "tree"),
        ("restore @full --ledger @new --accounts @a", &[("TREE", "archive")], ""),
        ("restore @full @newer --ledger @new", &[("TREE", "archive")], ""),
        ("inspect @full", &[("CSV", "x.csv"), ("MEMORY", "1GiB"), ("OWNER", "x"), ("DATA_LIMIT", "1")], ""),
        ("inspect @full --by-owner", &[("MEMORY", "1GiB"), ("DATA_LIMIT", "1")], "memory"),
        ("inspect @full", &[("MEMORY", "1GiB"), ("BY_OWNER", "1")], "by_owner memory"),
        ("inspect @full", &[("MEMORY", "1GiB"), ("BY_OWNER", "0")], "by_owner"),
        ("inspect @full --by-owner", &[("ACCOUNT", "x")], ""),
        ("archive @ledger -o @", &[("PRESET", "fast"), ("FORMAT", "none")], "format"),
        ("archive @ledger -o @ --preset fast", &[("FORMAT", "none"), ("ZSTD_LEVEL", "7")], ""),
        ("archive @ledger -o @ --zstd-level 3", &[("PRESET", "fast")], ""),
        ("archive @ledger", &[("OUTPUT", "-"), ("VERIFY", "1")], "output"),
        ("levels @full", &[("CODEC", "lz4"), ("LEVELS", "1-3")], "codec"),
        ("levels @full --levels 1-3", &[("CODEC", "lz4")], ""),
        ("levels @full", &[("CODEC", "zstd:1,3,lz4"), ("END_TO_END", "1"), ("SCRATCH", "/tmp")], "codec"),
        ("levels @ledger --end-to-end", &[("CODEC", "zlib"), ("SAMPLE", "1MiB"), ("SCRATCH", "/tmp")], "scratch"),
        ("levels @ledger", &[("CODEC", "zstd:1,-5--1"), ("END_TO_END", "1")], "codec end_to_end"),
        ("levels search @full", &[("LAYOUT", "x"), ("LEVELS", "x"), ("SEARCH_LAYOUT", "both")], "search_layout"),
        ("-v inspect @full", &[("QUIET", "1"), ("JSON", "")], ""),
    ] {
        let variables: Vec<(String, &str)> = variables.iter().map(|(n, v)| (format!("SLOTPRESS_{n}"), *v)).collect();
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert_eq!(applied(&inputs, line, &variables).join(" "), expected, "{line} with {variables:?}");
    }
}

#[test]
fn several_paths_are_written_as_in_path() {
    let inputs = Inputs::new();
    let accounts = |variable: &str, line: &str| {
        let (cli, _) = parse_line(&inputs.words(line), &[("SLOTPRESS_ACCOUNTS", variable)]).expect("parses");
        match cli.command {
            Verb::Inspect(args) => args.directories.accounts,
            _ => panic!("inspect"),
        }
    };
    assert_eq!(accounts("/a:/b c", "inspect @ledger"), [Path::new("/a"), Path::new("/b c")]);
    assert_eq!(accounts("/a", "inspect @ledger"), [Path::new("/a")]);
    assert_eq!(accounts(":/a::", "inspect @ledger"), [Path::new("/a")], "an empty part is no path");
    assert_eq!(accounts("/a:/b", "inspect @ledger --accounts /c"), [Path::new("/c")]);
    let (cli, _) = parse_line(&inputs.words("verify @full"), &[("SLOTPRESS_FOR", "agave,firedancer")]).expect("parses");
    assert!(matches!(cli.command, Verb::Verify(args) if args.clients.len() == 2));
}

#[test]
fn what_is_wrong_names_its_variable() {
    let inputs = Inputs::new();
    for (line, variable, value, reason) in [
        ("archive @ledger", "SLOTPRESS_ZSTD_LEVEL", "99", "'--zstd-level <N>': levels are 1 to 22"),
        ("archive @ledger", "SLOTPRESS_LAYOUT", "both", "possible values: verbatim, clustered"),
        ("archive @ledger", "SLOTPRESS_FORCE", "perhaps", "'--force <BOOL>'"),
        ("inspect @full", "SLOTPRESS_JSON", "2", "'--json <BOOL>'"),
        ("verify @full", "SLOTPRESS_FOR", "agave,jito", "invalid value 'jito'"),
        ("levels link @full", "SLOTPRESS_BANDWIDTH", "fast", "'--bandwidth <RATE>'"),
        ("levels search @full", "SLOTPRESS_SEARCH_LAYOUT", "tidy", "both"),
    ] {
        let error = parse_line(&inputs.words(line), &[(variable, value)]).expect_err(line).to_string();
        for part in [reason, &format!("it is the value of {variable} in the environment")] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    // What is missing stays missing, in the words of the command line.
    let error = parse_line(&inputs.words("archive @ledger"), &[]).expect_err("no output").to_string();
    assert!(error.contains("--output <OUT_DIR>") && !error.contains("environment"), "{error}");
}

#[test]
fn later_errors_name_the_variables_they_may_come_from() {
    let inputs = Inputs::new();
    let variables = [("SLOTPRESS_ACCOUNTS", "/a:/b"), ("SLOTPRESS_THREADS", "2"), ("SLOTPRESS_JSON", "1")];
    let (_, settings) = parse_line(&inputs.words("inspect @ledger"), &variables).expect("parses");
    let hint = |error: Error| explain(error, &settings).hint_text().unwrap_or_default().to_string();
    assert_eq!(hint(Error::failed("/b/run is gone")), "the environment has SLOTPRESS_ACCOUNTS=/a:/b");
    assert_eq!(
        hint(Error::failed("x").hint("give --accounts")),
        "give --accounts; the environment has SLOTPRESS_ACCOUNTS=/a:/b"
    );
    assert_eq!(hint(Error::usage("x")), "the environment has SLOTPRESS_ACCOUNTS=/a:/b, SLOTPRESS_THREADS=2");
    assert_eq!(hint(Error::failed("x").hint("y")), "y");
    // A URL may hold a password or a key.
    let variables = [("SLOTPRESS_PROXY", "http://user:secret@proxy:3128")];
    let (_, settings) = parse_line(&inputs.words("inspect @ledger"), &variables).expect("parses");
    let error = explain(Error::usage("x"), &settings);
    assert_eq!(error.hint_text(), Some("the environment has SLOTPRESS_PROXY"));
}

/// `inspect --accounts` was a switch once, `--account-paths` what `--accounts` is now, and `restore --tree` had the
/// name of another flag.
#[test]
fn old_spellings() {
    let inputs = Inputs::new();
    let inspect = |line: &str| match parse_line(&inputs.words(line), &[]) {
        Ok((Cli { command: Verb::Inspect(args), .. }, _)) => args,
        other => panic!("{line}: {:?}", other.map(|_| ())),
    };
    for line in ["inspect @full --accounts", "inspect --accounts @full", "inspect @full --accounts --largest 3"] {
        let args = inspect(line);
        assert!(args.by_owner && args.directories.accounts.is_empty() && args.input.ends_with("full"), "{line}");
    }
    for line in ["inspect @ledger --accounts @a", "inspect @ledger --account-paths @a"] {
        let args = inspect(line);
        assert!(!args.by_owner && args.directories.accounts.len() == 1, "{line}");
    }
    let args = inspect("inspect @ledger --account-paths @a --accounts");
    assert!(args.by_owner && args.directories.accounts.len() == 1);
    let error = parse_line(&inputs.words("inspect @full --accounts --largest x"), &[]).expect_err("wrong");
    assert!(error.to_string().contains("a value is required for '--accounts <DIR>'"), "{error}");
    for flag in ["--tree", "--layout"] {
        let line = format!("restore @full --ledger @new {flag} archive");
        assert!(parse_line(&inputs.words(&line), &[]).is_ok(), "{line}");
    }
}
