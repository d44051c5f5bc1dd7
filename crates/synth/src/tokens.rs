//! Data of accounts of the token programs, and of token metadata.

use super::keys;
use super::rng::Rng;
use super::universe::{AccountRngs, Purpose};

pub const TOKEN_BYTES: u64 = 165;
pub const MINT_BYTES: u64 = 82;
pub const EDITION_BYTES: u64 = 282;

/// Returns the length of a Token-2022 account: a token account of 165 bytes, a byte for its type, and
/// extensions.
pub fn token_2022_bytes(rng: &mut Rng) -> u64 {
    match rng.pick(10) {
        0..7 => 170,  // immutable owner
        7..9 => 182,  // and withheld transfer fees
        _ => 202 + 5, // and more extensions
    }
}

const SYMBOL_BYTES: usize = 4;
const URI_BYTES: usize = 63;

/// Length of a Token-2022 mint with an empty name: a mint, padded to the length of a token account;
/// a byte for its type; the extensions metadataPointer and tokenMetadata.
const MINT_2022_BYTES: u64 = 165 + 1 + (4 + 64) + (4 + 64 + 3 * 4 + 4) + (SYMBOL_BYTES + URI_BYTES) as u64;

pub fn mint_2022_bytes(rng: &mut Rng) -> u64 {
    MINT_2022_BYTES + 5 + rng.pick(16)
}

/// Returns the length of metadata: 679 bytes, or 607 since 2024.
pub fn metadata_bytes(rng: &mut Rng) -> u64 {
    if rng.chance_permille(750) { 679 } else { 607 }
}

fn draw_mint(rngs: &mut AccountRngs<'_>) -> [u8; 32] {
    let rank = match rngs.account.pick(1000) {
        0..POPULAR_MINT_PERMILLE => rngs.account.zipf(4),
        // During launches and airdrops, many accounts of one mint are created within hours.
        pick if pick < POPULAR_MINT_PERMILLE + RECENT_MINT_PERMILLE => {
            draw_recent_rank(rngs, Purpose::Mints, RECENT_MINTS)
        }
        _ => rngs.account.zipf(26),
    };
    rngs.universe.shared_key(Purpose::Mints, rank)
}

/// Draws one of `count` ranks, which accounts that were written at about the same time share.
fn draw_recent_rank(rngs: &mut AccountRngs<'_>, purpose: Purpose, count: u64) -> u64 {
    let season = rngs.universe.number(purpose, rngs.storage / SEASON_STORAGES) >> 16;
    season + rngs.account.pick(count)
}

/// Number of consecutive storages that count as written at the same time.
const SEASON_STORAGES: u64 = 64;
/// Token accounts whose mint is popular, or in use at the time, per 1,000 accounts.
const POPULAR_MINT_PERMILLE: u64 = 270;
const RECENT_MINT_PERMILLE: u64 = 100;
const RECENT_MINTS: u64 = 768;
const BUSY_OWNER_PERMILLE: u64 = 60;
const RECENT_OWNER_PERMILLE: u64 = 50;
const RECENT_OWNERS: u64 = 768;

/// Draws an owner. Most owners are wallets with one account. Others are busy (the authority of a pool, a bot,
/// an exchange), or have many accounts that were written at about the same time.
fn draw_owner(rngs: &mut AccountRngs<'_>) -> [u8; 32] {
    let rank = match rngs.account.pick(1000) {
        0..BUSY_OWNER_PERMILLE => rngs.account.zipf(16),
        pick if pick < BUSY_OWNER_PERMILLE + RECENT_OWNER_PERMILLE => {
            draw_recent_rank(rngs, Purpose::Wallets, RECENT_OWNERS)
        }
        _ => return rngs.account.key(),
    };
    rngs.universe.shared_key(Purpose::Wallets, rank)
}

/// Draws an amount: often 0, often 1 (an NFT), otherwise any.
fn draw_amount(rng: &mut Rng) -> u64 {
    match rng.pick(100) {
        0..50 => 0,
        50..68 => 1,
        68..74 => 1_000_000 * rng.log_uniform(16),
        _ => rng.log_uniform(50),
    }
}

