//! Snappy in its raw format: the length of the content, then blocks of 64 KiB.

use super::{Parts, decoder, encoder};

const NAME: &str = "snappy";

/// Size of the library's hash tables: 2^14 and 2^10 positions of 2 bytes.
const ENCODER_BYTES: usize = (2 << 14) + (2 << 10);

pub const PARTS: Parts = Parts {
    encoder: |_| {
        let mut snappy = snap::raw::Encoder::new();
        encoder(NAME, ENCODER_BYTES, move |content, to| {
            to.resize(snap::raw::max_compress_len(content.len()), 0);
            let length = snappy.compress(content, to).map_err(|error| error.to_string())?;
            to.truncate(length);
            Ok(())
        })
    },
    decoder: |_| {
        let mut snappy = snap::raw::Decoder::new();
        decoder(NAME, 0, move |frame, to| snappy.decompress(frame, to).map_err(|error| error.to_string()))
    },
    bytes_max: snap::raw::max_compress_len,
};
