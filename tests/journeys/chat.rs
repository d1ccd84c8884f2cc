//! A question to the local model.

use handrail_engine::conversation::{Role, Status};
use handrail_engine::turn::{Ended, Event};
use handrail_tests::Sandbox;

use crate::without_tools;

#[test]
fn the_local_model_answers_streamed_and_the_conversation_is_stored() {
    let sandbox = Sandbox::new();
    let conversation = sandbox.engine().new_conversation().unwrap().id;
    let turn = sandbox.turn(conversation, without_tools("What is the capital of France?"), |_| None);

    assert!(matches!(turn.ended(), Ended::Answered { .. }), "{:?}", turn.outcome);
    let pieces = turn.events.iter().filter(|event| matches!(event, Event::Text { .. })).count();
    assert!(pieces > 1, "the answer came in {pieces} piece(s)");
    assert!(turn.text().contains("Paris"), "{}", turn.text());
    let usage = turn.events.iter().find_map(|event| if let Event::Usage { usage } = event { Some(*usage) } else { None }).unwrap();
    assert!(usage.prompt_tokens > 0 && usage.completion_tokens > 0 && usage.tokens_per_second > 0.0, "{usage:?}");

    let messages = sandbox.messages(conversation);
    assert_eq!(messages.iter().map(|message| message.role).collect::<Vec<_>>(), [Role::User, Role::Assistant]);
    assert_eq!(messages[1].text(), turn.text());
    assert_eq!(messages[1].status, Status::Complete);
    let listed = sandbox.engine().conversations().unwrap();
    assert_eq!(listed[0].id, conversation);
    assert!(listed[0].title.contains("capital of France"), "{}", listed[0].title);
}

#[test]
fn a_second_turn_reuses_what_the_model_has_read() {
    let sandbox = Sandbox::new();
    let conversation = sandbox.engine().new_conversation().unwrap().id;
    let _ = sandbox.turn(conversation, without_tools("My name is Ada."), |_| None);
    let turn = sandbox.turn(conversation, without_tools("What is my name?"), |_| None);
    let usage = turn.events.iter().find_map(|event| if let Event::Usage { usage } = event { Some(*usage) } else { None }).unwrap();
    assert!(
        usage.cached_tokens * 2 > usage.prompt_tokens,
        "only {} of {} prompt tokens were reused",
        usage.cached_tokens,
        usage.prompt_tokens
    );
}
