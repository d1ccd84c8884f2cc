//! `bench`: figures of this machine.

use std::path::PathBuf;

use clap::Subcommand;
use handrail_engine::local::TemplateChoice;

use crate::output::{Failure, Output};

#[derive(Subcommand)]
pub enum Command {
    /// Prefill and decode tokens per second, time to first token, memory.
    Model {
        /// A GGUF file.
        file: PathBuf,
        /// Tokens of the prompt.
        #[arg(short = 'p', default_value_t = 256)]
        prompt: usize,
        /// Tokens to write.
        #[arg(short = 'n', default_value_t = 64)]
        new: usize,
        /// Threads; 0 chooses.
        #[arg(short = 't', default_value_t = 0)]
        threads: usize,
        /// A chat template instead of the model's own one, for this run.
        #[arg(long, value_name = "chatml|FILE|own", default_value = "own")]
        template: String,
    },
    /// Build seconds, bytes, recall and queries per second of the vector index.
    Index {
        /// A folder with base.f32, query.f32 and truth.i32 (384 dimensions).
        dir: PathBuf,
        /// Scans instead of walking the graph.
        #[arg(long)]
        linear: bool,
    },
}

pub fn run(command: &Command, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Model { file, prompt, new, threads, template } => {
            let template = TemplateChoice::parse(template);
            let report = handrail_engine::local::bench::run(file, *prompt, *new, *threads, &template)?;
            output.result(&report, || {
                let memory = report.peak_memory_bytes.map(|bytes| format!(", peak memory {:.0} MB", bytes as f64 / 1e6)).unwrap_or_default();
                format!(
                    "prefill {:.1} tokens/s ({} tokens), decode {:.1} tokens/s ({} tokens), first token {:.0} ms, load {:.0} ms, {} threads{memory}",
                    report.prefill_tokens_per_second,
                    report.prompt_tokens,
                    report.decode_tokens_per_second,
                    report.new_tokens,
                    report.first_token_ms,
                    report.load_ms,
                    report.threads
                )
            });
            Ok(())
        }
        Command::Index { dir, linear } => {
            let report = handrail_engine::index::bench::run(dir, *linear)?;
            output.result(&report, || index_table(&report));
            Ok(())
        }
    }
}

fn index_table(report: &handrail_engine::index::bench::Report) -> String {
    let head = format!(
        "{} of {} × {} vectors ({}), {} queries, one thread: built in {:.2} s, {} bytes per vector",
        report.index,
        report.vectors,
        report.dimension,
        report.metric,
        report.queries,
        report.build_seconds,
        report.bytes / report.vectors.max(1)
    );
    let points = report.points.iter().map(|point| {
        let breadth = if point.breadth == 0 { String::new() } else { format!("ef {:>4}  ", point.breadth) };
        format!("{breadth}recall@10 {:.4}  {:>8.0} queries/s", point.recall_at_10, point.queries_per_second)
    });
    std::iter::once(head).chain(points).collect::<Vec<_>>().join("\n")
}
