//! Filters that decide which accounts are exported. They are applied to the newest version of each account.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::str::FromStr;

use derive_setters::Setters;
use serde::Serialize;
use sha2::{Digest, Sha256};
use slotpress_base::{Error, Result, to_usize};
use slotpress_format::ledger::names::decode_base58;
use slotpress_format::ledger::programs::{TOKEN, TOKEN_2022};
use slotpress_format::{Address, RecordHeader, TokenData};

use super::table::Table;

/// Limit on the number of data filters, the same as for `getProgramAccounts`.
pub const DATA_FILTERS_MAX: usize = 4;
/// Number of bytes in one comparison; the maximum is the same as for `getProgramAccounts`.
const COMPARED_BYTES: RangeInclusive<usize> = 1..=128;

/// Bytes that the data of an account must have at an offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Memcmp {
    /// Offset in the data.
    pub offset: u64,
    /// Bytes that must be there.
    #[serde(rename = "hex", serialize_with = "serialize_hex")]
    pub bytes: Vec<u8>,
}

impl Memcmp {
    /// Creates a filter for data that has these bytes, 1 to 128, at the offset. `export` refuses other lengths.
    pub fn new(offset: u64, bytes: impl Into<Vec<u8>>) -> Self {
        Self { offset, bytes: bytes.into() }
    }

    fn matches(&self, data: &[u8]) -> bool {
        let rest = data.get(to_usize(self.offset)..);
        rest.is_some_and(|rest| rest.starts_with(&self.bytes))
    }
}

impl FromStr for Memcmp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let syntax_error =
            || Error::usage("a comparison is OFFSET:BASE58 or OFFSET:0xHEX with 1 to 128 bytes, such as 32:0x01ff");
        let (offset, value) = text.split_once(':').ok_or_else(syntax_error)?;
        // Do not decode longer text: that would take quadratic time in base58.
        if value.len() > 2 * COMPARED_BYTES.end() + 2 {
            return Err(syntax_error());
        }
        let bytes = match value.strip_prefix("0x") {
            Some(digits) => parse_hex(digits),
            None => decode_base58(value),
        };
        let bytes = bytes.filter(|bytes| COMPARED_BYTES.contains(&bytes.len())).ok_or_else(syntax_error)?;
        Ok(Self { offset: offset.parse().map_err(|_| syntax_error())?, bytes })
    }
}

fn parse_hex(digits: &str) -> Option<Vec<u8>> {
    let is_hex = digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte_at = |offset| u8::from_str_radix(digits.get(offset..offset + 2)?, 16).ok();
    if !is_hex {
        return None;
    }
    (0..digits.len()).step_by(2).map(byte_at).collect()
}

pub(super) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for half in bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]) {
        text.push(char::from(DIGITS[usize::from(half)]));
    }
    text
}

fn serialize_hex<S: serde::Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&to_hex(bytes))
}

/// Maximum number of addresses that a manifest lists. For a larger set, it states their number and a hash.
const LISTED_MAX: usize = 100;

fn set_allows(set: &HashSet<Address>, key: &[u8; 32]) -> bool {
    set.is_empty() || set.contains(&Address(*key))
}

fn serialize_set<S: serde::Serializer>(set: &HashSet<Address>, serializer: S) -> Result<S::Ok, S::Error> {
    if set.len() > LISTED_MAX {
        let mut sorted: Vec<&Address> = set.iter().collect();
        sorted.sort_unstable();
        let mut hasher = Sha256::new();
        for address in sorted {
            hasher.update(address.0);
        }
        let count = set.len();
        let hash = to_hex(&hasher.finalize());
        return serializer.serialize_str(&format!("{count} addresses, SHA-256 {hash}"));
    }
    let mut listed: Vec<String> = set.iter().map(Address::to_string).collect();
    listed.sort_unstable();
    serializer.collect_seq(listed)
}

/// All filters of an export. An account must pass every one of them. An empty set allows all accounts.
#[derive(Clone, Debug, Default, Serialize, Setters)]
#[non_exhaustive]
pub struct Filter {
    /// Programs that own the accounts.
    #[serde(serialize_with = "serialize_set")]
    pub owners: HashSet<Address>,
    /// Mints whose token accounts are exported. The mints themselves are exported only to the table of mints
    /// and for test validators. Other accounts are excluded.
    #[serde(serialize_with = "serialize_set")]
    pub mints: HashSet<Address>,
    /// Owners whose token accounts are exported; other accounts are excluded.
    #[serde(serialize_with = "serialize_set")]
    pub wallets: HashSet<Address>,
    /// Addresses of the accounts themselves.
    #[serde(serialize_with = "serialize_set")]
    pub addresses: HashSet<Address>,
    /// Length in bytes that the data must have.
    #[setters(strip_option)]
    pub data_size: Option<u64>,
    /// Bytes that the data must have at certain offsets.
    pub memcmp: Vec<Memcmp>,
    /// Also exports the mint of each exported token account; for a test validator only.
    pub with_mints: bool,
}

