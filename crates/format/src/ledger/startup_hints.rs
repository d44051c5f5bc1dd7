//! Checks `startup_hints`, which Agave 4.4 and later leave beside the bank file when they stop
//! gracefully (docs/snapshot-format.md#bank-snapshot). The file has a u64 count, then items with a
//! u32 tag. An item of tag 0, the only known one, has a u64 number of accounts.
//!
//! A validator starts without the file, but not with a damaged one.

use std::io::BufRead;
use std::path::Path;

use slotpress_base::{ErrorKind, Result, ShowPath};

use crate::FieldReader;

pub const FILE_NAME: &str = "startup_hints";

/// The largest file that Agave reads, in bytes.
pub const BYTES_MAX: u64 = 4096;

/// Refuses a file with which Agave 4.4 does not start. A missing file is fine.
pub fn check_startup_hints(bank_snapshot: &Path) -> Result<()> {
    let path = bank_snapshot.join(FILE_NAME);
    if !path.exists() {
        return Ok(());
    }
    parse(FieldReader::open(&path, "the startup hints")?).map_err(|error| match error.kind() {
        ErrorKind::Damaged => error.with_hint(format!("remove {}: a validator starts without it", path.shown())),
        _ => error,
    })
}

fn parse<R: BufRead>(mut r: FieldReader<R>) -> Result<()> {
    if r.remaining() > BYTES_MAX {
        return Err(r.damaged(format!("{} bytes, more than the {BYTES_MAX} that Agave reads", r.remaining())));
    }
    let count = r.u64()?;
    for _ in 0..count {
        // If one hint is of a later version, Agave ignores all of them, and the bytes behind them.
        if r.u32()? != 0 {
            break;
        }
        r.u64()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn check(bytes: &[u8]) -> Result<()> {
        parse(FieldReader::new(Cursor::new(bytes), bytes.len() as u64, "the startup hints"))
    }

    #[test]
    fn hints_that_agave_reads() {
        let hint = |tag: u32, accounts: u64| [&tag.to_le_bytes()[..], &accounts.to_le_bytes()].concat();
        let hints = |count: u64, items: &[Vec<u8>]| [&count.to_le_bytes()[..], &items.concat()].concat();
        check(&hints(0, &[])).expect("none");
        check(&hints(1, &[hint(0, 2059)])).expect("as 4.4 writes it");
        check(&hints(2, &[hint(0, 1), hint(7, 2)])).expect("of a later version");
        check(&hints(340, &vec![hint(0, 1); 340])).expect("as large as may be");
        for (what, bytes) in [
            ("empty", Vec::new()),
            ("cut", hints(1, &[hint(0, 1)[..11].to_vec()])),
            ("a count of too many", hints(u64::MAX, &[hint(0, 1)])),
            ("too large", hints(341, &vec![hint(0, 1); 342])),
        ] {
            assert_eq!(check(&bytes).expect_err(what).kind(), ErrorKind::Damaged, "{what}");
        }
    }
}
