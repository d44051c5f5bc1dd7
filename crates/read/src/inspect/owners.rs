//! Well-known programs that own accounts, with their names.

use slotpress_format::Address;
use slotpress_format::ledger::programs;

const OWNER_NAMES: [([u8; 32], &str); 29] = [
    (programs::SYSTEM, "System"),
    (programs::STAKE, "Stake"),
    (programs::VOTE, "Vote"),
    (programs::TOKEN, "Token"),
    (programs::TOKEN_2022, "Token-2022"),
    (programs::METAPLEX_METADATA, "Metaplex Metadata"),
    (programs::UPGRADEABLE_LOADER, "Upgradeable Loader"),
    (programs::BPF_LOADER_2, "BPF Loader 2"),
    (programs::BPF_LOADER_1, "BPF Loader 1"),
    (programs::LOADER_V4, "Loader v4"),
    (programs::NATIVE_LOADER, "Native Loader"),
    (programs::CONFIG, "Config"),
    (programs::LOOKUP_TABLE, "Address Lookup Table"),
    (programs::SYSVAR, "Sysvar"),
    (programs::FEATURE, "Feature"),
    (programs::RAYDIUM_AMM, "Raydium AMM v4"),
    (programs::RAYDIUM_CLMM, "Raydium CLMM"),
    (programs::WHIRLPOOL, "Orca Whirlpools"),
    (programs::METEORA, "Meteora DLMM"),
    (programs::OPENBOOK, "OpenBook"),
    (programs::SOLEND, "Solend"),
    (programs::KAMINO, "Kamino Lending"),
    (programs::PUMP_FUN, "Pump.fun"),
    (programs::DRIFT, "Drift"),
    (programs::JUPITER_DISTRIBUTOR, "Jupiter Distributor"),
    (programs::NAME_SERVICE, "Name Service"),
    (programs::SERUM, "Serum DEX v3"),
    (programs::METAPLEX_CORE, "Metaplex Core"),
    (programs::COMPRESSION, "Account Compression"),
];

pub fn owner_name(owner: &Address) -> Option<&'static str> {
    OWNER_NAMES.iter().find(|(key, _)| *key == owner.0).map(|(_, name)| *name)
}

pub fn find_owner(name: &str) -> Option<Address> {
    OWNER_NAMES.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(key, _)| Address(*key))
}
