//! Mixes of account kinds: mainnet's, and others for measurements on other data.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Token,
    Wallet,
    Nonce,
    /// An account of Token-2022, with extensions.
    Token2022,
    Mint,
    /// A mint of Token-2022, with metadata.
    Mint2022,
    Metadata,
    Edition,
    Stake,
    /// State of a program; the number is the index of its template in `states`.
    State(u8),
    LookupTable,
    Program,
    /// Code of the program in the previous account.
    Code,
    Buffer,
    Random,
}

/// A mix of kinds of accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[warn(missing_docs)]
pub enum Mix {
    /// Kinds as on mainnet.
    #[default]
    Mainnet,
    /// Token accounts and their mints.
    Tokens,
    /// NFTs: a mint, its metadata, its edition and the account that holds it.
    Nfts,
    /// Programs of up to 272 KiB, which take nearly all bytes.
    Programs,
    /// Wallets without any data.
    Empty,
    /// Up to 4 KiB of random bytes, which no codec can compress.
    Random,
}

impl Mix {
    /// Returns how many of 100,000 accounts are of each kind. The rest is program state.
    pub(super) fn shares(self) -> &'static [(u64, Kind)] {
        match self {
            Self::Mainnet => &MAINNET,
            Self::Tokens => {
                &[(92_000, Kind::Token), (5_000, Kind::Token2022), (2_500, Kind::Mint), (500, Kind::Mint2022)]
            }
            Self::Nfts => {
                &[(25_000, Kind::Token), (25_000, Kind::Mint), (25_000, Kind::Metadata), (25_000, Kind::Edition)]
            }
            Self::Programs => {
                &[(50_000, Kind::Token), (43_700, Kind::Wallet), (6_000, Kind::Program), (300, Kind::Buffer)]
            }
            Self::Empty => &[(95_000, Kind::Wallet), (5_000, Kind::Nonce)],
            Self::Random => &[(100_000, Kind::Random)],
        }
    }
}

const MAINNET: [(u64, Kind); 12] = [
    (60_000, Kind::Token),
    (13_000, Kind::Wallet),
    (4_500, Kind::Token2022),
    (4_000, Kind::Mint),
    (4_000, Kind::Metadata),
    (2_500, Kind::Edition),
    (1_200, Kind::Stake),
    (500, Kind::Nonce),
    (30, Kind::LookupTable),
    (10, Kind::Program),
    (1, Kind::Buffer),
    (300, Kind::Mint2022),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_parts_of_all() {
        for mix in [Mix::Mainnet, Mix::Tokens, Mix::Nfts, Mix::Programs, Mix::Empty, Mix::Random] {
            let sum: u64 = mix.shares().iter().map(|(share, _)| share).sum();
            assert!((86_000..=100_000).contains(&sum), "{mix:?}: {sum}");
        }
    }
}
