//! One token out of logits.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::provider::Sampling;

/// Tokens of the answer that the repeat penalty looks back over.
pub const RECENT: usize = 64;

/// Chooses tokens; the same seed and the same logits give the same tokens.
#[derive(Debug)]
pub struct Sampler {
    settings: Sampling,
    dice: StdRng,
}

impl Sampler {
    /// A sampler at the start of its dice.
    #[must_use]
    pub fn new(settings: Sampling) -> Self {
        Self { settings, dice: StdRng::seed_from_u64(settings.seed) }
    }

    /// Divides the logits of tokens that were written lately by the repeat penalty (negative ones are multiplied), so that
    /// they become less likely (Keskar et al., "CTRL", 2019).
    pub fn penalise(&self, logits: &mut [f32], written: &[u32]) {
        let penalty = self.settings.repeat_penalty;
        if !penalty.is_finite() || penalty <= 0.0 || (penalty - 1.0).abs() < f32::EPSILON {
            return;
        }
        let mut recent = written[written.len().saturating_sub(RECENT)..].to_vec();
        recent.sort_unstable();
        recent.dedup();
        for token in recent {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            }
        }
    }

    /// Chooses among the tokens whose logit is a number; `None` when there is none. Top-k, top-p and min-p look at the
    /// probabilities before the temperature.
    pub fn pick(&mut self, logits: &[f32]) -> Option<u32> {
        if self.settings.temperature <= 0.0 || !self.settings.temperature.is_finite() {
            return best(logits);
        }
        let mut kept: Vec<(u32, f32)> = (0..).zip(logits).filter(|(_, l)| l.is_finite()).map(|(t, l)| (t, *l)).collect();
        self.cut(&mut kept);
        let top = kept.first()?.1;
        let weights: Vec<f64> = kept.iter().map(|(_, l)| f64::from((l - top) / self.settings.temperature).exp()).collect();
        let mut mark = self.dice.random::<f64>() * weights.iter().sum::<f64>();
        for ((token, _), weight) in kept.iter().zip(&weights) {
            mark -= weight;
            if mark < 0.0 {
                return Some(*token);
            }
        }
        kept.first().map(|(token, _)| *token)
    }

    /// Sorts by logit, the best first, and drops what top-k, top-p and min-p drop. The best always stays.
    fn cut(&self, kept: &mut Vec<(u32, f32)>) {
        let order = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        let most = self.settings.top_k;
        if most > 0 && most < kept.len() {
            let _ = kept.select_nth_unstable_by(most - 1, order);
            kept.truncate(most);
        }
        kept.sort_unstable_by(order);
        let Some(top) = kept.first().map(|(_, logit)| *logit) else { return };
        let shares: Vec<f64> = kept.iter().map(|(_, logit)| f64::from(logit - top).exp()).collect();
        let total: f64 = shares.iter().sum();
        let (mass, least) = (f64::from(self.settings.top_p), f64::from(self.settings.min_p));
        let mut sum = 0.0;
        let mut keep = 0;
        for share in shares {
            if keep > 0 && ((mass < 1.0 && sum >= mass * total) || share < least) {
                break;
            }
            sum += share;
            keep += 1;
        }
        kept.truncate(keep);
    }
}

/// The token of the largest logit; the smaller id where two are equal.
#[must_use]
pub fn best(logits: &[f32]) -> Option<u32> {
    let numbers = (0u32..).zip(logits).filter(|(_, logit)| logit.is_finite());
    numbers.reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(token, _)| token)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settings(temperature: f32) -> Sampling {
        Sampling { temperature, top_k: 0, top_p: 1.0, min_p: 0.0, repeat_penalty: 1.0, seed: 7 }
    }

    fn counts(settings: Sampling, logits: &[f32], draws: usize) -> Vec<usize> {
        let mut sampler = Sampler::new(settings);
        let mut counts = vec![0; logits.len()];
        for _ in 0..draws {
            counts[sampler.pick(logits).unwrap() as usize] += 1;
        }
        counts
    }

    #[test]
    fn zero_is_greedy() {
        let logits = [1.0, f32::NAN, 3.0, 3.0, f32::NEG_INFINITY];
        assert_eq!(Sampler::new(settings(0.0)).pick(&logits), Some(2));
        assert_eq!(Sampler::new(settings(1.0)).pick(&[f32::NEG_INFINITY; 3]), None);
    }

    #[test]
    fn frequencies_follow_the_softmax() {
        let counts = counts(settings(1.0), &[0.0, 2.0f32.ln(), 5.0f32.ln()], 8_000);
        for (count, expected) in counts.iter().zip([1_000.0, 2_000.0, 5_000.0]) {
            assert!((*count as f64 - expected).abs() < 200.0, "{counts:?}");
        }
    }

    #[test]
    fn each_cut_drops_what_it_says() {
        let logits: Vec<f32> = [0.5f32, 0.3, 0.15, 0.05].iter().map(|p| p.ln()).collect();
        let kept = |change: fn(&mut Sampling)| {
            let mut settings = settings(1.0);
            change(&mut settings);
            counts(settings, &logits, 2_000).iter().filter(|count| **count > 0).count()
        };
        assert_eq!(kept(|_| ()), 4);
        assert_eq!(kept(|s| s.top_k = 2), 2);
        assert_eq!(kept(|s| s.top_p = 0.79), 2);
        assert_eq!(kept(|s| s.min_p = 0.2), 3);
        assert_eq!(kept(|s| s.top_p = 0.0), 1);
    }

    #[test]
    fn the_penalty_pushes_down() {
        let mut logits = [2.0, -2.0, 1.0];
        let sampler = Sampler::new(Sampling { repeat_penalty: 2.0, ..settings(0.0) });
        sampler.penalise(&mut logits, &[0, 0, 1, 99]);
        assert_eq!(logits, [1.0, -4.0, 1.0]);
    }

    proptest! {
        #[test]
        fn the_same_seed_gives_the_same_tokens(seed: u64, logits in proptest::collection::vec(-20f32..20.0, 1..200)) {
            let settings = Sampling { seed, temperature: 0.9, ..Sampling::default() };
            let draw = || { let mut s = Sampler::new(settings); (0..20).map(|_| s.pick(&logits)).collect::<Vec<_>>() };
            prop_assert_eq!(draw(), draw());
        }
    }
}
