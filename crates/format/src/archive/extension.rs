//! PAX headers and GNU long names, which describe the entry that follows. No snapshot archive needs
//! them; Agave reads them, Firedancer does not.

use crate::TarHeader;

/// Limit on the length of an extension. No path or number in an archive needs a hundredth of it.
pub const EXTENSION_BYTES_MAX: u64 = 64 * 1024;

/// What PAX headers and GNU long names say about the next entry.
#[derive(Debug, Default)]
pub struct Extension {
    content: Vec<u8>,
    path: Option<Vec<u8>>,
    stated_bytes: Option<u64>,
}

impl Extension {
    pub fn push(&mut self, bytes: &[u8]) {
        self.content.extend_from_slice(bytes);
    }

    pub fn content_bytes(&self) -> u64 {
        self.content.len() as u64
    }

    /// Parses the extension that has been pushed; `flag` is its type flag.
    pub fn take(&mut self, flag: u8) {
        match flag {
            b'L' => {
                self.path = self.content.split(|byte| *byte == 0).next().map(<[u8]>::to_vec);
            }
            b'x' => {
                for (key, value) in pax_records(&self.content) {
                    match key {
                        // A GNU long name takes precedence, as in Agave's tar library.
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

    /// Replaces the next entry's path and size by those that extensions gave.
    pub fn apply(&mut self, header: &mut TarHeader) {
        if let Some(path) = self.path.take() {
            header.path = path;
        }
        if let Some(content_bytes) = self.stated_bytes.take() {
            header.content_bytes = content_bytes;
        }
    }
}

/// Iterates over the records of a PAX header, `<length> <key>=<value>\n`. Skips malformed ones.
fn pax_records(content: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    content.split_inclusive(|byte| *byte == b'\n').filter_map(|line| {
        let line = line.strip_suffix(b"\n")?;
        let (_length, record) = split_once(line, b' ')?;
        split_once(record, b'=')
    })
}

fn split_once(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let mut parts = bytes.splitn(2, |byte| *byte == separator);
    Some((parts.next()?, parts.next()?))
}
