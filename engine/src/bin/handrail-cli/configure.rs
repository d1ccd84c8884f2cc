//! `servers`: adding, taking over and removing them. Nothing here starts a server; whoever starts one is asked first.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use handrail_engine::Engine;
use handrail_engine::mcp::bundle::Bundle;
use handrail_engine::mcp::consent::Origin;
use handrail_engine::mcp::form::{Answers, Field};
use handrail_engine::mcp::gallery::Offer;
use handrail_engine::mcp::import::{self, Found, Importable, Places};
use handrail_engine::mcp::{self, Consent, config, link};
use handrail_engine::tool::ServerId;
use serde_json::{Value, json};

use crate::output::{Failure, Output};

/// Longest text that is read from stdin, in bytes.
const LONGEST: u64 = 4 * 1024 * 1024;
/// What the engine calls a text that is in no file.
const PASTED: &str = "the pasted text";
/// How much of the end of a log is looked at, in bytes.
const LOG_TAIL: u64 = 1024 * 1024;

#[derive(Subcommand)]
pub enum Command {
    /// Adds the servers of a file in any usual shape. They start with the window, once somebody agreed to them.
    Add {
        /// The file; `-` for stdin.
        file: PathBuf,
        /// Only shows what would be added.
        #[arg(long)]
        dry_run: bool,
    },
    /// Shows what other programs on this machine have; with names or --all takes servers over. Their files stay as they are.
    Import {
        /// The servers to take over, by the names they have there.
        names: Vec<String>,
        /// Only from this program (may be repeated).
        #[arg(long, value_name = "PROGRAM")]
        from: Vec<String>,
        /// Takes over everything that is not here yet and has no fault.
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
    /// Shows well-known servers; with an id, what one needs.
    Gallery {
        /// One of them: says whether its programs are here, and what it asks.
        id: Option<String>,
        /// Adds it, switched off.
        #[arg(long, requires = "id")]
        add: bool,
        #[command(flatten)]
        answers: Set,
    },
    /// Installs a bundle. Where answers are missing, it says which.
    Install {
        /// The bundle: a `.mcpb` or `.dxt` file.
        file: PathBuf,
        #[command(flatten)]
        answers: Set,
    },
    /// Shows what an install link would add; nothing is written.
    Link {
        /// The link, such as `handrail://mcp/install?name=…&config=…`.
        url: String,
    },
    /// Shows the last lines of a server's log.
    Log {
        /// The server.
        name: String,
        /// How many lines.
        #[arg(short = 'n', long, default_value_t = 50)]
        lines: usize,
    },
    /// Lets a server start with the window.
    Enable {
        /// The server.
        name: String,
    },
    /// Keeps a server from starting with the window.
    Disable {
        /// The server.
        name: String,
    },
    /// Removes a server, with its bundle and its secrets.
    Remove {
        /// The server.
        name: String,
    },
    /// Puts the last configuration that could be used in the place of one that does not parse, which is kept beside it.
    Restore,
}

/// Answers to a form.
#[derive(clap::Args)]
pub struct Set {
    /// An answer; again for several ones to the same field.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// An answer that stands in an environment variable: keys do not belong on a command line, where others can see them.
    #[arg(long = "set-env", value_name = "KEY=VARIABLE")]
    set_env: Vec<String>,
}

impl Set {
    fn read(&self) -> Result<Answers, Failure> {
        let pair = |text: &str| {
            let (key, value) = text.split_once('=').ok_or_else(|| Failure::new(format!("\"{text}\" is not KEY=VALUE")))?;
            Ok::<_, Failure>((key.to_owned(), value.to_owned()))
        };
        let mut given: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for text in &self.set {
            let (key, value) = pair(text)?;
            given.entry(key).or_default().push(Value::String(value));
        }
        for text in &self.set_env {
            let (key, variable) = pair(text)?;
            let value = std::env::var(&variable).map_err(|_| Failure::new(format!("the environment variable {variable} is not set")))?;
            given.entry(key).or_default().push(Value::String(value));
        }
        let single = |mut values: Vec<Value>| if values.len() == 1 { values.remove(0) } else { Value::Array(values) };
        Ok(given.into_iter().map(|(key, values)| (key, single(values))).collect())
    }
}

impl Command {
    /// Whether it needs a configuration that can be used.
    pub fn needs_config(&self) -> bool {
        !matches!(self, Self::Restore | Self::Link { .. } | Self::Log { .. })
    }
}

pub async fn run(engine: &Engine, command: Command, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Add { file, dry_run } => add(engine, &file, dry_run, output),
        Command::Import { names, from, all } => import(engine, &names, &from, all, output),
        Command::Gallery { id: None, .. } => {
            for offer in engine.servers().gallery() {
                show_offer(&offer, output);
            }
            Ok(())
        }
        Command::Gallery { id: Some(id), add, answers } => gallery(engine, &id, add, &answers, output).await,
        Command::Install { file, answers } => install(engine, &file, &answers, output),
        Command::Link { url } => {
            let text = link::read(&url)?;
            let shown = engine.servers().look(&text, &Origin::Link)?;
            for (id, consent) in &shown.servers {
                show(id, consent, "would be added", output);
            }
            left_out(&shown, output)
        }
        Command::Log { name, lines } => log(engine, &name, lines, output),
        Command::Enable { name } => switch(engine, name, true, output).await,
        Command::Disable { name } => switch(engine, name, false, output).await,
        Command::Remove { name } => {
            let id = ServerId::new(name);
            engine.servers().remove(&id).await?;
            output.result(&json!({ "server": id, "removed": true }), || format!("{id} is removed"));
            Ok(())
        }
        Command::Restore => restore(engine, output),
    }
}

