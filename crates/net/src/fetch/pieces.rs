//! Chooses which piece of an archive a connection fetches next. Does no I/O.
//!
//! Pieces are fetched in the order of the file, because they are read in that order. When all pieces are
//! being fetched, an idle connection takes over the piece that has been slow for longest. Otherwise, the
//! download would wait for its slowest connection.

use std::ops::Range;
use std::time::Duration;

use rangemap::RangeSet;

use super::FetchLimits;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Piece {
    missing: Range<u64>,
    connections: u8,
    last_started: Duration,
    takeovers: u32,
    /// Index of the server that fetches the piece, or fetched it last.
    server_index: usize,
    /// Index of the slow server from which another server took over the piece. The slow server may not take
    /// the piece back.
    overtaken_index: Option<usize>,
}

/// A range to fetch, and the number of its piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceRequest {
    pub piece: usize,
    pub range: Range<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Pieces {
    pieces: Vec<Piece>,
    takeover_after: Duration,
}

/// Returns the age at which a request counts as slow: two seconds with default limits. This age doubles each
/// time the piece is taken over. The number of missing bytes does not matter, because a slow server takes long
/// even for a few bytes.
pub fn takeover_after(limits: &FetchLimits) -> Duration {
    limits.give_up_after.checked_div(30).unwrap_or_default().min(Duration::from_secs(2))
}

impl Pieces {
    /// Creates a piece from each range that is not complete. `done` contains the bytes that have arrived. The
    /// missing part of a piece reaches from its first missing byte to its last one. `widen` extends this part
    /// to a range that can be checked, such as whole frames, but not beyond the piece.
    pub fn new(
        ranges: impl IntoIterator<Item = Range<u64>>,
        done: &RangeSet<u64>,
        widen: impl Fn(Range<u64>) -> Range<u64>,
        takeover_after: Duration,
    ) -> Self {
        let mut pieces = Vec::new();
        for range in ranges {
            let mut gaps = done.gaps(&range);
            let Some(first) = gaps.next() else { continue };
            let end = gaps.last().map_or(first.end, |gap| gap.end);
            let missing = widen(first.start..end);
            let missing = missing.start.max(range.start)..missing.end.min(range.end);
            pieces.push(Piece { missing, ..Piece::default() });
        }
        Self { pieces, takeover_after }
    }

    /// Takes the next range to fetch from a server; `None` if there is no work for one more
    /// connection. `now` must never decrease.
    pub fn take(&mut self, now: Duration, server_index: usize) -> Option<PieceRequest> {
        let free = self.pieces.iter().position(|piece| piece.connections == 0 && !piece.missing.is_empty());
        let number = free.or_else(|| self.find_oldest_slow_piece(now, server_index))?;
        let piece = self.pieces.get_mut(number)?;
        if piece.connections > 0 {
            piece.takeovers = piece.takeovers.saturating_add(1);
            if piece.server_index != server_index {
                piece.overtaken_index = Some(piece.server_index);
            }
        }
        piece.connections = piece.connections.saturating_add(1);
        (piece.last_started, piece.server_index) = (now, server_index);
        Some(PieceRequest { piece: number, range: piece.missing.clone() })
    }

    fn find_oldest_slow_piece(&self, now: Duration, server_index: usize) -> Option<usize> {
        let is_slow = |piece: &Piece| {
            let time_max = self.takeover_after.saturating_mul(1 << piece.takeovers.min(8));
            piece.connections > 0
                && !piece.missing.is_empty()
                && piece.overtaken_index != Some(server_index)
                && now.saturating_sub(piece.last_started) >= time_max
        };
        let slow_pieces = self.pieces.iter().enumerate().filter(|(_, piece)| is_slow(piece));
        slow_pieces.min_by_key(|(_, piece)| piece.last_started).map(|(number, _)| number)
    }

    /// Records that a piece has arrived up to `end_bytes`.
    pub fn record_arrival(&mut self, piece: usize, end_bytes: u64) {
        if let Some(Piece { missing, .. }) = self.pieces.get_mut(piece) {
            missing.start = missing.start.max(end_bytes).min(missing.end);
        }
    }

    /// Records that a connection has stopped fetching a piece, complete or not.
    pub fn give_back(&mut self, piece: usize) {
        if let Some(piece) = self.pieces.get_mut(piece) {
            piece.connections = piece.connections.saturating_sub(1);
        }
    }

    pub fn has_arrived(&self, piece: usize) -> bool {
        self.pieces.get(piece).is_none_or(|piece| piece.missing.is_empty())
    }

    pub fn is_complete(&self) -> bool {
        self.pieces.iter().all(|piece| piece.missing.is_empty())
    }
}

/// Cuts `0..length_bytes` into pieces. `piece_bytes` returns the length of the next piece for the
/// number of remaining bytes.
pub fn cut_pieces(length_bytes: u64, piece_bytes: impl Fn(u64) -> u64) -> impl Iterator<Item = Range<u64>> {
    let mut start = 0u64;
    std::iter::from_fn(move || {
        let remaining_bytes = length_bytes.checked_sub(start).filter(|bytes| *bytes > 0)?;
        let piece = start..start.saturating_add(piece_bytes(remaining_bytes).clamp(1, remaining_bytes));
        start = piece.end;
        Some(piece)
    })
}

