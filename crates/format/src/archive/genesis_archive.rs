//! Extracts `genesis.bin` from the archive of a cluster's genesis (`genesis.tar.bz2`), in memory.

use std::io::Read;

use slotpress_base::{Error, Result};

pub const GENESIS_ARCHIVE_NAME: &str = "genesis.tar.bz2";

pub const GENESIS_FILE_NAME: &str = "genesis.bin";

/// Limit on the length of `genesis.bin`, and of the archive. Agave unpacks at most 10 MiB.
pub const GENESIS_BYTES_MAX: u64 = 10 * 1024 * 1024;

/// Extracts `genesis.bin`. Decompresses at most 64 KiB more than [`GENESIS_BYTES_MAX`].
///
/// # Errors
/// The archive is invalid, or has no `genesis.bin`, or one that is empty or larger than
/// Agave allows.
pub fn unpack(archive: &[u8]) -> Result<Vec<u8>> {
    let wrong = |why: &str| Error::damaged(format!("the genesis archive is invalid: {why}"));
    // The margin holds headers and padding of a few other entries.
    let tar = bzip2::read::BzDecoder::new(archive).take(GENESIS_BYTES_MAX + 64 * 1024);
    let mut tar = tar::Archive::new(tar);
    for entry in tar.entries().map_err(|error| wrong(&error.to_string()))?.take(8) {
        let entry = entry.map_err(|error| wrong(&error.to_string()))?;
        let is_file = entry.header().entry_type().is_file();
        if !is_file || &*entry.path_bytes() != GENESIS_FILE_NAME.as_bytes() {
            continue;
        }
        let mut genesis = Vec::new();
        entry.take(GENESIS_BYTES_MAX + 1).read_to_end(&mut genesis).map_err(|error| wrong(&error.to_string()))?;
        return match genesis.len() as u64 {
            0 => Err(wrong("an empty genesis.bin")),
            length if length > GENESIS_BYTES_MAX => Err(wrong("a genesis.bin above 10 MiB")),
            _ => Ok(genesis),
        };
    }
    Err(wrong("no genesis.bin in it"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn archive(name: &str, content: &[u8]) -> Vec<u8> {
        archive_with(&[(name, content)])
    }

    fn archive_with(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, name, *content).expect("appended");
        }
        let tar = tar.into_inner().expect("finished");
        let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
        bzip2.write_all(&tar).expect("compressed");
        bzip2.finish().expect("compressed")
    }

    #[test]
    fn only_a_genesis_is_unpacked() {
        assert_eq!(unpack(&archive("genesis.bin", b"abc")).expect("unpacked"), b"abc");
        for other in [archive("other", b"abc"), archive("genesis.bin", b""), b"no archive".to_vec(), Vec::new()] {
            assert!(unpack(&other).is_err());
        }
        // The largest file that Agave accepts, after a small one.
        let largest = vec![7; 10 << 20];
        let found = unpack(&archive_with(&[("rocksdb/CURRENT", &[1; 9000]), ("genesis.bin", &largest)]));
        assert!(found.expect("unpacked") == largest);
        assert!(unpack(&archive("genesis.bin", &vec![7; (10 << 20) + 1])).is_err());
        // A decompression bomb: 64 MiB of zeros in a few bytes.
        let bomb = archive("genesis.bin", &vec![0; 64 << 20]);
        assert!(bomb.len() < 10_000);
        assert!(unpack(&bomb).is_err());
    }
}
