//! One weight matrix: quantized blocks for single tokens, a dense product for long batches.

use std::sync::Arc;

use candle_core::quantized::QTensor;
use candle_core::{Device, Result as Candle, Tensor};

use super::super::gguf::{Error, Gguf, brief};
use super::product;

/// Batches of at least this many tokens are multiplied with the dequantized weight.
pub(super) const DENSE_FROM: usize = 16;

/// `y = W x + b`.
#[derive(Debug)]
pub(super) struct Linear {
    weight: Arc<QTensor>,
    bias: Option<Tensor>,
}

impl Linear {
    pub(super) fn new(weight: Arc<QTensor>, bias: Option<Tensor>) -> Self {
        Self { weight, bias }
    }

    /// Reads `{name}.weight` as `[rows, columns]`, and `{name}.bias` where the file has one.
    pub(super) fn read(gguf: &mut Gguf, name: &str, rows: usize, columns: usize) -> Result<Self, Error> {
        let weight = gguf.tensor(&format!("{name}.weight"), &[rows, columns])?;
        let bias = format!("{name}.bias");
        let bias = if gguf.has_tensor(&bias) {
            let values = gguf.tensor(&bias, &[rows])?.dequantize(&Device::Cpu);
            Some(values.map_err(|e| gguf.damaged(format!("tensor '{bias}': {}", brief(&e))))?)
        } else {
            None
        };
        Ok(Self::new(Arc::new(weight), bias))
    }

    /// Multiplies `[tokens, columns]` into `[tokens, rows]`.
    pub(super) fn forward(&self, x: &Tensor, dense: bool) -> Candle<Tensor> {
        let y = if dense { x.matmul(&product::dense(&self.weight)?.t()?)? } else { product::multiply(&self.weight, x)? };
        match &self.bias {
            Some(bias) => y.broadcast_add(bias),
            None => Ok(y),
        }
    }
}
