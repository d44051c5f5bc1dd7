//! The hash algorithm, for vectors of any width (BLAKE3 paper, sections 2.2 to 2.6).
//!
//! The algorithm is a macro, not a trait: a function with a `target_feature` can be inlined, and is safe to
//! call, only in functions with the same feature.

/// Computes quarters of a round side by side. Each quarter mixes two message words into four words of
/// the state.
macro_rules! quarter_rounds {
    ($v:ident, $m:ident, $(($a:literal $b:literal $c:literal $d:literal, $x:literal $y:literal))*) => {
        $($v[$a] = add(add($v[$a], load(&$m[$x])), $v[$b]);)*
        $($v[$d] = rotate_16(xor($v[$d], $v[$a]));)*
        $($v[$c] = add($v[$c], $v[$d]);)*
        $($v[$b] = rotate_12(xor($v[$b], $v[$c]));)*
        $($v[$a] = add(add($v[$a], load(&$m[$y])), $v[$b]);)*
        $($v[$d] = rotate_8(xor($v[$d], $v[$a]));)*
        $($v[$c] = add($v[$c], $v[$d]);)*
        $($v[$b] = rotate_7(xor($v[$b], $v[$c]));)*
    };
}

/// Computes the second half of a round: mixes the diagonals of the state, with the message words in the
/// given order.
macro_rules! diagonals {
    ($v:ident, $m:ident, $a:literal $b:literal $c:literal $d:literal $e:literal $f:literal $g:literal $h:literal) => {
        quarter_rounds!($v, $m, (0 5 10 15, $a $b) (1 6 11 12, $c $d) (2 7 8 13, $e $f) (3 4 9 14, $g $h));
    };
}

macro_rules! round {
    ($v:ident, $m:ident, $a:literal $b:literal $c:literal $d:literal $e:literal $f:literal $g:literal $h:literal
        $($diagonals:literal)*) => {
        quarter_rounds!($v, $m, (0 4 8 12, $a $b) (1 5 9 13, $c $d) (2 6 10 14, $e $f) (3 7 11 15, $g $h));
        diagonals!($v, $m, $($diagonals)*);
    };
}

/// Computes the seven rounds, except for the columns of the first round. It is a macro, so that the
/// caller keeps the state in registers.
macro_rules! rounds_after_first_columns {
    ($v:ident, $m:ident) => {
        diagonals!($v, $m, 8 9 10 11 12 13 14 15);
        round!($v, $m, 2 6 3 10 7 0 4 13 1 11 12 5 9 14 15 8);
        round!($v, $m, 3 4 10 12 13 2 7 14 6 5 9 0 11 15 8 1);
        round!($v, $m, 10 7 12 9 14 3 13 15 4 0 11 2 5 8 1 6);
        round!($v, $m, 12 13 9 11 15 10 14 8 7 2 5 3 0 1 6 4);
        round!($v, $m, 9 14 11 5 8 12 15 1 13 3 0 10 2 6 4 7);
        round!($v, $m, 11 15 5 0 1 9 8 6 14 10 2 12 3 4 7 13);
    };
}

/// Defines `KERNEL` for one kind of vector. The caller must define `splat`, `load`, `store`, `xor`,
/// rotations to the right, `add` for 32-bit words and `add_16` for 16-bit words.
macro_rules! kernel {
    ($feature:literal, $vector:ty, $width:literal) => {
        use crate::ledger::lattice::lanes::{BLOCK_WORDS, INITIAL, Kernel, Lanes, flags};

        pub(in crate::ledger::lattice::lanes) const KERNEL: Kernel = Kernel { width: $width, add_lanes };

        type Block = [[u32; $width]; BLOCK_WORDS];

        #[inline]
        #[target_feature(enable = $feature)]
        fn state(chaining: &[$vector; 8], length: $vector, flags: u32) -> [$vector; 16] {
            let [a, b, c, d, e, f, g, h] = *chaining;
            let [i, j, k, l] = [splat(INITIAL[0]), splat(INITIAL[1]), splat(INITIAL[2]), splat(INITIAL[3])];
            [a, b, c, d, e, f, g, h, i, j, k, l, splat(0), splat(0), length, splat(flags)]
        }

        /// Adds 16-bit elements. Each element wraps separately.
        #[inline]
        #[target_feature(enable = $feature)]
        fn accumulate(sum: &mut [u32; $width], output: $vector) {
            let vector = add_16(load(sum), output);
            store(sum, vector);
        }

        /// Adds the extended output of each lane: the last compression, repeated for every counter.
        #[target_feature(enable = $feature)]
        fn add_output(chaining: &[$vector; 8], block: &Block, length: $vector, flags: u32, sums: &mut [Block]) {
            // The counter is in the first column, so in the first round, the other columns are the same for all
            // blocks until the diagonals are mixed.
            let mut shared_state = state(chaining, length, flags);
            quarter_rounds!(shared_state, block, (1 5 9 13, 2 3) (2 6 10 14, 4 5) (3 7 11 15, 6 7));
            for (counter, sums) in (0..).zip(sums) {
                let mut v = shared_state;
                v[12] = splat(counter);
                quarter_rounds!(v, block, (0 4 8 12, 0 1));
                rounds_after_first_columns!(v, block);
                for word in 0..8 {
                    accumulate(&mut sums[word], xor(v[word], v[word + 8]));
                    accumulate(&mut sums[word + 8], xor(v[word + 8], chaining[word]));
                }
            }
        }

        /// Chains the blocks of the account in each lane, and adds the account's extended output.
        #[target_feature(enable = $feature)]
        fn add_lanes(lanes: &Lanes<'_>, sums: &mut [u32]) {
            let (words, _) = lanes.words.as_chunks::<$width>();
            let (blocks, _) = words.as_chunks::<BLOCK_WORDS>();
            let Some((last_block, earlier_blocks)) = blocks.split_last() else { return };
            let mut chaining = [splat(0); 8];
            for (vector, word) in chaining.iter_mut().zip(INITIAL) {
                *vector = splat(word);
            }
            let mut flags = lanes.first_flags;
            for block in earlier_blocks {
                let mut v = state(&chaining, splat(blake3::BLOCK_LEN as u32), flags);
                quarter_rounds!(v, block, (0 4 8 12, 0 1) (1 5 9 13, 2 3) (2 6 10 14, 4 5) (3 7 11 15, 6 7));
                rounds_after_first_columns!(v, block);
                for word in 0..8 {
                    chaining[word] = xor(v[word], v[word + 8]);
                }
                flags = 0;
            }
            let Some(lengths) = lanes.last_block_bytes.first_chunk() else { return };
            let (sums, _) = sums.as_chunks_mut::<$width>();
            let (sums, _) = sums.as_chunks_mut::<BLOCK_WORDS>();
            add_output(&chaining, last_block, load(lengths), flags | lanes.last_flags | flags::ROOT, sums);
        }
    };
}
