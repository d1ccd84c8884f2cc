//! One answer: the prompt is read, then tokens are chosen until the end, under a grammar wherever a call is written.

mod running;

use std::time::Instant;

use super::constraint::{Constraint, Grammars};
use super::decoder::Decoder;
use super::memory::{Halt, Memory};
use super::sampler::{Sampler, best};
use super::splitter::Piece;
use super::template::Template;
use super::tokenizer::Tokenizer;
use super::worker::{Job, Outlet};
use crate::provider::{Delta, Error, Finish, Request, ToolChoice, ToolSpec, Usage};
use running::Running;

/// Tokens of a call after which it is brought to its end: strings, lists and objects are closed as soon as the schema
/// lets them.
pub const CALL_TOKENS: usize = 1_024;
/// Tokens of the limit that are kept for that.
const CLOSING: usize = 96;
/// A call gets at least so many tokens, also where fewer were asked for, as long as the context has room.
const CALL_ROOM: usize = 256;
/// Longest pattern of tokens, and how often it must repeat, to count as a loop inside a call.
const LOOP: (usize, usize) = (24, 4);

/// A loaded model.
#[derive(Debug)]
pub struct Model {
    /// The weights.
    pub decoder: Decoder,
    /// The vocabulary.
    pub tokenizer: Tokenizer,
    /// The chat template.
    pub template: Template,
    /// Grammars over the vocabulary.
    pub grammars: Grammars,
}

impl Model {
    /// The tokens of a request's prompt, and its text.
    pub fn prompt(&self, request: &Request) -> Result<(Vec<u32>, String), Error> {
        let text = self.template.render(&request.messages, &request.tools).map_err(Error::Request)?;
        let tokens = self.tokenizer.encode_prompt(&text).map_err(Error::Request)?;
        Ok((tokens, text))
    }
}

/// Answers a request into its outlet.
pub fn answer(model: &Model, memory: &mut Memory, job: &Job) -> Result<(), Error> {
    let request = &job.request;
    let first = match opening(model, job) {
        Ok(first) => first,
        Err(Halt::Stopped) => {
            job.out.send(Delta::Finished { reason: Finish::Cancelled, usage: Usage::default() });
            return Ok(());
        }
        Err(Halt::Failed(error)) => return Err(error),
    };
    let (prompt, text) = model.prompt(request)?;
    let context = model.decoder.config().context;
    if prompt.len() >= context {
        return Err(Error::TooLong { needed: prompt.len() + 1, context });
    }
    let kept = memory.keep_common(&prompt);
    let mut usage = Usage { prompt_tokens: prompt.len(), cached_tokens: kept, ..Usage::default() };
    let total = prompt.len();
    let read = memory.read(&model.decoder, &prompt, &|| job.out.is_stopped(), &|done| {
        job.out.send(Delta::Prefill { done, total, reused: kept });
    });
    let logits = match read {
        Ok(logits) => logits,
        Err(Halt::Stopped) => {
            job.out.send(Delta::Finished { reason: Finish::Cancelled, usage });
            return Ok(());
        }
        Err(Halt::Failed(error)) => return Err(error),
    };
    let room = context - prompt.len();
    let budget = request.max_tokens.unwrap_or(usize::MAX).min(room);
    let thinking = text.trim_end().ends_with("<think>");
    let watch = !request.tools.is_empty();
    let mut answer = Answer {
        model,
        memory,
        out: &job.out,
        request,
        prompt,
        logits,
        sampler: Sampler::new(request.sampling),
        running: Running::new(watch, thinking),
        call: first,
        call_from: 0,
        banned_at: None,
        budget,
        room,
        first: None,
    };
    let reason = match answer.write() {
        Ok(reason) => reason,
        Err(Halt::Stopped) => Finish::Cancelled,
        Err(Halt::Failed(error)) => return Err(error),
    };
    answer.flush();
    answer.count(job.asked, &mut usage);
    job.out.send(Delta::Finished { reason, usage });
    Ok(())
}

