//! Package runners: `bun x` in place of `npx` and `uv tool run` in place of `uvx`, where bun or uv came with us or are
//! on the system. They start servers faster, and on machines without Node.js or with a broken one at all.

use std::path::PathBuf;

use super::search::Places;

/// A program with its arguments, ready to be started.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) args: Vec<String>,
    /// The runner that was configured, where this is another one in its place.
    pub(super) instead_of: Option<&'static str>,
}

/// What is started for a command. With `as_configured` no runner is replaced.
pub(super) fn program(command: &str, args: &[String], places: &Places, as_configured: bool) -> Result<Program, String> {
    let replaced = if as_configured { None } else { replacement(command, args, places) };
    match replaced {
        Some(program) => Ok(program),
        None => Ok(Program { path: places.find(command)?, args: args.to_vec(), instead_of: None }),
    }
}

/// Whether another runner may be started in place of this command.
fn may_be_replaced(command: &str) -> bool {
    matches!(command, "npx" | "npx.cmd" | "npx.exe" | "uvx" | "uvx.exe")
}

/// The runner in place of the configured one. A runner that was given with its folder was chosen on purpose.
fn replacement(command: &str, args: &[String], places: &Places) -> Option<Program> {
    if !may_be_replaced(command) {
        return None;
    }
    match command.split('.').next()? {
        "npx" => {
            let args = bun_arguments(args, places.get("node").is_some())?;
            Some(Program { path: places.bundled("bun")?, args, instead_of: Some("npx") })
        }
        // `uvx` is another name for it: every argument means the same.
        "uvx" => {
            let args = ["tool", "run"].into_iter().map(str::to_owned).chain(args.iter().cloned()).collect();
            Some(Program { path: places.bundled("uv")?, args, instead_of: Some("uvx") })
        }
        _ => None,
    }
}

/// The arguments of `npx` for `bun x`; none where it has no equal, such as `-c`.
fn bun_arguments(args: &[String], has_node: bool) -> Option<Vec<String>> {
    let mut rest = args;
    // bun asks nothing that "yes" would have to answer.
    while let [first, others @ ..] = rest {
        match first.as_str() {
            "-y" | "--yes" | "-q" | "--quiet" => rest = others,
            "--" => {
                rest = others;
                break;
            }
            // `-p PACKAGE NAME` where the package is named like its program is the usual way to write `PACKAGE`.
            "-p" | "--package" => match others {
                [package, program, arguments @ ..] if bare(package) == program => {
                    let program = package.clone();
                    return packaged(program, arguments, has_node);
                }
                _ => return None,
            },
            option if option.starts_with('-') => return None,
            _ => break,
        }
    }
    let (package, arguments) = rest.split_first()?;
    packaged(package.clone(), arguments, has_node)
}

fn packaged(package: String, arguments: &[String], has_node: bool) -> Option<Vec<String>> {
    // Folders, archives and repositories are npx's own business.
    let from_registry = !package.is_empty() && !package.starts_with(['-', '.', '/', '~']) && !package.contains([':', '\\', ' ']);
    let slashes = package.matches('/').count();
    if !from_registry || slashes > 1 || (slashes == 1 && !package.starts_with('@')) || package.ends_with(".tgz") {
        return None;
    }
    let mut args = vec!["x".to_owned()];
    if !has_node {
        // The program's first line names node; without one bun has to run it itself.
        args.push("--bun".to_owned());
    }
    args.push(package);
    args.extend(arguments.iter().cloned());
    Some(args)
}

/// The package's name without its version.
fn bare(package: &str) -> &str {
    match package.rfind('@') {
        Some(at) if at > 0 => &package[..at],
        _ => package,
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn bun(args: &[&str]) -> Option<String> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        bun_arguments(&args, true).map(|args| args.join(" "))
    }

    #[test]
    fn npx_arguments_are_translated_or_left_to_npx() {
        assert_eq!(bun(&["-y", "@scope/server@1.2", "-y", "--", "/data"]).unwrap(), "x @scope/server@1.2 -y -- /data");
        assert_eq!(bun(&["--yes", "--", "server"]).unwrap(), "x server");
        assert_eq!(bun(&["-y", "-p", "server@2", "server", "--port", "1"]).unwrap(), "x server@2 --port 1");
        for left in [
            &["-y"][..],
            &[],
            &["-c", "server"],
            &["-y", "-p", "package", "program"],
            &["--package=package", "program"],
            &["--no-install", "server"],
            &["github:user/server"],
            &["user/server"],
            &["./server"],
            &["https://host/server.tgz"],
            &["server.tgz"],
        ] {
            assert_eq!(bun(left), None, "{left:?}");
        }
        assert_eq!(bun_arguments(&["server".to_owned()], false).unwrap(), ["x", "--bun", "server"]);
    }

    #[test]
    fn a_runner_is_replaced_where_the_other_is_there_and_not_when_it_was_chosen() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let (bun, uv, npx) = (put("bun"), put("uv"), put("npx"));
        let path = BTreeMap::from([("PATH".to_owned(), folder.path().display().to_string())]);
        let places = Places::new(&path, None, None);
        let args = ["-y".to_owned(), "server".to_owned()];
        let found = program("npx", &args, &places, false).unwrap();
        assert_eq!((&found.path, found.instead_of), (&bun, Some("npx")));
        assert_eq!(found.args.last().unwrap(), "server");
        let found = program("uvx", &args[1..], &places, false).unwrap();
        assert_eq!((found.path, found.args, found.instead_of), (uv, ["tool", "run", "server"].map(str::to_owned).to_vec(), Some("uvx")));
        for (command, as_configured) in [("npx", true), (npx.to_str().unwrap(), false)] {
            let found = program(command, &args, &places, as_configured).unwrap();
            assert_eq!((&found.path, &found.args[..], found.instead_of), (&npx, &args[..], None));
        }
        let github = ["github:user/server".to_owned()];
        assert_eq!(program("npx", &github, &places, false).unwrap().path, npx);
    }
}
