//! Solana snapshot archives on all cores: archive a ledger, restore a ledger that boots, verify
//! downloaded archives, recompress a validator's archives, measure compression levels, fetch and
//! serve archives.
//!
//! This is the library behind the program `slotpress`. Each job has a module:
//!
//! | module | what it does | feature |
//! |---|---|---|
//! | [`archive`] | archives a ledger | |
//! | [`restore`] | restores a ledger from archives | |
//! | [`verify`] | checks archives, ledgers and directories of archives | |
//! | [`recompress`] | rewrites an archive with a different compression | |
//! | [`rebase`] | rewrites an incremental archive for a different full archive | |
//! | [`inspect`] | lists the contents of archives and ledgers | |
//! | [`accounts`] | visits the newest version of each account | |
//! | [`catalog`] | lists and prunes directories of archives | |
//! | `net` | finds and downloads archives, reads archives at URLs | `net` |
//! | `bootstrap` | restores a ledger while its archives arrive | `net` |
//! | `serve` | serves directories of archives over HTTP | `serve` |
//! | `stores` | directories and buckets to write archives to | `stores` |
//! | `publish` | publishes a validator's archives as they appear | `serve` and `stores` |
//! | `levels` | measures levels and codecs | `levels` |
//! | `export` | exports accounts as Parquet or CSV | `export` |
//!
//! A path converts into the type of a job's input:
//!
//! | input | what it is | jobs |
//! |---|---|---|
//! | [`ArchiveInput`] | an archive in a file or on a server, may be read twice | `inspect`, base of `rebase` |
//! | [`LocalArchive`] | an archive in a file or a stream, read once | `restore`, `recompress` |
//! | [`Snapshot`] | an archive, a pair of archives, or a ledger | `verify`, `rebase`, `accounts`, `export` |
//! | [`LedgerPaths`] | a ledger; for `levels`, also an archive | `archive`, `inspect`, `levels` |
//!
//! If a job writes an archive or tables, its options contain the input, and its second argument is the
//! output. Callbacks are last arguments.
//!
//! Functions never print, parse flags or exit. They block the calling thread until they are done.
//! Long ones report to a [`Progress`], and end early when [`Progress::is_interrupted`] returns true:
//! `serve` and a running `publish` then return normally, all others return an error. A [`CancelToken`] is
//! a `Progress` that only interrupts; [`CancelToken::with`] combines it with another `Progress`.
//!
//! The [`ErrorKind`] of an [`Error`] distinguishes damage from a failing disk or network.
//! [`Error::hint`] says what to do next, and may name flags of the program. Functions that read a
//! damaged archive fail with [`ErrorKind::Damaged`], except `verify`, whose report lists the damage:
//! [`VerifyReport::require_ok`](verify::VerifyReport::require_ok) turns it into that error.
//!
//! ```no_run
//! use slotpress::NoProgress;
//! use slotpress::archive::{ArchiveOptions, Codec, DirSink, EncodingOptions, archive};
//!
//! let encoding = EncodingOptions::default().codec(Codec::zstd(3)).threads(8);
//! let options = ArchiveOptions::new("/mnt/ledger").encoding(encoding);
//! let report = archive(&options, &mut DirSink::open("/mnt/snapshots")?, &NoProgress)?;
//! println!("{} bytes in {:?}", report.archive.output_bytes, report.archive.elapsed.wall);
//! # Ok::<(), slotpress::Error>(())
//! ```
//!
//! # Features
//!
//! The default features are `cli`, `levels`, `net`, `serve` and `stores`; `cli` is the program. A
//! program that embeds the library turns them off (`default-features = false`), and names the
//! features that it needs.
//!
//! # What is stable
//!
//! The items on this page and in its modules are stable. Options and reports may gain fields, so make
//! options with `new` or `default` and setters; the setter of an `Option` takes the value in it. The
//! crates `slotpress-…` below this one are internal: their interfaces may change with any version.

#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod archive;
#[cfg(feature = "net")]
pub mod bootstrap;
#[cfg(feature = "export")]
pub mod export;
#[cfg(feature = "levels")]
pub mod levels;
#[cfg(all(feature = "serve", feature = "stores"))]
pub mod publish;
pub mod rebase;
pub mod recompress;
pub mod restore;

#[doc(inline)]
pub use slotpress_base::{CancelToken, Error, ErrorKind, NoProgress, Progress, ProgressEvent, Result};
#[doc(inline)]
pub use slotpress_format::LedgerPaths;
#[doc(inline)]
pub use slotpress_read::{ArchiveInput, LocalArchive, Snapshot};

/// Details of progress events.
pub mod progress {
    #[doc(inline)]
    pub use slotpress_base::{Arriving, Stage, Step};
}

/// Values in the options and reports of several modules: addresses, hashes, names, times, space. The root of
/// this page has only what nearly every program uses.
pub mod types {
    #[doc(inline)]
    pub use slotpress_base::{Elapsed, IoHint, IoPolicy, Space};
    #[doc(inline)]
    pub use slotpress_format::ledger::names::ArchiveCompression;
    #[doc(inline)]
    pub use slotpress_format::{Address, ArchiveName, ArchiveRoot, Hash};
    #[doc(inline)]
    pub use slotpress_read::{Source, TransferTotals};
}

