//! The part of libzstd that turns sequences into frames, which `zstd-safe` does not wrap; all `unsafe` of the crate.

use {
    std::{fmt, mem::size_of, ptr::NonNull},
    zstd_safe::zstd_sys::{
        self, ZSTD_CCtx, ZSTD_Sequence,
        ZSTD_cParameter::{self, *},
        ZSTD_strategy,
    },
};

/// What libzstd reports, by its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZstdError(&'static str);

impl ZstdError {
    pub(crate) const CONTENT_TOO_LONG: Self = Self("the content is longer than the largest frame");
    const NO_MEMORY: Self = Self("not enough memory for a compression context");
}

impl fmt::Display for ZstdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ZstdError {}

/// Literals, a match and its offset; without the latter two, the end of a block.
pub(crate) type Sequence = ZSTD_Sequence;

/// What becomes of literals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Literals {
    /// They stay as they are.
    Raw,
    /// By Huffman's code, where that is shorter.
    Coded,
}

/// The window of frames from sequences, in bits: both clients read 2^25.
pub(crate) const WINDOW_LOG: u32 = 23;

/// A compression context of libzstd.
#[derive(Debug)]
pub(crate) struct Context(NonNull<ZSTD_CCtx>);

// SAFETY: a context is memory without ties to the thread that made it; no two threads use it at once, since all that
// changes it takes `&mut`, and `&self` only reads its size.
unsafe impl Send for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `ZSTD_createCCtx`, and nothing uses it after this.
        unsafe { zstd_sys::ZSTD_freeCCtx(self.0.as_ptr()) };
    }
}

impl Context {
    fn new(has_checksum: bool) -> Result<Self, ZstdError> {
        // SAFETY: takes nothing, and returns null or a context that is ours.
        let context = NonNull::new(unsafe { zstd_sys::ZSTD_createCCtx() }).ok_or(ZstdError::NO_MEMORY)?;
        let mut this = Self(context);
        this.set(ZSTD_c_compressionLevel, 1)?;
        this.set(ZSTD_c_contentSizeFlag, 1)?;
        this.set(ZSTD_c_checksumFlag, has_checksum.into())?;
        Ok(this)
    }

    /// Makes frames as level 1 does.
    pub(crate) fn at_level_1(has_checksum: bool) -> Result<Self, ZstdError> {
        Self::new(has_checksum)
    }

    /// Makes frames from sequences with explicit ends of blocks.
    pub(crate) fn for_sequences(has_checksum: bool) -> Result<Self, ZstdError> {
        let mut this = Self::new(has_checksum)?;
        for (parameter, value) in [
            (ZSTD_c_windowLog, WINDOW_LOG as i32),
            // Tables of its own match finder, which has nothing to do.
            (ZSTD_c_hashLog, 6),
            (ZSTD_c_chainLog, 6),
            (ZSTD_c_minMatch, 4),
            (ZSTD_c_strategy, ZSTD_strategy::ZSTD_fast as i32),
            (BLOCK_DELIMITERS, zstd_sys::ZSTD_SequenceFormat_e::ZSTD_sf_explicitBlockDelimiters as i32),
            (SEARCH_REPEATED_OFFSETS, zstd_sys::ZSTD_ParamSwitch_e::ZSTD_ps_enable as i32),
            // Nothing is buffered: the content lies in memory as a whole, and so does the frame.
            (STABLE_INPUT, 1),
            (STABLE_OUTPUT, 1),
            (VALIDATE_SEQUENCES, cfg!(debug_assertions).into()),
        ] {
            this.set(parameter, value)?;
        }
        Ok(this)
    }

    fn set(&mut self, parameter: ZSTD_cParameter, value: i32) -> Result<(), ZstdError> {
        // SAFETY: the context lives; values out of range are refused.
        check(unsafe { zstd_sys::ZSTD_CCtx_setParameter(self.0.as_ptr(), parameter, value) }).map(drop)
    }

