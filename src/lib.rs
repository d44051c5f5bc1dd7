//! Solana snapshot archives on all cores: archive a ledger, restore a node that boots, verify what was downloaded,
//! recompress what a validator wrote, measure compression levels, fetch and serve archives.
//!
//! This is the library behind the program `slotpress`. Nothing in it prints, reads flags, or exits: long work reports
//! through [`Progress`], and ends early when [`Progress::is_interrupted`] says so; [`CancelToken`] is for who only wants that. What fails is an [`Error`], whose
//! [`ErrorKind`] tells damage from a failing disk or network, and whose [`Hint`] says what to do next.
//!
//! # Archive a ledger
//!
//! ```no_run
//! use slotpress::{ArchiveOptions, Codec, NoProgress, archive};
//!
//! let options = ArchiveOptions::new("/mnt/ledger", "/mnt/snapshots").codec(Codec::zstd(3)).threads(8);
//! let report = archive(&options, &NoProgress)?;
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
//! [`recompress()`] makes another archive of an archive, [`inspect_archive`] and [`inspect_ledger`] look inside. What would be
//! done, and whether there is room for it, say [`preview_archive`], [`preview_restore`] and,
//! with the feature `net`, `preview_bootstrap`.
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
//! What is on a server is read by ranges: `archive_at_url`, of the feature `net`, gives what [`verify`], [`inspect_archive`] and
//! [`visit_accounts`] take.
//!
//! # Fetch, bootstrap, serve
//!
//! With the features `net` and `serve`, which are on unless default features are turned off: `find` ranks servers by
//! how old the state will be at boot, `fetch` downloads with resume, `bootstrap` restores while it downloads, and `serve` is
//! the server for all of these.
//!
//! # Directories of archives
//!
//! [`list_archives`] says what a directory holds, which archives a node would choose, and what is not usable; [`plan_prune`] which
//! may go, and [`remove_archive`] removes one. [`find_partials`] finds downloads that did not end.
//!
//! # Stores
//!
//! With the feature `stores`, a `Store` is a directory or a bucket that archives go to (`Sink::Store`), and with `S3Options` in
//! `ClientOptions::stores`, URLs `s3://BUCKET/KEY` are read like those of servers.
//!
//! # Measure levels
//!
//! With the feature `levels`, `measure_levels` compresses and decompresses content at each level on all cores, as [`archive()`] would.
//!
//! # What is stable
//!
//! What this page lists. Options and reports gain fields: options are made by `new` or `default` and setters. The crates
//! `slotpress-…` that this one is made of promise nothing of their own.

// Of what embedding programs see; the rest says in its first lines what can fail.
#![warn(clippy::missing_errors_doc)]

// Previews, measurements and their words are for the program: without it, they have no caller.
#[cfg_attr(not(feature = "cli"), allow(dead_code))]
mod archive;
#[cfg(feature = "net")]
#[cfg_attr(not(feature = "cli"), allow(dead_code))]
mod bootstrap;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
#[cfg(feature = "cli")]
mod doctor;
#[cfg(feature = "levels")]
#[cfg_attr(not(feature = "cli"), allow(dead_code, unused_imports))]
mod levels;
#[cfg(feature = "cli")]
mod like_firedancer;
#[cfg(all(feature = "cli", feature = "serve", feature = "stores"))]
mod publish;
mod recompress;
// Archives that arrive while they are restored come from `bootstrap`.
#[cfg_attr(not(all(feature = "cli", feature = "net")), allow(dead_code, unused_imports))]
mod restore;

