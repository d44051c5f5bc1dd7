//! Replaces the accounts of a synthetic ledger with accounts that are made without any code of `slotpress synth`.
//! Measurements on these show whether a layout or level suits only the accounts of `slotpress synth`.
//!
//! `cargo run --release --example accounts -- LEDGER SEED`, where `slotpress synth --agave 4.4` made LEDGER.
//! Its storages keep their names and, roughly, their lengths; their records are replaced, and the lists of
//! obsolete records are emptied. Such a ledger is only useful for measuring `archive`, because its bank file
//! describes other accounts.

use std::error::Error;
use std::fs;
use std::path::Path;

/// Random numbers by splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn next_below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns a number below `end`. Small numbers are far more common, just as a few mints have most holders.
    fn next_skewed(&mut self, end: u64) -> u64 {
        let bits = self.next_below(u64::from(end.ilog2()) + 1);
        self.next_below(2 << bits).min(end - 1)
    }

    /// Returns an amount of any magnitude below 2^`bits`, often a round one.
    fn next_amount(&mut self, bits: u64) -> u64 {
        let shift = self.next_below(bits);
        let amount = self.next_below(2 << shift);
        if self.next_below(3) == 0 { amount / 1000 * 1000 } else { amount }
    }

    fn append_bytes(&mut self, count: usize, output: &mut Vec<u8>) {
        let end = output.len() + count;
        while output.len() < end {
            output.extend_from_slice(&self.next().to_le_bytes());
        }
        output.truncate(end);
    }
}

/// Appends the `number`th address of a kind.
fn append_address(kind: u64, number: u64, output: &mut Vec<u8>) {
    Random(kind << 48 ^ number.wrapping_mul(0x0123_4567_89ab_cdef)).append_bytes(32, output);
}

fn pad_with_zeros(length: usize, output: &mut Vec<u8>) {
    output.resize(length, 0);
}

/// Kinds of addresses.
const WALLET: u64 = 1;
const MINT: u64 = 2;
const PROGRAM: u64 = 3;
const POOL: u64 = 4;

