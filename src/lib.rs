//! Solana snapshot archives on all cores: archive a ledger, restore a node that boots, verify downloaded archives,
//! recompress a validator's archives, measure compression levels, fetch and serve archives.
//!
//! This is the library behind the program `slotpress`. It never prints, reads flags or exits. Long work reports through
//! [`Progress`], and ends early with an error when [`Progress::is_interrupted`] returns true; a [`CancelToken`] is a
//! `Progress` for that alone, or beside a display ([`CancelToken::with`]). Functions block the calling thread until they
//! are done. The [`ErrorKind`] of an [`Error`] tells damage from a failing disk or network; its [`Hint`] says what to do
//! next.
//!
//! # Archive a ledger
//!
//! ```no_run
//! use slotpress::{ArchiveOptions, Codec, EncodingOptions, NoProgress, Sink, archive};
//!
//! let encoding = EncodingOptions::default().codec(Codec::zstd(3)).threads(8);
//! let options = ArchiveOptions::new("/mnt/ledger").encoding(encoding);
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
//! [`recompress()`] writes an archive again with other compression, [`inspect`] lists the content of an archive or ledger.
//! [`plan_archive`], [`plan_restore`] and, with the feature `net`, `plan_bootstrap` check everything that can be checked
//! without writing, also free space. The plan they return can be shown first and executed later.
//!
//! # Accounts
//!
//! [`visit_accounts`] reads an archive, a pair of full and incremental archive, or a ledger. It passes the newest version
//! of every account to one visitor per worker. It returns the visitors only if the state passed its checks:
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
//! An archive on a server need not be downloaded first: `archive_at_url` (feature `net`) returns a [`NamedArchive`] that
//! [`verify`], [`inspect::inspect_archive`] and [`visit_accounts`] read by HTTP range requests.
//!
//! # Fetch, bootstrap, serve
//!
//! With the default features `net` and `serve`: `find` ranks servers by the age that the state will have at boot, `fetch`
//! downloads archives and resumes interrupted downloads, `bootstrap` restores while it downloads. All use a `Client`.
//! `serve::run` serves a directory of archives to them.
//!
#![cfg_attr(
    feature = "net",
    doc = r#"```no_run
use slotpress::{
    BootstrapOptions, Client, ClientOptions, FetchOptions, FindOptions, NoProgress, bootstrap, fetch, find, net::SourceArg,
};

let client = Client::new(&ClientOptions::default())?;
let sources = ["https://mirror.example".parse::<SourceArg>()?, "/mnt/snapshots".parse()?];
let found = find(&client, &FindOptions::new(sources.clone()), &NoProgress)?;
println!("the best state is of slot {}", found.require_candidate()?.slot());
let fetched = fetch(&client, &FetchOptions::new(sources.clone(), "/mnt/new-snapshots"), &NoProgress)?;
for archive in &fetched.archives {
    println!("{} at {:?}", archive.name, archive.path);
}
let booted = bootstrap(&client, &BootstrapOptions::new(sources, "/mnt/ledger"), &NoProgress)?;
println!("a ledger of slot {}", booted.restore.slot);
# Ok::<(), Box<dyn std::error::Error>>(())
```"#
)]
//!
//! # Directories of archives
//!
//! [`catalog`] lists a directory's archives: the ones that a node would choose, unusable ones, those that can be pruned,
//! and unfinished downloads. [`verify_catalog`] verifies all of them, incremental ones on their full archive:
//!
//! ```no_run
//! use slotpress::{CancelToken, NamedArchive, VerifyOptions, catalog, verify_catalog};
//!
//! let found = catalog::scan_with_copies(&["/mnt/snapshots".into()])?;
//! let (open, stop) = (|archive: &catalog::Archive, _| Ok(NamedArchive::from_path(archive.path())), CancelToken::default());
//! let verdict = verify_catalog(&found, &open, &VerifyOptions::default(), &stop, &mut |one| {
//!     println!("{}: {}", one.archive.name, if one.is_damaged() { "damaged" } else { "not damaged" });
//! })?;
//! verdict.require_ok("/mnt/snapshots")?;
//! # Ok::<(), slotpress::Error>(())
//! ```
//!
//! # Stores
//!
//! With the feature `stores`, archives can be written to a directory or bucket (`stores::Store`, `Sink::store`). With
//! `stores::S3Options` in `ClientOptions::stores`, URLs `s3://BUCKET/KEY` are read like those of HTTP servers.
//!
//! # Measure levels
//!
//! With the feature `levels`, `levels::measure` compresses and decompresses content at each level on all cores, with
//! the code of [`archive()`], and reports sizes and times.
//!
//! # What is stable
//!
//! The items on this page. Options and reports may gain fields: make options by `new` or `default` and setters. The crates
//! `slotpress-…` below this one are internal; their interfaces may change with any version.