fn add(engine: &Engine, file: &Path, dry_run: bool, output: &Output) -> Result<(), Failure> {
    let wrong = |error: std::io::Error| Failure::new(format!("{}: {error}", file.display()));
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        let _ = std::io::stdin().lock().take(LONGEST + 1).read_to_end(&mut bytes)?;
    } else {
        let opened = std::fs::File::open(file).map_err(wrong)?;
        let _ = opened.take(LONGEST + 1).read_to_end(&mut bytes).map_err(wrong)?;
    }
    let text = config::decoded(bytes).map_err(|reason| Failure::new(format!("{}: {reason}", file.display())))?;
    let servers = engine.servers();
    let shown = servers.look(&text, &Origin::Pasted).map_err(|error| of_file(error, file))?;
    let there: Vec<ServerId> = servers.servers().into_iter().map(|view| view.id).collect();
    if !dry_run {
        let _ = servers.add(&text, &Origin::Pasted, &[]).map_err(|error| of_file(error, file))?;
    }
    for (id, consent) in &shown.servers {
        let what = match (dry_run, there.contains(id)) {
            (true, false) => "would be added",
            (true, true) => "would be replaced",
            (false, false) => "added",
            (false, true) => "replaced",
        };
        show(id, consent, what, output);
    }
    left_out(&shown, output)
}

/// Names what of a text is not added, or not as it stands; a failure where an entry is left out.
fn left_out(shown: &mcp::Shown, output: &Output) -> Result<(), Failure> {
    for fault in &shown.faults {
        if let config::Error::Field { server, field, reason } = fault {
            output.json(&json!({ "server": server, "what": "left out", "field": field, "problem": reason }));
        }
    }
    for note in &shown.notes {
        output.note(note);
    }
    match shown.faults.len() {
        0 => Ok(()),
        count => Err(Failure::new(format!("{count} of {} entries cannot be used and were left out", count + shown.servers.len()))),
    }
}

/// What is wrong with a text, with the file that it is from.
fn of_file(error: mcp::Error, file: &Path) -> Failure {
    let named = if file == Path::new("-") { "the text on stdin".to_owned() } else { file.display().to_string() };
    match error {
        mcp::Error::Config(config::Error::Parse { line, column, reason, .. }) => {
            Failure::new(format!("{named} does not parse at line {line}, column {column}: {reason}"))
        }
        mcp::Error::Config(config::Error::Empty { .. }) => config::Error::Empty { place: named }.into(),
        // What is wrong with the whole text is said of the text, not of a server.
        mcp::Error::Config(config::Error::Field { server, reason, .. }) if server == PASTED => Failure::new(format!("{named}: {reason}")),
        mcp::Error::Config(field @ config::Error::Field { .. }) => Failure::new(format!("{named}: {field}")),
        other => other.into(),
    }
}

