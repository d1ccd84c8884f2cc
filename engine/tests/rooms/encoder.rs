//! The real embedding model: known similarities, the reference implementation on the same weights, and batches.
//!
//! The models lie in `HANDRAIL_TEST_MODELS`, else in `<cache dir>/handrail/test-models`, as the product stores them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use handrail_engine::embedding::Embedder;
use handrail_engine::local::Models;
use proptest::prelude::*;

const ID: &str = "all-minilm-l6-v2";

fn folder() -> PathBuf {
    std::env::var_os("HANDRAIL_TEST_MODELS")
        .map(PathBuf::from)
        .or_else(|| directories::BaseDirs::new().map(|dirs| dirs.cache_dir().join("handrail/test-models")))
        .expect("set HANDRAIL_TEST_MODELS to the folder of the test models")
}

fn embedder() -> Arc<dyn Embedder> {
    static LOADED: OnceLock<Arc<dyn Embedder>> = OnceLock::new();
    let load = || match Models::new(folder(), 0).embedder(ID) {
        Ok(embedder) => embedder,
        Err(error) => panic!("the test models are fetched into {} first: {error}", folder().display()),
    };
    LOADED.get_or_init(load).clone()
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

fn one(text: &str) -> Vec<f32> {
    embedder().embed(&[text]).unwrap().remove(0)
}

#[test]
fn known_similarities() {
    let vectors = embedder().embed(&["That is a happy person", "That is a happy dog", "Today is a sunny day"]).unwrap();
    assert!((cosine(&vectors[0], &vectors[1]) - 0.6946).abs() < 0.002, "{}", cosine(&vectors[0], &vectors[1]));
    assert!((cosine(&vectors[0], &vectors[2]) - 0.2569).abs() < 0.002, "{}", cosine(&vectors[0], &vectors[2]));
    assert_eq!((embedder().model(), embedder().dimension(), embedder().window()), (ID, 384, 254));
    for vector in &vectors {
        assert!((cosine(vector, vector) - 1.0).abs() < 1e-5 && vector.len() == 384);
    }
}

#[test]
fn it_agrees_with_the_reference_implementation() {
    let folder = folder().join(ID);
    let config: Config = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
    let weights = std::fs::read(folder.join("model.safetensors")).unwrap();
    let weights = VarBuilder::from_buffered_safetensors(weights, DType::F32, &Device::Cpu).unwrap();
    let reference = BertModel::load(weights, &config).unwrap();
    let mut tokenizer = tokenizers::Tokenizer::from_file(folder.join("tokenizer.json")).unwrap();
    let truncation = tokenizers::TruncationParams { max_length: 256, ..tokenizers::TruncationParams::default() };
    let _ = tokenizer.with_padding(None);
    let _ = tokenizer.with_truncation(Some(truncation)).unwrap();
    let long = "A quick brown fox jumps over the lazy dog near the riverbank. ".repeat(40);
    let texts = ["x", "Wie spät ist es?", "The mitochondrion is the powerhouse of the cell.", "今天天气很好 🙂", long.as_str()];
    let ours = embedder().embed(&texts).unwrap();
    for (text, ours) in texts.iter().zip(&ours) {
        let encoding = tokenizer.encode(*text, true).unwrap();
        let ids = Tensor::new(vec![encoding.get_ids().to_vec()], &Device::Cpu).unwrap();
        let hidden = reference.forward(&ids, &ids.zeros_like().unwrap(), None).unwrap();
        let mean = hidden.mean(1).unwrap();
        let norm = mean.sqr().unwrap().sum_keepdim(1).unwrap().sqrt().unwrap();
        let theirs: Vec<f32> = mean.broadcast_div(&norm).unwrap().squeeze(0).unwrap().to_vec1().unwrap();
        assert!(distance(ours, &theirs) < 1e-4, "{text}: {}", distance(ours, &theirs));
    }
}

#[test]
fn words_are_seen_up_to_the_window_and_not_beyond() {
    let with = |at: usize, length: usize| {
        let mut words = vec!["word"; length];
        words[at] = "volcano";
        words.join(" ")
    };
    let plain = vec!["word"; 250].join(" ");
    // Every word here is one token.
    assert_eq!(embedder().token_spans(&with(200, 250)).unwrap().len(), 250);
    assert!(distance(&one(&plain), &one(&with(200, 250))) > 1e-3);
    assert_eq!(one(&with(253, 300)), one(&with(253, 254)));
    assert_eq!(distance(&one(&with(254, 300)), &one(&vec!["word"; 254].join(" "))), 0.0);
}

#[test]
fn neither_the_batch_nor_its_padding_changes_a_vector() {
    let long = "Padding must not leak into the short texts of a batch. ".repeat(15);
    let mut texts: Vec<String> = (0..16).map(|n| format!("Sentence number {n} {}", "and more ".repeat(n % 7))).collect();
    texts.insert(3, long);
    texts.insert(9, String::new());
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let batch = embedder().embed(&texts).unwrap();
    for (text, vector) in texts.iter().zip(&batch) {
        assert!(distance(vector, &one(text)) < 1e-5, "{text}: {}", distance(vector, &one(text)));
    }
    assert!(embedder().embed(&[]).unwrap().is_empty());
}

#[test]
fn spans_of_every_script_lie_on_characters_and_in_order() {
    for text in
        ["", "Hello, world", "今天天气很好。明天呢？", "한국어 문장입니다", "🙂🙃 👨‍👩‍👧 ok", "naïve café Ünïcödé", "a\u{0}b\u{fffd}c\u{200b}d"]
    {
        let spans = embedder().token_spans(text).unwrap();
        for (start, end) in &spans {
            assert!(text.get(*start..*end).is_some(), "{text}: {start}..{end}");
        }
        assert!(spans.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{text}: {spans:?}");
    }
    let spans = |text: &str| embedder().token_spans(text).unwrap();
    assert_eq!(spans("今天天气"), [(0, 3), (3, 6), (6, 9), (9, 12)]);
    assert_eq!(spans("Hi 🙂"), [(0, 2), (3, 7)]);
    assert_eq!(spans(&"word ".repeat(1000)).len(), 1000);
    assert!(spans("").is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_text_has_a_finite_vector_and_spans_inside_it(text in "\\PC{0,80}") {
        for (start, end) in embedder().token_spans(&text).unwrap() {
            prop_assert!(text.get(start..end).is_some());
        }
        let vector = one(&text);
        prop_assert!((cosine(&vector, &vector) - 1.0).abs() < 1e-4);
    }
}
