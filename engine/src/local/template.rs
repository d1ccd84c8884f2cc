//! The chat template inside a GGUF: a request's messages and tools as one text.
//!
//! The same history gives the same bytes, so that the KV cache of the last request covers the front of the next one.

mod choice;
mod generation;
mod json;
mod known;
mod value;

use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, ErrorKind};

use super::tokenizer::Tokenizer;
use crate::provider::{ChatMessage, ToolSpec, WireCall};
pub use choice::{TemplateChoice, TemplateUse};
pub use json::spaced;
use known::Known;
use value::{from_json, list, map};

/// Work that one rendering may cost: instructions, and 64 bytes of text made. A 128k-token history needs about 50,000.
const FUEL: u64 = 4_000_000;
/// Deepest nesting of calls and includes.
const RECURSION: usize = 64;
/// Longest template in bytes.
const LONGEST: usize = 256 << 10;

/// What a person can do about a template that does not work.
const REMEDY: &str =
    "choose ChatML instead on the models page or with `--template chatml`, or name a template of your own with `--template FILE`";

/// Where a call begins and ends in the text of a model.
pub const CALL: (&str, &str) = ("<tool_call>\n", "\n</tool_call>");

/// A compiled template.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    begin: String,
    end: String,
    controls: Vec<String>,
    native: bool,
    used: TemplateUse,
}

impl Template {
    /// The template of a model: what a person chose, else the one in its file (`own`), else a known one whose tokens the
    /// vocabulary has. It has written a short conversation when it is given back. The error is a sentence.
    pub fn choose(choice: &TemplateChoice, own: Option<&str>, tokenizer: &Tokenizer) -> Result<Self, String> {
        let template = match (choice, own) {
            (TemplateChoice::ChatMl, _) => {
                let mut note = "ChatML is used instead of the model's own chat template, because that was chosen".to_owned();
                if !known::CHATML.fits(tokenizer) {
                    note += "; the vocabulary has no tokens for it, so that answers may not end where they should";
                }
                Self::known(&known::CHATML, note, tokenizer)?
            }
            (TemplateChoice::File(path), _) => {
                let note = format!("the chat template in {} is used, because that was chosen", path.display());
                let used = TemplateUse { name: path.display().to_string(), note: Some(note) };
                Self::new(&source_of(path)?, used, tokenizer)?
            }
            (TemplateChoice::Own, Some(source)) => Self::new(source, TemplateUse { name: "own".to_owned(), note: None }, tokenizer)?,
            (TemplateChoice::Own, None) => {
                let known = Known::of(tokenizer).ok_or_else(|| {
                    format!(
                        "it has no chat template, and its vocabulary has the tokens of none that is known ({}); {REMEDY}",
                        Known::names()
                    )
                })?;
                let note = format!("the file has no chat template; the one of {} is used, whose tokens its vocabulary has", known.name);
                Self::known(&known, note, tokenizer)?
            }
        };
        template.tried()
    }

    /// One of the well-known ones. Its marks steer the model even where the vocabulary does not have them.
    fn known(known: &Known, note: String, tokenizer: &Tokenizer) -> Result<Self, String> {
        let mut template = Self::new(known.source, TemplateUse { name: known.id.to_owned(), note: Some(note) }, tokenizer)?;
        template.controls.extend(known.marks.iter().map(|mark| (*mark).to_owned()));
        Ok(template)
    }

    /// Compiles a template. The error is a sentence.
    fn new(source: &str, used: TemplateUse, tokenizer: &Tokenizer) -> Result<Self, String> {
        let (begin, end) = tokenizer.frame();
        let controls = tokenizer.controls().into_iter().filter(|text| text.chars().count() > 1).map(str::to_owned).collect();
        // Only templates that speak the same call syntax as the grammar; Llama 3 and Mistral have others, and take the
        // plain section below like any model that was never taught.
        let native = source.contains("tools") && source.contains(CALL.0.trim());
        let environment = compiled(source)?;
        Ok(Self { environment, begin: begin.to_owned(), end: end.to_owned(), controls, native, used })
    }

    /// Lets it write a question, with and without a system text: one that refuses both is of no use, and a person should
    /// hear so before anything is asked.
    fn tried(self) -> Result<Self, String> {
        let question = ChatMessage::User("Hello".to_owned());
        let Err(fault) = self.render(std::slice::from_ref(&question), &[]) else { return Ok(self) };
        match self.render(&[ChatMessage::System("Be brief.".to_owned()), question], &[]) {
            Ok(_) => Ok(self),
            Err(_) => Err(fault),
        }
    }

    /// Which template this is.
    #[must_use]
    pub fn used(&self) -> &TemplateUse {
        &self.used
    }

