//! Runs `slotpress publish`, and prints its events as log lines or JSON.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use slotpress::Result;
use slotpress::catalog::Keep;
use slotpress::program::decoding_side_bytes;
use slotpress::publish::{PublishEvent, PublishOptions, Writer, publish};
use slotpress::stores::Target;
use slotpress::verify::CheckOptions;
use slotpress_format::FRAME_SIZE_BYTES_DEFAULT;
use slotpress_read::STATE_MEMORY_BYTES_DEFAULT;

use super::arguments::{IoPolicyArgs, ResourceArgs, RetentionArgs};
use super::codec::{ZstdArgs, set_workers};
use super::json::merge;
use super::network::ConnectionArgs;
use super::ui::{LogLevel, Ui};
use super::values::Choice;
use super::{hints, memory, values};

/// Publish what a running validator writes: watch, pin, check, recompress, publish, prune
///
/// A new archive is pinned, so that it stays when the validator deletes it, then checked and recompressed. It
/// appears on each target under its final name, then in the list of archives and in latest.json. An archive that
/// fails its checks is never published. After a kill, the next run continues.
#[derive(Debug, Args)]
pub struct PublishArgs {
    /// The directory to which the validator writes its archives
    #[arg(value_name = "SNAPSHOTS_DIR")]
    dir: PathBuf,
    /// The directory to which the validator writes incremental archives, if it is not SNAPSHOTS_DIR
    #[arg(long, value_name = "DIR", env = "SLOTPRESS_INCREMENTAL_SNAPSHOTS")]
    incremental_snapshot_archive_path: Option<PathBuf>,
    /// Target: a directory that exists, or s3://BUCKET/PREFIX; may be given more than once
    #[arg(long, env, value_name = "TARGET", required = true, value_delimiter = ',')]
    to: Vec<String>,
    /// Publish the archives that exist now, then exit (for a timer)
    #[arg(long)]
    once: bool,
    /// Interval for publishing the newest incremental archive; every full archive is published
    #[arg(long, env, value_name = "TIME", default_value = "5min", value_parser = values::parse_duration)]
    every: Duration,
    /// Check archives, but publish them as they are
    #[arg(long, conflicts_with = "zstd_level")]
    as_is: bool,
    #[command(flatten)]
    encoding: ZstdArgs,
    #[command(flatten)]
    resources: ResourceArgs,
    /// Directory for the pins, archives in preparation, the newest three damaged archives and the journal. It
    /// must be on the file system of SNAPSHOTS_DIR, but not in SNAPSHOTS_DIR [default: SNAPSHOTS_DIR.publish]
    #[arg(long, env, value_name = "DIR", help_heading = "Pins")]
    pins: Option<PathBuf>,
    /// Maximum total size of the pins
    #[arg(long, env, value_name = "SIZE", value_parser = values::parse_size, help_heading = "Pins")]
    pin_bytes: Option<u64>,
    /// The client that writes all of the archives. Only Agave allows hard links as pins. Without this flag, pins
    /// are reflinks, which are safe with every client
    #[arg(long, value_parser = values::choice_parser(WRITERS), help_heading = "Pins")]
    writer: Option<Writer>,
    /// Number of newest full archives to keep on each target
    #[arg(long, value_name = "N", default_value_t = Keep::default().full as u64, help_heading = "Retention",
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    keep_full: u64,
    /// Number of newest incremental archives to keep on each target
    #[arg(long, value_name = "N", default_value_t = Keep::default().incremental as u64, help_heading = "Retention",
          value_parser = clap::value_parser!(u64).range(0..=10_000))]
    keep_incremental: u64,
    /// When there is nothing else to do, also rebase the newest full archive onto this many older full archives
    /// (see `slotpress rebase`). At least one target must be a directory: each rebase reads both archives twice from it
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, help_heading = "Targets",
          value_parser = clap::value_parser!(u64).range(0..=16))]
    rebase_onto: u64,
    /// Do not delete what was published within this time: it may still be downloaded
    #[arg(long, value_name = "TIME", default_value = "2h", value_parser = values::parse_duration, help_heading = "Retention",
          env = "SLOTPRESS_PUBLISH_GRACE")]
    grace: Duration,
    #[command(flatten, next_help_heading = "Retention by time")]
    retention: RetentionArgs,
    /// Program to run after each publication; variables in its environment (PUBLISH_…) say what happened. It is
    /// killed after a minute
    #[arg(long, env, value_name = "CMD", help_heading = "Hooks")]
    on_published: Option<PathBuf>,
    /// Program to run after each failure, in the same way
    #[arg(long, env, value_name = "CMD", help_heading = "Hooks")]
    on_failed: Option<PathBuf>,
    /// Address for Prometheus metrics (/metrics) and a health check (/healthz)
    #[arg(long, value_name = "ADDR", value_parser = values::parse_address, help_heading = "Monitoring",
          env = "SLOTPRESS_PUBLISH_METRICS")]
    metrics: Option<SocketAddr>,
    /// /healthz answers 503 if the newest archive of a target was published longer ago than this
    #[arg(long, env, value_name = "TIME", value_parser = values::parse_duration, help_heading = "Monitoring")]
    alert_after: Option<Duration>,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    io_policy: IoPolicyArgs,
}

