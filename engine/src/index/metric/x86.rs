//! AVX-512 and AVX2 with FMA.

use std::arch::x86_64::{
    __m256, __m512, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_movehl_ps, _mm_shuffle_ps, _mm256_add_ps, _mm256_castps256_ps128,
    _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps,
    _mm512_reduce_add_ps, _mm512_set1_ps,
};

use super::{Metric, kernels, tail};

/// The kernels of this file that the processor has, the widest first.
pub(super) fn detected() -> Vec<Metric> {
    let mut kernels = Vec::new();
    if is_x86_feature_detected!("avx512f") {
        kernels.push(Metric { name: "avx512", one: dot_avx512, four: dot4_avx512 });
    }
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        kernels.push(Metric { name: "avx2", one: dot_avx2, four: dot4_avx2 });
    }
    kernels
}

#[inline]
#[target_feature(enable = "avx512f")]
fn sum_avx512(even: __m512, odd: __m512) -> f32 {
    _mm512_reduce_add_ps(_mm512_add_ps(even, odd))
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn sum_avx2(even: __m256, odd: __m256) -> f32 {
    let eight = _mm256_add_ps(even, odd);
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
}

kernels!("avx512f", 16, _mm512_set1_ps, _mm512_loadu_ps, _mm512_fmadd_ps, sum_avx512, dot_avx512, dot4_avx512);
kernels!("avx2,fma", 8, _mm256_set1_ps, _mm256_loadu_ps, _mm256_fmadd_ps, sum_avx2, dot_avx2, dot4_avx2);
