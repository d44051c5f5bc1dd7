//! Programs and their code, which is in other accounts: kept until all accounts were seen, and
//! joined then.

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use slotpress_base::{Error, Result};
use slotpress_format::ledger::programs::LOADER;
use slotpress_format::{LoaderAccount, RecordHeader};

/// Limit on programs, and on accounts with their code: four times mainnet's.
const PROGRAMS_MAX: usize = 400_000;

/// Memory for as many of both, with what growing vectors take.
pub(super) const PROGRAMS_BYTES_MAX: u64 = 192 << 20;

/// A program.
pub(super) struct Program {
    pub address: [u8; 32],
    pub loader: [u8; 32],
    /// Account with the code, if it is another one.
    pub programdata: Option<[u8; 32]>,
    pub lamports: u64,
    pub slot: Option<u64>,
}

/// What is exported of a program's code.
pub(super) struct Code {
    pub upgrade_authority: Option<[u8; 32]>,
    pub deploy_slot: Option<u64>,
    pub length: u64,
    pub sha256: [u8; 32],
}

/// Code, with the address of its account.
type CodeAt = ([u8; 32], Code);

/// Programs, and code that may be theirs.
#[derive(Default)]
pub(super) struct Programs(Mutex<(Vec<Program>, Vec<CodeAt>)>);

impl Programs {
    /// Keeps an account if it is a program that is wanted, or has code, which may be that of one.
    /// Returns false if its loader cannot have written it.
    pub fn keep(&self, header: &RecordHeader, data: &[u8], is_wanted: bool, slot: Option<u64>) -> Result<bool> {
        let RecordHeader { pubkey: address, owner: loader, lamports, executable, .. } = *header;
        if !is_wanted && loader != LOADER {
            return Ok(true);
        }
        let Some(account) = LoaderAccount::parse(&loader, executable == 1, data) else { return Ok(false) };
        let (programdata, code) = match account {
            LoaderAccount::Program(programdata) => (Some(programdata), None),
            LoaderAccount::Code(found) => {
                let (length, sha256) = (found.code.len() as u64, Sha256::digest(found.code).into());
                let (upgrade_authority, deploy_slot) = (found.upgrade_authority, found.deploy_slot);
                (None, Some(Code { upgrade_authority, deploy_slot, length, sha256 }))
            }
            LoaderAccount::Other => return Ok(true),
        };
        let (programs, codes) = &mut *self.0.lock();
        if is_wanted && (programdata.is_some() || loader != LOADER) {
            programs.push(Program { address, loader, programdata, lamports, slot });
        }
        codes.extend(code.map(|code| (address, code)));
        match programs.len().max(codes.len()) > PROGRAMS_MAX {
            true => Err(Error::failed(format!("there are more than {PROGRAMS_MAX} programs"))
                .with_hint("leave out the table programs")),
            false => Ok(true),
        }
    }

    /// Passes each program with its code to `row`, in the order of their addresses.
    pub fn join(&self, mut row: impl FnMut(&Program, Option<&Code>) -> Result<()>) -> Result<()> {
        let (programs, codes) = &mut *self.0.lock();
        programs.sort_unstable_by_key(|program| program.address);
        codes.sort_unstable_by_key(|(address, _)| *address);
        programs.iter().try_for_each(|program| {
            let wanted = program.programdata.unwrap_or(program.address);
            let found = codes.binary_search_by_key(&wanted, |(address, _)| *address);
            row(program, found.ok().and_then(|at| codes.get(at)).map(|(_, code)| code))
        })
    }
}

#[cfg(test)]
mod tests {
    use slotpress_format::ledger::programs::BPF_LOADER_2;

    use super::*;

    fn header(address: u8, owner: [u8; 32]) -> RecordHeader {
        let mut header = RecordHeader::parse(&[0; 136]);
        (header.pubkey, header.owner, header.lamports, header.executable) = ([address; 32], owner, 1, 1);
        header
    }

    fn data(kind: u8, rest: &[u8]) -> Vec<u8> {
        [&[kind, 0, 0, 0][..], rest].concat()
    }

    #[test]
    fn programs_meet_their_code() {
        let programs = Programs::default();
        let keep = |address, owner, data: &[u8], is_wanted| {
            programs.keep(&header(address, owner), data, is_wanted, None).expect("few")
        };
        for (address, programdata) in [(3, 30), (1, 20), (2, 40)] {
            assert!(keep(address, LOADER, &data(2, &[programdata; 32]), true));
        }
        // Code need not be wanted itself, but programs must be.
        assert!(keep(30, LOADER, &data(3, &[&[0; 41][..], b"abc"].concat()), false));
        assert!(keep(20, LOADER, &data(3, &[0; 41]), true));
        assert!(keep(5, LOADER, &data(2, &[30; 32]), false) && keep(6, BPF_LOADER_2, b"abc", false));
        assert!(keep(7, BPF_LOADER_2, b"abc", true) && keep(8, LOADER, &data(1, &[0]), true));
        assert!(!keep(9, LOADER, &data(2, &[]), true));
        let mut rows = Vec::new();
        let joined = programs.join(|program, code| {
            rows.push((program.address[0], code.map(|code| (code.length, code.sha256[0]))));
            Ok(())
        });
        joined.expect("joined");
        let (empty, abc) = (Some((0, 0xe3)), Some((3, 0xba)));
        assert_eq!(rows, [(1, empty), (2, None), (3, abc), (7, abc)]);
    }

    #[test]
    fn as_many_as_are_kept() {
        let programs = Programs::default();
        let code = |_| ([0; 32], Code { upgrade_authority: None, deploy_slot: None, length: 0, sha256: [0; 32] });
        programs.0.lock().1 = (1..PROGRAMS_MAX).map(code).collect();
        let keep = || programs.keep(&header(1, LOADER), &data(3, &[0; 41]), true, None);
        assert!(keep().is_ok() && keep().is_err());
        let item_bytes = (size_of::<Program>() + size_of::<CodeAt>()) as u64;
        let capacity = PROGRAMS_MAX.next_power_of_two() as u64;
        assert!(item_bytes * capacity * 3 / 2 <= PROGRAMS_BYTES_MAX, "{item_bytes}");
    }
}
