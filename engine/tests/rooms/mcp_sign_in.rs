//! Signing in to servers, against an MCP server and authorization servers on this machine that can misbehave.

#[path = "mcp_sign_in/world.rs"]
mod world;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use handrail_engine::approval::{self, Decision, Gate};
use handrail_engine::conversation::ConversationId;
use handrail_engine::mcp::consent::Policy;
use handrail_engine::mcp::{self, Manager, Options, ServerView, SignIn, State};
use handrail_engine::secret::{FileSecrets, Secret, Secrets as _};
use handrail_engine::store::Store;
use handrail_engine::tool::{self, Call, CallId, CallResult, Control, ServerId};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use world::{Manners, World};

/// Generous: the machine that runs this may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

struct Bench {
    folder: Arc<tempfile::TempDir>,
    store: Store,
    manager: Manager,
    gate: Gate,
    conversation: ConversationId,
    world: World,
}

fn server() -> ServerId {
    "s".into()
}

impl Bench {
    async fn new(manners: Manners) -> Self {
        Self::made(Arc::new(tempfile::tempdir().unwrap()), Store::in_memory().unwrap(), World::new(manners).await, Policy::Trust)
    }

    fn made(folder: Arc<tempfile::TempDir>, store: Store, world: World, consent: Policy) -> Self {
        let options = Options { consent, ..Options::default() };
        let manager = Manager::with(folder.path().join("mcp_config.json"), store.clone(), options);
        let conversation = store.new_conversation().unwrap().id;
        Self { folder, gate: Gate::new(store.clone()), store, manager, conversation, world }
    }

    /// Another run of the program, with the same folder and database.
    async fn again(self) -> Self {
        self.manager.shutdown(Duration::from_secs(2)).await;
        Self::made(self.folder, self.store, self.world, Policy::Trust)
    }

    fn add(&self, more: &Value) {
        let mut entry = json!({ "type": "http", "url": self.world.url(), "era": "legacy" });
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let _ = self.manager.paste(&json!({ "mcpServers": { "s": entry } }).to_string()).unwrap();
    }

    /// Adds it, and sees that it asks.
    async fn asked(&self, more: &Value) -> String {
        self.add(more);
        let error = self.manager.ready(&server(), PATIENCE).await.unwrap_err().to_string();
        assert!(matches!(self.view().state, State::NeedsSignIn { .. }), "{:?}", self.view().state);
        assert_eq!(self.view().sign_in, SignIn::Needed);
        error
    }

    async fn signed_in(&self, more: &Value) {
        let _ = self.asked(more).await;
        self.manager.sign_in(&server(), browse).await.unwrap();
        let _ = self.manager.ready(&server(), PATIENCE).await.unwrap();
    }

    fn view(&self) -> ServerView {
        self.manager.servers().into_iter().find(|view| view.id == server()).unwrap()
    }

    async fn call(&self) -> Result<CallResult, tool::Error> {
        let found = self.manager.tools();
        let tool = found.first().expect("its tool is listed");
        let (definition, cancel) = (tool.definition().clone(), CancellationToken::new());
        let call = Call { id: CallId::fresh(), tool: definition.id.clone(), alias: definition.id.name.clone(), arguments: json!({}) };
        let mut events = self.gate.subscribe();
        let deciding = async {
            loop {
                if let Ok(approval::Event::Asked(request)) = events.recv().await
                    && request.call.id == call.id
                {
                    return self.gate.decide(&call.id, Decision::AllowOnce).unwrap();
                }
            }
        };
        let (permit, ()) = tokio::join!(self.gate.admit(&call, &definition, self.conversation, &cancel), deciding);
        tool.call(permit.unwrap(), Control { cancel, timeout: PATIENCE, progress: None }).await
    }

    fn secrets(&self) -> String {
        std::fs::read_to_string(self.secrets_file()).unwrap_or_default()
    }

    fn secrets_file(&self) -> PathBuf {
        self.folder.path().join("secrets.toml")
    }
}

/// The browser of somebody who agrees at once.
fn browse(page: &str) {
    let page = page.to_owned();
    let _browser = tokio::spawn(async move { visit(&page).await });
}

