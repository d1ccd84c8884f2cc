//! The Handrail window.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use handrail::smoke::Smoke;
use handrail_engine::engine::Shutdown;
use handrail_engine::{Config, Engine, rag};

/// Handrail: chat with models and tools.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The data folder.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The folder of the models; HANDRAIL_MODELS_DIR where not given.
    #[arg(long, value_name = "DIR")]
    models_dir: Option<PathBuf>,
    /// A link that asks to install a server; nothing is installed before you agree.
    #[arg(value_name = "LINK")]
    link: Option<String>,
    /// Says something, waits for the answer, keeps a picture there, and ends.
    #[arg(long, value_name = "FILE.png", hide = true)]
    smoke: Option<PathBuf>,
    /// What the smoke run says.
    #[arg(long, value_name = "TEXT", hide = true, default_value = "Hello! Who are you?")]
    say: String,
}

fn main() -> ExitCode {
    // A parser child is this same program; nothing of the app may start in it.
    if let Some(code) = rag::worker::run_if_asked() {
        return code;
    }
    let arguments = Arguments::parse();
    let smoke = arguments.smoke.map(|picture| Smoke::new(picture, arguments.say));
    let folder = Config::data_dir(arguments.data_dir);
    let shown_folder = folder.as_ref().ok().cloned();
    let models_dir = handrail::models_dir(arguments.models_dir, std::env::var_os("HANDRAIL_MODELS_DIR"));
    let engine = folder.and_then(|folder| {
        handrail::log::start(&folder);
        Engine::start(Config { models_dir, ..Config::new(folder) })
    });
    let engine = match engine {
        Ok(engine) => engine,
        Err(error) => return unstarted(&error, shown_folder, smoke.is_some()),
    };
    let ran = handrail::run(engine.clone(), smoke.clone(), arguments.link);
    // The window's own quit did this already unless it broke down.
    engine.block_on(engine.shutdown(Shutdown::Exit));
    if let Some(report) = smoke.as_ref().and_then(Smoke::report) {
        // A closed stdout changes nothing about the result.
        let _ = writeln!(std::io::stdout(), "{report}");
    }
    match ran {
        Ok(()) if smoke.is_none_or(|smoke| smoke.passed()) => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => {
            handrail::log::fatal(&error);
            ExitCode::FAILURE
        }
    }
}

/// Says why there is no engine, on stderr and, because a desktop shows no stderr, in a window.
fn unstarted(error: &handrail_engine::engine::Error, folder: Option<PathBuf>, smoke: bool) -> ExitCode {
    handrail::log::fatal(error);
    if !smoke && let Err(error) = handrail::fault::run(error.to_string(), folder) {
        handrail::log::fatal(&error);
    }
    ExitCode::FAILURE
}
