//! The algorithm, for vectors of any width (BLAKE3 paper, sections 2.2 to 2.6).
//!
//! A macro and not a trait: functions of an instruction set are inlined into, and safe to call from, functions of the
//! same instruction set only.

/// Four quarters of a round, side by side: each mixes two message words into four words of the state.
macro_rules! mix_four {
    ($v:ident, $m:ident, $(($a:literal $b:literal $c:literal $d:literal, $x:literal $y:literal))*) => {
        $($v[$a] = add(add($v[$a], $m[$x]), $v[$b]);)*
        $($v[$d] = rotate_16(xor($v[$d], $v[$a]));)*
        $($v[$c] = add($v[$c], $v[$d]);)*
        $($v[$b] = rotate_12(xor($v[$b], $v[$c]));)*
        $($v[$a] = add(add($v[$a], $m[$y]), $v[$b]);)*
        $($v[$d] = rotate_8(xor($v[$d], $v[$a]));)*
        $($v[$c] = add($v[$c], $v[$d]);)*
        $($v[$b] = rotate_7(xor($v[$b], $v[$c]));)*
    };
}

/// A round: the columns of the state, then its diagonals, with the message words in the given order.
macro_rules! round {
    ($v:ident, $m:ident, $a:literal $b:literal $c:literal $d:literal $e:literal $f:literal $g:literal $h:literal
        $i:literal $j:literal $k:literal $l:literal $n:literal $o:literal $p:literal $q:literal) => {
        mix_four!($v, $m, (0 4 8 12, $a $b) (1 5 9 13, $c $d) (2 6 10 14, $e $f) (3 7 11 15, $g $h));
        mix_four!($v, $m, (0 5 10 15, $i $j) (1 6 11 12, $k $l) (2 7 8 13, $n $o) (3 4 9 14, $p $q));
    };
}

/// The seven rounds. Not a function: what calls it keeps the state in registers.
macro_rules! rounds {
    ($v:ident, $m:ident) => {
        round!($v, $m, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        round!($v, $m, 2 6 3 10 7 0 4 13 1 11 12 5 9 14 15 8);
        round!($v, $m, 3 4 10 12 13 2 7 14 6 5 9 0 11 15 8 1);
        round!($v, $m, 10 7 12 9 14 3 13 15 4 0 11 2 5 8 1 6);
        round!($v, $m, 12 13 9 11 15 10 14 8 7 2 5 3 0 1 6 4);
        round!($v, $m, 9 14 11 5 8 12 15 1 13 3 0 10 2 6 4 7);
        round!($v, $m, 11 15 5 0 1 9 8 6 14 10 2 12 3 4 7 13);
    };
}

/// `KERNEL` for one kind of vector. Beside it stand `splat`, `load`, `store`, `add` of 32-bit words, `add_16` of
/// 16-bit words, `xor`, and rotations to the right.
macro_rules! kernel {
    ($feature:literal, $vector:ty, $width:literal) => {
        use crate::ledger::lattice::lanes::{BLOCK_WORDS, INITIAL, Kernel, Lanes, OUTPUT_WORDS, Root, flags};

        pub(in crate::ledger::lattice::lanes) const KERNEL: Kernel = Kernel { width: $width, add_chunks, add_root };

        /// The state before the first round.
        #[inline]
        #[target_feature(enable = $feature)]
        fn state(chaining: &[$vector; 8], counter: $vector, length: $vector, flags: u32) -> [$vector; 16] {
            let [a, b, c, d, e, f, g, h] = *chaining;
            let [i, j, k, l] = [splat(INITIAL[0]), splat(INITIAL[1]), splat(INITIAL[2]), splat(INITIAL[3])];
            [a, b, c, d, e, f, g, h, i, j, k, l, counter, splat(0), length, splat(flags)]
        }

        /// The same words in all lanes.
        #[inline]
        #[target_feature(enable = $feature)]
        fn splat_all<const N: usize>(words: &[u32; N]) -> [$vector; N] {
            let mut vectors = [splat(0); N];
            for (vector, word) in vectors.iter_mut().zip(words) {
                *vector = splat(*word);
            }
            vectors
        }

        /// Adds 16-bit elements, which wrap.
        #[inline]
        #[target_feature(enable = $feature)]
        fn accumulate(sum: &mut [u32; $width], output: $vector) {
            let vector = add_16(load(sum), output);
            store(sum, vector);
        }

        /// Adds the extended output of one root: as many of its blocks at a time as there are lanes.
        #[target_feature(enable = $feature)]
        fn add_root(root: &Root, sums: &mut [u32; OUTPUT_WORDS]) {
            let chaining = splat_all(&root.chaining);
            let message = splat_all(&root.block);
            let mut counters = [0; $width];
            for (lane, counter) in counters.iter_mut().enumerate() {
                *counter = lane as u32;
            }
            let mut counter = load(&counters);
            let (words, _) = sums.as_chunks_mut::<$width>();
            let (groups, _) = words.as_chunks_mut::<BLOCK_WORDS>();
            for sums in groups {
                let mut v = state(&chaining, counter, splat(root.length), root.flags | flags::ROOT);
                rounds!(v, message);
                for word in 0..8 {
                    accumulate(&mut sums[word], xor(v[word], v[word + 8]));
                    accumulate(&mut sums[word + 8], xor(v[word + 8], chaining[word]));
                }
                counter = add(counter, splat($width));
            }
        }

        /// Chains the blocks of as many accounts as there are lanes, and adds the extended output of each.
        #[target_feature(enable = $feature)]
        fn add_chunks(lanes: &Lanes<'_>, sums: &mut [u32; OUTPUT_WORDS]) {
            let (words, _) = lanes.words.as_chunks::<$width>();
            let (blocks, _) = words.as_chunks::<BLOCK_WORDS>();
            let Some((last, before)) = blocks.split_last() else { return };
            let mut chaining = splat_all(&INITIAL);
            let mut flags = flags::CHUNK_START;
            for block in before {
                let mut message = [splat(0); BLOCK_WORDS];
                for (vector, words) in message.iter_mut().zip(block) {
                    *vector = load(words);
                }
                let mut v = state(&chaining, splat(0), splat(blake3::BLOCK_LEN as u32), flags);
                rounds!(v, message);
                for word in 0..8 {
                    chaining[word] = xor(v[word], v[word + 8]);
                }
                flags = 0;
            }
            let mut chained = [[0; $width]; 8];
            for (words, vector) in chained.iter_mut().zip(chaining) {
                store(words, vector);
            }
            for lane in 0..lanes.used.min($width) {
                let mut root = Root {
                    chaining: [0; 8],
                    block: [0; BLOCK_WORDS],
                    length: lanes.last_lengths[lane],
                    flags: flags | flags::CHUNK_END,
                };
                for (word, words) in root.chaining.iter_mut().zip(&chained) {
                    *word = words[lane];
                }
                for (word, words) in root.block.iter_mut().zip(last) {
                    *word = words[lane];
                }
                add_root(&root, sums);
            }
        }
    };
}