fn import(engine: &Engine, names: &[String], from: &[String], all: bool, output: &Output) -> Result<(), Failure> {
    if let Some(unknown) = from.iter().find(|program| !import::programs().contains(&program.as_str())) {
        return Err(Failure::new(format!("\"{unknown}\" is none of {}", import::programs().join(", "))));
    }
    let places = Places::here().ok_or_else(|| Failure::new("you have no home folder to look into"))?;
    let mut found = engine.servers().importable(&places);
    found.retain(|found| from.is_empty() || from.iter().any(|program| program == found.program));
    if names.is_empty() && !all {
        if found.is_empty() {
            output.note("no other program has servers here");
        }
        for found in &found {
            show_found(found, output);
        }
        return Ok(());
    }
    let offered: Vec<&Importable> = found.iter().flat_map(|found| &found.servers).collect();
    if let Some(missing) = names.iter().find(|name| !offered.iter().any(|server| server.name == **name)) {
        return Err(Failure::new(format!("no other program has a server '{missing}'")));
    }
    let chosen =
        |server: &&&Importable| if all { server.problem.is_none() && server.there.is_none() } else { names.contains(&server.name) };
    let chosen: Vec<Importable> = offered.iter().filter(chosen).map(|server| (*server).clone()).collect();
    for server in &chosen {
        if let Some(there) = &server.there {
            output.note(&format!("'{}' is here already, as '{there}'", server.name));
        }
        if let Some(problem) = &server.problem {
            return Err(Failure::new(format!("'{}' cannot be taken over: {problem}", server.name)));
        }
        for secret in &server.needs {
            output.note(&format!("'{}' needs a secret: handrail-cli secret set '{secret}'", server.name));
        }
    }
    for (server, note) in chosen.iter().flat_map(|server| server.notes.iter().map(move |note| (server, note))) {
        output.note(&format!("'{}': {note}", server.name));
    }
    for id in engine.servers().import(&chosen, false)? {
        output.result(&json!({ "server": id, "added": true }), || format!("{id} is taken over"));
    }
    if all { skipped(&found, output) } else { Ok(()) }
}

/// What `--all` did not take over: servers with a fault, and files that cannot be read. What is here already is no loss.
fn skipped(found: &[Found], output: &Output) -> Result<(), Failure> {
    let mut count = 0;
    for found in found {
        let file = found.problem.iter().map(|problem| (found.path.display().to_string(), problem));
        let servers = found.servers.iter().filter_map(|server| Some((server.name.clone(), server.problem.as_ref()?)));
        for (what, problem) in file.chain(servers) {
            count += 1;
            output.json(&json!({ "program": found.program, "file": found.path, "skipped": what, "problem": problem }));
            output.note(&format!("{}: '{what}' was not taken over: {problem}", found.title));
        }
    }
    if count == 0 { Ok(()) } else { Err(Failure::new(format!("{count} of what other programs have could not be taken over"))) }
}

async fn gallery(engine: &Engine, id: &str, add: bool, answers: &Set, output: &Output) -> Result<(), Failure> {
    let Some(offer) = engine.servers().gallery().into_iter().find(|offer| offer.id == id) else {
        return Err(Failure::new(format!("the gallery has no '{id}'; handrail-cli servers gallery lists what it has")));
    };
    if add {
        let id = engine.servers().add_from_gallery(id, &answers.read()?)?;
        let text = || format!("{id} is added, switched off; handrail-cli servers enable {id} lets it start with the window");
        output.result(&json!({ "server": id, "added": true, "active": false }), text);
        return Ok(());
    }
    let check = engine.servers().gallery_check(id).await?;
    show_offer(&offer, output);
    show_fields(&offer.fields(), output);
    output.result(&json!(check), || {
        let found = check.found.iter().map(|(program, path)| format!("  {program} is {path}"));
        found.chain(check.missing.iter().map(|reason| format!("  missing: {reason}"))).collect::<Vec<_>>().join("\n")
    });
    if check.ready { Ok(()) } else { Err(Failure::new(format!("'{id}' cannot be started here yet"))) }
}

fn install(engine: &Engine, file: &Path, answers: &Set, output: &Output) -> Result<(), Failure> {
    let mut bundle = Bundle::open(file)?;
    let answers = answers.read()?;
    let (id, consent) = match engine.servers().preview_bundle(&bundle, &answers) {
        Ok(shown) => shown,
        Err(error) => {
            show_fields(bundle.fields(), output);
            return Err(error.into());
        }
    };
    let _ = engine.servers().install_bundle(&mut bundle, &answers, None)?;
    show(&id, &consent, &format!("{} {} installed", bundle.title(), bundle.version()), output);
    Ok(())
}

