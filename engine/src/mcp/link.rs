//! Links `handrail://mcp/install?…`: read and bounded; they only ever become a preview.
//!
//! What is understood: `name` with `config` (JSON, or base64 of it), with `url`, or with `command` and any number of
//! `args`; or the whole query as JSON with a `name` in it, as VS Code writes it.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};

use super::config::Error;

/// Longest link.
const LONGEST: usize = 64 * 1024;
/// Most parameters.
const MOST: usize = 256;
/// The programs whose links mean the same.
const SCHEMES: [&str; 5] = ["handrail", "cursor", "vscode", "vscode-insiders", "lmstudio"];

/// The text that a link stands for, as somebody would paste it: it goes through
/// [`Manager::preview`](super::Manager::preview) with [`Origin::Link`](super::consent::Origin::Link).
pub fn read(link: &str) -> Result<String, Error> {
    let link = link.trim();
    if link.len() > LONGEST {
        return Err(wrong(None, &format!("it is longer than {LONGEST} bytes")));
    }
    let query = query(link)?;
    let entry = match decoded(query) {
        // The whole query is the entry.
        Some(text) if text.trim_start().starts_with('{') => named(&text)?,
        _ => of_parameters(query)?,
    };
    Ok(json!({ "mcpServers": Value::Object(entry) }).to_string())
}

/// Whether a text is meant to be such a link.
#[must_use]
pub fn is_link(text: &str) -> bool {
    text.trim_start().get(.."handrail:".len()).is_some_and(|start| start.eq_ignore_ascii_case("handrail:"))
}

fn wrong(field: Option<&str>, reason: &str) -> Error {
    Error::Field { server: "the link".to_owned(), field: field.map(str::to_owned), reason: reason.to_owned() }
}

/// What is behind the question mark of an install link.
fn query(link: &str) -> Result<&str, Error> {
    const SHAPE: &str = "expected handrail://mcp/install?name=…&config=…";
    let (scheme, rest) = link.split_once(':').ok_or_else(|| wrong(None, SHAPE))?;
    if !SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err(wrong(None, &format!("\"{}:\" is none of ours; {SHAPE}", scheme.chars().take(40).collect::<String>())));
    }
    let (path, query) = rest.split_once('?').ok_or_else(|| wrong(None, SHAPE))?;
    let path: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match path.as_slice() {
        ["mcp", "install"] | [_, "mcp", "install"] | ["mcp" | "add_mcp"] => {}
        _ => return Err(wrong(None, &format!("it asks for something else than \"mcp/install\"; {SHAPE}"))),
    }
    // A part behind a number sign is for pages.
    Ok(query.split('#').next().unwrap_or(query))
}

/// `%41` as `A`. None where that gives no text.
fn decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match digits.and_then(|digits| Some((char::from(digits[0]).to_digit(16)?, char::from(digits[1]).to_digit(16)?))) {
            Some((high, low)) => {
                out.push(u8::try_from(high * 16 + low).ok()?);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).ok()
}

fn of_parameters(query: &str) -> Result<Map<String, Value>, Error> {
    let mut name = None;
    let mut whole = None;
    let mut entry = Map::new();
    for (number, parameter) in query.split('&').filter(|parameter| !parameter.is_empty()).enumerate() {
        if number >= MOST {
            return Err(wrong(None, &format!("it has more than {MOST} parameters")));
        }
        let (key, raw) = parameter.split_once('=').unwrap_or((parameter, ""));
        // The key is a word; in the value a plus sign belongs to base64, and everywhere else it means a blank.
        let raw = if key == "config" { raw.to_owned() } else { raw.replace('+', " ") };
        let value = decoded(&raw).ok_or_else(|| wrong(Some(key), &format!("\"{}\" is no text", shown(key))))?;
        match key {
            "name" | "id" => name = Some(value),
            "config" => whole = Some(value),
            "command" | "url" | "type" | "description" | "cwd" => drop(entry.insert(key.to_owned(), Value::String(value))),
            "args" | "arg" => append(&mut entry, &value)?,
            "env" | "headers" => pairs(&mut entry, key, &value)?,
            // Programs hang all sorts of things onto links.
            _ => {}
        }
    }
    let name = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    if let Some(text) = whole {
        if !entry.is_empty() {
            return Err(wrong(Some("config"), "it has \"config\" and other parameters for the same; one of them must go"));
        }
        return of_config(&text, name);
    }
    if entry.is_empty() {
        return Err(wrong(None, "it says neither \"config\" nor \"command\" nor \"url\""));
    }
    let name = name.ok_or_else(|| wrong(Some("name"), "it has no \"name\""))?;
    Ok(Map::from_iter([(name, Value::Object(entry))]))
}

fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(40).collect()
}

fn append(entry: &mut Map<String, Value>, value: &str) -> Result<(), Error> {
    let more: Vec<Value> = if value.trim_start().starts_with('[') {
        serde_json::from_str(value).map_err(|error| wrong(Some("args"), &format!("\"args\" is no list: {error}")))?
    } else {
        vec![Value::String(value.to_owned())]
    };
    if let Value::Array(args) = entry.entry("args").or_insert_with(|| Value::Array(Vec::new())) {
        args.extend(more);
    }
    Ok(())
}

/// `NAME=VALUE`, or an object.
fn pairs(entry: &mut Map<String, Value>, key: &str, value: &str) -> Result<(), Error> {
    let more: Map<String, Value> = if value.trim_start().starts_with('{') {
        serde_json::from_str(value).map_err(|error| wrong(Some(key), &format!("\"{key}\" is no object: {error}")))?
    } else {
        let (name, value) =
            value.split_once('=').ok_or_else(|| wrong(Some(key), &format!("\"{key}\" must be NAME=VALUE or an object {{ … }}")))?;
        Map::from_iter([(name.to_owned(), Value::String(value.to_owned()))])
    };
    if let Value::Object(found) = entry.entry(key.to_owned()).or_insert_with(|| Value::Object(Map::new())) {
        found.extend(more);
    }
    Ok(())
}

/// The `config` parameter: JSON, or base64 of JSON; one entry, or named ones.
fn of_config(text: &str, name: Option<String>) -> Result<Map<String, Value>, Error> {
    let text = text.trim();
    let json = if text.starts_with('{') { text.to_owned() } else { from_base64(text)? };
    let value: Map<String, Value> = serde_json::from_str(json.trim_start_matches('\u{feff}'))
        .map_err(|error| wrong(Some("config"), &format!("\"config\" is no object: {error}")))?;
    match name {
        Some(name) if is_entry(&value) => Ok(Map::from_iter([(name, Value::Object(value))])),
        None if is_entry(&value) => named(&json),
        _ => {
            let inner = value.get("mcpServers").or_else(|| value.get("servers")).and_then(Value::as_object).cloned();
            Ok(inner.unwrap_or(value))
        }
    }
}

fn is_entry(value: &Map<String, Value>) -> bool {
    ["command", "url", "serverUrl", "httpUrl"].iter().any(|key| value.get(*key).is_some_and(Value::is_string))
}

fn from_base64(text: &str) -> Result<String, Error> {
    // A plus sign that somebody decoded as a blank.
    let text = text.replace(' ', "+");
    let bytes = [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD].iter().find_map(|kind| kind.decode(&text).ok());
    let bytes = bytes.ok_or_else(|| wrong(Some("config"), "\"config\" is neither JSON nor base64"))?;
    String::from_utf8(bytes).map_err(|_| wrong(Some("config"), "\"config\" is base64 of something that is no text"))
}