/// Opens a page and follows it back; gives where that was, and what was shown there.
async fn visit(page: &str) -> (String, String) {
    let back = location(page).await;
    let shown = http().get(&back).send().await.unwrap().text().await.unwrap();
    (back, shown)
}

async fn location(page: &str) -> String {
    let response = http().get(page).send().await.unwrap();
    response.headers()["location"].to_str().unwrap().to_owned()
}

fn http() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap()
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_signs_in_once_and_stays_signed_in() {
    let bench = Bench::new(Manners::default()).await;
    let error = bench.asked(&json!({})).await;
    assert!(error.contains("sign-in"), "{error}");
    let (pages, opened) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let mut events = bench.manager.subscribe();
    let open = {
        let (pages, opened) = (pages.clone(), opened.clone());
        move |page: &str| {
            let _ = opened.fetch_add(1, Ordering::Relaxed);
            let (page, pages) = (page.to_owned(), pages.clone());
            let _browser = tokio::spawn(async move {
                let shown = visit(&page).await.1;
                pages.lock().unwrap().push(shown);
            });
        }
    };
    bench.manager.sign_in(&server(), open).await.unwrap();
    let view = bench.manager.ready(&server(), PATIENCE).await.unwrap();
    assert_eq!((view.state.clone(), view.sign_in.clone()), (State::Connected, SignIn::Done { issuer: bench.world.issuer(0) }));
    assert_eq!((bench.call().await.unwrap().to_text().as_str(), opened.load(Ordering::Relaxed)), ("done", 1));
    eventually("the page is shown", || pages.lock().unwrap().len() == 1).await;
    assert!(pages.lock().unwrap()[0].contains("You are signed in") && pages.lock().unwrap()[0].contains("close this window"));
    let mut waited = false;
    while let Ok(event) = events.try_recv() {
        waited |= matches!(event, mcp::Event::Changed(view) if view.sign_in == SignIn::Waiting);
    }
    assert!(waited, "that a browser is open was told");

    let register = &bench.world.seen(Some(0), "/register")[0];
    assert_eq!((register["application_type"].as_str(), register["token_endpoint_auth_method"].as_str()), ("native", "none"));
    let authorize = &bench.world.seen(Some(0), "/authorize")[0];
    assert!(authorize["redirect_uri"].starts_with("http://127.0.0.1:") && register["redirect_uris"].contains(&authorize["redirect_uri"]));
    assert_eq!((authorize["resource"].clone(), authorize["scope"].as_str()), (bench.world.url(), "files:read offline_access"));
    assert_eq!(bench.world.asked(0, "authorization_code").len(), 1);

    // Nothing of it is shown anywhere but among the secrets.
    assert!(bench.secrets().contains("access-") && bench.secrets().contains("refresh-"));
    assert!(!format!("{view:?}").contains("s3cret") && !format!("{:?}", bench.manager.trace(&server()).unwrap()).contains("s3cret"));

    let bench = bench.again().await;
    assert_eq!(bench.view().sign_in, SignIn::Done { issuer: bench.world.issuer(0) }, "known before it is started");
    bench.manager.start(&server()).unwrap();
    let _ = bench.manager.ready(&server(), PATIENCE).await.unwrap();
    assert!(bench.call().await.is_ok());
    assert_eq!(bench.world.seen(Some(0), "/authorize").len(), 1, "nobody was asked again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_401_without_a_word_leads_to_the_same_place_and_so_do_servers_without_metadata() {
    for (protected, metadata) in [(true, true), (false, true), (false, false)] {
        let bench = Bench::new(Manners { challenge: false, protected, metadata, ..Manners::default() }).await;
        bench.signed_in(&json!({})).await;
        assert!(bench.call().await.is_ok());
        let SignIn::Done { issuer } = bench.view().sign_in else { panic!() };
        let own = bench.world.url().trim_end_matches("/mcp").to_owned();
        assert_eq!(issuer, if protected { bench.world.issuer(0) } else { own });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_about_to_end_is_renewed_once_whoever_needs_it() {
    let bench = Bench::new(Manners { lives: (1, 3600), ..Manners::default() }).await;
    bench.signed_in(&json!({})).await;
    let calls = futures::future::join_all((0..8).map(|_| bench.call())).await;
    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
    assert_eq!(bench.world.asked(0, "refresh_token").len(), 1);
    // What came in place of it is kept: the first one is of no use any more.
    assert!(bench.secrets().contains("refresh-") && !bench.secrets().contains(&bench.world.asked(0, "refresh_token")[0]["refresh_token"]));
    let bench = bench.again().await;
    bench.manager.start(&server()).unwrap();
    let _ = bench.manager.ready(&server(), PATIENCE).await.unwrap();
    assert!(bench.call().await.is_ok());
    assert_eq!(bench.world.seen(Some(0), "/authorize").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_token_is_renewed_silently_and_without_that_somebody_is_asked() {
    let bench = Bench::new(Manners::default()).await;
    bench.signed_in(&json!({})).await;
    bench.world.take_back();
    assert!(bench.call().await.is_ok());
    assert_eq!((bench.view().state, bench.world.asked(0, "refresh_token").len()), (State::Connected, 1));

    bench.world.take_back();
    bench.world.take_back_refresh();
    let error = bench.call().await.unwrap_err().to_string();
    assert!(error.contains("sign-in"), "{error}");
    eventually("it asks", || matches!(bench.view().state, State::NeedsSignIn { .. })).await;
    assert_eq!(bench.view().sign_in, SignIn::Needed);
    // The client is still good for the next time.
    bench.manager.sign_in(&server(), browse).await.unwrap();
    let _ = bench.manager.ready(&server(), PATIENCE).await.unwrap();
    assert!(bench.call().await.is_ok());
    assert_eq!((bench.world.seen(Some(0), "/register").len(), bench.world.seen(Some(0), "/authorize").len()), (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_that_is_out_of_order_takes_nothing_away() {
    let bench = Bench::new(Manners { lives: (20, 3600), ..Manners::default() }).await;
    bench.signed_in(&json!({})).await;
    // It is due, but not over: it is used as long as no other one is to be had.
    bench.world.change(|manners| manners.broken = Some(503));
    assert!(bench.call().await.is_ok());
    assert!(!bench.world.asked(0, "refresh_token").is_empty());
    bench.world.change(|manners| manners.broken = None);
    assert!(bench.call().await.is_ok());
    bench.world.take_back();
    assert!(bench.call().await.is_ok(), "the refresh token was kept all along");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_another_question_is_not_taken() {
    let bench = Bench::new(Manners::default()).await;
    let _ = bench.asked(&json!({})).await;
    let open = |page: &str| {
        let page = page.to_owned();
        let _browser = tokio::spawn(async move {
            let back = location(&page).await;
            let state = reqwest::Url::parse(&back).unwrap().query_pairs().find(|(name, _)| name == "state").unwrap().1.into_owned();
            let forged = http().get(back.replace(&state, "forged")).send().await.unwrap();
            assert_eq!(forged.status(), 400);
            assert!(http().get(&back).send().await.unwrap().status().is_success());
        });
    };
    bench.manager.sign_in(&server(), open).await.unwrap();
    let _ = bench.manager.ready(&server(), PATIENCE).await.unwrap();
    assert_eq!(bench.world.asked(0, "authorization_code").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_from_another_issuer_or_from_none_is_not_used() {
    for (says_iss, iss) in [(true, "https://evil.test"), (false, "https://evil.test"), (true, "")] {
        let bench = Bench::new(Manners { says_iss, iss: Some(iss), ..Manners::default() }).await;
        let _ = bench.asked(&json!({})).await;
        let error = bench.manager.sign_in(&server(), browse).await.unwrap_err().to_string();
        assert!(error.contains("nothing of it was used"), "{error}");
        assert!(bench.world.asked(0, "authorization_code").is_empty());
        assert_eq!(bench.view().sign_in, SignIn::Needed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_of_somebody_else_and_issuers_without_pkce_are_refused_before_a_browser_opens() {
    let foreign = Manners { resource: Some("https://bank.test/mcp".to_owned()), ..Manners::default() };
    for (manners, words) in [(foreign, "bank.test"), (Manners { pkce: false, ..Manners::default() }, "PKCE")] {
        let bench = Bench::new(manners).await;
        let _ = bench.asked(&json!({})).await;
        let error = bench.manager.sign_in(&server(), |page| panic!("{page}")).await.unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("'s'"), "{error}");
        assert!(bench.world.seen(Some(0), "/register").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_issuer_gets_nothing_that_the_first_one_gave() {
    let bench = Bench::new(Manners::default()).await;
    bench.signed_in(&json!({})).await;
    bench.world.change(|manners| manners.issuer = 1);
    let _ = bench.call().await.unwrap_err();
    eventually("it asks", || matches!(bench.view().state, State::NeedsSignIn { .. })).await;
    bench.manager.sign_in(&server(), browse).await.unwrap();
    let view = bench.manager.ready(&server(), PATIENCE).await.unwrap();
    assert_eq!(view.sign_in, SignIn::Done { issuer: bench.world.issuer(1) });
    assert!(bench.call().await.is_ok());
    assert_eq!(bench.world.seen(Some(1), "/register").len(), 1, "registered anew");
    let first = &bench.world.seen(Some(0), "/authorize")[0]["client_id"];
    assert!(!bench.world.heard(1, first) && bench.world.asked(1, "refresh_token").is_empty());
    assert!(!bench.secrets().contains(first));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_from_the_configuration_is_used_with_its_secret_and_with_one_issuer_only() {
    let bench = Bench::new(Manners { methods: &["client_secret_basic"], ..Manners::default() }).await;
    let secrets = FileSecrets::new(bench.secrets_file());
    let oauth = json!({ "oauth": { "clientId": "me", "clientSecret": "${secret:APP}", "scopes": "extra" } });
    let _ = bench.asked(&oauth).await;
    let error = bench.manager.sign_in(&server(), |page| panic!("{page}")).await.unwrap_err().to_string();
    assert!(error.contains("secret set APP"), "{error}");
    secrets.set("APP", &Secret::new("the-s3cret")).unwrap();
    bench.manager.sign_in(&server(), browse).await.unwrap();
    let _ = bench.manager.ready(&server(), PATIENCE).await.unwrap();
    let asked = &bench.world.asked(0, "authorization_code")[0];
    assert_eq!(asked["authorization"], "Basic bWU6dGhlLXMzY3JldA==");
    assert!(!asked.contains_key("client_secret") && bench.world.seen(Some(0), "/register").is_empty());
    assert_eq!(bench.world.seen(Some(0), "/authorize")[0]["scope"], "files:read extra offline_access");

    bench.world.change(|manners| manners.issuer = 1);
    let error = bench.manager.sign_in(&server(), |page| panic!("{page}")).await.unwrap_err().to_string();
    assert!(error.contains(&bench.world.issuer(1)) && !error.contains("s3cret"), "{error}");
    bench.manager.sign_out(&server()).await.unwrap();
    bench.manager.sign_in(&server(), browse).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn more_rights_are_asked_for_on_top_and_not_for_ever() {
    let bench = Bench::new(Manners { needs: Some("files:write"), ..Manners::default() }).await;
    bench.signed_in(&json!({})).await;
    let error = bench.call().await.unwrap_err().to_string();
    assert!(error.contains("more rights"), "{error}");
    assert_eq!((bench.view().state, bench.view().sign_in), (State::Connected, SignIn::Needed), "everything else goes on");
    bench.manager.sign_in(&server(), browse).await.unwrap();
    assert_eq!(bench.world.seen(Some(0), "/authorize")[1]["scope"], "files:read offline_access files:write");
    assert_eq!(bench.world.seen(Some(0), "/register").len(), 1);
    assert!(bench.call().await.is_ok());
    assert!(matches!(bench.view().sign_in, SignIn::Done { .. }));

    // A server that is never content.
    bench.world.change(|manners| (manners.needs, manners.grants) = (Some("admin"), false));
    for _ in 0..3 {
        let _ = bench.call().await.unwrap_err();
        bench.manager.sign_in(&server(), browse).await.unwrap();
    }
    let _ = bench.call().await.unwrap_err();
    let error = bench.manager.sign_in(&server(), |page| panic!("{page}")).await.unwrap_err().to_string();
    assert!(error.contains("3 times"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_out_forgets_and_tells_the_issuer() {
    let bench = Bench::new(Manners::default()).await;
    bench.signed_in(&json!({})).await;
    bench.manager.sign_out(&server()).await.unwrap();
    assert_eq!((bench.view().state, bench.view().sign_in), (State::Stopped, SignIn::NotNeeded));
    let given_back: Vec<String> = bench.world.seen(Some(0), "/revoke").iter().map(|fields| fields["token_type_hint"].clone()).collect();
    assert_eq!(given_back, ["refresh_token", "access_token"]);
    assert!(!bench.secrets().contains("s3cret"));
    bench.manager.start(&server()).unwrap();
    let _ = bench.manager.ready(&server(), PATIENCE).await.unwrap_err();
    assert!(matches!(bench.view().state, State::NeedsSignIn { .. }));

    // Also one that was not started in this run; an issuer that is away does not keep anybody signed in.
    bench.manager.sign_in(&server(), browse).await.unwrap();
    let bench = bench.again().await;
    bench.world.change(|manners| manners.broken = Some(500));
    bench.manager.sign_out(&server()).await.unwrap();
    assert!(!bench.secrets().contains("s3cret"));
    assert_eq!(bench.world.seen(Some(0), "/revoke").len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_removed_or_moved_takes_no_tokens_along() {
    let bench = Bench::new(Manners::default()).await;
    bench.signed_in(&json!({})).await;
    let elsewhere = World::new(Manners::default()).await;
    bench.manager.set_entry_text(&server(), &json!({ "url": elsewhere.url(), "era": "legacy" }).to_string()).unwrap();
    let _ = bench.manager.ready(&server(), PATIENCE).await.unwrap_err();
    assert!(matches!(bench.view().state, State::NeedsSignIn { .. }));
    assert!(elsewhere.keys().iter().all(String::is_empty), "{:?}", elsewhere.keys());
    // Back again, the old ones are still good.
    bench.manager.set_entry_text(&server(), &json!({ "url": bench.world.url(), "era": "legacy" }).to_string()).unwrap();
    let _ = bench.manager.ready(&server(), PATIENCE).await.unwrap();

    bench.manager.remove(&server()).await.unwrap();
    assert!(!bench.secrets().contains("s3cret"));
    let _ = bench.asked(&json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_signs_in_to_what_nobody_agreed_to() {
    let world = World::new(Manners::default()).await;
    let bench = Bench::made(Arc::new(tempfile::tempdir().unwrap()), Store::in_memory().unwrap(), world, Policy::Ask);
    bench.add(&json!({}));
    let error = bench.manager.sign_in(&server(), |page| panic!("{page}")).await.unwrap_err().to_string();
    assert!(error.contains("agreed"), "{error}");
    assert!(bench.world.seen(None, "").is_empty() && bench.world.seen(Some(0), "").is_empty());
    // A program has nothing to sign in to, and what is not there neither.
    let bench = Bench::new(Manners::default()).await;
    let _ = bench.manager.paste(r#"{"mcpServers": {"s": {"command": "x", "active": false}}}"#).unwrap();
    let error = bench.manager.sign_in(&server(), |page| panic!("{page}")).await.unwrap_err().to_string();
    assert!(error.contains("program"), "{error}");
    assert!(matches!(bench.manager.sign_in(&"none".into(), |_| {}).await, Err(mcp::Error::Unknown(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_no_is_told_in_words_and_changes_nothing() {
    let bench = Bench::new(Manners { denies: true, ..Manners::default() }).await;
    let _ = bench.asked(&json!({})).await;
    let shown = Arc::new(Mutex::new(None));
    let open = {
        let shown = shown.clone();
        move |page: &str| {
            let (page, shown) = (page.to_owned(), shown.clone());
            let _browser = tokio::spawn(async move { *shown.lock().unwrap() = Some(visit(&page).await.1) });
        }
    };
    let error = bench.manager.sign_in(&server(), open).await.unwrap_err().to_string();
    assert!(error.contains("it was not allowed: <b>not today</b> (access_denied)"), "{error}");
    eventually("the page is shown", || shown.lock().unwrap().is_some()).await;
    let page = shown.lock().unwrap().take().unwrap();
    assert!(page.contains("You are not signed in") && page.contains("&lt;b&gt;") && !page.contains("<b>"), "{page}");
    assert!(matches!(bench.view().state, State::NeedsSignIn { .. }) && bench.view().sign_in == SignIn::Needed);

    // An issuer that repeats what it was sent does not get that into what is told.
    bench.world.change(|manners| (manners.denies, manners.broken, manners.blabs) = (false, Some(400), true));
    let error = bench.manager.sign_in(&server(), browse).await.unwrap_err().to_string();
    assert!(error.contains("HTTP 400") && !error.contains("s3cret"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_that_nobody_waits_for_is_over_at_once() {
    let bench = Bench::new(Manners::default()).await;
    let _ = bench.asked(&json!({})).await;
    let page = Arc::new(Mutex::new(String::new()));
    let (manager, seen) = (bench.manager.clone(), page.clone());
    let signing = tokio::spawn(async move { manager.sign_in(&server(), |page| page.clone_into(&mut seen.lock().unwrap())).await });
    eventually("the browser is open", || !page.lock().unwrap().is_empty()).await;
    assert_eq!(bench.view().sign_in, SignIn::Waiting);
    let second = {
        let manager = bench.manager.clone();
        tokio::spawn(async move { manager.sign_in(&server(), |_| {}).await })
    };
    let address = page.lock().unwrap().clone();
    let back = location(&address).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    signing.abort();
    let error = second.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("given up"), "{error}");
    assert!(http().get(&back).send().await.is_err_and(|error| error.is_connect()), "the listener is closed");
    assert_eq!(bench.view().sign_in, SignIn::Needed);
    // Signing out ends one as well.
    let manager = bench.manager.clone();
    let opened = Arc::new(AtomicUsize::new(0));
    let count = opened.clone();
    let signing = tokio::spawn(async move {
        manager
            .sign_in(&server(), |_| {
                let _ = count.fetch_add(1, Ordering::Relaxed);
            })
            .await
    });
    eventually("the browser is open", || opened.load(Ordering::Relaxed) == 1).await;
    bench.manager.sign_out(&server()).await.unwrap();
    assert!(signing.await.unwrap().unwrap_err().to_string().contains("given up"));
    bench.manager.sign_in(&server(), browse).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_race_are_one_and_a_second_click_opens_the_page_again() {
    let bench = Bench::new(Manners::default()).await;
    let _ = bench.asked(&json!({})).await;
    let server = server();
    let opened = Arc::new(Mutex::new(Vec::<String>::new()));
    let open = |page: &str| {
        opened.lock().unwrap().push(page.to_owned());
        browse(page);
    };
    let (one, other) = tokio::join!(bench.manager.sign_in(&server, open), bench.manager.sign_in(&server, open));
    assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
    assert_eq!((opened.lock().unwrap().len(), bench.world.seen(Some(0), "/register").len()), (1, 1));

    let note = |page: &str| opened.lock().unwrap().push(page.to_owned());
    let again = async {
        eventually("it is open", || opened.lock().unwrap().len() == 2).await;
        bench.manager.sign_in(&server, open).await
    };
    let (one, other) = tokio::join!(bench.manager.sign_in(&server, note), again);
    assert!(one.is_ok() && other.is_ok());
    let opened = opened.lock().unwrap();
    assert_eq!(opened[1], opened[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_can_be_replaced_by_a_sign_in() {
    let bench = Bench::new(Manners::default()).await;
    let error = bench.asked(&json!({ "headers": { "Authorization": "Bearer old-key" } })).await;
    assert!(error.contains("key"), "{error}");
    bench.manager.sign_in(&server(), browse).await.unwrap();
    let _ = bench.manager.ready(&server(), PATIENCE).await.unwrap();
    assert!(bench.call().await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_signs_in_for_itself_and_again_when_its_token_is_refused() {
    let bench = Bench::new(Manners { methods: &["client_secret_post"], pkce: false, ..Manners::default() }).await;
    FileSecrets::new(bench.secrets_file()).set("APP", &Secret::new("the-s3cret")).unwrap();
    let _ = bench.asked(&json!({ "oauth": { "grant": "client_credentials", "clientId": "me", "clientSecret": "${secret:APP}" } })).await;
    bench.manager.sign_in(&server(), |page| panic!("{page}")).await.unwrap();
    let _ = bench.manager.ready(&server(), PATIENCE).await.unwrap();
    assert!(bench.call().await.is_ok());
    bench.world.take_back();
    assert!(bench.call().await.is_ok());
    let asked = bench.world.asked(0, "client_credentials");
    assert_eq!((asked.len(), asked[0]["client_secret"].as_str(), asked[1]["scope"].as_str()), (2, "the-s3cret", "files:read"));
    assert_eq!(asked[0]["resource"], bench.world.url());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_that_cannot_be_renewed_asks_again() {
    let bench = Bench::new(Manners { lives: (1, 1), refreshes: false, ..Manners::default() }).await;
    let _ = bench.asked(&json!({})).await;
    bench.manager.sign_in(&server(), browse).await.unwrap();
    // Whatever the server makes of the token until then: it is over, and no other one is given.
    eventually("it asks", || matches!(bench.view().state, State::NeedsSignIn { .. })).await;
    assert_eq!(bench.view().sign_in, SignIn::Needed);
    assert_eq!(bench.world.asked(0, "refresh_token").len(), 1, "a refusal is taken as one");
    assert!(!bench.secrets().contains("s3cret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_runs_of_the_program_share_what_was_renewed() {
    let bench = Bench::new(Manners::default()).await;
    bench.signed_in(&json!({})).await;
    let other = Bench::made(bench.folder.clone(), bench.store.clone(), bench.world.clone(), Policy::Trust);
    other.manager.start(&server()).unwrap();
    let _ = other.manager.ready(&server(), PATIENCE).await.unwrap();
    bench.world.take_back();
    assert!(bench.call().await.is_ok());
    // The refresh token that this one knows was used up by the other.
    assert!(other.call().await.is_ok());
    assert_eq!(bench.world.asked(0, "refresh_token").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_signs_in_and_out() {
    use tokio::io::{AsyncBufReadExt as _, BufReader};
    let bench = Bench::new(Manners::default()).await;
    bench.add(&json!({ "active": false }));
    let cli = |arguments: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_handrail-cli"));
        let _ = command.arg("--data-dir").arg(bench.folder.path()).arg("--json").args(arguments).kill_on_drop(true);
        let _ = command.env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent");
        let _ = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let mut signing = cli(&["servers", "sign-in", "s", "--no-browser", "--yes"]);
    let mut lines = BufReader::new(signing.stderr.take().unwrap()).lines();
    let page = loop {
        let line = lines.next_line().await.unwrap().expect("the page is printed");
        if line.starts_with("http://") {
            break line;
        }
    };
    let _ = visit(&page).await;
    let drained = tokio::spawn(async move { while lines.next_line().await.is_ok_and(|line| line.is_some()) {} });
    let ended = signing.wait_with_output().await.unwrap();
    let said: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert!(ended.status.success(), "{said}");
    assert_eq!(
        (said["signed_in"].clone(), said["issuer"].clone(), said["tools"].clone()),
        (json!(true), json!(bench.world.issuer(0)), json!(1))
    );
    drained.await.unwrap();
    let checked = cli(&["servers", "check", "s"]).wait_with_output().await.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    assert!(cli(&["servers", "sign-out", "s"]).wait_with_output().await.unwrap().status.success());
    assert_eq!(bench.world.seen(Some(0), "/revoke").len(), 2);
    let checked = cli(&["servers", "check", "s"]).wait_with_output().await.unwrap();
    assert!(!checked.status.success() && !bench.secrets().contains("s3cret"));
}
