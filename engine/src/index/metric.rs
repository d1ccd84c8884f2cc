//! The inner product, by the widest instructions this processor has.
//!
//! Each kernel comes as one row and as four rows at once (the query is then loaded once for four); both add in the same
//! order, so that a pair of vectors always gets the same score whichever was used.

#[cfg(target_arch = "aarch64")]
mod arm;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

type One = unsafe fn(&[f32], &[f32]) -> f32;
type Four = unsafe fn(&[f32], [&[f32]; 4]) -> [f32; 4];

/// One way of computing inner products that this processor can run.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    name: &'static str,
    one: One,
    four: Four,
}

impl Metric {
    /// The fastest of [`Metric::all`], chosen once.
    #[must_use]
    pub fn best() -> Self {
        static BEST: OnceLock<Metric> = OnceLock::new();
        *BEST.get_or_init(|| Self::all().first().copied().unwrap_or(PORTABLE))
    }

    /// Every kernel that this processor can run, the fastest first, the portable one last.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut kernels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        kernels.extend(x86::detected());
        #[cfg(target_arch = "aarch64")]
        kernels.extend(arm::detected());
        kernels.push(PORTABLE);
        kernels
    }

    /// `avx512`, `avx2`, `neon` or `portable`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Sum of the products. Both slices must have the same length.
    #[must_use]
    #[allow(unsafe_code)]
    pub fn dot(&self, query: &[f32], row: &[f32]) -> f32 {
        assert_eq!(query.len(), row.len());
        // SAFETY: a kernel is only listed after its instructions were detected, and the lengths are equal.
        unsafe { (self.one)(query, row) }
    }

    /// Four inner products with one query. All slices must have the same length.
    #[must_use]
    #[allow(unsafe_code)]
    pub fn dot4(&self, query: &[f32], rows: [&[f32]; 4]) -> [f32; 4] {
        assert!(rows.iter().all(|row| row.len() == query.len()));
        // SAFETY: as in `dot`.
        unsafe { (self.four)(query, rows) }
    }
}

const PORTABLE: Metric = Metric { name: "portable", one: portable, four: portable4 };

