//! Every frame here is decoded twice: by libzstd and by a decoder that shares no code with it.

use std::io::Read;

use proptest::prelude::*;

use super::*;
use crate::kinds::HEADER_BYTES;
use crate::sequences::{BLOCK_BYTES_MAX, OFFSET_MAX};

/// Random numbers that are always the same (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.next() as u8;
        }
    }
}

fn encoder_of(effort: Effort) -> Encoder {
    Encoder::new(effort, true).expect("an encoder").of_any_length()
}

/// Encodes with each effort, and decodes twice.
fn check(content: &[u8], starts: &[u32]) -> [(Way, usize); 2] {
    [Effort::Fast, Effort::Balanced].map(|effort| {
        let mut encoder = encoder_of(effort);
        let mut frame = Vec::new();
        let way = encoder.encode(content, starts, &mut frame).expect("a frame");
        check_frame(&frame, content);
        (way, frame.len())
    })
}

fn check_frame(frame: &[u8], content: &[u8]) {
    let mut decoded = vec![0; content.len()];
    assert_eq!(zstd_safe::decompress(&mut decoded[..], frame), Ok(content.len()));
    assert!(decoded == content, "libzstd decodes something else");
    decoded.clear();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(frame).expect("a frame");
    decoder.read_to_end(&mut decoded).expect("decodes");
    assert!(decoded == content, "ruzstd decodes something else");
    let decoder = decoder.decoder;
    assert_eq!(decoder.get_checksum_from_data(), decoder.get_calculated_checksum());
}

/// Kinds of records: what of them repeats, and how.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// No data.
    Wallet,
    /// A mint of a few, an owner of some more, an amount.
    Token,
    /// Any data of up to this many bytes.
    Noise(usize),
    /// Zeros with a byte here and there.
    Sparse(usize),
    /// A few bytes over and over.
    Text(usize),
}

fn push_record(content: &mut Vec<u8>, random: &mut Random, kind: Kind) {
    let start = content.len();
    let data_bytes = match kind {
        Kind::Wallet => 0,
        Kind::Token => 165,
        Kind::Noise(most) | Kind::Text(most) => random.below(most + 1),
        // A few lengths: records of one kind.
        Kind::Sparse(most) => most >> random.below(3),
    };
    content.resize(start + HEADER_BYTES + data_bytes, 0);
    let record = &mut content[start..];
    random.fill(&mut record[..8]);
    record[8..16].copy_from_slice(&(data_bytes as u64).to_le_bytes());
    random.fill(&mut record[16..48]);
    random.fill(&mut record[48..52]);
    record[56..64].fill(0xff);
    record[64..96].fill(1 + data_bytes as u8 % 5);
    let data = &mut record[HEADER_BYTES..];
    match kind {
        Kind::Wallet => {}
        Kind::Token => {
            let (mint, owner) = (random.below(7) as u64, random.below(1000) as u64);
            Random(mint + 1).fill(&mut data[..32]);
            Random(owner + 100).fill(&mut data[32..64]);
            random.fill(&mut data[64..68]);
            data[108] = 1;
        }
        Kind::Noise(_) => random.fill(data),
        Kind::Sparse(_) => {
            for _ in 0..data.len() / 64 {
                let at = random.below(data.len());
                data[at] = random.next() as u8;
            }
        }
        Kind::Text(_) => {
            let period = 1 + random.below(90);
            let mut word = vec![0; period];
            random.fill(&mut word);
            data.iter_mut().zip(word.iter().cycle()).for_each(|(to, from)| *to = *from);
        }
    }
    content.resize(content.len().next_multiple_of(8), 0);
}

fn records(kinds: &[Kind], count: usize, seed: u64) -> (Vec<u8>, Vec<u32>) {
    let mut random = Random(seed);
    let (mut content, mut starts) = (Vec::new(), Vec::new());
    for _ in 0..count {
        starts.push(content.len() as u32);
        let kind = kinds[random.below(kinds.len())];
        push_record(&mut content, &mut random, kind);
    }
    (content, starts)
}

