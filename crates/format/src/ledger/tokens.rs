//! Parses accounts of the Token and Token-2022 programs. The layout of each kind is fixed; in Token-2022,
//! extensions may follow. `mints` parses mints and their metadata.

use slotpress_base::{array_at, u32_at, u64_at};

use crate::Mint;
use crate::ledger::mints::MINT_BYTES;

/// Length of a token account without extensions.
pub const TOKEN_ACCOUNT_BYTES: usize = 165;
/// Length of a multisig account. No other account may have this length.
const MULTISIG_BYTES: usize = 355;
/// Type of an account with extensions: the byte after its first 165 bytes.
pub(super) const TYPE_MINT: u8 = 1;
const TYPE_ACCOUNT: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenData<'a> {
    Account(TokenAccount<'a>),
    /// A mint, initialized or not.
    Mint(Mint<'a>),
    /// A multisig account, or a token account that is not initialized.
    Other,
    /// Bytes that the program cannot have written.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenAccount<'a> {
    pub mint: [u8; 32],
    /// Wallet that owns the account.
    pub owner: [u8; 32],
    /// Balance, in the mint's smallest unit.
    pub amount: u64,
    pub delegate: Option<[u8; 32]>,
    pub is_frozen: bool,
    /// Rent-exempt reserve in lamports, if the account holds wrapped SOL.
    pub native_reserve: Option<u64>,
    pub delegated_amount: u64,
    pub close_authority: Option<[u8; 32]>,
    pub extensions: Extensions<'a>,
}

impl<'a> TokenData<'a> {
    /// Parses the data of an account of Token, or of Token-2022.
    pub fn parse(data: &'a [u8], is_token_2022: bool) -> Self {
        match data.len() {
            MINT_BYTES => return Self::parse_mint(data),
            MULTISIG_BYTES => return Self::Other,
            _ => {}
        }
        let Some((base, rest)) = data.split_first_chunk() else { return Self::Unknown };
        match rest {
            [] => Self::parse_account(base, &[]),
            [TYPE_ACCOUNT, extensions @ ..] if is_token_2022 => Self::parse_account(base, extensions),
            [TYPE_MINT, ..] if is_token_2022 => Self::parse_mint(data),
            _ => Self::Unknown,
        }
    }

    fn parse_mint(data: &'a [u8]) -> Self {
        Mint::parse(data).map_or(Self::Unknown, Self::Mint)
    }

    fn parse_account(base: &[u8; TOKEN_ACCOUNT_BYTES], extensions: &'a [u8]) -> Self {
        match base[108] {
            0 => Self::Other,
            1 | 2 => TokenAccount::parse(base, extensions).map_or(Self::Unknown, Self::Account),
            _ => Self::Unknown,
        }
    }
}

impl<'a> TokenAccount<'a> {
    /// Parses an initialized account.
    fn parse(base: &[u8; TOKEN_ACCOUNT_BYTES], extensions: &'a [u8]) -> Option<Self> {
        Some(Self {
            mint: array_at::<0, 32, _>(base),
            owner: array_at::<32, 32, _>(base),
            amount: u64_at::<64, _>(base),
            delegate: parse_coption(u32_at::<72, _>(base), array_at::<76, 32, _>(base))?,
            is_frozen: base[108] == 2,
            native_reserve: parse_coption(u32_at::<109, _>(base), u64_at::<113, _>(base))?,
            delegated_amount: u64_at::<121, _>(base),
            close_authority: parse_coption(u32_at::<129, _>(base), array_at::<133, 32, _>(base))?,
            extensions: Extensions(extensions),
        })
    }
}

/// Parses an optional value, given its tag and its bytes. A tag other than 0 and 1 is invalid.
pub(super) fn parse_coption<T>(tag: u32, value: T) -> Option<Option<T>> {
    match tag {
        0 => Some(None),
        1 => Some(Some(value)),
        _ => None,
    }
}

/// Iterates over consecutive extensions. Each has a type, a length and a value. The last extension is
/// followed by type 0 or by the end of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extensions<'a>(pub(super) &'a [u8]);

/// Yields the type and the value of each extension. If the length or the value of an extension is
/// truncated, yields an error and ends.
impl<'a> Iterator for Extensions<'a> {
    type Item = Result<(u16, &'a [u8]), TruncatedExtension>;

    fn next(&mut self) -> Option<Self::Item> {
        let (kind, rest) = std::mem::take(&mut self.0).split_first_chunk()?;
        let kind = u16::from_le_bytes(*kind);
        if kind == 0 {
            return None;
        }
        let length = rest.split_first_chunk();
        let value = length.and_then(|(length, rest)| rest.split_at_checked(u16::from_le_bytes(*length).into()));
        let Some((value, after)) = value else { return Some(Err(TruncatedExtension)) };
        self.0 = after;
        Some(Ok((kind, value)))
    }
}

/// An extension that does not fit into its account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TruncatedExtension;

/// Names of extensions in the responses of RPC servers, from type 1 on.
#[rustfmt::skip]
const EXTENSION_NAMES: [&str; 28] = [
    "transferFeeConfig", "transferFeeAmount", "mintCloseAuthority", "confidentialTransferMint",
    "confidentialTransferAccount", "defaultAccountState", "immutableOwner", "memoTransfer", "nonTransferable",
    "interestBearingConfig", "cpiGuard", "permanentDelegate", "nonTransferableAccount", "transferHook",
    "transferHookAccount", "confidentialTransferFeeConfig", "confidentialTransferFeeAmount", "metadataPointer",
    "tokenMetadata", "groupPointer", "tokenGroup", "groupMemberPointer", "tokenGroupMember", "confidentialMintBurn",
    "scaledUiAmountConfig", "pausableConfig", "pausableAccount", "permissionedBurnConfig",
];

pub fn extension_name(kind: u16) -> Option<&'static str> {
    EXTENSION_NAMES.get(usize::from(kind).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Vec<u8> {
        let mut data = vec![0; TOKEN_ACCOUNT_BYTES];
        data[..32].fill(1);
        data[32..64].fill(2);
        data[64..72].copy_from_slice(&u64::MAX.to_le_bytes());
        data[72] = 1;
        data[76..108].fill(3);
        data[108] = 2;
        data[109] = 1;
        data[113..121].copy_from_slice(&2_039_280u64.to_le_bytes());
        data[121..129].copy_from_slice(&7u64.to_le_bytes());
        data[129] = 1;
        data[133..].fill(4);
        data
    }

    fn parse_account(data: &[u8], is_token_2022: bool) -> TokenAccount<'_> {
        match TokenData::parse(data, is_token_2022) {
            TokenData::Account(account) => account,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_field_is_parsed() {
        let data = account();
        let parsed = parse_account(&data, false);
        assert_eq!((parsed.mint, parsed.owner, parsed.amount), ([1; 32], [2; 32], u64::MAX));
        assert_eq!((parsed.delegate, parsed.delegated_amount, parsed.is_frozen), (Some([3; 32]), 7, true));
        assert_eq!((parsed.native_reserve, parsed.close_authority), (Some(2_039_280), Some([4; 32])));
        assert_eq!(parsed, parse_account(&data, true));
        // The bytes after a tag of 0 have no meaning.
        let mut data = data;
        (data[72], data[109], data[129], data[108]) = (0, 0, 0, 1);
        let parsed = parse_account(&data, false);
        assert_eq!(
            (parsed.delegate, parsed.native_reserve, parsed.close_authority, parsed.is_frozen),
            (None, None, None, false)
        );
    }

    #[test]
    fn other_data_is_not_a_token_account() {
        let with_byte = |offset: usize, byte: u8| {
            let mut data = account();
            data[offset] = byte;
            data
        };
        for (data, of_token, of_token_2022) in [
            (vec![1; 82], TokenData::Unknown, TokenData::Unknown),
            (vec![1; 355], TokenData::Other, TokenData::Other),
            (with_byte(108, 0), TokenData::Other, TokenData::Other),
            (with_byte(108, 3), TokenData::Unknown, TokenData::Unknown),
            (with_byte(72, 2), TokenData::Unknown, TokenData::Unknown),
            (with_byte(112, 1), TokenData::Unknown, TokenData::Unknown),
            (with_byte(129, 9), TokenData::Unknown, TokenData::Unknown),
            (vec![], TokenData::Unknown, TokenData::Unknown),
            (vec![1; 164], TokenData::Unknown, TokenData::Unknown),
            ([account(), vec![1, 1, 0, 0, 0]].concat(), TokenData::Unknown, TokenData::Unknown),
            ([account(), vec![0]].concat(), TokenData::Unknown, TokenData::Unknown),
        ] {
            assert_eq!(TokenData::parse(&data, false), of_token, "{} bytes", data.len());
            assert_eq!(TokenData::parse(&data, true), of_token_2022, "{} bytes", data.len());
        }
    }

    #[test]
    fn extensions_end_at_type_0_or_are_truncated() {
        let kinds = |bytes: &[u8]| {
            let data = [account(), vec![2], bytes.to_vec()].concat();
            parse_account(&data, true).extensions.map(|extension| extension.map(|(kind, _)| kind)).collect::<Vec<_>>()
        };
        assert_eq!(kinds(&[]), []);
        assert_eq!(kinds(&[7, 0, 0, 0, 2, 0, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8]), [Ok(7), Ok(2)]);
        assert_eq!(kinds(&[7, 0, 0, 0, 0, 0, 9, 9]), [Ok(7)], "type 0 ends them");
        assert_eq!(kinds(&[7, 0, 0, 0, 5]), [Ok(7)], "a type is two bytes");
        assert_eq!(kinds(&[7, 0, 1, 0]), [Err(TruncatedExtension)]);
        assert_eq!(kinds(&[7, 0, 0]), [Err(TruncatedExtension)]);
    }

    #[test]
    fn extensions_have_the_names_of_their_types() {
        let names = [0, 1, 7, 19, 27, 28, 29].map(extension_name);
        let known =
            ["transferFeeConfig", "immutableOwner", "tokenMetadata", "pausableAccount", "permissionedBurnConfig"];
        assert_eq!(names[1..6], known.map(Some));
        assert_eq!((names[0], names[6]), (None, None));
    }
}
