//! Words the library's hints by flags and commands of the program.

use std::borrow::Cow;

use slotpress::{Hint, ToConvert};

use super::restore::shell_word;

/// Names of the library in its hints, and what the program calls them. Other names are flags of the same name.
const NAMES: &[(&str, &str)] = &[
    ("CheckMode::Frames", "--check frames"),
    ("CheckMode::State", "--check state"),
    ("existing_state", "--replace-state"),
    ("fetch", "`slotpress fetch`"),
    ("find", "`slotpress find --json`"),
    ("memory_bytes", "--memory"),
    ("publish", "`slotpress publish`"),
    ("recompress", "`slotpress recompress`"),
    ("replace", "--force"),
    ("sources", "--source"),
    ("verify", "`slotpress verify`"),
];

pub fn text(hint: &Hint) -> Cow<'_, str> {
    match hint {
        // May quote what others wrote: backquotes in it mean nothing.
        Hint::Text(text) => Cow::Borrowed(text),
        Hint::PinsOnSameFileSystem => "give a directory on the file system of the archives: --pins DIR".into(),
        Hint::Convert(to_convert) => {
            let ToConvert { archive, base, incremental } = &**to_convert;
            let with = [("base", base), ("incremental", incremental)].into_iter();
            let with = with.filter_map(|(name, path)| Some(format!(" --{name} {}", shell_word(path.as_ref()?))));
            let (archive, with) = (shell_word(archive), with.collect::<String>());
            format!("make one that Agave loads, and restore that: slotpress recompress --for agave {archive}{with} -o DIR").into()
        }
        Hint::ConvertFile => {
            "fetch it, or save it in a file; then slotpress recompress --for agave FILE -o DIR makes one that Agave loads".into()
        }
        Hint::UseFind => "`slotpress find` and `slotpress list URL` show what sources have".into(),
        hint => named(&hint.to_string()).into(),
    }
}

/// Replaces the names in backquotes.
fn named(text: &str) -> String {
    let name_of = |(number, part): (usize, &str)| match NAMES.iter().find(|(name, _)| *name == part) {
        _ if number % 2 == 0 => part.to_string(),
        Some((_, name)) => name.to_string(),
        None => format!("--{}", part.replace('_', "-")),
    };
    text.split('`').enumerate().map(name_of).collect()
}
