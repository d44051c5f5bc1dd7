//! Adding up many accounts, several at a time.
//!
//! An account of up to one chunk (1,024 bytes with what its hash covers beside the data: nearly all of them) waits in a
//! group of accounts with as many blocks as it has, until there is one for each lane. Of a longer one the crate hashes
//! both halves of the tree, in lanes of its own; only the extended output of the root is left to do.

use {
    super::{
        AccountView, LatticeHash,
        lanes::{
            BLOCK_BYTES, BLOCK_WORDS, Backend, CHUNK_BLOCKS, INITIAL, Kernel, LaneSums, Lanes, Root, WIDTH_MAX, flags,
        },
    },
    blake3::{
        CHUNK_LEN, Hasher,
        hazmat::{ChainingValue, HasherExt, left_subtree_len},
    },
};

/// A sum over accounts in the making. Accounts are added one by one, and hashed whenever enough of them wait;
/// [`take`](Self::take) gives their sum, to be added to or subtracted from another.
///
/// Holds at most 170 KiB, and 32 KiB more while it hashes a long account.
pub struct LatticeAccumulator {
    /// What was added without lanes.
    sum: LatticeHash,
    lanes: Option<LaneAccumulator>,
}

impl Default for LatticeAccumulator {
    fn default() -> Self {
        Self::new()
    }
}

impl LatticeAccumulator {
    /// No accounts yet; hashes with the quickest code that this machine has.
    pub fn new() -> Self {
        Self { sum: LatticeHash::zero(), lanes: Kernel::new(Backend::best()).map(LaneAccumulator::new) }
    }

    /// The same with the given code; none where this machine does not have it. For tests and measurements.
    pub fn with_backend(backend: Backend) -> Option<Self> {
        let lanes = Kernel::new(backend).map(LaneAccumulator::new);
        (lanes.is_some() || backend == Backend::Crate).then(|| Self { sum: LatticeHash::zero(), lanes })
    }

    /// Adds an account. One without lamports contributes nothing.
    pub fn add(&mut self, account: &AccountView<'_>) {
        match &mut self.lanes {
            _ if account.lamports == 0 => {}
            Some(lanes) => lanes.add(account),
            None => self.sum.add_account(account),
        }
    }

    /// The sum of all accounts that were added since the last time.
    pub fn take(&mut self) -> LatticeHash {
        match &mut self.lanes {
            Some(lanes) => lanes.take(),
            None => std::mem::take(&mut self.sum),
        }
    }
}

struct LaneAccumulator {
    kernel: Kernel,
    /// Accounts that wait, by their number of blocks less one.
    groups: [Group; CHUNK_BLOCKS],
    /// The words of a group that is hashed, as [`Lanes::words`].
    words: Vec<u32>,
    sums: LaneSums,
}

impl LaneAccumulator {
    fn new(kernel: Kernel) -> Self {
        Self { kernel, groups: Default::default(), words: Vec::new(), sums: LaneSums::zero() }
    }

    fn add(&mut self, account: &AccountView<'_>) {
        let length = account.message_bytes();
        if length > CHUNK_LEN {
            self.kernel.add_root(&root_of_long(account), &mut self.sums);
            return;
        }
        let blocks = length.div_ceil(BLOCK_BYTES);
        let group = &mut self.groups[blocks - 1];
        let width = self.kernel.width;
        group.push(account, length, blocks, width);
        if group.used == width {
            group.flush(&self.kernel, &mut self.words, &mut self.sums);
        }
    }

    fn take(&mut self) -> LatticeHash {
        for group in &mut self.groups {
            group.flush(&self.kernel, &mut self.words, &mut self.sums);
        }
        let sums = std::mem::replace(&mut self.sums, LaneSums::zero());
        self.kernel.in_order(&sums)
    }
}

/// Accounts of one number of blocks, waiting.
#[derive(Default)]
struct Group {
    /// One message after the other, each with zeros up to the end of its last block; empty before the first account. They
    /// are put into lanes when all are there: each account in turn would touch a cache line for every word.
    messages: Vec<u8>,
    last_lengths: [u32; WIDTH_MAX],
    used: usize,
}

impl Group {
    /// Takes an account whose message has so many bytes, in so many blocks.
    fn push(&mut self, account: &AccountView<'_>, length: usize, blocks: usize, width: usize) {
        let block_bytes = blocks * BLOCK_BYTES;
        self.messages.resize(block_bytes * width, 0);
        let message = &mut self.messages[self.used * block_bytes..][..block_bytes];
        let (message, rest) = message.split_at_mut(length);
        account.copy_message(message);
        rest.fill(0);
        self.last_lengths[self.used] = (length - (blocks - 1) * BLOCK_BYTES) as u32;
        self.used += 1;
    }

    fn flush(&mut self, kernel: &Kernel, words: &mut Vec<u32>, sums: &mut LaneSums) {
        if self.used == 0 {
            return;
        }
        let (width, message_bytes) = (kernel.width, self.messages.len() / kernel.width);
        words.resize(self.messages.len() / size_of::<u32>(), 0);
        for (lane, message) in self.messages.chunks_exact(message_bytes).take(self.used).enumerate() {
            for (words, bytes) in words.chunks_exact_mut(width).zip(message.as_chunks::<4>().0) {
                words[lane] = u32::from_le_bytes(*bytes);
            }
        }
        kernel.add_chunks(&Lanes { words, last_lengths: &self.last_lengths, used: self.used }, sums);
        self.used = 0;
    }
}

/// The root of an account of more than one chunk: the chaining values of both halves of its tree.
fn root_of_long(account: &AccountView<'_>) -> Root {
    /// Up to here a message is put together first: the crate fills its lanes only from pieces that begin with a chunk.
    /// Above, it comes to pieces of as many chunks as it has lanes after a small part of the whole.
    const TOGETHER_BYTES_MAX: usize = 32 * 1024;
    let length = account.message_bytes();
    match length <= TOGETHER_BYTES_MAX {
        true => {
            let mut message = vec![0; length];
            account.copy_message(&mut message);
            root_of_pieces(&[&message], length)
        }
        false => root_of_pieces(&[&account.before(), account.data, &account.behind()], length),
    }
}

fn root_of_pieces(pieces: &[&[u8]], length: usize) -> Root {
    let left_bytes = left_subtree_len(length as u64) as usize;
    let (mut left, mut right) = (Hasher::new(), Hasher::new());
    right.set_input_offset(left_bytes as u64);
    let mut left_over = left_bytes;
    for piece in pieces {
        let (to_left, to_right) = piece.split_at(left_over.min(piece.len()));
        left.update(to_left);
        right.update(to_right);
        left_over -= to_left.len();
    }
    let halves: [ChainingValue; 2] = [left.finalize_non_root(), right.finalize_non_root()];
    let mut block = [0; BLOCK_WORDS];
    for (word, bytes) in block.iter_mut().zip(halves.as_flattened().as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    Root { chaining: INITIAL, block, length: BLOCK_BYTES as u32, flags: flags::PARENT }
}
