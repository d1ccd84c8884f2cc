//! Servers through the manager and the gate alone: no model, no window, a data folder of its own.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use handrail_engine::approval::{self, Decision, Gate, GatedTool, Permit};
use handrail_engine::conversation::ConversationId;
use handrail_engine::mcp::consent::Policy;
use handrail_engine::mcp::{Error, Manager, Options, ServerView, State};
use handrail_engine::store::Store;
use handrail_engine::tool::{self, Call, CallId, CallResult, Control};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{PATIENCE, program};

/// A manager over servers, and a gate that says yes.
pub struct Bench {
    folder: TempDir,
    pub manager: Manager,
    gate: Gate,
    conversation: ConversationId,
}

impl Bench {
    /// Needs a tokio runtime.
    #[must_use]
    pub fn new() -> Self {
        Self::with_settings(&json!({}))
    }

    /// With these `mcpSettings`. Needs a tokio runtime.
    #[must_use]
    pub fn with_settings(settings: &Value) -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("mcp_config.json"), json!({ "mcpSettings": settings }).to_string()).unwrap();
        let store = Store::in_memory().unwrap();
        let options = Options { consent: Policy::Trust, ..Options::default() };
        let manager = Manager::with(folder.path().join("mcp_config.json"), store.clone(), options);
        let conversation = store.new_conversation().unwrap().id;
        Self { folder, manager, gate: Gate::new(store), conversation }
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a script; gives its entry as a stdio server, and its log.
    #[must_use]
    pub fn script(&self, name: &str, script: &Value) -> (Value, Log) {
        let (path, log) = self.write(name, script);
        (json!({ "command": program("handrail-scripted-server"), "args": [path, "--stdio"] }), log)
    }

    fn write(&self, name: &str, script: &Value) -> (PathBuf, Log) {
        let log = self.folder().join(format!("{name}.log"));
        let mut script = script.clone();
        script["log"] = json!(log);
        let path = self.folder().join(format!("{name}.json"));
        std::fs::write(&path, script.to_string()).unwrap();
        (path, Log(log))
    }

    /// Starts a scripted server that listens, behind `face` ("--http" or "--sse").
    #[must_use]
    pub fn listening(&self, name: &str, face: &str, script: &Value) -> Listening {
        let (path, log) = self.write(name, script);
        let mut child = Command::new(program("handrail-scripted-server"));
        let mut child = child.arg(path).args([face, "0"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut words = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = words.by_ref().find_map(|line| Some(line.ok()?.strip_prefix("listening on ")?.to_owned())).unwrap();
        // Read on, so that the server never waits for us.
        let _reader = std::thread::spawn(move || words.for_each(drop));
        Listening { child, url, log }
    }

    /// Adds a server and says what became of its start.
    pub async fn try_add(&self, name: &str, entry: &Value) -> Result<ServerView, Error> {
        let _ = self.manager.paste(&json!({ "mcpServers": { name: entry } }).to_string()).unwrap();
        self.manager.ready(&name.into(), PATIENCE).await
    }

    /// Adds a server and waits until it is connected.
    pub async fn add(&self, name: &str, entry: &Value) -> ServerView {
        self.try_add(name, entry).await.unwrap_or_else(|error| panic!("{error}\n{:#?}", self.view(name)))
    }

    /// Adds a scripted server over stdio and waits until it is connected.
    pub async fn scripted(&self, name: &str, script: &Value) -> Log {
        let (entry, log) = self.script(name, script);
        let _ = self.add(name, &entry).await;
        log
    }

    #[must_use]
    pub fn view(&self, server: &str) -> ServerView {
        self.manager.servers().into_iter().find(|view| view.id.as_str() == server).unwrap()
    }

    #[must_use]
    pub fn state(&self, server: &str) -> State {
        self.view(server).state
    }

    /// The names of a server's tools, as a model would be shown them.
    #[must_use]
    pub fn names(&self, server: &str) -> Vec<String> {
        let tools = self.manager.tools().into_iter().map(|tool| tool.definition().id.clone());
        tools.filter(|id| id.server.as_str() == server).map(|id| id.name).collect()
    }

    #[must_use]
    pub fn tool(&self, server: &str, name: &str) -> Arc<GatedTool> {
        let mut tools = self.manager.tools().into_iter();
        let found = tools.find(|tool| tool.definition().id.server.as_str() == server && tool.definition().id.name == name);
        found.unwrap_or_else(|| panic!("no tool {name} at {server}: {:#?}", self.view(server)))
    }

    /// Brings a call before the gate, and answers where it asks. Gives the permit, and why it was asked.
    pub async fn permit(&self, tool: &Arc<GatedTool>, arguments: Value, decision: Decision) -> (Permit, Option<String>) {
        let definition = tool.definition().clone();
        let call = Call { id: CallId::fresh(), tool: definition.id.clone(), alias: definition.id.name.clone(), arguments };
        let (mut events, cancel) = (self.gate.subscribe(), CancellationToken::new());
        let admitting = self.gate.admit(&call, &definition, self.conversation, &cancel);
        tokio::pin!(admitting);
        let mut why = None;
        loop {
            tokio::select! {
                permit = &mut admitting => return (permit.unwrap(), why),
                event = events.recv() => if let Ok(approval::Event::Asked(request)) = event && request.call.id == call.id {
                    why = Some(request.why);
                    self.gate.decide(&request.call.id, decision).unwrap();
                },
            }
        }
    }

    pub async fn call(&self, server: &str, name: &str, arguments: Value) -> Result<CallResult, tool::Error> {
        self.call_with(server, name, arguments, control()).await
    }

    pub async fn call_with(&self, server: &str, name: &str, arguments: Value, control: Control) -> Result<CallResult, tool::Error> {
        let tool = self.tool(server, name);
        let (permit, _) = self.permit(&tool, arguments, Decision::AllowOnce).await;
        tool.call(permit, control).await
    }

    /// A call whose answer is a text.
    pub async fn text(&self, server: &str, name: &str) -> String {
        self.call(server, name, json!({})).await.unwrap_or_else(|error| panic!("{error}\n{:#?}", self.view(server))).to_text()
    }

    /// Ends everything as the app does, and checks that no process of the groups that were seen is left.
    pub async fn close(self) {
        let groups: Vec<u32> = self.manager.servers().iter().filter_map(|view| view.pid).collect();
        self.manager.shutdown(Duration::from_secs(2)).await;
        for group in groups {
            nothing_left(group).await;
        }
    }
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

/// A plain control: nobody stops the call or watches it.
#[must_use]
pub fn control() -> Control {
    Control { cancel: CancellationToken::new(), timeout: Duration::from_secs(60), progress: None }
}

/// A control with a short timeout.
#[must_use]
pub fn within(timeout: Duration) -> Control {
    Control { timeout, ..control() }
}

/// A control whose progress can be read.
#[must_use]
pub fn watched() -> (Control, mpsc::UnboundedReceiver<tool::Progress>) {
    let (sender, progress) = mpsc::unbounded_channel();
    (Control { progress: Some(sender), ..control() }, progress)
}

/// A scripted server of our own that listens. It ends with this.
pub struct Listening {
    child: Child,
    pub url: String,
    pub log: Log,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a scripted server wrote down.
#[derive(Clone, Debug)]
pub struct Log(pub PathBuf);

impl Log {
    /// Every line.
    #[must_use]
    pub fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The values of this field, in order.
    #[must_use]
    pub fn all(&self, field: &str) -> Vec<Value> {
        self.lines().into_iter().map(|mut line| line[field].take()).filter(|value| !value.is_null()).collect()
    }

    /// The messages of this method that it received.
    #[must_use]
    pub fn received(&self, method: &str) -> Vec<Value> {
        crate::received(&self.0, method)
    }

    /// How often it was started.
    #[must_use]
    pub fn starts(&self) -> usize {
        self.all("started").len()
    }
}

/// Waits until a condition holds.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a process group is empty; a group's processes that are only waited for do not count.
pub async fn nothing_left(group: u32) {
    eventually(&format!("nothing of group {group} is left: {:?}", members(group)), || members(group).is_empty()).await;
}

/// The processes of a group.
#[must_use]
pub fn members(group: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        if fields[2] == group.to_string() && fields[0] != "Z" {
            found.extend(entry.file_name().to_string_lossy().parse::<u32>());
        }
    }
    found
}