/// Groups neighboring frames into pieces of at most `piece_bytes`. A longer frame is a piece of its own.
pub fn group_frames(frame_ends: &[u64], piece_bytes: impl Fn(u64) -> u64) -> Vec<Range<u64>> {
    let length_bytes = frame_ends.last().copied().unwrap_or(0);
    let mut pieces = Vec::new();
    let mut start = 0u64;
    let mut end = 0u64;
    for frame_end in frame_ends.iter().copied() {
        let wanted_bytes = piece_bytes(length_bytes.saturating_sub(start));
        if frame_end.saturating_sub(start) > wanted_bytes && end > start {
            pieces.push(start..end);
            start = end;
        }
        end = frame_end;
    }
    if end > start {
        pieces.push(start..end);
    }
    pieces
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pieces_are_taken_in_order_and_slow_ones_are_taken_over() {
        let takeover = takeover_after(&FetchLimits::default());
        let pieces = cut_pieces(2_500_000, |_| 1_000_000);
        let mut pieces = Pieces::new(pieces, &RangeSet::new(), |missing| missing, takeover);
        let seconds = Duration::from_secs;
        let requests: Vec<PieceRequest> = (0..3).map(|_| pieces.take(seconds(1), 0).expect("a piece")).collect();
        assert_eq!(requests[2].range, 2_000_000..2_500_000);
        assert_eq!(pieces.take(seconds(2), 0), None, "none is slow yet");
        let second = pieces.take(seconds(3), 0).expect("the oldest");
        assert_eq!(second.piece, 0);
        assert_eq!(pieces.take(seconds(4), 0).expect("the next").piece, 1);
        pieces.record_arrival(0, 1);
        pieces.give_back(0);
        pieces.give_back(0);
        assert_eq!(pieces.take(seconds(4), 7).expect("given back").range, 1..1_000_000);
        pieces.record_arrival(0, 1_000_000);
        assert_eq!([pieces.has_arrived(0), pieces.has_arrived(1)], [true, false]);
        pieces.give_back(0);
        // One byte is enough work for another connection.
        pieces.record_arrival(1, 1_999_999);
        assert_eq!(pieces.take(seconds(4), 0).expect("a piece").piece, 2);
        assert_eq!(pieces.take(seconds(5), 0), None);
        assert_eq!(pieces.take(seconds(8), 1).expect("of another server").range, 1_999_999..2_000_000);
        assert_eq!(pieces.take(seconds(12), 0).expect("a slow piece").piece, 2);
        assert_eq!(
            pieces.take(seconds(99), 0).expect("a slow piece").piece,
            2,
            "server 0 does not take back the piece that server 1 took over from it"
        );
        pieces.give_back(1);
        pieces.give_back(1);
        pieces.give_back(1);
        assert_eq!(pieces.take(seconds(99), 0).expect("given back").range, 1_999_999..2_000_000);
    }

    proptest! {
        /// The missing pieces complete any set of ranges that an earlier run left, and none reaches
        /// beyond the end of the file.
        #[test]
        fn pieces_complete_the_file(
            length in 1u64..10_000,
            piece in 1u64..3_000,
            earlier_ranges in proptest::collection::vec((0u64..10_000, 1u64..2_000), 0..6),
            cuts in proptest::collection::vec(any::<bool>(), 0..20),
        ) {
            let mut done: RangeSet<u64> = RangeSet::new();
            for (start, bytes) in earlier_ranges {
                let range = start.min(length)..(start + bytes).min(length);
                if !range.is_empty() {
                    done.insert(range);
                }
            }
            let widen = |missing: Range<u64>| missing.start / 10 * 10..missing.end.next_multiple_of(10);
            let pieces = cut_pieces(length, |remaining| (remaining / 4).max(piece));
            let mut pieces = Pieces::new(pieces, &done, widen, Duration::ZERO);
            let mut cuts = cuts.into_iter();
            while let Some(request) = pieces.take(Duration::ZERO, 0) {
                prop_assert!(!request.range.is_empty());
                prop_assert!(request.range.end <= length);
                let end = match cuts.next() {
                    Some(true) => (request.range.start + request.range.end) / 2,
                    _ => request.range.end,
                };
                if end > request.range.start {
                    done.insert(request.range.start..end);
                }
                pieces.record_arrival(request.piece, end);
                pieces.give_back(request.piece);
            }
            prop_assert!(pieces.is_complete());
            prop_assert_eq!(done.gaps(&(0..length)).count(), 0);
        }

        #[test]
        fn frames_stay_whole(frames in proptest::collection::vec(1u64..500, 0..50), piece in 1u64..2_000) {
            let ends: Vec<u64> = frames.iter().scan(0, |end, bytes| { *end += bytes; Some(*end) }).collect();
            let pieces = group_frames(&ends, |_| piece);
            let mut end = 0;
            for range in &pieces {
                prop_assert_eq!(range.start, end);
                prop_assert!(ends.contains(&range.end));
                prop_assert!(range.end - range.start <= piece || frames.contains(&(range.end - range.start)));
                end = range.end;
            }
            prop_assert_eq!(end, ends.last().copied().unwrap_or(0));
        }
    }
}
