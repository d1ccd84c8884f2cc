//! Servers behind an address: sign-in, sessions, and the old transport.

use std::time::Duration;

use handrail_engine::mcp::{Era, State};
use handrail_tests::servers::{Bench, eventually};
use serde_json::{Value, json};

fn echo() -> Value {
    json!([{ "name": "echo", "reply": "echo" }])
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_is_met_in_both_eras_and_over_the_old_transport() {
    let bench = Bench::new();
    let servers = [
        ("http-old", "--http", "legacy", Era::Legacy, "http"),
        ("http-new", "--http", "modern", Era::Modern, "http"),
        ("sse", "--sse", "legacy", Era::Legacy, "sse"),
        // Configured as what it is not: found out.
        ("sse-as-http", "--sse", "legacy", Era::Legacy, "http"),
    ];
    for (name, face, era, expected, kind) in servers {
        let server = bench.listening(name, face, &json!({ "era": era, "tools": echo() }));
        let view = bench.add(name, &json!({ "type": kind, "url": server.url })).await;
        assert_eq!(view.era, Some(expected), "{name}");
        let answer = bench.call(name, "echo", json!({ "to": name })).await.unwrap();
        assert_eq!(answer.to_text(), format!(r#"{{"to":"{name}"}}"#));
        bench.manager.stop(&name.into()).await.unwrap();
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_401_with_or_without_a_challenge_asks_for_a_sign_in() {
    let bench = Bench::new();
    for (name, headers) in [("challenge", json!({ "www-authenticate": "Bearer realm=\"notes\"" })), ("bare", json!({}))] {
        let rules = json!([{
            "method": "*", "status": 401, "headers": headers, "body": "who are you?", "unless_header": ["authorization", "Bearer sesame"]
        }]);
        let server = bench.listening(name, "--http", &json!({ "tools": echo(), "rules": rules }));
        let error = bench.try_add(name, &json!({ "url": server.url })).await.unwrap_err().to_string();
        assert!(matches!(bench.state(name), State::NeedsSignIn { .. }), "{name}: {:?}", bench.state(name));
        assert!(error.to_lowercase().contains("sign"), "{name}: {error}");
        // A key that is configured is enough.
        let entry = json!({ "url": server.url, "headers": { "Authorization": "Bearer sesame" } });
        let view = bench.add(name, &entry).await;
        assert_eq!(view.state, State::Connected);
        assert!(bench.call(name, "echo", json!({})).await.is_ok());
        bench.manager.stop(&name.into()).await.unwrap();
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_401_in_the_middle_asks_for_a_sign_in_too() {
    let bench = Bench::new();
    let rules = json!([{ "method": "tools/call", "skip": 1, "status": 401 }]);
    let server = bench.listening("expired", "--http", &json!({ "tools": echo(), "rules": rules }));
    let _ = bench.add("expired", &json!({ "url": server.url })).await;
    assert!(bench.call("expired", "echo", json!({})).await.is_ok());
    let error = bench.call("expired", "echo", json!({})).await.unwrap_err().to_string();
    assert!(error.to_lowercase().contains("sign"), "{error}");
    eventually("the sign-in is asked for", || matches!(bench.state("expired"), State::NeedsSignIn { .. })).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_starts_make_one_handshake_with_a_server_that_refuses_a_second() {
    let bench = Bench::new();
    let rules = json!([{ "method": "initialize", "skip": 1, "status": 400, "body": "already initialized" }]);
    let server = bench.listening("once", "--http", &json!({ "era": "legacy", "tools": echo(), "rules": rules }));
    let _ = bench.manager.paste(&json!({ "mcpServers": { "once": { "url": server.url } } }).to_string()).unwrap();
    for _ in 0..20 {
        bench.manager.start_all();
        bench.manager.start(&"once".into()).unwrap();
    }
    let _ = bench.manager.ready(&"once".into(), Duration::from_secs(60)).await.unwrap();
    assert!(bench.call("once", "echo", json!({})).await.is_ok());
    assert_eq!(server.log.received("initialize").len(), 1);
    // After a stop the refusal is the server's word, told as it is.
    bench.manager.stop(&"once".into()).await.unwrap();
    bench.manager.start(&"once".into()).unwrap();
    let error = bench.manager.ready(&"once".into(), Duration::from_secs(60)).await.unwrap_err().to_string();
    assert!(error.contains("400") || error.contains("already initialized"), "{error}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_the_server_forgot_is_opened_again() {
    let bench = Bench::new();
    let rules = json!([{ "method": "tools/call", "skip": 1, "times": 1, "status": 404 }]);
    let server = bench.listening("forgetful", "--http", &json!({ "era": "legacy", "tools": echo(), "rules": rules }));
    let _ = bench.add("forgetful", &json!({ "url": server.url })).await;
    assert!(bench.call("forgetful", "echo", json!({})).await.is_ok());
    let answer = bench.call("forgetful", "echo", json!({ "second": true })).await.unwrap();
    assert_eq!(answer.to_text(), r#"{"second":true}"#);
    assert_eq!(server.log.received("initialize").len(), 2);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_over_http_reaches_the_server_in_both_eras() {
    let bench = Bench::new();
    for era in ["legacy", "modern"] {
        let server = bench.listening(era, "--http", &json!({ "era": era, "tools": [{ "name": "wait", "hang": true }] }));
        let _ = bench.add(era, &json!({ "url": server.url })).await;
        let control = handrail_tests::servers::control();
        let cancel = control.cancel.clone();
        let (stopped, ()) = tokio::join!(bench.call_with(era, "wait", json!({}), control), async {
            eventually("the call is there", || server.log.received("tools/call").len() == 1).await;
            cancel.cancel();
        });
        assert!(matches!(stopped, Err(handrail_engine::tool::Error::Cancelled)), "{stopped:?}");
        eventually("the server noticed", || server.log.all("cancelled") == ["wait"]).await;
        assert!(bench.state(era).is_usable());
    }
    bench.close().await;
}
