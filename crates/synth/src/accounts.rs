//! Accounts of a synthetic ledger: the size and the record of each.
//!
//! An account is identified by the storage in which it first appears, and its index there (`universe`). Its
//! address, kind, size and contents follow from these numbers and the seed, so nothing has to be stored about
//! an account.
//!
//! The kinds of accounts, their shares of mainnet's accounts and of its bytes, and their data (`mix` has
//! other mixes):
//!
//! - Token accounts, 60% and 47%. 165 bytes: a mint, an owner, an amount (half are 0), zeros.
//!   27% have one of 15 popular mints, and 10% have one of 768 mints that are in use when the account is
//!   made. The others have one of 67 million mints, by Zipf's law. 89% have an owner that no other account
//!   has.
//! - Wallets, 13% and 5%. No data.
//! - Token-2022 accounts, 4.5% and 4%. A token account, and 5 to 42 bytes of type and extensions.
//! - Mints, 4% and 2%. 82 bytes: authorities, a supply (half are NFTs).
//! - Metadata, 4% and 8%. 679 or 607 bytes: name, symbol, address of a description, creators of a
//!   collection, zeros.
//! - Master editions, 2.5% and 3%. 282 bytes, nearly all zeros.
//! - Program state, 10% and 28%. Pools, order books, positions, obligations, claims, names:
//!   addresses, numbers, arrays that are partly in use.
//! - Stake accounts, 1.2% and 1%. 200 bytes, not delegated: an authority twice, zeros.
//! - Nonces, 0.5% and 0.3%. 80 bytes: an authority, a blockhash.
//! - Mints of Token-2022, 0.3% and 0.5%. 390 to 405 bytes: a mint, zeros, its metadata.
//! - Lookup tables, 0.03% and 0.1%. 56 bytes, and up to 255 addresses.
//! - Programs, 0.01% and 0%. 36 bytes: the address of the account with the code, which is the next
//!   account. If the storage ends before the code, the code is missing, as if the program had been closed. If
//!   the code is too large for the storage, a token account replaces it.
//! - Code, 0.01% and 2%, and buffers, 0.001%. 16 to 272 KiB: instructions that repeat, texts,
//!   and zeros.
//!
//! Every record also has a header of 136 bytes, which contains a random address, and one of about twenty
//! owners.
//!
//! Vote accounts, delegated stake accounts and sysvars are added to these. They agree with the bank file
//! (`stakes`, `sysvars`).
//!
//! `tokens` (token programs and metadata), `staking` and `states` (everything else) write the data.

use slotpress_format::{RECORD_HEADER_BYTES, RecordHeader};

use super::chain::rent_exempt_lamports;
use super::mix::{AccountKind, AccountMix};
use super::rng::Rng;
use super::staking::{self, STAKE_BYTES};
use super::universe::{AccountRngs, Origin, Purpose, Universe};
use super::{keys, states, tokens};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub kind: AccountKind,
    pub data_len: u64,
}

const RANDOM_BYTES_MAX: u64 = 4096;

/// The data of an account has at most half of its storage's bytes. A shorter storage counts as this long.
const SMALL_STORAGE_BYTES: u64 = 1536;

impl Universe {
    /// Returns the kind and size of an account that first appears in a storage of about
    /// `storage_bytes`. Small storages have no large accounts.
    pub fn shape(&self, origin: Origin, storage_bytes: u64) -> Shape {
        let draw_kind = |origin| {
            let mut rng = Rng::new(self.account_seed(origin));
            let kind = rng.pick_weighted(100_000, self.account_mix.shares().iter().copied());
            (rng, kind)
        };
        let (mut rng, kind) = draw_kind(origin);
        let previous_kind = origin.index.checked_sub(1).and_then(|index| draw_kind(Origin { index, ..origin }).1);
        let kind = match previous_kind {
            Some(AccountKind::Program) => AccountKind::Code,
            _ => kind.unwrap_or_else(|| AccountKind::State(states::pick_template(&mut rng))),
        };
        let data_len = match kind {
            AccountKind::Token => tokens::TOKEN_BYTES,
            AccountKind::Token2022 => tokens::token_2022_bytes(&mut rng),
            AccountKind::Mint => tokens::MINT_BYTES,
            AccountKind::Mint2022 => tokens::mint_2022_bytes(&mut rng),
            AccountKind::Metadata => tokens::metadata_bytes(&mut rng),
            AccountKind::Edition => tokens::EDITION_BYTES,
            AccountKind::Wallet => 0,
            AccountKind::Nonce => states::NONCE_BYTES,
            AccountKind::Stake => STAKE_BYTES,
            AccountKind::State(template) => states::state_bytes(template),
            AccountKind::LookupTable => states::lookup_table_bytes(&mut rng),
            AccountKind::Program => states::PROGRAM_BYTES,
            AccountKind::Code | AccountKind::Buffer => states::code_bytes(&mut rng),
            AccountKind::Random => rng.pick(RANDOM_BYTES_MAX),
        };
        if data_len > storage_bytes.max(SMALL_STORAGE_BYTES) / 2 {
            let (kind, data_len) = match self.account_mix {
                AccountMix::Random => (AccountKind::Random, data_len % (SMALL_STORAGE_BYTES / 2)),
                _ => (AccountKind::Token, tokens::TOKEN_BYTES),
            };
            return Shape { kind, data_len };
        }
        Shape { kind, data_len }
    }

