//! Tool calls through the gate.

use handrail_engine::approval::Decision;
use handrail_engine::conversation::CallState;
use handrail_engine::provider::ToolChoice;
use handrail_engine::provider::scripted::Scripted;
use handrail_engine::turn::Ended;
use handrail_tests::{Sandbox, real_server, received};
use serde_json::{Value, json};

use crate::input;

fn notes_server() -> Value {
    json!({
        "name": "notes",
        "tools": [{
            "name": "write_note",
            "description": "Writes a note.",
            "inputSchema": {
                "type": "object",
                "properties": { "text": { "type": "string" } },
                "required": ["text"],
                "additionalProperties": false
            },
            "reply": { "text": "written" }
        }]
    })
}

#[test]
fn an_allowed_call_runs_once_with_the_shown_arguments_and_the_model_goes_on() {
    let sandbox = Sandbox::new();
    let log = sandbox.scripted("notes", &notes_server());
    let conversation = sandbox.engine().new_conversation().unwrap().id;
    let model = Scripted::new().calls("write_note", r#"{"text":"buy milk"}"#).says("Done.");
    let turn = sandbox.turn_with(model.clone(), conversation, input("Note: buy milk"), |_| Some(Decision::AllowOnce));

    assert_eq!(turn.asked.len(), 1);
    assert_eq!(turn.asked[0].call.arguments, json!({ "text": "buy milk" }));
    assert!(
        matches!(&turn.call_states()[..], [CallState::Done { result, .. }] if result.to_text() == "written"),
        "{:?}",
        turn.call_states()
    );
    assert_eq!(turn.text(), "Done.");
    let calls = received(&log, "tools/call");
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0]["params"]["arguments"], json!({ "text": "buy milk" }));
    let second = format!("{:?}", model.requests()[1].messages);
    assert!(second.contains("written"), "the model did not read the result: {second}");
    let check = sandbox.engine().store().verify_ledger().unwrap();
    assert_eq!((check.rows, check.broken), (2, None), "one row for the decision, one for the outcome");
}

