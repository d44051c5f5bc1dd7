//! Words the library's hints by flags and commands of the program.

use std::borrow::Cow;

use slotpress::Hint;

pub fn text(hint: &Hint) -> Cow<'_, str> {
    let text = match hint {
        Hint::Text(text) => return Cow::Borrowed(text),
        Hint::UseBaseSlot(slot) => {
            let text = "with another base, closed accounts may reappear (--force-base accepts that risk)";
            return Cow::Owned(format!("use --base-slot {slot}; {text}"));
        }
        Hint::AllowPrivate => {
            "--allow-private lets servers lead to private addresses; without it, only a source that you name may be private"
        }
        Hint::CheckState => "use --check state to check the accounts instead",
        Hint::ChooseSlot => "unpack one archive into one empty directory, or choose with --slot",
        Hint::ForceBase => "put the full archive there, or use --force-base to continue without it",
        Hint::GiveBase => "if it is an incremental archive, give its full archive with --base",
        Hint::GiveGenesis => "the chain's genesis.bin tells how long its slots take: --genesis",
        Hint::GiveBaseSlot => "an incremental archive needs the slot of its full archive: --base-slot",
        Hint::GiveCaFile => "if the server's authority is your own, give its certificate with --ca-file",
        Hint::GiveCredentials => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, and allow it in the bucket's policy; public \
             buckets are read with --anonymous"
        }
        Hint::GiveFullArchive => "give its full archive too, or check only frames: --check frames",
        Hint::GiveRpc => {
            "give an RPC server (--rpc), which reports the current slot; without --max-age, archives of unknown age are used"
        }
        Hint::GiveSources => "give --source, --rpc or --cluster",
        Hint::LeaveOutExpectHash => "--expect-hash is compared with the state: leave it out with --check frames",
        Hint::MoveArchivesBetween => "move it to another directory, or have --replace-state move it aside",
        Hint::MoveNewerArchives => {
            "restore the newer archive, move it to another directory, or have --replace-state move all newer ones aside"
        }
        Hint::MoreMemory => "give more --memory, or a --temporary-dir with room for 20 bytes per account",
        Hint::MoreMemoryForParts => "give more --memory: a store takes at most 10,000 parts",
        Hint::NameAccounts => {
            "name every accounts path with --accounts, as the validator does; a deleted storage cannot be \
                               replaced"
        }
        Hint::NameLedger => {
            "give the validator's ledger directory; where the validator runs with --snapshots, give that too"
        }
        Hint::MorePinBytes => "give more room for pins: --pin-bytes",
        Hint::OtherPins => "one `slotpress publish` serves all targets; to run a second one, give it other --pins",
        Hint::PinsOnSameFileSystem => "give a directory on the file system of the archives: --pins DIR",
        Hint::OtherDirectories => {
            "remove the link or the mount, or choose directories on that file system with --snapshots and --accounts"
        }
        Hint::RaiseMaxAge => "--max-age allows older ones; the validator then takes longer to catch up",
        Hint::RaiseMaxBytes => {
            "if it is the archive that you expect, give a larger --max-bytes; otherwise take it from another source"
        }
        Hint::Replace => "--force replaces it, --skip-existing leaves it",
        Hint::ReplaceState => "restore into an empty directory, or replace that state with --replace-state",
        Hint::SpillToDisk => {
            "give more --memory, or a directory on a disk: --temporary-dir, an output on a disk, or TMPDIR; --check frames \
             goes without"
        }
        Hint::UseFetch => "`slotpress fetch` fetches the whole archive; then use the file",
        Hint::UseFind => "`slotpress find` and `slotpress list URL` show what sources have",
        Hint::UseFindJson => "try again later, or give other sources; `slotpress find --json` names the cause of each",
        Hint::UseRecompress => "`slotpress recompress` makes one",
        Hint::UseVerify => "`slotpress verify` says what is damaged, and where",
        Hint::WriteIntoDirectory => {
            "write into a directory; or, if the reader of the pipe checks what it gets, use --check frames"
        }
        other => return Cow::Owned(other.to_string()),
    };
    Cow::Borrowed(text)
}
