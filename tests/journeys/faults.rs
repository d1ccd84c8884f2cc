//! Bad input: a clear error, and nothing is lost.

use std::process::Command;

use handrail_engine::engine::Shutdown;
use handrail_engine::mcp::State;
use handrail_engine::{Config, Engine};
use handrail_tests::{Sandbox, models, pdf, program};
use serde_json::json;

#[test]
fn a_broken_server_configuration_is_named_and_left_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mcp_config.json");
    let broken = "{\n  \"mcpServers\": {\n    \"a\": { \"command\": \"x\" }\n    \"b\": {}\n  }\n}\n";
    std::fs::write(&path, broken).unwrap();
    let config = Config { worker: Some(program("handrail-cli")), models_dir: Some(models()), ..Config::new(folder.path()) };
    let engine = Engine::start(config).unwrap();
    let error = engine.servers().config_error().expect("the broken file was accepted");
    assert!(error.contains("mcp_config.json") && error.contains("line 4"), "{error}");
    assert!(engine.servers().paste(r#"{"mcpServers":{"c":{"command":"true"}}}"#).is_err());
    engine.block_on(engine.shutdown(Shutdown::Exit));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), broken);
}

#[test]
fn a_command_that_is_not_there_says_where_it_was_looked_for() {
    let sandbox = Sandbox::new();
    let engine = sandbox.engine();
    let ids = engine.servers().paste(r#"{"mcpServers":{"ghost":{"command":"no-such-program-here"}}}"#).unwrap();
    let error = engine.block_on(engine.servers().ready(&ids[0], handrail_tests::PATIENCE)).unwrap_err().to_string();
    let view = &engine.servers().servers()[0];
    let State::Failed { reason, .. } = &view.state else { panic!("{:?}", view.state) };
    assert!(error.contains(reason.as_str()), "{error}");
    assert!(reason.contains("no-such-program-here") && reason.contains("/usr/bin"), "{reason}");
}

#[test]
fn a_server_that_ends_at_once_shows_its_exit_code_and_last_words() {
    let sandbox = Sandbox::new();
    let engine = sandbox.engine();
    let server = json!({ "mcpServers": { "dying": { "command": "sh", "args": ["-c", "echo 'no licence found' >&2; exit 3"] } } });
    let ids = engine.servers().paste(&server.to_string()).unwrap();
    let error = engine.block_on(engine.servers().ready(&ids[0], handrail_tests::PATIENCE)).unwrap_err().to_string();
    assert!(error.contains("no licence found"), "{error}");
    let view = &engine.servers().servers()[0];
    let State::Failed { exit_code, reason } = &view.state else { panic!("{:?}", view.state) };
    assert_eq!(*exit_code, Some(3), "{reason}");
    assert!(view.stderr.iter().any(|line| line.contains("no licence found")), "{:?}", view.stderr);
}

#[test]
fn a_truncated_pdf_is_that_files_error() {
    let sandbox = Sandbox::new();
    let engine = sandbox.engine();
    let whole = pdf::pages(&[&["A whole page."]]);
    let path = sandbox.folder().join("cut.pdf");
    std::fs::write(&path, &whole[..60]).unwrap();
    let error = engine.block_on(async { engine.attach(&path).await }).unwrap_err().to_string();
    assert!(error.contains("cut.pdf"), "{error}");
    let good = sandbox.folder().join("whole.pdf");
    std::fs::write(&good, whole).unwrap();
    assert!(engine.block_on(async { engine.attach(&good).await }).is_ok());
}

#[test]
fn a_model_file_with_a_wrong_checksum_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let source = models().join("smollm2-135m-instruct-q4_1");
    let copy = folder.path().join("models/smollm2-135m-instruct-q4_1");
    std::fs::create_dir_all(&copy).unwrap();
    for entry in std::fs::read_dir(&source).unwrap() {
        let entry = entry.unwrap();
        let _bytes = std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let gguf = std::fs::read_dir(&copy)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|e| e == "gguf"))
        .unwrap();
    let mut bytes = std::fs::read(&gguf).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&gguf, bytes).unwrap();
    let run = Command::new(program("handrail-cli"))
        .args(["--data-dir", folder.path().to_str().unwrap(), "models", "verify"])
        .env_remove("HANDRAIL_MODELS_DIR")
        .output()
        .unwrap();
    assert!(!run.status.success());
    let shown = String::from_utf8_lossy(&run.stdout).to_string() + &String::from_utf8_lossy(&run.stderr);
    assert!(shown.contains("smollm2-135m-instruct-q4_1") && shown.contains("sha256"), "{shown}");
}

#[test]
fn the_command_line_fails_in_words_and_with_a_status() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new(program("handrail-cli"))
            .args(["--data-dir", folder.path().to_str().unwrap(), "--models-dir", folder.path().join("none").to_str().unwrap()])
            .args(arguments)
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).to_string())
    };
    let (ok, words) = run(&["ask", "hello"]);
    assert!(!ok && words.contains("models fetch"), "{words}");
    let (ok, words) = run(&["servers", "call", "nobody", "tool", "{}"]);
    assert!(!ok && words.contains("nobody"), "{words}");
    let (ok, words) = run(&["parse", "/no/such/file.pdf"]);
    assert!(!ok && words.contains("/no/such/file.pdf"), "{words}");
}

#[test]
fn a_message_is_stored_even_when_no_model_can_answer_it() {
    let sandbox = Sandbox::new();
    let conversation = sandbox.engine().new_conversation().unwrap().id;
    let mut lost = crate::without_tools("Do not lose this.");
    lost.options.model = Some("no-such-model".to_owned());
    let turn = sandbox.turn(conversation, lost, |_| None);
    assert!(
        matches!(turn.ended(), handrail_engine::turn::Ended::Failed { reason } if reason.contains("no-such-model")),
        "{:?}",
        turn.outcome
    );
    assert_eq!(sandbox.messages(conversation)[0].text(), "Do not lose this.");
}
