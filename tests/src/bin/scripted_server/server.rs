//! The protocol, of both eras: what is asked, what the script makes of it, what is answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::log::Log;
use crate::offer;
use crate::script::{Ask, Era, Rule, Script, ToolScript};

pub const MODERN: &str = "2026-07-28";
pub const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const META: &str = "io.modelcontextprotocol/";
/// From the least to the gravest.
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Takes messages for the client, one JSON text each.
pub type Out = mpsc::UnboundedSender<String>;

/// An error as it is on the wire.
pub type RpcError = Value;

pub fn rpc_error(code: i64, message: impl Into<String>) -> RpcError {
    json!({ "code": code, "message": message.into() })
}

/// Everything that all connections share.
#[derive(Debug)]
pub struct Server {
    pub script: Script,
    pub log: Log,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub struct State {
    pub tools: Vec<ToolScript>,
    pub calls: u64,
    pub tasks: HashMap<String, offer::Task>,
    /// How often each rule's method was seen.
    seen: Vec<u64>,
    any_request: bool,
}

/// One client, as long as it stays.
#[derive(Debug)]
pub struct Session {
    /// For what belongs to no request.
    pub out: Out,
    waiting: Mutex<HashMap<String, oneshot::Sender<Value>>>,
    pub running: Mutex<HashMap<String, CancellationToken>>,
    asked: AtomicU64,
}

impl Session {
    pub fn new(out: Out) -> Arc<Self> {
        Arc::new(Self { out, waiting: Mutex::default(), running: Mutex::default(), asked: AtomicU64::new(0) })
    }

