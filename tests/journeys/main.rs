//! Whole-engine journeys on real parts: the local model, real MCP servers, real files. The scripted server and the
//! scripted model stand in only where a real one cannot be made to do the thing on demand.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod chat;
mod documents;
mod faults;
mod restart;
mod servers_calls;
mod servers_cli;
mod servers_http;
mod servers_memory;
mod servers_processes;
mod servers_real;
mod servers_start;
mod servers_talk;
mod servers_tools;
mod stop;
mod tools;

use handrail_engine::provider::{Sampling, ToolChoice};
use handrail_engine::turn::{Input, Options};

/// An input with greedy sampling and a short answer, so that a journey is quick and the same each time.
fn input(text: &str) -> Input {
    let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
    Input {
        text: text.to_owned(),
        attachments: Vec::new(),
        options: Options { sampling: Some(sampling), max_tokens: Some(60), ..Options::default() },
    }
}

fn without_tools(text: &str) -> Input {
    let mut input = input(text);
    input.options.tool_choice = ToolChoice::None;
    input
}
