//! Dot products of Q4_1 and Q8_0 rows with a vector in 8 bits.
//!
//! A Q4_1 block is 32 numbers `d q + m` (f16 d, f16 m, then 16 bytes whose low halves are the numbers 0..16 and whose high
//! halves are 16..32); a Q8_0 block is 32 numbers `d q` (f16 d, then 32 signed bytes).

use candle_core::quantized::GgmlDType;
use half::f16;

/// Numbers per block.
pub(super) const BLOCK: usize = 32;

/// A vector of 32 signed bytes per block, each with its scale, and the sum of what it stands for.
#[derive(Debug)]
pub(super) struct Packed {
    numbers: Vec<[i8; BLOCK]>,
    scales: Vec<f32>,
    sums: Vec<f32>,
}

impl Packed {
    pub(super) fn new(x: &[f32]) -> Self {
        let count = x.len() / BLOCK;
        let mut packed = Self { numbers: Vec::with_capacity(count), scales: Vec::with_capacity(count), sums: Vec::with_capacity(count) };
        for block in x.chunks_exact(BLOCK) {
            let most = block.iter().fold(0f32, |most, x| most.max(x.abs()));
            let scale = most / 127.0;
            let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            let mut numbers = [0i8; BLOCK];
            let mut sum = 0i32;
            for (number, x) in numbers.iter_mut().zip(block) {
                #[allow(clippy::cast_possible_truncation)]
                let rounded = (x * inverse).round() as i8;
                *number = rounded;
                sum += i32::from(rounded);
            }
            packed.numbers.push(numbers);
            packed.scales.push(scale);
            #[allow(clippy::cast_precision_loss)]
            packed.sums.push(sum as f32 * scale);
        }
        packed
    }
}

/// A format with a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    Q4_1,
    Q8_0,
}

impl Kernel {
    pub(super) fn of(dtype: GgmlDType) -> Option<Self> {
        match dtype {
            GgmlDType::Q4_1 => Some(Self::Q4_1),
            GgmlDType::Q8_0 => Some(Self::Q8_0),
            _ => None,
        }
    }

    /// Bytes of a block.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Q4_1 => 20,
            Self::Q8_0 => 34,
        }
    }

    /// The product of a row with a vector.
    #[allow(unsafe_code)]
    pub(super) fn dot(self, row: &[u8], vector: &Packed) -> f32 {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") && std::is_x86_feature_detected!("f16c") {
            // SAFETY: the processor has the features that these functions are compiled for.
            return unsafe {
                match self {
                    Self::Q4_1 => avx2::q4_1(row, vector),
                    Self::Q8_0 => avx2::q8_0(row, vector),
                }
            };
        }
        self.portable(row, vector)
    }

    fn portable(self, row: &[u8], vector: &Packed) -> f32 {
        let half = |bytes: &[u8], at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32();
        let blocks = row.chunks_exact(self.bytes()).zip(&vector.numbers).zip(vector.scales.iter().zip(&vector.sums));
        let dot = |((block, numbers), (scale, sum)): ((&[u8], &[i8; BLOCK]), (&f32, &f32))| match self {
            Self::Q4_1 => {
                let (low, high) = numbers.split_at(BLOCK / 2);
                let pairs = block[4..].iter().zip(low.iter().zip(high));
                let whole: i32 = pairs.map(|(q, (l, h))| i32::from(q & 15) * i32::from(*l) + i32::from(q >> 4) * i32::from(*h)).sum();
                #[allow(clippy::cast_precision_loss)]
                let whole = whole as f32;
                half(block, 0) * scale * whole + half(block, 2) * sum
            }
            Self::Q8_0 => {
                let whole: i32 = block[2..].iter().zip(numbers).map(|(q, n)| i32::from(q.cast_signed()) * i32::from(*n)).sum();
                #[allow(clippy::cast_precision_loss)]
                let whole = whole as f32;
                half(block, 0) * scale * whole
            }
        };
        blocks.map(dot).sum()
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, clippy::cast_ptr_alignment)]
mod avx2 {
    use std::arch::x86_64::{
        __m128i, __m256, __m256i, _mm_add_ps, _mm_add_ss, _mm_and_si128, _mm_cvtph_ps, _mm_cvtsi32_si128, _mm_cvtss_f32, _mm_loadu_si128,
        _mm_movehl_ps, _mm_set1_epi8, _mm_shuffle_ps, _mm_srli_epi16, _mm256_abs_epi8, _mm256_castps256_ps128, _mm256_cvtepi32_ps,
        _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_set_m128i,
        _mm256_set1_epi16, _mm256_set1_ps, _mm256_setzero_ps, _mm256_sign_epi8,
    };

    use super::{BLOCK, Packed};

