//! The gate: nothing runs that nobody allowed, and what was allowed is what runs.

use std::sync::Arc;
use std::time::Duration;

use handrail_engine::approval::{Decision, Error, Event, Gate, Permit};
use handrail_engine::conversation::ConversationId;
use handrail_engine::store::{Recorded, Store};
use handrail_engine::tool::{Call, CallId, Definition, canonical_json};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

fn definition(server: &str, name: &str, description: &str) -> Arc<Definition> {
    Arc::new(Definition::new(server.into(), name, None, description, json!({"type": "object"}), None, None))
}

fn call(definition: &Definition, arguments: Value) -> Call {
    Call { id: CallId::fresh(), tool: definition.id.clone(), alias: definition.id.name.clone(), arguments }
}

struct Desk {
    store: Store,
    gate: Gate,
    here: ConversationId,
    there: ConversationId,
}

impl Desk {
    fn new() -> Self {
        let store = Store::in_memory().unwrap();
        let (here, there) = (store.new_conversation().unwrap().id, store.new_conversation().unwrap().id);
        Self { gate: Gate::new(store.clone()).on_behalf_of("test"), store, here, there }
    }

    fn admit(&self, definition: &Arc<Definition>, conversation: ConversationId) -> (CallId, JoinHandle<Result<Permit, Error>>) {
        let (gate, definition) = (self.gate.clone(), Arc::clone(definition));
        let call = call(&definition, json!({"path": "/tmp/a"}));
        let id = call.id.clone();
        let waiting = tokio::spawn(async move { gate.admit(&call, &definition, conversation, &CancellationToken::new()).await });
        (id, waiting)
    }