#[cfg(feature = "levels")]
pub use levels::{
    LevelRow,
    simple::{MeasureOptions, measure as measure_levels},
    statistics::{Summary as LevelSummary, Warning as LevelWarning},
};
#[cfg(feature = "serve")]
#[doc(inline)]
pub use slotpress_serve::{
    Event as ServeEvent, ServeOptions, Timeouts as ServeTimeouts,
    limits::Allowance,
    run as serve,
    tls::TlsFiles,
    transfers::{Answered as ServedAnswer, Finished as ServedTransfer},
};
#[cfg(feature = "stores")]
#[doc(inline)]
pub use slotpress_stores::{
    Condition, Metadata, Object, Put, S3Options, Small, Store, StoreOptions, Target, Upload, UploadState,
};
#[doc(inline)]
pub use {
    archive::{
        ArchiveOptions, ArchiveReport, archive, archive_to,
        dry_run::{ArchivePreview, preview as preview_archive},
        encode::{Codec, Format, ZSTD_LEVEL_DEFAULT, ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN},
        layout::RecordLayout,
        sink::Sink,
        writer::FrameTotals,
        zstd_params::ZstdParams,
    },
    recompress::{RecompressOptions, RecompressReport, Source as RecompressSource, recompress, recompress_for_agave},
    restore::{
        ConvertArchive, ExistingState, RestoreLayout, RestoreOptions, RestoreReport, RestoreTarget, ToConvert,
        dry_run::{ArchiveToRestore, RestorePreview, preview as preview_restore},
        restore,
    },
    slotpress_base::{
        error::{Error, ErrorKind, Hint, Result},
        io::{IoHint, IoPolicy, pace::Pace, space::Space},
        progress::{CancelToken, NoProgress, Part, Progress, Step},
        stopwatch::Elapsed,
    },
    slotpress_encoder::Effort,
    slotpress_format::{
        archive::frame_hashes::Root,
        ledger::{
            bank_file::{BankFile, ScheduledLeader},
            blockhash_queue::BlockhashQueue,
            directory::{BankSnapshot, Layout as LedgerLayout, LedgerPaths},
            lattice::LatticeHash,
            names::{Address, ArchiveName, Extension, Hash},
            slot_time::SlotTime,
            stakes::Stakes,
            storages::{MissingFile, StorageFile, StorageRoot},
        },
    },
    slotpress_read::{
        archive::{
            IndexPolicy,
            compression::Compression,
            named::NamedArchive,
            source::{SharedSource, Source},
            walk::FrameStatistics,
        },
        catalog::{
            Archive as ListedFile, Catalog, Choice as NodeChoice,
            partials::{Partial, find as find_partials},
            prune::{Keep, Reason as KeepReason, plan as plan_prune, remove as remove_archive},
            scan::scan as list_archives,
            usable::{Fault, Unusable},
        },
        inspect::{
            AccountsInput, ArchiveInspection, ClientReading, EntrySummary, LedgerInspection, WrittenBy,
            inspect_archive, inspect_ledger,
            visit::{Account, AccountVisitor, Visit, VisitError, VisitOptions, VisitReport, visit_accounts},
        },
        read_back::{ReadBack, ReadBackReport},
        rules::{
            clients::{Client as SnapshotClient, ClientVerdict},
            findings::{Check, Failure, Place},
            rule::Rule,
        },
        state::check::{Assurance, CheckMode, CheckOptions, Completeness, StateOutcome},
        verify::{
            VerifyOptions,
            own::FullReadBack,
            report::{CheckResult, Counts, ObsoleteTotals, VerifyReport},
            verify_archives as verify, verify_ledger,
        },
    },
};
#[cfg(feature = "net")]
#[doc(inline)]
pub use {
    bootstrap::{
        BootstrapOptions, BootstrapPlan, BootstrapReport,
        archives::{FetchOptions, FetchReport, FetchedArchive},
        choose::{Choice as ChosenArchive, Places as ChosenPlaces},
        trust::Vouchers,
    },
    slotpress_net::{
        Remote, Url,
        fetch::{Fetched, GivenBytes, Limits as FetchLimits},
        find::{Candidate, Cluster, ClusterFacts, FindOptions, FindReport, MaxAge, Refused},
        options::ClientOptions,
        servers::{Offer, Place as OfferPlace, SourceArg},
        url_source::{Transferred, UrlSource},
    },
};

/// Finds out which servers have a snapshot, how fast they are, and how old the state will be at boot. What the options name
/// may be a private address; what servers lead to must be public.
///
/// # Errors
/// No RPC server that was named answers, they disagree on the genesis hash, or there is nothing to ask. That there is
/// nothing of use is no error here: see [`FindReport::require_candidate`].
#[cfg(feature = "net")]
pub fn find(client: &ClientOptions, options: &FindOptions, progress: &dyn Progress) -> Result<FindReport> {
    slotpress_net::find::find(&slotpress_net::Client::new(client)?, options, progress)
}

/// An archive on a server that sends ranges, for everything that takes a [`NamedArchive`]: only what is needed is read. Reads
/// end when the token is cancelled.
///
/// # Errors
/// The server does not answer, does not tell the file's length, or does not send ranges: then [`fetch()`] it.
#[cfg(feature = "net")]
pub fn archive_at_url(client: &ClientOptions, url: &Url, cancel: CancelToken) -> Result<NamedArchive> {
    let source = UrlSource::open(&slotpress_net::Client::new(client)?, url, cancel)?;
    let name = source.remote().archive_name();
    Ok(NamedArchive::from_source(std::sync::Arc::new(source), name))
}

/// Fetches a full archive and the newest incremental one on it; or those whose URLs the sources are. An earlier run that did
/// not end is resumed.
///
/// # Errors
/// Of [`ErrorKind::Network`] where a later run may do better: what has arrived is kept for it.
#[cfg(feature = "net")]
pub fn fetch(client: &ClientOptions, options: &FetchOptions, progress: &dyn Progress) -> Result<FetchReport> {
    bootstrap::archives::fetch_archives(&slotpress_net::Client::new(client)?, options, progress)
}

/// Looks at everything that [`bootstrap()`] looks at before it fetches, and refuses what that would refuse.
///
/// # Errors
/// As of [`bootstrap()`].
#[cfg(feature = "net")]
pub fn preview_bootstrap(
    client: &ClientOptions,
    options: &BootstrapOptions,
    progress: &dyn Progress,
) -> Result<BootstrapPlan> {
    bootstrap::plan(&slotpress_net::Client::new(client)?, options, progress)
}

/// From nothing to a ledger that boots: finds the best state, fetches its archives, restores them while they arrive.
///
/// # Errors
/// Of [`ErrorKind::Network`] where a later run may do better: what has arrived is kept for it. Of [`ErrorKind::Damaged`]
/// where the state is not what it should be: nothing of it is left in place.
#[cfg(feature = "net")]
pub fn bootstrap(
    client: &ClientOptions,
    options: &BootstrapOptions,
    progress: &dyn Progress,
) -> Result<BootstrapReport> {
    bootstrap::bootstrap(&slotpress_net::Client::new(client)?, options, progress)
}
