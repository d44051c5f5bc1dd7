//! Solana snapshot archives on all cores: archive a ledger, restore a ledger that boots, verify
//! downloaded archives, recompress a validator's archives, measure compression levels, fetch and
//! serve archives.
//!
//! This is the library behind the program `slotpress`. It never prints, reads flags or exits.
//! Functions block the calling thread until they are done. Long ones report to a [`Progress`], and
//! end early with an error when [`Progress::is_interrupted`] returns true. A [`CancelToken`] is a
//! `Progress` that only interrupts; [`CancelToken::with`] combines it with another `Progress`. The
//! [`ErrorKind`] of an [`Error`] distinguishes damage from a failing disk or network. [`Error::hint`]
//! says what to do next, in the program's flags.
//!
//! # Archive a ledger
//!
//! ```no_run
//! use slotpress::{ArchiveOptions, Codec, DirSink, EncodingOptions, NoProgress, archive};
//!
//! let encoding = EncodingOptions::default().codec(Codec::zstd(3)).threads(8);
//! let options = ArchiveOptions::new("/mnt/ledger").encoding(encoding);
//! let report = archive(&options, &mut DirSink::open("/mnt/snapshots")?, &NoProgress)?;
//! println!("{} bytes in {:?}", report.archive.output_bytes, report.archive.elapsed.wall);
//! # Ok::<(), slotpress::Error>(())
//! ```
//!
//! The same ledger, settings and version give the same bytes, whatever the number of threads.
//! [`ArchiveOptions::base_slot`] makes the archive an incremental one.
//!
//! # Restore, verify, recompress
//!
//! ```no_run
//! use slotpress::{
//!     NamedArchive, NoProgress, RestoreOptions, RestoreTarget, VerifyOptions, restore,
//!     verify,
//! };
//!
//! let archive = NamedArchive::from_path("/mnt/snapshots/snapshot-350006937-….tar.zst");
//! let report = verify(Snapshot::archive(&archive), &VerifyOptions::default(), &NoProgress)?;
//! assert!(report.ok, "{:?}", report.failures);
//!
//! let options = RestoreOptions::new(archive.path, RestoreTarget::new("/mnt/new-ledger"));
//! let report = restore(&options, &NoProgress)?;
//! println!("slot {}, ready to boot from {}", report.slot, report.path.display());
//! # Ok::<(), slotpress::Error>(())
//! ```
//!
//! [`recompress()`] writes an archive again with another compression; [`inspect`] lists the
//! contents of an archive or ledger. [`preview_archive`] and, with the feature `net`, `plan_bootstrap`
//! check everything that can be checked without writing, including free space. Their plans can be
//! shown first; that of an archive can be executed later.
//!
//! # Accounts
//!
//! [`visit_accounts`] reads an archive, a pair of full and incremental archive, or a ledger. Each
//! worker has a visitor. The newest version of each account goes to one visitor. The visitors are
//! returned only if the state passed its checks:
//!
//! ```no_run
//! use slotpress::{
//!     Account, AccountVisitor, Snapshot, Error, NamedArchive, NoProgress, VerifyOptions, visit_accounts,
//! };
//!
//! #[derive(Default)]
//! struct Programs(u64);
//!
//! impl AccountVisitor for Programs {
//!     type Error = Error;
//!
//!     fn account(&mut self, account: &Account<'_>) -> Result<(), Error> {
//!         self.0 += u64::from(account.is_executable);
//!         Ok(())
//!     }
//! }
//!
//! let full = NamedArchive::from_path("/mnt/snapshots/snapshot-350006937-….tar.zst");
//! let incremental = "/mnt/snapshots/incremental-snapshot-350006937-350007037-….tar.zst";
//! let incremental = NamedArchive::from_path(incremental);
//! let state = Snapshot::pair(&full, &incremental);
//! let options = VerifyOptions::default();
//! let (visitors, report) = visit_accounts(state, &options, &NoProgress, Programs::default)?;
//! let programs: u64 = visitors.iter().map(|worker| worker.0).sum();
//! println!("{programs} programs among {} accounts", report.counts.accounts);
//! # Ok::<(), Error>(())
//! ```
//!
//! An archive on a server need not be downloaded first: `archive_at_url` (feature `net`) returns a
//! [`NamedArchive`] that [`verify`], [`inspect::inspect_archive`] and [`visit_accounts`]
//! read by HTTP range requests.
//!
//! # Fetch, bootstrap, serve
//!
//! Of these functions, `serve::run` needs the feature `serve`, the others need `net`. `find` ranks
//! the states that servers offer by their age at boot. `fetch` downloads archives, and resumes
//! interrupted downloads. `bootstrap` restores while it downloads. All three use a `Client`.
//! `serve::run` serves a directory of archives.
//!
#![cfg_attr(
    feature = "net",
    doc = r#"```no_run
