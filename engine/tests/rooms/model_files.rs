//! The default model's file with one thing changed: another chat template, or cut into parts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use futures::StreamExt as _;
use handrail_engine::local::{Models, TemplateChoice, bench};
use handrail_engine::provider::{ChatMessage, Delta, Provider, Request, Sampling, ToolChoice};
use tokio_util::sync::CancellationToken;

use crate::gguf_file::Parts;

use super::local::test_model;

const KEY: &str = "tokenizer.chat_template";

fn default_model() -> &'static Parts {
    static PARTS: OnceLock<Parts> = OnceLock::new();
    PARTS.get_or_init(|| Parts::read(&test_model::path()))
}

/// The default model's file with the template that `change` makes of its own.
fn variant(folder: &Path, change: impl FnOnce(String) -> Option<String>) -> PathBuf {
    let mut parts = default_model().clone();
    match change(parts.text(KEY)) {
        Some(template) => parts.set_text(KEY, &template),
        None => parts.set(KEY, None),
    }
    let path = folder.join("variant.gguf");
    parts.write(&path);
    path
}

fn open(folder: &Path) -> Models {
    Models::new(folder.join("models"), 0)
}

async fn answer(model: &dyn Provider) -> String {
    let request = Request {
        messages: vec![ChatMessage::User("What is the capital of France?".to_owned())],
        tools: Vec::new(),
        tool_choice: ToolChoice::Auto,
        sampling: Sampling { temperature: 0.0, ..Sampling::default() },
        max_tokens: Some(8),
        cache_key: None,
    };
    let mut stream = model.stream(request, CancellationToken::new());
    let mut text = String::new();
    while let Some(delta) = stream.next().await {
        if let Delta::Text(piece) = delta.unwrap() {
            text += &piece;
        }
    }
    text
}

#[tokio::test]
async fn generation_tags_are_read_through() {
    let folder = tempfile::tempdir().unwrap();
    let tagged = |text: String| {
        let text = text.replacen("{{", "{% generation %}{{", 1).replacen("}}", "}}{% endgeneration %}", 1);
        assert!(text.contains("{% generation %}") && text.contains("{% endgeneration %}"));
        Some(text)
    };
    let path = variant(folder.path(), tagged);
    let models = open(folder.path());
    let (ours, plain) = (models.chat(path.to_str().unwrap()).unwrap(), models.chat(test_model::path().to_str().unwrap()).unwrap());
    assert_eq!(answer(&*ours).await, answer(&*plain).await);
    let used = models.template(path.to_str().unwrap()).unwrap().used.unwrap();
    assert_eq!((used.name.as_str(), used.note), ("own", None));
}

#[tokio::test]
async fn a_file_without_a_template_gets_the_one_its_vocabulary_fits() {
    let folder = tempfile::tempdir().unwrap();
    let path = variant(folder.path(), |_| None);
    let models = open(folder.path());
    let model = models.chat(path.to_str().unwrap()).unwrap();
    assert!(answer(&*model).await.contains("Paris"));
    let view = models.template(path.to_str().unwrap()).unwrap();
    let used = view.used.unwrap();
    assert_eq!((used.name.as_str(), view.choice), ("chatml", TemplateChoice::Own));
    assert!(used.note.unwrap().contains("the file has no chat template; the one of ChatML is used"));
}

#[tokio::test]
async fn a_template_that_does_not_work_offers_chatml_which_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    for (template, why) in [
        ("{% for m in messages %}{{ m.content", "its chat template is broken"),
        ("{{ raise_exception('only user roles') }}", "only user roles"),
    ] {
        let path = variant(folder.path(), |_| Some(template.to_owned()));
        let name = path.to_str().unwrap();
        let models = open(folder.path());
        let own = models.adopt(&path).unwrap().entry.id;
        let mut events = models.subscribe();
        let error = models.chat(name).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("variant.gguf") && error.contains("`--template chatml`"), "{error}");
        let told = events.try_recv().unwrap();
        assert!(told.entry.id == own && told.template.fault.unwrap().contains(why));
        assert!(bench::run(&path, 8, 1, 1, &TemplateChoice::Own).is_err());
        assert!(bench::run(&path, 8, 1, 1, &TemplateChoice::ChatMl).is_ok());

        let view = models.choose_template(&own, &TemplateChoice::ChatMl).unwrap();
        assert_eq!((view.choice, view.fault), (TemplateChoice::ChatMl, None));
        let reopened = open(folder.path());
        let model = reopened.chat(&own).unwrap();
        assert!(answer(&*model).await.contains("Paris"));
        let view = reopened.list().into_iter().find(|view| view.entry.id == own).unwrap().template;
        assert!(view.used.unwrap().note.unwrap().contains("because that was chosen"));

        let _ = reopened.choose_template(name, &TemplateChoice::Own).unwrap();
        assert!(reopened.chat(&own).unwrap_err().to_string().contains(why));
    }
}

