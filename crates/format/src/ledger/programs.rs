//! Well-known addresses in mainnet snapshots: programs, sysvars, a feature, and mints.

/// Decodes an address at compile time.
pub const fn address(text: &str) -> [u8; 32] {
    bs58::decode(text.as_bytes()).into_array_const_unwrap()
}

pub const SYSTEM: [u8; 32] = [0; 32];
pub const TOKEN: [u8; 32] = address("TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA");
pub const TOKEN_2022: [u8; 32] = address("TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb");
pub const METAPLEX_METADATA: [u8; 32] = address("metaqbxxUerdq28cj1RbAWkYQm3ybzjb6a8bt518x1s");
pub const STAKE: [u8; 32] = address("Stake11111111111111111111111111111111111111");
pub const VOTE: [u8; 32] = address("Vote111111111111111111111111111111111111111");
pub const LOOKUP_TABLE: [u8; 32] = address("AddressLookupTab1e1111111111111111111111111");
pub const RAYDIUM_AMM: [u8; 32] = address("675kPX9MHTjS2zt1qfr1NYHuzeLXfQM9H24wFSUt1Mp8");
pub const RAYDIUM_CLMM: [u8; 32] = address("CAMMCzo5YL8w4VFF8KVHrK22GGUsp5VTaW7grrKgrWqK");
pub const WHIRLPOOL: [u8; 32] = address("whirLbMiicVdio4qvUfM5KAg6Ct8VwpYzGff3uctyCc");
pub const METEORA: [u8; 32] = address("LBUZKhRxPF3XUpBCjp4YzTKgLccjZhTSDM9YuVaPwxo");
pub const OPENBOOK: [u8; 32] = address("srmqPvymJeFKQ4zGQed1GFppgkRHL9kaELCbyksJtPX");
pub const SOLEND: [u8; 32] = address("So1endDq2YkqhipRh3WViPa8hdiSpxWy6z3Z6tMCpAo");
pub const KAMINO: [u8; 32] = address("KLend2g3cP87fffoy8q1mQqGKjrxjC8boSyAYavgmjD");
pub const PUMP_FUN: [u8; 32] = address("6EF8rrecthR5Dkzon8Nwu78hRvfCKubJ14M5uBEwF6P");
pub const DRIFT: [u8; 32] = address("dRiftyHA39MWEi3m9aunc5MzRF1JYuBsbn6VPcn33UH");
pub const JUPITER_DISTRIBUTOR: [u8; 32] = address("meRjbQXFNf5En86FXT2YPz1dQzLj4Yb3xK8u1MVgqpb");
pub const NAME_SERVICE: [u8; 32] = address("namesLPneVptA9Z5rqUDD9tMTWEJwofgaYwp8cawRkX");

/// The upgradeable loader, which owns programs and their code.
pub const UPGRADEABLE_LOADER: [u8; 32] = address("BPFLoaderUpgradeab1e11111111111111111111111");
pub const BPF_LOADER_2: [u8; 32] = address("BPFLoader2111111111111111111111111111111111");
pub const BPF_LOADER_1: [u8; 32] = address("BPFLoader1111111111111111111111111111111111");
pub const LOADER_V4: [u8; 32] = address("LoaderV411111111111111111111111111111111111");
pub const NATIVE_LOADER: [u8; 32] = address("NativeLoader1111111111111111111111111111111");
pub const CONFIG: [u8; 32] = address("Config1111111111111111111111111111111111111");
pub const FEATURE: [u8; 32] = address("Feature111111111111111111111111111111111111");
pub const SERUM: [u8; 32] = address("9xQeWvG816bUx9EPjHmaT23yvVM2ZWbrrpZb9PusVFin");
pub const METAPLEX_CORE: [u8; 32] = address("CoREENxT6tW1HoK8ypY1SxRMZTcVPm7R94rH4PZNhX7d");
pub const COMPRESSION: [u8; 32] = address("cmtDvXumGCrqC1Age74AVPhSRVXJMd8PJS91L8KbNCK");

pub const SYSVAR: [u8; 32] = address("Sysvar1111111111111111111111111111111111111");

/// Sysvar with a bit for each recent slot, which is set if the slot has a block.
pub const SLOT_HISTORY: [u8; 32] = address("SysvarS1otHistory11111111111111111111111111");

/// Sysvar with the cluster's stakes in past epochs.
pub const STAKE_HISTORY: [u8; 32] = address("SysvarStakeHistory1111111111111111111111111");

pub const CLOCK: [u8; 32] = address("SysvarC1ock11111111111111111111111111111111");

/// Address of the feature `reduce_stake_warmup_cooldown`.
pub const REDUCED_STAKE_CHANGES: [u8; 32] = address("GwtDQBghCTBgmX2cpEGNPxTEBUTQRaDMGTr5qychdGMj");

/// Mints with many token accounts: wrapped SOL, USDC, USDT.
pub const KNOWN_MINTS: [[u8; 32]; 3] = [
    address("So11111111111111111111111111111111111111112"),
    address("EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v"),
    address("Es9vMFrzaCERmJfrF4H2FYD4KCoNkY11McCe8BenwNYB"),
];