    /// Appends a version of an account to a storage whose length is a multiple of 8. Does not pad the end of
    /// the record.
    pub fn write_record(&self, origin: Origin, version: u64, shape: Shape, storage: &mut Vec<u8>) -> RecordHeader {
        let mut rngs = self.account_rngs(origin, version);
        let start = storage.len();
        let data_start = start + RECORD_HEADER_BYTES;
        let data_end = data_start + shape.data_len as usize;
        storage.reserve(data_end - start);
        storage.resize(data_start, 0);
        let owner = match shape.kind {
            AccountKind::Token | AccountKind::Mint => keys::TOKEN,
            AccountKind::Token2022 | AccountKind::Mint2022 => keys::TOKEN_2022,
            AccountKind::Metadata | AccountKind::Edition => keys::METAPLEX_METADATA,
            AccountKind::Wallet | AccountKind::Nonce => keys::SYSTEM,
            AccountKind::Stake => keys::STAKE,
            AccountKind::State(template) => states::state_owner(template),
            AccountKind::LookupTable => keys::LOOKUP_TABLE,
            AccountKind::Program | AccountKind::Code | AccountKind::Buffer => keys::UPGRADEABLE_LOADER,
            // All random accounts belong to one made-up program.
            AccountKind::Random => self.shared_key(Purpose::RandomOwner, 0),
        };
        match shape.kind {
            AccountKind::Token => tokens::write_token(&mut rngs, storage),
            AccountKind::Token2022 => tokens::write_token_2022(&mut rngs, shape.data_len, storage),
            AccountKind::Mint => tokens::write_mint(&mut rngs, storage),
            AccountKind::Mint2022 => tokens::write_mint_2022(&mut rngs, data_end, storage),
            AccountKind::Metadata => tokens::write_metadata(&mut rngs, storage),
            AccountKind::Edition => tokens::write_edition(&mut rngs, storage),
            AccountKind::Wallet => {}
            AccountKind::Nonce => states::write_nonce(&mut rngs, storage),
            AccountKind::Stake => staking::write_stake(&mut rngs, storage),
            AccountKind::State(template) => states::write_state(&mut rngs, template, storage),
            AccountKind::LookupTable => states::write_lookup_table(&mut rngs, data_end, storage),
            AccountKind::Program => {
                states::write_program(&self.pubkey(Origin { index: origin.index + 1, ..origin }), storage)
            }
            AccountKind::Code | AccountKind::Buffer => {
                states::write_code(&mut rngs, data_end, shape.kind == AccountKind::Buffer, storage)
            }
            AccountKind::Random => {
                storage.resize(data_end, 0);
                rngs.version.fill(&mut storage[data_start..]);
            }
        }
        debug_assert!(storage.len() <= data_end, "{shape:?} took {} bytes", storage.len() - data_start);
        storage.resize(data_end, 0);
        let lamports = draw_lamports(&mut rngs, shape);
        let executable = u8::from(shape.kind == AccountKind::Program);
        let header = RecordHeader { executable, ..header(self.pubkey(origin), owner, lamports, shape.data_len) };
        storage[start..data_start].copy_from_slice(&header.to_bytes());
        header
    }
}

fn header(pubkey: [u8; 32], owner: [u8; 32], lamports: u64, data_len: u64) -> RecordHeader {
    RecordHeader { data_len, pubkey, lamports, rent_epoch: u64::MAX, owner, ..RecordHeader::default() }
}

/// An account that is not part of the mix: a sysvar, a vote account, a delegated stake account, or a tombstone.
#[derive(Clone, Debug)]
pub struct OtherAccount {
    pub pubkey: [u8; 32],
    pub owner: [u8; 32],
    pub lamports: u64,
    pub data: Vec<u8>,
}

impl OtherAccount {
    pub fn new(pubkey: [u8; 32], owner: [u8; 32], lamports: u64, data: Vec<u8>) -> Self {
        Self { pubkey, owner, lamports, data }
    }

    /// Appends the account's record to a storage whose length is a multiple of 8. Does not pad the end of
    /// the record.
    pub fn write_record(&self, storage: &mut Vec<u8>) -> RecordHeader {
        let header = header(self.pubkey, self.owner, self.lamports, self.data.len() as u64);
        storage.extend_from_slice(&header.to_bytes());
        storage.extend_from_slice(&self.data);
        header
    }
}

fn draw_lamports(rngs: &mut AccountRngs<'_>, shape: Shape) -> u64 {
    let minimum = rent_exempt_lamports(shape.data_len);
    let rng = &mut rngs.version;
    match shape.kind {
        // Wallets hold up to 1,100 SOL. A quarter of them hold only the rent-exempt minimum.
        AccountKind::Wallet if rng.chance_permille(250) => minimum,
        AccountKind::Wallet => minimum + rng.log_uniform(40),
        AccountKind::Stake => minimum + rng.log_uniform(41),
        _ if rng.chance_permille(30) => minimum + rng.log_uniform(32),
        _ => minimum,
    }
}
