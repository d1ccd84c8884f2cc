//! The passages that an answer cites.
// To be replaced by `rag::cite`, which checks each citation against its passage.

use std::collections::BTreeSet;

/// The numbers `n` of `[n]` and `[n, m]` in a text, from 1 to `most`, ascending.
pub(super) fn numbers(text: &str, most: usize) -> Vec<usize> {
    let mut found = BTreeSet::new();
    for piece in text.split('[').skip(1) {
        let Some((inside, _)) = piece.split_once(']') else { continue };
        let numbers: Option<Vec<usize>> = inside.split(',').map(|number| number.trim().parse().ok()).collect();
        found.extend(numbers.unwrap_or_default().into_iter().filter(|number| (1..=most).contains(number)));
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_of_passages_count() {
        assert_eq!(numbers("Costs rose [2], sales fell [1][2]. See [3, 4], [x], [0], [9] and [1", 4), [1, 2, 3, 4]);
        assert!(numbers("No passages [1].", 0).is_empty());
    }
}
