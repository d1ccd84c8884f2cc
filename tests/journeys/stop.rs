//! Stop, wherever the turn is.

use std::time::{Duration, Instant};

use handrail_engine::approval::Decision;
use handrail_engine::conversation::{CallState, Status};
use handrail_engine::provider::Delta;
use handrail_engine::provider::scripted::{Scripted, Step};
use handrail_engine::turn::Event;
use handrail_tests::{PATIENCE, Sandbox, eventually, received};
use serde_json::json;
use sipper::Sipper as _;

use crate::{input, without_tools};

#[test]
fn stop_during_the_local_models_answer_keeps_what_was_written() {
    let sandbox = Sandbox::new();
    let engine = sandbox.engine();
    let conversation = engine.new_conversation().unwrap().id;
    let mut long = without_tools("Count from one to two hundred in words.");
    long.options.max_tokens = Some(1000);
    let mut written = String::new();
    engine.block_on(async {
        let mut turn = Box::pin(engine.turn(conversation, long).pin());
        while written.len() < 20 {
            match tokio::time::timeout(PATIENCE, turn.sip()).await.unwrap() {
                Some(Event::Text { text, .. }) => written.push_str(&text),
                Some(_) => {}
                None => panic!("the answer ended before it could be stopped: {written}"),
            }
        }
    });
    let stopped = Instant::now();
    eventually("the message is stored as stopped", || {
        sandbox.messages(conversation).last().is_some_and(|message| message.status == Status::Stopped)
    });
    assert!(sandbox.messages(conversation)[1].text().starts_with(written.trim_end()), "text was lost");
    // The model is free again: a short question does not wait for a thousand tokens.
    let turn = sandbox.turn(conversation, without_tools("Say hello."), |_| None);
    assert!(!turn.text().is_empty());
    assert!(stopped.elapsed() < Duration::from_secs(60));
}

#[test]
fn stop_during_a_tool_call_cancels_it_at_the_server() {
    let sandbox = Sandbox::new();
    let script = json!({
        "name": "slow",
        "tools": [{ "name": "wait", "description": "Waits.", "inputSchema": { "type": "object" }, "hang": true }]
    });
    let log = sandbox.scripted("slow", &script);
    let conversation = sandbox.engine().new_conversation().unwrap().id;
    let model = Scripted::new().calls("wait", "{}").says("never reached");
    let turn = sandbox.turn_until(
        model,
        conversation,
        input("wait"),
        |_| Some(Decision::AllowOnce),
        |event| {
            let sent = matches!(event, Event::ToolCall { record, .. } if matches!(record.state, CallState::Sent { .. }));
            if sent {
                eventually("the server has the call", || received(&log, "tools/call").len() == 1);
            }
            sent
        },
    );
    assert!(turn.outcome.is_none());
    eventually("the server is told", || received(&log, "notifications/cancelled").len() == 1);
    eventually(
        "the call is stored as stopped",
        || matches!(sandbox.calls(conversation)[..], [ref record] if record.state == CallState::Stopped),
    );
    assert!(sandbox.engine().approvals().pending().is_empty());
}

#[test]
fn stop_while_a_call_waits_for_a_decision_takes_the_question_back() {
    let sandbox = Sandbox::new();
    let script = json!({
        "name": "notes",
        "tools": [{ "name": "write_note", "description": "Writes a note.", "inputSchema": { "type": "object" }, "reply": { "text": "written" } }]
    });
    let log = sandbox.scripted("notes", &script);
    let conversation = sandbox.engine().new_conversation().unwrap().id;
    let model = Scripted::new().answer(vec![
        Step::Emit(Delta::Text("Let me note that.".to_owned())),
        Step::Emit(Delta::CallStarted { index: 0, id: None, name: "write_note".to_owned() }),
        Step::Emit(Delta::CallArguments { index: 0, fragment: "{}".to_owned() }),
    ]);
    let _ = sandbox.turn_until(model, conversation, input("note"), |_| None, |event| matches!(event, Event::Approval { .. }));
    eventually("nothing waits any more", || sandbox.engine().approvals().pending().is_empty());
    eventually("the message is settled", || sandbox.messages(conversation).last().is_some_and(|message| message.status == Status::Stopped));
    assert_eq!(sandbox.messages(conversation)[1].text(), "Let me note that.");
    assert!(received(&log, "tools/call").is_empty());
}
