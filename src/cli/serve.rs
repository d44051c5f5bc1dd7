//! Runs `slotpress serve`, and prints its events as log lines or JSON.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use slotpress::serve::{ServeEvent, ServeOptions, TlsFiles, TransferReport, serve};
use slotpress::{Error, Progress, Result};
use slotpress_base::available_threads;
use slotpress_serve::{CLIENT_CONNECTIONS_DEFAULT, CONNECTIONS_DEFAULT, FIREDANCER_RATE_MIN, THREADS_DEFAULT_MAX};

use super::arguments::{PriorityArgs, parse_max_rate};
use super::ui::{LogLevel, Ui};
use super::values;

/// Serve archives to nodes, browsers and other programs
///
/// DIR is the directory to which a validator writes its archives; its subdirectory `remote` is served too. Only
/// archives and the genesis archive are served, and new ones within a second. A page for people is at /, and a
/// list for programs at /api/v1/archives.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Directories of archives; if several hold a file of the same name, the first is served
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// Address to listen on: 0.0.0.0:8890 or `[::]:8890` to accept connections from everywhere
    #[arg(long, env, value_name = "ADDR", value_parser = values::parse_address, default_value = "127.0.0.1:8890")]
    listen: SocketAddr,
    /// Limit sending to this many bytes per second, for all clients together
    #[arg(long, env, value_name = "SIZE", value_parser = parse_max_rate)]
    max_rate: Option<u64>,
    /// Limit sending to this many bytes per second, for each client address
    #[arg(long, env, value_name = "SIZE", value_parser = parse_max_rate)]
    max_rate_per_client: Option<u64>,
    /// Address of a proxy whose X-Forwarded-For names the client, so that limits and the log apply to the client
    /// and not to the proxy; may be given more than once
    #[arg(long, env, value_name = "ADDR", value_delimiter = ',')]
    trusted_proxy: Vec<IpAddr>,
    /// Log every request, not only refusals, errors and whole transfers
    #[arg(long)]
    access_log: bool,
    /// Maximum number of connections
    #[arg(long, env, value_name = "N", default_value_t = CONNECTIONS_DEFAULT, value_parser = parse_connections)]
    max_connections: usize,
    /// Maximum number of connections of each client address
    #[arg(long, env, value_name = "N", default_value_t = CLIENT_CONNECTIONS_DEFAULT, value_parser = parse_connections)]
    max_connections_per_client: usize,
    /// TLS certificate chain (PEM); read again when it changes
    #[arg(long, env, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, env, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Address of the Prometheus metrics, at /metrics
    #[arg(long, env, value_name = "ADDR", value_parser = values::parse_address)]
    metrics: Option<SocketAddr>,
    /// Time for which running transfers may continue after SIGTERM or Ctrl-C
    #[arg(long, env, value_name = "TIME", default_value = "60s", value_parser = values::parse_duration)]
    grace: Duration,
    /// Close a connection if no complete request arrives within this time
    #[arg(long, env, value_name = "TIME", default_value = "15s", value_parser = parse_timeout)]
    head_timeout: Duration,
    /// Close a connection if the client does not receive the next piece of up to 512 KiB within this time
    #[arg(long, env, value_name = "TIME", default_value = "60s", value_parser = parse_timeout)]
    stall_timeout: Duration,
    /// Server threads [default: all cores that the process may use, at most 8]
    #[arg(long, env, value_name = "N", value_parser = values::parse_threads, help_heading = "Resource use")]
    threads: Option<usize>,
    #[command(flatten)]
    priority: PriorityArgs,
}

fn parse_connections(text: &str) -> std::result::Result<usize, String> {
    /// Larger numbers are typing errors: a million slow connections would use about 150 GiB of memory.
    const CONNECTIONS_MAX: usize = 1_000_000;
    let message = format!("must be 1 to {CONNECTIONS_MAX}");
    values::parse_in_range(text, 1..=CONNECTIONS_MAX, &message)
}

