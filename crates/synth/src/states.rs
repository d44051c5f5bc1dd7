//! Data of accounts other than tokens, stakes and votes: nonces, lookup tables, program state, and program code.

use super::fields::push_u64s;
use super::rng::Rng;
use super::universe::{AccountRngs, Purpose};
use super::{chain, keys};

pub const NONCE_BYTES: u64 = 80;
pub const PROGRAM_BYTES: u64 = 36;
const LOOKUP_TABLE_HEADER_BYTES: u64 = 56;
const CODE_HEADER_BYTES: u64 = 45;

/// Layout of the state of a program. An array fills the bytes after the integers.
struct Template {
    weight: u64,
    owner: [u8; 32],
    data_len: u64,
    /// Number of addresses to which no other account refers.
    unique_keys: u64,
    /// Number of addresses to which many accounts refer, such as markets and mints.
    shared_keys: u64,
    integers: u64,
    element_bytes: u64,
    /// Elements that are in use on average, per 1,000 elements. The others are zero.
    used_permille: u64,
}

const fn template(
    weight: u64,
    owner: [u8; 32],
    data_len: u64,
    [unique_keys, shared_keys]: [u64; 2],
    integers: u64,
    [element_bytes, used_permille]: [u64; 2],
) -> Template {
    Template { weight, owner, data_len, unique_keys, shared_keys, integers, element_bytes, used_permille }
}

const TEMPLATES: [Template; 18] = [
    template(900, keys::PUMP_FUN, 150, [1, 0], 5, [8, 0]), // bonding curve
    template(1000, keys::JUPITER_DISTRIBUTOR, 104, [1, 1], 3, [8, 0]), // airdrop claim
    template(360, keys::WHIRLPOOL, 216, [1, 1], 4, [24, 200]), // position
    template(600, keys::NAME_SERVICE, 112, [2, 0], 1, [8, 0]), // domain name
    template(270, keys::DRIFT, 240, [1, 1], 6, [8, 100]),  // trader's statistics
    template(90, keys::DRIFT, 4376, [1, 1], 12, [40, 300]), // trader's positions
    template(90, keys::OPENBOOK, 3228, [1, 1], 4, [16, 300]), // open orders
    template(120, keys::RAYDIUM_AMM, 752, [9, 3], 22, [8, 50]), // pool
    template(60, keys::RAYDIUM_CLMM, 1544, [4, 3], 20, [24, 60]), // pool
    template(24, keys::RAYDIUM_CLMM, 10_240, [0, 1], 1, [168, 300]), // tick array
    template(24, keys::WHIRLPOOL, 9_988, [0, 1], 1, [113, 350]), // tick array
    template(36, keys::METEORA, 10_136, [0, 1], 2, [144, 500]), // bin array
    template(40, keys::METEORA, 8_120, [1, 1], 3, [112, 400]), // position
    template(48, keys::SOLEND, 1_300, [1, 1], 8, [88, 350]), // obligation
    template(36, keys::KAMINO, 3_344, [1, 1], 12, [136, 350]), // obligation
    template(6, keys::KAMINO, 8_624, [6, 4], 60, [32, 60]), // reserve
    template(4, keys::OPENBOOK, 65_548, [0, 1], 4, [72, 500]), // order book
    template(1, keys::OPENBOOK, 262_156, [0, 1], 3, [88, 100]), // event queue
];

pub fn pick_template(rng: &mut Rng) -> u8 {
    let weights = || TEMPLATES.iter().map(|template| template.weight);
    rng.pick_weighted(weights().sum(), weights().zip(0..)).unwrap_or_default()
}

pub fn state_bytes(template: u8) -> u64 {
    TEMPLATES[usize::from(template)].data_len
}

pub fn state_owner(template: u8) -> [u8; 32] {
    TEMPLATES[usize::from(template)].owner
}

/// Draws an integer as in program state: often 0, or a time, a price, a balance.
fn draw_integer(rng: &mut Rng) -> u64 {
    match rng.pick(10) {
        0..3 => 0,
        3 => chain::FIRST_SLOT_UNIX_TIME - rng.log_uniform(25),
        4..6 => 1_000 * rng.log_uniform(20),
        _ => rng.log_uniform(48),
    }
}

/// Writes a discriminator of 8 bytes, addresses, integers, a bump seed, and an array that is partly in use.
pub fn write_state(rngs: &mut AccountRngs<'_>, template: u8, out: &mut Vec<u8>) {
    let Template { data_len, unique_keys, shared_keys, integers, element_bytes, used_permille, .. } =
        TEMPLATES[usize::from(template)];
    let end = out.len() + data_len as usize;
    out.extend_from_slice(&rngs.universe.number(Purpose::Markets, u64::MAX - u64::from(template)).to_le_bytes());
    for _ in 0..unique_keys {
        out.extend_from_slice(&rngs.account.key());
    }
    for _ in 0..shared_keys {
        let rank = rngs.account.zipf(14);
        out.extend_from_slice(&rngs.universe.shared_key(Purpose::Markets, rank));
    }
    for _ in 0..integers {
        if out.len() + 8 <= end {
            out.extend_from_slice(&draw_integer(&mut rngs.version).to_le_bytes());
        }
    }
    out.push(255 - rngs.account.zipf(4) as u8); // the bump seed of the account's address
    out.truncate(end);
    // A few arrays are much fuller than the average, and half of them are much emptier.
    let used_permille = match rngs.account.pick(8) {
        0 => 1000.min(used_permille * 4),
        1..4 => used_permille,
        _ => used_permille / 4,
    };
    while out.len() + element_bytes as usize <= end {
        let element_end = out.len() + element_bytes as usize;
        if rngs.version.chance_permille(used_permille) {
            while out.len() + 8 <= element_end {
                if element_bytes >= 64 && element_end - out.len() >= 64 && rngs.version.chance_permille(150) {
                    out.extend_from_slice(&rngs.version.key());
                } else {
                    out.extend_from_slice(&draw_integer(&mut rngs.version).to_le_bytes());
                }
            }
        }
        out.resize(element_end, 0);
    }
}

