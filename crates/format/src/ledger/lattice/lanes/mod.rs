//! blake3's compression in lanes: one instruction works on the same word of 4, 8 or 16 compressions.
//!
//! A [`Kernel`] hashes several accounts side by side, and adds up the 32 blocks of their extended output for each lane. These
//! blocks differ in their counter only, so most of their first round is computed once. The algorithm is `kernel!`, once;
//! each instruction set gives it ten small functions. All `unsafe` of slotpress's hashing is in this folder.

#[macro_use]
mod kernel;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::LatticeHash;
use crate::ledger::lattice::ELEMENTS;

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

/// Words in lanes, aligned so that a vector is never on two cache lines.
#[repr(align(64))]
pub(super) struct Aligned<const WORDS: usize>(pub [u32; WORDS]);

impl<const WORDS: usize> Aligned<WORDS> {
    /// Zeros.
    pub fn zero() -> Box<Self> {
        Box::new(Self([0; WORDS]))
    }
}

/// Sums of extended outputs, by lane: word `w` of output block `b` of lane `l` is at `(b * 16 + w) * width + l`. Each word
/// is two elements, which wrap on their own. 32 KiB.
pub(super) type LaneSums = Aligned<{ OUTPUT_WORDS * WIDTH_MAX }>;

/// Messages of at most a chunk in lanes: word `w` of block `b` of lane `l` is at `(b * 16 + w) * width + l`. 16 KiB.
pub(super) type LaneWords = Aligned<{ CHUNK_BLOCKS * BLOCK_WORDS * WIDTH_MAX }>;

/// Nodes of one number of blocks, each in a lane of its own: all of an account's tree, or its root.
pub(super) struct Lanes<'a> {
    /// As in [`LaneWords`], as many as there are; zeros follow the end of each.
    pub words: &'a [u32],
    /// How much of its last block is input, in bytes.
    pub last_lengths: &'a [u32; WIDTH_MAX],
    /// What the first block is.
    pub first_flags: u32,
    /// What the last block is, [`flags::ROOT`] apart.
    pub last_flags: u32,
}

/// The functions of one instruction set that this machine has.
#[derive(Clone, Copy)]
pub(super) struct Kernel {
    /// Lanes.
    pub width: usize,
    /// Safe to call where the instruction set is there.
    add_lanes: unsafe fn(&Lanes<'_>, &mut [u32]),
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
    pub fn add_lanes(&self, lanes: &Lanes<'_>, sums: &mut LaneSums) {
        let sums = &mut sums.0[..OUTPUT_WORDS * self.width];
        // SAFETY: its only need is the instruction set, and `new` has found that.
        unsafe { (self.add_lanes)(lanes, sums) }
    }

    /// The sum of the first `used` lanes.
    pub fn sum_of_lanes(&self, sums: &LaneSums, used: usize) -> LatticeHash {
        let mut hash = LatticeHash::zero();
        for (elements, words) in hash.0.as_chunks_mut::<2>().0.iter_mut().zip(sums.0.chunks_exact(self.width)) {
            for word in &words[..used] {
                elements[0] = elements[0].wrapping_add(*word as u16);
                elements[1] = elements[1].wrapping_add((*word >> 16) as u16);
            }
        }
        hash
    }
}