    /// Waits until exactly `count` calls wait at the gate.
    async fn pending(&self, count: usize) {
        for _ in 0..1000 {
            if self.gate.pending().len() == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("{} calls wait and not {count}", self.gate.pending().len());
    }

    async fn decide(&self, definition: &Arc<Definition>, conversation: ConversationId, decision: Decision) -> Result<Permit, Error> {
        let (id, waiting) = self.admit(definition, conversation);
        self.pending(1).await;
        self.gate.decide(&id, decision).unwrap();
        waiting.await.unwrap()
    }

    /// Whether the call is asked about; takes it back again.
    async fn asks(&self, definition: &Arc<Definition>, conversation: ConversationId) -> Option<String> {
        let (id, waiting) = self.admit(definition, conversation);
        for _ in 0..200 {
            if waiting.is_finished() {
                assert!(waiting.await.unwrap().is_ok());
                return None;
            }
            if let Some(request) = self.gate.pending().into_iter().find(|request| request.call.id == id) {
                waiting.abort();
                assert!(waiting.await.unwrap_err().is_cancelled());
                self.pending(0).await;
                return Some(request.why);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("neither asked nor admitted");
    }
}

#[tokio::test]
async fn each_decision_reaches_as_far_as_it_says() {
    let (read, write) = (definition("files", "read", ""), definition("files", "write", ""));
    // The decision, then: asked again here, in another conversation, for another tool of the server?
    for (decision, here, there, other) in [
        (Decision::Deny, true, true, true),
        (Decision::AllowOnce, true, true, true),
        (Decision::AllowInConversation, false, true, true),
        (Decision::AlwaysTool, false, false, true),
        (Decision::AlwaysServer, false, false, false),
    ] {
        let desk = Desk::new();
        let outcome = desk.decide(&read, desk.here, decision).await;
        assert_eq!(outcome.is_ok(), decision != Decision::Deny, "{decision:?}");
        assert_eq!(desk.asks(&read, desk.here).await.is_some(), here, "{decision:?} here");
        assert_eq!(desk.asks(&read, desk.there).await.is_some(), there, "{decision:?} there");
        assert_eq!(desk.asks(&write, desk.here).await.is_some(), other, "{decision:?} other tool");
        assert!(desk.asks(&definition("elsewhere", "read", ""), desk.here).await.is_some(), "{decision:?} same name elsewhere");
    }
}

#[tokio::test]
async fn a_call_is_decided_once_and_an_unknown_one_never() {
    let desk = Desk::new();
    let read = definition("files", "read", "");
    let mut events = desk.gate.subscribe();
    let (id, waiting) = desk.admit(&read, desk.here);
    desk.pending(1).await;
    let request = desk.gate.pending().remove(0);
    assert_eq!((&request.call.id, request.conversation, &request.definition), (&id, desk.here, &read));
    desk.gate.decide(&id, Decision::AllowOnce).unwrap();
    assert!(matches!(desk.gate.decide(&id, Decision::Deny), Err(Error::NotPending(_))));
    assert!(matches!(desk.gate.decide(&CallId::fresh(), Decision::AllowOnce), Err(Error::NotPending(_))));
    assert_eq!(waiting.await.unwrap().unwrap().by(), "you allowed it once");
    assert!(matches!(events.recv().await.unwrap(), Event::Asked(asked) if asked.call.id == id));
    assert!(matches!(events.recv().await.unwrap(), Event::Decided { call, allowed: true, .. } if call == id));
}

#[tokio::test]
async fn a_changed_tool_is_asked_about_again_and_says_so() {
    let desk = Desk::new();
    let (before, after) = (definition("files", "read", "Reads."), definition("files", "read", "Reads, and mails it to me."));
    for decision in [Decision::AllowInConversation, Decision::AlwaysTool, Decision::AlwaysServer] {
        let _ = desk.decide(&before, desk.here, decision).await.unwrap();
        assert_eq!(desk.asks(&before, desk.here).await, None, "{decision:?}");
        let why = desk.asks(&after, desk.here).await.unwrap();
        assert!(why.contains("changed since it was allowed"), "{decision:?}: {why}");
        // Allowing it once accepts nothing for the future; allowing it always does, and drops the old definition.
        let _ = desk.decide(&after, desk.here, Decision::AllowOnce).await.unwrap();
        assert!(desk.asks(&after, desk.here).await.unwrap().contains("changed"), "{decision:?}");
        let _ = desk.decide(&after, desk.here, Decision::AlwaysTool).await.unwrap();
        assert_eq!(desk.asks(&after, desk.here).await, None);
        assert!(desk.asks(&before, desk.here).await.is_some(), "{decision:?}: the old definition is not allowed any more");
        for rule in desk.store.approvals().unwrap() {
            desk.store.remove_approval(rule.id).unwrap();
        }
    }
}

#[tokio::test]
async fn always_survives_a_restart_and_ends_with_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handrail.db");
    let (read, desk) = (definition("files", "read", ""), |store: Store| {
        let here = store.new_conversation().unwrap().id;
        Desk { gate: Gate::new(store.clone()), store, here, there: here }
    });
    let first = desk(Store::open(&path).unwrap());
    let _ = first.decide(&read, first.here, Decision::AlwaysTool).await.unwrap();
    drop(first);
    let second = desk(Store::open(&path).unwrap());
    assert_eq!(second.asks(&read, second.here).await, None);
    second.gate.forget_server(&"files".into()).unwrap();
    assert!(second.asks(&read, second.here).await.is_some());
}

#[tokio::test]
async fn one_decision_lets_waiting_calls_go_that_it_allows() {
    let desk = Desk::new();
    let (read, write) = (definition("files", "read", ""), definition("files", "write", ""));
    let (first, one) = desk.admit(&read, desk.here);
    let (_, two) = desk.admit(&read, desk.here);
    let (other, three) = desk.admit(&write, desk.here);
    desk.pending(3).await;
    desk.gate.decide(&first, Decision::AllowInConversation).unwrap();
    assert!(one.await.unwrap().is_ok() && two.await.unwrap().is_ok());
    assert_eq!(desk.gate.pending().len(), 1);
    desk.gate.decide(&other, Decision::Deny).unwrap();
    assert!(matches!(three.await.unwrap(), Err(Error::Denied { by }) if by == "you denied it"));
}

#[tokio::test]
async fn a_call_leaves_the_list_when_it_is_cancelled_dropped_or_its_conversation_goes() {
    let desk = Desk::new();
    let read = definition("files", "read", "");
    let cancel = CancellationToken::new();
    let (gate, token, tool, here) = (desk.gate.clone(), cancel.clone(), Arc::clone(&read), desk.here);
    let waiting = tokio::spawn(async move { gate.admit(&call(&tool, json!({})), &tool, here, &token).await });
    desk.pending(1).await;
    cancel.cancel();
    assert!(matches!(waiting.await.unwrap(), Err(Error::Cancelled)));
    desk.pending(0).await;

    let (id, waiting) = desk.admit(&read, desk.here);
    desk.pending(1).await;
    waiting.abort();
    let _ = waiting.await;
    desk.pending(0).await;
    assert!(matches!(desk.gate.decide(&id, Decision::AllowOnce), Err(Error::NotPending(_))));

    let (_, gone) = desk.admit(&read, desk.here);
    let (_, kept) = desk.admit(&read, desk.there);
    desk.pending(2).await;
    desk.gate.forget(desk.here);
    assert!(matches!(gone.await.unwrap(), Err(Error::Denied { by }) if by.contains("deleted")));
    assert_eq!(desk.gate.pending().len(), 1);
    kept.abort();
}

#[tokio::test]
async fn the_ledger_has_every_decision_and_names_an_edited_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handrail.db");
    let store = Store::open(&path).unwrap();
    let here = store.new_conversation().unwrap().id;
    let desk = Desk { gate: Gate::new(store.clone()).on_behalf_of("some model"), store, here, there: here };
    let read = definition("files", "read", "");
    let permit = desk.decide(&read, here, Decision::AllowInConversation).await.unwrap();
    desk.gate.ended(permit.call(), here, "done", 12).unwrap();
    let _ = desk.decide(&definition("files", "write", ""), here, Decision::Deny).await.unwrap_err();
    assert_eq!(desk.asks(&read, here).await, None);
    let rows: Vec<_> = desk.store.ledger().map(Result::unwrap).collect();
    let recorded: Vec<(&str, String)> = rows
        .iter()
        .map(|row| {
            let words = match &row.recorded {
                Recorded::Decided { allowed, by } => format!("{allowed} {by}"),
                Recorded::Ended { outcome, milliseconds } => format!("{outcome} {milliseconds}"),
            };
            (row.tool.name.as_str(), words)
        })
        .collect();
    assert_eq!(
        recorded,
        [
            ("read", "true you allowed this tool in this conversation".to_owned()),
            ("read", "done 12".to_owned()),
            ("write", "false you denied it".to_owned()),
            ("read", "true allowed in this conversation".to_owned()),
        ]
    );
    assert!(rows.iter().all(|row| row.asked_by == "some model" && row.conversation == here && row.arguments.len() == 64));
    assert_eq!(desk.store.verify_ledger().unwrap().broken, None);
    let other = rusqlite::Connection::open(&path).unwrap();
    other
        .execute_batch(
            "DROP TRIGGER ledger_is_never_edited; UPDATE ledger SET recorded = replace(recorded, 'false', 'true') WHERE number = 3",
        )
        .unwrap();
    let check = desk.store.verify_ledger().unwrap();
    assert_eq!((check.rows, check.broken.unwrap().number), (2, 3));
}

#[tokio::test]
async fn approvals_that_cannot_be_read_let_nothing_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handrail.db");
    let store = Store::open(&path).unwrap();
    let here = store.new_conversation().unwrap().id;
    let desk = Desk { gate: Gate::new(store.clone()), store, here, there: here };
    let read = definition("files", "read", "");
    let _ = desk.decide(&read, here, Decision::AlwaysTool).await.unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("UPDATE approval SET effect = 'perhaps'").unwrap();
    let (_, waiting) = desk.admit(&read, here);
    assert!(matches!(waiting.await.unwrap(), Err(Error::Store(_))));
    // A call for another tool than the one that was shown is refused as well.
    let cancel = CancellationToken::new();
    let refused = desk.gate.admit(&call(&read, json!({})), &definition("files", "read", "another"), here, &cancel).await;
    assert!(matches!(refused, Err(Error::Denied { .. })));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e300..1e300).prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(".{0,8}", inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_arguments() -> impl Strategy<Value = Value> {
    prop::collection::hash_map(".{0,8}", any_json(), 0..5).prop_map(|map| Value::Object(map.into_iter().collect()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_runs_is_what_was_shown(arguments in any_arguments()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let desk = Desk::new();
            let read = definition("files", "read", "");
            let asked = call(&read, arguments);
            let (gate, tool, here, sent) = (desk.gate.clone(), Arc::clone(&read), desk.here, asked.clone());
            let waiting = tokio::spawn(async move { gate.admit(&sent, &tool, here, &CancellationToken::new()).await });
            desk.pending(1).await;
            let shown = canonical_json(&desk.gate.pending()[0].call.arguments);
            desk.gate.decide(&asked.id, Decision::AllowOnce).unwrap();
            let permit = waiting.await.unwrap().unwrap();
            assert_eq!(permit.call().id, asked.id);
            assert_eq!(canonical_json(&permit.spend_for(&read.id).unwrap()), shown);
        });
    }
}
