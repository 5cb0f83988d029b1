//! Checksum of the site's own stream after each record. Streams with equal checksums have equal records up to there.
//!
//! Invariant: the checksums go over the wire. The function never changes.

/// Checksum of the empty stream.
const EMPTY: u64 = 0x9E37_79B9_7F4A_7C15;
const FACTOR: u64 = 0xD6E8_FEB8_6659_FD93;

#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// For each record: the checksum after it, and its size in bytes.
    links: Vec<(u64, u32)>,
}

impl Chain {
    pub(crate) fn push(&mut self, record: &[u8]) {
        let bytes = u32::try_from(record.len()).unwrap_or(u32::MAX);
        self.links.push((after(self.last(), record), bytes));
    }

    /// Checksum of the first `len` records, if there are that many.
    pub(crate) fn at(&self, len: u64) -> Option<u64> {
        match len.checked_sub(1) {
            None => Some(EMPTY),
            Some(last) => self.links.get(usize::try_from(last).ok()?).map(|(sum, _)| *sum),
        }
    }

    fn last(&self) -> u64 {
        self.links.last().map_or(EMPTY, |(sum, _)| *sum)
    }

    /// How many records from number `from` on fit into `bytes_max`; at least one, if there is one.
    pub(crate) fn portion(&self, from: u64, bytes_max: usize) -> usize {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let mut left = bytes_max;
        let rest = self.links.get(from..).unwrap_or_default();
        let fits = |(_, bytes): &&(u64, u32)| {
            let fits = *bytes as usize <= left;
            left = left.saturating_sub(*bytes as usize);
            fits
        };
        rest.iter().take_while(fits).count().max(1).min(rest.len())
    }
}

/// Checksum of a stream after one more record.
pub(crate) fn after(before: u64, record: &[u8]) -> u64 {
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let (words, rest) = record.as_chunks::<8>();
    let sum = words.iter().fold(before, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(mix(sum, u64::from_le_bytes(last)), record.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(records: &[&[u8]]) -> Chain {
        let mut chain = Chain::default();
        records.iter().for_each(|record| chain.push(record));
        chain
    }

    #[test]
    fn equal_records_have_equal_checksums_and_others_differ() {
        let chain = of(&[b"one", b"another one", b""]);
        assert_eq!(chain.at(0), of(&[]).at(0));
        assert_eq!(chain.at(2), of(&[b"one", b"another one", b"a third"]).at(2));
        assert_eq!(chain.at(4), None);
        for others in
            [[b"one" as &[u8], b"another onf"], [b"onea", b"nother one"], [b"one\0", b"x"]]
        {
            assert_ne!(chain.at(2), of(&others).at(2), "{others:?}");
        }
    }

    #[test]
    fn checksums_never_change() {
        let chain = of(&[b"one", b"another one"]);
        assert_eq!(chain.at(0), Some(0x9E37_79B9_7F4A_7C15));
        assert_eq!(chain.at(1), Some(4_531_815_664_428_874_356));
    }

    #[test]
    fn a_portion_is_never_empty_and_seldom_too_large() {
        let chain = of(&[b"12345", b"12345", b"12345"]);
        for (from, bytes_max, count) in
            [(0, 100, 3), (0, 10, 2), (0, 9, 1), (0, 1, 1), (2, 100, 1), (3, 100, 0), (9, 1, 0)]
        {
            assert_eq!(chain.portion(from, bytes_max), count, "{from} {bytes_max}");
        }
    }
}