    /// Whether the template itself knows tools.
    #[must_use]
    pub fn knows_tools(&self) -> bool {
        self.native
    }

    /// The whole prompt, up to where the model begins to write. A template that refuses system turns gets their text in
    /// front of the first question. The error is a sentence.
    pub fn render(&self, messages: &[ChatMessage], tools: &[ToolSpec]) -> Result<String, String> {
        self.filled(self.turns(messages, tools, false), tools).or_else(|fault| {
            let folded = self.filled(self.turns(messages, tools, true), tools);
            folded.map_err(|_| format!("the chat template of this model fails: {fault}; {REMEDY}"))
        })
    }

    fn turns(&self, messages: &[ChatMessage], tools: &[ToolSpec], fold: bool) -> Vec<Value> {
        match (self.native, fold) {
            (true, false) => self.native(messages),
            (true, true) => self.native(&folded(messages)),
            (false, _) => self.plain(messages, tools, fold),
        }
    }

    fn filled(&self, turns: Vec<Value>, tools: &[ToolSpec]) -> Result<String, String> {
        let mut fields = vec![
            ("messages", list(turns)),
            ("add_generation_prompt", Value::from(true)),
            ("bos_token", Value::from(self.begin.as_str())),
            ("eos_token", Value::from(self.end.as_str())),
        ];
        if self.native && !tools.is_empty() {
            fields.push(("tools", list(tools.iter().map(|tool| from_json(&json::of_tool(tool))).collect())));
        }
        let template = self.environment.get_template("chat").map_err(|e| brief(&e))?;
        template.render(map(fields)).map_err(|e| brief(&e))
    }

    /// Messages as they are, for templates that know tools.
    fn native(&self, messages: &[ChatMessage]) -> Vec<Value> {
        let turn = |message: &ChatMessage| match message {
            ChatMessage::System(text) => self.turn("system", text),
            ChatMessage::User(text) => self.turn("user", text),
            ChatMessage::Assistant { text, calls } if calls.is_empty() => self.turn("assistant", text),
            ChatMessage::Assistant { text, calls } => map(vec![
                ("role", Value::from("assistant")),
                ("content", Value::from(self.defused(text))),
                ("tool_calls", list(calls.iter().map(|call| self.call(call)).collect())),
            ]),
            ChatMessage::Tool { call_id, name, text } => map(vec![
                ("role", Value::from("tool")),
                ("name", Value::from(name.as_str())),
                ("tool_call_id", Value::from(call_id.as_str())),
                ("content", Value::from(self.defused(text))),
            ]),
        };
        messages.iter().map(turn).collect()
    }

    fn call(&self, call: &WireCall) -> Value {
        let arguments = from_json(&json::mapped(&call.arguments, &|text| self.defused(text)));
        let function = map(vec![("name", Value::from(call.name.as_str())), ("arguments", arguments)]);
        map(vec![("type", Value::from("function")), ("id", Value::from(call.id.as_str())), ("function", function)])
    }

    /// Messages with tools, calls and results written out as text, for templates that know only the three roles.
    fn plain(&self, messages: &[ChatMessage], tools: &[ToolSpec], fold: bool) -> Vec<Value> {
        let mut turns: Vec<(&str, String)> = Vec::new();
        let mut system: Vec<&str> = Vec::new();
        let mut after_tool = false;
        for message in messages {
            let is_tool = matches!(message, ChatMessage::Tool { .. });
            match message {
                ChatMessage::System(text) if turns.is_empty() => system.push(text),
                ChatMessage::System(text) => turns.push(("system", text.clone())),
                ChatMessage::User(text) => turns.push(("user", text.clone())),
                ChatMessage::Assistant { text, calls } => turns.push(("assistant", written(text, calls))),
                ChatMessage::Tool { name, text, .. } => {
                    // Plain words: a small model repeats markers that it was not trained on.
                    let result = format!("The result of {name} is:\n{text}");
                    match turns.last_mut() {
                        Some((_, turn)) if after_tool => {
                            turn.truncate(turn.len() - FROM_RESULTS.len());
                            *turn += &format!("\n\n{result}{FROM_RESULTS}");
                        }
                        _ => turns.push(("user", result + FROM_RESULTS)),
                    }
                }
            }
            after_tool = is_tool;
        }
        let section = (!tools.is_empty()).then(|| section(tools));
        let front: Vec<&str> = system.into_iter().chain(section.as_deref()).collect();
        if !front.is_empty() {
            let front = front.join("\n\n");
            match turns.first_mut() {
                Some(("user", text)) if fold => *text = format!("{front}\n\n{text}"),
                _ => turns.insert(0, (if fold { "user" } else { "system" }, front)),
            }
        }
        turns.iter().map(|(role, text)| self.turn(role, text)).collect()
    }