const KINDS: [Kind; 8] = [
    Kind::Wallet,
    Kind::Token,
    Kind::Noise(90),
    Kind::Noise(9000),
    Kind::Sparse(500),
    Kind::Sparse(70_000),
    Kind::Text(300),
    Kind::Text(5000),
];

fn level_1(content: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(zstd_safe::compress_bound(content.len()));
    at_level_1(true).expect("a context").compress2(&mut frame, content).expect("a frame");
    frame
}

#[test]
fn records_of_each_kind_and_all_together() {
    for kind in KINDS {
        let (content, starts) = records(&[kind], 700, 1);
        check(&content, &starts);
    }
    let (content, starts) = records(&KINDS, 2000, 2);
    check(&content, &starts);
}

/// The same for a million records of each kind, or 1 GiB of long ones, in frames of 8 MiB: minutes.
#[test]
#[ignore = "takes minutes with optimization, and hours without"]
fn a_million_records_of_each_kind() {
    for kind in KINDS {
        let (mut count, mut bytes, mut seed) = (0, 0, 1);
        while count < 1_000_000 && bytes < 1 << 30 {
            let (mut content, mut starts, mut random) = (Vec::new(), Vec::new(), Random(seed));
            while content.len() < 8 << 20 {
                starts.push(content.len() as u32);
                push_record(&mut content, &mut random, kind);
            }
            check(&content, &starts);
            (count, bytes, seed) = (count + starts.len(), bytes + content.len(), seed + 1);
        }
    }
}

#[test]
fn smaller_than_level_1() {
    let (content, starts) = records(&[Kind::Token, Kind::Wallet, Kind::Sparse(500)], 6000, 3);
    let stock = level_1(&content).len();
    for (way, bytes) in check(&content, &starts) {
        assert_eq!(way, Way::Records);
        assert!(bytes < stock, "{bytes} bytes, and level 1 takes {stock}");
    }
}

#[test]
fn what_is_no_gain_is_level_1s() {
    let mut noise = vec![0; 1 << 20];
    Random(1).fill(&mut noise);
    let long = records(&[Kind::Text(100_000)], 30, 4);
    let random = records(&[Kind::Noise(3000)], 1000, 5);
    for (content, starts) in [(noise, vec![]), long, random] {
        let stock = level_1(&content);
        for (way, bytes) in check(&content, &starts) {
            assert_eq!((way, bytes), (Way::Stock, stock.len()));
        }
    }
}

/// Short content is level 1's.
#[test]
fn short_content() {
    let (content, starts) = records(&[Kind::Token], 4000, 12);
    let mut encoder = Encoder::new(Effort::Fast, true).expect("an encoder");
    let mut frame = Vec::new();
    for (bytes, way) in [(CONTENT_BYTES_MIN - 1, Way::Stock), (CONTENT_BYTES_MIN, Way::Records)] {
        assert_eq!(encoder.encode(&content[..bytes], &starts, &mut frame), Ok(way));
    }
}

/// Lengths around those of blocks and chunks, empty content, and content that ends inside a record.
#[test]
fn ends_of_content() {
    let (content, starts) = records(&[Kind::Token, Kind::Sparse(900)], 1000, 6);
    for length in [0, 1, 7, 8, 135, 136, 137, 200, 4096, BLOCK_BYTES_MAX - 1, BLOCK_BYTES_MAX, BLOCK_BYTES_MAX + 1] {
        check(&content[..length], &starts);
    }
    // Blocks of zeros, of which each is one byte in the frame.
    let zeros = vec![0; 3 * BLOCK_BYTES_MAX + 5];
    let starts: Vec<u32> = (0..zeros.len() as u32).step_by(HEADER_BYTES).collect();
    check(&zeros, &starts);
}

