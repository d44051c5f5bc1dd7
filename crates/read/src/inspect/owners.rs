//! Well-known programs that own accounts, with their names.

use slotpress_format::Address;
use slotpress_format::ledger::programs;
use slotpress_format::ledger::programs::address;

const KNOWN: [([u8; 32], &str); 29] = [
    (programs::SYSTEM, "System"),
    (programs::STAKE, "Stake"),
    (programs::VOTE, "Vote"),
    (programs::TOKEN, "Token"),
    (programs::TOKEN_2022, "Token-2022"),
    (programs::METADATA, "Metaplex Metadata"),
    (programs::LOADER, "Upgradeable Loader"),
    (address("BPFLoader2111111111111111111111111111111111"), "BPF Loader 2"),
    (address("BPFLoader1111111111111111111111111111111111"), "BPF Loader 1"),
    (address("LoaderV411111111111111111111111111111111111"), "Loader v4"),
    (address("NativeLoader1111111111111111111111111111111"), "Native Loader"),
    (address("Config1111111111111111111111111111111111111"), "Config"),
    (programs::LOOKUP_TABLE, "Address Lookup Table"),
    (address("Sysvar1111111111111111111111111111111111111"), "Sysvar"),
    (address("Feature111111111111111111111111111111111111"), "Feature"),
    (programs::RAYDIUM_AMM, "Raydium AMM v4"),
    (programs::RAYDIUM_CLMM, "Raydium CLMM"),
    (programs::WHIRLPOOL, "Orca Whirlpools"),
    (programs::METEORA, "Meteora DLMM"),
    (programs::OPENBOOK, "OpenBook"),
    (programs::SOLEND, "Solend"),
    (programs::KAMINO, "Kamino Lending"),
    (programs::PUMP, "Pump.fun"),
    (programs::DRIFT, "Drift"),
    (programs::DISTRIBUTOR, "Jupiter Distributor"),
    (programs::NAMES, "Name Service"),
    (address("9xQeWvG816bUx9EPjHmaT23yvVM2ZWbrrpZb9PusVFin"), "Serum DEX v3"),
    (address("CoREENxT6tW1HoK8ypY1SxRMZTcVPm7R94rH4PZNhX7d"), "Metaplex Core"),
    (address("cmtDvXumGCrqC1Age74AVPhSRVXJMd8PJS91L8KbNCK"), "Account Compression"),
];

pub fn owner_name(owner: &Address) -> Option<&'static str> {
    KNOWN.iter().find(|(key, _)| *key == owner.0).map(|(_, name)| *name)
}

pub fn owner_of_name(name: &str) -> Option<Address> {
    KNOWN.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(key, _)| Address(*key))
}
