//! PAX headers and GNU long names, which say something about the entry that follows them. No client needs them; Agave
//! reads them.

use crate::format::entry::TarHeader;

/// The most that an extension may say: no path or number in an archive needs a hundredth of it.
pub const EXTENSION_BYTES_MAX: u64 = 64 * 1024;

/// What PAX headers and GNU long names said about the entry that follows them.
#[derive(Debug, Default)]
pub struct Extension {
    content: Vec<u8>,
    path: Option<Vec<u8>>,
    stated_bytes: Option<u64>,
}

impl Extension {
    /// Another begins.
    pub fn restart(&mut self) {
        self.content.clear();
    }

    /// Some of its content.
    pub fn push(&mut self, bytes: &[u8]) {
        self.content.extend_from_slice(bytes);
    }

    /// Bytes of its content so far.
    pub fn content_bytes(&self) -> u64 {
        self.content.len() as u64
    }

    /// An extension is complete: keeps what it says.
    pub fn take(&mut self, flag: u8) {
        match flag {
            b'L' => {
                let end = self.content.iter().position(|byte| *byte == 0).unwrap_or(self.content.len());
                self.path = Some(self.content[..end].to_vec());
            }
            b'x' => {
                for (key, value) in pax_records(&self.content) {
                    match key {
                        // A long name of GNU's comes first where there are both, as in the tar library of Agave.
                        b"path" if self.path.is_none() => self.path = Some(value.to_vec()),
                        b"size" => self.stated_bytes = std::str::from_utf8(value).ok().and_then(|s| s.parse().ok()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        self.content.clear();
    }

    /// Changes the header that they are about.
    pub fn apply(&mut self, header: &mut TarHeader) {
        if let Some(path) = self.path.take() {
            header.path = path;
        }
        if let Some(content_bytes) = self.stated_bytes.take() {
            header.content_bytes = content_bytes;
        }
    }
}

/// The records of a PAX header, `<length> <key>=<value>\n`; ends at what makes no sense.
fn pax_records(content: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    content.split_inclusive(|byte| *byte == b'\n').filter_map(|line| {
        let line = line.strip_suffix(b"\n")?;
        let record = &line[line.iter().position(|byte| *byte == b' ')? + 1..];
        let equals = record.iter().position(|byte| *byte == b'=')?;
        Some((&record[..equals], &record[equals + 1..]))
    })
}
