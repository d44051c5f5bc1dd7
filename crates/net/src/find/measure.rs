//! Measures how fast servers are, with a short transfer of an archive's bytes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use slotpress_base::{Progress, Result, Stage, average_rate, saturating_add_to};

use super::Candidate;
use crate::{Client, NetError, NetErrorKind, Remote};

/// Duration of one measurement, from the first byte.
const READ_TIME_MAX: Duration = Duration::from_secs(2);

const READ_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Rate that is assumed for servers that are slower, stall, or refuse the request.
const RATE_MIN_BYTES_PER_SECOND: u64 = 1000;

/// Measures the servers of the first `max_measured_candidates` candidates, except those in `rates`, and adds their
/// rates. A rate applies to all archives of a server. Servers are measured one after another, because they
/// would share the bandwidth. A server that sends nothing is given the lowest rate.
///
/// # Errors
/// `progress` is interrupted.
pub fn measure(
    client: &Client,
    candidates: &[Candidate],
    rates: &mut BTreeMap<String, u64>,
    max_measured_candidates: usize,
    progress: &dyn Progress,
) -> Result<()> {
    progress.stage(Stage::Measuring, None);
    let measured = candidates.iter().take(max_measured_candidates);
    for (_, remote) in measured.flat_map(Candidate::remotes) {
        let server = remote.origin();
        if rates.contains_key(&server) {
            continue;
        }
        let rate = match measure_rate(client, remote, progress) {
            Err(error) if error.kind() == NetErrorKind::Interrupted => return Err(error.into()),
            Err(_) => 0,
            Ok(rate) => rate,
        };
        rates.insert(server, rate.max(RATE_MIN_BYTES_PER_SECOND));
    }
    Ok(())
}

/// Measures the rate at which a server sends a file, in bytes per second.
fn measure_rate(client: &Client, remote: &Remote, progress: &dyn Progress) -> Result<u64, NetError> {
    let range = match remote.length_bytes {
        Some(length) if remote.accepts_ranges && length > 0 => Some(0..length.min(READ_BYTES_MAX)),
        _ => None,
    };
    let request_start = Instant::now();
    let mut body = client.open(remote, range, progress)?;
    // The first bytes do not count, because they arrive before the clock starts.
    let Some(first) = body.next(client, progress)? else { return Ok(0) };
    let start = Instant::now();
    let mut received_bytes = 0;
    let mut elapsed = Duration::ZERO;
    while elapsed < READ_TIME_MAX
        && received_bytes < READ_BYTES_MAX
        && let Some(bytes) = body.next(client, progress)?
    {
        saturating_add_to(&mut received_bytes, bytes.len() as u64);
        progress.advance(bytes.len() as u64, 0);
        elapsed = start.elapsed();
    }
    if received_bytes == 0 {
        // All bytes arrived at once, so the time has to include the round trip.
        return Ok(average_rate(first.len() as u64, request_start.elapsed()));
    }
    Ok(average_rate(received_bytes, elapsed))
}
