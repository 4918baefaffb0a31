use std::ops::Range;

/// Memory of a side's queue pairs, unless one message each needs more: it stays in the cache.
const HOT: usize = 1 << 20;
/// Alignment of parts.
const LINE: usize = 64;

/// A part of a region per queue pair; its slots are used in turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    size: usize,
    pub(super) slots: usize,
    part: usize,
}

impl Layout {
    /// `largest` message, `depth` outstanding.
    pub(super) fn new(size: usize, largest: usize, qps: usize, depth: usize) -> Self {
        let part = (HOT / qps).max(largest).next_multiple_of(LINE);
        Self { size, slots: (part / size).clamp(1, depth), part }
    }

    pub(super) const fn bytes(&self, qps: usize) -> usize {
        self.part * qps
    }

    pub(super) const fn place(&self, qp: usize, slot: usize) -> Range<usize> {
        let at = qp * self.part + slot * self.size;
        at..at + self.size
    }
}

/// Depends on offset, round and side: leftovers never match.
pub(super) fn pattern(size: usize, round: usize, by_client: bool) -> Vec<u8> {
    let seed = (round * 2 + usize::from(by_client) + 1) as u8;
    (0..size).map(|at| ((at ^ at >> 8 ^ at >> 16) as u8).wrapping_add(seed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap() {
        for (size, largest, qps, depth) in
            [(8, 8, 1, 128), (2, 8 << 20, 1, 128), (65_536, 65_536, 256, 128), (1, 1, 3, 2)]
        {
            let layout = Layout::new(size, largest, qps, depth);
            let mut end = 0;
            for qp in 0..qps {
                for slot in 0..layout.slots {
                    let place = layout.place(qp, slot);
                    assert!(place.start >= end, "{layout:?}");
                    end = place.end;
                }
            }
            assert!(end <= layout.bytes(qps), "{layout:?}");
            assert!(layout.slots <= depth);
        }
    }

    #[test]
    fn patterns_of_sides_and_rounds_differ_in_every_byte() {
        let one = pattern(300, 0, true);
        for other in [pattern(300, 0, false), pattern(300, 1, true), pattern(300, 1, false)] {
            assert!(one.iter().zip(&other).all(|(a, b)| a != b));
        }
    }
}
