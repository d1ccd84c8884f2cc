//! Listing tools and running them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::offer::Task;
use crate::script::{Cursor, Reply, ToolScript};
use crate::server::{Out, RpcError, Server, Session, TASKS, client_capabilities, is_modern, lock, notify, rpc_error, stamped};

type Answer = Result<Value, RpcError>;

impl Server {
    pub fn list_tools(&self, params: &Value) -> Answer {
        let tools = self.state().tools.clone();
        let size = self.script.page_size.unwrap_or(usize::MAX).max(1);
        let page: usize = params["cursor"].as_str().and_then(|cursor| cursor.rsplit('-').next()?.parse().ok()).unwrap_or(0);
        let pages = tools.len().div_ceil(size.min(tools.len().max(1)));
        let shown = if page < pages { page } else { 0 };
        let listed = tools.into_iter().enumerate().skip(shown.saturating_mul(size)).take(size);
        let listed: Vec<Value> = listed.map(|(index, tool)| described(tool, self.script.bad_schema_at == Some(index))).collect();
        let next = match self.script.cursor {
            Cursor::Loop => Some("page-0".to_owned()),
            Cursor::Endless => Some(format!("page-{}", page + 1)),
            Cursor::Proper | Cursor::Empty if page + 1 < pages => Some(format!("page-{}", page + 1)),
            Cursor::Empty => Some(String::new()),
            Cursor::Proper => None,
        };
        let mut result = json!({ "tools": listed });
        if let Some(next) = next {
            result["nextCursor"] = json!(next);
        }
        Ok(result)
    }

    /// Runs a tool; none where the call was given up.
    pub async fn call(self: &Arc<Self>, session: &Arc<Session>, message: &Value, out: &Out) -> Option<Answer> {
        let params = &message["params"];
        let tool = self.state().tools.iter().find(|tool| params["name"] == tool.name.as_str()).cloned();
        let Some(tool) = tool else {
            return Some(Err(rpc_error(-32602, format!("there is no tool {}", params["name"]))));
        };
        let modern = is_modern(message);
        if modern {
            self.log_to(message, out);
        }
        let as_task = if modern { !client_capabilities(message)["extensions"][TASKS].is_null() } else { !params["task"].is_null() };
        if let (Some(task), true) = (&tool.task, as_task) {
            self.count_call(session);
            return Some(Ok(self.start_task(Task::new(task.clone(), answer(&tool.reply, params, &Value::Null)), modern)));
        }
        if tool.task.as_ref().is_some_and(|task| task.support == "required") {
            return Some(Err(rpc_error(-32601, format!("the tool {} runs only as a task", tool.name))));
        }
        let running = CancellationToken::new();
        let id = message["id"].to_string();
        let _ = lock(&session.running).insert(id.clone(), running.clone());
        let gone = async {
            tokio::select! {
                () = running.cancelled() => {}
                () = out.closed() => {}
            }
            self.log.write(json!({ "cancelled": tool.name }));
            if tool.ignores_cancel {
                std::future::pending::<()>().await;
            }
        };
        let answer = tokio::select! {
            answered = self.work(&tool, session, message, out) => {
                self.count_call(session);
                Some(answered.map(|result| if modern { stamped(result) } else { result }))
            }
            () = gone => None,
        };
        let _ = lock(&session.running).remove(&id);
        answer
    }

    async fn work(&self, tool: &ToolScript, session: &Session, message: &Value, out: &Out) -> Answer {
        if tool.hang {
            return std::future::pending().await;
        }
        let params = &message["params"];
        let token = &params["_meta"]["progressToken"];
        let tell = |done: f64, total: f64| {
            if !token.is_null() {
                let progress = json!({ "progressToken": token, "progress": done, "total": total, "message": format!("step {done}") });
                notify(out, "notifications/progress", progress);
            }
        };
        let most = tool.progress_values.iter().copied().fold(0.0, f64::max);
        for value in &tool.progress_values {
            tell(*value, most);
        }
        let steps = tool.progress.max(1);
        for step in 1..=steps {
            tokio::time::sleep(Duration::from_millis(tool.delay_ms) / steps).await;
            if tool.progress > 0 {
                tell(f64::from(step), f64::from(steps));
            }
        }
        if let Some(code) = tool.exit {
            std::process::exit(code);
        }
        let mut answers = Vec::new();
        if !tool.asks.is_empty() && is_modern(message) {
            let given = &params["inputResponses"];
            if given.is_null() {
                return Ok(input_required(tool));
            }
            answers.extend((0..tool.asks.len()).map(|index| given[format!("ask-{index}")].clone()));
        } else {
            for ask in &tool.asks {
                answers.push(session.ask(ask, out).await);
            }
        }
        answer(&tool.reply, params, &Value::Array(answers))
    }

    fn count_call(&self, session: &Session) {
        let drifted = {
            let mut state = self.state();
            state.calls += 1;
            let due = self.script.drift.as_ref().filter(|drift| drift.after_calls == state.calls);
            if let Some(drift) = due {
                state.tools.clone_from(&drift.tools);
            }
            due.is_some_and(|drift| drift.announce)
        };
        if drifted {
            notify(&session.out, "notifications/tools/list_changed", Value::Null);
        }
    }
}

fn input_required(tool: &ToolScript) -> Value {
    let requests = tool.asks.iter().enumerate().map(|(index, ask)| (format!("ask-{index}"), json!(ask)));
    let requests: serde_json::Map<String, Value> = requests.collect();
    json!({ "resultType": "input_required", "inputRequests": requests, "requestState": format!("state of {}", tool.name) })
}

fn described(tool: ToolScript, bad: bool) -> Value {
    let mut described = json!({ "name": tool.name, "description": tool.description, "inputSchema": tool.input_schema });
    if let Some(title) = tool.title {
        described["title"] = json!(title);
    }
    if let Some(schema) = tool.output_schema {
        described["outputSchema"] = json!(schema);
    }
    if let Some(hints) = tool.annotations {
        described["annotations"] = hints;
    }
    if let Some(task) = tool.task {
        described["execution"] = json!({ "taskSupport": task.support });
    }
    if bad {
        described["inputSchema"] = json!("not a schema");
    }
    described
}

fn answer(reply: &Reply, params: &Value, answers: &Value) -> Answer {
    let text = |text: String| Ok(json!({ "content": [{ "type": "text", "text": text }] }));
    match reply {
        Reply::Text(reply) => text(reply.clone()),
        Reply::Structured(value) => Ok(json!({ "content": [{ "type": "text", "text": value.to_string() }], "structuredContent": value })),
        Reply::Error(reply) => Ok(json!({ "content": [{ "type": "text", "text": reply }], "isError": true })),
        Reply::Content(blocks) => Ok(json!({ "content": blocks })),
        Reply::ProtocolError(message) => Err(rpc_error(-32603, message.clone())),
        Reply::RpcError(error) => Err(error.clone()),
        Reply::Raw(result) => Ok(result.clone()),
        Reply::Bytes(count) => text("x".repeat(*count)),
        Reply::Env(name) => text(std::env::var(name).unwrap_or_else(|_| "(not set)".to_owned())),
        Reply::Environment => text(std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect::<Vec<_>>().join("\n")),
        Reply::Answers => text(answers.to_string()),
        Reply::Echo => text(params["arguments"].to_string()),
    }
}