/// Writes the data of an account, and returns the number of its owner program.
fn write_account(random: &mut Random, data: &mut Vec<u8>) -> u64 {
    data.clear();
    match random.next_below(100) {
        // Wallets.
        0..22 => 0,
        // Token accounts.
        22..62 => {
            append_address(MINT, random.next_skewed(1 << 16), data);
            append_address(WALLET, random.next_skewed(1 << 34), data);
            data.extend_from_slice(&(if random.next_below(4) == 0 { 0 } else { random.next_amount(56) }).to_le_bytes());
            pad_with_zeros(108, data);
            data.push(1);
            if random.next_below(12) == 0 {
                data.extend_from_slice(&[1, 0, 0, 0, 0xf0, 0x1d, 0x1f]);
            }
            pad_with_zeros(165, data);
            1
        }
        // Token metadata.
        62..72 => {
            data.push(4);
            append_address(WALLET, random.next_skewed(1 << 20), data);
            append_address(MINT, random.next_below(1 << 40), data);
            let (collection, number) = (random.next_skewed(4096), random.next_below(10_000));
            let texts = [
                format!("Collection {collection} #{number}"),
                format!("C{collection}"),
                format!("https://{collection:x}.storage.example/{}/{number}.json", collection * 7919 % 977),
            ];
            for (text, length) in texts.iter().zip([32, 10, 200]) {
                data.extend_from_slice(&(length as u32).to_le_bytes());
                let end = data.len() + length;
                data.extend_from_slice(text.as_bytes());
                pad_with_zeros(end, data);
            }
            data.extend_from_slice(&500u16.to_le_bytes());
            append_address(WALLET, collection, data);
            pad_with_zeros(607, data);
            2
        }
        // State of programs: a tag of the type, addresses, counters, times, and reserved space.
        72..90 => {
            let program = random.next_skewed(2048);
            let mut layout = Random(program << 8 | random.next_skewed(6));
            layout.append_bytes(8, data);
            for _ in 0..1 + layout.next_below(9) {
                match layout.next_below(4) {
                    0 => append_address(WALLET, random.next_skewed(1 << 30), data),
                    1 => append_address(MINT, random.next_skewed(1 << 12), data),
                    2 => data.extend_from_slice(&random.next_amount(50).to_le_bytes()),
                    _ => data.extend_from_slice(&(1_700_000_000 + random.next_below(60_000_000)).to_le_bytes()),
                }
            }
            pad_with_zeros(data.len() + layout.next_skewed(512) as usize, data);
            8 + program
        }
        // Pools and open orders: vaults, and places for orders, which are mostly empty.
        90..96 => {
            let pool = random.next_skewed(1 << 14);
            data.extend_from_slice(b"\x06\0\0\0\0\0\0\0");
            (0..4).for_each(|vault| append_address(POOL, pool * 4 + vault, data));
            for _ in 0..random.next_skewed(24) {
                data.extend_from_slice(&random.next_amount(60).to_le_bytes());
                data.extend_from_slice(&random.next_amount(40).to_le_bytes());
            }
            pad_with_zeros(752, data);
            3
        }
        // Delegations.
        96..99 => {
            data.extend_from_slice(&[2, 0, 0, 0, 0x80, 0xd5, 0x22, 0, 0, 0, 0, 0]);
            let wallet = random.next_below(1 << 24);
            append_address(WALLET, wallet, data);
            append_address(WALLET, wallet, data);
            pad_with_zeros(124, data);
            append_address(POOL, random.next_skewed(2048) << 32, data);
            data.extend_from_slice(&random.next_amount(48).to_le_bytes());
            data.extend_from_slice(&random.next_below(800).to_le_bytes());
            data.extend_from_slice(&u64::MAX.to_le_bytes());
            pad_with_zeros(200, data);
            4
        }
        // A few large accounts: orders in a tree, keyed by price.
        _ => {
            for order in 0..random.next_skewed(256) {
                data.extend_from_slice(&[2, 0, 0, 0]);
                data.extend_from_slice(&(order as u32).to_le_bytes());
                data.extend_from_slice(&(random.next_amount(30) << 8).to_le_bytes());
                data.extend_from_slice(&random.next_below(1 << 40).to_le_bytes());
                append_address(WALLET, random.next_skewed(1 << 18), data);
            }
            pad_with_zeros(data.len().max(4096), data);
            5
        }
    }
}

/// Appends a record as a validator stores it; write_version, padding and hash are zero.
fn append_record(random: &mut Random, data: &[u8], owner: u64, output: &mut Vec<u8>) {
    output.extend_from_slice(&0u64.to_le_bytes());
    output.extend_from_slice(&(data.len() as u64).to_le_bytes());
    random.append_bytes(32, output);
    // Most balances are the rent-exempt minimum.
    let rent = (128 + data.len() as u64) * 6960;
    output.extend_from_slice(&(if data.is_empty() { 1 + random.next_amount(42) } else { rent }).to_le_bytes());
    output.extend_from_slice(&u64::MAX.to_le_bytes());
    if owner == 0 {
        output.extend_from_slice(&[0; 32])
    } else {
        append_address(PROGRAM, owner, output)
    }
    output.extend_from_slice(&[0; 40]);
    output.extend_from_slice(data);
    output.resize(output.len().next_multiple_of(8), 0);
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let ledger = args.next().ok_or("usage: accounts LEDGER SEED")?;
    let mut random = Random(args.next().ok_or("usage: accounts LEDGER SEED")?.parse()?);
    let mut storages = fs::read_dir(Path::new(&ledger).join("accounts/run"))?.collect::<Result<Vec<_>, _>>()?;
    storages.sort_by_key(fs::DirEntry::file_name);
    let (mut content, mut data) = (Vec::new(), Vec::new());
    for storage in storages {
        let length = storage.metadata()?.len() as usize;
        content.clear();
        loop {
            let owner = write_account(&mut random, &mut data);
            if content.len() + 136 + data.len() > length && !content.is_empty() {
                break;
            }
            append_record(&mut random, &data, owner, &mut content);
        }
        fs::write(storage.path(), &content)?;
    }
    for snapshot in fs::read_dir(Path::new(&ledger).join("snapshots"))? {
        fs::write(snapshot?.path().join("obsolete_accounts"), 0u64.to_le_bytes())?;
    }
    Ok(())
}
