//! Keeping a request within the context.

use super::{Ask, assemble};
use crate::conversation::{Message, Role};
use crate::provider::{ChatMessage, Error, Provider, Request};

/// The least of a tool result that is worth reading, in characters.
const SHORTEST_RESULT: usize = 256;

/// A request that fits, and what it cost to make it fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The request.
    pub request: Request,
    /// Its tokens; an estimate where the model does not count.
    pub tokens: usize,
    /// What was left out, where something was.
    pub left_out: Option<String>,
}

/// Makes a request that leaves room for the answer (the most tokens that are asked for, at most a quarter of the
/// context).
///
/// Where the whole history is too long, the oldest whole turns are dropped, calls together with their results; the
/// last turn always stays. They are dropped down to three quarters of the room, and which ones depends on nothing but
/// the turns in their order, so that the next turns keep the same beginning instead of losing a turn each. Where the
/// last turn alone is too long, its tool results are cut shorter. [`Error::TooLong`] where nothing helps.
pub fn fit(history: &[Message], ask: &Ask, provider: &dyn Provider) -> Result<Fitted, Error> {
    let context = provider.capabilities().context;
    let room = context - ask.max_tokens.min(context / 4);
    let cost = |messages: &[Message], ask: &Ask| {
        let request = assemble(messages, ask, provider.capabilities());
        let tokens = provider.count(&request).unwrap_or_else(|| estimate(&request));
        Fitted { request, tokens, left_out: None }
    };
    let whole = cost(history, ask);
    if whole.tokens <= room {
        return Ok(whole);
    }
    let starts = turns(history);
    let base = cost(&[], ask).tokens;
    let ends = starts.iter().skip(1).copied().chain([history.len()]);
    let costs: Vec<usize> =
        starts.iter().zip(ends).map(|(start, end)| cost(&history[*start..end], ask).tokens.saturating_sub(base)).collect();
    for dropped in keep_from(&costs, base, room)..starts.len() {
        let fitted = cost(&history[starts[dropped]..], ask);
        if fitted.tokens <= room {
            let left_out = (dropped > 0).then(|| format!("the {dropped} oldest of {} turns do not fit the context", starts.len()));
            return Ok(Fitted { left_out, ..fitted });
        }
    }
    let last = &history[starts.last().copied().unwrap_or_default()..];
    let mut shorter = ask.clone();
    while shorter.result_characters > SHORTEST_RESULT {
        shorter.result_characters = (shorter.result_characters / 2).max(SHORTEST_RESULT);
        let fitted = cost(last, &shorter);
        if fitted.tokens <= room {
            let left_out = Some(format!("only this turn fits the context, with {} characters of each result", shorter.result_characters));
            return Ok(Fitted { left_out, ..fitted });
        }
    }
    Err(Error::TooLong { needed: cost(last, &shorter).tokens + (context - room), context })
}

/// Where turns begin: at each message of the person.
fn turns(history: &[Message]) -> Vec<usize> {
    let mut starts: Vec<usize> =
        history.iter().enumerate().filter(|(_, message)| message.role == Role::User).map(|(index, _)| index).collect();
    if starts.first() != Some(&0) {
        starts.insert(0, 0);
    }
    starts
}

/// The first turn that is kept: turns are added one by one, and each time they outgrow the room the oldest go until
/// three quarters of it are enough.
fn keep_from(costs: &[usize], base: usize, room: usize) -> usize {
    let (mut start, mut sum) = (0, base);
    for (index, cost) in costs.iter().enumerate() {
        sum += cost;
        if sum > room {
            while start < index && sum > room / 4 * 3 {
                sum -= costs[start];
                start += 1;
            }
        }
    }
    start
}

/// About how many tokens a request has, for models that do not count: three bytes to a token, which rather
/// overestimates.
fn estimate(request: &Request) -> usize {
    let message = |message: &ChatMessage| match message {
        ChatMessage::System(text) | ChatMessage::User(text) => text.len(),
        ChatMessage::Assistant { text, calls } => {
            text.len() + calls.iter().map(|call| call.name.len() + call.arguments.to_string().len() + 24).sum::<usize>()
        }
        ChatMessage::Tool { call_id, name, text } => call_id.len() + name.len() + text.len(),
    };
    let messages: usize = request.messages.iter().map(|each| message(each) / 3 + 5).sum();
    let tools = request.tools.iter().map(|tool| tool.name.len() + tool.description.len() + tool.parameters.to_string().len() + 24);
    messages + tools.sum::<usize>() / 3
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::conversation::{CallRecord, CallState, ConversationId, Part, Status};
    use crate::provider::scripted::Scripted;
    use crate::provider::{Capabilities, ToolSupport};
    use crate::tool::{Call, CallId, CallResult, SchemaHash, ToolId};

    fn provider(context: usize) -> Scripted {
        Scripted::new().with_capabilities(Capabilities { context, tools: ToolSupport::Native })
    }

    fn say(role: Role, text: &str) -> Message {
        Message::new(ConversationId::fresh(), role, vec![Part::Text { text: text.to_owned() }], Status::Complete)
    }

    fn ask() -> Ask {
        Ask { max_tokens: 100, result_characters: 40_000, ..Ask::default() }
    }

    fn conversation(turns: usize) -> Vec<Message> {
        let turn = |n: usize| [say(Role::User, &format!("question {n} {}", "x".repeat(300))), say(Role::Assistant, &"y".repeat(300))];
        (0..turns).flat_map(turn).collect()
    }

    #[test]
    fn the_oldest_whole_turns_go_and_the_beginning_stays_the_same_for_a_while() {
        let provider = provider(2000);
        assert_eq!(fit(&conversation(3), &ask(), &provider).unwrap().left_out, None);
        let mut firsts = Vec::new();
        for turns in 4..40 {
            let fitted = fit(&conversation(turns), &ask(), &provider).unwrap();
            assert!(fitted.tokens <= 1900);
            let ChatMessage::User(first) = &fitted.request.messages[1] else { panic!("a turn begins with the person") };
            let Some(ChatMessage::Assistant { .. }) = fitted.request.messages.last() else { panic!("the end was dropped") };
            firsts.push(first.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap());
            assert_eq!(fitted.left_out.is_some(), *firsts.last().unwrap() > 0);
        }
        assert!(firsts.is_sorted());
        firsts.dedup();
        assert!(firsts.len() > 3 && firsts.len() < 20, "the beginning changed {} times in 36 turns", firsts.len());
    }

    #[test]
    fn a_last_turn_that_is_too_long_loses_parts_of_results_and_then_fails_with_numbers() {
        let tool = ToolId { server: "s".into(), name: "t".to_owned(), schema: SchemaHash::of(&json!({})) };
        let call = Call { id: CallId::fresh(), tool, alias: "t".to_owned(), arguments: json!({}) };
        let state = CallState::Done { by: String::new(), result: CallResult::text("z".repeat(30_000)), milliseconds: 1 };
        let answer = Message::new(ConversationId::fresh(), Role::Assistant, vec![Part::Call(CallRecord { call, state })], Status::Complete);
        let mut history = conversation(2);
        history.extend([say(Role::User, "go on"), answer]);
        let fitted = fit(&history, &ask(), &provider(2000)).unwrap();
        assert!(fitted.left_out.unwrap().contains("characters of each result") && fitted.tokens <= 1900);
        let error = fit(&[say(Role::User, &"x".repeat(9000))], &ask(), &provider(2000)).unwrap_err();
        assert!(matches!(error, Error::TooLong { needed: 3000.., context: 2000 }), "{error}");
    }
}