pub fn write_nonce(rngs: &mut AccountRngs<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&[1, 0, 0, 0, 1, 0, 0, 0]);
    let authority = rngs.account.zipf(16);
    out.extend_from_slice(&rngs.universe.shared_key(Purpose::Wallets, authority));
    out.extend_from_slice(&rngs.version.key());
    out.extend_from_slice(&5000u64.to_le_bytes());
}

/// Returns the length of a lookup table of up to 255 addresses.
pub fn lookup_table_bytes(rng: &mut Rng) -> u64 {
    LOOKUP_TABLE_HEADER_BYTES + 32 * rng.log_uniform(8)
}

/// Writes state, deactivation slot, last extension, authority, addresses.
pub fn write_lookup_table(rngs: &mut AccountRngs<'_>, end: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&1u32.to_le_bytes());
    push_u64s(out, &[u64::MAX, chain::FIRST_SLOT - rngs.account.log_uniform(26)]);
    out.extend_from_slice(&[0, 1]);
    out.extend_from_slice(&rngs.account.key());
    out.extend_from_slice(&[0; 2]);
    while out.len() < end {
        if rngs.account.chance_permille(400) {
            let rank = rngs.account.zipf(14);
            out.extend_from_slice(&rngs.universe.shared_key(Purpose::Markets, rank));
        } else {
            out.extend_from_slice(&rngs.account.key());
        }
    }
}

pub fn write_program(code: &[u8; 32], out: &mut Vec<u8>) {
    out.extend_from_slice(&2u32.to_le_bytes());
    out.extend_from_slice(code);
}

/// Returns a length of code, with its header, from 16 KiB to 272 KiB.
pub fn code_bytes(rng: &mut Rng) -> u64 {
    CODE_HEADER_BYTES + ((16 * 1024) << rng.pick(5)) + 8 * rng.pick(2048)
}

const OPCODES: [u8; 16] =
    [0x79, 0x7b, 0xbf, 0x07, 0xb7, 0x15, 0x85, 0x55, 0x61, 0x63, 0x0f, 0x71, 0x73, 0x05, 0x67, 0x77];

#[rustfmt::skip]
const WORDS: [&str; 16] = [
    "account ", "overflow ", "invalid ", "owner ", "token ", "instruction ", "src/state.rs", "src/lib.rs",
    "expected ", "amount ", "called `Option::unwrap()` on a `None` value", "program ", "error: ",
    "failed to ", "index ", "mint ",
];

/// Writes state, slot (not in a buffer) and authority; then an ELF file: instructions, strings, and
/// zeros where the program may grow.
pub fn write_code(rngs: &mut AccountRngs<'_>, end: usize, is_buffer: bool, out: &mut Vec<u8>) {
    let start = out.len();
    let rng = &mut rngs.account;
    out.extend_from_slice(&if is_buffer { 1u32 } else { 3 }.to_le_bytes());
    if !is_buffer {
        out.extend_from_slice(&(chain::FIRST_SLOT - rng.log_uniform(27)).to_le_bytes());
    }
    out.push(1);
    out.extend_from_slice(&rng.key());
    out.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\xf7\0\x01\0\0\0");
    let length = end - start;
    let strings_start = start + length * 3 / 4;
    let zeros_start = if rng.chance_permille(300) { end - length / 10 } else { end };
    while out.len() < strings_start {
        // Compilers repeat themselves: most instructions are in sequences that the program already has.
        if out.len() - start > 4096 && rng.chance_permille(200) {
            let back = 8 * (1 + rng.log_uniform(9)) as usize;
            let from = out.len() - back;
            let count = (16 + 8 * rng.log_uniform(4) as usize).min(back);
            out.extend_from_within(from..from + count);
            continue;
        }
        let opcode = OPCODES[rng.zipf(4) as usize];
        let registers = (rng.pick(11) | (rng.zipf(3) + 1) << 4) as u8;
        let offset = if rng.chance_permille(500) { 0 } else { (8 * rng.log_uniform(8)).wrapping_neg() as u16 };
        let immediate = if opcode == 0x85 { rng.log_uniform(20) as u32 } else { rng.zipf(6) as u32 };
        out.extend_from_slice(&[opcode, registers]);
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&immediate.to_le_bytes());
    }
    out.truncate(strings_start);
    while out.len() < zeros_start {
        match rng.pick(4) {
            0 => out.extend_from_slice(&rng.next().to_le_bytes()),
            1 => out.extend_from_slice(&(0x1_0000_0000 + 8 * rng.log_uniform(16)).to_le_bytes()),
            _ => out.extend_from_slice(WORDS[rng.pick(16) as usize].as_bytes()),
        }
    }
    out.truncate(zeros_start);
    out.resize(end, 0);
}
