//! Makes zstd frames of account records.
//!
//! A generic match finder looks for earlier bytes by a hash of the next few. A record of an account has its best match
//! nearly always in an earlier record of its kind (the same owner and length), at the same place: so records are compared
//! with that one, column by column, and a match finder sees only what is left. `docs/encoder.md` draws it.
//!
//! What comes out is plain zstd: libzstd writes the blocks, from the sequences that are found here. Bytes in, bytes out:
//! the same content, record starts and settings give the same frame.

mod compare;
mod fields;
mod kinds;
mod libzstd;
mod lz;
mod parse;
mod sequences;

#[cfg(test)]
mod tests;

pub use libzstd::ZstdError;
use {
    libzstd::{Context, Literals},
    parse::{Parsed, Parser},
    sequences::BLOCK_BYTES_MAX,
};

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
const CONTENT_BYTES_MIN: usize = 512 << 10;

/// Makes one frame after another, reusing its memory.
#[derive(Debug)]
pub struct Encoder {
    content_bytes_min: usize,
    effort: Effort,
    parser: Parser,
    records: Context,
    stock: Context,
}

impl Encoder {
    /// An encoder of frames that carry a checksum of their content, or not.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn new(effort: Effort, has_checksum: bool) -> Result<Self, ZstdError> {
        Ok(Self {
            content_bytes_min: CONTENT_BYTES_MIN,
            effort,
            parser: Parser::new(effort),
            records: Context::for_sequences(has_checksum)?,
            stock: Context::at_level_1(has_checksum)?,
        })
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
        to.clear();
        let parsed = match content.len() < self.content_bytes_min {
            true => Parsed::Hopeless,
            false => self.parser.parse(content, starts)?,
        };
        let way = match parsed {
            Parsed::Hopeless => {
                to.reserve(zstd_safe::compress_bound(content.len()));
                self.stock.compress(content, to)?;
                Way::Stock
            }
            Parsed::Sequences => {
                let literals = match self.effort {
                    Effort::Fast => Literals::Raw,
                    Effort::Balanced => Literals::Coded,
                };
                let sequences = self.parser.sequences();
                // A block that cannot be compressed takes 3 bytes more than its content. One block more: libzstd gives up on a
                // block where room runs short, and what it writes must not depend on the room.
                to.reserve(zstd_safe::compress_bound(content.len()) + 3 * sequences.blocks() + BLOCK_BYTES_MAX);
                self.records.compress_sequences(sequences.list(), content, literals, to)?;
                Way::Records
            }
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

    /// Bytes that the encoder takes after a frame of `content_bytes`, beside the frame and its content.
    pub fn memory_bytes(&self) -> usize {
        self.parser.memory_bytes() + self.records.size_bytes() + self.stock.size_bytes()
    }
}
