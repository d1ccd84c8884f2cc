//! The arrows between the rooms point only down: every `crate::room` in `engine/src` against the order of `lib.rs`
//! and against ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Rooms that import no other room.
const GROUND: &[&str] = &["settings", "secret", "index", "tool"];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The rooms in the order in which `lib.rs` declares them.
fn rooms() -> Vec<String> {
    let text = fs::read_to_string(source().join("lib.rs")).unwrap();
    text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).map(str::to_owned).collect()
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Every room that a source text names behind `crate::`, also inside `use crate::{a, b::c}`.
fn imports(text: &str, rooms: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    // One line per statement, so that an import that was wrapped is read whole.
    let code: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.starts_with("//")).collect();
    for line in code.join(" ").split(';') {
        for (at, _) in line.match_indices("crate::") {
            let rest = line[at + "crate::".len()..].trim_start();
            if let Some(group) = rest.strip_prefix('{') {
                let mut depth = 0;
                let mut names = String::new();
                for c in group.chars() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        c if depth == 0 => names.push(c),
                        _ => {}
                    }
                }
                found.extend(names.split(',').filter_map(|name| name.trim().split("::").next()).map(str::to_owned));
            } else {
                let _ = found.insert(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
            }
        }
    }
    found.retain(|name| rooms.contains(name));
    found
}

/// Room -> the rooms it imports, tests at the end of a file left out.
fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let rooms = rooms();
    let mut sources = Vec::new();
    files(&source(), &mut sources);
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in sources {
        let relative = path.strip_prefix(source()).unwrap();
        let first = relative.components().next().unwrap().as_os_str().to_string_lossy().replace(".rs", "");
        if first == "lib" || first == "bin" {
            continue;
        }
        assert!(rooms.contains(&first), "{} belongs to no room of lib.rs", relative.display());
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let depth = relative.components().count();
        assert!(!code.contains(&"super::".repeat(depth)), "{} climbs out of its room with super", relative.display());
        let mut named = imports(code, &rooms);
        let _ = named.remove(&first);
        arrows.entry(first).or_default().extend(named);
    }
    arrows
}

#[test]
fn arrows_point_only_down() {
    let rooms = rooms();
    assert!(rooms.len() >= 17, "lib.rs declares {rooms:?}");
    let place = |room: &str| rooms.iter().position(|name| name == room).unwrap();
    let mut wrong = Vec::new();
    for (room, imported) in arrows() {
        for other in imported {
            let allowed = match room.as_str() {
                ground if GROUND.contains(&ground) => false,
                "conversation" => other == "tool",
                // The loop sees servers only as tools behind the gate.
                "turn" if other == "mcp" || other == "local" => false,
                _ => place(&other) < place(&room),
            };
            if !allowed {
                wrong.push(format!("{room} -> {other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "forbidden arrows: {wrong:?}");
}

#[test]
fn the_architecture_table_says_what_the_code_does() {
    let table = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../ARCHITECTURE.md")).unwrap();
    let mut stated: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let room = cells[0].trim_matches('`').to_owned();
        let imports =
            cells[2].split(&[' ', ','][..]).map(|name| name.trim_matches('`').to_owned()).filter(|name| !name.is_empty() && name != "–");
        let _ = stated.insert(room, imports.collect());
    }
    let arrows = arrows();
    for room in rooms() {
        let Some(stated) = stated.get(&room) else { panic!("ARCHITECTURE.md has no row for `{room}`") };
        let empty = BTreeSet::new();
        let actual = arrows.get(&room).unwrap_or(&empty);
        // The last room may name every other; all others are held to the letter, so that the table stays true.
        let holds = if room == "engine" { actual.is_subset(stated) } else { actual == stated };
        assert!(holds, "`{room}` imports {actual:?}, ARCHITECTURE.md says {stated:?}");
    }
}

#[test]
fn the_checker_sees_what_it_must_see() {
    let rooms = vec!["store".to_owned(), "turn".to_owned(), "mcp".to_owned()];
    let seen = imports("use crate::{\n    store::Store,\n    turn,\n};\nfn f() { crate::mcp::x() }\n// crate::nothing", &rooms);
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["mcp", "store", "turn"]);
}
