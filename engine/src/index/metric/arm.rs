//! NEON.

use std::arch::aarch64::{float32x4_t, vaddq_f32, vaddvq_f32, vdupq_n_f32, vfmaq_f32, vld1q_f32};
use std::arch::is_aarch64_feature_detected;

use super::{Metric, kernels, tail};

/// NEON where it is present (every 64-bit ARM desktop).
pub(super) fn detected() -> Vec<Metric> {
    if is_aarch64_feature_detected!("neon") { vec![Metric { name: "neon", one: dot_neon, four: dot4_neon }] } else { Vec::new() }
}

#[inline]
#[target_feature(enable = "neon")]
fn fma_neon(a: float32x4_t, b: float32x4_t, sum: float32x4_t) -> float32x4_t {
    vfmaq_f32(sum, a, b)
}

#[inline]
#[target_feature(enable = "neon")]
fn sum_neon(even: float32x4_t, odd: float32x4_t) -> f32 {
    vaddvq_f32(vaddq_f32(even, odd))
}

kernels!("neon", 4, vdupq_n_f32, vld1q_f32, fma_neon, sum_neon, dot_neon, dot4_neon);
