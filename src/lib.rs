//! Solana snapshot archives on all cores: archive a ledger, restore a node that boots, verify what was downloaded,
//! recompress what a validator wrote, measure compression levels, fetch and serve archives.
//!
//! This is the library behind the program `slotpress`. Nothing in it prints, reads flags, or exits: long work reports
//! through [`Progress`], and ends early when [`Progress::is_interrupted`] says so; a [`CancelToken`]
//! does that alone, or beside a display of progress ([`CancelToken::with`]). What fails is an [`Error`], whose
//! [`ErrorKind`] tells damage from a failing disk or network, and whose [`Hint`] says what to do next.
//!
//! # Archive a ledger
//!
//! ```no_run
//! use slotpress::{ArchiveOptions, Codec, NoProgress, Sink, archive};
//!
//! let options = ArchiveOptions::new("/mnt/ledger").codec(Codec::zstd(3)).threads(8);
//! let report = archive(&options, Sink::dir("/mnt/snapshots"), &NoProgress)?;
//! println!("{} bytes in {:?}", report.output_bytes, report.elapsed.wall);
//! # Ok::<(), slotpress::Error>(())
//! ```
//!
//! The same ledger, settings and version give the same bytes, whatever the number of threads. With
//! [`ArchiveOptions::base_slot`], the archive is an incremental one.
//!
//! # Restore, verify, recompress
//!
//! ```no_run
//! use slotpress::{NamedArchive, NoProgress, RestoreOptions, RestoreTarget, VerifyOptions, restore, verify};
//!
//! let archive = NamedArchive::from_path("/mnt/snapshots/snapshot-350006937-….tar.zst");
//! let report = verify(&archive, None, &VerifyOptions::default(), &NoProgress)?;
//! assert!(report.ok, "{:?}", report.failures);
//!
//! let report = restore(&RestoreOptions::new(archive.path, RestoreTarget::new("/mnt/new-ledger")), &NoProgress)?;
//! println!("slot {}, ready to boot from {}", report.slot, report.path.display());
//! # Ok::<(), slotpress::Error>(())
//! ```
//!
//! [`recompress()`] makes another archive of an archive, [`inspect`] looks inside. [`plan_archive`], [`plan_restore`] and, with the
//! feature `net`, `plan_bootstrap` find out what would be done, and whether there is room; executing the plan does exactly that.
//!
//! # Accounts
//!
//! [`visit_accounts`] shows the newest version of every account to one visitor per worker: of an archive, of a full and an
//! incremental archive together, or of a ledger. It returns the visitors, unless the state is not what it should be:
//!
//! ```no_run
//! use slotpress::{
//!     Account, AccountVisitor, AccountsInput, NamedArchive, NoProgress, VisitOptions, visit_accounts,
//! };
//! use std::convert::Infallible;
//!
//! #[derive(Default)]
//! struct Programs(u64);
//!
//! impl AccountVisitor for Programs {
//!     type Error = Infallible;
//!
//!     fn account(&mut self, account: &Account<'_>) -> Result<(), Infallible> {
//!         self.0 += u64::from(account.is_executable);
//!         Ok(())
//!     }
//! }
//!
//! let full = NamedArchive::from_path("/mnt/snapshots/snapshot-350006937-….tar.zst");
//! let incremental = NamedArchive::from_path("/mnt/snapshots/incremental-snapshot-350006937-350007037-….tar.zst");
//! let state = AccountsInput::Archives(&full, Some(&incremental));
//! let visit = visit_accounts(state, &VisitOptions::default(), &NoProgress, Programs::default)?;
//! let programs: u64 = visit.visitors.iter().map(|worker| worker.0).sum();
//! println!("{programs} programs among {} accounts", visit.report.accounts);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What is on a server is read by ranges: `archive_at_url`, of the feature `net`, gives what [`verify`], [`inspect::inspect_archive`] and
//! [`visit_accounts`] take.
//!
//! # Fetch, bootstrap, serve
//!
//! With the features `net` and `serve`, which are on unless default features are turned off: `find` ranks servers by
//! how old the state will be at boot, `fetch` downloads with resume, `bootstrap` restores while it downloads; they share a
//! `Client`. `serve::run` is the server for all of these.
//!
#![cfg_attr(
    feature = "net",
    doc = r#"```no_run
use slotpress::{Client, ClientOptions, FetchOptions, FindOptions, NoProgress, fetch, find, net::SourceArg};

