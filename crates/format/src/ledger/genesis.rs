//! Parses the fields of `genesis.bin` that a bank file repeats (layout as in the
//! `solana-genesis-config` crate).

use std::io::BufRead;
use std::path::Path;

use slotpress_base::Result;

use crate::{BankFile, EpochSchedule, FieldReader};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Genesis {
    pub creation_time: i64,
    pub ticks_per_slot: u64,
    pub warmup: bool,
    pub epoch_schedule: EpochSchedule,
}

/// Length of the fields between the hashes per tick and the epoch schedule: an unused number, the
/// fee governor (four numbers and a percentage), rent (two numbers and a percentage), and inflation
/// (six numbers).
const BEFORE_EPOCH_SCHEDULE_BYTES: u64 = 8 + (4 * 8 + 1) + (2 * 8 + 1) + 6 * 8;

impl Genesis {
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(FieldReader::open(path, "the genesis")?)
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::parse(FieldReader::new(bytes, bytes.len() as u64, "the genesis"))
    }

    pub fn parse<R: BufRead>(mut reader: FieldReader<R>) -> Result<Self> {
        let creation_time = i64::from_le_bytes(reader.array()?);
        skip_accounts(&mut reader)?;
        for _ in 0..reader.count("the built-in programs", 8 + 32)? {
            reader.skip_items("the name of a program", 1)?;
            reader.skip(32)?;
        }
        skip_accounts(&mut reader)?;
        let ticks_per_slot = reader.u64()?;
        reader.skip(8 + 8 + 4)?; // unused, duration of a tick
        if reader.flag("the number of ticks")? {
            reader.skip(8)?;
        }
        if reader.flag("the hashes per tick")? {
            reader.skip(8)?;
        }
        reader.skip(BEFORE_EPOCH_SCHEDULE_BYTES)?;
        let slots_per_epoch = reader.u64()?;
        reader.skip(8)?; // the offset of the leader schedule
        let warmup = reader.flag("the warm-up")?;
        let epoch_schedule =
            EpochSchedule { slots_per_epoch, first_normal_epoch: reader.u64()?, first_normal_slot: reader.u64()? };
        Ok(Self { creation_time, ticks_per_slot, warmup, epoch_schedule })
    }

    /// True if the bank may belong to this chain. Compares the fields that every version of Agave
    /// compares (`Bank::new_from_snapshot` in the `solana-runtime` crate).
    pub fn matches(&self, bank: &BankFile) -> bool {
        self.creation_time == bank.genesis_creation_time
            && self.ticks_per_slot == bank.ticks_per_slot
            && self.warmup == bank.warmup
            && self.epoch_schedule == bank.epoch_schedule
    }
}

fn skip_accounts<R: BufRead>(reader: &mut FieldReader<R>) -> Result<()> {
    for _ in 0..reader.count("the accounts", 32 + 8 + 8 + 32 + 1 + 8)? {
        reader.skip(32 + 8)?;
        reader.skip_items("the data of an account", 1)?;
        reader.skip(32 + 1 + 8)?;
    }
    Ok(())
}