pub(super) fn parse_token<'a>(header: &RecordHeader, data: &'a [u8]) -> Option<TokenData<'a>> {
    let is_2022 = header.owner == TOKEN_2022;
    (is_2022 || header.owner == TOKEN).then(|| TokenData::parse(data, is_2022))
}

impl Filter {
    pub(super) fn check(&self) -> Result<()> {
        let mut lengths = self.memcmp.iter().map(|memcmp| memcmp.bytes.len());
        if !lengths.all(|length| COMPARED_BYTES.contains(&length)) {
            return Err(Error::usage("a comparison has no bytes, or more than 128"));
        }
        if self.memcmp.len() + usize::from(self.data_size.is_some()) <= DATA_FILTERS_MAX {
            return Ok(());
        }
        Err(Error::usage(format!(
            "too many filters on data: at most {DATA_FILTERS_MAX} are allowed, counting the size and each comparison"
        )))
    }

    pub(super) fn is_empty(&self) -> bool {
        let sets = [&self.owners, &self.mints, &self.wallets, &self.addresses];
        sets.iter().all(|set| set.is_empty()) && self.data_size.is_none() && self.memcmp.is_empty()
    }

    /// True if there is a filter by mint or wallet, for which accounts must be parsed as token accounts.
    pub(super) fn selects_tokens(&self) -> bool {
        !self.mints.is_empty() || !self.wallets.is_empty()
    }

    /// True if the filters by mint and wallet can select rows of a table.
    pub(super) fn selects_from(&self, table: Table) -> bool {
        match table {
            Table::Accounts | Table::TokenAccounts => true,
            Table::Mints => self.wallets.is_empty(),
            _ => !self.selects_tokens(),
        }
    }

    pub(super) fn allows(&self, header: &RecordHeader, data: &[u8]) -> bool {
        set_allows(&self.owners, &header.owner)
            && set_allows(&self.addresses, &header.pubkey)
            && self.data_size.is_none_or(|size| size == data.len() as u64)
            && self.memcmp.iter().all(|memcmp| memcmp.matches(data))
    }

    /// True if the filters by mint and wallet allow an account. Without such filters, `token` need not be
    /// parsed.
    pub(super) fn allows_token(&self, header: &RecordHeader, token: &Option<TokenData<'_>>) -> bool {
        match token {
            Some(TokenData::Account(account)) => {
                set_allows(&self.mints, &account.mint) && set_allows(&self.wallets, &account.owner)
            }
            Some(TokenData::Mint(_)) => set_allows(&self.mints, &header.pubkey) && self.wallets.is_empty(),
            _ => !self.selects_tokens(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_have_the_syntax_and_limits_of_rpc_servers() {
        let parse = |text: &str| text.parse::<Memcmp>().ok().map(|memcmp| (memcmp.offset, memcmp.bytes));
        assert_eq!(parse("3:0x01fF"), Some((3, vec![1, 255])));
        assert_eq!(parse("0:2"), Some((0, vec![1])));
        assert_eq!(parse(&format!("0:0x{}", "ab".repeat(128))).map(|(_, bytes)| bytes.len()), Some(128));
        for wrong in
            ["", "3", "3:", "3:0x", "3:0x1", "3:0xéé", "3:0OIl", "-1:2", "x:2", &format!("0:0x{}", "ab".repeat(129))]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        let memcmp = Memcmp::new(2, [7, 8]);
        assert!(memcmp.matches(&[0, 0, 7, 8]));
        assert!(!memcmp.matches(&[0, 0, 7]));
        assert!(!memcmp.matches(&[0]));
        assert!(!Memcmp::new(u64::MAX, [7, 8]).matches(&[7, 8]));
        let mut filter = Filter { data_size: Some(1), memcmp: vec![memcmp; 3], ..Filter::default() };
        assert!(filter.check().is_ok());
        filter.memcmp.extend(filter.memcmp.clone());
        assert!(filter.check().is_err());
        for (length, is_allowed) in [(0, false), (1, true), (128, true), (129, false)] {
            filter.memcmp = vec![Memcmp::new(0, vec![7; length])];
            assert_eq!(filter.check().is_ok(), is_allowed, "{length} bytes");
        }
    }
}