let client = Client::new(&ClientOptions::default())?;
let sources = ["https://mirror.example".parse::<SourceArg>()?, "/mnt/snapshots".parse()?];
let found = find(&client, &FindOptions::new(sources.clone()), &NoProgress)?;
println!("the best state is of slot {}", found.require_candidate()?.slot());
let fetched = fetch(&client, &FetchOptions::new(sources, "/mnt/new-snapshots"), &NoProgress)?;
for archive in &fetched.archives {
    println!("{} at {:?}", archive.name, archive.path);
}
# Ok::<(), Box<dyn std::error::Error>>(())
```"#
)]
//!
//! # Directories of archives
//!
//! [`catalog`] says what a directory holds, which archives a node would choose, which are not usable and which may go, and
//! finds downloads that did not end.
//!
//! # Stores
//!
//! With the feature `stores`, a `stores::Store` is a directory or a bucket that archives go to (`Sink::store`), and with
//! `stores::S3Options` in `ClientOptions::stores`, URLs `s3://BUCKET/KEY` are read like those of servers.
//!
//! # Measure levels
//!
//! With the feature `levels`, `levels::measure` compresses and decompresses content at each level on all cores, as [`archive()`] would.
//!
//! # What is stable
//!
//! What this page lists. Options and reports gain fields: options are made by `new` or `default` and setters. The crates
//! `slotpress-…` that this one is made of promise nothing of their own.

#![warn(missing_docs, clippy::missing_errors_doc)]

mod archive;
#[cfg(feature = "net")]
mod bootstrap;
#[cfg(feature = "levels")]
#[allow(clippy::missing_errors_doc)]
pub mod levels;
#[cfg(all(feature = "serve", feature = "stores"))]
pub mod publish;
mod recompress;
mod restore;

pub use archive::dry_run::ArchivePreview;
pub use archive::encode::Codec;
pub use archive::layout::RecordLayout;
pub use archive::sink::Sink;
pub use archive::{ArchiveOptions, ArchivePlan, ArchiveReport, archive, plan_archive};
#[cfg(feature = "net")]
pub use bootstrap::archives::{FetchOptions, FetchReport, fetch};
#[cfg(feature = "net")]
pub use bootstrap::{BootstrapOptions, BootstrapPlan, BootstrapReport, bootstrap, plan_bootstrap};
pub use recompress::{RecompressOptions, RecompressReport, Source as RecompressSource, recompress};
pub use restore::dry_run::{ArchiveToRestore, RestorePreview};
pub use restore::{
    ExistingState, RestoreLayout, RestoreOptions, RestorePlan, RestoreReport, RestoreTarget, plan_restore, restore,
};
#[doc(inline)]
pub use slotpress_base::{
    CancelToken, Elapsed, Error, ErrorKind, Hint, IoContext, IoHint, IoPolicy, NoProgress, Pace, Progress,
    ProgressEvent, Result, Space, Step,
};
#[doc(inline)]
pub use slotpress_format::{ArchiveName, Hash, LedgerPaths, Root};
#[cfg(feature = "net")]
#[doc(inline)]
pub use slotpress_net::{Client, ClientOptions, FindOptions, FindReport, NetError, Url, archive_at_url, find::find};
#[doc(inline)]
pub use slotpress_read::{
    Account, AccountVisitor, AccountsInput, CheckMode, CheckOptions, NamedArchive, VerifyOptions, VerifyReport,
    VisitOptions, visit_accounts,
};
#[doc(inline)]
pub use slotpress_read::{verify_archives as verify, verify_ledger};

/// Codecs, levels, and what compressing takes of memory.
pub mod codec {
    pub use slotpress_format::{FRAME_SIZE_BYTES_DEFAULT, FRAME_SIZE_BYTES_MAX, FrameSpan};

    pub use crate::archive::encode::{
        Codec, Format, FrameCompressor, ZSTD_LEVEL_DEFAULT, ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN, is_zstd_level,
    };
    pub use crate::archive::layout::clustering_bytes;
    pub use crate::archive::writer::FrameTotals;
    pub use crate::archive::{check_frame_size, worker_memory_bytes};
    pub use crate::recompress::decoding_side_bytes;
}

/// The machine: cores, memory, priority, and what its file systems can do.
pub mod machine {
    pub use slotpress_base::files::open_file;
    pub use slotpress_base::io::has_cachestat;
    pub use slotpress_base::memory::available_bytes;
    pub use slotpress_base::{
        InterruptibleWriter, KeptDir, Limit, LoadWatch, NICENESS_MAX, OtherLoad, RATE_MIN, Stopwatch, stand_back,
        tightest_limit,
    };
}

