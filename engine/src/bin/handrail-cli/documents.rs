//! `parse`, `search`, `embed`: documents without a model.

use std::io::BufRead as _;
use std::path::{Path, PathBuf};

use handrail_engine::Engine;
use handrail_engine::conversation::Attachment;
use handrail_engine::rag::worker::{self, Frame, Limits};
use serde_json::json;
use sipper::Sipper as _;

use crate::output::{Failure, Output};

/// Lines of stdin that are embedded at once.
const BATCH: usize = 32;

#[derive(clap::Args)]
pub struct Parse {
    /// The file to read.
    file: PathBuf,
}

#[derive(clap::Args)]
pub struct Search {
    /// What to look for.
    query: String,
    /// A file to search; may be given several times.
    #[arg(long, value_name = "FILE", required = true)]
    file: Vec<PathBuf>,
    /// Most passages.
    #[arg(short = 'k', default_value_t = 6)]
    most: usize,
    /// Says how each leg of the search scored the passages.
    #[arg(long)]
    legs: bool,
}

pub async fn parse(arguments: Parse, output: &Output) -> Result<(), Failure> {
    let program = std::env::current_exe()?;
    let mut parsing = worker::parse(&program, &arguments.file, Limits::default()).pin();
    let mut characters = 0;
    while let Some(frame) = parsing.sip().await {
        if let Frame::Part(part) = frame.as_ref() {
            characters += part.blocks.iter().flat_map(|block| &block.lines).map(|line| line.text.trim().len()).sum::<usize>();
        }
        if output.is_json() {
            output.json(frame.as_ref());
        } else if let Frame::Part(part) = frame.as_ref() {
            for block in &part.blocks {
                for line in &block.lines {
                    output.piece(&format!("{}\n", line.text));
                }
                output.piece("\n");
            }
        }
    }
    let summary = parsing.await?;
    for problem in &summary.problems {
        output.note(problem);
    }
    if characters == 0 {
        return Err(Failure::new(format!("{}: there is no text in it", arguments.file.display())));
    }
    Ok(())
}

/// Reads a document and makes it searchable, with its progress on a terminal.
pub async fn attach(engine: &Engine, path: &Path, output: &Output) -> Result<Attachment, Failure> {
    let mut attaching = engine.attach(path).pin();
    while let Some(progress) = attaching.sip().await {
        output.status(&format!("{}: {progress:?}", path.display()));
    }
    output.status_end();
    Ok(attaching.await?)
}

pub async fn search(engine: &Engine, arguments: Search, output: &Output) -> Result<(), Failure> {
    if arguments.query.trim().is_empty() || arguments.most == 0 {
        return Err(Failure::new("a search needs words to look for, and -k of at least 1"));
    }
    let mut documents = Vec::new();
    for path in &arguments.file {
        documents.push(attach(engine, path, output).await?.document);
    }
    let library = engine.library().clone();
    let (query, most) = (arguments.query.clone(), arguments.most);
    let found = tokio::task::spawn_blocking(move || library.retrieve(&documents, &query, most))
        .await
        .map_err(|error| Failure::new(error.to_string()))??;
    output.note(&found.reason);
    for passage in &found.passages {
        let legs = arguments.legs.then(|| found.legs.get(passage.number - 1)).flatten();
        output.result(&json!({ "passage": passage, "legs": legs }), || {
            let page = passage.page.map(|page| format!(", page {page}")).unwrap_or_default();
            let figure = |score: Option<f32>| score.map_or("–".to_owned(), |score| format!("{score:.3}"));
            let legs = legs.map(|legs| format!("  words {}, cosine {}", figure(legs.words), figure(legs.cosine))).unwrap_or_default();
            format!("[{}] {:.3} {}{page}{legs}\n{}\n", passage.number, passage.score, passage.name, passage.text)
        });
    }
    Ok(())
}

pub async fn embed(engine: &Engine, output: &Output) -> Result<(), Failure> {
    let models = engine.models().clone();
    let id = engine.settings().embedding_model;
    let embedder = tokio::task::spawn_blocking(move || models.embedder(&id)).await.map_err(|error| Failure::new(error.to_string()))??;
    let lines = std::io::stdin().lock().lines().collect::<Result<Vec<_>, _>>()?;
    for batch in lines.chunks(BATCH) {
        let texts: Vec<&str> = batch.iter().map(String::as_str).collect();
        for (text, vector) in texts.iter().zip(embedder.embed(&texts)?) {
            output.result(&json!({ "text": text, "vector": vector }), || vector.iter().map(f32::to_string).collect::<Vec<_>>().join(" "));
        }
    }
    Ok(())
}