/// Checks of archives, ledgers and whole directories of archives, and which clients accept them.
///
/// ```no_run
/// use slotpress::verify::{VerifyOptions, verify};
/// use slotpress::{NoProgress, Snapshot};
///
/// let snapshot = Snapshot::archive("/mnt/snapshots/snapshot-350006937-….tar.zst");
/// let report = verify(&snapshot, &VerifyOptions::default(), &NoProgress)?;
/// for failure in &report.failures {
///     println!("{}: {failure}", failure.check);
/// }
/// assert!(report.ok);
/// # Ok::<(), slotpress::Error>(())
/// ```
///
/// [`verify_catalog`](verify::verify_catalog) verifies all archives of a directory, each
/// incremental archive together with its full one. The caller passes a function that opens an
/// archive for a check mode. With [`CheckMode::State`](verify::CheckMode::State), parts of the archive are read
/// again, so a stream does not suffice. A path always does:
///
/// ```no_run
/// use slotpress::{CancelToken, ArchiveInput, catalog};
/// use slotpress::verify::{VerifyOptions, verify_catalog};
///
/// let found = catalog::scan(&["/mnt/snapshots"])?;
/// let open = |archive: &catalog::ListedArchive, _mode| Ok(ArchiveInput::from_path(archive.path()));
/// let stop = CancelToken::default();
/// let verdict = verify_catalog(&found, &VerifyOptions::default(), &stop, open, |checked| {
///     let verdict = if checked.is_damaged() { "damaged" } else { "not damaged" };
///     println!("{}: {verdict}", checked.archive.name);
/// })?;
/// verdict.require_ok("/mnt/snapshots")?;
/// # Ok::<(), slotpress::Error>(())
/// ```
pub mod verify {
    #[doc(inline)]
    pub use slotpress_read::verify::report::Counts;
    #[doc(inline)]
    pub use slotpress_read::verify::verify;
    #[doc(inline)]
    pub use slotpress_read::{
        ArchiveBase, ArchiveVerdict, Assurance, CatalogVerdict, Check, CheckMode, CheckOptions, CheckResult,
        ClientVerdict, Completeness, Failure, FailurePlace, ReadBackReport, Rule, SnapshotClient, StateCheck,
        VerifyOptions, VerifyReport, verify_catalog,
    };
}

/// The newest version of each account of a snapshot.
///
/// Each worker has a visitor, and each account goes to one of them. The visitors are returned only
/// if the state passed the checks that the options ask for:
///
/// ```no_run
/// use slotpress::{Error, NoProgress, Snapshot};
/// use slotpress::accounts::{Account, AccountVisitor, visit_accounts};
/// use slotpress::verify::VerifyOptions;
///
/// #[derive(Default)]
/// struct Programs(u64);
///
/// impl AccountVisitor for Programs {
///     type Error = Error;
///
///     fn account(&mut self, account: &Account<'_>) -> Result<(), Error> {
///         self.0 += u64::from(account.is_executable);
///         Ok(())
///     }
/// }
///
/// let full = "/mnt/snapshots/snapshot-350006937-….tar.zst";
/// let incremental = "/mnt/snapshots/incremental-snapshot-350006937-350007037-….tar.zst";
/// let snapshot = Snapshot::pair(full, incremental);
/// let options = VerifyOptions::default();
/// let (visitors, report) = visit_accounts(&snapshot, &options, &NoProgress, Programs::default)?;
/// let programs: u64 = visitors.iter().map(|worker| worker.0).sum();
/// println!("{programs} programs among {} accounts", report.counts.accounts);
/// # Ok::<(), Error>(())
/// ```
pub mod accounts {
    #[doc(inline)]
    pub use slotpress_read::{Account, AccountVisitor, visit_accounts};
}

/// Directories of archives: what they contain, what a node would choose, what to prune, unfinished
/// downloads.
///
/// ```no_run
/// use std::time::SystemTime;
///
/// use slotpress::catalog::{self, Keep, plan_prune, read_bank_times, remove_archive};
///
/// let mut found = catalog::scan(&["/mnt/snapshots"])?;
/// read_bank_times(&mut found);
/// let keep = Keep::default().full(2).incremental(4).daily(7).epoch_ends(2);
/// for decision in plan_prune(&found, &keep, SystemTime::now()) {
///     if decision.keep_reason.is_none() {
///         remove_archive(decision.archive)?;
///     }
/// }
/// # Ok::<(), slotpress::Error>(())
/// ```
pub mod catalog {
    #[doc(inline)]
    pub use slotpress_read::catalog::keep::KeepReason;
    #[doc(inline)]
    pub use slotpress_read::catalog::partials::find_partials;
    #[doc(inline)]
    pub use slotpress_read::catalog::prune::{PruneDecision, plan_prune, remove_archive};
    #[doc(inline)]
    pub use slotpress_read::catalog::scan::{read_bank_times, scan};
    #[doc(inline)]
    pub use slotpress_read::catalog::{ListedArchive, NodeChoice};
    #[doc(inline)]
    pub use slotpress_read::{Catalog, FileFault, Keep, Partial, UnusableFile};
}