#[test]
fn only_a_template_that_parses_and_a_model_that_is_there_can_be_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let (models, path) = (open(folder.path()), folder.path().join("mine.jinja"));
    let choice = TemplateChoice::File(path.clone());
    let default = "smollm2-135m-instruct-q4_1";
    assert!(models.choose_template(default, &choice).unwrap_err().to_string().contains("mine.jinja cannot be read"));
    std::fs::write(&path, "{% if %}").unwrap();
    assert!(models.choose_template(default, &choice).unwrap_err().to_string().contains("its chat template is broken"));
    assert!(models.choose_template("no-such-model", &TemplateChoice::ChatMl).is_err());
    assert!(models.choose_template("all-minilm-l6-v2", &TemplateChoice::ChatMl).is_err());
    std::fs::write(&path, "{{ messages[0].content }}").unwrap();
    let _ = models.choose_template(default, &choice).unwrap();
    assert_eq!(open(folder.path()).template(default).unwrap().choice, TemplateChoice::File(std::fs::canonicalize(&path).unwrap()));
}

/// The default model in parts of these many tensors.
fn split(folder: &Path, sizes: &[usize], expected: usize) -> Vec<PathBuf> {
    let mut left = default_model().tensors.clone();
    let count = sizes.len();
    let parts = sizes.iter().enumerate().map(|(at, size)| {
        let pairs = if at == 0 { default_model().pairs.clone() } else { Vec::new() };
        let mut part = Parts { pairs, tensors: left.drain(..*size).collect() };
        let short = |number: usize| (2, u16::try_from(number).unwrap().to_le_bytes().to_vec());
        part.set("split.no", Some(short(at)));
        part.set("split.count", Some(short(count)));
        part.set("split.tensors.count", Some((5, i32::try_from(expected).unwrap().to_le_bytes().to_vec())));
        let path = folder.join(format!("small-{:05}-of-{count:05}.gguf", at + 1));
        part.write(&path);
        path
    });
    parts.collect()
}

#[tokio::test]
async fn a_model_in_parts_answers_as_the_whole_does() {
    let folder = tempfile::tempdir().unwrap();
    let tensors = default_model().tensors.len();
    let paths = split(folder.path(), &[100, 0, tensors - 100], tensors);
    let models = open(folder.path());
    let plain = answer(&*models.chat(test_model::path().to_str().unwrap()).unwrap()).await;
    assert!(!plain.is_empty());
    for path in [&paths[0], &paths[2]] {
        let model = models.chat(path.to_str().unwrap()).unwrap();
        assert_eq!(answer(&*model).await, plain);
    }
    let own = models.adopt(&paths[2]).unwrap();
    assert_eq!(
        (own.entry.id.as_str(), own.entry.about.as_str()),
        ("small-00001-of-00003", &*std::fs::canonicalize(&paths[0]).unwrap().to_string_lossy())
    );
    assert_eq!(own.entry.bytes, paths.iter().map(|path| std::fs::metadata(path).unwrap().len()).sum::<u64>());

    std::fs::remove_file(&paths[1]).unwrap();
    let error = open(folder.path()).chat(paths[2].to_str().unwrap()).unwrap_err().to_string();
    assert!(error.contains("part 3 of 3") && error.contains("small-00002-of-00003.gguf"), "{error}");
}

#[test]
fn parts_that_do_not_hold_what_the_first_one_says_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let tensors = default_model().tensors.len();
    let paths = split(folder.path(), &[tensors, 0], tensors + 100);
    let error = open(folder.path()).chat(paths[1].to_str().unwrap()).unwrap_err().to_string();
    assert!(error.contains(&format!("its 2 parts hold {tensors} tensors, {} are expected", tensors + 100)), "{error}");
}
