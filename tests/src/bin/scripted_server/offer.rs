//! Prompts, resources, completions and tasks.

use serde_json::{Value, json};

use crate::script::TaskScript;
use crate::server::{RpcError, Server, rpc_error};

type Answer = Result<Value, RpcError>;

/// A call that runs as a task.
#[derive(Clone, Debug)]
pub struct Task {
    script: TaskScript,
    looks: u32,
    cancelled: bool,
    answer: Answer,
}

impl Task {
    pub fn new(script: TaskScript, answer: Answer) -> Self {
        Self { script, looks: 0, cancelled: false, answer }
    }

    fn status(&self) -> &'static str {
        match &self.answer {
            _ if self.cancelled => "cancelled",
            _ if self.looks < self.script.polls => "working",
            Ok(_) => "completed",
            Err(_) => "failed",
        }
    }

    fn shown(&self, id: &str, modern: bool) -> Value {
        let (ttl, pause) = if modern { ("ttlMs", "pollIntervalMs") } else { ("ttl", "pollInterval") };
        json!({ "taskId": id, "status": self.status(), "createdAt": "2026-11-30T12:00:00Z", "lastUpdatedAt": "2026-11-30T12:00:00Z",
                ttl: 60_000, pause: self.script.poll_ms })
    }
}

impl Server {
    pub fn start_task(&self, task: Task, modern: bool) -> Value {
        let mut state = self.state();
        let id = format!("task-{}", state.tasks.len());
        let shown = task.shown(&id, modern);
        let mut task = task;
        if modern {
            // Only the stateless era carries the result in `tasks/get`.
            task.script.support = "modern".to_owned();
        }
        let _ = state.tasks.insert(id, task);
        if !modern {
            return json!({ "task": shown });
        }
        let mut shown = shown;
        shown["resultType"] = json!("task");
        shown
    }

    /// The answer to a method of this file; none where it is none.
    pub fn offered(&self, method: &str, params: &Value) -> Option<Answer> {
        let script = &self.script;
        Some(match method {
            "prompts/list" => Ok(json!({ "prompts": script.prompts.iter().map(|prompt| without(prompt, "messages")).collect::<Vec<_>>() })),
            "prompts/get" => self.prompt(params),
            "resources/list" => {
                Ok(json!({ "resources": script.resources.iter().map(|resource| without(resource, "contents")).collect::<Vec<_>>() }))
            }
            "resources/templates/list" => Ok(json!({ "resourceTemplates": script.templates })),
            "resources/read" => self.read(params),
            "completion/complete" => Ok(self.complete(params)),
            "tasks/get" | "tasks/result" | "tasks/cancel" | "tasks/update" => self.task(method, params),
            _ => return None,
        })
    }

    fn prompt(&self, params: &Value) -> Answer {
        let prompt = self.script.prompts.iter().find(|prompt| prompt["name"] == params["name"]);
        let prompt = prompt.ok_or_else(|| rpc_error(-32602, format!("there is no prompt {}", params["name"])))?;
        let mut messages = prompt["messages"].clone();
        for (name, value) in params["arguments"].as_object().into_iter().flatten() {
            fill(&mut messages, &format!("{{{name}}}"), value.as_str().unwrap_or_default());
        }
        Ok(json!({ "messages": messages, "description": prompt["description"].as_str().unwrap_or_default() }))
    }

    fn read(&self, params: &Value) -> Answer {
        let resource = self.script.resources.iter().find(|resource| resource["uri"] == params["uri"]);
        let resource = resource.ok_or_else(|| rpc_error(-32602, format!("there is no resource {}", params["uri"])))?;
        Ok(json!({ "contents": resource["contents"] }))
    }

    fn complete(&self, params: &Value) -> Value {
        let argument = &params["argument"];
        let typed = argument["value"].as_str().unwrap_or_default();
        let known = argument["name"].as_str().and_then(|name| self.script.completions.get(name));
        let values: Vec<&String> = known.into_iter().flatten().filter(|value| value.starts_with(typed)).collect();
        json!({ "completion": { "total": values.len(), "hasMore": false, "values": values } })
    }

    fn task(&self, method: &str, params: &Value) -> Answer {
        let mut state = self.state();
        let id = params["taskId"].as_str().unwrap_or_default();
        let task = state.tasks.get_mut(id).ok_or_else(|| rpc_error(-32602, format!("there is no task {id}")))?;
        let modern = task.script.support == "modern";
        match method {
            "tasks/get" => {
                let mut shown = task.shown(id, modern);
                task.looks += 1;
                if modern {
                    match (shown["status"].as_str(), &task.answer) {
                        (Some("completed"), Ok(result)) => shown["result"] = result.clone(),
                        (Some("failed"), Err(error)) => shown["error"] = error.clone(),
                        _ => {}
                    }
                }
                Ok(shown)
            }
            "tasks/cancel" => {
                task.cancelled = true;
                Ok(if modern { json!({}) } else { task.shown(id, false) })
            }
            "tasks/result" => task.answer.clone(),
            _ => Ok(json!({})),
        }
    }
}

fn without(value: &Value, field: &str) -> Value {
    let mut value = value.clone();
    if let Some(fields) = value.as_object_mut() {
        let _ = fields.remove(field);
    }
    value
}

fn fill(value: &mut Value, gap: &str, with: &str) {
    match value {
        Value::String(text) => *text = text.replace(gap, with),
        Value::Array(items) => items.iter_mut().for_each(|item| fill(item, gap, with)),
        Value::Object(fields) => fields.values_mut().for_each(|field| fill(field, gap, with)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
