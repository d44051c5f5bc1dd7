//! Advice for errors. If advice names a flag that the running command does not have, the program omits that
//! advice.

pub const ALLOW_PRIVATE: &str = "--allow-private lets servers refer to private addresses; without it, only a source that you name may have a private address";
pub const PASS_BASE: &str = "if it is an incremental archive, pass its full archive with --base";
pub const PASS_BASE_SLOT: &str = "an incremental archive needs the slot of its full archive: --base-slot";
pub const PASS_CA_FILE: &str =
    "if your own authority issued the server's certificate, pass the authority's certificate with --ca-file";
pub const SET_CREDENTIALS: &str = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, and allow that user in the bucket's policy; public buckets are read with --anonymous";
pub const PASS_FULL_ARCHIVE: &str = "pass its full archive too, or check only frames: --check frames";
pub const PASS_RPC: &str = "pass an RPC server with --rpc, which reports the current slot; without --max-age, archives of unknown age are used";
pub const LEAVE_OUT_EXPECT_HASH: &str = "--expect-hash is compared with the state; with --check frames, omit it";
pub const MORE_MEMORY: &str = "raise --memory";
pub const NAME_ACCOUNTS: &str =
    "name every accounts path with --accounts, as the validator does; a deleted storage cannot be replaced";
pub const NEWER_LAYOUT: &str = "look for a newer slotpress, or recompress the validator's own archives";
pub const OTHER_DIRECTORIES: &str =
    "remove the link or the mount, or choose directories on that file system with --snapshots and --accounts";
pub const OTHER_PINS: &str =
    "one `slotpress publish` serves all targets; to run a second one, pass it a different --pins directory";
pub const PINS_ON_SAME_FILE_SYSTEM: &str = "use a directory on the file system of the archives: --pins DIR";
pub const RAISE_MAX_AGE: &str = "a larger --max-age allows older archives; the validator then takes longer to catch up";
pub const RAISE_MAX_BYTES: &str =
    "if it is the archive that you expect, raise --max-bytes; otherwise get it from another source";
pub const SPILL_TO_DISK: &str =
    "raise --memory, or use a directory on a disk: write the output there, or set TMPDIR to it";
pub const USE_FETCH: &str = "`slotpress fetch` fetches the whole archive; then use the file";
pub const USE_FIND: &str = "`slotpress find` and `slotpress list URL` show which archives the sources have";
pub const USE_FIND_JSON: &str =
    "try again later, or use other sources; `slotpress find --json` names the cause of each";
pub const USE_RESTORE: &str =
    "to use the archives of this node, run `slotpress restore`; otherwise use other sources, or try again later";
pub const USE_VERIFY: &str = "`slotpress verify` says what is damaged, and where";
pub const WRITE_INTO_DIRECTORY: &str =
    "write into a directory; or, if the program that reads the pipe checks the archive, use --check frames";