/// Writes mint, owner, amount, delegate, state, native, delegated amount, close authority.
pub fn write_token(rngs: &mut AccountRngs<'_>, out: &mut Vec<u8>) {
    let mut data = [0; TOKEN_BYTES as usize];
    let mint = draw_mint(rngs);
    data[..32].copy_from_slice(&mint);
    data[32..64].copy_from_slice(&draw_owner(rngs));
    data[64..72].copy_from_slice(&draw_amount(&mut rngs.version).to_le_bytes());
    data[108] = 1;
    if mint == keys::KNOWN_MINTS[0] {
        data[109] = 1;
        data[113..121].copy_from_slice(&2_039_280u64.to_le_bytes());
    }
    match rngs.version.pick(100) {
        // Some accounts have a delegate, as on marketplaces.
        0..2 => {
            data[72] = 1;
            let market = rngs.account.zipf(8);
            data[76..108].copy_from_slice(&rngs.universe.shared_key(Purpose::Markets, market));
            data[121] = 1;
        }
        // Some accounts are frozen.
        2..6 => data[108] = 2,
        _ => {}
    }
    out.extend_from_slice(&data);
}

/// Writes a token account, the type of the account, and extensions: u16 type, u16 length, value.
pub fn write_token_2022(rngs: &mut AccountRngs<'_>, data_len: u64, out: &mut Vec<u8>) {
    write_token(rngs, out);
    out.extend_from_slice(&[2, 7, 0, 0, 0]);
    if data_len >= 182 {
        out.extend_from_slice(&[2, 0, 8, 0]);
        let withheld = if rngs.version.chance_permille(300) { rngs.version.log_uniform(40) } else { 0 };
        out.extend_from_slice(&withheld.to_le_bytes());
    }
}

/// Writes mint authority, supply, decimals, initialized flag, freeze authority.
pub fn write_mint(rngs: &mut AccountRngs<'_>, out: &mut Vec<u8>) {
    let is_nft = rngs.account.chance_permille(550);
    let authority = if rngs.account.chance_permille(400) {
        rngs.account.key()
    } else {
        rngs.universe.shared_key(Purpose::Collections, draw_collection(rngs) * 8)
    };
    let has_authority = is_nft || rngs.account.chance_permille(300);
    push_optional_key(out, has_authority.then_some(&authority));
    let supply = if is_nft { 1 } else { 1_000_000 * rngs.version.log_uniform(36) };
    out.extend_from_slice(&supply.to_le_bytes());
    out.push(if is_nft { 0 } else { 6 + 3 * (rngs.account.pick(3) / 2) as u8 });
    out.push(1);
    push_optional_key(out, (is_nft || rngs.account.chance_permille(150)).then_some(&authority));
}

/// Writes a mint, the type of the account, and its extensions: the address of the metadata, then
/// the metadata itself (update authority, mint, name, symbol, URI, no other fields).
pub fn write_mint_2022(rngs: &mut AccountRngs<'_>, end: usize, out: &mut Vec<u8>) {
    let name_bytes = end - out.len() - MINT_2022_BYTES as usize;
    let padded_end = out.len() + 165;
    write_mint(rngs, out);
    out.resize(padded_end, 0);
    let keys = [rngs.account.key(), rngs.account.key()].concat();
    out.extend_from_slice(&[1, 18, 0, 64, 0]);
    out.extend_from_slice(&keys);
    out.extend_from_slice(&19u16.to_le_bytes());
    out.extend_from_slice(&((end - out.len() - 2) as u16).to_le_bytes());
    out.extend_from_slice(&keys);
    let name: String = (0..8).map(|_| SYLLABLES[rngs.account.pick(32) as usize]).collect();
    push_text(out, &name.as_bytes()[..name_bytes], name_bytes);
    let symbol: Vec<u8> = (0..SYMBOL_BYTES).map(|_| b'A' + rngs.account.pick(26) as u8).collect();
    push_text(out, &symbol, SYMBOL_BYTES);
    let mut uri = b"https://arweave.net/".to_vec();
    push_base64(&mut uri, &mut rngs.account, 43);
    push_text(out, &uri, URI_BYTES);
    out.extend_from_slice(&0u32.to_le_bytes());
}

/// Draws the number of the account's NFT collection. Neighboring accounts often belong to the same collection.
/// A collection has up to eight shared keys: its authority, its creators, its address.
fn draw_collection(rngs: &AccountRngs<'_>) -> u64 {
    let mut rng = rngs.account.clone();
    let nearby_collection = Rng::new(rngs.universe.number(Purpose::Collections, rngs.storage / 4)).pick(1 << 16);
    if rng.chance_permille(500) { nearby_collection + rng.zipf(6) } else { rng.zipf(16) }
}

