//! Finite state entropy: tables and codes of RFC 8878, section 4.1.

use crate::bits::BitWriter;

/// The largest table, in bits.
const LOG_MAX: u32 = 9;

/// More symbols than any table here has.
pub(crate) const SYMBOLS_MAX: usize = 64;

/// How often each symbol occurs.
pub(crate) type Counts = [u32; SYMBOLS_MAX];

/// A table that codes symbols.
pub(crate) struct Table {
    log: u32,
    /// The next state, by symbol and state.
    states: [u16; 1 << LOG_MAX],
    symbols: [Transition; SYMBOLS_MAX],
}

/// What coding a symbol does to a state.
#[derive(Clone, Copy, Default)]
struct Transition {
    /// Bits in the upper half; the carry out of the lower half takes one away.
    delta_bits: u32,
    delta_state: i32,
}

/// The state of one coder.
#[derive(Clone, Copy)]
pub(crate) struct State(u32);

impl Table {
    pub(crate) fn new() -> Self {
        Self { log: 0, states: [0; 1 << LOG_MAX], symbols: [Transition::default(); SYMBOLS_MAX] }
    }

    /// Becomes the table for these counts of at least two symbols, `total` in all, with 2^`log_max` cells at most; tells a
    /// decoder of it in `to`.
    pub(crate) fn make(&mut self, counts: &Counts, total: u32, log_max: u32, to: &mut BitWriter<'_>) {
        let last = counts.iter().rposition(|count| *count > 0).unwrap_or_default();
        self.log = log_of(total, last as u32, log_max);
        let shares = shares(counts, total, self.log);
        write_shares(&shares[..=last], self.log, to);
        self.build(&shares[..=last]);
    }

    /// Becomes the table of a single symbol, which takes no bits.
    pub(crate) fn make_single(&mut self, symbol: u8) {
        self.log = 0;
        let mut shares = [0; SYMBOLS_MAX];
        shares[usize::from(symbol)] = 1;
        self.build(&shares);
    }

    /// From shares whose sum is the number of cells.
    fn build(&mut self, shares: &[u16]) {
        let size = 1usize << self.log;
        // The cells of each symbol, spread over the table in the order that the format prescribes.
        let step = (size >> 1) + (size >> 3) + 3;
        let mut cells = [0u8; 1 << LOG_MAX];
        let (mut at, mut total) = (0, 0u16);
        let mut starts = [0u16; SYMBOLS_MAX];
        for (symbol, &share) in shares.iter().enumerate() {
            starts[symbol] = total;
            total += share;
            for _ in 0..share {
                cells[at] = symbol as u8;
                at = (at + step) & (size - 1);
            }
            if share > 0 {
                // Bits that most of its states write; as many states as fit into a power of two write one less.
                let bits = if share == 1 { self.log } else { self.log - u32::from(share - 1).ilog2() };
                self.symbols[symbol] = Transition {
                    delta_bits: (bits << 16).wrapping_sub(u32::from(share) << bits),
                    delta_state: i32::from(starts[symbol]) - i32::from(share),
                };
            }
        }
        for (number, symbol) in cells[..size].iter().enumerate() {
            let next = &mut starts[usize::from(*symbol)];
            self.states[usize::from(*next)] = (size + number) as u16;
            *next += 1;
        }
    }

    /// The state from which a decoder finds the last symbol.
    #[inline(always)]
    pub(crate) fn last(&self, symbol: u8) -> State {
        let Transition { delta_bits, .. } = self.symbols[usize::from(symbol) % SYMBOLS_MAX];
        let bits = delta_bits.wrapping_add(1 << 15) >> 16;
        self.next((bits << 16).wrapping_sub(delta_bits), bits, symbol)
    }

    /// Codes the symbol before: 9 bits at most.
    #[inline(always)]
    pub(crate) fn code(&self, state: &mut State, symbol: u8, to: &mut BitWriter<'_>) {
        let bits = state.0.wrapping_add(self.symbols[usize::from(symbol) % SYMBOLS_MAX].delta_bits) >> 16;
        to.push(state.0.into(), bits);
        *state = self.next(state.0, bits, symbol);
    }

