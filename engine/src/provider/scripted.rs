//! A model whose every answer is written down beforehand: for faults and orders of events that a real model will
//! not produce on demand.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use tokio_util::sync::CancellationToken;

use super::{Capabilities, Delta, Error, Finish, Provider, Request, ToolSupport, Usage};

/// The scripted model. Answers are taken in order; a request beyond the last one is an error.
#[derive(Clone, Debug)]
pub struct Scripted {
    answers: Arc<Mutex<VecDeque<Vec<Step>>>>,
    requests: Arc<Mutex<Vec<Request>>>,
    capabilities: Capabilities,
}

impl Default for Scripted {
    fn default() -> Self {
        let capabilities = Capabilities { context: 8192, tools: ToolSupport::Native };
        Self { answers: Arc::default(), requests: Arc::default(), capabilities }
    }
}

/// One step of a scripted answer.
#[derive(Clone, Debug)]
pub enum Step {
    /// Emits a delta.
    Emit(Delta),
    /// Waits, unless cancelled.
    Wait(Duration),
    /// Breaks the stream.
    Fail(Error),
}

impl Scripted {
    /// A model without answers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same model with other capabilities; 8,192 tokens and native tools where nothing is said.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// Adds an answer made of steps; [`Delta::Finished`] is appended when missing.
    #[must_use]
    pub fn answer(self, steps: Vec<Step>) -> Self {
        lock(&self.answers).push_back(steps);
        self
    }

    /// Adds an answer that is one text.
    #[must_use]
    pub fn says(self, text: &str) -> Self {
        self.answer(vec![Step::Emit(Delta::Text(text.to_owned()))])
    }

    /// Adds an answer that is one tool call.
    #[must_use]
    pub fn calls(self, alias: &str, arguments: &str) -> Self {
        self.answer(vec![
            Step::Emit(Delta::CallStarted { index: 0, id: None, name: alias.to_owned() }),
            Step::Emit(Delta::CallArguments { index: 0, fragment: arguments.to_owned() }),
        ])
    }

    /// Adds an answer that is several tool calls, each an alias with its arguments.
    #[must_use]
    pub fn calls_all(self, calls: &[(&str, &str)]) -> Self {
        let steps = calls.iter().enumerate().flat_map(|(index, (alias, arguments))| {
            [
                Step::Emit(Delta::CallStarted { index, id: None, name: (*alias).to_owned() }),
                Step::Emit(Delta::CallArguments { index, fragment: (*arguments).to_owned() }),
            ]
        });
        self.answer(steps.collect())
    }

    /// The requests seen so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.requests).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Provider for Scripted {
    fn id(&self) -> &str {
        "scripted"
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn count(&self, _request: &Request) -> Option<usize> {
        None
    }

    fn stream(&self, request: Request, cancel: CancellationToken) -> BoxStream<'static, Result<Delta, Error>> {
        lock(&self.requests).push(request);
        let Some(steps) = lock(&self.answers).pop_front() else {
            return futures::stream::once(async { Err(Error::Broken("the script has no further answer".to_owned())) }).boxed();
        };
        let state = (VecDeque::from(steps), cancel, Finish::Stop, false);
        futures::stream::unfold(state, |(mut steps, cancel, mut finish, done)| async move {
            if done {
                return None;
            }
            loop {
                if cancel.is_cancelled() {
                    return Some((finished(Finish::Cancelled), (steps, cancel, finish, true)));
                }
                match steps.pop_front() {
                    None => return Some((finished(finish), (steps, cancel, finish, true))),
                    Some(Step::Wait(time)) => tokio::select! {
                        () = cancel.cancelled() => {}
                        () = tokio::time::sleep(time) => {}
                    },
                    Some(Step::Fail(error)) => return Some((Err(error), (steps, cancel, finish, true))),
                    Some(Step::Emit(delta)) => {
                        if matches!(delta, Delta::CallStarted { .. }) {
                            finish = Finish::Calls;
                        }
                        let done = matches!(delta, Delta::Finished { .. });
                        return Some((Ok(delta), (steps, cancel, finish, done)));
                    }
                }
            }
        })
        .boxed()
    }
}

fn finished(reason: Finish) -> Result<Delta, Error> {
    Ok(Delta::Finished { reason, usage: Usage::default() })
}
