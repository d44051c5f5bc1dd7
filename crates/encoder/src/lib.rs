//! Makes zstd frames of account records.
//!
//! A generic match finder looks for earlier bytes by a hash of the next few. A record of an account has its best match
//! nearly always in an earlier record of its kind (the same owner and length), at the same place: so records are compared
//! with that one, column by column, and a match finder sees only what is left. `docs/encoder.md` draws it.
//!
//! What comes out is plain zstd (RFC 8878). Bytes in, bytes out: the same content, record starts and settings give the same
//! frame.

mod bits;
mod block;
mod codes;
mod compare;
mod fields;
mod frame;
mod fse;
mod huffman;
mod kinds;
mod lz;
mod parse;
mod sequences;

#[cfg(test)]
mod tests;

use std::fmt;

use parse::Parser;
use zstd_safe::{CCtx, CParameter};

/// Why there is no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZstdError(&'static str);

impl ZstdError {
    const CONTENT_TOO_LONG: Self = Self("the content is longer than the largest frame");
    const NO_MEMORY: Self = Self("not enough memory for a compression context");
}

impl fmt::Display for ZstdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ZstdError {}

/// An error of libzstd, in its own words.
fn of_libzstd(code: usize) -> ZstdError {
    ZstdError(zstd_safe::get_error_name(code))
}

/// What an encoder may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Literals of records stay as they are: the least time.
    Fast,
    /// Literals are coded, tables are larger: smaller, for about a quarter more time.
    Balanced,
}

/// Which way a frame was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From records.
    Records,
    /// As zstd level 1 makes it: the content is not records, or nothing is gained.
    Stock,
}

/// The largest content of a frame, in bytes: positions are kept in 25 bits, and no client reads larger frames.
pub const CONTENT_BYTES_MAX: usize = 32 << 20;

/// Shorter content is level 1's: there is little to look back at, and level 1 itself looks for shorter matches there.
const CONTENT_BYTES_MIN: usize = 1 << 20;

/// Makes one frame after another, reusing its memory.
pub struct Encoder {
    content_bytes_min: usize,
    has_checksum: bool,
    parser: Parser,
    stock: CCtx<'static>,
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

impl Encoder {
    /// An encoder of frames that carry a checksum of their content, or not.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn new(effort: Effort, has_checksum: bool) -> Result<Self, ZstdError> {
        let stock = at_level_1(has_checksum)?;
        Ok(Self { content_bytes_min: CONTENT_BYTES_MIN, has_checksum, parser: Parser::new(effort), stock })
    }

    /// The same for content of any length, although short content gains nothing: for tests.
    #[doc(hidden)]
    pub fn of_any_length(self) -> Self {
        Self { content_bytes_min: 0, ..self }
    }

    /// Makes `content`, of at most [`CONTENT_BYTES_MAX`], a frame in `to`, replacing what it holds. `starts` tells where
    /// records begin, in ascending order; where it is wrong, the frame is larger, and as right as any.
    ///
    /// # Errors
    /// Content that is too long; not enough memory.
    pub fn encode(&mut self, content: &[u8], starts: &[u32], to: &mut Vec<u8>) -> Result<Way, ZstdError> {
        if content.len() > CONTENT_BYTES_MAX {
            return Err(ZstdError::CONTENT_TOO_LONG);
        }
        let is_long = content.len() >= self.content_bytes_min;
        let way = if is_long && self.parser.parse(content, starts, self.has_checksum, to) {
            Way::Records
        } else {
            to.clear();
            to.reserve(zstd_safe::compress_bound(content.len()));
            self.stock.compress2(to, content).map_err(of_libzstd)?;
            Way::Stock
        };
        #[cfg(debug_assertions)]
        {
            let mut decoded = vec![0; content.len()];
            let result = zstd_safe::decompress(&mut decoded[..], to);
            assert!(
                result == Ok(content.len()) && decoded == content,
                "a frame that does not decode to its content: {way:?}"
            );
        }
        Ok(way)
    }

    /// Bytes that the encoder takes, beside the frame and its content.
    pub fn memory_bytes(&self) -> usize {
        self.parser.memory_bytes() + self.stock.sizeof()
    }
}

/// A context that makes frames as level 1 does.
fn at_level_1(has_checksum: bool) -> Result<CCtx<'static>, ZstdError> {
    let mut context = CCtx::try_create().ok_or(ZstdError::NO_MEMORY)?;
    context.set_parameter(CParameter::CompressionLevel(1)).map_err(of_libzstd)?;
    context.set_parameter(CParameter::ChecksumFlag(has_checksum)).map_err(of_libzstd)?;
    Ok(context)
}