/// What lies further back than the window is no match.
#[test]
fn frames_longer_than_the_window() {
    let (one, _) = records(&[Kind::Token], 1, 7);
    let mut content = one.clone();
    let mut starts = vec![0];
    // Other kinds between, so that the first record is the last of its kind.
    let mut random = Random(8);
    while content.len() <= OFFSET_MAX + 1000 {
        starts.push(content.len() as u32);
        push_record(&mut content, &mut random, Kind::Wallet);
    }
    starts.push(content.len() as u32);
    content.extend_from_slice(&one);
    check(&content, &starts);
    let too_long = vec![0; CONTENT_BYTES_MAX + 1];
    let mut encoder = encoder_of(Effort::Fast);
    assert_eq!(encoder.encode(&too_long, &[], &mut Vec::new()), Err(ZstdError::CONTENT_TOO_LONG));
}

/// Nothing is left of the frame before, and what `to` can hold makes no difference.
#[test]
fn frames_depend_on_nothing_else() {
    let first = records(&KINDS, 300, 9);
    let second = records(&[Kind::Token, Kind::Text(300)], 3000, 10);
    for effort in [Effort::Fast, Effort::Balanced] {
        let mut used = encoder_of(effort);
        let mut frames = Vec::new();
        for (content, starts) in [&second, &first, &second, &first, &second] {
            let mut frame = Vec::with_capacity(if frames.is_empty() { 0 } else { 64 << 20 });
            used.encode(content, starts, &mut frame).expect("a frame");
            frames.push(frame);
        }
        let mut fresh = Vec::new();
        encoder_of(effort).encode(&second.0, &second.1, &mut fresh).expect("a frame");
        assert!(frames[0] == fresh && frames[2] == fresh && frames[4] == fresh && frames[1] == frames[3]);
    }
}

#[test]
fn without_checksums() {
    let (content, starts) = records(&[Kind::Token], 100, 11);
    let mut frames = [true, false].map(|has_checksum| {
        let mut frame = Vec::new();
        let mut encoder = Encoder::new(Effort::Fast, has_checksum).expect("an encoder").of_any_length();
        encoder.encode(&content, &starts, &mut frame).expect("a frame");
        frame
    });
    let mut decoded = vec![0; content.len()];
    for frame in &frames {
        assert_eq!(zstd_safe::decompress(&mut decoded[..], frame), Ok(content.len()));
        assert!(decoded == content);
    }
    // The flag in the frame's descriptor, and 4 bytes at its end.
    assert_eq!(frames[0].len(), frames[1].len() + 4);
    frames[1][4] |= 4;
    assert!(frames[0].starts_with(&frames[1]));
}

/// Records with a change here and there: other bytes, another length than the header says, starts that are none.
fn content() -> impl Strategy<Value = (Vec<u8>, Vec<u32>)> {
    let kinds = proptest::collection::vec(proptest::sample::select(&KINDS[..]), 1..5);
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20);
    let other_starts = proptest::collection::vec(any::<u32>(), 0..6);
    (kinds, 0usize..60, any::<u64>(), changes, other_starts, 0usize..300).prop_map(
        |(kinds, count, seed, changes, other_starts, cut)| {
            let (mut content, mut starts) = records(&kinds, count, seed | 1);
            content.truncate(content.len().saturating_sub(cut));
            if !content.is_empty() {
                for (at, value) in changes {
                    let at = at.index(content.len());
                    content[at] = value;
                }
            }
            let most = content.len() as u32 + 10;
            starts.extend(other_starts.into_iter().map(|start| if start % 5 == 0 { start } else { start % most }));
            starts.sort_unstable();
            (content, starts)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn damaged_records((content, starts) in content()) {
        check(&content, &starts);
    }

    #[test]
    fn any_bytes_and_any_starts(
        bytes in proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..3000),
        repeats in 1usize..4,
        starts in proptest::collection::vec(0u32..9000, 0..50),
    ) {
        check(&bytes.repeat(repeats), &starts);
    }
}
