//! What the library calls an option, in the words of the command line: errors and hints name options in backquotes, by the
//! names that they have for whoever embeds the library.

use std::borrow::Cow;

/// Options of the library, and their flags.
const FLAGS: [(&str, &str); 37] = [
    ("accounts", "--accounts"),
    ("allow_private", "--allow-private"),
    ("base", "--base"),
    ("base_slot", "--base-slot"),
    ("ca_file", "--ca-file"),
    ("CheckMode::Frames", "--check frames"),
    ("CheckMode::State", "--check state"),
    ("cluster", "--cluster"),
    ("codec", "--zstd-level"),
    ("existing_state", "--replace-state"),
    ("expect_hash", "--expect-hash"),
    ("expect_root", "--expect-root"),
    ("expect_slot", "--expect-slot"),
    ("force_base", "--force-base"),
    ("frame_size_bytes", "--frame-size"),
    ("io_hint", "--io-hint"),
    ("is_quick", "--quick"),
    ("max_age", "--max-age"),
    ("max_bytes", "--max-bytes"),
    ("memory_bytes", "--memory"),
    ("min_rate_bytes_per_second", "--min-rate"),
    ("paths.ledger", "--ledger"),
    ("read_back", "--verify"),
    ("replace", "--force"),
    ("RestoreLayout::Archive", "--tree archive"),
    ("rpc", "--rpc"),
    ("sample_bytes", "--sample"),
    ("size_bytes", "--size"),
    ("skip_existing", "--skip-existing"),
    ("slot", "--slot"),
    ("snapshots", "--snapshots"),
    ("sources", "--source"),
    ("streams", "--streams"),
    ("temporary_dir", "--temporary-dir"),
    ("threads", "--threads"),
    ("trusted", "--trust"),
    ("wants_incremental", "--no-incremental"),
];

/// The same text with flags in place of the library's options.
pub fn with_flags(text: &str) -> Cow<'_, str> {
    FLAGS.iter().fold(Cow::Borrowed(text), |text, (name, flag)| {
        let quoted = format!("`{name}`");
        if text.contains(&quoted) { Cow::Owned(text.replace(&quoted, flag)) } else { text }
    })
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use {
        super::*,
        proptest::prelude::*,
        std::{fs, path::Path},
    };

    #[test]
    fn options_become_flags() {
        for (text, expected) in [
            ("give more `memory_bytes`, or a `temporary_dir`", "give more --memory, or a --temporary-dir"),
            ("stop it with `agave-validator exit`", "stop it with `agave-validator exit`"),
            ("one ` alone", "one ` alone"),
            ("`threads` and ` alone", "--threads and ` alone"),
            ("`threads`", "--threads"),
            ("", ""),
        ] {
            assert_eq!(with_flags(text), expected);
        }
        assert!(FLAGS.is_sorted_by_key(|(name, _)| name.to_lowercase()));
    }

    proptest! {
        #[test]
        fn other_words_stay(text in "[a-z` ]{0,40}") {
            let is_told = FLAGS.iter().any(|(name, _)| text.contains(&format!("`{name}`")));
            prop_assert!(is_told || with_flags(&text) == text);
        }
    }

    /// What stands alone in backquotes in the library's words is an option that has a flag.
    #[test]
    fn every_option_that_is_named_has_a_flag() {
        let names = FLAGS.map(|(name, _)| name);
        let is_option = |part: &str| {
            let is_word = |char: char| char.is_alphanumeric() || "_:".contains(char);
            (part.contains('_') || part.contains("::")) && part.chars().all(is_word)
        };
        let mut named = 0;
        let mut dirs = ["src", "crates"].map(|dir| Path::new(env!("CARGO_MANIFEST_DIR")).join(dir)).to_vec();
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    dirs.push(path);
                    continue;
                }
                if path.extension().is_none_or(|extension| extension != "rs") {
                    continue;
                }
                let source = fs::read_to_string(&path).expect("a source");
                for line in source.lines().filter(|line| !line.trim_start().starts_with("//")) {
                    let quoted =
                        line.split('`').enumerate().filter(|(number, part)| number % 2 == 1 && is_option(part));
                    for (_, part) in quoted {
                        assert!(names.contains(&part), "{path:?}: {part}");
                        named += 1;
                    }
                }
            }
        }
        assert!(named > 20, "{named}");
    }
}