/// Contents of archives and ledgers, read in place without unpacking.
pub mod inspect {
    #[doc(inline)]
    pub use slotpress_format::{BankFields, HardFork};
    #[doc(inline)]
    pub use slotpress_read::inspect::EntrySummary;
    #[doc(inline)]
    pub use slotpress_read::{ArchiveInspection, InspectOptions, LedgerInspection, inspect_archive, inspect_ledger};
}

/// Finds archives on servers, and downloads them.
///
/// `find` ranks the states that servers offer by their age at boot. `fetch` downloads archives, and
/// resumes interrupted downloads. `open_archive_at_url` returns an [`ArchiveInput`] that is read by range
/// requests, without a download. To read buckets, pass client options through
/// `stores::S3Options::for_client`.
///
/// ```no_run
/// use slotpress::NoProgress;
/// use slotpress::net::{Client, ClientOptions, FetchOptions, FindOptions, SourceLocation, fetch, find};
///
/// let client = Client::new(&ClientOptions::default())?;
/// let sources = ["https://mirror.example".parse::<SourceLocation>()?, "/mnt/snapshots".parse()?];
/// let found = find(&client, &FindOptions::new(sources.clone()), &NoProgress)?;
/// println!("the best state is at slot {}", found.require_candidate()?.slot());
/// let fetched = fetch(&client, &FetchOptions::new(sources.clone(), "/mnt/new-snapshots"), &NoProgress)?;
/// for archive in &fetched.archives {
///     println!("{} at {:?}", archive.name, archive.path);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "net")]
pub mod net {
    #[doc(inline)]
    pub use slotpress_net::find::{RefusedSource, find};
    #[doc(inline)]
    pub use slotpress_net::{
        Candidate, Client, ClientOptions, Cluster, FetchLimits, FindOptions, FindReport, MaxAge, Offer, SourceLocation,
        Url, open_archive_at_url,
    };

    pub use crate::bootstrap::fetch::{FetchOptions, FetchReport, FetchedArchive, fetch};
}

/// HTTP server for directories of archives.
///
/// Serves until the token is cancelled, for example by a signal handler that sets `stop`:
///
/// ```no_run
/// use std::sync::Arc;
/// use std::sync::atomic::AtomicBool;
///
/// use slotpress::CancelToken;
/// use slotpress::serve::{ServeOptions, serve};
///
/// let stop = Arc::new(AtomicBool::new(false));
/// let options = ServeOptions::new(["/mnt/snapshots"], "0.0.0.0:8080".parse()?);
/// serve(&options, &CancelToken::from(stop.clone()), |event| println!("{event:?}"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "serve")]
pub mod serve {
    #[doc(inline)]
    pub use slotpress_serve::{AnsweredRequest, ServeEvent, ServeOptions, TlsFiles, TransferReport, serve};
}

/// Directories and buckets to write archives to.
///
/// ```no_run
/// use slotpress::NoProgress;
/// use slotpress::archive::{ArchiveOptions, StoreSink, archive};
/// use slotpress::net::{Client, ClientOptions};
/// use slotpress::stores::{Store, StoreOptions, Target};
///
/// let target: Target = "s3://bucket/snapshots".parse()?;
/// let client = Client::new(&ClientOptions::default())?;
/// let store = Store::open(&target, &StoreOptions::default(), &client)?;
/// let mut sink = StoreSink::new(&store);
/// archive(&ArchiveOptions::new("/mnt/ledger"), &mut sink, &NoProgress)?;
/// # Ok::<(), slotpress::Error>(())
/// ```
#[cfg(feature = "stores")]
pub mod stores {
    #[doc(inline)]
    pub use slotpress_stores::{S3Options, Store, StoreOptions, Target};
}

/// Items that only the program `slotpress` uses. They may change with any version.
#[doc(hidden)]
pub mod program {
    pub use crate::archive::encode::{FrameCompressor, is_zstd_level};
    pub use crate::archive::encoding::{check_frame_size, worker_memory_bytes};
    pub use crate::archive::reframe::decoding_side_bytes;
    #[cfg(feature = "net")]
    pub use crate::bootstrap::bases::Route;
    #[cfg(feature = "levels")]
    pub use crate::levels::{
        codec::list::{add_clustered, parse_codecs, parse_levels},
        codec::{CLUSTERED_CODEC, REFERENCE_CODEC},
        input::{Input, InputKind, SAMPLE_BYTES_DEFAULT},
        link::break_even::{BandwidthRange, BreakEven},
        link::network::{Link, WINDOW_BYTES},
        link::{LinkOptions, LinkReport, LinkRow, PLACE_BYTES_PER_SECOND, READ_BYTES_PER_SECOND, TransferMode},
        measure::measure_levels,
        pieces::{PieceRow, SizeUnit, measure_frames, measure_sizes},
        recommend::{is_uncompressed, pareto_curve},
        reference_row, sort_rows,
        statistics::{Latency, Warning, measure_timer_seconds},
    };
    #[cfg(feature = "net")]
    pub use crate::restore::target::check_is_new;
}
