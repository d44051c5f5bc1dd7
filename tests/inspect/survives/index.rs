//! Archives whose index is damaged.

use std::fs;

use crate::common::listed::objects;
use crate::common::*;
use crate::inspect::*;

/// The results are those of an undamaged archive, and a warning names the index.
#[test]
fn an_archive_with_a_damaged_index_is_read_in_order() {
    let out = temp_dir();
    let ledger = ledger("ledger-at-40");
    let ours = archive(ledger.path(), out.path(), &["--frame-size", "64KiB"]);
    let good = inspect(&ours, &["--by-owner"]);
    let flags = ["--account", "SysvarC1ock11111111111111111111111111111111"];
    let found = inspect(&ours, &flags);
    let mut bytes = fs::read(&ours).expect("read");
    // The seek table's last item is the index: one of its bytes is changed.
    let footer = bytes.len() - 9;
    let items = u32::from_le_bytes(bytes[footer..footer + 4].try_into().expect("4 bytes")) as usize;
    let item_bytes = if bytes[footer + 4] & 0x80 == 0 { 8 } else { 12 };
    let index_end = bytes.len() - 9 - items * item_bytes - 8;
    bytes[index_end - 20] ^= 1;
    fs::write(&ours, bytes).expect("written");
    for (flags, expected) in [(&["--by-owner"][..], &good), (&flags[..], &found)] {
        let output = slotpress().arg("inspect").arg(&ours).args(flags).arg("--json").output().expect("runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        assert!(stderr.contains("\"warning\""), "{stderr}");
        assert_eq!(&objects(&output.stdout), expected);
    }
}
