//! The encoder of records on any bytes and any record starts: what it makes decodes to what went in, with libzstd and with
//! ruzstd. (Built with assertions, the encoder decodes each frame too.)

use std::io::Read;

use slotpress_encoder::{Effort, Encoder};

/// Takes any bytes.
pub fn encode(bytes: &[u8]) {
    // The input's first bytes: how often the rest repeats, how many record starts there are, these.
    let Some(([repeats, count], bytes)) = bytes.split_first_chunk() else { return };
    let (starts, content) = bytes.split_at_checked(usize::from(*count) * 2).unwrap_or_default();
    let content = content.repeat(usize::from(*repeats % 4) + 1);
    let (starts, _) = starts.as_chunks();
    let mut starts: Vec<u32> = starts.iter().map(|start| u16::from_le_bytes(*start).into()).collect();
    // An odd count is of starts as they come, which no caller hands over.
    if count % 2 == 0 {
        starts.sort_unstable();
    }
    for effort in [Effort::Fast, Effort::Balanced] {
        let mut frame = Vec::new();
        let mut encoder = Encoder::new(effort, true).expect("an encoder").of_any_length();
        encoder.encode(&content, &starts, &mut frame).expect("a frame");
        assert!(zstd::bulk::decompress(&frame, content.len()).expect("libzstd decodes it") == content);
        let mut decoded = Vec::new();
        let mut decoder = ruzstd::decoding::StreamingDecoder::new(&frame[..]).expect("a frame");
        decoder.read_to_end(&mut decoded).expect("ruzstd decodes it");
        assert!(decoded == content);
    }
}
