//! The bank file and the status cache of a synthetic ledger (format page, sections "The bank file").
//!
//! A sample of mainnet's, by size: mainnet's bank file of 1.1 GB belongs to 450 GB of storages, and is nearly all
//! stakes, once for the bank itself and once for each of six epochs:
//!
//! | part | share of bytes | what the bytes are |
//! |---|---|---|
//! | delegations | 80 % | stake account (random), voter (one of 1,000, few of them popular), stake, epochs, rate, credits |
//! | vote accounts | 16 % | 3,762 bytes: votes, credits of 64 epochs, a buffer of former voters (zeros) |
//! | nodes and voters | 1 % | addresses |
//! | storage map | 1 % | slot, id, length of each storage |
//! | blockhashes | the rest | 301 of 56 bytes, whatever the ledger's size |
//!
//! On mainnet the same delegation comes again in the next epoch's stakes some 150 MB later, out of reach of every
//! level that is used. A small file has no such distance: there, each epoch holds a sample of its own.

use {
    super::{
        keys, layout,
        rng::{Rng, mix},
        states,
    },
    crate::ledger::lattice::LatticeHash,
    crate::synth::accounts::Universe,
    std::io::{Result, Write},
};

/// What differs between the bank files of one ledger.
pub struct Bank<'a> {
    /// The accounts.
    pub universe: &'a Universe,
    /// The slot.
    pub slot: u64,
    /// The slot before.
    pub parent_slot: u64,
    /// Lamports in existence.
    pub capitalization: u64,
    /// Bytes of data of all accounts.
    pub data_bytes: u64,
    /// The sum over all accounts.
    pub lattice: &'a LatticeHash,
    /// Bytes of the storages, which the stakes are scaled to.
    pub storage_bytes: u64,
}

/// Epoch stakes that a bank keeps.
const EPOCHS: u64 = 6;
const BLOCKHASHES: u64 = 301;
/// A bank file has at least this many bytes, or a sixteenth of its storages: below, blockhashes would outweigh stakes.
const BANK_BYTES_MIN: u64 = 400 * 1024;
/// Storages weigh that many times the bank file on mainnet.
const STORAGES_PER_BANK: u64 = 409;
const DELEGATION_BYTES: u64 = 104;
const VOTE_ACCOUNT_BYTES: u64 = 3762 + 97;
/// Stakes choose among 2^10 voters on mainnet. A smaller sample of the stakes has fewer, so that a voter comes again
/// about as often.
fn voter_bits(delegations: u64) -> u64 {
    match delegations {
        0..1024 => 7,
        1024..2048 => 8,
        2048..4096 => 9,
        _ => 10,
    }
}

/// Samples with fewer delegations than this have the same voters in every epoch: within one sample, none of them would
/// come again at a distance.
const DELEGATIONS_SMALL: u64 = 2048;

const PURPOSE_BANK: u64 = 301;
const PURPOSE_STAKES: u64 = 302;

struct Out<W>(W);

impl<W: Write> Out<W> {
    fn u64s(&mut self, fields: &[u64]) -> Result<()> {
        fields.iter().try_for_each(|field| self.0.write_all(&field.to_le_bytes()))
    }

    fn f64s(&mut self, fields: &[f64]) -> Result<()> {
        fields.iter().try_for_each(|field| self.0.write_all(&field.to_le_bytes()))
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes)
    }
}

