//! Numbers of sequences as codes and further bits: RFC 8878, section 3.1.1.3.2.1.

/// A code, and the bits that tell its numbers apart.
#[derive(Clone, Copy, Default)]
pub(crate) struct Code {
    pub(crate) code: u8,
    pub(crate) bits: u8,
}

/// Codes of numbers below 2^`N`'s logarithm; larger ones have a code for each power of two.
const fn table<const N: usize>(bits: &[u8]) -> [Code; N] {
    let mut table = [Code { code: 0, bits: 0 }; N];
    let (mut number, mut code) = (0, 0);
    while number < N {
        let end = number + (1 << bits[code]);
        while number < end && number < N {
            table[number] = Code { code: code as u8, bits: bits[code] };
            number += 1;
        }
        code += 1;
    }
    table
}

static LITERALS: [Code; 64] = table(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4]);

static MATCHES: [Code; 128] = table(&[
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2,
    3, 3, 4, 4, 5,
]);

/// The code of a number of literals.
#[inline(always)]
pub(crate) fn of_literals(number: u32) -> Code {
    LITERALS.get(number as usize).copied().unwrap_or_else(|| of_power(number, 19))
}

/// The code of a match's length, less the shortest that the format knows.
#[inline(always)]
pub(crate) fn of_match(number: u32) -> Code {
    MATCHES.get(number as usize).copied().unwrap_or_else(|| of_power(number, 36))
}

/// The code of an offset, of at least 1: its logarithm.
#[inline(always)]
pub(crate) fn of_offset(number: u32) -> Code {
    of_power(number, 0)
}

#[inline(always)]
fn of_power(number: u32, above: u8) -> Code {
    let bits = (number | 1).ilog2() as u8;
    Code { code: bits + above, bits }
}
