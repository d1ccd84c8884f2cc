//! Whether a turn needs a tool: for small models that call well under a grammar, but cannot decide when to.

use super::Candidate;
use super::choose::sorted;
use super::score::{Fit, Query, fits};

/// Most tools among which a small model picks.
pub const FEW: usize = 3;

/// A tool must know at least this share of what the text speaks of.
const COVERAGE: f32 = 0.5;

/// Other tools are offered with the best one when their score reaches this share of its score.
const CLOSE: f32 = 0.6;

/// What a turn needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Intent {
    /// One call of one of these tools.
    Call {
        /// The tools, by alias, sorted.
        offered: Vec<String>,
        /// The best of them.
        best: String,
        /// Why.
        reason: String,
    },
    /// No tool.
    Talk {
        /// Why.
        reason: String,
    },
}

/// Decides by words alone whether a text asks for a tool.
///
/// It does when the text names a tool, or when a tool knows at least half of the text's content words and either its
/// name holds one of them that is more than a verb (*time* for `get_current_time`), or the text has the verb of its
/// name together with something to use it on (another word that it knows, or a path or an address that it takes). So
/// *write a poem about the sea* does not call `write_file`. Words in capitals, numbers, paths and quotations count as
/// values for a tool, not as content words. Only words are compared: a request in another language than the tools'
/// definitions is missed, unless it names the tool.
#[must_use]
pub fn intent(candidates: &[Candidate], text: &str) -> Intent {
    if candidates.is_empty() {
        return Intent::Talk { reason: "no tools are available".to_owned() };
    }
    let query = Query::of(text);
    let fits = fits(candidates, &query);
    let Some(best) = fits.iter().find(|fit| asks_for(fit)) else {
        let closest = fits.first().filter(|fit| fit.score > 0.0);
        let reason = closest.map_or_else(
            || "no tool: no tool speaks of what the text speaks of".to_owned(),
            |fit| {
                let (alias, share) = (&candidates[fit.index].alias, percent(fit.coverage));
                format!("no tool: the closest, {alias}, knows {share} % of the text's words, and that is not enough to call it")
            },
        );
        return Intent::Talk { reason };
    };
    let close = |fit: &&Fit| fit.index == best.index || (asks_for(fit) && !best.named && fit.score >= CLOSE * best.score);
    let chosen: Vec<usize> = fits.iter().filter(close).take(FEW).map(|fit| fit.index).collect();
    let name = candidates[best.index].alias.clone();
    let reason = if best.named {
        format!("the text names {name}")
    } else {
        format!("the text asks for {name} (it knows {} % of its words); the model decodes one call", percent(best.coverage))
    };
    Intent::Call { offered: sorted(candidates, chosen), best: name, reason }
}

fn asks_for(fit: &Fit) -> bool {
    fit.named || (fit.coverage >= COVERAGE && (fit.object || (fit.verb && (fit.met > 1 || fit.takes_value))))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // A share between 0 and 1.
fn percent(share: f32) -> u32 {
    (share.clamp(0.0, 1.0) * 100.0).round() as u32
}