impl Bank<'_> {
    /// Writes the bank file. `storage_map` gives slot, id and length of every storage.
    pub fn write(&self, to: impl Write, storage_map: impl ExactSizeIterator<Item = (u64, u32, u64)>) -> Result<()> {
        let mut out = Out(to);
        let rng = &mut Rng::new(self.universe.number(PURPOSE_BANK, self.slot));
        let epoch = self.slot / layout::SLOTS_PER_EPOCH;
        let storage_count = storage_map.len() as u64;
        let height = self.slot - 21_600_000;
        let transactions = 400_000_000_000 + rng.below(1 << 32);
        self.write_blockhashes(&mut out, height)?;
        out.u64s(&[0])?; // ancestors
        out.bytes(&rng.key())?; // hash
        out.bytes(&rng.key())?; // parent hash
        out.u64s(&[self.parent_slot, 0])?; // no hard forks
        out.u64s(&[transactions, (self.slot + 1) * 64, 2_500, self.capitalization, (self.slot + 1) * 64])?;
        out.bytes(&[1])?;
        out.u64s(&[62_500, 64, 400_000_000, 0])?; // hashes per tick, ticks per slot, ns per slot (16 bytes)
        out.u64s(&[1_584_368_940])?; // genesis
        out.f64s(&[78_892_314.984])?; // slots per year
        out.u64s(&[self.data_bytes, self.slot, epoch, height])?;
        out.bytes(&rng.key())?; // leader
        out.u64s(&[0, 0])?;
        out.u64s(&[10_000, 20_000, 5_000, 100_000])?; // fee rate governor
        out.bytes(&[50])?;
        out.u64s(&[0])?;
        out.u64s(&[epoch])?; // rent collector
        write_epoch_schedule(&mut out)?;
        out.f64s(&[78_892_314.984])?;
        out.u64s(&[3_480])?;
        out.f64s(&[2.0])?;
        out.bytes(&[50])?;
        write_epoch_schedule(&mut out)?;
        out.f64s(&[0.08, 0.015, 0.15, 0.05, 7.0, 0.0])?; // inflation
        let scale = self.scale(storage_count);
        self.write_stakes(&mut out, epoch, scale, false)?;
        out.u64s(&[0, 0, 0, 0])?;
        out.bytes(&[1])?; // is_delta

        out.u64s(&[storage_count])?;
        for (slot, id, length) in storage_map {
            out.u64s(&[slot, 1, u64::from(id), length])?;
        }
        out.u64s(&[0, self.slot])?;
        out.bytes(&[0; 64])?;
        out.u64s(&[0; 5])?;
        out.u64s(&[0, 0])?;

        out.u64s(&[5_000])?;
        out.bytes(&[0, 0])?; // no incremental persistence, no epoch accounts hash
        out.u64s(&[EPOCHS])?;
        for back in 0..EPOCHS {
            self.write_epoch_stakes(&mut out, epoch + 2 + back - EPOCHS, scale)?;
        }
        out.bytes(&[1])?;
        out.bytes(&self.lattice.to_bytes())?;
        out.bytes(&[1])?;
        out.bytes(&rng.key())?; // block id
        out.0.flush()
    }

    /// Vote accounts and delegations of each of the seven stakes.
    fn scale(&self, storage_count: u64) -> (u64, u64) {
        let whole = (self.storage_bytes / STORAGES_PER_BANK).max(BANK_BYTES_MIN.min(self.storage_bytes / 16));
        let fixed = BLOCKHASHES * 56 + storage_count * 32 + 4096;
        let each = whole.saturating_sub(fixed).max(whole / 4) / (EPOCHS + 1);
        let voters = (each / 6 / VOTE_ACCOUNT_BYTES).clamp(1, 2_000);
        // A voter brings entries of nodes and authorized voters in the epochs.
        let delegations = each.saturating_sub(voters * (VOTE_ACCOUNT_BYTES + 144)) / DELEGATION_BYTES;
        (voters, delegations.max(1))
    }

    fn write_blockhashes<W: Write>(&self, out: &mut Out<W>, height: u64) -> Result<()> {
        let hash = |at| Rng::new(self.universe.number(keys::BLOCKHASHES, at)).key();
        out.u64s(&[height])?;
        out.bytes(&[1])?;
        out.bytes(&hash(height))?;
        out.u64s(&[BLOCKHASHES])?;
        for back in 0..BLOCKHASHES {
            // A hash map's order.
            let at = height - (back * 97) % BLOCKHASHES;
            out.bytes(&hash(at))?;
            out.u64s(&[5_000, at, layout::UNIX_TIME * 1000 + (at & 0xff_ffff) * 400 + mix(at, 1) % 64])?;
        }
        out.u64s(&[300])
    }

    /// A vote account's address, in a sample of the stakes.
    fn voter(&self, sample: u64, delegations: u64, voter: u64) -> [u8; 32] {
        let sample = if delegations < DELEGATIONS_SMALL { 0 } else { sample };
        self.universe.shared_key(keys::VOTERS, sample << 16 | voter)
    }

    fn write_stakes<W: Write>(
        &self,
        out: &mut Out<W>,
        epoch: u64,
        (voters, delegations): (u64, u64),
        with_credits: bool,
    ) -> Result<()> {
        // The bank's own stakes are a sample apart from the same epoch's among the epoch stakes.
        let sample = if with_credits { epoch } else { epoch + (1 << 20) };
        let mut data = Vec::with_capacity(states::VOTE_BYTES as usize);
        out.u64s(&[voters])?;
        for voter in 0..voters {
            let mut fixed = Rng::new(mix(self.universe.number(PURPOSE_STAKES, sample), voter));
            let mut changing = fixed.clone();
            changing.next();
            data.clear();
            states::vote_state(&mut fixed, &mut changing, epoch, &mut data);
            data.resize(states::VOTE_BYTES as usize, 0);
            out.bytes(&self.voter(sample, delegations, voter))?;
            out.u64s(&[changing.log_uniform(50), changing.log_uniform(36), states::VOTE_BYTES])?;
            out.bytes(&data)?;
            out.bytes(&keys::VOTE)?;
            out.bytes(&[0])?;
            out.u64s(&[u64::MAX])?;
        }
        let mut rng = Rng::new(self.universe.number(PURPOSE_STAKES, sample + (1 << 32)));
        let voter_bits = voter_bits(delegations);
        out.u64s(&[delegations])?;
        for _ in 0..delegations {
            let stake = rng.key();
            let voter = if rng.permille(400) { rng.zipf(4) } else { rng.zipf(voter_bits) };
            out.bytes(&stake)?;
            out.bytes(&self.voter(sample, delegations, voter))?;
            let activation = epoch - rng.log_uniform(9);
            let deactivation = if rng.permille(930) { u64::MAX } else { epoch - rng.log_uniform(6) };
            // Half of all stakes are whole numbers of SOL: pools and wallets split them so.
            let lamports = if rng.permille(670) { 1_000_000_000 * rng.log_uniform(12) } else { rng.log_uniform(41) };
            out.u64s(&[lamports, activation, deactivation])?;
            out.f64s(&[0.25])?;
            if with_credits {
                // Credits are the voter's, as of the stake's last reward: mostly the same for all its stakes.
                let last = if rng.permille(850) { epoch } else { activation };
                out.u64s(&[mix(voter, last) >> 35])?;
            }
        }
        out.u64s(&[0, epoch])?;
        let history = (delegations / 2_000).clamp(1, 512);
        out.u64s(&[history])?;
        for back in 0..history {
            let mut of = Rng::new(self.universe.number(PURPOSE_STAKES, (1 << 33) + epoch - back));
            out.u64s(&[epoch - back, 380_000_000_000_000_000 + of.below(1 << 50)])?;
            out.u64s(&[of.below(1 << 52), of.below(1 << 52)])?;
        }
        Ok(())
    }

    fn write_epoch_stakes<W: Write>(&self, out: &mut Out<W>, epoch: u64, scale: (u64, u64)) -> Result<()> {
        out.u64s(&[epoch])?;
        out.bytes(&[0; 4])?;
        self.write_stakes(out, epoch, scale, true)?;
        out.u64s(&[380_000_000_000_000_000 + epoch])?;
        let (voters, delegations) = scale;
        let node = |voter| Rng::new(mix(self.universe.number(PURPOSE_STAKES, (1 << 34) + epoch), voter)).key();
        out.u64s(&[voters])?;
        for voter in 0..voters {
            out.bytes(&node(voter))?;
            out.u64s(&[1])?;
            out.bytes(&self.voter(epoch, delegations, voter))?;
            out.u64s(&[Rng::new(mix(epoch, voter)).log_uniform(50)])?;
        }
        out.u64s(&[voters])?;
        for voter in 0..voters {
            out.bytes(&self.voter(epoch, delegations, voter))?;
            out.bytes(&node(voter))?;
        }
        Ok(())
    }
}

