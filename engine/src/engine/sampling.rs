//! The chat model of the settings writes for a server, once the person agreed (`mcp::Sampler`).

use std::sync::{Arc, Weak};

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use tokio_util::sync::CancellationToken;

use super::{Engine, Inner};
use crate::mcp::{Sample, SampleRequest, Sampler};
use crate::provider::{ChatMessage, Delta, Finish, Provider, Request, Sampling, ToolChoice};

/// Most tokens that are written for a server, whatever it asks for (fixed).
const MOST_TOKENS: usize = 4096;

/// Holds the engine only weakly: the engine's own manager holds this.
#[derive(Debug)]
pub(super) struct ChatModel {
    engine: Weak<Inner>,
}

impl ChatModel {
    pub(super) fn of(engine: &Arc<Inner>) -> Self {
        Self { engine: Arc::downgrade(engine) }
    }
}

impl Sampler for ChatModel {
    fn sample(&self, request: SampleRequest) -> BoxFuture<'static, Result<Sample, String>> {
        let engine = self.engine.upgrade();
        async move {
            let engine = Engine { inner: engine.ok_or_else(|| "Handrail is closing".to_owned())? };
            let (models, wanted) = (engine.inner.models.clone(), engine.settings().chat_model);
            let loaded = tokio::task::spawn_blocking(move || models.chat(&wanted)).await;
            let model = loaded.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
            write(model.as_ref(), request).await
        }
        .boxed()
    }
}

/// Lets a model write.
async fn write(model: &dyn Provider, wanted: SampleRequest) -> Result<Sample, String> {
    let system = wanted.system.into_iter().map(ChatMessage::System);
    let messages = wanted.messages.into_iter().map(|message| match message.assistant {
        true => ChatMessage::Assistant { text: message.text, calls: Vec::new() },
        false => ChatMessage::User(message.text),
    });
    let mut sampling = Sampling::default();
    if let Some(temperature) = wanted.temperature.filter(|temperature| temperature.is_finite()) {
        sampling.temperature = temperature.clamp(0.0, 2.0);
    }
    let most = usize::try_from(wanted.max_tokens).unwrap_or(usize::MAX).clamp(1, MOST_TOKENS);
    let request = Request {
        messages: system.chain(messages).collect(),
        tool_choice: ToolChoice::None,
        sampling,
        max_tokens: Some(most),
        ..Request::default()
    };
    let cancel = CancellationToken::new();
    let _stop = cancel.clone().drop_guard();
    let mut deltas = model.stream(request, cancel);
    let (mut text, mut cut) = (String::new(), false);
    while let Some(delta) = deltas.next().await {
        match delta.map_err(|error| error.to_string())? {
            Delta::Text(more) => text.push_str(&more),
            Delta::Finished { reason, .. } => cut = reason == Finish::Length,
            Delta::Prefill { .. } | Delta::Reasoning(_) | Delta::CallStarted { .. } | Delta::CallArguments { .. } => {}
        }
        let end = wanted.stop.iter().filter(|stop| !stop.is_empty()).filter_map(|stop| text.find(stop.as_str())).min();
        if let Some(end) = end {
            text.truncate(end);
            cut = false;
            break;
        }
    }
    Ok(Sample { model: model.id().to_owned(), text, cut })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::SampleMessage;
    use crate::provider::scripted::Scripted;

    fn wanted() -> SampleRequest {
        let said = |assistant, text: &str| SampleMessage { assistant, text: text.to_owned() };
        SampleRequest {
            system: Some("be short".to_owned()),
            messages: vec![said(false, "a"), said(true, "b"), said(false, "c")],
            max_tokens: 1_000_000,
            temperature: Some(9.0),
            stop: vec!["END".to_owned()],
        }
    }

    #[tokio::test]
    async fn the_model_is_given_what_was_agreed_to_and_nothing_else() {
        let model = Scripted::new().says("fine END and more").says("whole");
        let sample = write(&model, wanted()).await.unwrap();
        assert_eq!((sample.text.as_str(), sample.cut, sample.model.as_str()), ("fine ", false, model.id()));
        let request = model.requests().remove(0);
        assert_eq!(request.messages.len(), 4);
        assert_eq!(request.messages[0], ChatMessage::System("be short".to_owned()));
        assert_eq!((request.max_tokens, request.sampling.temperature, request.tools.len()), (Some(MOST_TOKENS), 2.0, 0));
        assert_eq!(write(&model, wanted()).await.unwrap().text, "whole");
        assert!(write(&model, wanted()).await.is_err(), "the model's own error is told");
    }
}
