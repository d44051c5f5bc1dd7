//! Reads archives ([`archive`]) and ledgers ([`plan`]), checks them ([`rules`], [`state`],
//! [`verify`](mod@verify)), and shows what they contain ([`inspect`]). [`store`] gives files their
//! final names, and [`catalog`] lists the archives of a directory.

// The crate parses bytes that other programs wrote.
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

pub mod archive;
pub mod catalog;
pub mod inspect;
pub mod plan;
pub mod rules;
mod snapshot;
pub mod state;
pub mod store;
pub mod verify;

pub use archive::arriving::ArrivingSource;
pub use archive::decode::FrameDecoder;
pub use archive::documents::{Documents, ParsedBank};
pub use archive::in_order::read_in_order;
pub use archive::local::LocalArchive;
pub use archive::range::read_range;
pub use archive::shape::{ArchiveShape, walk_shape};
pub use archive::source::{LocalFile, SharedSource, Source, TransferTotals, open_written};
pub use archive::tail::{Tail, tail_read_offset};
pub use archive::visit::{EntryRole, EntrySink, ReadFault, RecordVisitor, RecordWorker, StorageRef, Visitor};
pub use archive::walk::{BufferPool, SeenFrame};
pub use archive::{ArchiveContents, ArchiveInput, ArchivePass, OpenArchive};
pub use catalog::keep::Keep;
pub use catalog::list_parser::{LIST_BYTES_MAX, parse_list};
pub use catalog::list_writer::{ArchiveFields, ListFields};
pub use catalog::partials::Partial;
pub use catalog::prune::plan_prune;
pub use catalog::scan::{
    file_id, modified_ns, read_bank_times, read_keep_reasons, read_newest_bank_times, scan_again, scan_names,
    scan_with_copies,
};
pub use catalog::usable::judge_file;
pub use catalog::{Catalog, FileFault, FileId, ListedArchive, REMOTE_DIR, UnusableFile, unix_ns};
pub use inspect::account::find_account;
pub use inspect::accounts::{AccountsSummary, RecordTotals, inspect_accounts};
pub use inspect::owners::find_owner;
pub use inspect::visit::{Account, AccountVisitor, visit_accounts, visit_state};
pub use inspect::{ArchiveInspection, InspectOptions, LedgerInspection, check_pair, inspect_archive, inspect_ledger};
pub use plan::{Plan, PlanOptions};
pub use rules::archive::{ArchiveRules, SeenSlots};
pub use rules::clients::{ClientVerdict, client_names, describe_readers, excluded_client, merge_versions};
pub use rules::documents::{judge_documents, judge_root, rule_against_agave};
pub use rules::failures::{Failure, FailurePlace, Failures};
pub use rules::pair::{PairMember, REBASED_ON, is_rebased, judge_pair, require_newer_state};
pub use rules::rule::{Check, Rule, SnapshotClient};
pub use snapshot::Snapshot;
pub use state::accounts::{RATIO_UPPER_ESTIMATE, StateBuilder, estimate_records};
pub use state::check::{
    Assurance, CheckMode, CheckOptions, Completeness, STATE_MEMORY_BYTES_DEFAULT, StateCheck, judge_expected,
};
pub use state::fingerprint::{Fingerprint, Fingerprinter};
pub use state::log_item::{LogBatch, LogItem, RecordVersion};
pub use state::pass::AccountsPass;
pub use state::spill::{Spill, choose_spill_dir};
pub use state::storages::read_archive_storages;
pub use state::superseded::Superseded;
pub use state::version_log::VersionLog;
pub use state::visitor::{StateFacts, StatePart, StateVisitor, StateWorker, Task};
pub use store::dir_lock::{DirLocks, LockAttempt, try_lock};
pub use store::publish::{
    Publishable, StagedFile, TEMPORARY_PREFIX, already_exists_error, check_output_dir, remove_stale_files,
};
pub use store::work_dir::{WorkDir, remove_stale_dirs};
pub use store::{RESTORE_JOURNAL_HINT, RESTORE_JOURNAL_NAME, find_restore_journal};
pub use verify::catalog::{ArchiveBase, ArchiveVerdict, CatalogVerdict, verify_catalog};
pub use verify::job::VerifyOptions;
pub use verify::read_back::{ReadBackReport, read_back_archive};
pub use verify::report::{CheckResult, VerifyReport};
pub use verify::{verify, verify_with_visitor};