fn log(engine: &Engine, name: &str, lines: usize, output: &Output) -> Result<(), Failure> {
    use std::io::{Seek as _, SeekFrom};
    let path = engine.servers().log_file(&ServerId::new(name));
    let known = engine.servers().servers().iter().any(|view| view.id.as_str() == name);
    let wrong = |error: std::io::Error| {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        Failure::new(match (missing, known) {
            (true, true) => format!("there is no log of '{name}' yet: it was never started"),
            (true, false) => format!("there is no log of '{name}', and no server of that name; handrail-cli servers list lists them"),
            (false, _) => format!("the log of '{name}' at {} cannot be read: {error}", path.display()),
        })
    };
    let mut file = std::fs::File::open(&path).map_err(wrong)?;
    let length = file.metadata().map_err(wrong)?.len();
    let start = length.saturating_sub(LOG_TAIL);
    let _ = file.seek(SeekFrom::Start(start)).map_err(wrong)?;
    let mut bytes = Vec::new();
    let _ = file.take(LOG_TAIL).read_to_end(&mut bytes).map_err(wrong)?;
    let text = String::from_utf8_lossy(&bytes);
    // The first line of a part may be half a line.
    let whole: Vec<&str> = text.lines().skip(usize::from(start > 0)).collect();
    for line in whole.iter().skip(whole.len().saturating_sub(lines)) {
        output.foreign(&json!({ "server": name, "line": line }), || (*line).to_owned());
    }
    Ok(())
}

async fn switch(engine: &Engine, name: String, active: bool, output: &Output) -> Result<(), Failure> {
    let id = ServerId::new(name);
    engine.servers().set_active(&id, active).await?;
    let text = || format!("{id} {} with the window", if active { "starts" } else { "does not start" });
    output.result(&json!({ "server": id, "active": active }), text);
    Ok(())
}

fn restore(engine: &Engine, output: &Output) -> Result<(), Failure> {
    let Some(backup) = engine.servers().config_backup() else {
        return Err(Failure::new("there is no backup that differs from the configuration"));
    };
    if engine.servers().config_error().is_none() {
        return Err(Failure::new("the configuration can be used as it is; nothing was put back"));
    }
    let kept = engine.servers().restore_backup()?;
    let text = || {
        let kept = kept.as_ref().map(|kept| format!("; what was there is kept as {}", kept.display())).unwrap_or_default();
        format!("{} servers are back{kept}", backup.servers.len())
    };
    output.result(&json!({ "servers": backup.servers, "kept": kept }), text);
    Ok(())
}

fn show(id: &ServerId, consent: &Consent, what: &str, output: &Output) {
    let (subject, warnings) = (&consent.subject, consent.warnings.iter().map(ToString::to_string).collect::<Vec<_>>());
    output.foreign(
        &json!({ "server": id, "what": what, "starts": subject.line(), "names": subject.names(), "folder": subject.folder(), "warnings": warnings }),
        || format!("{id}: {what}\n{}", crate::consent::lines(consent)),
    );
}

fn show_found(found: &Found, output: &Output) {
    if let Some(problem) = &found.problem {
        output.foreign(&json!({ "program": found.program, "file": found.path, "problem": problem }), || {
            format!("{}: {} cannot be read: {problem}", found.title, found.path.display())
        });
    }
    for server in &found.servers {
        let line = server.consent.subject.line();
        output.foreign(
            &json!({ "program": found.program, "file": found.path, "server": server.name, "starts": line, "there": server.there, "problem": server.problem, "needs": server.needs }),
            || {
                let there = server.there.as_ref().map(|there| format!("  (here already, as '{there}')")).unwrap_or_default();
                let problem = server.problem.as_ref().map(|problem| format!("  ({problem})")).unwrap_or_default();
                format!("{:16} {:20} {line}{there}{problem}", found.program, server.name)
            },
        );
    }
}

fn show_offer(offer: &Offer, output: &Output) {
    let programs = offer.programs();
    let needs = if programs.is_empty() { offer.url.clone().unwrap_or_default() } else { programs.join(", ") };
    output.foreign(
        &json!({ "id": offer.id, "title": offer.title, "description": offer.description, "capabilities": offer.capabilities, "homepage": offer.homepage, "programs": programs, "url": offer.url }),
        || format!("{:20} {:8} {}", offer.id, needs, offer.description),
    );
}

fn show_fields(fields: &[Field], output: &Output) {
    for field in fields {
        output.foreign(&json!({ "field": field }), || {
            let kind = serde_json::to_value(field.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned)).unwrap_or_default();
            let marks = [(field.required, "needed"), (field.sensitive, "secret"), (field.multiple, "several")];
            let marks: Vec<&str> = marks.iter().filter(|(on, _)| *on).map(|(_, mark)| *mark).collect();
            let preset = field.default.as_ref().map(|default| format!(" (else {default})")).unwrap_or_default();
            format!(
                "  --set {}=…  {kind} {}{preset}  {}",
                field.key,
                marks.join(" "),
                if field.description.is_empty() { field.label() } else { &field.description }
            )
        });
    }
}
