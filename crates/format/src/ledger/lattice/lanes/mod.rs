//! blake3's compression in lanes: one instruction works on the same word of 4, 8 or 16 compressions.
//!
//! A [`Kernel`] hashes several accounts of up to one chunk side by side, and computes the 32 blocks of an account's
//! extended output side by side, since they differ in their counter only. The algorithm is `kernel!`, once; each
//! instruction set gives it ten small functions. All `unsafe` of slotpress's hashing is in this folder.

#[macro_use]
mod kernel;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::ledger::lattice::{ELEMENTS, LatticeHash};

/// Bytes of a block, which one compression takes in.
pub(super) const BLOCK_BYTES: usize = blake3::BLOCK_LEN;

/// Words of a block.
pub(super) const BLOCK_WORDS: usize = 16;

/// Blocks of a chunk.
pub(super) const CHUNK_BLOCKS: usize = blake3::CHUNK_LEN / BLOCK_BYTES;

/// Words of extended output that an account adds: 32 blocks.
const OUTPUT_WORDS: usize = ELEMENTS / 2;

/// The most lanes that a kernel has.
pub(super) const WIDTH_MAX: usize = 16;

/// Where chaining begins (BLAKE3 paper, table 1).
pub(super) const INITIAL: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// What a block is, told to its compression (BLAKE3 paper, table 3).
pub(super) mod flags {
    /// The first of a chunk.
    pub const CHUNK_START: u32 = 1;
    /// The last of a chunk.
    pub const CHUNK_END: u32 = 2;
    /// Two chaining values instead of input.
    pub const PARENT: u32 = 4;
    /// The last compression of all, which gives the output.
    pub const ROOT: u32 = 8;
}

/// Which code hashes accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The `blake3` crate alone: the reference, and the fallback.
    Crate,
    /// Four lanes; every x86_64 has it.
    Sse2,
    /// Eight lanes.
    Avx2,
    /// Sixteen lanes.
    Avx512,
    /// Four lanes; every aarch64 has it.
    Neon,
}

impl Backend {
    /// All of them, the quickest last.
    pub const ALL: [Self; 5] = [Self::Crate, Self::Neon, Self::Sse2, Self::Avx2, Self::Avx512];

    /// The quickest that this machine has.
    pub fn best() -> Self {
        let has = |backend: &&Self| backend.is_available();
        Self::ALL.iter().rev().find(has).copied().unwrap_or(Self::Crate)
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        self == Self::Crate || Kernel::new(self).is_some()
    }
}

/// The node at the root of an account's hash: all that its extended output depends on.
pub(super) struct Root {
    /// What the blocks before left behind.
    pub chaining: [u32; 8],
    /// The last block.
    pub block: [u32; BLOCK_WORDS],
    /// How much of it is input, in bytes.
    pub length: u32,
    /// What it is, [`flags::ROOT`] apart.
    pub flags: u32,
}

/// Sums of extended outputs, in the order in which the lanes hold them: word `w` of output block `g * width + l` is
/// at `(g * 16 + w) * width + l`. Each word is two elements, which wrap on their own.
#[repr(align(64))] // A vector is never on two cache lines.
pub(super) struct LaneSums([u32; OUTPUT_WORDS]);

impl LaneSums {
    /// No accounts.
    pub fn zero() -> Self {
        Self([0; OUTPUT_WORDS])
    }
}

/// Accounts of one number of blocks, each in a lane of its own.
pub(super) struct Lanes<'a> {
    /// Word `w` of block `b` of the account in lane `l`, at `(b * 16 + w) * width + l`; zeros follow each account's
    /// end. At most a chunk.
    pub words: &'a [u32],
    /// How much of its last block is input, in bytes.
    pub last_lengths: &'a [u32; WIDTH_MAX],
    /// Lanes that hold an account; the others hold anything.
    pub used: usize,
}

/// The functions of one instruction set that this machine has.
#[derive(Clone, Copy)]
pub(super) struct Kernel {
    /// Lanes.
    pub width: usize,
    /// Safe to call where the instruction set is there.
    add_chunks: unsafe fn(&Lanes<'_>, &mut [u32; OUTPUT_WORDS]),
    /// Safe to call where the instruction set is there.
    add_root: unsafe fn(&Root, &mut [u32; OUTPUT_WORDS]),
}

impl Kernel {
    /// That of a backend; none where this machine does not have it.
    pub fn new(backend: Backend) -> Option<Self> {
        match backend {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Backend::Sse2 if is_x86_feature_detected!("sse2") => Some(x86::sse2::KERNEL),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Backend::Avx2 if is_x86_feature_detected!("avx2") => Some(x86::avx2::KERNEL),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Backend::Avx512 if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") => {
                Some(x86::avx512::KERNEL)
            }
            #[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri)))]
            Backend::Neon if std::arch::is_aarch64_feature_detected!("neon") => Some(neon::KERNEL),
            _ => None,
        }
    }

    /// Hashes accounts side by side, and adds their extended outputs.
    pub fn add_chunks(&self, lanes: &Lanes<'_>, sums: &mut LaneSums) {
        // SAFETY: its only need is the instruction set, and `new` has found that.
        unsafe { (self.add_chunks)(lanes, &mut sums.0) }
    }

    /// Adds the extended output of one root.
    pub fn add_root(&self, root: &Root, sums: &mut LaneSums) {
        // SAFETY: its only need is the instruction set, and `new` has found that.
        unsafe { (self.add_root)(root, &mut sums.0) }
    }

    /// Sums in the order of a lattice hash.
    pub fn in_order(&self, sums: &LaneSums) -> LatticeHash {
        let mut hash = LatticeHash::zero();
        for (at, sum) in sums.0.iter().enumerate() {
            let (word, lane) = (at / self.width, at % self.width);
            let block = word / BLOCK_WORDS * self.width + lane;
            let element = 2 * (block * BLOCK_WORDS + word % BLOCK_WORDS);
            hash.0[element] = *sum as u16;
            hash.0[element + 1] = (*sum >> 16) as u16;
        }
        hash
    }
}
