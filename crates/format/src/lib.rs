//! An internal part of slotpress, without a stable interface: use the crate `slotpress`.
//!
//! The files of a ledger ([`ledger`]) and of an archive ([`archive`]): what their bytes mean, and
//! how to write them.

// The crate parses bytes that others wrote, and must not panic on any of them.
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

pub mod archive;
pub mod ledger;

pub use archive::assemble::FrameAssembler;
pub use archive::entry::{BLOCK_LEN, END_OF_ARCHIVE, END_OF_ARCHIVE_BYTES, Entry, EntryKind, padding_bytes};
pub use archive::entry_parser::{EntryParser, TarEnd, TarEvent};
pub use archive::frame_hashes::{ArchiveRoot, FrameHash, frame_hash};
pub use archive::frames::{
    FRAME_SIZE_BYTES_DEFAULT, FRAME_SIZE_BYTES_MAX, FRAME_SIZE_BYTES_MIN, FrameCutter, FrameSpan,
};
pub use archive::genesis_archive::{GENESIS_ARCHIVE_NAME, GENESIS_BYTES_MAX, GENESIS_FILE_NAME};
pub use archive::index::{INDEX_FRAME_BYTES_MAX, Index, is_index};
pub use archive::limits::{
    AGAVE_WINDOW_BYTES_MAX, AGAVE_WINDOW_LOG_MAX, ENTRIES_MAX, ENTRY_BYTES_MAX, FIREDANCER_SLOTS,
    FIREDANCER_WINDOW_BYTES_MAX, UNPACKED_BYTES_MAX,
};
pub use archive::listing::{
    ARCHIVES_FROM_LISTING, FrameHashesLocation, LATEST_JSON, LISTING_PATH, LISTING_VERSION, NEWEST_FULL,
    NEWEST_INCREMENTAL,
};
pub use archive::seek_table::{
    SEEK_TABLE_FOOTER_BYTES, SeekTableItem, parse_seek_table, seek_table_frame, seek_table_len,
};
pub use archive::zstd_frame::{
    BLOCK_CONTENT_BYTES_MAX, FRAME_HEADER_BYTES_MAX, FrameHeader, FrameStart, SKIPPABLE_HEADER_BYTES, SKIPPABLE_MAGIC,
    ZSTD_MAGIC, parse_block_header, parse_frame_start, skippable_frame, skippable_frame_len,
};
pub use ledger::bank_fields::BankFields;
pub use ledger::bank_file::{
    BankFile, BankStakes, EpochSchedule, ScheduledLeader, StorageMapItem, parse_bank_file, parse_bank_file_lenient,
    read_bank_file, read_bank_start,
};
pub use ledger::bank_hash::{BankHashParts, HardFork, count_hard_forks};
pub use ledger::demands::{BREACHES_PER_DEMAND_MAX, Breach, Demand};
pub use ledger::directory::{
    BankSnapshot, GRACEFUL_STOP, Layout, LedgerPaths, SNAPSHOT_VERSION, VERSION_BYTES_MAX, bank_snapshot_slots,
    find_bank_snapshot, find_bank_snapshot_lenient, is_complete, is_known_version, read_version,
};
pub use ledger::fields::{FieldReader, READ_BUFFER_BYTES};
pub use ledger::genesis::Genesis;
pub use ledger::held_lock::{LockState, ledger_lock_state, lock_holder};
pub use ledger::lattice::{AccountView, LatticeAccumulator, LatticeHash};
pub use ledger::leaders::Voter;
pub use ledger::lists::{
    ObsoleteFormat, ObsoleteItem, ObsoleteLists, parse_storages_list, parse_tagged_storages_list,
    scan_obsolete_accounts, write_empty_obsolete_lists, write_storages_list,
};
pub use ledger::loaders::{LoaderAccount, programdata_candidates};
pub use ledger::lock::{LOCK_NAME as LEDGER_LOCK_NAME, LedgerLock};
pub use ledger::mints::Mint;
pub use ledger::names::{
    Address, ArchiveCompression, ArchiveName, Hash, parse_number, parse_storage_name, serialize_name_and_parts,
    serialize_name_parts,
};
pub use ledger::programs::{CLOCK, FEATURE, REDUCED_STAKE_CHANGES, SLOT_HISTORY, STAKE, STAKE_HISTORY, VOTE};
pub use ledger::record::{
    ACCOUNT_DATA_BYTES_MAX, RECORD_ALIGNMENT, RECORD_HEADER_BYTES, RawRecord, RecordHeader, RecordStart, Records,
    Remainder, STORAGE_BYTES_MAX,
};
pub use ledger::records::{NoSink, Record, RecordFault, RecordFaultKind, RecordSink, RecordWalker};
pub use ledger::slot_params::{SHORTER_SLOTS, SlotParams};
pub use ledger::slot_time::{SlotTime, SlotTimeSource};
pub use ledger::split::{
    AccountData, DATA_HEADER_BYTES, FILE_HEADER_BYTES, MetaEntry, MetaWalk, ReadAt, SplitFile, WalkBounds,
    check_data_header, check_uids,
};
pub use ledger::stake_accounts::StakeAccount;
pub use ledger::stakes::{DELEGATIONS_MAX, Delegation, Stakes, VOTE_ACCOUNTS_MAX, VoteAccount};
pub use ledger::status_cache::{STATUS_CACHE_SLOTS_MAX, StatusCache, parse_status_cache};
pub use ledger::storages::{STORAGES_MAX, StorageDir, StorageFile, StorageFileStat, StorageKind, modified_ns};
pub use ledger::sysvars::{parse_block_time, parse_feature, parse_newest_slots, parse_stake_history};
pub use ledger::tokens::{Extensions, TOKEN_ACCOUNT_BYTES, TokenAccount, TokenData, extension_name};
pub use ledger::votes::VoteState;
