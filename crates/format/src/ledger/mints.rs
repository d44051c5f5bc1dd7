//! Parses mints of the Token and Token-2022 programs, and the metadata that Token-2022 keeps in
//! them.

use slotpress_base::{array_at, to_usize, u32_at, u64_at};

use crate::ledger::tokens::{Extensions, TOKEN_ACCOUNT_BYTES, TYPE_MINT, parse_coption};
use crate::ledger::votes::{take_array, take_bytes};

/// Length of a mint without extensions.
pub(super) const MINT_BYTES: usize = 82;

const TOKEN_METADATA: u16 = 19;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mint<'a> {
    pub mint_authority: Option<[u8; 32]>,
    /// Number of tokens, in the smallest unit.
    pub supply: u64,
    pub decimals: u8,
    pub is_initialized: bool,
    pub freeze_authority: Option<[u8; 32]>,
    /// Extensions, if any. Only mints of Token-2022 have extensions.
    pub extensions: Extensions<'a>,
}

impl<'a> Mint<'a> {
    /// Parses the data of a mint. A mint with extensions is zero-padded to a token account's
    /// length, and a byte marks it as a mint.
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let (base, rest) = data.split_first_chunk::<MINT_BYTES>()?;
        let mut extensions = rest;
        if !rest.is_empty() {
            let (padding, marked) = rest.split_at_checked(TOKEN_ACCOUNT_BYTES.saturating_sub(MINT_BYTES))?;
            extensions = marked.strip_prefix(&[TYPE_MINT])?;
            if padding.iter().any(|byte| *byte != 0) {
                return None;
            }
        }
        let is_initialized = match base[45] {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Self {
            mint_authority: parse_coption(u32_at::<0, _>(base), array_at::<4, 32, _>(base))?,
            supply: u64_at::<36, _>(base),
            decimals: base[44],
            is_initialized,
            freeze_authority: parse_coption(u32_at::<46, _>(base), array_at::<50, 32, _>(base))?,
            extensions: Extensions(extensions),
        })
    }

    /// Returns the metadata that the mint itself contains. Returns `None` if there is none, or if Token-2022
    /// could not parse the metadata either.
    pub fn metadata(&self) -> Option<TokenMetadata<'a>> {
        let mut complete = self.extensions.map_while(Result::ok);
        let (_, value) = complete.find(|(kind, _)| *kind == TOKEN_METADATA)?;
        TokenMetadata::parse(value)
    }
}

/// Metadata of a mint. It takes at most 65,535 bytes, the maximum of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenMetadata<'a> {
    pub name: &'a str,
    pub symbol: &'a str,
    pub uri: &'a str,
}

impl<'a> TokenMetadata<'a> {
    /// Parses the Borsh encoding: update authority, mint, name, symbol, URI, pairs of strings.
    fn parse(value: &'a [u8]) -> Option<Self> {
        let mut input = value.get(32 + 32..)?;
        let parsed = Self { name: take_text(&mut input)?, symbol: take_text(&mut input)?, uri: take_text(&mut input)? };
        for _ in 0..u32::from_le_bytes(take_array(&mut input)?) {
            take_text(&mut input)?;
            take_text(&mut input)?;
        }
        Some(parsed)
    }
}

