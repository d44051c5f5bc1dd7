//! Advice for errors, as data. The library words it with its options in backquotes, the program
//! with its flags.

#![warn(missing_docs)]

use std::borrow::Cow;
use std::fmt;

macro_rules! clause {
    (($text:literal)) => {
        $text
    };
    ($text:literal) => {
        $text
    };
}

macro_rules! is_optional {
    (($text:literal)) => {
        true
    };
    ($text:literal) => {
        false
    };
}

macro_rules! hints {
    ($($name:ident: $($part:tt)&*,)*) => {
        /// Advice for the operator. A variant's documentation is its text, with options and functions of
        /// this library in backquotes.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Hint {
            /// Advice that names no option.
            Text(Cow<'static, str>),
            /// Archive on the full archive of this slot, or accept that closed accounts may reappear.
            UseBaseSlot(u64),
            $(#[doc = concat!($(clause!($part)),*)] $name,)*
        }

        impl Hint {
            /// The clauses of the advice, with options in backquotes. True stands for a clause that
            /// is left out where a caller does not have its options.
            pub fn clauses(&self) -> impl Iterator<Item = (&'static str, bool)> {
                let clauses: &[(&str, bool)] = match self {
                    Self::Text(_) | Self::UseBaseSlot(_) => &[],
                    $(Self::$name => &[$((clause!($part), is_optional!($part))),*],)*
                };
                clauses.iter().copied()
            }
        }

        /// Words the advice for users of the library, with options in backquotes.
        impl fmt::Display for Hint {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::Text(text) => f.write_str(text),
                    Self::UseBaseSlot(slot) => write!(
                        f,
                        "use `base_slot` {slot}; with another base, closed accounts may reappear (`force_base` accepts \
                         that risk)"
                    ),
                    hint => hint.clauses().try_for_each(|(clause, _)| f.write_str(clause)),
                }
            }
        }
    };
}

// A clause in parentheses is left out where a caller does not have its options.
hints! {
    AllowPrivate:
        ("`allow_private` lets servers refer to private addresses; without it, ") & "only a source that you name may have a private address",
    ChooseSlot: "unpack one archive into one empty directory" & (", or choose with `slot`"),
    ForceBase: "put the full archive there, or use `force_base` to continue without it",
    GiveBase: "if it is an incremental archive, give its full archive with `base`",
    GiveBaseSlot: "an incremental archive needs the slot of its full archive" & (": `base_slot`"),
    GiveCaFile: "if the server has a certificate of your own authority, give the authority's certificate with `ca_file`",
    GiveCredentials:
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, and allow it in the bucket's policy; public \
         buckets are read with `anonymous`",
    GiveFullArchive: "give its full archive too" & (", or check only frames: `CheckMode::Frames`"),
    GiveRpc:
        "give an RPC server (`rpc`), which reports the current slot; without `max_age`, archives of unknown age are used",
    GiveSources: "give `sources`, `rpc` or `cluster`",
    LeaveOutExpectHash: "`expect_hash` is compared with the state: leave it out with `CheckMode::Frames`",
    MoreMemory: "give more `memory_bytes`" & (", or a `temporary_dir` with room for 20 bytes per account"),
    MoreMemoryForParts: "give more `memory_bytes`: a store takes at most 10,000 parts",
    NameAccounts: "name every accounts path with `accounts`, as the validator does; a deleted storage cannot be replaced",
    NameLedger:
        "give the validator's ledger directory; where the validator runs with `snapshots`, give that too",
    NewerLayout: "look for a newer slotpress, or recompress the validator's own archives",
    MorePinBytes: "give more room for pins: `pin_bytes`",
    OtherPins: "one `publish` serves all targets; to run a second one, give it other `pins`",
    PinsOnSameFileSystem: "give a directory on the file system of the archives: `pins`",
    OtherDirectories:
        "remove the link or the mount, or choose directories on that file system with `snapshots` and `accounts`",
    RaiseMaxAge: "`max_age` allows older ones; the validator then takes longer to catch up",
    RaiseMaxBytes:
        "if it is the archive that you expect, give a larger `max_bytes`; otherwise take it from another source",
    MoveArchivesBetween: "move it to another directory, or have `existing_state` move it aside",
    MoveNewerArchives:
        "restore the newer archive, move it to another directory, or have `existing_state` move all newer ones aside",
    Replace: ("`replace` replaces it"),
    ReplaceState: "restore into an empty directory, or replace that state with `existing_state`",
    SpillToDisk:
        "give more `memory_bytes`, or a directory on a disk: " & ("`temporary_dir`, ") & "an output on a disk, or TMPDIR"
        & ("; `CheckMode::Frames` goes without"),
    UseFetch: "`fetch` fetches the whole archive; then use the file",
    UseFind: "`find` shows what sources have",
    UseFindJson: "try again later, or give other sources; `find` names the cause of each",
    UseRestore: "to use the archives of this node: `restore`; otherwise give other sources, or try again later",
    UseVerify: "`verify` says what is damaged, and where",
    WriteIntoDirectory:
        "write into a directory; or, if the program that reads the pipe checks the archive, use `CheckMode::Frames`",
}

impl From<&'static str> for Hint {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Hint {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<Cow<'static, str>> for Hint {
    fn from(text: Cow<'static, str>) -> Self {
        Self::Text(text)
    }
}
