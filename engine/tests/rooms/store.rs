//! Conversations survive what happens to a process.

use handrail_engine::conversation::{CallRecord, CallState, ConversationId, Message, Part, Role, Status};
use handrail_engine::store::{Error, Store};
use handrail_engine::tool::{Call, CallId, CallResult, SchemaHash, ToolId};
use serde_json::json;

fn text(text: &str) -> Part {
    Part::Text { text: text.to_owned() }
}

fn call(state: CallState) -> Part {
    let tool = ToolId { server: "files".into(), name: "write".to_owned(), schema: SchemaHash::of(&json!({})) };
    let call = Call { id: CallId::fresh(), tool, alias: "write".to_owned(), arguments: json!({"path": "/tmp/é", "n": [1, 2.5, null]}) };
    Part::Call(CallRecord { call, state })
}

fn states(message: &Message) -> Vec<CallState> {
    let records = message.parts.iter().filter_map(|part| match part {
        Part::Call(record) => Some(record.state.clone()),
        _ => None,
    });
    records.collect()
}

#[test]
fn messages_come_back_as_they_were_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handrail.db");
    let store = Store::open(&path).unwrap();
    let conversation = store.new_conversation().unwrap();
    let result = CallResult { structured: Some(json!({"b": 1, "a": 2})), ..CallResult::text("ok") };
    let mut messages = Vec::new();
    for n in 0..50 {
        let role = if n % 2 == 0 { Role::User } else { Role::Assistant };
        let done = CallState::Done { by: "you allowed it once".to_owned(), result: result.clone(), milliseconds: n };
        let mut message = Message::new(conversation.id, role, vec![text(&format!("message {n}")), call(done)], Status::Complete);
        message.model = (n % 2 == 1).then(|| "model".to_owned());
        store.put_message(&message).unwrap();
        messages.push(message);
    }
    messages[3].status = Status::Failed { reason: "broken".to_owned() };
    messages[3].parts.push(text("more"));
    store.put_message(&messages[3]).unwrap();
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.messages(conversation.id).unwrap(), messages);
    let listed = store.conversations().unwrap();
    assert_eq!((listed[0].title.as_str(), listed[0].model.as_deref()), ("message 0", Some("model")));
    assert_eq!(store.conversation(conversation.id).unwrap().unwrap().created_at, conversation.created_at);
}

#[test]
fn the_last_changed_conversation_is_first_and_a_title_stays() {
    let store = Store::in_memory().unwrap();
    let (older, newer) = (store.new_conversation().unwrap().id, store.new_conversation().unwrap().id);
    let order = |store: &Store| store.conversations().unwrap().iter().map(|c| c.id).collect::<Vec<_>>();
    assert_eq!(order(&store), [newer, older]);
    store.put_message(&Message::new(older, Role::User, vec![text("first")], Status::Complete)).unwrap();
    assert_eq!(order(&store), [older, newer]);
    store.put_message(&Message::new(older, Role::User, vec![text("second")], Status::Complete)).unwrap();
    assert_eq!(store.conversation(older).unwrap().unwrap().title, "first");
    store.rename_conversation(older, "  mine ").unwrap();
    store.put_message(&Message::new(older, Role::User, vec![text("third")], Status::Complete)).unwrap();
    assert_eq!(store.conversation(older).unwrap().unwrap().title, "mine");
}

#[test]
fn a_deleted_conversation_takes_its_messages_and_accepts_no_more() {
    let store = Store::in_memory().unwrap();
    let (gone, kept) = (store.new_conversation().unwrap().id, store.new_conversation().unwrap().id);
    for conversation in [gone, kept] {
        store.put_message(&Message::new(conversation, Role::User, vec![text("hi")], Status::Complete)).unwrap();
        store.add_offered_tools(conversation, [(&"files".into(), "read")]).unwrap();
    }
    store.delete_conversation(gone).unwrap();
    assert!(store.messages(gone).unwrap().is_empty() && store.offered_tools(gone).unwrap().is_empty());
    assert_eq!((store.messages(kept).unwrap().len(), store.offered_tools(kept).unwrap().len()), (1, 1));
    let late = Message::new(gone, Role::Assistant, vec![text("late")], Status::Streaming);
    assert!(matches!(store.put_message(&late), Err(Error::Missing { what: "conversation", .. })));
    assert!(matches!(store.rename_conversation(ConversationId::fresh(), "x"), Err(Error::Missing { .. })));
}

/// A process that is killed leaves its file as it stands: the same as dropping the store without another word.
#[test]
fn what_a_killed_process_left_open_is_settled_and_nothing_is_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handrail.db");
    let store = Store::open(&path).unwrap();
    let conversation = store.new_conversation().unwrap().id;
    let by = || "you allowed it once".to_owned();
    let parts = vec![
        text("I wrote this"),
        call(CallState::Proposed),
        call(CallState::Approved { by: by() }),
        call(CallState::Sent { by: by() }),
        call(CallState::Done { by: by(), result: CallResult::text("done"), milliseconds: 1 }),
        call(CallState::Denied { by: "you denied it".to_owned() }),
    ];
    store.put_message(&Message::new(conversation, Role::Assistant, parts, Status::Streaming)).unwrap();
    drop(store);
    let store = Store::open(&path).unwrap();
    let message = store.messages(conversation).unwrap().remove(0);
    assert_eq!((message.text().as_str(), &message.status), ("I wrote this", &Status::Stopped));
    let states = states(&message);
    assert!(matches!(&states[0], CallState::Failed { reason } if reason.contains("before anyone decided") && reason.contains("not run")));
    assert!(matches!(&states[1], CallState::Failed { reason } if reason.contains("before it was sent") && reason.contains("not run")));
    assert_eq!(states[2], CallState::Unknown);
    assert!(matches!(states[3], CallState::Done { .. }) && matches!(states[4], CallState::Denied { .. }));
    assert_eq!(store.settle().unwrap(), 0);
}

/// The command line may look at the database while the window runs a turn.
#[test]
fn a_second_process_leaves_a_running_turn_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handrail.db");
    let first = Store::open(&path).unwrap();
    let conversation = first.new_conversation().unwrap().id;
    let running = Message::new(conversation, Role::Assistant, vec![call(CallState::Proposed)], Status::Streaming);
    first.put_message(&running).unwrap();
    let second = Store::open(&path).unwrap();
    assert_eq!(second.messages(conversation).unwrap(), [running]);
    drop((first, second));
    assert_eq!(Store::open(&path).unwrap().messages(conversation).unwrap()[0].status, Status::Stopped);
}
