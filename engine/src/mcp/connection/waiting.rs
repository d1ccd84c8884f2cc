//! Which request an answer belongs to, where the server does not say it right. Some answer everything with the id 0, with
//! null, or with the id as a text; the request would then wait for its whole timeout.

use std::collections::VecDeque;

use rmcp::RoleClient;
use rmcp::model::{ClientNotification, ErrorCode, ErrorData, JsonRpcMessage, RequestId, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};

use super::super::transport::mend::{NOBODY, UNREADABLE};

/// Requests that are over without an answer, whose late answers belong to nobody (fixed).
const LEFT: usize = 256;

type Heard = RxJsonRpcMessage<RoleClient>;

/// The requests that wait for an answer.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    open: VecDeque<RequestId>,
    /// Cancelled, or answered.
    over: VecDeque<RequestId>,
    /// Whether the last thing that passed was a notification of ours: some servers answer it, with an error and no id.
    notified: bool,
    /// Whether the greeting came.
    greeted: bool,
}

impl Waiting {
    /// Takes note of what goes out.
    pub(super) fn sent(&mut self, message: &TxJsonRpcMessage<RoleClient>) {
        match message {
            JsonRpcMessage::Request(request) => self.open.push_back(request.id.clone()),
            JsonRpcMessage::Notification(sent) => {
                self.notified = true;
                if let ClientNotification::CancelledNotification(cancelled) = &sent.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    let _ = self.ended(id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
    }

    /// Takes a request from those that wait, under the id that it has with us.
    fn ended(&mut self, id: &RequestId) -> Option<RequestId> {
        let found = self.open.iter().position(|open| is_same(open, id))?;
        let id = self.open.remove(found)?;
        if self.over.len() == LEFT {
            let _ = self.over.pop_front();
        }
        self.over.push_back(id.clone());
        Some(id)
    }

    /// What is heard, with its answers under the ids of their requests: one message, or none, or an error for each request
    /// that may be meant.
    pub(super) fn heard(&mut self, message: Heard, note: &mut dyn FnMut(String)) -> Vec<Heard> {
        let notified = std::mem::take(&mut self.notified);
        match message {
            JsonRpcMessage::Response(mut answer) => match self.ended(&answer.id) {
                Some(id) => {
                    self.greeted |= is_greeting(&answer.result);
                    answer.id = id;
                    vec![JsonRpcMessage::Response(answer)]
                }
                None if self.is_late(&answer.id) || (is_greeting(&answer.result) && self.greeted) => Vec::new(),
                None => {
                    let id = shown(Some(&answer.id));
                    self.greeted |= is_greeting(&answer.result);
                    match self.only(&id, note) {
                        Ok(Some(request)) => {
                            answer.id = request;
                            vec![JsonRpcMessage::Response(answer)]
                        }
                        Ok(None) => Vec::new(),
                        Err(errors) => errors,
                    }
                }
            },
            JsonRpcMessage::Error(mut error) => {
                match error.id.as_ref().map(|id| (self.ended(id), id.clone())) {
                    Some((Some(id), _)) => {
                        error.id = Some(id);
                        return vec![JsonRpcMessage::Error(error)];
                    }
                    Some((None, id)) if self.is_late(&id) => return Vec::new(),
                    // It did not like our notification.
                    None if notified && matches!(error.error.code, ErrorCode::METHOD_NOT_FOUND | ErrorCode::INVALID_REQUEST) => {
                        return Vec::new();
                    }
                    _ => {}
                }
                let id = shown(error.id.as_ref());
                match self.only(&id, note) {
                    Ok(Some(request)) => {
                        error.id = Some(request);
                        vec![JsonRpcMessage::Error(error)]
                    }
                    Ok(None) => Vec::new(),
                    Err(errors) => errors,
                }
            }
            other @ (JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_)) => vec![other],
        }
    }

    /// Whether an answer to this request came before, or is not waited for any more. The id 0 is our first request's, and
    /// what servers write that do not copy ids.
    fn is_late(&self, id: &RequestId) -> bool {
        *id != RequestId::Number(0) && self.over.iter().any(|over| is_same(over, id))
    }

    /// The only request that waits. Where several do, none of them can be told, and all end: an answer must not go to
    /// another's question.
    fn only(&mut self, id: &str, note: &mut dyn FnMut(String)) -> Result<Option<RequestId>, Vec<Heard>> {
        match self.open.len() {
            0 => Ok(None),
            1 => {
                note("its answers do not name the request that they belong to; each goes to the only one that waits".to_owned());
                Ok(self.open.front().cloned().and_then(|open| self.ended(&open)))
            }
            count => {
                let what = format!(
                    "the server answered with the id {id}, which none of the {count} requests has that wait; it cannot be told which one is meant"
                );
                note(what.clone());
                let open: Vec<RequestId> = self.open.iter().cloned().collect();
                let ended = open.iter().filter_map(|open| self.ended(open));
                Err(ended.map(|id| JsonRpcMessage::error(ErrorData::new(UNREADABLE, what.clone(), None), Some(id))).collect())
            }
        }
    }
}

/// An answer to `initialize` belongs to no other request.
fn is_greeting(result: &ServerResult) -> bool {
    matches!(result, ServerResult::InitializeResult(_) | ServerResult::DiscoverResult(_))
}

/// Whether both name the same request; a number may come back as a text.
fn is_same(ours: &RequestId, theirs: &RequestId) -> bool {
    ours == theirs || matches!((ours, theirs), (RequestId::Number(number), RequestId::String(text)) if text.parse() == Ok(*number))
}

fn shown(id: Option<&RequestId>) -> String {
    match id {
        Some(RequestId::String(text)) if **text != *NOBODY => format!("\"{:.40}\"", text.escape_debug()),
        Some(RequestId::Number(number)) => number.to_string(),
        Some(RequestId::String(_)) | None => "null".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CustomResult, JsonRpcRequest};
    use serde_json::{Value, json};

    use super::*;

    fn waiting(ids: &[i64]) -> Waiting {
        let mut waiting = Waiting::default();
        for id in ids {
            let request: JsonRpcRequest<_> =
                serde_json::from_value(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "t"}})).unwrap();
            waiting.sent(&JsonRpcMessage::Request(request));
        }
        waiting
    }

    fn heard(waiting: &mut Waiting, answer: Value) -> Vec<(Value, bool)> {
        let read = super::super::super::transport::mend::read(answer.to_string().as_bytes());
        let heard = read.messages.into_iter().flat_map(|message| waiting.heard(message, &mut |_| {}));
        heard
            .map(|message| {
                let message = serde_json::to_value(&message).unwrap();
                (message["id"].clone(), message.get("error").is_some())
            })
            .collect()
    }

    fn answer(id: &Value) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "x"}]}})
    }

    #[test]
    fn an_answer_goes_to_its_request_however_the_id_is_written() {
        for id in [json!(3), json!("3"), json!(0), json!(null), json!("x"), json!(99), json!(3.5)] {
            let mut waiting = waiting(&[0]);
            assert_eq!(heard(&mut waiting, answer(&json!(0))), [(json!(0), false)]);
            let mut open = super::tests::waiting(&[3]);
            waiting.open.append(&mut open.open);
            assert_eq!(heard(&mut waiting, answer(&id)), [(json!(3), false)], "{id}");
            assert!(waiting.open.is_empty());
        }
    }

    #[test]
    fn several_that_wait_all_end_and_nobody_gets_anothers_answer() {
        let mut waiting = waiting(&[4, 5]);
        assert_eq!(heard(&mut waiting, answer(&json!(null))), [(json!(4), true), (json!(5), true)]);
        assert!(heard(&mut waiting, answer(&json!(4))).is_empty(), "what comes late is nobody's");
    }

    #[test]
    fn what_is_late_or_twice_is_dropped() {
        let mut waiting = waiting(&[0, 1, 2]);
        let greeting = json!({"jsonrpc": "2.0", "id": "0", "result": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "n", "version": "1"}}});
        assert_eq!(heard(&mut waiting, greeting), [(json!(0), false)]);
        assert_eq!(heard(&mut waiting, answer(&json!(1))), [(json!(1), false)]);
        assert!(heard(&mut waiting, answer(&json!(1))).is_empty(), "answered before");
        let greeting = json!({"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "n", "version": "1"}}});
        assert!(heard(&mut waiting, greeting).is_empty(), "a greeting answers no call");
        let cancelled: TxJsonRpcMessage<RoleClient> =
            serde_json::from_value(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}})).unwrap();
        waiting.sent(&cancelled);
        assert!(heard(&mut waiting, answer(&json!(2))).is_empty());
        let unused = ServerResult::CustomResult(CustomResult::new(json!({})));
        assert!(!is_greeting(&unused));
    }

    #[test]
    fn an_error_about_a_notification_costs_no_request() {
        let mut waiting = waiting(&[1]);
        let told: TxJsonRpcMessage<RoleClient> =
            serde_json::from_value(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).unwrap();
        waiting.sent(&told);
        let error = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32601, "message": "unknown"}});
        assert!(heard(&mut waiting, error.clone()).is_empty());
        assert_eq!(heard(&mut waiting, error), [(json!(1), true)]);
    }
}
