//! Sums the lattice hashes of many accounts, several at a time.
//!
//! If the hashed message of an account fits into one chunk (1,024 bytes; nearly all accounts), the account
//! waits in a group of accounts with the same number of blocks, until there is an account for each lane.
//! For a longer account, the `blake3` crate hashes both halves of the tree; only the extended output of
//! the root is computed here.

use blake3::hazmat::{ChainingValue, HasherExt, left_subtree_len};
use blake3::{CHUNK_LEN, Hasher};

use super::lanes::{BLOCK_BYTES, BLOCK_WORDS, CHUNK_BLOCKS, Kernel, LaneSums, LaneWords, Lanes, WIDTH_MAX, flags};
use super::{AccountView, LatticeHash};

/// Sums the hashes of accounts. Accounts are added one by one, and hashed when enough are waiting.
/// [`take`](Self::take) returns the sum.
///
/// Uses at most 200 KiB of memory, and 32 KiB more while it hashes a long account.
pub struct LatticeAccumulator {
    /// Sum of the accounts that the `blake3` crate hashed, if there is no kernel.
    sum: LatticeHash,
    lanes: Option<LaneAccumulator>,
}

impl Default for LatticeAccumulator {
    fn default() -> Self {
        Self::with_kernel(Kernel::supported().pop())
    }
}

impl LatticeAccumulator {
    pub(super) fn with_kernel(kernel: Option<Kernel>) -> Self {
        Self { sum: LatticeHash::default(), lanes: kernel.map(LaneAccumulator::new) }
    }

    pub fn add(&mut self, account: &AccountView<'_>) {
        if account.lamports == 0 {
            return;
        }
        match &mut self.lanes {
            Some(lanes) => lanes.add(account),
            None => self.sum.add_account(account),
        }
    }

    /// Returns the sum of the accounts added since the last call.
    pub fn take(&mut self) -> LatticeHash {
        match &mut self.lanes {
            Some(lanes) => lanes.take(),
            None => std::mem::take(&mut self.sum),
        }
    }
}

struct LaneAccumulator {
    kernel: Kernel,
    groups: [AccountGroup; CHUNK_BLOCKS],
    roots: AccountGroup,
    words: Box<LaneWords>,
    sums: Box<LaneSums>,
}

impl LaneAccumulator {
    fn new(kernel: Kernel) -> Self {
        let group = |blocks| AccountGroup::new(blocks, kernel.width, [flags::CHUNK_START, flags::CHUNK_END]);
        Self {
            groups: std::array::from_fn(|index| group(index + 1)),
            roots: AccountGroup::new(1, kernel.width, [flags::PARENT, 0]),
            kernel,
            words: LaneWords::zero(),
            sums: LaneSums::zero(),
        }
    }

    fn add(&mut self, account: &AccountView<'_>) {
        let length = account.message_bytes();
        let group = if length <= CHUNK_LEN {
            let group = &mut self.groups[length.div_ceil(BLOCK_BYTES) - 1];
            group.push(length, |message| account.copy_message(message));
            group
        } else {
            let halves = hash_halves(account);
            self.roots.push(BLOCK_BYTES, |message| message.copy_from_slice(halves.as_flattened()));
            &mut self.roots
        };
        if group.count == self.kernel.width {
            group.flush(&self.kernel, &mut self.words, &mut self.sums);
        }
    }

    fn take(&mut self) -> LatticeHash {
        let mut sum = self.kernel.sum_lanes(&self.sums, self.kernel.width);
        self.sums.0.fill(0);
        for group in self.groups.iter_mut().chain([&mut self.roots]).filter(|group| group.count > 0) {
            let count = group.count;
            group.flush(&self.kernel, &mut self.words, &mut self.sums);
            sum.add(&self.kernel.sum_lanes(&self.sums, count));
            self.sums.0.fill(0);
        }
        sum
    }
}

struct AccountGroup {
    blocks: usize,
    width: usize,
    /// Flags of the first and of the last block.
    flags: [u32; 2],
    /// Adjacent messages, each padded with zeros to whole blocks. Empty before the first account. All
    /// messages are moved into the lanes together: moving one alone would touch a cache line for each word.
    messages: Vec<u8>,
    last_block_bytes: [u32; WIDTH_MAX],
    count: usize,
}

impl AccountGroup {
    fn new(blocks: usize, width: usize, flags: [u32; 2]) -> Self {
        Self { blocks, width, flags, messages: Vec::new(), last_block_bytes: [0; WIDTH_MAX], count: 0 }
    }

    /// Adds an account whose message has `length` bytes. `fill` writes the message.
    fn push(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) {
        let message_bytes = self.blocks * BLOCK_BYTES;
        self.messages.resize(message_bytes * self.width, 0);
        let message = &mut self.messages[self.count * message_bytes..][..message_bytes];
        let (message, rest) = message.split_at_mut(length);
        fill(message);
        rest.fill(0);
        self.last_block_bytes[self.count] = (length - (self.blocks - 1) * BLOCK_BYTES) as u32;
        self.count += 1;
    }

    fn flush(&mut self, kernel: &Kernel, words: &mut LaneWords, sums: &mut LaneSums) {
        let message_bytes = self.blocks * BLOCK_BYTES;
        let words = &mut words.0[..self.blocks * BLOCK_WORDS * self.width];
        for (lane, message) in self.messages.chunks_exact(message_bytes).take(self.count).enumerate() {
            for (lanes, bytes) in words.chunks_exact_mut(self.width).zip(message.as_chunks::<4>().0) {
                lanes[lane] = u32::from_le_bytes(*bytes);
            }
        }
        let last_block_bytes = &self.last_block_bytes;
        let [first_flags, last_flags] = self.flags;
        kernel.add_lanes(&Lanes { words, last_block_bytes, first_flags, last_flags }, sums);
        self.count = 0;
    }
}

/// Hashes an account of more than one chunk, except for the root of its tree. Returns the chaining values
/// of both halves of the tree, which are the input of the root.
fn hash_halves(account: &AccountView<'_>) -> [ChainingValue; 2] {
    /// Longest message that is first copied into one buffer. The crate fills its lanes only from pieces
    /// that start at a chunk boundary. In a longer message, the part before that boundary hardly matters.
    const COPIED_BYTES_MAX: usize = 32 * 1024;
    let length = account.message_bytes();
    if length > COPIED_BYTES_MAX {
        return hash_halves_of_pieces(&[&account.prefix(), account.data, &account.suffix()], length);
    }
    let mut message = vec![0; length];
    account.copy_message(&mut message);
    hash_halves_of_pieces(&[&message], length)
}

fn hash_halves_of_pieces(pieces: &[&[u8]], length: usize) -> [ChainingValue; 2] {
    let left_bytes = left_subtree_len(length as u64) as usize;
    let mut left = Hasher::new();
    let mut right = Hasher::new();
    right.set_input_offset(left_bytes as u64);
    let mut missing_left_bytes = left_bytes;
    for piece in pieces {
        let (left_part, right_part) = piece.split_at(missing_left_bytes.min(piece.len()));
        left.update(left_part);
        right.update(right_part);
        missing_left_bytes -= left_part.len();
    }
    [left.finalize_non_root(), right.finalize_non_root()]
}
