//! From a PDF to a cited passage.

use handrail_engine::conversation::{Attachment, Part};
use handrail_engine::provider::scripted::Scripted;
use handrail_engine::turn::{Ended, Event};
use handrail_tests::{Sandbox, pdf};

use crate::{input, without_tools};

fn handbook() -> Vec<u8> {
    pdf::pages(&[
        &["Employee handbook", "", "Working hours are from nine to five, with an hour for lunch.", "Travel must be approved in advance."],
        &["Leave", "", "Every employee has twenty seven days of paid holiday per year.", "Unused days expire at the end of March."],
        &["Equipment", "", "The cooling pump in hall four is serviced every ninety days.", "Report faults to the workshop."],
    ])
}

fn attached(sandbox: &Sandbox) -> Attachment {
    let path = sandbox.folder().join("handbook.pdf");
    std::fs::write(&path, handbook()).unwrap();
    sandbox.engine().block_on(async { sandbox.engine().attach(&path).await }).unwrap()
}

#[test]
fn an_answer_cites_file_and_page_and_the_citation_holds_the_passage() {
    let sandbox = Sandbox::new();
    let engine = sandbox.engine();
    let attachment = attached(&sandbox);
    assert_eq!(attachment.name, "handbook.pdf");

    let conversation = engine.new_conversation().unwrap().id;
    let mut question = input("How many days of paid holiday does every employee have?");
    question.attachments.push(attachment);
    let turn = sandbox.turn_with(Scripted::new().says("Every employee has twenty seven days [1]."), conversation, question, |_| None);

    let passages =
        turn.events.iter().find_map(|event| if let Event::Retrieved { passages, .. } = event { Some(passages) } else { None }).unwrap();
    let best = &passages[0];
    assert_eq!((best.number, best.name.as_str(), best.page), (1, "handbook.pdf", Some(2)));
    assert!(best.text.contains("twenty seven days"), "{}", best.text);
    let full: Vec<char> = engine.library().text(best.document).unwrap().chars().collect();
    assert_eq!(full[best.span.0..best.span.1].iter().collect::<String>(), best.text);
    let cited = turn.events.iter().find_map(|event| if let Event::Cited { passages, .. } = event { Some(passages.clone()) } else { None });
    assert_eq!(cited, Some(vec![1]));
    let stored = sandbox.messages(conversation);
    assert!(stored[0].parts.iter().any(|part| matches!(part, Part::Passages { passages: kept } if kept == passages)));
}

#[test]
fn the_local_model_answers_from_the_document() {
    let sandbox = Sandbox::new();
    let engine = sandbox.engine();
    let attachment = attached(&sandbox);
    let conversation = engine.new_conversation().unwrap().id;
    let mut question = without_tools("How often is the cooling pump in hall four serviced?");
    question.attachments.push(attachment);
    let turn = sandbox.turn(conversation, question, |_| None);

    assert!(matches!(turn.ended(), Ended::Answered { .. }), "{:?}", turn.outcome);
    assert!(turn.text().to_lowercase().contains("ninety days"), "{}", turn.text());
    assert!(turn.events.iter().any(|event| matches!(event, Event::Cited { passages, .. } if !passages.is_empty())), "{}", turn.text());
}

#[test]
fn a_greeting_brings_no_passages() {
    let sandbox = Sandbox::new();
    let engine = sandbox.engine();
    let attachment = attached(&sandbox);
    let conversation = engine.new_conversation().unwrap().id;
    let mut greeting = input("Hello");
    greeting.attachments.push(attachment);
    let turn = sandbox.turn_with(Scripted::new().says("Hello!"), conversation, greeting, |_| None);
    assert!(
        !turn.events.iter().any(|event| matches!(event, Event::Retrieved { passages, .. } if !passages.is_empty())),
        "{:#?}",
        turn.events
    );
}
