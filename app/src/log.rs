//! Logs: stderr, and a file a day in the data folder.

use std::fmt::Display;
use std::io::Write as _;
use std::path::Path;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::MakeWriterExt as _;

/// Days of logs that are kept.
const KEPT: usize = 7;

/// Starts logging. `RUST_LOG` chooses what; the client library of MCP is silent unless asked, because it logs
/// arguments, and what it reports the engine says as well.
pub fn start(data_dir: &Path) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,handrail=info,handrail_engine=info,rmcp=off"));
    let folder = data_dir.join("logs");
    // Where the folder cannot be made, the file cannot be opened either, and stderr is what is left.
    let _ = std::fs::create_dir_all(&folder);
    let builder = tracing_appender::rolling::Builder::new().rotation(tracing_appender::rolling::Rotation::DAILY);
    let file = builder.filename_prefix("handrail").filename_suffix("log").max_log_files(KEPT).build(folder);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    // Logging is started once; without a file it goes to stderr alone.
    let _ = match file {
        Ok(file) => log.with_writer(std::io::stderr.and(std::sync::Mutex::new(file))).try_init(),
        Err(_) => log.with_writer(std::io::stderr).try_init(),
    };
}

/// Says on stderr why the program ends; logging may not have started.
pub fn fatal(error: &dyn Display) {
    // Nothing is left to do when even stderr is closed.
    let _ = writeln!(std::io::stderr(), "handrail: {error}");
}