fn portable(query: &[f32], row: &[f32]) -> f32 {
    let mut sums = [0.0f32; 16];
    let (query, row) = (query.chunks_exact(16), row.chunks_exact(16));
    let tail: f32 = query.remainder().iter().zip(row.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in query.zip(row) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f32>() + tail
}

fn portable4(query: &[f32], rows: [&[f32]; 4]) -> [f32; 4] {
    rows.map(|row| portable(query, row))
}

/// Writes the two functions of one instruction set: two running sums per row, a scalar tail.
macro_rules! kernels {
    ($feature:literal, $lanes:literal, $zero:path, $load:path, $fma:path, $sum:path, $one:ident, $four:ident) => {
        #[target_feature(enable = $feature)]
        #[allow(unsafe_code)]
        fn $one(query: &[f32], row: &[f32]) -> f32 {
            let whole = query.len() - query.len() % (2 * $lanes);
            let (q, r) = (query.as_ptr(), row.as_ptr());
            let (mut even, mut odd) = ($zero(0.0), $zero(0.0));
            let mut i = 0;
            while i < whole {
                // SAFETY: i + 2 lanes <= whole <= the length of both slices (equal, checked by the caller).
                unsafe {
                    even = $fma($load(q.add(i)), $load(r.add(i)), even);
                    odd = $fma($load(q.add(i + $lanes)), $load(r.add(i + $lanes)), odd);
                }
                i += 2 * $lanes;
            }
            $sum(even, odd) + tail(query, row, whole)
        }

        #[target_feature(enable = $feature)]
        #[allow(unsafe_code)]
        fn $four(query: &[f32], rows: [&[f32]; 4]) -> [f32; 4] {
            let whole = query.len() - query.len() % (2 * $lanes);
            let q = query.as_ptr();
            let (a, b, c, d) = (rows[0].as_ptr(), rows[1].as_ptr(), rows[2].as_ptr(), rows[3].as_ptr());
            let (mut a0, mut b0, mut c0, mut d0) = ($zero(0.0), $zero(0.0), $zero(0.0), $zero(0.0));
            let (mut a1, mut b1, mut c1, mut d1) = ($zero(0.0), $zero(0.0), $zero(0.0), $zero(0.0));
            let mut i = 0;
            while i < whole {
                // SAFETY: as in the function for one row; all five slices have the same length.
                unsafe {
                    let (even, odd) = ($load(q.add(i)), $load(q.add(i + $lanes)));
                    a0 = $fma(even, $load(a.add(i)), a0);
                    b0 = $fma(even, $load(b.add(i)), b0);
                    c0 = $fma(even, $load(c.add(i)), c0);
                    d0 = $fma(even, $load(d.add(i)), d0);
                    a1 = $fma(odd, $load(a.add(i + $lanes)), a1);
                    b1 = $fma(odd, $load(b.add(i + $lanes)), b1);
                    c1 = $fma(odd, $load(c.add(i + $lanes)), c1);
                    d1 = $fma(odd, $load(d.add(i + $lanes)), d1);
                }
                i += 2 * $lanes;
            }
            let mut sums = [$sum(a0, a1), $sum(b0, b1), $sum(c0, c1), $sum(d0, d1)];
            for (sum, row) in sums.iter_mut().zip(rows) {
                *sum += tail(query, row, whole);
            }
            sums
        }
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use kernels;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn tail(query: &[f32], row: &[f32], from: usize) -> f32 {
    query[from..].iter().zip(&row[from..]).map(|(a, b)| a * b).sum()
}

/// Asks the processor to bring a row into its cache. A hint: it changes nothing else.
#[inline]
#[allow(unsafe_code)]
pub(super) fn prefetch<T>(numbers: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let lines = (size_of_val(numbers) / 64).min(PREFETCHED_LINES);
        for line in 0..lines {
            // SAFETY: SSE is part of x86_64; a prefetch never faults, and the address is inside the slice.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(numbers.as_ptr().cast::<i8>().add(line * 64)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = numbers;
}

/// Lines asked for ahead of a row; the processor's own stream detection fetches the rest.
#[cfg(target_arch = "x86_64")]
const PREFETCHED_LINES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(length: usize, seed: u64) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / 8_388_608.0 - 1.0
        };
        (0..length).map(|_| next()).collect()
    }

    #[test]
    fn every_kernel_agrees_with_plain_arithmetic_at_every_length() {
        for kernel in Metric::all() {
            for length in 0..=400 {
                let query = numbers(length, 1);
                let rows: Vec<_> = (2..6).map(|seed| numbers(length, seed)).collect();
                let four = kernel.dot4(&query, [&rows[0], &rows[1], &rows[2], &rows[3]]);
                for (row, score) in rows.iter().zip(four) {
                    let plain: f64 = query.iter().zip(row).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                    let size: f64 = query.iter().zip(row).map(|(a, b)| (f64::from(*a) * f64::from(*b)).abs()).sum();
                    let one = kernel.dot(&query, row);
                    assert!((f64::from(one) - plain).abs() <= size * 1e-6, "{} at {length}: {one} is not {plain}", kernel.name());
                    assert_eq!(one.to_bits(), score.to_bits(), "{} at {length}: one row and four rows differ", kernel.name());
                }
            }
        }
    }

    #[test]
    fn unaligned_slices_are_fine() {
        let (query, row) = (numbers(401, 7), numbers(403, 8));
        for kernel in Metric::all() {
            let plain: f32 = query[1..385].iter().zip(&row[3..387]).map(|(a, b)| a * b).sum();
            assert!((kernel.dot(&query[1..385], &row[3..387]) - plain).abs() < 1e-3);
        }
    }

    #[test]
    #[should_panic(expected = "left == right")]
    fn different_lengths_never_reach_a_kernel() {
        let _ = Metric::best().dot(&[1.0; 64], &[1.0; 63]);
    }
}