    /// Asks the client and waits for its answer: `result` or `error`, as it is on the wire.
    pub async fn ask(&self, ask: &Ask, out: &Out) -> Value {
        let id = format!("ask-{}", self.asked.fetch_add(1, Ordering::Relaxed));
        let (sender, answer) = oneshot::channel();
        let _ = lock(&self.waiting).insert(id.clone(), sender);
        let mut request = json!({ "jsonrpc": "2.0", "id": id, "method": ask.method });
        if let Some(params) = &ask.params {
            request["params"] = params.clone();
        }
        let _ = out.send(request.to_string());
        answer.await.unwrap_or_default()
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn notify(out: &Out, method: &str, params: Value) {
    let mut message = json!({ "jsonrpc": "2.0", "method": method });
    if !params.is_null() {
        message["params"] = params;
    }
    let _ = out.send(message.to_string());
}

/// Whether a request is of the stateless era.
pub fn is_modern(message: &Value) -> bool {
    message["params"]["_meta"][format!("{META}protocolVersion")] == MODERN
}

/// What the client says it can do, in a request of the stateless era.
pub fn client_capabilities(message: &Value) -> &Value {
    &message["params"]["_meta"][format!("{META}clientCapabilities")]
}

impl Server {
    pub fn new(script: Script, log: Log) -> Self {
        let mut tools = script.tools.clone();
        tools.extend((0..script.many).map(|index| {
            let name = format!("tool_{index:03}");
            ToolScript::text(&name, &name)
        }));
        let state = State { tools, seen: vec![0; script.rules.len()], ..State::default() };
        Self { script, log, state: Mutex::new(state) }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The rule for a request, if one is due. `header` gives the value of an HTTP header.
    pub fn rule(&self, method: &str, header: impl Fn(&str) -> Option<String>) -> Option<Rule> {
        let mut state = self.state();
        for (index, rule) in self.script.rules.iter().enumerate() {
            let excused = rule.unless_header.as_ref().is_some_and(|(name, value)| header(name).as_ref() == Some(value));
            let over = rule.until_ms.is_some_and(|until| self.log.age().as_millis() > u128::from(until));
            if excused || over || (rule.method != method && rule.method != "*") {
                continue;
            }
            state.seen[index] += 1;
            let turn = state.seen[index];
            if turn > rule.skip && rule.times.is_none_or(|times| turn <= rule.skip + times) {
                return Some(rule.clone());
            }
        }
        None
    }

    /// Takes a message; what is to be said about it goes to `out`, and `out` is dropped when nothing more will be.
    pub async fn take(self: Arc<Self>, session: Arc<Session>, message: Value, rule: Option<Rule>, out: Out) {
        let id = message["id"].clone();
        let Some(method) = message["method"].as_str() else {
            let waiting = id.as_str().and_then(|id| lock(&session.waiting).remove(id));
            if let Some(waiting) = waiting {
                let _ = waiting.send(if message["error"].is_null() { message["result"].clone() } else { message["error"].clone() });
            }
            return;
        };
        if id.is_null() {
            self.notified(&session, method, &message);
            return;
        }
        if !std::mem::replace(&mut self.state().any_request, true) && self.script.exits_on_unknown_first && method != "initialize" {
            eprintln!("unknown method {method}");
            std::process::exit(1);
        }
        let answer = match self.ruled(rule).await {
            Some(Some(answer)) => Some(answer),
            Some(None) => return std::future::pending().await,
            None => self.answer(&session, method, &message, &out).await,
        };
        if let Some(answer) = answer {
            let answer = match answer {
                Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
                Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
            };
            let _ = out.send(answer.to_string());
        }
        if method == "tools/call" && self.script.exit_after_calls == Some(self.state().calls) {
            // Time for the answer to leave.
            tokio::time::sleep(Duration::from_millis(100)).await;
            std::process::exit(0);
        }
    }

    /// What a rule answers: nothing for ever, an answer, or (none) the usual one.
    #[allow(clippy::option_option, reason = "the three outcomes are just these")]
    async fn ruled(&self, rule: Option<Rule>) -> Option<Option<Result<Value, RpcError>>> {
        let rule = rule?;
        tokio::time::sleep(Duration::from_millis(rule.delay_ms)).await;
        if let Some(code) = rule.exit {
            std::process::exit(code);
        }
        if rule.silent {
            return Some(None);
        }
        rule.error.map(Err).or(rule.result.map(Ok)).map(Some)
    }

    fn notified(self: &Arc<Self>, session: &Arc<Session>, method: &str, message: &Value) {
        match method {
            "notifications/initialized" => {
                let (server, session) = (self.clone(), session.clone());
                let _later = tokio::spawn(async move {
                    let out = session.out.clone();
                    server.after_handshake(&out, &json!({}), &Value::Null).await;
                    for ask in &server.script.asks {
                        let _ = session.ask(ask, &out).await;
                    }
                });
            }
            "notifications/cancelled" => {
                if let Some(running) = lock(&session.running).get(&message["params"]["requestId"].to_string()) {
                    running.cancel();
                }
            }
            _ => {}
        }
    }

    /// What it says by itself. `meta` is what each message carries; `filter` is what the client asked for, where it had to.
    async fn after_handshake(&self, out: &Out, meta: &Value, filter: &Value) {
        let with_meta = |mut params: Value| {
            if meta.as_object().is_some_and(|meta| !meta.is_empty()) {
                params["_meta"] = meta.clone();
            }
            params
        };
        // In the stateless era log messages belong to requests that ask for them.
        if filter.is_null() {
            for log in &self.script.logs {
                notify(out, "notifications/message", log.clone());
            }
        }
        for uri in &self.script.resource_updates {
            notify(out, "notifications/resources/updated", with_meta(json!({ "uri": uri })));
        }
        let wants_tools = filter.is_null() || filter["toolsListChanged"] == true;
        let changed = || {
            if wants_tools {
                notify(out, "notifications/tools/list_changed", with_meta(json!({})));
            }
        };
        for _ in 0..self.script.list_changed_burst {
            changed();
        }
        if let Some(later) = &self.script.later {
            tokio::time::sleep(Duration::from_millis(later.after_ms)).await;
            self.state().tools.clone_from(&later.tools);
            changed();
        }
    }

    /// The log messages that a request of the stateless era asked for, by the least level.
    pub fn log_to(&self, message: &Value, out: &Out) {
        let rank = |level: &Value| LEVELS.iter().position(|known| level == known);
        let Some(least) = rank(&message["params"]["_meta"][format!("{META}logLevel")]) else { return };
        for log in self.script.logs.iter().filter(|log| rank(&log["level"]).is_some_and(|level| level >= least)) {
            notify(out, "notifications/message", log.clone());
        }
    }

    /// The usual answer; none where there will never be one.
    async fn answer(self: &Arc<Self>, session: &Arc<Session>, method: &str, message: &Value, out: &Out) -> Option<Result<Value, RpcError>> {
        let params = &message["params"];
        let answer = match method {
            "initialize" => self.initialize(params),
            "server/discover" => self.discover(),
            "ping" => Ok(json!({})),
            "subscriptions/listen" => {
                self.listen(session, message, out).await;
                return None;
            }
            "tools/list" => self.list_tools(params),
            "tools/call" => return self.call(session, message, out).await,
            "logging/setLevel" | "resources/unsubscribe" => Ok(json!({})),
            "resources/subscribe" => {
                if let Some(uri) = self.script.resource_updates.iter().find(|uri| params["uri"] == uri.as_str()) {
                    notify(&session.out, "notifications/resources/updated", json!({ "uri": uri }));
                }
                Ok(json!({}))
            }
            _ => self.offered(method, params).unwrap_or_else(|| Err(rpc_error(-32601, format!("there is no method {method}")))),
        };
        Some(answer.map(|result| if is_modern(message) { stamped(result) } else { result }))
    }

    fn initialize(&self, params: &Value) -> Result<Value, RpcError> {
        let asked = params["protocolVersion"].as_str().unwrap_or_default();
        if self.script.era == Era::Modern {
            return Err(json!({ "code": -32022, "message": "unsupported protocol version",
                               "data": { "supported": [MODERN], "requested": asked } }));
        }
        let usual = LEGACY.iter().find(|known| **known == asked).unwrap_or(&LEGACY[0]);
        let version = self.script.protocol.as_deref().unwrap_or(usual);
        let mut result = json!({ "protocolVersion": version, "capabilities": self.capabilities(false), "serverInfo": self.info() });
        self.instruct(&mut result);
        Ok(result)
    }

    fn discover(&self) -> Result<Value, RpcError> {
        if self.script.era == Era::Legacy {
            return Err(rpc_error(-32601, "there is no method server/discover"));
        }
        let mut versions = vec![MODERN];
        if self.script.era == Era::Both {
            versions.extend(LEGACY);
        }
        let mut result = json!({
            "supportedVersions": versions, "capabilities": self.capabilities(true), "resultType": "complete",
            "ttlMs": 0, "cacheScope": "private", "_meta": { format!("{META}serverInfo"): self.info() }
        });
        self.instruct(&mut result);
        Ok(result)
    }

    fn info(&self) -> Value {
        json!({ "name": self.script.name.as_deref().unwrap_or("scripted"), "version": "1" })
    }

    fn instruct(&self, result: &mut Value) {
        if let Some(instructions) = &self.script.instructions {
            result["instructions"] = json!(instructions);
        }
    }

    fn capabilities(&self, modern: bool) -> Value {
        let mut all = Map::new();
        let mut add = |present: bool, name: &str, what: Value| {
            if present {
                let _ = all.insert(name.to_owned(), what);
            }
        };
        let script = &self.script;
        let tasks = self.state().tools.iter().any(|tool| tool.task.is_some());
        add(true, "tools", json!({ "listChanged": true }));
        add(!script.prompts.is_empty(), "prompts", json!({ "listChanged": true }));
        add(!script.resources.is_empty() || !script.templates.is_empty(), "resources", json!({ "subscribe": true, "listChanged": true }));
        add(!script.completions.is_empty(), "completions", json!({}));
        add(!script.logs.is_empty(), "logging", json!({}));
        add(tasks && modern, "extensions", json!({ TASKS: {} }));
        add(tasks && !modern, "tasks", json!({ "cancel": {}, "list": {}, "requests": { "tools": { "call": {} } } }));
        Value::Object(all)
    }

    async fn listen(&self, session: &Session, message: &Value, out: &Out) {
        let running = CancellationToken::new();
        let _ = lock(&session.running).insert(message["id"].to_string(), running.clone());
        let filter = &message["params"]["notifications"];
        let meta = json!({ format!("{META}subscriptionId"): message["id"] });
        notify(out, "notifications/subscriptions/acknowledged", json!({ "_meta": meta, "notifications": filter }));
        tokio::select! {
            () = async {
                self.after_handshake(out, &meta, filter).await;
                std::future::pending::<()>().await;
            } => {}
            () = running.cancelled() => {}
            () = out.closed() => {}
        }
        let _ = lock(&session.running).remove(&message["id"].to_string());
    }
}

/// Every result of the stateless era says what it is.
pub fn stamped(mut result: Value) -> Value {
    if let Some(fields) = result.as_object_mut() {
        let _ = fields.entry("resultType").or_insert_with(|| json!("complete"));
    }
    result
}