const SYLLABLES: [&str; 32] = [
    "ape", "bonk", "cat", "degen", "doge", "dragon", "frog", "gen", "gold", "hat", "king", "lab", "lion", "mad",
    "meta", "moon", "monkey", "neo", "okay", "panda", "pepe", "pixel", "punk", "robo", "sol", "star", "tiger", "trump",
    "wif", "wolf", "world", "zen",
];

/// Appends text in a field of fixed length: u32 length, then the text padded with zeros.
fn push_text(out: &mut Vec<u8>, text: &[u8], field_bytes: usize) {
    let text = &text[..text.len().min(field_bytes)];
    out.extend_from_slice(&(field_bytes as u32).to_le_bytes());
    out.extend_from_slice(text);
    out.resize(out.len() + field_bytes - text.len(), 0);
}

/// Writes key, update authority, mint, name, symbol, URI, seller fee, creators, flags, collection.
pub fn write_metadata(rngs: &mut AccountRngs<'_>, out: &mut Vec<u8>) {
    let collection = draw_collection(rngs);
    let authority = rngs.universe.shared_key(Purpose::Collections, collection * 8);
    let mut names = Rng::new(rngs.universe.number(Purpose::Collections, collection));
    out.push(4);
    out.extend_from_slice(&authority);
    out.extend_from_slice(&rngs.account.key());

    let mut text = Vec::with_capacity(128);
    for part in 0..2 {
        let word = SYLLABLES[names.pick(32) as usize].as_bytes();
        text.push(word[0].to_ascii_uppercase());
        text.extend_from_slice(&word[1..]);
        text.extend_from_slice(if part == 0 { b" " } else { b" #" });
    }
    text.extend_from_slice(rngs.account.pick(10_000).to_string().as_bytes());
    push_text(out, &text, 32);
    let symbol: Vec<u8> = (0..names.pick(4) + 2).map(|_| b'A' + names.pick(26) as u8).collect();
    push_text(out, &symbol, 10);
    text.clear();
    match names.pick(4) {
        0 | 1 => {
            text.extend_from_slice(b"https://arweave.net/");
            push_base64(&mut text, &mut rngs.account, 43);
        }
        2 => {
            // The whole collection has one directory.
            text.extend_from_slice(b"https://ipfs.io/ipfs/Qm");
            push_base64(&mut text, &mut names, 44);
            text.push(b'/');
            text.extend_from_slice(rngs.account.pick(10_000).to_string().as_bytes());
            text.extend_from_slice(b".json");
        }
        _ => {
            text.extend_from_slice(b"https://nftstorage.link/ipfs/bafkrei");
            push_base64(&mut text, &mut rngs.account, 52);
        }
    }
    push_text(out, &text, 200);
    out.extend_from_slice(&(100 * names.pick(10) as u16).to_le_bytes());
    let creators = 1 + names.pick(3);
    out.push(1);
    out.extend_from_slice(&(creators as u32).to_le_bytes());
    for creator in 0..creators {
        out.extend_from_slice(&rngs.universe.shared_key(Purpose::Collections, collection * 8 + 1 + creator));
        out.extend_from_slice(&[u8::from(creator == 0), (100 / creators) as u8]);
    }
    out.extend_from_slice(&[1, 1, 1, 255 - rngs.account.zipf(4) as u8, 1, 0, 1, 1]);
    out.extend_from_slice(&rngs.universe.shared_key(Purpose::Collections, collection * 8 + 7));
}

/// Writes key, supply and the limit on editions. The rest is reserved.
pub fn write_edition(rngs: &mut AccountRngs<'_>, out: &mut Vec<u8>) {
    out.push(6);
    out.extend_from_slice(&0u64.to_le_bytes());
    out.push(1);
    let max_editions = if rngs.account.chance_permille(900) { 0 } else { rngs.account.log_uniform(10) };
    out.extend_from_slice(&max_editions.to_le_bytes());
}

fn push_optional_key(out: &mut Vec<u8>, key: Option<&[u8; 32]>) {
    out.extend_from_slice(&u32::from(key.is_some()).to_le_bytes());
    out.extend_from_slice(key.unwrap_or(&[0; 32]));
}

/// Appends text with 6 random bits in each byte, as in content addresses.
fn push_base64(out: &mut Vec<u8>, rng: &mut Rng, length: usize) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bits = 0;
    for at in 0..length {
        if at % 10 == 0 {
            bits = rng.next();
        }
        out.push(DIGITS[(bits & 63) as usize]);
        bits >>= 6;
    }
}
