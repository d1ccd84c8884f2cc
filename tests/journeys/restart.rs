//! A restart keeps everything a person made.

use handrail_engine::approval::Decision;
use handrail_engine::conversation::Part;
use handrail_engine::provider::scripted::Scripted;
use handrail_tests::{Sandbox, pdf};
use serde_json::json;

use crate::input;

#[test]
fn messages_approvals_servers_and_documents_are_there_after_a_restart() {
    let mut sandbox = Sandbox::new();
    let script = json!({
        "name": "notes",
        "tools": [{ "name": "write_note", "description": "Writes a note.", "inputSchema": { "type": "object" }, "reply": { "text": "written" } }]
    });
    let _log = sandbox.scripted("notes", &script);
    let path = sandbox.folder().join("rules.pdf");
    std::fs::write(&path, pdf::pages(&[&["The gate closes at seven in the evening."]])).unwrap();
    let attachment = sandbox.engine().block_on(async { sandbox.engine().attach(&path).await }).unwrap();
    let conversation = sandbox.engine().new_conversation().unwrap().id;
    let mut question = input("When does the gate close? Note it.");
    question.attachments.push(attachment);
    let model = Scripted::new().calls("write_note", "{}").says("At seven [1].");
    let turn = sandbox.turn_with(model, conversation, question, |_| Some(Decision::AlwaysTool));
    assert_eq!(turn.asked.len(), 1);
    let before = sandbox.messages(conversation);

    sandbox.restart();
    assert_eq!(sandbox.messages(conversation), before);
    assert_eq!(sandbox.engine().conversations().unwrap().len(), 1);
    let view = sandbox.connected(&"notes".into());
    assert_eq!(view.tools.len(), 1);
    let again = Scripted::new().calls("write_note", "{}").says("Noted.");
    let turn = sandbox.turn_with(again, conversation, input("When does the gate close? Note it again."), |_| None);
    assert!(turn.asked.is_empty(), "an approval for always was forgotten");
    let messages = sandbox.messages(conversation);
    let asked_again = messages.iter().rev().find(|message| message.text().contains("again")).unwrap();
    assert!(
        asked_again.parts.iter().any(|part| matches!(part, Part::Passages { passages } if passages[0].text.contains("seven"))),
        "{asked_again:#?}"
    );
}
