//! What a model that decides for itself gets to see.

use super::score::{Query, fits};
use super::{Candidate, Choice, Sticky, estimate_tokens};

/// So few tools are offered whole, unless they are very large.
const FEW: usize = 5;

/// Even a few tools may not take more than this share of the context.
const LARGEST_SHARE: f32 = 0.25;

/// What tools may cost.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Tokens of the model's context window.
    pub context: usize,
    /// The share of it that tools may take before routing starts.
    pub share: f32,
    /// Most tools while routing is on.
    pub most: usize,
}

impl Budget {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // A share of a context.
    fn tokens(&self, share: f32) -> usize {
        (self.context as f32 * share.max(0.0)) as usize
    }
}

/// Chooses the tools that a turn offers.
///
/// All of them where their definitions cost less than the budget's share of the context, or where there are at most
/// five; else those that fit the text best, within that share and the number of the budget, the tools of `sticky`
/// first: what was offered once in a conversation stays. A tool that the text names is always among them. Where
/// nothing fits the text and nothing sticks, the first tools by alias fill the budget: no tools at all would be worse.
#[must_use]
pub fn choose(candidates: &[Candidate], text: &str, budget: Budget, sticky: &Sticky) -> Choice {
    let costs: Vec<usize> = candidates.iter().map(|candidate| estimate_tokens(&candidate.definition)).collect();
    let (all, allowed) = (costs.iter().sum::<usize>(), budget.tokens(budget.share));
    if candidates.is_empty() {
        return Choice { offered: Vec::new(), reason: "no tools are available".to_owned(), best: 0.0 };
    }
    if all <= allowed || (candidates.len() <= FEW && all <= budget.tokens(LARGEST_SHARE)) {
        let offered = sorted(candidates, 0..candidates.len());
        let reason = format!("all {} tools: about {all} tokens of a context of {}", candidates.len(), budget.context);
        return Choice { offered, reason, best: 0.0 };
    }
    let fits = fits(candidates, &Query::of(text));
    let best = fits.first().map_or(0.0, |fit| fit.score);
    let sticks = |index: usize| {
        let id = &candidates[index].definition.id;
        sticky.contains(&(id.server.clone(), id.name.clone()))
    };
    let mut chosen: Vec<usize> = (0..candidates.len()).filter(|index| sticks(*index)).collect();
    let stuck = chosen.len();
    let mut spent: usize = chosen.iter().map(|index| costs[*index]).sum();
    for fit in &fits {
        let fitting = fit.named || fit.score > 0.0 || stuck == 0;
        let room = chosen.len() < budget.most && spent + costs[fit.index] <= allowed;
        if fitting && !chosen.contains(&fit.index) && (room || fit.named || chosen.is_empty()) {
            spent += costs[fit.index];
            chosen.push(fit.index);
        }
    }
    let reason = format!(
        "{} of {} tools by their fit with the text ({stuck} offered before): all would take about {all} tokens, {allowed} are set aside",
        chosen.len(),
        candidates.len()
    );
    Choice { offered: sorted(candidates, chosen), reason, best }
}

pub(super) fn sorted(candidates: &[Candidate], chosen: impl IntoIterator<Item = usize>) -> Vec<String> {
    let mut offered: Vec<String> = chosen.into_iter().map(|index| candidates[index].alias.clone()).collect();
    offered.sort_unstable();
    offered
}