#[test]
fn a_denied_call_never_reaches_the_server_and_the_model_is_told() {
    let sandbox = Sandbox::new();
    let log = sandbox.scripted("notes", &notes_server());
    let conversation = sandbox.engine().new_conversation().unwrap().id;
    let model = Scripted::new().calls("write_note", r#"{"text":"secret"}"#).says("Understood.");
    let turn = sandbox.turn_with(model.clone(), conversation, input("Note: secret"), |_| Some(Decision::Deny));

    assert!(matches!(turn.call_states()[..], [CallState::Denied { .. }]));
    assert!(received(&log, "tools/call").is_empty());
    assert_eq!(turn.text(), "Understood.");
    assert!(format!("{:?}", model.requests()[1].messages).contains("not allow"));
}

#[test]
fn nothing_runs_before_the_decision() {
    let sandbox = Sandbox::new();
    let log = sandbox.scripted("notes", &notes_server());
    let conversation = sandbox.engine().new_conversation().unwrap().id;
    let model = Scripted::new().calls("write_note", r#"{"text":"x"}"#).says("Done.");
    let mut seen_before = None;
    let _ = sandbox.turn_with(model, conversation, input("go"), |_| {
        std::thread::sleep(std::time::Duration::from_millis(300));
        seen_before = Some(received(&log, "tools/call").len());
        Some(Decision::AllowOnce)
    });
    assert_eq!(seen_before, Some(0));
    assert_eq!(received(&log, "tools/call").len(), 1);
}

#[test]
fn allowed_in_the_conversation_is_asked_once_here_and_again_elsewhere() {
    let sandbox = Sandbox::new();
    let log = sandbox.scripted("notes", &notes_server());
    let (here, elsewhere) = (sandbox.engine().new_conversation().unwrap().id, sandbox.engine().new_conversation().unwrap().id);
    let call = |text: &str| Scripted::new().calls("write_note", &json!({ "text": text }).to_string()).says("Done.");

    let first = sandbox.turn_with(call("one"), here, input("one"), |_| Some(Decision::AllowInConversation));
    let second = sandbox.turn_with(call("two"), here, input("two"), |_| None);
    assert_eq!((first.asked.len(), second.asked.len()), (1, 0));
    let third = sandbox.turn_with(call("three"), elsewhere, input("three"), |_| Some(Decision::Deny));
    assert_eq!(third.asked.len(), 1);
    assert_eq!(received(&log, "tools/call").len(), 2);
}

#[test]
fn a_question_that_needs_a_tool_gets_it_without_being_told() {
    let sandbox = Sandbox::new();
    let folder = sandbox.folder();
    let _ = sandbox.add(&json!({ "mcpServers": { "time": real_server("time", folder), "filesystem": real_server("filesystem", folder) } }));
    let conversation = sandbox.engine().new_conversation().unwrap().id;
    let turn = sandbox.turn(conversation, input("What time is it in Tokyo?"), |_| Some(Decision::AllowOnce));

    assert_eq!(turn.asked.len(), 1, "{:#?}", turn.events);
    assert_eq!(turn.asked[0].call.tool.name, "get_current_time");
    assert_eq!(turn.asked[0].call.arguments, json!({ "timezone": "Asia/Tokyo" }));
    assert!(matches!(&turn.call_states()[..], [CallState::Done { result, .. }] if !result.is_error), "{:?}", turn.call_states());
    assert!(matches!(turn.ended(), Ended::Answered { .. }), "{:?}", turn.outcome);

    let other = sandbox.engine().new_conversation().unwrap().id;
    let turn = sandbox.turn(other, input("Hello, how are you?"), |_| None);
    assert!(turn.asked.is_empty() && turn.call_states().is_empty(), "{:#?}", turn.events);
}

#[test]
fn the_local_model_calls_a_real_server_with_valid_arguments() {
    let sandbox = Sandbox::new();
    let view = &sandbox.add(&json!({ "mcpServers": { "time": real_server("time", sandbox.folder()) } }))[0];
    assert!(view.tools.iter().any(|tool| tool.id.name == "get_current_time"), "{:?}", view.tools);
    let conversation = sandbox.engine().new_conversation().unwrap().id;
    let mut question = input("What time is it in Tokyo?");
    question.options.tool_choice = ToolChoice::Named("get_current_time".to_owned());
    let turn = sandbox.turn(conversation, question, |_| Some(Decision::AllowOnce));

    assert_eq!(turn.asked.len(), 1, "{:#?}", turn.events);
    let arguments = &turn.asked[0].call.arguments;
    assert!(arguments["timezone"].is_string(), "{arguments}");
    assert!(matches!(turn.call_states()[..], [CallState::Done { .. }]), "{:?}", turn.call_states());
    assert!(matches!(turn.ended(), Ended::Answered { .. }), "{:?}", turn.outcome);
    assert!(!turn.text().trim().is_empty());
}

#[test]
fn the_usual_servers_connect_and_show_their_tools() {
    let sandbox = Sandbox::new();
    let folder = sandbox.folder();
    let views = sandbox.add(&json!({ "mcpServers": {
        "filesystem": real_server("filesystem", folder),
        "everything": real_server("everything", folder),
        "time": real_server("time", folder),
    } }));
    let names = |id: &str| -> Vec<String> {
        let view = views.iter().find(|view| view.id.as_str() == id).unwrap();
        view.tools.iter().map(|tool| tool.id.name.clone()).collect()
    };
    assert!(names("filesystem").iter().any(|name| name == "read_text_file"), "{:?}", names("filesystem"));
    assert!(names("everything").iter().any(|name| name == "echo"), "{:?}", names("everything"));
    assert_eq!(names("time").len(), 2);
}
