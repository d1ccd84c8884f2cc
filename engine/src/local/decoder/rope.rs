//! Rotary positions (Su et al., "RoFormer", 2021): pair `i` of a head turns by `position * base^(-2i / width)`.

use candle_core::{Device, Result as Candle, Tensor};

use super::super::gguf::{Error, Gguf, brief};
use super::config::Config;

/// The turning speeds of one model.
#[derive(Debug)]
pub(super) struct Rope {
    speeds: Vec<f32>,
    /// Whether a pair is (i, i + half) instead of (2i, 2i + 1).
    pub(super) neox: bool,
}

impl Rope {
    /// Reads base and scaling. Llama 3 stores a divisor per pair in `rope_freqs.weight`.
    pub(super) fn read(gguf: &mut Gguf, config: &Config) -> Result<Self, Error> {
        let architecture = config.architecture.as_str();
        let key = |name: &str| format!("{architecture}.rope.{name}");
        match gguf.number(&key("dimension_count")) {
            Ok(turned) if turned != config.head => {
                return Err(gguf.unsupported(format!("it turns {turned} of {} numbers per head; only all are supported", config.head)));
            }
            Err(Error::Damaged { path, what }) => return Err(Error::Damaged { path, what }),
            _ => {}
        }
        let base = real_or(gguf, &key("freq_base"), 10_000.0)?;
        let stretch = Self::stretch(gguf, &key("scaling.type"), &key("scaling.factor"))?;
        let divisors = Self::divisors(gguf, config.head / 2)?;
        #[allow(clippy::cast_precision_loss)]
        let speed = |(pair, divisor): (usize, f32)| 1.0 / base.powf((2 * pair) as f32 / config.head as f32) / divisor / stretch;
        let speeds: Vec<f32> = divisors.into_iter().enumerate().map(speed).collect();
        if speeds.iter().any(|speed| !speed.is_finite()) {
            return Err(gguf.damaged("its rotary positions are not numbers".to_owned()));
        }
        Ok(Self { speeds, neox: architecture != "llama" })
    }

    fn stretch(gguf: &Gguf, kind: &str, factor: &str) -> Result<f32, Error> {
        match gguf.text(kind) {
            Ok("linear") => gguf.real(factor),
            Ok("none") | Err(Error::Missing { .. }) => Ok(1.0),
            Ok(other) => Err(gguf.unsupported(format!("it stretches positions by '{other}'; only linear stretching is supported"))),
            Err(error) => Err(error),
        }
    }

    fn divisors(gguf: &mut Gguf, pairs: usize) -> Result<Vec<f32>, Error> {
        const NAME: &str = "rope_freqs.weight";
        if !gguf.has_tensor(NAME) {
            return Ok(vec![1.0; pairs]);
        }
        let divisors = gguf.tensor(NAME, &[pairs])?.dequantize(&Device::Cpu).and_then(|t| t.to_vec1());
        divisors.map_err(|e| gguf.damaged(format!("tensor '{NAME}': {}", brief(&e))))
    }

    /// Cosines and sines `[count, pairs]` of the positions from `start` on.
    pub(super) fn rows(&self, start: usize, count: usize) -> Candle<(Tensor, Tensor)> {
        #[allow(clippy::cast_precision_loss)]
        let angles: Vec<f32> = (start..start + count).flat_map(|at| self.speeds.iter().map(move |speed| at as f32 * speed)).collect();
        let shape = (count, self.speeds.len());
        let cos = Tensor::from_vec(angles.iter().map(|a| a.cos()).collect(), shape, &Device::Cpu)?;
        let sin = Tensor::from_vec(angles.iter().map(|a| a.sin()).collect(), shape, &Device::Cpu)?;
        Ok((cos, sin))
    }
}

fn real_or(gguf: &Gguf, key: &str, fallback: f32) -> Result<f32, Error> {
    match gguf.real(key) {
        Err(Error::Missing { .. }) => Ok(fallback),
        other => other,
    }
}