use slotpress::{
    BootstrapOptions, Client, ClientOptions, FetchOptions, FindOptions, NoProgress, bootstrap,
    fetch, find, net::SourceArg,
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
//! # Tables
//!
//! With the feature `export`, the accounts of a state are written as Parquet files, which
//! get their final names only if the state passes its checks. `tables` has filters, formats, and
//! the manifest that names the state and the files.
//!
#![cfg_attr(
    feature = "export",
    doc = r#"```no_run
use slotpress::{
    Snapshot, ExportOptions, ExportTo, NamedArchive, NoProgress, export, tables::Filter,
};

let full = NamedArchive::from_path("/mnt/snapshots/snapshot-350006937-….tar.zst");
let mut filter = Filter::default();
filter.owners.insert("Stake11111111111111111111111111111111111111".parse()?);
let (state, to) = (Snapshot::archive(&full), ExportTo::Dir("/mnt/tables".into()));
let report = export(state, to, &ExportOptions::default().filter(filter), &NoProgress)?;
println!("{} rows of slot {}", report.tables[0].rows, report.facts.slot);
# Ok::<(), slotpress::Error>(())
```"#
)]
//!
//! # Directories of archives
//!
//! [`catalog`] lists a directory's archives: the ones that a node would choose, unusable ones,
//! those that can be pruned, and unfinished downloads. [`verify_catalog`] verifies all of them,
//! each incremental archive together with its full archive. The caller passes a function that opens
//! an archive in a directory, on a server or in a store. The second argument of this function is
//! [`CheckMode::State`] if the archive will be read more than once:
//!
//! ```no_run
//! use slotpress::{CancelToken, NamedArchive, VerifyOptions, catalog, verify_catalog};
//!
//! let found = catalog::scan(&["/mnt/snapshots".into()])?;
//! let open = |archive: &catalog::Archive, _mode| Ok(NamedArchive::from_path(archive.path()));
//! let stop = CancelToken::default();
//! let verdict = verify_catalog(&found, &open, &VerifyOptions::default(), &stop, &mut |one| {
//!     let verdict = if one.is_damaged() { "damaged" } else { "not damaged" };
//!     println!("{}: {verdict}", one.archive.name);
//! })?;
//! verdict.require_ok("/mnt/snapshots")?;
//! # Ok::<(), slotpress::Error>(())
//! ```
//!
//! # Stores
//!
//! With the feature `stores`, archives can be written to a directory or bucket (`stores::Store`,
//! `StoreSink`). A client with `stores::S3Options::for_client` reads URLs `s3://BUCKET/KEY` like
//! those of HTTP servers.
//!
//! # Measure levels
//!
//! With the feature `levels`, `levels::measure` compresses and decompresses content at each level
//! on all cores, with the code that [`archive()`] uses, and reports sizes and times.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `net` | `find`, `fetch`, `bootstrap`, archives at URLs |
//! | `serve` | `serve`; together with `stores`, also `publish` |
//! | `stores` | `stores`, and with it `net` |
//! | `levels` | `levels`; `codecs` adds codecs written in C |
//! | `export` | `export` and `tables`, which depend on Arrow and Parquet |
//! | `cli` | the program, with all features but `export` and `codecs` |
//!
//! The default features are `cli`, `levels`, `net`, `serve` and `stores`. A program that embeds the
//! library turns them off (`default-features = false`), and names the features that it needs. A
//! section of this page that names no feature describes functions that are always included.
//!
//! # What is stable
//!
//! The items on this page are stable. Options and reports may gain fields, so make options with
//! `new` or `default` and setters. The crates `slotpress-…` below this one are internal: their
//! interfaces may change with any version.

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

pub use archive::dry_run::{ArchivePreview, preview_archive};
pub use archive::encode::{ArchiveFormat, Codec};
pub use archive::encoding::EncodingOptions;
pub use archive::layout::RecordLayout;
pub use archive::ledger_source::ledger_as_archive;
#[cfg(feature = "stores")]
pub use archive::sink::StoreSink;
pub use archive::sink::{DirSink, Sink, StreamSink};
pub use archive::{ArchiveOptions, ArchiveReport, NewArchive, archive};
#[cfg(feature = "net")]
pub use bootstrap::archives::{FetchOptions, FetchReport, fetch};
#[cfg(feature = "net")]
pub use bootstrap::{BootstrapOptions, BootstrapPlan, BootstrapReport, bootstrap, plan_bootstrap};
#[cfg(feature = "export")]
pub use export::output::ExportTo;
#[cfg(feature = "export")]
pub use export::{ExportInput, ExportOptions, ExportReport, export};
pub use rebase::changes::ChangeCounts;
pub use rebase::{RebaseInput, RebaseOptions, RebaseReport, rebase};
pub use recompress::{RecompressOptions, RecompressReport, RecompressSource, recompress};
pub use restore::{ExistingState, RestoreOptions, RestoreReport, RestoreTarget, restore};
#[doc(inline)]
pub use slotpress_base::{
    Arriving, CancelToken, Elapsed, Error, ErrorKind, IoHint, IoPolicy, NoProgress, Progress, ProgressEvent, Result,
    Space, Stage, Step,
};
#[doc(inline)]
pub use slotpress_format::ledger::names::Extension;
#[doc(inline)]
pub use slotpress_format::{Address, ArchiveName, Hash, LedgerPaths, Root};
#[cfg(feature = "net")]
#[doc(inline)]
pub use slotpress_net::{Client, ClientOptions, FindOptions, FindReport, Url, archive_at_url, find::find};
#[doc(inline)]
pub use slotpress_read::{
    Account, AccountVisitor, CheckMode, CheckOptions, NamedArchive, Snapshot, Source, VerifyOptions, VerifyReport,
    verify, verify_catalog, visit_accounts,
};

/// Results of checking an archive, a catalog or a ledger, and which clients accept it.
pub mod check {
    #[doc(inline)]
    pub use slotpress_read::verify::report::Counts;
    #[doc(inline)]
    pub use slotpress_read::{
        ArchiveBase, ArchiveVerdict, Assurance, CatalogVerdict, Check, CheckResult, ClientVerdict, Completeness,
        Failure, FailurePlace, ReadBackReport, Rule, SnapshotClient,
    };
}

/// Tables of accounts: Parquet files, or CSV in a stream, their filters, and the contents of a manifest.
#[cfg(feature = "export")]
pub mod tables {
    pub use crate::export::filter::{Filter, Memcmp};
    pub use crate::export::parts::ExportedFile;
    pub use crate::export::table::Table;
    // The page has as many names as it may.
    #[doc(hidden)]
    pub use crate::export::RowOrder;
    pub use crate::export::{DataPart, Manifest, SourceFields, TableFields, TableFormat};
}

/// Directories of archives: what they contain, what a node would choose, what to prune, unfinished
/// downloads.
pub mod catalog {
    #[doc(inline)]
    pub use slotpress_read::catalog::keep::KeepReason;
    #[doc(inline)]
    pub use slotpress_read::catalog::partials::find_partials;
    #[doc(inline)]
    pub use slotpress_read::catalog::prune::{plan_prune, remove};
    #[doc(inline)]
    pub use slotpress_read::catalog::scan::scan;
    #[doc(inline)]
    pub use slotpress_read::catalog::{Archive, NodeChoice};
    #[doc(inline)]
    pub use slotpress_read::{Catalog, FileFault, Keep, Partial, UnusableFile};
}

/// Contents of archives and ledgers, read in place without unpacking.
pub mod inspect {
    #[doc(inline)]
    pub use slotpress_format::BankFields;
    #[doc(inline)]
    pub use slotpress_read::inspect::EntrySummary;
    #[doc(inline)]
    pub use slotpress_read::{ArchiveInspection, LedgerInspection, inspect_archive, inspect_ledger};
}

/// Servers of archives: addresses, offers and their age, download limits.
#[cfg(feature = "net")]
pub mod net {
    #[doc(inline)]
    pub use slotpress_net::find::Refused;
    #[doc(inline)]
    pub use slotpress_net::{Candidate, Cluster, FetchLimits, MaxAge, Offer, SourceArg};

    pub use crate::bootstrap::archives::FetchedArchive;
    pub use crate::bootstrap::next::GivenUp;
    pub use crate::bootstrap::trust::{NotVouching, Vouchers};
}

/// HTTP server for a directory of archives.
#[cfg(feature = "serve")]
pub mod serve {
    #[doc(inline)]
    pub use slotpress_serve::{Answered, Event, Finished, ServeOptions, TlsFiles, run};
}

/// Directories and buckets to write archives to.
#[cfg(feature = "stores")]
pub mod stores {
    #[doc(inline)]
    pub use slotpress_stores::{S3Options, Store, StoreOptions, Target};
}

/// Items that only the program `slotpress` uses. They may change with any version.
#[doc(hidden)]
pub mod program {
    pub use crate::archive::encode::{
        FrameCompressor, ZSTD_LEVEL_DEFAULT, ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN, is_zstd_level,
    };
    pub use crate::archive::encoding::{check_frame_size, worker_memory_bytes};
    pub use crate::archive::reframe::decoding_side_bytes;
    #[cfg(feature = "net")]
    pub use crate::bootstrap::{
        bases::Route,
        choose::{ChosenArchive, ChosenPlaces},
    };
    #[cfg(feature = "levels")]
    pub use crate::levels::{
        codec::list::{add_clustered, parse_codecs, parse_levels},
        codec::{CLUSTERED_CODEC, REFERENCE_CODEC},
        frames::{FrameSizeRow, measure_frames},
        in_order,
        input::{Input, InputKind, MEMORY_BYTES_MAX},
        latency::{Latency, timer_seconds},
        link::break_even::{BreakEven, SoonerAt},
        link::network::{Limit, Link, WINDOW_BYTES},
        link::recommend::LinkRecommendation,
        link::{
            LinkQuestion, LinkReport, LinkRow, PLACE_BYTES_PER_SECOND, READ_BYTES_PER_SECOND, STAGES, TransferMode,
        },
        measure::measure_levels,
        recommend::{is_plain, pareto_curve},
        reference_row,
        sizes::{SizeClassRow, SizeUnit, measure_sizes},
        statistics::Warning,
    };
    #[cfg(feature = "net")]
    pub use crate::restore::check_is_new;
}
