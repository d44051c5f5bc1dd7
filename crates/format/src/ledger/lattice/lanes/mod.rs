//! blake3's compression function in lanes: each instruction works on the same word of 8 or 16
//! compressions.
//!
//! A [`Kernel`] hashes several accounts side by side, and sums the 32 blocks of their extended output in
//! each lane. These blocks differ only in their counter, so three columns of the first round are computed
//! once. The macro `kernel!` contains the algorithm; each instruction set defines ten small functions for it.
//! All `unsafe` code of slotpress's hashing is in this directory.

#[macro_use]
mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::LatticeHash;
use crate::ledger::lattice::ELEMENTS;

/// Bytes of a block, the input of one compression.
pub(super) const BLOCK_BYTES: usize = blake3::BLOCK_LEN;

pub(super) const BLOCK_WORDS: usize = 16;

pub(super) const CHUNK_BLOCKS: usize = blake3::CHUNK_LEN / BLOCK_BYTES;

/// Words of an account's extended output: 32 blocks.
const OUTPUT_WORDS: usize = ELEMENTS / 2;

pub(super) const WIDTH_MAX: usize = 16;

/// Initial chaining value (BLAKE3 paper, table 1).
pub(super) const INITIAL: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// Flags of a block (BLAKE3 paper, table 3).
pub(super) mod flags {
    pub const CHUNK_START: u32 = 1;
    pub const CHUNK_END: u32 = 2;
    /// The block holds two chaining values instead of input.
    pub const PARENT: u32 = 4;
    /// The last compression, which computes the output.
    pub const ROOT: u32 = 8;
}

/// Words in lanes, aligned so that no vector crosses a cache line.
#[repr(align(64))]
pub(super) struct AlignedWords<const WORDS: usize>(pub [u32; WORDS]);

impl<const WORDS: usize> AlignedWords<WORDS> {
    pub fn zero() -> Box<Self> {
        Box::new(Self([0; WORDS]))
    }
}

/// Sums of extended outputs in lanes (32 KiB): word `w` of output block `b` of lane `l` is at
/// `(b * 16 + w) * width + l`. Each word holds two elements, each of which wraps separately.
pub(super) type LaneSums = AlignedWords<{ OUTPUT_WORDS * WIDTH_MAX }>;

/// Messages of at most a chunk, in lanes (16 KiB): word `w` of block `b` of lane `l` is at
/// `(b * 16 + w) * width + l`.
pub(super) type LaneWords = AlignedWords<{ CHUNK_BLOCKS * BLOCK_WORDS * WIDTH_MAX }>;

/// Tree nodes with the same number of blocks, one in each lane. A node is a whole account, or the root
/// of a long account.
pub(super) struct Lanes<'a> {
    /// Words laid out as [`LaneWords`] says, for as many blocks as the nodes have. Zeros follow the
    /// end of each message.
    pub words: &'a [u32],
    /// Bytes of each message in its last block.
    pub last_block_bytes: &'a [u32; WIDTH_MAX],
    pub first_flags: u32,
    /// Flags of the last block, without [`flags::ROOT`].
    pub last_flags: u32,
}

/// The hash function for an instruction set.
#[derive(Clone, Copy)]
pub(super) struct Kernel {
    pub width: usize,
    /// Safe to call if the machine supports the instruction set.
    add_lanes: unsafe fn(&Lanes<'_>, &mut [u32]),
}

impl Kernel {
    /// Returns the kernels that this machine supports, the fastest last.
    #[cfg_attr(any(not(target_arch = "x86_64"), miri), allow(unused_mut, reason = "there are no kernels"))]
    pub fn supported() -> Vec<Self> {
        let mut kernels = Vec::new();
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            if is_x86_feature_detected!("avx2") {
                kernels.push(x86::avx2::KERNEL);
            }
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
                kernels.push(x86::avx512::KERNEL);
            }
        }
        kernels
    }

    /// Hashes the accounts in the lanes, and adds their extended outputs to `sums`.
    pub fn add_lanes(&self, lanes: &Lanes<'_>, sums: &mut LaneSums) {
        let sums = &mut sums.0[..OUTPUT_WORDS * self.width];
        // SAFETY: `add_lanes` needs only the instruction set, which `supported` has checked.
        unsafe { (self.add_lanes)(lanes, sums) }
    }

    /// Adds up the sums of the first `lane_count` lanes.
    pub fn sum_lanes(&self, sums: &LaneSums, lane_count: usize) -> LatticeHash {
        let mut hash = LatticeHash::default();
        for (elements, words) in hash.0.as_chunks_mut::<2>().0.iter_mut().zip(sums.0.chunks_exact(self.width)) {
            for word in &words[..lane_count] {
                elements[0] = elements[0].wrapping_add(*word as u16);
                elements[1] = elements[1].wrapping_add((*word >> 16) as u16);
            }
        }
        hash
    }
}
