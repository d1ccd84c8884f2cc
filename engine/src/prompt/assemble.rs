//! Messages to chat messages.

use super::Ask;
use crate::conversation::{CallRecord, CallState, Message, Part, Passage, Role};
use crate::provider::{Capabilities, ChatMessage, Request, ToolSupport, WireCall};

const SYSTEM: &str = include_str!("../../../resources/prompts/system.txt");
const SYSTEM_SMALL: &str = include_str!("../../../resources/prompts/system-small.txt");
const PASSAGES: &str = include_str!("../../../resources/prompts/passages.txt");

/// Makes the request for the next answer to `history`.
///
/// Each stored call becomes a call of its assistant message and exactly one tool message with its result, in the order
/// of the calls. For a model that knows no calls both become text. Reasoning is not sent back. Assistant messages
/// without content (a model that failed before its first word) are left out, and the person's messages around them
/// become one, because many chat templates want the roles to alternate.
#[must_use]
pub fn assemble(history: &[Message], ask: &Ask, capabilities: Capabilities) -> Request {
    // A model that was not trained on tools is small, and long instructions cost it more than they give.
    let system = if capabilities.tools == ToolSupport::Native { SYSTEM } else { SYSTEM_SMALL };
    let mut messages = vec![ChatMessage::System(system.trim_end().to_owned())];
    for message in history {
        match message.role {
            Role::User => push_user(&mut messages, user_text(message)),
            Role::Assistant if capabilities.tools == ToolSupport::None => push_as_text(&mut messages, message, ask),
            Role::Assistant => push_assistant(&mut messages, message, ask),
        }
    }
    let mut tools = ask.tools.clone();
    tools.sort_by(|left, right| left.name.cmp(&right.name));
    Request {
        messages,
        tools,
        tool_choice: ask.tool_choice.clone(),
        sampling: ask.sampling,
        max_tokens: Some(ask.max_tokens),
        cache_key: ask.cache_key.clone(),
    }
}

fn push_user(messages: &mut Vec<ChatMessage>, text: String) {
    if let Some(ChatMessage::User(before)) = messages.last_mut() {
        before.push_str("\n\n");
        before.push_str(&text);
    } else {
        messages.push(ChatMessage::User(text));
    }
}

fn push_assistant(messages: &mut Vec<ChatMessage>, message: &Message, ask: &Ask) {
    let text = message.text();
    let records: Vec<&CallRecord> = records(message).collect();
    if text.is_empty() && records.is_empty() {
        return;
    }
    let calls = records.iter().map(|record| WireCall {
        id: record.call.id.to_string(),
        name: record.call.alias.clone(),
        arguments: record.call.arguments.clone(),
    });
    messages.push(ChatMessage::Assistant { text, calls: calls.collect() });
    messages.extend(records.iter().map(|record| ChatMessage::Tool {
        call_id: record.call.id.to_string(),
        name: record.call.alias.clone(),
        text: result_text(&record.state, ask.result_characters),
    }));
}

fn push_as_text(messages: &mut Vec<ChatMessage>, message: &Message, ask: &Ask) {
    let results =
        records(message).map(|record| format!("[{} was called: {}]", record.call.alias, result_text(&record.state, ask.result_characters)));
    let pieces: Vec<String> = std::iter::once(message.text()).chain(results).filter(|piece| !piece.is_empty()).collect();
    if !pieces.is_empty() {
        messages.push(ChatMessage::Assistant { text: pieces.join("\n\n"), calls: Vec::new() });
    }
}

fn records(message: &Message) -> impl Iterator<Item = &CallRecord> {
    message.parts.iter().filter_map(|part| match part {
        Part::Call(record) => Some(record),
        _ => None,
    })
}

/// What the model reads as the result of a call: the truth about it, whatever became of it.
#[must_use]
pub fn result_text(state: &CallState, characters: usize) -> String {
    match state {
        CallState::Done { result, .. } => {
            let text = result.to_model_text(characters);
            match (text.trim().is_empty(), result.is_error) {
                (true, false) => "The tool answered with nothing.".to_owned(),
                (true, true) => "The tool reported an error without a message.".to_owned(),
                (false, false) => text,
                (false, true) => format!("The tool reported an error: {text}"),
            }
        }
        CallState::Denied { by } => format!("not run: the person did not allow it ({by})"),
        CallState::Failed { reason } => format!("This call gave no result: {reason}"),
        CallState::Stopped => "The person stopped this call before it gave a result.".to_owned(),
        CallState::Unknown => "The program ended while this call was running. Its outcome is unknown, and it was not repeated.".to_owned(),
        CallState::Proposed | CallState::Approved { .. } | CallState::Sent { .. } => "This call has no result yet.".to_owned(),
    }
}

/// What the model reads as the person's message: the passages that were retrieved for it, then the text.
fn user_text(message: &Message) -> String {
    let (mut passages, mut names) = (Vec::new(), Vec::new());
    for part in &message.parts {
        match part {
            Part::Passages { passages: found } => passages.extend(found),
            Part::Attachment(attachment) => names.push(attachment.name.as_str()),
            Part::Text { .. } | Part::Reasoning { .. } | Part::Call(_) => {}
        }
    }
    let text = message.text();
    if !passages.is_empty() {
        let passages: String = passages.into_iter().map(passage_text).collect();
        return fill(PASSAGES.trim_end(), &passages, &text);
    }
    if names.is_empty() { text } else { format!("Attached, but nothing in it was found for this: {}\n\n{text}", names.join(", ")) }
}

