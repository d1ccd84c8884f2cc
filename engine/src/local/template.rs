//! The chat template inside a GGUF: a request's messages and tools as one text.
//!
//! The same history gives the same bytes, so that the KV cache of the last request covers the front of the next one.

mod json;
mod value;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, ErrorKind};

use super::tokenizer::Tokenizer;
use crate::provider::{ChatMessage, ToolSpec, WireCall};
pub use json::spaced;
use value::{from_json, list, map};

/// Work that one rendering may cost: instructions, and 64 bytes of text made. A 128k-token history needs about 50,000.
const FUEL: u64 = 4_000_000;
/// Deepest nesting of calls and includes.
const RECURSION: usize = 64;
/// Longest template in bytes.
const LONGEST: usize = 256 << 10;

/// What a file without a template gets.
const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\
                      {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

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
}

impl Template {
    /// Compiles the template of a file, or ChatML where it has none. The error is a sentence.
    pub fn new(source: Option<&str>, tokenizer: &Tokenizer) -> Result<Self, String> {
        let (begin, end) = tokenizer.frame();
        let controls = tokenizer.controls().into_iter().filter(|text| text.chars().count() > 1).map(str::to_owned).collect();
        let source = source.unwrap_or(CHATML);
        if source.len() > LONGEST {
            return Err(format!("its chat template has {} bytes; {LONGEST} are allowed", source.len()));
        }
        // Only templates that speak the same call syntax as the grammar; Llama 3 and Mistral have others, and take the
        // plain section below like any model that was never taught.
        let native = source.contains("tools") && source.contains(CALL.0.trim());
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
        let fault = |e: minijinja::Error| format!("its chat template is broken: {}", brief(&e));
        environment.add_template_owned("chat", source.to_owned()).map_err(fault)?;
        Ok(Self { environment, begin: begin.to_owned(), end: end.to_owned(), controls, native })
    }

    /// Whether the template itself knows tools.
    #[must_use]
    pub fn knows_tools(&self) -> bool {
        self.native
    }

    /// The whole prompt, up to where the model begins to write. The error is a sentence.
    pub fn render(&self, messages: &[ChatMessage], tools: &[ToolSpec]) -> Result<String, String> {
        let turns = if self.native { self.native(messages) } else { self.plain(messages, tools) };
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
        let context = map(fields);
        template.render(context).map_err(|e| format!("the chat template of this model fails: {}", brief(&e)))
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
    fn plain(&self, messages: &[ChatMessage], tools: &[ToolSpec]) -> Vec<Value> {
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
        let front = (!front.is_empty()).then(|| ("system", front.join("\n\n")));
        front.into_iter().chain(turns).map(|(role, text)| self.turn(role, &text)).collect()
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
