//! The program itself, without a window. (An integration test also makes cargo build the program for the smoke.)
#![allow(clippy::unwrap_used)]

use std::process::Command;

fn handrail() -> Command {
    Command::new(env!("CARGO_BIN_EXE_handrail"))
}

#[test]
fn it_tells_its_version() {
    let output = handrail().arg("--version").output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), format!("handrail {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn it_names_an_option_it_does_not_know() {
    let output = handrail().arg("--no-such-option").output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("--no-such-option"));
}