/// The grammar that rules from the first token, where a call is demanded.
fn opening(model: &Model, job: &Job) -> Result<Option<Constraint>, Halt> {
    let request = &job.request;
    let named: Vec<&ToolSpec> = match &request.tool_choice {
        ToolChoice::Auto | ToolChoice::None => return Ok(None),
        ToolChoice::Required => request.tools.iter().collect(),
        ToolChoice::Named(name) => request.tools.iter().filter(|tool| tool.name == *name).collect(),
    };
    if named.is_empty() {
        let what = match &request.tool_choice {
            ToolChoice::Named(name) => format!("the tool '{name}' is not on offer"),
            _ => "a call is demanded, but no tool is on offer".to_owned(),
        };
        return Err(Halt::Failed(Error::Request(what)));
    }
    model.grammars.calls(&named, false, &|| job.out.is_stopped()).map(Some)
}

/// What comes next.
enum Next {
    Tokens(Vec<u32>),
    End(Finish),
}

struct Answer<'a> {
    model: &'a Model,
    memory: &'a mut Memory,
    out: &'a Outlet,
    request: &'a Request,
    prompt: Vec<u32>,
    logits: Vec<f32>,
    sampler: Sampler,
    running: Running,
    call: Option<Constraint>,
    /// Token of the answer at which the calls begin.
    call_from: usize,
    /// Token of the answer that must not begin a call.
    banned_at: Option<usize>,
    /// Tokens that were asked for.
    budget: usize,
    /// Tokens that the context has room for.
    room: usize,
    first: Option<Instant>,
}

