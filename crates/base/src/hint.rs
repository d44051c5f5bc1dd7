//! Advice for errors, as data: the library names its options in backquotes, the program its flags.

#![warn(missing_docs)]

use std::borrow::Cow;
use std::fmt;

macro_rules! hints {
    ($($(#[$doc:meta])* $name:ident: $text:literal,)*) => {
        /// Advice for the operator.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Hint {
            /// Advice that names no option.
            Text(Cow<'static, str>),
            /// Archive on the full archive of this slot, or accept that closed accounts may reappear.
            UseBaseSlot(u64),
            $($(#[$doc])* $name,)*
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
                    $(Self::$name => f.write_str($text),)*
                }
            }
        }
    };
}

hints! {
    /// Let servers lead to private addresses.
    AllowPrivate:
        "`allow_private` lets servers lead to private addresses; without it, only a source that you name may be private",
    /// Check the accounts, since the index is wrong.
    CheckState: "use `CheckMode::State` to check the accounts instead",
    /// Choose one of several bank snapshots.
    ChooseSlot: "unpack one archive into one empty directory, or choose with `slot`",
    /// Archive without a full archive in the directory.
    ForceBase: "put the full archive there, or use `force_base` to continue without it",
    /// Name the full archive of an incremental one.
    GiveBase: "if it is an incremental archive, give its full archive with `base`",
    /// Give the base slot of an incremental archive.
    GiveBaseSlot: "an incremental archive needs the slot of its full archive: `base_slot`",
    /// Give the genesis of the chain.
    GiveGenesis: "the chain's genesis.bin tells how long its slots take: `genesis`",
    /// Trust a certificate authority of one's own.
    GiveCaFile: "if the server's authority is your own, give its certificate with `ca_file`",
    /// Give credentials for a store.
    GiveCredentials:
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, and allow it in the bucket's policy; public \
         buckets are read with `anonymous`",
    /// Give the full archive too, or leave the state unchecked.
    GiveFullArchive: "give its full archive too, or check only frames: `CheckMode::Frames`",
    /// Name a server that knows the current slot, or accept archives of unknown age.
    GiveRpc:
        "give an RPC server (`rpc`), which reports the current slot; without `max_age`, archives of unknown age are used",
    /// Name a server to ask.
    GiveSources: "give `sources`, `rpc` or `cluster`",
    /// Leave out the expected hash, which is compared only with a checked state.
    LeaveOutExpectHash: "`expect_hash` is compared with the state: leave it out with `CheckMode::Frames`",
    /// Allow more memory, or another directory for temporary files.
    MoreMemory: "give more `memory_bytes`, or a `temporary_dir` with room for 20 bytes per account",
    /// Allow more memory for an upload.
    MoreMemoryForParts: "give more `memory_bytes`: a store takes at most 10,000 parts",
    /// Name the accounts directories of a ledger.
    NameAccounts: "name every accounts path of the validator with `accounts`; a deleted storage cannot be replaced",
    /// Name the ledger, and its snapshots directory.
    NameLedger:
        "give the validator's ledger directory; where the validator's snapshots are elsewhere, name that with `snapshots`",
    /// Allow more bytes of archives to be pinned.
    MorePinBytes: "give more room for pins: `pin_bytes`",
    /// Give a second publisher a directory of its own.
    OtherPins: "one `publish` serves all targets; to run a second one, give it another directory of `pins`",
    /// Keep pins on the file system of the archives, since they are hard links.
    PinsOnSameFileSystem: "give a directory on the file system of the archives: `pins`",
    /// Choose other directories to restore into.
    OtherDirectories:
        "remove the link or the mount, or choose directories on that file system with `snapshots` and `accounts`",
    /// Accept older snapshots.
    RaiseMaxAge: "`max_age` allows older ones; the validator then takes longer to catch up",
    /// Accept a longer archive.
    RaiseMaxBytes:
        "if it is the archive that you expect, give a larger `max_bytes`; otherwise take it from another source",
    /// Move newer archives aside, which the restored state would otherwise have beside it.
    MoveNewerArchives:
        "restore the newer archive, move it to another directory, or have `existing_state` move all newer ones aside",
    /// Replace a file that exists, or leave it.
    Replace: "`replace` replaces it, `skip_existing` leaves it",
    /// Replace a state that is in the way.
    ReplaceState: "restore into an empty directory, or replace that state with `existing_state`",
    /// Spill to a disk, or leave the state unchecked.
    SpillToDisk:
        "give more `memory_bytes`, or a directory on a disk: `temporary_dir`, an output on a disk, or TMPDIR; \
         `CheckMode::Frames` goes without",
    /// Fetch the whole archive first.
    UseFetch: "`fetch` the whole archive; then use the file",
    /// List the archives of sources.
    UseFind: "`find` shows what sources have",
    /// List the reasons for which sources have no archive.
    UseFindJson: "try again later, or give other sources; `find` names the cause of each",
    /// Make an archive with an index.
    UseRecompress: "`recompress` makes one",
    /// Verify the input.
    UseVerify: "`verify` says what is damaged, and where",
    /// Write into a directory, where the result can be checked, or leave the state unchecked.
    WriteIntoDirectory:
        "write into a directory; or, if the reader of the pipe checks what it gets, ask for `CheckMode::Frames`",
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