/// An entry that carries its name.
fn named(text: &str) -> Result<Map<String, Value>, Error> {
    let mut entry: Map<String, Value> = serde_json::from_str(text).map_err(|error| wrong(None, &format!("it holds no JSON: {error}")))?;
    match entry.shift_remove("name") {
        Some(Value::String(name)) if !name.trim().is_empty() => Ok(Map::from_iter([(name.trim().to_owned(), Value::Object(entry))])),
        _ => Err(wrong(Some("name"), "it has no \"name\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::pasted;
    use super::*;

    fn servers(link: &str) -> Value {
        let text = read(link).unwrap_or_else(|error| panic!("{link}: {error}"));
        Value::Object(pasted(&text).unwrap().into_iter().collect())
    }

    fn encoded(text: &str) -> String {
        text.bytes().map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
    }

    #[test]
    fn every_shape_gives_the_same_server() {
        let entry = json!({"command": "npx", "args": ["-y", "pkg>?~"]});
        let text = entry.to_string();
        let wanted = json!({"a b": entry});
        let mut whole = entry.clone();
        whole["name"] = json!("a b");
        for link in [
            format!("handrail://mcp/install?name=a%20b&config={}", encoded(&text)),
            format!("handrail://mcp/install?name=a+b&config={}", STANDARD.encode(&text)),
            format!("handrail://mcp/install?name=a+b&config={}", encoded(&STANDARD.encode(&text))),
            format!("handrail://mcp/install?name=a+b&config={}", URL_SAFE_NO_PAD.encode(&text)),
            format!("HANDRAIL://mcp/install/?name=a+b&config={}#x", encoded(&text)),
            format!("cursor://anysphere.cursor-deeplink/mcp/install?name=a%20b&config={}", STANDARD.encode(&text)),
            format!("vscode:mcp/install?{}", encoded(&whole.to_string())),
            format!("handrail://mcp/install?{}", encoded(&whole.to_string())),
            format!("handrail://mcp/install?config={}", STANDARD.encode(whole.to_string())),
            format!("handrail://mcp/install?name=x&config={}", STANDARD.encode(json!({"mcpServers": wanted}).to_string())),
            format!("handrail://mcp/install?name=a+b&command=npx&args=-y&args={}", encoded("pkg>?~")),
            format!("handrail://mcp/install?name=a+b&command=npx&args={}&utm=x", encoded("[\"-y\", \"pkg>?~\"]")),
        ] {
            assert_eq!(servers(&link), wanted, "{link}");
        }
        let link = "handrail://mcp/install?name=w&url=https%3A%2F%2Fh%2Fmcp&headers=X-Key%3D1&env=%7B%7D";
        assert_eq!(servers(link), json!({"w": {"url": "https://h/mcp", "headers": {"X-Key": "1"}, "env": {}}}));
    }

    #[test]
    fn what_is_no_install_link_is_refused() {
        for (link, wanted) in [
            ("", "expected"),
            ("https://mcp/install?name=a&url=https://h", "none of ours"),
            ("javascript:mcp/install?x", "none of ours"),
            ("handrail://mcp/install", "expected"),
            ("handrail://mcp/remove?name=a", "something else"),
            ("handrail://mcp/install?name=a", "neither"),
            ("handrail://mcp/install?url=https://h", "\"name\""),
            ("handrail://mcp/install?name=+&url=https://h", "\"name\""),
            ("handrail://mcp/install?name=a&config=%21%21", "base64"),
            ("handrail://mcp/install?name=a&config=AAAA", "object"),
            ("handrail://mcp/install?name=a&config=%7B%7D&url=https://h", "one of them"),
            ("handrail://mcp/install?name=%FF&url=https://h", "no text"),
            ("handrail://mcp/install?%7B%22command%22%3A%22x%22%7D", "\"name\""),
            ("handrail://mcp/install?name=a&command=x&env=A", "NAME=VALUE"),
        ] {
            let reason = read(link).unwrap_err().to_string();
            assert!(reason.contains(wanted), "{link}: {reason}");
        }
        assert!(read(&format!("handrail://mcp/install?name=a&url=https://h/{}", "x".repeat(LONGEST))).is_err());
        assert!(read(&format!("handrail://mcp/install?name=a{}", "&args=x".repeat(300))).is_err());
        assert!(is_link(" handrail://x") && is_link("HANDRAIL:x") && !is_link("hand") && !is_link("https://handrail:"));
    }

    proptest::proptest! {
        #[test]
        fn no_link_breaks_the_reader(text in "\\PC{0,60}", query in "[a-z=&%0-9A-F{}\":+#\\[\\],/]{0,80}") {
            for link in [text.clone(), format!("handrail:{text}"), format!("handrail://mcp/install?{query}"), format!("handrail://mcp/install?name=a&config={query}")] {
                if let Ok(paste) = read(&link) {
                    let _ = pasted(&paste);
                }
                let _ = is_link(&link);
            }
        }
    }
}