fn write_epoch_schedule<W: Write>(out: &mut Out<W>) -> Result<()> {
    out.u64s(&[layout::SLOTS_PER_EPOCH, layout::SLOTS_PER_EPOCH])?;
    out.bytes(&[0])?;
    out.u64s(&[0, 0])
}

/// Slots that the status cache remembers.
const STATUS_SLOTS: u64 = 300;

/// Writes the status cache: for each of the last 300 slots, the results of its transactions. Mainnet's hold some 2,000
/// per slot beside 450 GB of storages; smaller ledgers fewer.
pub fn write_status_cache(universe: &Universe, slot: u64, storage_bytes: u64, to: impl Write) -> Result<()> {
    let mut out = Out(to);
    let per_slot = (storage_bytes / (450_000_000_000 / 2_000)).clamp(1, 2_000);
    out.u64s(&[STATUS_SLOTS])?;
    for back in 0..STATUS_SLOTS {
        let slot = slot - back;
        let mut rng = Rng::new(universe.number(PURPOSE_BANK, slot | 1 << 40));
        out.u64s(&[slot])?;
        out.bytes(&[1])?;
        // Transactions name one of the last blockhashes; most of them the same few.
        let blockhashes = 1 + rng.below(per_slot.min(40));
        out.u64s(&[blockhashes])?;
        for which in 0..blockhashes {
            let results = per_slot / blockhashes + u64::from(which < per_slot % blockhashes);
            let recent = slot - 21_600_000 - which - rng.below(3);
            out.bytes(&Rng::new(universe.number(keys::BLOCKHASHES, recent)).key())?;
            out.u64s(&[rng.below(12), results])?;
            for _ in 0..results {
                let mut key = [0; 20];
                rng.fill(&mut key);
                out.bytes(&key)?;
                if rng.permille(900) {
                    out.bytes(&[0; 4])?;
                } else {
                    // Err(InstructionError(index, Custom(code)))
                    out.bytes(&[1, 0, 0, 0, 8, 0, 0, 0])?;
                    out.bytes(&[2 + rng.below(4) as u8, 25, 0, 0, 0])?;
                    out.bytes(&(6_000 + rng.below(64) as u32).to_le_bytes())?;
                }
            }
        }
    }
    out.0.flush()
}