const WRITERS: &[Choice<Writer>] = &[
    Choice("agave", Writer::Agave, "Hard links, or else reflinks"),
    Choice("firedancer", Writer::Firedancer, "Reflinks"),
];

pub fn run(args: &PublishArgs, ui: &Ui) -> Result<()> {
    let options = make_options(args, ui)?;
    let mut has_work = false;
    let on_event = |event: &PublishEvent| {
        has_work |= !matches!(event, PublishEvent::Watching { .. } | PublishEvent::Pruned { .. });
        print_event(event, ui);
    };
    publish(&options, ui, on_event)?;
    if args.once && !has_work {
        ui.say("nothing to publish: no archive is newer than those that the targets have");
    }
    Ok(())
}

fn make_options(args: &PublishArgs, ui: &Ui) -> Result<PublishOptions> {
    let targets = args.to.iter().map(|target| target.parse());
    let targets = targets.collect::<Result<Vec<Target>>>()?;
    let memory_bytes = memory::requested_memory_or(args.resources.memory, STATE_MEMORY_BYTES_DEFAULT);
    let other_bytes = decoding_side_bytes(FRAME_SIZE_BYTES_DEFAULT).saturating_add(memory_bytes);
    let mut options = PublishOptions::new(&args.dir, targets);
    options.client = args.connection.options();
    options.stores.s3 = args.connection.stores.s3();
    options.stores.wait_for_first = !args.once;
    if let Some(memory_bytes) = args.resources.memory {
        options.stores.memory_bytes = options.stores.memory_bytes.min(memory_bytes);
    }
    let mut encoding = args.encoding.options();
    encoding.memory_bytes = args.resources.memory;
    let encoding = set_workers(encoding, other_bytes, &args.resources.workers, ui)?;
    options.encoding = encoding.io_policy(args.io_policy.apply(ui));
    options.check = CheckOptions::default().memory_bytes(memory_bytes);
    if let Some(pins) = &args.pins {
        options.pins = pins.clone();
    }
    options.writer = args.writer;
    options.incremental_snapshots = args.incremental_snapshot_archive_path.clone();
    options.as_is = args.as_is;
    options.every = args.every;
    options.pin_bytes = args.pin_bytes;
    let newest = Keep::default().full(args.keep_full as usize).incremental(args.keep_incremental as usize);
    options.keep = args.retention.apply(newest, args.rebase_onto as usize);
    options.rebase_onto = args.rebase_onto as usize;
    options.grace = args.grace;
    options.on_published = args.on_published.clone();
    options.on_failed = args.on_failed.clone();
    options.metrics = args.metrics;
    options.alert_after = args.alert_after;
    options.once = args.once;
    Ok(options)
}

fn print_event(event: &PublishEvent, ui: &Ui) {
    let extra_fields = match event {
        PublishEvent::Failed { error, .. } => json!({ "hint": error.hint().and_then(hints::keep_if_flags_exist) }),
        _ => json!({}),
    };
    if let PublishEvent::Published(published) = event {
        ui.print_quiet(&published.name.to_string());
    }
    let level = match event {
        PublishEvent::Refused { .. } | PublishEvent::Failed { .. } => LogLevel::Error,
        PublishEvent::Skipped { .. } => LogLevel::Warning,
        _ => LogLevel::Info,
    };
    let kind = event.kind().unwrap_or_default();
    ui.log_event(kind, level, &merge(extra_fields, event), event_text(event));
}

/// Returns a template of the event's text, as [`render`](super::render) describes templates.
fn event_text(event: &PublishEvent) -> &'static str {
    match event {
        PublishEvent::Watching { .. } => "publishing {snapshots} to {targets}[; metrics on http://{metrics}/metrics]",
        PublishEvent::Pinned { .. } => "pinned {name}",
        PublishEvent::Skipped { .. } => "left out {name}: {reason}",
        PublishEvent::Prepared(_) => "ready: {name}, {size_bytes}, state {state}, in {elapsed_seconds}",
        PublishEvent::Refused { .. } => "NOT PUBLISHED: {name} is damaged: {message}[; the file was moved to {kept}]",
        PublishEvent::Published(_) => "published {name} on {target}: {size_bytes} in {elapsed_seconds}",
        PublishEvent::Pruned { .. } => "removed from {target}: {names}",
        PublishEvent::Failed { .. } => "failed: [{target}: ]{message}[ ({hint})][; next try in {retry_seconds}]",
        PublishEvent::Stopping => "stopping; the next run continues from here",
        // The library's enum is `non_exhaustive`.
        _ => "",
    }
}
