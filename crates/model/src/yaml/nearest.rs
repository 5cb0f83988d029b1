//! Guesses which word was meant: the nearest known one by edit distance.
//!
//! Only good guesses are returned: at most one edit for each three characters.

/// Longer words are not compared.
const LEN_MAX: usize = 64;

/// The known word nearest to `word`, if one is near enough.
pub fn nearest<'w>(word: &str, known: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let word: Vec<char> = word.chars().take(LEN_MAX + 1).collect();
    if word.len() > LEN_MAX {
        return None;
    }
    let edits_max = (word.len() / 3).max(1);
    known
        .filter(|candidate| candidate.len().abs_diff(word.len()) <= edits_max)
        .map(|candidate| (distance(&word, candidate), candidate))
        .filter(|(edits, _)| *edits <= edits_max)
        .min()
        .map(|(_, candidate)| candidate)
}

/// The number of inserted, deleted, changed or swapped characters.
fn distance(a: &[char], b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_the_word_and_nonsense_does_not() {
        let known = ["step", "steps", "reads", "requires", "writes", "who"];
        for (slip, meant) in [
            ("read", Some("reads")),
            ("raeds", Some("reads")),
            ("require", Some("requires")),
            ("stpe", Some("step")),
            ("hwo", Some("who")),
            ("banana", None),
            ("", None),
        ] {
            assert_eq!(nearest(slip, known.into_iter()), meant, "{slip}");
        }
        assert_eq!(nearest(&"x".repeat(1_000_000), known.into_iter()), None);
    }
}
