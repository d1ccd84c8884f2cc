//! Products of quantized weights with few vectors, and weights made dense, on the rayon pool of the caller.
//!
//! candle's own quantized product runs on one spinning pool per process; on a busy machine every one of its barriers waits
//! for a time slice. Here a row block is a task that any free thread takes. Q4_1 and Q8_0, the formats of the default
//! model, have kernels of their own (candle has none for Q4_1 on x86); the others use candle's dot products.

mod kernel;

use candle_core::quantized::k_quants::{
    BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K, BlockQ8_1, BlockQ8K, GgmlType,
};
use candle_core::quantized::{GgmlDType, QTensor, k_quants};
use candle_core::{Device, Result, Tensor};
use half::{bf16, f16};
use rayon::prelude::*;

use kernel::{Kernel, Packed};

/// Multiply-adds that one task should have at least; a wake-up costs as much as some ten thousand.
const TASK: usize = 128 << 10;

macro_rules! by_type {
    ($dtype:expr, $apply:ident ( $($argument:expr),* )) => {
        match $dtype {
            GgmlDType::F32 => $apply::<f32>($($argument),*),
            GgmlDType::F16 => $apply::<f16>($($argument),*),
            GgmlDType::BF16 => $apply::<bf16>($($argument),*),
            GgmlDType::Q4_0 => $apply::<BlockQ4_0>($($argument),*),
            GgmlDType::Q4_1 => $apply::<k_quants::BlockQ4_1>($($argument),*),
            GgmlDType::Q5_0 => $apply::<BlockQ5_0>($($argument),*),
            GgmlDType::Q5_1 => $apply::<BlockQ5_1>($($argument),*),
            GgmlDType::Q8_0 => $apply::<k_quants::BlockQ8_0>($($argument),*),
            GgmlDType::Q8_1 => $apply::<BlockQ8_1>($($argument),*),
            GgmlDType::Q2K => $apply::<BlockQ2K>($($argument),*),
            GgmlDType::Q3K => $apply::<BlockQ3K>($($argument),*),
            GgmlDType::Q4K => $apply::<BlockQ4K>($($argument),*),
            GgmlDType::Q5K => $apply::<BlockQ5K>($($argument),*),
            GgmlDType::Q6K => $apply::<BlockQ6K>($($argument),*),
            GgmlDType::Q8K => $apply::<BlockQ8K>($($argument),*),
        }
    };
}

/// `x W^T` for `x` of `[count, columns]` and a weight of `[rows, columns]`.
pub(super) fn multiply(weight: &QTensor, x: &Tensor) -> Result<Tensor> {
    let (rows, columns) = weight.shape().dims2()?;
    let (count, width) = x.dims2()?;
    if width != columns {
        candle_core::bail!("{width} numbers do not meet {columns} columns");
    }
    let bytes = weight.data()?;
    let x = x.flatten_all()?.to_vec1::<f32>()?;
    let size = Size { rows, columns, count };
    let y = match Kernel::of(weight.dtype()) {
        Some(kernel) if columns.is_multiple_of(kernel::BLOCK) => packed(kernel, &bytes, &x, size),
        _ => by_type!(weight.dtype(), plain(&bytes, &x, size))?,
    };
    Tensor::from_vec(y, (count, rows), &Device::Cpu)
}

/// The weight as `[rows, columns]` of f32.
pub(super) fn dense(weight: &QTensor) -> Result<Tensor> {
    let (rows, columns) = weight.shape().dims2()?;
    let bytes = weight.data()?;
    let y = by_type!(weight.dtype(), floats(&bytes, rows, columns))?;
    Tensor::from_vec(y, (rows, columns), &Device::Cpu)
}

#[derive(Clone, Copy)]
struct Size {
    rows: usize,
    columns: usize,
    count: usize,
}

impl Size {
    /// Runs `dot(row, vector)` for every pair, in blocks of rows. The result is `[count, rows]`.
    fn each(self, dot: impl Fn(usize, usize) -> f32 + Sync) -> Vec<f32> {
        let Self { rows, columns, count } = self;
        let mut by_row = vec![0f32; rows * count];
        let least = (TASK / (columns * count).max(1)).max(1);
        let block = rows.div_ceil(rayon::current_num_threads() * 4).max(least);
        let fill = |(nth, out): (usize, &mut [f32])| {
            for (at, y) in out.iter_mut().enumerate() {
                let (row, vector) = (nth * block + at / count, at % count);
                *y = dot(row, vector);
            }
        };
        if block >= rows {
            fill((0, &mut by_row));
        } else {
            by_row.par_chunks_mut(block * count).enumerate().for_each(fill);
        }
        if count == 1 {
            return by_row;
        }
        (0..count * rows).map(|at| by_row[at % rows * count + at / rows]).collect()
    }
}