#![warn(missing_docs, clippy::missing_errors_doc)]

mod archive;
#[cfg(feature = "net")]
mod bootstrap;
#[cfg(feature = "export")]
mod export;
#[cfg(feature = "levels")]
#[allow(clippy::missing_errors_doc)]
pub mod levels;
#[cfg(all(feature = "serve", feature = "stores"))]
pub mod publish;
mod rebase;
mod recompress;
mod restore;

pub use archive::dry_run::ArchivePreview;
pub use archive::encode::Codec;
pub use archive::encoding::EncodingOptions;
pub use archive::layout::RecordLayout;
pub use archive::ledger_source::ledger_as_archive;
pub use archive::sink::Sink;
pub use archive::{ArchiveOptions, ArchivePlan, ArchiveReport, archive, plan_archive};
#[cfg(feature = "net")]
pub use bootstrap::archives::{FetchOptions, FetchReport, fetch};
#[cfg(feature = "net")]
pub use bootstrap::{BootstrapOptions, BootstrapPlan, BootstrapReport, bootstrap, plan_bootstrap};
#[cfg(feature = "export")]
pub use export::place::ExportTo;
#[cfg(feature = "export")]
pub use export::{ExportOptions, ExportReport, export};
pub use rebase::changes::ChangeCounts;
pub use rebase::{RebaseInput, RebaseOptions, RebaseReport, rebase};
pub use recompress::{RecompressOptions, RecompressReport, Source as RecompressSource, recompress};
pub use restore::dry_run::{ArchiveToRestore, RestorePreview};
pub use restore::{
    ExistingState, RestoreLayout, RestoreOptions, RestorePlan, RestoreReport, RestoreTarget, plan_restore, restore,
};
#[doc(inline)]
pub use slotpress_base::{
    Arriving, CancelToken, Elapsed, Error, ErrorKind, Hint, IoContext, IoHint, IoPolicy, NoProgress, Pace, Progress,
    ProgressEvent, Result, Space, Step, ToConvert,
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
pub use slotpress_read::{verify_archives as verify, verify_catalog, verify_ledger};

/// Compression formats, levels and frame sizes, and the memory that compression needs.
pub mod codec {
    pub use slotpress_format::{FRAME_SIZE_BYTES_DEFAULT, FRAME_SIZE_BYTES_MAX, FrameSpan};

    pub use crate::archive::encode::{
        Codec, Format, FrameCompressor, ZSTD_LEVEL_DEFAULT, ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN, is_zstd_level,
    };
    pub use crate::archive::encoding::{check_frame_size, worker_memory_bytes};
    pub use crate::archive::layout::clustering_bytes;
    pub use crate::archive::reframe::decoding_side_bytes;
    pub use crate::archive::writer::FrameTotals;
}

/// Parts of [`export()`]: tables, filters, what a manifest says.
#[cfg(feature = "export")]
pub mod tables {
    pub use crate::export::filter::{AnyOf, Filter, Memcmp};
    pub use crate::export::parts::ExportedFile;
    pub use crate::export::table::Table;
    pub use crate::export::{AddressForm, DataPart, Format, Manifest, SourceFields, TableFields};
}

/// The machine: cores, memory, priority, and what its file systems can do.
pub mod machine {
    pub use slotpress_base::clock;
    pub use slotpress_base::files::open_file;
    pub use slotpress_base::io::has_cachestat;
    pub use slotpress_base::memory::available_bytes;
    pub use slotpress_base::{
        InterruptibleWriter, KeptDir, Limit, LoadWatch, NICENESS_MAX, OtherLoad, RATE_MIN, Stopwatch, stand_back,
        tightest_limit,
    };
}

/// The files of a ledger: bank snapshots, bank files, storages, locks.
pub mod ledger {
    pub use slotpress_format::ledger::blockhash_queue::BlockhashQueue;
    pub use slotpress_format::ledger::names::Extension;
    pub use slotpress_format::{
        Address, BLOCK_BYTES, BankFile, BankSnapshot, GRACEFUL_STOP, LatticeHash, Layout, ScheduledLeader, SlotTime,
        SlotTimeSource, Stakes, StorageFile, StorageRoot, bank_snapshot_slots, find_bank_snapshot, is_complete,
        ledger_lock_holder, parse_number,
    };
}

/// Sources of archive bytes: files, servers, or an implementation of [`source::Source`].
pub mod source {
    #[cfg(feature = "net")]
    pub use slotpress_net::url_source::Transferred;
    #[cfg(feature = "net")]
    pub use slotpress_net::{StreamSource, UrlSource};
    pub use slotpress_read::archive::source::{SharedSource, Source};
    pub use slotpress_read::archive::walk::FrameStatistics;
    pub use slotpress_read::{Compression, IndexPolicy};
}

/// Results of checking a state, and of reading an output back.
pub mod check {
    pub use slotpress_read::verify::report::{Counts, ObsoleteTotals};
    pub use slotpress_read::{
        Assurance, CheckResult, Completeness, ReadBackReport, STATE_MEMORY_BYTES_DEFAULT, StateOutcome, spill_dir,
    };
}

/// Rules that Agave and Firedancer enforce when they load an archive, and violations that were found.
pub mod rules {
    pub use slotpress_read::{
        Check, Client as SnapshotClient, ClientReading, ClientVerdict, Failure, Place, Rule, lines_of, names_of,
        readers_in_words,
    };
}

/// Directories of archives: content, a node's choice, pruning, unfinished downloads.
pub mod catalog {
    pub use slotpress_format::{LATEST, PATH};
    pub use slotpress_read::catalog::listed::parse as parse_list;
    pub use slotpress_read::catalog::partials::find as find_partials;
    pub use slotpress_read::catalog::prune::{Reason as KeepReason, plan as plan_prune, remove};
    pub use slotpress_read::catalog::scan::{look_for_times, scan};
    pub use slotpress_read::catalog::usable::judge;
    pub use slotpress_read::catalog::{Archive, Choice};
    pub use slotpress_read::{
        ArchiveBase, ArchiveFields, ArchiveVerdict, Catalog, CatalogVerdict, Fault, Keep, Partial,
        RESTORE_JOURNAL_HINT, Unusable, WorkDir, check_output_dir, remove_stale_dirs, restore_journal,
        scan_with_copies, unix_ns,
    };
}

/// Contents of archives and ledgers, read in place without unpacking.
pub mod inspect {
    pub use slotpress_read::inspect::EntrySummary;
    pub use slotpress_read::inspect::visit::{Visit, VisitReport};
    pub use slotpress_read::{
        AccountsOptions, AccountsSummary, ArchiveInspection, FoundAccount, LedgerInspection, OwnerTotals, Plan,
        RecordTotals, VisitError, WrittenBy, find_account, inspect_accounts, inspect_archive, inspect_ledger,
        owner_name, owner_of_name,
    };
}

/// Servers of archives: addresses, offers and their age, download limits.
#[cfg(feature = "net")]
pub mod net {
    pub use slotpress_net::find::{OnOlder, Refused, date_by_banks};
    pub use slotpress_net::{
        Candidate, Cluster, ClusterFacts, Fetched, GivenBytes, Limits as FetchLimits, MAX_AGE_DEFAULT, MaxAge,
        NetErrorKind, Offer, Place as OfferPlace, Remote, STREAMS_DEFAULT, STREAMS_MAX, SourceArg, is_url, parse_url,
        shown, url_of_host,
    };

    pub use crate::bootstrap::archives::FetchedArchive;
    pub use crate::bootstrap::bases::Way;
    pub use crate::bootstrap::choose::{Choice as ChosenArchive, Places as ChosenPlaces};
    pub use crate::bootstrap::next::GivenUp;
    pub use crate::bootstrap::trust::{Confirmed, NotVouching, Vouchers};
}

/// HTTP server for a directory of archives.
#[cfg(feature = "serve")]
pub mod serve {
    pub use slotpress_serve::{
        Allowance, Answered, CLIENT_CONNECTIONS_DEFAULT, CONNECTIONS_DEFAULT, Event, FIREDANCER_RATE_MIN, Finished,
        ServeOptions, THREADS_DEFAULT_MAX, Timeouts, TlsFiles, run,
    };
}

/// Directories and buckets to write archives to.
#[cfg(feature = "stores")]
pub mod stores {
    pub use slotpress_stores::{
        Condition, Metadata, Object, Put, S3Options, Small, Store, StoreOptions, Target, Upload, UploadState,
    };
}

/// Synthetic ledgers and archives for practice, tests and measurements.
#[cfg(feature = "synth")]
pub mod synth {
    pub use slotpress_synth::{
        AgaveVersion, INCREMENTAL_BYTES_MIN, Mix, SynthOptions, SynthReport, SynthState, archive_like_firedancer,
        memory_of, synth,
    };
}