    #[inline(always)]
    fn next(&self, state: u32, bits: u32, symbol: u8) -> State {
        let at = (state >> bits) as i32 + self.symbols[usize::from(symbol) % SYMBOLS_MAX].delta_state;
        State(self.states[at as usize % (1 << LOG_MAX)].into())
    }

    /// Writes the state with which a decoder begins.
    pub(crate) fn end(&self, state: State, to: &mut BitWriter<'_>) {
        to.push(state.0.into(), self.log);
        to.flush();
    }
}

/// The number of cells, in bits, for so many symbols: a larger table takes more room to describe than it saves.
fn log_of(total: u32, last: u32, log_max: u32) -> u32 {
    let for_total = (total - 1).ilog2().saturating_sub(2);
    // Each symbol has a cell.
    let least = (total.ilog2() + 1).min(last.ilog2() + 2);
    for_total.min(log_max).max(least).clamp(5, LOG_MAX)
}

/// Cells for each symbol: at least one each, and otherwise in proportion to counts.
fn shares(counts: &Counts, total: u32, log: u32) -> [u16; SYMBOLS_MAX] {
    let size = 1u64 << log;
    let mut shares = [0u16; SYMBOLS_MAX];
    let (mut sum, mut largest) = (0, 0);
    for (symbol, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let share = (u64::from(count) * size + u64::from(total) / 2) / u64::from(total);
        shares[symbol] = share.max(1) as u16;
        sum += u64::from(shares[symbol]);
        if count > counts[largest] {
            largest = symbol;
        }
    }
    // Too few or too many by rounding: what the largest share can bear is its own, the rest is taken from any that can.
    if sum <= size {
        shares[largest] += (size - sum) as u16;
        return shares;
    }
    let mut too_many = sum - size;
    while too_many > 0 {
        let most = (0..SYMBOLS_MAX).max_by_key(|symbol| shares[*symbol]).unwrap_or_default();
        shares[most] -= 1;
        too_many -= 1;
    }
    shares
}

/// Tells a decoder the shares of all symbols up to the last that occurs.
fn write_shares(shares: &[u16], log: u32, to: &mut BitWriter<'_>) {
    to.push(u64::from(log - 5), 4);
    // One more than the cells that are left, and bits that tell as many.
    let (mut left, mut threshold, mut bits) = ((1u32 << log) + 1, 1u32 << log, log + 1);
    let mut symbol = 0;
    while left > 1 {
        let share = u32::from(shares[symbol]);
        symbol += 1;
        let short = 2 * threshold - 1 - left;
        left -= share;
        // Small numbers take one bit less, those behind them are moved up.
        let value = share + 1;
        let value = if value >= threshold { value + short } else { value };
        to.push(value.into(), bits - u32::from(value < short));
        to.flush();
        while left < threshold {
            (bits, threshold) = (bits - 1, threshold / 2);
        }
        if share == 0 {
            // How many more have none: 3 means at least so many.
            let mut zeros = shares[symbol..].iter().take_while(|share| **share == 0).count();
            symbol += zeros;
            while zeros >= 3 {
                to.push(3, 2);
                to.flush();
                zeros -= 3;
            }
            to.push(zeros as u64, 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shares_fill_the_table(counts in proptest::collection::vec(0u32..100_000, 2..=54), log_max in 6u32..=LOG_MAX) {
            let total: u32 = counts.iter().sum();
            prop_assume!(counts.iter().filter(|count| **count > 0).count() >= 2);
            let mut all = [0; SYMBOLS_MAX];
            all[..counts.len()].copy_from_slice(&counts);
            let last = all.iter().rposition(|count| *count > 0).unwrap_or_default();
            let log = log_of(total, last as u32, log_max);
            prop_assert!(log <= log_max.max(7));
            let shares = shares(&all, total, log);
            prop_assert_eq!(shares.iter().map(|share| u32::from(*share)).sum::<u32>(), 1 << log);
            prop_assert!(shares.iter().zip(all).all(|(share, count)| (*share > 0) == (count > 0)));
        }
    }
}
