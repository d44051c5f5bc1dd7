//! Writing fixed-width fields, as bincode lays them out.

use std::io::{Result, Write};

/// Writes little-endian fields to a file or a buffer.
pub struct Out<W>(pub W);

impl<W: Write> Out<W> {
    /// Unsigned 64-bit numbers.
    pub fn u64s(&mut self, fields: &[u64]) -> Result<()> {
        fields.iter().try_for_each(|field| self.0.write_all(&field.to_le_bytes()))
    }

    /// An unsigned 32-bit number: the tag of an enum.
    pub fn u32(&mut self, field: u32) -> Result<()> {
        self.0.write_all(&field.to_le_bytes())
    }

    /// 64-bit floating-point numbers.
    pub fn f64s(&mut self, fields: &[f64]) -> Result<()> {
        fields.iter().try_for_each(|field| self.0.write_all(&field.to_le_bytes()))
    }

    /// Bytes as they are: keys, hashes, flags.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes)
    }

    /// A vector of bytes, or a text: its length, then its bytes.
    pub fn byte_vec(&mut self, bytes: &[u8]) -> Result<()> {
        self.u64s(&[bytes.len() as u64])?;
        self.bytes(bytes)
    }
}
