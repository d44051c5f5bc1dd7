//! Parses accounts of the loaders, which own programs and their code.

use sha2::{Digest, Sha256};

use crate::ledger::programs::{BPF_LOADER_1, BPF_LOADER_2, UPGRADEABLE_LOADER};

/// Offset of the code in a programdata account: after kind, slot, and an optional authority, which takes 33 bytes
/// even if it is missing.
const CODE_AT: usize = 4 + 8 + 1 + 32;

/// Derives 32 candidates for the programdata address of a program. The address is the first candidate off the
/// ed25519 curve (`find_program_address` in the `solana-address` crate), and each candidate is off the curve with
/// probability 1/2. Candidates on the curve are not skipped, because the loader has no accounts there.
pub fn programdata_candidates(program: &[u8; 32]) -> impl Iterator<Item = [u8; 32]> {
    let seeds = |bump| [&program[..], &[bump], &UPGRADEABLE_LOADER, b"ProgramDerivedAddress"].concat();
    (0xe0..=u8::MAX).rev().map(move |bump| Sha256::digest(seeds(bump)).into())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoaderAccount<'a> {
    /// A program of the upgradeable loader, and its programdata address, where its code is.
    Program([u8; 32]),
    /// The code of such a program, or a program of an older loader with its code.
    Code(ProgramCode<'a>),
    /// An account that is not a program: a buffer, an uninitialized account, an account of an older loader that
    /// is not executable, or an account with a different owner.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramCode<'a> {
    /// Address that may replace the code, if any.
    pub upgrade_authority: Option<[u8; 32]>,
    /// Slot in which the code was written, or `None` for old loaders, which do not record the slot.
    pub deploy_slot: Option<u64>,
    /// ELF file, without the zeros after it, which reserve space for a longer program.
    pub code: &'a [u8],
}

impl<'a> LoaderAccount<'a> {
    /// Parses an account of the loader `owner`. Returns `None` if the loader cannot have written it.
    pub fn parse(owner: &[u8; 32], is_executable: bool, data: &'a [u8]) -> Option<Self> {
        match *owner {
            UPGRADEABLE_LOADER => Self::parse_upgradeable(data),
            BPF_LOADER_1 | BPF_LOADER_2 if is_executable => {
                let code = trim_end_zeros(data);
                Some(Self::Code(ProgramCode { upgrade_authority: None, deploy_slot: None, code }))
            }
            _ => Some(Self::Other),
        }
    }

    /// Parses an `UpgradeableLoaderState` (of the `solana-loader-v3-interface` crate).
    fn parse_upgradeable(data: &'a [u8]) -> Option<Self> {
        let (kind, rest) = data.split_first_chunk()?;
        let parse_authority = |rest: &[u8]| match rest.split_first()? {
            (0, _) => Some(None),
            (1, rest) => rest.first_chunk().copied().map(Some),
            _ => None,
        };
        match u32::from_le_bytes(*kind) {
            0 => Some(Self::Other),                          // uninitialized
            1 => parse_authority(rest).map(|_| Self::Other), // a buffer
            2 => rest.first_chunk().copied().map(Self::Program),
            3 => {
                let (slot, rest) = rest.split_first_chunk()?;
                let upgrade_authority = parse_authority(rest)?;
                let deploy_slot = Some(u64::from_le_bytes(*slot));
                let code = trim_end_zeros(data.get(CODE_AT..).unwrap_or_default());
                Some(Self::Code(ProgramCode { upgrade_authority, deploy_slot, code }))
            }
            _ => None,
        }
    }
}

fn trim_end_zeros(code: &[u8]) -> &[u8] {
    let end = code.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(1));
    code.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse_executable(owner: [u8; 32], data: &[u8]) -> Option<LoaderAccount<'_>> {
        LoaderAccount::parse(&owner, true, data)
    }

    #[test]
    fn accounts_of_the_upgradeable_loader_are_parsed() {
        let program = [&[2, 0, 0, 0][..], &[7; 32]].concat();
        assert_eq!(parse_executable(UPGRADEABLE_LOADER, &program), Some(LoaderAccount::Program([7; 32])));
        assert!((0..36).all(|cut| parse_executable(UPGRADEABLE_LOADER, &program[..cut]).is_none()));
        let data = |tag: u8| [&[3, 0, 0, 0][..], &9u64.to_le_bytes(), &[tag], &[5; 32], &[1, 0, 2, 0, 0]].concat();
        let code = |upgrade_authority| {
            Some(LoaderAccount::Code(ProgramCode { upgrade_authority, deploy_slot: Some(9), code: &[1, 0, 2] }))
        };
        assert_eq!(parse_executable(UPGRADEABLE_LOADER, &data(1)), code(Some([5; 32])));
        // The bytes after a tag of 0 have no meaning.
        assert_eq!(parse_executable(UPGRADEABLE_LOADER, &data(0)), code(None));
        assert_eq!(parse_executable(UPGRADEABLE_LOADER, &data(2)), None);
        assert!((0..45).all(|cut| parse_executable(UPGRADEABLE_LOADER, &data(1)[..cut]).is_none()));
        let buffer = |tag: u8| [&[1, 0, 0, 0, tag][..], &[5; 32]].concat();
        assert!((0..37).all(|cut| parse_executable(UPGRADEABLE_LOADER, &buffer(1)[..cut]).is_none()));
        assert_eq!(
            [0, 1, 2].map(|tag| parse_executable(UPGRADEABLE_LOADER, &buffer(tag)).is_some()),
            [true, true, false]
        );
        let other = Some(LoaderAccount::Other);
        for (data, expected) in [(&[0; 4][..], other), (&[1, 0, 0, 0, 0], other), (&[4, 0, 0, 0], None), (&[], None)] {
            assert_eq!(parse_executable(UPGRADEABLE_LOADER, data), expected, "{data:?}");
        }
    }

    /// Programs on mainnet, their programdata addresses, and the positions of these among the candidates.
    #[test]
    fn programdata_addresses_are_derived() {
        use crate::ledger::programs::address;
        for (program, programdata, expected) in [
            ("JUP6LkbZbjS1jKKwapdHNy74zcZ3tLUZoi5QNyVTaV4", "4Ec7ZxZS6Sbdg5UGSLHbAnM7GQHp2eFd4KYWRexAipQT", 1),
            ("whirLbMiicVdio4qvUfM5KAg6Ct8VwpYzGff3uctyCc", "CtXfPzz36dH5Ws4UYKZvrQ1Xqzn42ecDW6y8NKuiN8nD", 1),
            ("6EF8rrecthR5Dkzon8Nwu78hRvfCKubJ14M5uBEwF6P", "B5MvUwXdiW1NMM6QFFD3ssPKBujD4zMohncbM73Z2BQu", 4),
        ] {
            let program_address = address(program);
            let mut candidates = programdata_candidates(&program_address);
            let position = candidates.position(|candidate| candidate == address(programdata));
            assert_eq!(position, Some(expected), "{program}");
        }
    }

    #[test]
    fn accounts_of_old_loaders_are_parsed() {
        for owner in [BPF_LOADER_1, BPF_LOADER_2] {
            let program = ProgramCode { upgrade_authority: None, deploy_slot: None, code: &[3] };
            assert_eq!(parse_executable(owner, &[3, 0]), Some(LoaderAccount::Code(program)));
            assert_eq!(LoaderAccount::parse(&owner, false, &[3, 0]), Some(LoaderAccount::Other));
        }
        assert_eq!(parse_executable([1; 32], &[]), Some(LoaderAccount::Other));
    }

    proptest! {
        #[test]
        fn hostile_accounts_never_panic(data in proptest::collection::vec(any::<u8>(), 0..100), kind in 0u8..5) {
            for owner in [UPGRADEABLE_LOADER, BPF_LOADER_2] {
                let _ = (parse_executable(owner, &data), parse_executable(owner, &[&[kind, 0, 0, 0][..], &data].concat()));
            }
        }
    }
}
