use std::io::Write;

use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::{Content, TensorInfo};
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;

use super::*;
use crate::local::test_model;

const PROMPT: &str = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n\
                      <|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n";

fn load() -> (Decoder, Vec<u32>) {
    let mut gguf = Gguf::open(&test_model::path()).unwrap();
    let tokenizer = crate::local::tokenizer::Tokenizer::read(&gguf).unwrap();
    (Decoder::read(&mut gguf).unwrap(), tokenizer.encode(PROMPT).unwrap())
}

fn logits(step: Step) -> Vec<f32> {
    match step {
        Step::Logits(logits) => logits,
        Step::Stopped => panic!("stopped"),
    }
}

fn run(decoder: &Decoder, tokens: &[u32], cache: &mut Cache) -> Vec<f32> {
    logits(decoder.step(tokens, cache, &|| false).unwrap())
}

fn best(logits: &[f32]) -> u32 {
    (0u32..).zip(logits).max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0
}

fn apart(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Mean absolute distance.
fn mean_apart(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f32>() / a.len() as f32
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// candle-transformers' llama on the same weights. With `dense`, it gets them as f32 numbers, for which it multiplies in
/// f32 too.
struct Peer(ModelWeights);

impl Peer {
    fn new(dense: bool) -> Self {
        let mut file = std::fs::File::open(test_model::path()).unwrap();
        let content = Content::read(&mut file).unwrap();
        if !dense {
            return Self(ModelWeights::from_gguf(content, &mut file, &Device::Cpu).unwrap());
        }
        let mut floats = tempfile::tempfile().unwrap();
        let mut offset = 0;
        let mut infos = std::collections::HashMap::new();
        for (name, info) in &content.tensor_infos {
            let tensor = info.read(&mut file, content.tensor_data_offset, &Device::Cpu).unwrap().dequantize(&Device::Cpu).unwrap();
            let bytes: Vec<u8> = tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap().iter().flat_map(|x| x.to_le_bytes()).collect();
            floats.write_all(&bytes).unwrap();
            let _ = infos.insert(name.clone(), TensorInfo { ggml_dtype: GgmlDType::F32, shape: info.shape.clone(), offset });
            offset += bytes.len() as u64;
        }
        let content = Content { tensor_infos: infos, tensor_data_offset: 0, ..content };
        Self(ModelWeights::from_gguf(content, &mut floats, &Device::Cpu).unwrap())
    }

    fn run(&mut self, tokens: &[u32], at: usize) -> Vec<f32> {
        let tokens = Tensor::new(tokens, &Device::Cpu).unwrap().unsqueeze(0).unwrap();
        self.0.forward(&tokens, at).unwrap().flatten_all().unwrap().to_vec1().unwrap()
    }
}

/// Positions at which the two are compared: behind the prompt, and behind each of the tokens that the peer then writes.
const POSITIONS: usize = 10;

/// The logits of both at each position.
fn side_by_side(dense: bool) -> Vec<(Vec<f32>, Vec<f32>)> {
    let (mut decoder, prompt) = load();
    decoder.set_dense_from(if dense { 1 } else { usize::MAX });
    let mut peer = Peer::new(dense);
    let mut cache = decoder.cache().unwrap();
    let mut next = prompt;
    let mut pairs = Vec::new();
    while pairs.len() < POSITIONS {
        let at = cache.len();
        let pair = (run(&decoder, &next, &mut cache), peer.run(&next, at));
        next = vec![best(&pair.1)];
        pairs.push(pair);
    }
    pairs
}

#[test]
fn agrees_with_candle_transformers_on_f32_weights() {
    // Both multiply the same f32 weights, the output layer included, so only the order of sums differs.
    for (ours, theirs) in side_by_side(true) {
        assert_eq!(best(&ours), best(&theirs));
        assert!(apart(&ours, &theirs) < 1e-2, "{}", apart(&ours, &theirs));
        assert!(cosine(&ours, &theirs) > 0.999_999, "{}", cosine(&ours, &theirs));
    }
}

#[test]
fn agrees_with_candle_transformers_on_quantized_weights() {
    // Both round activations to 8 bits, each in its own way, and the roundings add up over 30 blocks. Measured at the ten
    // positions: mean distance 0.16 to 0.89 (logits reach 20 to 25), cosine 0.983 to 0.9999, the same best token at each.
    for (ours, theirs) in side_by_side(false) {
        assert_eq!(best(&ours), best(&theirs));
        assert!(mean_apart(&ours, &theirs) < 1.0, "{}", mean_apart(&ours, &theirs));
        assert!(cosine(&ours, &theirs) > 0.98, "{}", cosine(&ours, &theirs));
    }
}

#[test]
fn one_by_one_is_the_same_as_at_once() {
    let (mut decoder, prompt) = load();
    for (dense_from, bound) in [(usize::MAX, 3.0), (1, 0.5)] {
        decoder.set_dense_from(dense_from);
        let mut cache = decoder.cache().unwrap();
        let whole = run(&decoder, &prompt, &mut cache);
        cache.reset();
        let mut last = Vec::new();
        for token in &prompt {
            last = run(&decoder, &[*token], &mut cache);
        }
        assert_eq!(best(&whole), best(&last));
        assert!(apart(&whole, &last) < bound, "{}", apart(&whole, &last));
        cache.reset();
        let _ = run(&decoder, &prompt[..7], &mut cache);
        assert!(apart(&run(&decoder, &prompt[7..], &mut cache), &whole) < bound);
    }
}

#[test]
fn going_back_and_on_gives_the_same_logits() {
    let (decoder, prompt) = load();
    let mut cache = decoder.cache().unwrap();
    let _ = run(&decoder, &prompt[..10], &mut cache);
    let first = run(&decoder, &prompt[10..15], &mut cache);
    cache.truncate(10);
    let _ = run(&decoder, &[5, 6, 7, 8, 9, 10, 11], &mut cache);
    cache.truncate(10);
    let mut branch = cache.fork().unwrap();
    assert_eq!(run(&decoder, &prompt[10..15], &mut cache), first);
    assert_eq!(run(&decoder, &prompt[10..15], &mut branch), first);
    assert_eq!(cache.len(), 15);
}

#[test]
fn a_stop_leaves_the_cache_as_it_was() {
    let (decoder, prompt) = load();
    let mut cache = decoder.cache().unwrap();
    let _ = run(&decoder, &prompt[..5], &mut cache);
    let asked = std::cell::Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() > 3
    };
    assert!(matches!(decoder.step(&prompt[5..9], &mut cache, &stop).unwrap(), Step::Stopped));
    assert_eq!(cache.len(), 5);
    let after = run(&decoder, &prompt[5..9], &mut cache);
    let mut fresh = decoder.cache().unwrap();
    let _ = run(&decoder, &prompt[..5], &mut fresh);
    assert_eq!(run(&decoder, &prompt[5..9], &mut fresh), after);
}

#[test]
fn a_full_context_is_an_error() {
    let (decoder, prompt) = load();
    let mut cache = decoder.cache().unwrap();
    let _ = run(&decoder, &prompt[..2], &mut cache);
    let too_many = vec![0; decoder.config().context];
    assert!(decoder.step(&too_many, &mut cache, &|| false).is_err());
    assert!(decoder.step(&[u32::MAX], &mut cache, &|| false).is_err());
    assert_eq!(cache.len(), 2);
}
