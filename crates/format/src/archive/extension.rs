//! PAX headers and GNU long names, which say something about the entry that follows them. No client needs them; Agave
//! reads them.

use crate::TarHeader;

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
                self.path = self.content.split(|byte| *byte == 0).next().map(<[u8]>::to_vec);
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
        let (_length, record) = split_once(line, b' ')?;
        split_once(record, b'=')
    })
}

/// What is in front of the first separator, and what is behind it.
fn split_once(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let mut parts = bytes.splitn(2, |byte| *byte == separator);
    Some((parts.next()?, parts.next()?))
}
