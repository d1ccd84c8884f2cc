//! When a decision counts: only a press by someone who could see what they press.

use std::time::{Duration, Instant};

/// How long a card must have been on screen, and the window in focus, before a decision counts. Shorter presses were
/// meant for something else: the click that focused the window, a key that was on its way.
pub const SEEN: Duration = Duration::from_millis(400);

/// Whether a decision made `now` counts.
#[must_use]
pub fn counts(shown_at: Option<Instant>, focused_since: Option<Instant>, now: Instant) -> bool {
    let long_enough = |since: Option<Instant>| since.is_some_and(|since| now.saturating_duration_since(since) >= SEEN);
    long_enough(shown_at) && long_enough(focused_since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_counts_only_after_card_and_focus_were_there_long_enough() {
        let start = Instant::now();
        let later = start + SEEN;
        assert!(counts(Some(start), Some(start), later));
        assert!(!counts(Some(start), Some(start), later.checked_sub(Duration::from_millis(1)).unwrap()));
        assert!(!counts(None, Some(start), later));
        assert!(!counts(Some(start), None, later));
        assert!(!counts(Some(later), Some(start), later));
    }
}
