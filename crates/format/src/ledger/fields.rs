//! Reads little-endian fields from a stream, in bounded memory. The parsers of the bank file and
//! most other files of a ledger use this reader.
//!
//! The reader knows the length of the stream, so it refuses a number of items that cannot fit.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use slotpress_base::quantity::count_of;
use slotpress_base::{Error, EscapePath, IoContext, Result, fill_buf, to_usize};

use crate::ledger::demands::firedancer::CountLimit;
use crate::{Address, BREACHES_PER_DEMAND_MAX, Breach, Demand, Hash};

/// Buffer size for streamed files. With this size, the time for system calls is negligible.
pub const READ_BUFFER_BYTES: usize = 256 * 1024;

const DAMAGED_HINT: &str = "the file is damaged or of an unknown version; fetch it from its source again";

pub struct FieldReader<R> {
    inner: R,
    position: u64,
    length: u64,
    description: String,
    pub(super) breaches: Vec<Breach>,
}

impl FieldReader<BufReader<File>> {
    pub fn open(path: &Path, description: &str) -> Result<Self> {
        let file = slotpress_base::files::open_file(path)?;
        let length = file.metadata().or_path("read", path)?.len();
        let description = format!("{description} {}", path.escaped());
        Ok(Self::new(BufReader::with_capacity(READ_BUFFER_BYTES, file), length, description))
    }
}

impl<R: BufRead> FieldReader<R> {
    pub fn new(inner: R, length: u64, description: impl Into<String>) -> Self {
        Self { inner, position: 0, length, description: description.into(), breaches: Vec::new() }
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    pub fn remaining(&self) -> u64 {
        self.length.saturating_sub(self.position)
    }

    pub fn damage_error(&self, why: impl Display) -> Error {
        Error::damaged(format!("{}: {why}, at offset {}", self.description, self.position)).with_hint(DAMAGED_HINT)
    }

    fn check_remaining(&self, wanted_bytes: u64) -> Result<()> {
        match wanted_bytes.saturating_sub(self.remaining()) {
            0 => Ok(()),
            missing_bytes => Err(self.damage_error(format!("it ends {} early", count_of(missing_bytes, "byte")))),
        }
    }

    pub fn read_exact(&mut self, buffer: &mut [u8]) -> Result<()> {
        let length = buffer.len() as u64;
        self.check_remaining(length)?;
        self.inner.read_exact(buffer).map_err(|error| read_error(&self.description, self.position, &error))?;
        self.position = self.position.saturating_add(length);
        Ok(())
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        self.read_exact(&mut array)?;
        Ok(array)
    }

    pub fn skip(&mut self, count: u64) -> Result<()> {
        self.check_remaining(count)?;
        let mut remaining = count;
        while remaining > 0 {
            let buffered =
                fill_buf(&mut self.inner).map_err(|error| read_error(&self.description, self.position, &error))?;
            let skipped = buffered.len().min(to_usize(remaining));
            if skipped == 0 {
                return Err(self.damage_error("it shrank while it was read"));
            }
            self.inner.consume(skipped);
            self.position = self.position.saturating_add(skipped as u64);
            remaining = remaining.saturating_sub(skipped as u64);
        }
        Ok(())
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a boolean, or the byte before an optional field: 0 or 1.
    pub fn flag(&mut self, name: &str) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.damage_error(format!("the flag of {name} is {other}, not 0 or 1"))),
        }
    }

    pub fn optional_hash(&mut self, name: &str) -> Result<Option<Hash>> {
        Ok(if self.flag(name)? { Some(Hash(self.array()?)) } else { None })
    }

    /// Reads the number of items of a list. Each item occupies at least `item_bytes_min` bytes. Refuses a
    /// number of items that the remaining bytes cannot hold.
    pub fn count(&mut self, name: &str, item_bytes_min: u64) -> Result<u64> {
        let count = self.u64()?;
        match count.checked_mul(item_bytes_min.max(1)) {
            Some(bytes) if bytes <= self.remaining() => Ok(count),
            _ => Err(self.damage_error(format!(
                "{name} claims {count} items, more than the remaining {} bytes can hold",
                self.remaining()
            ))),
        }
    }

    /// Skips a list of items of fixed size, and returns their number.
    pub fn skip_items(&mut self, name: &str, item_bytes: u64) -> Result<u64> {
        let count = self.count(name, item_bytes)?;
        self.skip(count.saturating_mul(item_bytes))?;
        Ok(count)
    }

    /// Records that a client refuses the field that was just read. `account` is the account to which the
    /// field belongs.
    pub fn record_breach(
        &mut self,
        account: Option<Address>,
        demand: Demand,
        expected: impl Display,
        found: impl Display,
    ) {
        if self.breaches.iter().filter(|known| known.demand == demand).count() < BREACHES_PER_DEMAND_MAX {
            self.breaches.push(Breach {
                demand,
                expected: expected.to_string(),
                found: found.to_string(),
                offset_bytes: self.position,
                account,
            });
        }
    }

    /// Records a breach if a number exceeds Firedancer's limit.
    pub fn check_limit(&mut self, (name, max): CountLimit<'_>, count: u64) {
        if count > max {
            self.record_breach(None, Demand::FiredancerLimit, format_args!("{name}: at most {max}"), count);
        }
    }

    pub fn expect_end(&self) -> Result<()> {
        let remaining = self.remaining();
        if remaining > 0 {
            return Err(self.damage_error(format!("{} left over after the last field", count_of(remaining, "byte"))));
        }
        Ok(())
    }
}

/// Makes an I/O error, or an error about damage if a decoder failed or the stream ended early.
fn read_error(description: &str, position: u64, error: &io::Error) -> Error {
    match error.raw_os_error() {
        Some(_) => Error::io("read", Path::new(description), error),
        None => {
            let message = format!("{description}: cannot be read: {error}, at offset {position}");
            Error::damaged(message).with_hint(DAMAGED_HINT)
        }
    }
}
