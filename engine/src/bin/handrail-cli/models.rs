//! `models`: what is here, what can be fetched.

use clap::Subcommand;
use handrail_engine::Engine;
use handrail_engine::local::{ModelState, ModelView, TemplateChoice, TemplateView};
use serde_json::json;
use sipper::Sipper as _;

use crate::output::{Failure, Output};

#[derive(Subcommand)]
pub enum Command {
    /// Lists the catalogue with what is on this machine.
    List,
    /// Fetches models, trying each source in order.
    Fetch {
        /// Catalogue ids; none means the two default models.
        ids: Vec<String>,
    },
    /// Checks the sha256 of every model that is here.
    Verify,
    /// Shows which chat template a model is used with, or chooses one.
    Template {
        /// A catalogue id, or the path of a GGUF file.
        model: String,
        /// ChatML, a template in a file, or again the model's own.
        #[arg(value_name = "chatml|FILE|own")]
        template: Option<String>,
    },
    /// Removes a model from this machine.
    Remove {
        /// The catalogue id.
        id: String,
    },
}

pub async fn run(engine: &Engine, command: Command, output: &Output) -> Result<(), Failure> {
    match command {
        Command::List => {
            for view in engine.models().list() {
                show(&view, output);
            }
            Ok(())
        }
        Command::Fetch { ids } => {
            let settings = engine.settings();
            let ids = if ids.is_empty() { vec![settings.chat_model, settings.embedding_model] } else { ids };
            for id in ids {
                fetch(engine, &id, output).await?;
            }
            Ok(())
        }
        Command::Verify => verify(engine, output).await,
        Command::Template { model, template } => {
            let view = match &template {
                Some(choice) => choose_template(engine, &model, choice).await?,
                None => engine.models().template(&model).ok_or_else(|| Failure::new(format!("there is no chat model '{model}'")))?,
            };
            let choice = view.choice.to_string();
            output.result(&json!({ "model": model, "template": choice }), || format!("{model}: {choice}"));
            Ok(())
        }
        Command::Remove { id } => {
            let bytes = engine.models().remove(&id)?;
            output.result(&json!({ "id": id, "freed_bytes": bytes }), || format!("{id}: {bytes} bytes freed"));
            Ok(())
        }
    }
}

/// Chooses the template of a model; an id that is a path may be one.
pub async fn choose_template(engine: &Engine, model: &str, choice: &str) -> Result<TemplateView, Failure> {
    let (models, model, choice) = (engine.models().clone(), model.to_owned(), TemplateChoice::parse(choice));
    let chosen = tokio::task::spawn_blocking(move || models.choose_template(&model, &choice)).await;
    Ok(chosen.map_err(|error| Failure::new(error.to_string()))??)
}

async fn fetch(engine: &Engine, id: &str, output: &Output) -> Result<(), Failure> {
    let mut fetching = engine.models().fetch(id).pin();
    while let Some(progress) = fetching.sip().await {
        output.json(&json!({ "id": id, "source": progress.source, "done": progress.done, "total": progress.total, "bytes_per_second": progress.speed }));
        output.status(&format!(
            "{id}: {} of {} bytes, {:.1} MB/s, from {}",
            progress.done,
            progress.total,
            progress.speed / 1e6,
            progress.source
        ));
    }
    let fetched = fetching.await;
    output.status_end();
    let fetched = fetched?;
    for (source, reason) in &fetched.failed {
        output.note(&format!("{id}: {source} did not work: {reason}"));
    }
    let failed: Vec<_> = fetched.failed.iter().map(|(source, reason)| json!({ "source": source, "reason": reason })).collect();
    output.result(&json!({ "id": id, "path": fetched.path, "source": fetched.source, "failed": failed }), || {
        format!("{id}: {} (from {})", fetched.path.display(), fetched.source)
    });
    Ok(())
}

async fn verify(engine: &Engine, output: &Output) -> Result<(), Failure> {
    let (mut broken, mut seen) = (Vec::new(), 0);
    for view in engine.models().list() {
        if matches!(view.state, ModelState::Missing { .. } | ModelState::Fetching(_)) {
            continue;
        }
        seen += 1;
        let models = engine.models().clone();
        let id = view.entry.id.clone();
        let view = tokio::task::spawn_blocking(move || models.verify(&id)).await.map_err(|error| Failure::new(error.to_string()))??;
        if matches!(view.state, ModelState::Broken { .. }) {
            broken.push(view.entry.id.clone());
        }
        show(&view, output);
    }
    if seen == 0 {
        output.note("no model is here; `models fetch` brings the two default ones");
    }
    if broken.is_empty() { Ok(()) } else { Err(Failure::new(format!("broken: {}", broken.join(", ")))) }
}

fn show(view: &ModelView, output: &Output) {
    let (state, detail) = match &view.state {
        ModelState::Missing { partial: 0 } => ("missing", String::new()),
        ModelState::Missing { partial } => ("missing", format!("{partial} bytes of an earlier fetch are kept")),
        ModelState::Fetching(progress) => ("fetching", format!("{} of {} bytes", progress.done, progress.total)),
        ModelState::Ready { path, source } => ("ready", format!("{} (from {source})", path.display())),
        ModelState::Broken { reason } => ("broken", reason.clone()),
    };
    let entry = &view.entry;
    let detail = match &view.template.choice {
        TemplateChoice::Own => detail,
        other => format!("{detail}; chat template: {other}"),
    };
    output.result(
        &json!({ "id": entry.id, "name": entry.name, "bytes": entry.bytes, "licence": entry.licence, "context": entry.context, "state": state, "detail": detail,
            "template": view.template.choice.to_string() }),
        || format!("{:32} {:>12} bytes  {:10} {:8} {detail}", entry.id, entry.bytes, entry.licence, state),
    );
}