    /// Appends the frame of `content` to `to`, whose spare room it must fit into.
    pub(crate) fn compress(&mut self, content: &[u8], to: &mut Vec<u8>) -> Result<(), ZstdError> {
        let room = to.spare_capacity_mut();
        // SAFETY: the context lives, and libzstd writes at most `room.len()` bytes to `room` and reads `content`.
        let written = check(unsafe {
            zstd_sys::ZSTD_compress2(
                self.0.as_ptr(),
                room.as_mut_ptr().cast(),
                room.len(),
                content.as_ptr().cast(),
                content.len(),
            )
        })?;
        // SAFETY: the call succeeded, so that many bytes of the spare room are written.
        unsafe { to.set_len(to.len() + written) };
        Ok(())
    }

    /// Appends the frame of `content`, which `sequences` describe block by block, to `to`, whose spare room it must fit into.
    pub(crate) fn compress_sequences(
        &mut self,
        sequences: &[Sequence],
        content: &[u8],
        literals: Literals,
        to: &mut Vec<u8>,
    ) -> Result<(), ZstdError> {
        use zstd_sys::ZSTD_ParamSwitch_e::*;
        let literals = match literals {
            Literals::Raw => ZSTD_ps_disable,
            Literals::Coded => ZSTD_ps_enable,
        };
        // A call leaves the context amid a frame, where parameters cannot be set.
        // SAFETY: the context lives.
        check(unsafe {
            zstd_sys::ZSTD_CCtx_reset(self.0.as_ptr(), zstd_sys::ZSTD_ResetDirective::ZSTD_reset_session_only)
        })?;
        self.set(LITERAL_COMPRESSION, literals as i32)?;
        let room = to.spare_capacity_mut();
        // SAFETY: the context lives; libzstd writes at most `room.len()` bytes to `room`. It reads `content` no further than
        // its end, whatever the sequences say: each block's length is the sum of its sequences, which it compares with the
        // most that a block may hold and with what is left of the content, and sequences beyond its table are refused. Lengths
        // of matches and offsets only choose codes, and `Sequences` makes none that have no code (`Sequences::matched`).
        let written = check(unsafe {
            zstd_sys::ZSTD_compressSequences(
                self.0.as_ptr(),
                room.as_mut_ptr().cast(),
                room.len(),
                sequences.as_ptr(),
                sequences.len(),
                content.as_ptr().cast(),
                content.len(),
            )
        })?;
        // SAFETY: the call succeeded, so that many bytes of the spare room are written.
        unsafe { to.set_len(to.len() + written) };
        Ok(())
    }

    /// Bytes that it takes.
    pub(crate) fn size_bytes(&self) -> usize {
        // SAFETY: the context lives, and this only reads it.
        unsafe { zstd_sys::ZSTD_sizeof_CCtx(self.0.as_ptr()) }
    }
}

// What zstd.h calls these parameters, which are of its experimental part.
const LITERAL_COMPRESSION: ZSTD_cParameter = ZSTD_c_experimentalParam5;
const STABLE_INPUT: ZSTD_cParameter = ZSTD_c_experimentalParam9;
const STABLE_OUTPUT: ZSTD_cParameter = ZSTD_c_experimentalParam10;
const BLOCK_DELIMITERS: ZSTD_cParameter = ZSTD_c_experimentalParam11;
const VALIDATE_SEQUENCES: ZSTD_cParameter = ZSTD_c_experimentalParam12;
const SEARCH_REPEATED_OFFSETS: ZSTD_cParameter = ZSTD_c_experimentalParam19;

const _: () = assert!(size_of::<Sequence>() == 16);

fn check(code: usize) -> Result<usize, ZstdError> {
    // SAFETY: takes a number.
    if unsafe { zstd_sys::ZSTD_isError(code) } == 0 {
        return Ok(code);
    }
    Err(ZstdError(zstd_safe::get_error_name(code)))
}
