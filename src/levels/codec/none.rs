//! No compression: copies in memory, which shows the overhead of the measurement.

use super::{Parts, decoder, encoder};

const NAME: &str = "none";

pub const PARTS: Parts = Parts {
    encoder: |_| {
        encoder(NAME, 0, |content, to| {
            to.extend_from_slice(content);
            Ok(())
        })
    },
    decoder: |_| {
        decoder(NAME, 0, |frame, to| {
            to.get_mut(..frame.len()).ok_or("it holds too much")?.copy_from_slice(frame);
            Ok(frame.len())
        })
    },
    bytes_max: |content_bytes| content_bytes,
};