impl Answer<'_> {
    fn write(&mut self) -> Result<Finish, Halt> {
        loop {
            if self.out.is_stopped() {
                return Err(Halt::Stopped);
            }
            if self.running.len() >= self.limit() {
                return Ok(Finish::Length);
            }
            let next = if self.call.is_some() { self.next_in_call()? } else { self.next_free()? };
            let _ = self.first.get_or_insert_with(Instant::now);
            match next {
                Next::End(finish) => return Ok(finish),
                Next::Tokens(tokens) => self.take(&tokens)?,
            }
        }
    }

    fn next_free(&mut self) -> Result<Next, Halt> {
        let mut logits = std::mem::take(&mut self.logits);
        logits.truncate(self.model.tokenizer.len());
        self.sampler.penalise(&mut logits, self.running.tokens());
        if self.banned_at == Some(self.running.len()) {
            self.running.ban_call(&self.model.tokenizer, &mut logits);
        }
        let token = self.sampler.pick(&logits).ok_or_else(no_choice)?;
        Ok(if self.model.tokenizer.is_end(token) { Next::End(Finish::Stop) } else { Next::Tokens(vec![token]) })
    }

    fn next_in_call(&mut self) -> Result<Next, Halt> {
        let closing = self.closing();
        let Some(constraint) = &mut self.call else { return Ok(Next::End(Finish::Stop)) };
        let mut forced = constraint.forced();
        forced.retain(|token| !self.model.tokenizer.is_end(*token));
        if !forced.is_empty() {
            return Ok(match constraint.take(&forced) {
                Ok(()) => Next::Tokens(forced),
                Err(reason) => stuck(&reason),
            });
        }
        if constraint.is_over() {
            return Ok(Next::End(Finish::Calls));
        }
        let mut logits = std::mem::take(&mut self.logits);
        logits.truncate(self.model.tokenizer.len());
        if let Err(reason) = constraint.filter(&mut logits) {
            return Ok(stuck(&reason));
        }
        let wanted = if closing { self.running.closers(&self.model.tokenizer) } else { Vec::new() };
        let wanted = wanted.into_iter().find(|token| logits.get(*token as usize).is_some_and(|logit| logit.is_finite()));
        let token = match wanted {
            Some(token) => token,
            None => self.sampler.pick(&logits).or_else(|| best(&logits)).ok_or_else(no_choice)?,
        };
        if self.model.tokenizer.is_end(token) {
            return Ok(Next::End(Finish::Calls));
        }
        Ok(match constraint.take(&[token]) {
            Ok(()) => Next::Tokens(vec![token]),
            Err(reason) => stuck(&reason),
        })
    }

    /// Tokens the answer may have. A call that has begun is never cut off: half of it would be worth nothing.
    fn limit(&self) -> usize {
        if self.call.is_some() { self.budget.max(self.call_from + CALL_ROOM).min(self.room) } else { self.budget }
    }

    /// Whether the call shall come to its end.
    fn closing(&self) -> bool {
        let call = &self.running.tokens()[self.call_from.min(self.running.len())..];
        call.len() > CALL_TOKENS || self.limit().saturating_sub(self.running.len()) < CLOSING || running::loops(call, LOOP)
    }

    /// Shows tokens and reads them.
    fn take(&mut self, tokens: &[u32]) -> Result<(), Halt> {
        if self.call.is_some() {
            for delta in self.running.push_call(&self.model.tokenizer, tokens) {
                self.out.send(delta);
            }
        } else {
            for piece in self.running.push_free(&self.model.tokenizer, tokens) {
                match piece {
                    Piece::Text(text) => self.out.send(Delta::Text(text)),
                    Piece::Reasoning(text) => self.out.send(Delta::Reasoning(text)),
                    Piece::Call(at) => return self.turn_back(at),
                }
            }
        }
        self.read(tokens)
    }

    fn read(&mut self, tokens: &[u32]) -> Result<(), Halt> {
        let out = self.out;
        self.logits = self.memory.step(&self.model.decoder, tokens, &|| out.is_stopped())?;
        Ok(())
    }

    /// The model has begun a call at this byte of its text. Its own spelling is forgotten, so that the grammar rules from
    /// the first byte of the call on; where no call is allowed, the text goes on without it.
    fn turn_back(&mut self, at: usize) -> Result<(), Halt> {
        let lead = self.running.turn_back(at);
        let lead = self.model.tokenizer.encode(&lead).map_err(broken)?;
        self.memory.truncate(self.prompt.len() + self.running.len());
        self.running.append_shown(&lead);
        if self.request.tool_choice == ToolChoice::Auto {
            let tools: Vec<&ToolSpec> = self.request.tools.iter().collect();
            let out = self.out;
            self.call = Some(self.model.grammars.calls(&tools, true, &|| out.is_stopped())?);
            self.call_from = self.running.len();
        } else {
            self.banned_at = Some(self.running.len());
        }
        if !lead.is_empty() {
            return self.read(&lead);
        }
        if self.call.is_some() {
            // The grammar forces the first tokens of a call, so no logits are needed.
            return Ok(());
        }
        // The last token is read again, because its logits are gone.
        let last = self.running.tokens().last().or(self.prompt.last()).copied().unwrap_or_default();
        self.memory.truncate(self.memory.tokens().len().saturating_sub(1));
        self.read(&[last])
    }

    /// Shows what was held back.
    fn flush(&mut self) {
        for piece in self.running.finish() {
            match piece {
                Piece::Text(text) => self.out.send(Delta::Text(text)),
                Piece::Reasoning(text) => self.out.send(Delta::Reasoning(text)),
                Piece::Call(_) => {}
            }
        }
    }

    fn count(&self, asked: Instant, usage: &mut Usage) {
        usage.completion_tokens = self.running.len();
        let Some(first) = self.first else { return };
        usage.first_token_ms = first.duration_since(asked).as_secs_f64() * 1_000.0;
        let seconds = first.elapsed().as_secs_f64();
        #[allow(clippy::cast_precision_loss)]
        let tokens = self.running.len() as f64;
        usage.tokens_per_second = if seconds > 0.0 { tokens / seconds } else { 0.0 };
    }
}

/// The grammar has come to where nothing fits. The call ends there, unfinished: it is refused like any call that was cut off,
/// and the turn goes on.
fn stuck(reason: &str) -> Next {
    tracing::warn!(reason, "the grammar of a call leads nowhere");
    Next::End(Finish::Calls)
}

fn broken(what: String) -> Halt {
    Halt::Failed(Error::Broken(what))
}

fn no_choice() -> Halt {
    Halt::Failed(Error::Broken("no token can follow; the model's file may be damaged".to_owned()))
}

#[cfg(test)]
mod tests;