fn parse_timeout(text: &str) -> std::result::Result<Duration, String> {
    match values::parse_duration(text)? {
        Duration::ZERO => Err("must be above 0, such as 15s".into()),
        timeout => Ok(timeout),
    }
}

pub fn run(args: &ServeArgs, ui: &Ui) -> Result<()> {
    let io_hint = args.priority.apply(ui);
    for (flag, rate) in [("--max-rate", args.max_rate), ("--max-rate-per-client", args.max_rate_per_client)] {
        if rate.is_some_and(|rate| rate < FIREDANCER_RATE_MIN) {
            ui.warn(&format!("{flag} is below 10 MiB/s, and Firedancer gives up on slower servers"));
        }
    }
    // clap's `requires` cannot check this if one of the two flags is set in the environment.
    if args.tls_cert.is_some() != args.tls_key.is_some() {
        return Err(Error::usage("--tls-cert and --tls-key need each other"));
    }
    let cert_and_key = args.tls_cert.clone().zip(args.tls_key.clone());
    let tls = cert_and_key.map(|(cert, key)| TlsFiles { cert, key });
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut options = ServeOptions::new(args.dirs.clone(), args.listen)
        .max_connections(args.max_connections)
        .max_connections_per_client(args.max_connections_per_client)
        .head_timeout(args.head_timeout)
        .stall_timeout(args.stall_timeout)
        .io_hint(io_hint)
        .grace(args.grace)
        .gathers_ranges(!args.access_log)
        .trusted_proxies(args.trusted_proxy.clone());
    options.threads = args.threads.unwrap_or_else(|| available_threads().min(THREADS_DEFAULT_MAX));
    options.max_rate_bytes_per_second = args.max_rate;
    options.max_client_rate_bytes_per_second = args.max_rate_per_client;
    options.tls = tls;
    options.metrics = args.metrics;
    serve(&options, ui, |event| print_event(event, scheme, args.access_log, ui))
}

fn print_event(event: &ServeEvent, scheme: &str, logs_all_requests: bool, ui: &Ui) {
    match event {
        ServeEvent::Listening { listen, metrics, archives } => {
            let url = format!("{scheme}://{listen}");
            let fields = json!({ "listen": listen, "url": url, "metrics": metrics, "archives": archives });
            ui.print_object("serve", &fields);
            let archives = values::count_of(*archives as u64, "archive");
            let mut lines = vec![format!("serving {archives} on {url}")];
            lines.extend(metrics.map(|metrics| format!("metrics on http://{metrics}/metrics")));
            for line in lines {
                ui.print_quiet(&line);
                ui.say(&line);
            }
        }
        ServeEvent::Finished(finished) => {
            let text = transfer_text(finished);
            ui.log_event("served", LogLevel::Info, finished, &text);
        }
        ServeEvent::Answered(answered) if !logs_all_requests && answered.status < 400 => {}
        ServeEvent::Answered(answered) => {
            let refused = if answered.request.is_empty() { "connection refused: " } else { "" };
            let text = format!("{{client}} {refused}{{request}} {{status}}, {{sent_bytes}}");
            ui.log_event("answered", LogLevel::Info, answered, &text);
        }
        ServeEvent::Reloaded => ui.status("new certificate in use"),
        ServeEvent::Stopping { connections: 0 } => ui.status("stopping"),
        ServeEvent::Stopping { connections } => {
            let connections = values::count_of(*connections as u64, "connection");
            ui.status(&format!("stopping: waiting for {connections}"));
        }
        _ => {}
    }
}

/// Returns the log text of a finished transfer. No part of the text is chosen by a client: names are names of
/// archives, and addresses are numbers.
fn transfer_text(finished: &TransferReport) -> String {
    let part = match (finished.is_whole, finished.requests) {
        (true, _) => "",
        (false, 1) => " from byte {offset_bytes}",
        (false, _) => " in {requests}",
    };
    let sent = if finished.is_complete { "{total_bytes}" } else { "cut after {sent_bytes} of {total_bytes}" };
    format!("{{client}} {{name}}{part}: {sent} in {{elapsed_seconds}}, {{sent_bytes/elapsed_seconds}}")
}