/// The files of a ledger, and what they hold.
pub mod ledger {
    pub use slotpress_format::ledger::blockhash_queue::BlockhashQueue;
    pub use slotpress_format::ledger::names::Extension;
    pub use slotpress_format::{
        Address, BLOCK_BYTES, BankFile, BankSnapshot, GRACEFUL_STOP, LatticeHash, Layout, ScheduledLeader, SlotTime,
        SlotTimeSource, Stakes, StorageFile, StorageRoot, bank_snapshot_slots, find_bank_snapshot, is_complete,
        ledger_lock_holder, parse_number,
    };
}

/// Archives as they are read: from files, servers, or a source of your own.
pub mod source {
    #[cfg(feature = "net")]
    pub use slotpress_net::UrlSource;
    #[cfg(feature = "net")]
    pub use slotpress_net::url_source::Transferred;
    pub use slotpress_read::archive::source::{SharedSource, Source};
    pub use slotpress_read::archive::walk::FrameStatistics;
    pub use slotpress_read::{Compression, IndexPolicy};
}

/// What was checked of a state, and how a result is read back.
pub mod check {
    pub use slotpress_read::verify::report::{Counts, ObsoleteTotals};
    pub use slotpress_read::{
        Assurance, CheckResult, Completeness, ReadBackReport, STATE_MEMORY_BYTES_DEFAULT, StateOutcome, spill_dir,
    };
}

/// The rules that clients enforce, and what breaks them.
pub mod rules {
    pub use slotpress_read::{
        Check, Client as SnapshotClient, ClientReading, ClientVerdict, Failure, Place, Rule, lines_of, names_of,
        readers_in_words,
    };
}

/// Directories of archives: what they hold, what a node would choose, what may go.
pub mod catalog {
    pub use slotpress_format::{LATEST, PATH};
    pub use slotpress_read::catalog::listed::parse as parse_list;
    pub use slotpress_read::catalog::partials::find as find_partials;
    pub use slotpress_read::catalog::prune::{Reason as KeepReason, plan as plan_prune, remove};
    pub use slotpress_read::catalog::scan::{look_for_slot_time, scan};
    pub use slotpress_read::catalog::{Archive, Choice};
    pub use slotpress_read::{
        ArchiveFields, Catalog, Fault, Keep, Partial, RESTORE_JOURNAL_HINT, Unusable, WorkDir, check_output_dir,
        remove_stale_dirs, restore_journal, scan_with_copies, unix_ns,
    };
}

/// What an archive or a ledger contains, without unpacking it.
pub mod inspect {
    pub use slotpress_read::inspect::EntrySummary;
    pub use slotpress_read::inspect::visit::{Visit, VisitReport};
    pub use slotpress_read::{
        AccountsOptions, AccountsSummary, ArchiveInspection, FoundAccount, LedgerInspection, OwnerTotals, Plan,
        RecordTotals, VisitError, WrittenBy, find_account, inspect_accounts, inspect_archive, inspect_ledger,
        owner_name, owner_of_name,
    };
}

/// Servers: how they are reached, what they offer, and how old it is.
#[cfg(feature = "net")]
pub mod net {
    pub use slotpress_net::find::Refused;
    pub use slotpress_net::{
        Candidate, Cluster, ClusterFacts, Fetched, GivenBytes, Limits as FetchLimits, MAX_AGE_DEFAULT, MaxAge,
        NetErrorKind, Offer, Place as OfferPlace, Remote, STREAMS_DEFAULT, STREAMS_MAX, SourceArg, is_url, parse_url,
        shown, url_of_host,
    };

    pub use crate::bootstrap::archives::FetchedArchive;
    pub use crate::bootstrap::choose::{Choice as ChosenArchive, Places as ChosenPlaces};
    pub use crate::bootstrap::trust::Vouchers;
}

/// A server of archives.
#[cfg(feature = "serve")]
pub mod serve {
    pub use slotpress_serve::{
        Allowance, Answered, CLIENT_CONNECTIONS_DEFAULT, CONNECTIONS_DEFAULT, Event, FIREDANCER_RATE_MIN, Finished,
        ServeOptions, THREADS_DEFAULT_MAX, Timeouts, TlsFiles, run,
    };
}

/// Directories and buckets that archives go to.
#[cfg(feature = "stores")]
pub mod stores {
    pub use slotpress_stores::{
        Condition, Metadata, Object, Put, S3Options, Small, Store, StoreOptions, Target, Upload, UploadState,
    };
}

/// Ledgers and archives made up, for practice, tests and measurements.
#[cfg(feature = "synth")]
pub mod synth {
    pub use slotpress_synth::{
        AgaveVersion, INCREMENTAL_BYTES_MIN, Mix, SynthOptions, SynthReport, SynthState, archive_like_firedancer,
        memory_of, synth,
    };
}