fn take_text<'a>(input: &mut &'a [u8]) -> Option<&'a str> {
    let length = u32::from_le_bytes(take_array(input)?);
    std::str::from_utf8(take_bytes(input, to_usize(length))?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ledger::tokens::TruncatedExtension;

    fn mint() -> Vec<u8> {
        let mut data = vec![0; MINT_BYTES];
        data[0] = 1;
        data[4..36].fill(3);
        data[36..44].copy_from_slice(&u64::MAX.to_le_bytes());
        (data[44], data[45], data[46]) = (9, 1, 1);
        data[50..].fill(4);
        data
    }

    fn mint_with_extensions(extensions: &[u8]) -> Vec<u8> {
        [&mint()[..], &[0; 83], &[TYPE_MINT], extensions].concat()
    }

    fn extension(kind: u16, value: &[u8]) -> Vec<u8> {
        [&kind.to_le_bytes()[..], &(value.len() as u16).to_le_bytes(), value].concat()
    }

    /// Makes metadata of name, symbol and URI, then the texts of pairs.
    fn metadata(texts: &[&[u8]], pairs: u32) -> Vec<u8> {
        let encode = |text: &&[u8]| [&(text.len() as u32).to_le_bytes()[..], text].concat();
        let encode_all = |texts: &[&[u8]]| texts.iter().flat_map(encode).collect::<Vec<u8>>();
        let (fields, texts_in_pairs) = texts.split_at(3);
        [vec![1; 64], encode_all(fields), pairs.to_le_bytes().to_vec(), encode_all(texts_in_pairs)].concat()
    }

    fn has_metadata(value: &[u8]) -> bool {
        Mint::parse(&mint_with_extensions(&extension(19, value))).expect("a mint").metadata().is_some()
    }

    #[test]
    fn every_field_is_parsed() {
        let data = mint();
        let parsed = Mint::parse(&data).expect("a mint");
        assert_eq!((parsed.mint_authority, parsed.freeze_authority), (Some([3; 32]), Some([4; 32])));
        assert_eq!((parsed.supply, parsed.decimals, parsed.is_initialized), (u64::MAX, 9, true));
        assert_eq!((parsed.extensions.count(), parsed.metadata()), (0, None));
        assert!(!Mint::parse(&[0; MINT_BYTES]).expect("zeros").is_initialized);
        for (offset, byte) in [(0, 2), (3, 1), (45, 2), (46, 2)] {
            let mut data = data.clone();
            data[offset] = byte;
            assert_eq!(Mint::parse(&data), None, "{offset}");
        }
        let data = mint_with_extensions(&[]);
        assert!((0..data.len()).all(|cut| cut == MINT_BYTES || Mint::parse(&data[..cut]).is_none()));
        for (offset, byte) in [(82, 1), (164, 1), (165, 2), (165, 0)] {
            let mut data = data.clone();
            data[offset] = byte;
            assert_eq!(Mint::parse(&data), None, "{offset}");
        }
    }

    #[test]
    fn metadata_is_found_among_the_extensions() {
        let value = metadata(&["Tök\x1b".as_bytes(), b"T", b"", b"key", b"value"], 1);
        let data = mint_with_extensions(&[extension(18, &[0; 64]), extension(19, &value), vec![0; 9]].concat());
        let expected = TokenMetadata { name: "Tök\x1b", symbol: "T", uri: "" };
        let parsed = Mint::parse(&data).expect("a mint");
        assert_eq!(parsed.metadata(), Some(expected));
        assert_eq!(
            parsed.extensions.map(|extension| extension.map(|(kind, _)| kind)).collect::<Vec<_>>(),
            [Ok(18), Ok(19)]
        );
        assert!(has_metadata(&value));
        assert!(has_metadata(&[&value[..], &[1, 2]].concat()));
        assert!((0..value.len()).all(|cut| !has_metadata(&value[..cut])));
        assert!(!has_metadata(&metadata(&[b"\xff", b"", b""], 0)), "not UTF-8");
        assert!(!has_metadata(&metadata(&[b"", b"", b"", b"\xff", b""], 1)), "in a pair");
        assert!(!has_metadata(&metadata(&[b"", b"", b""], u32::MAX)));
        let cut_off = mint_with_extensions(&[&extension(3, &[])[..], &[19, 0, 255, 255], &[0; 500]].concat());
        let parsed = Mint::parse(&cut_off).expect("a mint");
        assert_eq!((parsed.metadata(), parsed.extensions.last()), (None, Some(Err(TruncatedExtension))));
    }

    proptest! {
        #[test]
        fn hostile_mints_never_panic(value in proptest::collection::vec(any::<u8>(), 0..300), lengths in proptest::array::uniform3(0u32..40)) {
            let mut data = [vec![1; 64], value].concat();
            let mut offset = 64;
            for length in lengths {
                if let Some(field) = data.get_mut(offset..offset + 4) {
                    field.copy_from_slice(&length.to_le_bytes());
                }
                offset += 4 + length as usize;
            }
            for data in [mint_with_extensions(&data), mint_with_extensions(&extension(19, &data))] {
                if let Some(metadata) = Mint::parse(&data).and_then(|mint| mint.metadata()) {
                    prop_assert!(metadata.name.len() + metadata.symbol.len() + metadata.uri.len() <= data.len());
                }
            }
        }
    }
}