    fn turn(&self, role: &str, text: &str) -> Value {
        map(vec![("role", Value::from(role)), ("content", Value::from(self.defused(text)))])
    }

    /// A text in which no control token is left: a tool result that contains `<|im_end|>` must not end its turn. A
    /// zero-width space goes behind the first character of each.
    fn defused(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for control in &self.controls {
            if text.contains(control.as_str()) {
                let first = control.chars().next().map_or(0, char::len_utf8);
                let (head, tail) = control.split_at(first);
                text = text.replace(control.as_str(), &format!("{head}\u{200b}{tail}"));
            }
        }
        text
    }
}

/// Whether a template can be used at all, before it is chosen for a model. The error is a sentence.
pub fn check(choice: &TemplateChoice) -> Result<(), String> {
    match choice {
        TemplateChoice::Own | TemplateChoice::ChatMl => Ok(()),
        TemplateChoice::File(path) => compiled(&source_of(path)?).map(drop).map_err(|reason| format!("{}: {reason}", path.display())),
    }
}

/// The text of a template file.
fn source_of(path: &Path) -> Result<String, String> {
    let fault = |reason: String| format!("the chat template {} cannot be read: {reason}", path.display());
    let size = std::fs::metadata(path).map_err(|e| fault(e.to_string()))?.len();
    if size > LONGEST as u64 {
        return Err(fault(format!("it has {size} bytes; {LONGEST} are allowed")));
    }
    std::fs::read_to_string(path).map_err(|e| fault(e.to_string()))
}

/// A template with what templates of models expect to be there.
fn compiled(source: &str) -> Result<Environment<'static>, String> {
    if source.len() > LONGEST {
        return Err(format!("its chat template has {} bytes, {LONGEST} are allowed; {REMEDY}", source.len()));
    }
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION);
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(|e| brief(&e))?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", json::filter);
    environment.add_function("raise_exception", |message: String| -> Result<Value, minijinja::Error> {
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", |format: String| -> Result<String, minijinja::Error> {
        let now = jiff::fmt::strtime::format(&format, &jiff::ZonedDateTime::now());
        now.map_err(|e| minijinja::Error::new(ErrorKind::InvalidOperation, e.to_string()))
    });
    let fault = |e: minijinja::Error| format!("its chat template is broken: {}; {REMEDY}", brief(&e));
    environment.add_template_owned("chat", generation::read_through(source)).map_err(fault)?;
    Ok(environment)
}

/// The messages with the system text in front of the first question.
fn folded(messages: &[ChatMessage]) -> Vec<ChatMessage> {
    let system = messages.iter().take_while(|message| matches!(message, ChatMessage::System(_))).count();
    let (front, rest) = messages.split_at(system);
    let mut front: Vec<&str> =
        front.iter().filter_map(|m| if let ChatMessage::System(text) = m { Some(text.as_str()) } else { None }).collect();
    if front.is_empty() {
        return rest.to_vec();
    }
    match rest.split_first() {
        Some((ChatMessage::User(text), rest)) => {
            front.push(text);
            std::iter::once(ChatMessage::User(front.join("\n\n"))).chain(rest.iter().cloned()).collect()
        }
        _ => std::iter::once(ChatMessage::User(front.join("\n\n"))).chain(rest.iter().cloned()).collect(),
    }
}

/// What stands behind the results of an answer's calls.
const FROM_RESULTS: &str = "\n\nAnswer my question from this.";

/// Calls as a model writes them, behind its text.
fn written(text: &str, calls: &[WireCall]) -> String {
    let mut parts: Vec<String> = Vec::new();
    if !text.is_empty() {
        parts.push(text.to_owned());
    }
    for call in calls {
        let call = serde_json::json!({ "name": call.name, "arguments": call.arguments });
        parts.push(format!("{}{}{}", CALL.0, spaced(&call), CALL.1));
    }
    parts.join("\n")
}

/// The system text that describes tools to a model whose template does not.
fn section(tools: &[ToolSpec]) -> String {
    let lines: Vec<String> = tools.iter().map(|tool| spaced(&json::of_function(tool))).collect();
    format!(
        "You can use these tools:\n<tools>\n{}\n</tools>\nTo use one, answer with\n{}{{\"name\": \"...\", \"arguments\": {{...}}}}{}\n\
         and take every argument from the user's message. The result comes in the next message; answer from it.",
        lines.join("\n"),
        CALL.0,
        CALL.1
    )
}

fn brief(error: &minijinja::Error) -> String {
    let line = error.line().map(|line| format!(" (line {line})")).unwrap_or_default();
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    format!("{detail}{line}")
}

#[cfg(test)]
mod tests;
