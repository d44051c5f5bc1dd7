//! Small operations on bytes and lengths. None of them overflows or goes out of bounds. The
//! parsers of archives, ledgers and servers' responses use them.

use std::io::{self, BufRead, ErrorKind};
use std::ops::Range;
use std::time::Duration;

/// Calls `fill_buf` again when it is interrupted, as `read_exact` does with `read`. Any other error is
/// returned at once: a second call might continue after bytes that could not be read.
pub fn fill_buf<R: BufRead + ?Sized>(input: &mut R) -> io::Result<&[u8]> {
    while let Err(error) = input.fill_buf() {
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
    input.fill_buf()
}

/// Converts a number to a length in memory. On 32-bit machines, a number that is too large becomes
/// the largest length, with which allocations and bounds checks fail.
pub fn to_usize(number: impl Into<u64>) -> usize {
    usize::try_from(number.into()).unwrap_or(usize::MAX)
}

pub fn saturating_add_to(counter: &mut u64, added: u64) {
    *counter = counter.saturating_add(added);
}

/// Returns the average rate in bytes per second. A time below a millisecond counts as a millisecond.
pub fn average_rate(bytes: u64, time: Duration) -> u64 {
    let scaled_bytes = u128::from(bytes).saturating_mul(1_000_000_000);
    scaled_bytes.checked_div(time.as_nanos().max(1_000_000)).and_then(|rate| rate.try_into().ok()).unwrap_or(u64::MAX)
}

/// Returns the length of a range, or 0 if it ends before it begins.
pub fn range_bytes(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

/// Splits off the first `count` bytes, or as many as there are.
pub fn split_at_most(bytes: &[u8], count: usize) -> (&[u8], &[u8]) {
    bytes.split_at_checked(count).unwrap_or((bytes, &[]))
}

/// Returns the first `count` bytes, or as many as there are.
pub fn prefix_mut(bytes: &mut [u8], count: usize) -> &mut [u8] {
    let count = count.min(bytes.len());
    bytes.split_at_mut(count).0
}

/// Copies as many bytes as `from` has and `to` has room for. Returns their number.
pub fn copy_at_most(from: &[u8], to: &mut [u8]) -> usize {
    let count = from.len().min(to.len());
    to.split_at_mut(count).0.copy_from_slice(from.split_at(count).0);
    count
}

/// Returns `N` bytes of an array, starting at `AT`. Does not compile if the array is too short.
pub fn array_at<const AT: usize, const N: usize, const LENGTH: usize>(bytes: &[u8; LENGTH]) -> [u8; N] {
    const { assert!(matches!(LENGTH.checked_sub(AT), Some(rest_bytes) if N <= rest_bytes)) };
    bytes.get(AT..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

/// Returns the little-endian `u32` at `AT` of an array. Does not compile if the array is too short.
pub fn u32_at<const AT: usize, const LENGTH: usize>(bytes: &[u8; LENGTH]) -> u32 {
    u32::from_le_bytes(array_at::<AT, 4, LENGTH>(bytes))
}

/// Returns the little-endian `u64` at `AT` of an array. Does not compile if the array is too short.
pub fn u64_at<const AT: usize, const LENGTH: usize>(bytes: &[u8; LENGTH]) -> u64 {
    u64::from_le_bytes(array_at::<AT, 8, LENGTH>(bytes))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// Fails once with each of these errors, the last one first.
    struct Failing(Vec<ErrorKind>);

    impl Read for Failing {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.fill_buf()?.read(to)
        }
    }

    impl BufRead for Failing {
        fn fill_buf(&mut self) -> io::Result<&[u8]> {
            self.0.pop().map_or(Ok(b"abc"), |kind| Err(kind.into()))
        }

        fn consume(&mut self, _: usize) {}
    }

    #[test]
    fn only_interrupted_calls_are_repeated() {
        let mut input = Failing(vec![ErrorKind::Interrupted; 3]);
        assert_eq!(fill_buf(&mut input).expect("filled"), b"abc");
        let mut input = Failing(vec![ErrorKind::InvalidData, ErrorKind::Interrupted]);
        assert_eq!(fill_buf(&mut input).expect_err("the error after the interruption").kind(), ErrorKind::InvalidData);
        assert_eq!(fill_buf(&mut input).expect("filled"), b"abc");
    }

    #[test]
    fn slices_are_cut_at_their_end() {
        assert_eq!(split_at_most(b"abc", 2), (&b"ab"[..], &b"c"[..]));
        assert_eq!(split_at_most(b"abc", usize::MAX), (&b"abc"[..], &b""[..]));
        let mut buffer = [0; 3];
        assert_eq!(prefix_mut(&mut buffer, 2).len(), 2);
        assert_eq!(prefix_mut(&mut buffer, usize::MAX).len(), 3);
        assert_eq!((copy_at_most(b"ab", &mut buffer), buffer), (2, *b"ab\0"));
        assert_eq!((copy_at_most(b"xyzw", &mut buffer), buffer), (3, *b"xyz"));
    }

    #[test]
    fn numbers_saturate() {
        let mut counter = 3;
        saturating_add_to(&mut counter, 4);
        assert_eq!(counter, 7);
        saturating_add_to(&mut counter, u64::MAX);
        assert_eq!(counter, u64::MAX);
        assert_eq!((range_bytes(&(3..7)), range_bytes(&Range { start: 7, end: 3 })), (4, 0));
        assert_eq!(average_rate(10, Duration::from_secs(4)), 2);
        assert_eq!(average_rate(10, Duration::ZERO), 10_000);
        assert_eq!(average_rate(u64::MAX, Duration::ZERO), u64::MAX);
        assert_eq!((to_usize(7u32), to_usize(7u64)), (7, 7));
    }

    #[test]
    fn fields_are_read_from_arrays() {
        assert_eq!(array_at::<1, 2, _>(b"abc"), *b"bc");
        assert_eq!(array_at::<3, 0, _>(b"abc"), *b"");
        assert_eq!(u32_at::<1, _>(&[9, 1, 2, 3, 4, 9]), 0x0403_0201);
        assert_eq!(u64_at::<0, _>(&[1, 0, 0, 0, 0, 0, 0, 1]), (1 << 56) + 1);
    }
}
