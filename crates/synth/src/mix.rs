//! Mixes of account kinds: the mix of mainnet, and mixes for measurements on other data.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountKind {
    Token,
    Wallet,
    Nonce,
    Token2022,
    Mint,
    Mint2022,
    Metadata,
    Edition,
    Stake,
    /// State of a program, with the index of its template in `states`.
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
pub enum AccountMix {
    /// Kinds as on mainnet.
    #[default]
    Mainnet,
    /// Token accounts and their mints.
    Tokens,
    /// NFTs: a mint, its metadata, its edition and the account that holds it.
    Nfts,
    /// Programs of up to 272 KiB, which have nearly all of the bytes, and small accounts.
    Programs,
    /// Wallets without any data.
    Empty,
    /// Up to 4 KiB of random bytes, which no codec can compress.
    Random,
}

impl AccountMix {
    /// Returns how many of 100,000 accounts are of each kind. The other accounts are program state.
    #[rustfmt::skip]
    pub(super) fn shares(self) -> &'static [(u64, AccountKind)] {
        use AccountKind::*;
        match self {
            Self::Mainnet => &[
                (60_000, Token), (13_000, Wallet), (4_500, Token2022), (4_000, Mint), (4_000, Metadata),
                (2_500, Edition), (1_200, Stake), (500, Nonce), (30, LookupTable), (10, Program), (1, Buffer),
                (300, Mint2022),
            ],
            Self::Tokens => &[(92_000, Token), (5_000, Token2022), (2_500, Mint), (500, Mint2022)],
            Self::Nfts => &[(25_000, Token), (25_000, Mint), (25_000, Metadata), (25_000, Edition)],
            Self::Programs => &[(50_000, Token), (43_700, Wallet), (6_000, Program), (300, Buffer)],
            Self::Empty => &[(95_000, Wallet), (5_000, Nonce)],
            Self::Random => &[(100_000, Random)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::AccountMix::{Empty, Mainnet, Nfts, Programs, Random, Tokens};

    #[test]
    fn shares_add_up_to_nearly_all_accounts() {
        for mix in [Mainnet, Tokens, Nfts, Programs, Empty, Random] {
            let sum: u64 = mix.shares().iter().map(|(share, _)| share).sum();
            assert!((86_000..=100_000).contains(&sum), "{mix:?}: {sum}");
        }
    }
}
