//! One frame after another on one core: what the measurements of single units share. Every result is decompressed and
//! compared with the content.

use {
    crate::{
        error::{Error, Result},
        levels::codec::{FrameCodec, FrameDecode, FrameEncoder, label},
    },
    std::time::{Duration, Instant},
};

/// A codec with its contexts and buffers, which are reused from unit to unit.
pub struct Solo<'a> {
    codec: &'a dyn FrameCodec,
    encoder: Box<dyn FrameEncoder>,
    decoder: Box<dyn FrameDecode>,
    frames: Vec<Vec<u8>>,
    backs: Vec<Vec<u8>>,
}

/// What some units took together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Bytes that they compress to.
    pub output_bytes: u64,
    /// Time to compress.
    pub compress: Duration,
    /// Time to decompress.
    pub decompress: Duration,
}

impl<'a> Solo<'a> {
    /// Ready to compress.
    pub fn new(codec: &'a dyn FrameCodec) -> Result<Self> {
        let (encoder, decoder) = (codec.new_encoder()?, codec.new_decoder()?);
        Ok(Self { codec, encoder, decoder, frames: Vec::new(), backs: Vec::new() })
    }

    /// Compresses units, each alone, then decompresses them. Times are those of all together, so that reading the clock
    /// does not count; buffers are as many as units, which the caller bounds.
    pub fn batch(&mut self, units: &[&[u8]]) -> Result<Spent> {
        self.room_for(units.len());
        let codec = self.codec;
        let start = Instant::now();
        for (unit, frame) in units.iter().zip(&mut self.frames) {
            self.encoder.encode(unit, frame)?;
        }
        let compress = start.elapsed();
        let start = Instant::now();
        for ((unit, frame), back) in units.iter().zip(&self.frames).zip(&mut self.backs) {
            self.decoder.decode(frame, unit.len(), back).map_err(|error| codec_error(codec, &error))?;
        }
        let decompress = start.elapsed();
        self.compare(units)?;
        Ok(Spent { output_bytes: self.output_bytes(units.len()), compress, decompress })
    }

    /// The same, with a time for each unit: `on_times` gets those of compressing and of decompressing it.
    pub fn each(&mut self, units: &[&[u8]], on_times: &mut dyn FnMut(Duration, Duration)) -> Result<Spent> {
        self.room_for(units.len());
        let codec = self.codec;
        let mut spent = Spent::default();
        let mut compress_times = Vec::with_capacity(units.len());
        for (unit, frame) in units.iter().zip(&mut self.frames) {
            let start = Instant::now();
            self.encoder.encode(unit, frame)?;
            compress_times.push(start.elapsed());
        }
        for (((unit, frame), back), compress) in units.iter().zip(&self.frames).zip(&mut self.backs).zip(compress_times)
        {
            let start = Instant::now();
            let result = self.decoder.decode(frame, unit.len(), back);
            let decompress = start.elapsed();
            result.map_err(|error| codec_error(codec, &error))?;
            on_times(compress, decompress);
            spent.compress += compress;
            spent.decompress += decompress;
        }
        self.compare(units)?;
        spent.output_bytes = self.output_bytes(units.len());
        Ok(spent)
    }

    /// Bytes that the contexts take.
    pub fn context_bytes(&self) -> usize {
        self.encoder.context_bytes().max(self.decoder.context_bytes())
    }

    fn room_for(&mut self, units: usize) {
        if self.frames.len() < units {
            self.frames.resize_with(units, Vec::new);
            self.backs.resize_with(units, Vec::new);
        }
    }

    fn output_bytes(&self, units: usize) -> u64 {
        self.frames[..units].iter().map(|frame| frame.len() as u64).sum()
    }

    fn compare(&self, units: &[&[u8]]) -> Result<()> {
        match units.iter().zip(&self.backs).all(|(unit, back)| unit == back) {
            true => Ok(()),
            false => Err(codec_error(self.codec, &"it comes back as other bytes")),
        }
    }
}

fn codec_error(codec: &dyn FrameCodec, why: &dyn std::fmt::Display) -> Error {
    let name = label(codec.name(), codec.level());
    Error::failed(format!("{name} does not round-trip: {why}"))
        .hint("the memory or the processor may be faulty: test them; an archive made on this machine may be damaged")
}

/// Numbers from 0 to `count`, each once, in an order in which any first part is spread over all of them.
pub fn scattered(count: usize) -> impl Iterator<Item = usize> {
    /// The golden ratio: its multiples are spread as evenly as multiples can be.
    const SHARE: f64 = 0.618_033_988_749_895;
    let mut step = ((count as f64 * SHARE) as usize).max(1);
    while count > 1 && greatest_common_divisor(step, count) != 1 {
        step += 1;
    }
    let mut at = 0;
    (0..count).map(move |_| {
        let number = at;
        at = ((at as u128 + step as u128) % count.max(1) as u128) as usize;
        number
    })
}

fn greatest_common_divisor(one: usize, other: usize) -> usize {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

#[cfg(test)]
mod tests {
    use {super::*, crate::levels::codec::ZstdLevel, proptest::prelude::*};

    proptest! {
        #[test]
        fn each_number_once(count in 0usize..2_000) {
            let mut numbers: Vec<usize> = scattered(count).collect();
            numbers.sort_unstable();
            prop_assert!(numbers.into_iter().eq(0..count));
        }
    }

    #[test]
    fn sizes_are_those_of_the_codec_and_buffers_can_shrink() {
        let mut solo = Solo::new(&ZstdLevel(1)).expect("a context");
        let content = [5u8; 3000];
        let sizes: Vec<u64> = [3, 1, 2]
            .map(|units| {
                let units: Vec<&[u8]> = (1..=units).map(|unit| &content[..unit * 1000]).collect();
                let mut times = 0;
                let each = solo.each(&units, &mut |_, _| times += 1).expect("round trip").output_bytes;
                assert_eq!(times, units.len());
                assert_eq!(solo.batch(&units).expect("round trip").output_bytes, each);
                each
            })
            .into();
        assert!(sizes[1] < sizes[2] && sizes[2] < sizes[0], "{sizes:?}");
    }
}