    #[target_feature(enable = "avx2,fma,f16c")]
    fn sum(x: __m256) -> f32 {
        let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
        _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps::<1>(x, x)))
    }

    /// Products of unsigned with signed bytes, summed by fours.
    #[target_feature(enable = "avx2,fma,f16c")]
    fn products(unsigned: __m256i, signed: __m256i) -> __m256 {
        let pairs = _mm256_maddubs_epi16(unsigned, signed);
        _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn q4_1(row: &[u8], vector: &Packed) -> f32 {
        let mut total = _mm256_setzero_ps();
        let mut least = 0f32;
        let parts = vector.numbers.iter().zip(vector.scales.iter().zip(&vector.sums));
        for (block, (numbers, (scale, block_sum))) in row.chunks_exact(20).zip(parts) {
            let halves = _mm_cvtph_ps(_mm_cvtsi32_si128(i32::from_le_bytes([block[0], block[1], block[2], block[3]])));
            // SAFETY: a block has 20 bytes, of which 16 are read from byte 4 on; `numbers` has 32 bytes. Neither load needs
            // an alignment.
            let (packed, numbers) = unsafe {
                (_mm_loadu_si128(block.as_ptr().add(4).cast::<__m128i>()), _mm256_loadu_si256(numbers.as_ptr().cast::<__m256i>()))
            };
            let mask = _mm_set1_epi8(15);
            let low = _mm_and_si128(packed, mask);
            let high = _mm_and_si128(_mm_srli_epi16::<4>(packed), mask);
            let factor = _mm256_set1_ps(_mm_cvtss_f32(halves) * scale);
            total = _mm256_fmadd_ps(products(_mm256_set_m128i(high, low), numbers), factor, total);
            least += _mm_cvtss_f32(_mm_shuffle_ps::<1>(halves, halves)) * block_sum;
        }
        sum(total) + least
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn q8_0(row: &[u8], vector: &Packed) -> f32 {
        const { assert!(BLOCK == 32) };
        let mut total = _mm256_setzero_ps();
        for (block, (numbers, scale)) in row.chunks_exact(34).zip(vector.numbers.iter().zip(&vector.scales)) {
            let half = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(u16::from_le_bytes([block[0], block[1]])))));
            // SAFETY: a block has 34 bytes, of which 32 are read from byte 2 on; `numbers` has 32 bytes. Neither load needs
            // an alignment.
            let (weights, numbers) = unsafe {
                (_mm256_loadu_si256(block.as_ptr().add(2).cast::<__m256i>()), _mm256_loadu_si256(numbers.as_ptr().cast::<__m256i>()))
            };
            // -127 is the least number of a vector, so its sign can always be turned; a weight of -128 is 128 unsigned.
            let product = products(_mm256_abs_epi8(weights), _mm256_sign_epi8(numbers, weights));
            total = _mm256_fmadd_ps(product, _mm256_set1_ps(half * scale), total);
        }
        sum(total)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(kernel: Kernel, blocks: usize, noise: &[u8]) -> Vec<u8> {
        let mut row: Vec<u8> = noise.iter().copied().cycle().take(blocks * kernel.bytes()).collect();
        for block in row.chunks_exact_mut(kernel.bytes()) {
            block[..2].copy_from_slice(&f16::from_f32(0.02).to_le_bytes());
            if kernel == Kernel::Q4_1 {
                block[2..4].copy_from_slice(&f16::from_f32(-0.15).to_le_bytes());
            }
        }
        row
    }

    proptest! {
        #[test]
        fn the_fast_way_is_the_portable_one(
            noise in proptest::collection::vec(any::<u8>(), 30..90),
            x in proptest::collection::vec(-3f32..3.0, 128..=128),
        ) {
            let vector = Packed::new(&x);
            for kernel in [Kernel::Q4_1, Kernel::Q8_0] {
                let row = row(kernel, 4, &noise);
                let (fast, slow) = (kernel.dot(&row, &vector), kernel.portable(&row, &vector));
                prop_assert!((fast - slow).abs() < 1e-3 * (1.0 + slow.abs()), "{kernel:?}: {fast} {slow}");
            }
        }
    }

    #[test]
    fn extremes_do_not_overflow() {
        let vector = Packed::new(&[-5.0; 32]);
        let row = [&f16::ONE.to_le_bytes()[..], &[0x80; 32]].concat();
        let expected = 32.0 * 128.0 * 5.0;
        assert!((Kernel::Q8_0.dot(&row, &vector) - expected).abs() < 1.0, "{}", Kernel::Q8_0.dot(&row, &vector));
        assert_eq!(Kernel::Q8_0.dot(&row, &Packed::new(&[0.0; 32])), 0.0);
    }
}
