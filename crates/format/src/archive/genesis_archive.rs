//! Extracts `genesis.bin` from the archive of a cluster's genesis (`genesis.tar.bz2`), in memory.

use std::fmt::Display;
use std::io::Read;

use slotpress_base::{Error, Result};

pub const GENESIS_ARCHIVE_NAME: &str = "genesis.tar.bz2";

pub const GENESIS_FILE_NAME: &str = "genesis.bin";

/// Limit on the length of `genesis.bin`, and of the archive. Agave unpacks at most 10 MiB.
pub const GENESIS_BYTES_MAX: u64 = 10 * 1024 * 1024;

/// Limit on the entries that are searched for `genesis.bin`, which Agave archives first.
const ENTRIES_SEARCHED_MAX: usize = 8;

/// Extracts `genesis.bin` from the first entries. It may be a GNU sparse file, as in Agave
/// (`is_valid_genesis_archive_entry`). Decompresses at most 64 KiB more than [`GENESIS_BYTES_MAX`].
///
/// # Errors
/// The archive is invalid, or has no `genesis.bin` among its first entries, or `genesis.bin` is empty
/// or larger than Agave allows.
pub fn unpack(archive: &[u8]) -> Result<Vec<u8>> {
    // The margin holds headers and padding of a few other entries.
    let tar = bzip2::read::BzDecoder::new(archive).take(GENESIS_BYTES_MAX + 64 * 1024);
    for entry in tar::Archive::new(tar).entries().map_err(invalid_error)?.take(ENTRIES_SEARCHED_MAX) {
        let entry = entry.map_err(invalid_error)?;
        let entry_type = entry.header().entry_type();
        let is_file = entry_type.is_file() || entry_type.is_gnu_sparse();
        if !is_file || &*entry.path_bytes() != GENESIS_FILE_NAME.as_bytes() {
            continue;
        }
        let mut genesis = Vec::new();
        entry.take(GENESIS_BYTES_MAX + 1).read_to_end(&mut genesis).map_err(invalid_error)?;
        return match genesis.len() as u64 {
            0 => Err(invalid_error("genesis.bin is empty")),
            length if length > GENESIS_BYTES_MAX => Err(invalid_error("genesis.bin is larger than 10 MiB")),
            _ => Ok(genesis),
        };
    }
    Err(invalid_error("it contains no genesis.bin"))
}

fn invalid_error(why: impl Display) -> Error {
    Error::damaged(format!("the genesis archive is invalid: {why}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn compress(tar: tar::Builder<Vec<u8>>) -> Vec<u8> {
        let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
        bzip2.write_all(&tar.into_inner().expect("finished")).expect("compressed");
        bzip2.finish().expect("compressed")
    }

    fn archive_of_files(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, name, *content).expect("appended");
        }
        compress(tar)
    }

    fn archive_of_genesis(content: &[u8]) -> Vec<u8> {
        archive_of_files(&[(GENESIS_FILE_NAME, content)])
    }

    #[test]
    fn only_a_genesis_is_unpacked() {
        assert_eq!(unpack(&archive_of_genesis(b"abc")).expect("unpacked"), b"abc");
        assert!(unpack(&archive_of_files(&[("other", b"abc")])).is_err());
        assert!(unpack(&archive_of_genesis(b"")).is_err());
        assert!(unpack(b"no archive").is_err());
        assert!(unpack(b"").is_err());
    }

    /// GNU tar makes such an entry of a file with a hole, if it is run with `--sparse`.
    #[test]
    fn a_sparse_genesis_is_unpacked() {
        let archive_of_sparse_genesis = |length: &[u8; 12]| {
            let mut header = tar::Header::new_gnu();
            header.set_path(GENESIS_FILE_NAME).expect("short");
            header.set_entry_type(tar::EntryType::GNUSparse);
            header.set_size(3);
            let gnu = header.as_gnu_mut().expect("a GNU header");
            gnu.sparse[0].offset = *b"00000000005\0";
            gnu.sparse[0].numbytes = *b"00000000003\0";
            gnu.realsize = *length;
            header.set_cksum();
            let mut tar = tar::Builder::new(Vec::new());
            tar.append(&header, &b"abc"[..]).expect("appended");
            compress(tar)
        };
        let genesis = unpack(&archive_of_sparse_genesis(b"00000000010\0")).expect("unpacked");
        assert_eq!(genesis, b"\0\0\0\0\0abc");
        assert!(
            unpack(&archive_of_sparse_genesis(b"00000000011\0")).is_err(),
            "the stated length differs from that of the parts"
        );
    }

    #[test]
    fn a_genesis_larger_than_agave_accepts_is_refused() {
        let largest = vec![7; 10 << 20];
        let after_a_small_file = archive_of_files(&[("rocksdb/CURRENT", &[1; 9000]), (GENESIS_FILE_NAME, &largest)]);
        assert!(unpack(&after_a_small_file).expect("unpacked") == largest);
        assert!(unpack(&archive_of_genesis(&vec![7; (10 << 20) + 1])).is_err());
        // 64 MiB of zeros in a few bytes.
        let decompression_bomb = archive_of_genesis(&vec![0; 64 << 20]);
        assert!(decompression_bomb.len() < 10_000);
        assert!(unpack(&decompression_bomb).is_err());
    }
}