fn passage_text(passage: &Passage) -> String {
    let page = passage.page.map(|page| format!(", page {page}")).unwrap_or_default();
    format!("[{}] {}{page}:\n{}\n\n", passage.number, passage.name, passage.text.trim())
}

/// Fills the two gaps of a template, each once: what is filled in may look like a gap itself.
fn fill(template: &str, passages: &str, text: &str) -> String {
    let (before, rest) = template.split_once("{passages}\n").unwrap_or((template, ""));
    let (between, after) = rest.split_once("{text}").unwrap_or((rest, ""));
    format!("{before}{passages}{between}{text}{after}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::conversation::{Attachment, ConversationId, DocumentId, Status};
    use crate::provider::ToolSpec;
    use crate::tool::{Call, CallId, CallResult, SchemaHash, ToolId};

    const NATIVE: Capabilities = Capabilities { context: 8192, tools: ToolSupport::Native };

    fn message(role: Role, parts: Vec<Part>) -> Message {
        Message::new(ConversationId::fresh(), role, parts, Status::Complete)
    }

    fn text(text: &str) -> Part {
        Part::Text { text: text.to_owned() }
    }

    fn call(id: &str, state: CallState) -> Part {
        let tool = ToolId { server: "s".into(), name: "t".to_owned(), schema: SchemaHash::of(&json!({})) };
        Part::Call(CallRecord { call: Call { id: CallId::new(id), tool, alias: "t".to_owned(), arguments: json!({}) }, state })
    }

    fn ask() -> Ask {
        let tool = |name: &str| ToolSpec { name: name.to_owned(), description: String::new(), parameters: json!({}) };
        Ask { tools: vec![tool("b"), tool("a")], max_tokens: 64, result_characters: 100, ..Ask::default() }
    }

    #[test]
    fn each_call_has_exactly_one_result_in_order_and_tools_are_sorted() {
        let done = CallState::Done { by: String::new(), result: CallResult::text("12:00"), milliseconds: 1 };
        let denied = CallState::Denied { by: "you denied it".to_owned() };
        let parts = vec![
            Part::Reasoning { text: "hm".to_owned() },
            text("Let me see."),
            call("1", denied),
            call("2", done),
            call("3", CallState::Unknown),
            call("4", CallState::Stopped),
            call("5", CallState::Failed { reason: "no answer within 30s".to_owned() }),
        ];
        let history = [message(Role::User, vec![text("time?")]), message(Role::Assistant, parts)];
        let request = assemble(&history, &ask(), NATIVE);
        let names: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let ChatMessage::Assistant { text, calls } = &request.messages[2] else { panic!("{:?}", request.messages) };
        assert_eq!((text.as_str(), calls.len()), ("Let me see.", 5));
        let results: Vec<(&str, &str)> = request.messages[3..]
            .iter()
            .map(|message| match message {
                ChatMessage::Tool { call_id, text, .. } => (call_id.as_str(), text.as_str()),
                other => panic!("{other:?}"),
            })
            .collect();
        let ids: Vec<&str> = results.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, ["1", "2", "3", "4", "5"]);
        for (result, said) in results.iter().zip(["did not allow", "12:00", "unknown", "stopped", "no answer within 30s"]) {
            assert!(result.1.contains(said), "{result:?} lacks {said}");
        }
    }

    #[test]
    fn passages_stand_in_their_own_turn_and_may_look_like_gaps() {
        let passage = |number, page, text: &str| Passage {
            number,
            document: DocumentId::fresh(),
            name: "report.pdf".to_owned(),
            page,
            span: (0, 1),
            text: text.to_owned(),
            score: 1.0,
        };
        let passages = vec![passage(1, Some(3), "Costs rose by 4 %. {text}"), passage(2, None, "  Sales fell.  ")];
        let user = message(Role::User, vec![text("Why {passages}?"), Part::Passages { passages }]);
        let request = assemble(&[user], &ask(), NATIVE);
        let ChatMessage::User(text) = &request.messages[1] else { panic!() };
        assert!(
            text.contains("[1] report.pdf, page 3:\nCosts rose by 4 %. {text}\n\n[2] report.pdf:\nSales fell.\n\nAnswer with"),
            "{text}"
        );
        assert!(text.ends_with("say so.\n\nWhy {passages}?"), "{text}");
    }

    #[test]
    fn an_empty_answer_is_left_out_and_attachments_are_named() {
        let attachment = Attachment { document: DocumentId::fresh(), name: "a.pdf".to_owned(), bytes: 1 };
        let history = [
            message(Role::User, vec![text("one")]),
            message(Role::Assistant, vec![]),
            message(Role::User, vec![text("two"), Part::Attachment(attachment)]),
        ];
        let request = assemble(&history, &ask(), NATIVE);
        assert_eq!(request.messages.len(), 2);
        let ChatMessage::User(text) = &request.messages[1] else { panic!() };
        assert!(text.starts_with("one\n\nAttached") && text.contains("a.pdf") && text.ends_with("\n\ntwo"), "{text}");
    }

    #[test]
    fn a_model_without_tools_reads_results_as_text() {
        let done = CallState::Done { by: String::new(), result: CallResult::text("12:00"), milliseconds: 1 };
        let history = [message(Role::User, vec![text("time?")]), message(Role::Assistant, vec![call("1", done)])];
        let request = assemble(&history, &ask(), Capabilities { tools: ToolSupport::None, ..NATIVE });
        let ChatMessage::Assistant { text, calls } = &request.messages[2] else { panic!() };
        assert_eq!((text.as_str(), calls.len()), ("[t was called: 12:00]", 0));
    }
}
