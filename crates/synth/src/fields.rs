//! Writes fields of fixed width in the layout of bincode.

use std::io::{Result, Write};

pub struct FieldWriter<W>(pub W);

pub fn push_u64s(out: &mut Vec<u8>, fields: &[u64]) {
    fields.iter().for_each(|field| out.extend_from_slice(&field.to_le_bytes()));
}

impl<W: Write> FieldWriter<W> {
    pub fn u64s(&mut self, fields: &[u64]) -> Result<()> {
        fields.iter().try_for_each(|field| self.0.write_all(&field.to_le_bytes()))
    }

    pub fn u32(&mut self, field: u32) -> Result<()> {
        self.0.write_all(&field.to_le_bytes())
    }

    pub fn f64s(&mut self, fields: &[f64]) -> Result<()> {
        fields.iter().try_for_each(|field| self.0.write_all(&field.to_le_bytes()))
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes)
    }

    /// Writes the number of bytes, then the bytes.
    pub fn byte_vec(&mut self, bytes: &[u8]) -> Result<()> {
        self.u64s(&[bytes.len() as u64])?;
        self.bytes(bytes)
    }
}