fn packed(kernel: Kernel, bytes: &[u8], x: &[f32], size: Size) -> Vec<f32> {
    let vectors: Vec<Packed> = x.chunks_exact(size.columns).map(Packed::new).collect();
    let width = size.columns / kernel::BLOCK * kernel.bytes();
    size.each(|row, vector| kernel.dot(&bytes[row * width..(row + 1) * width], &vectors[vector]))
}

fn plain<T: GgmlType>(bytes: &[u8], x: &[f32], size: Size) -> Result<Vec<f32>> {
    let blocks = blocks::<T>(bytes)?;
    let width = size.columns / T::BLCK_SIZE;
    let vectors: Vec<Vec<T::VecDotType>> = x.chunks_exact(size.columns).map(quantized::<T>).collect();
    Ok(size.each(|row, vector| T::vec_dot(size.columns, &blocks[row * width..(row + 1) * width], &vectors[vector])))
}

fn quantized<T: GgmlType>(x: &[f32]) -> Vec<T::VecDotType> {
    let mut vector = vec![T::VecDotType::zeros(); x.len().div_ceil(T::VecDotType::BLCK_SIZE)];
    T::VecDotType::from_float(x, &mut vector);
    vector
}

fn floats<T: GgmlType>(bytes: &[u8], rows: usize, columns: usize) -> Result<Vec<f32>> {
    let blocks = blocks::<T>(bytes)?;
    let width = columns / T::BLCK_SIZE;
    let mut y = vec![0f32; rows * columns];
    let many = rows.div_ceil(rayon::current_num_threads() * 4).max(TASK / columns.max(1)).max(1);
    y.par_chunks_mut(many * columns).enumerate().for_each(|(nth, out)| {
        let from = nth * many * width;
        T::to_float(&blocks[from..from + out.len() / T::BLCK_SIZE], out);
    });
    Ok(y)
}

/// The blocks behind the bytes of a weight.
#[allow(unsafe_code)]
fn blocks<T: GgmlType>(bytes: &[u8]) -> Result<&[T]> {
    let size = std::mem::size_of::<T>();
    if !bytes.len().is_multiple_of(size) || bytes.as_ptr().align_offset(std::mem::align_of::<T>()) != 0 {
        candle_core::bail!("the weight is not made of whole blocks");
    }
    // SAFETY: length and alignment were just checked; every `GgmlType` is a float or a `repr(C)` struct of numbers, for
    // which all bit patterns are valid; the slice borrows `bytes`.
    Ok(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<T>(), bytes.len() / size) })
}

#[cfg(test)]
mod tests {
    use candle_core::Module;
    use candle_core::quantized::QMatMul;

    use super::*;

    fn noise(shape: (usize, usize), seed: u32) -> Tensor {
        let mut state = seed;
        let values: Vec<f32> = (0..shape.0 * shape.1)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 23) as f32 - 1.0
            })
            .collect();
        Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
    }

    fn apart(a: &Tensor, b: &Tensor) -> f32 {
        assert_eq!(a.dims(), b.dims());
        (a - b).unwrap().abs().unwrap().flatten_all().unwrap().max(0).unwrap().to_scalar().unwrap()
    }

    #[test]
    fn every_format_multiplies_as_candle_does() {
        use GgmlDType::{BF16, F16, F32, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
        for dtype in [F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K] {
            let weight = std::sync::Arc::new(QTensor::quantize(&noise((70, 512), 1), dtype).unwrap());
            for count in [1, 3] {
                let x = noise((count, 512), 2);
                let theirs = QMatMul::QTensor(std::sync::Arc::clone(&weight)).forward(&x).unwrap();
                let ours = multiply(&weight, &x).unwrap();
                assert!(apart(&ours, &theirs) < 0.2, "{dtype:?} {count}: {}", apart(&ours, &theirs));
            }
            assert_eq!(apart(&dense(&weight).unwrap(), &weight.dequantize(&Device::Cpu).unwrap()), 0.0, "{dtype:?}");
        }
    }

    #[test]
    fn large_weights_go_in_blocks() {
        let weight = QTensor::quantize(&noise((3_001, 256), 3), GgmlDType::Q4_1).unwrap();
        let x = noise((2, 256), 4);
        let exact = x.matmul(&weight.dequantize(&Device::Cpu).unwrap().t().unwrap()).unwrap();
        assert!(apart(&multiply(&weight, &x).unwrap(), &exact) < 0.3);
        assert!(multiply(&weight, &noise((1, 32), 1)).is_err());
    }
}
