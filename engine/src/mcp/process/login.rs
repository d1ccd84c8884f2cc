//! The search path of the person's login shell. A program started from a desktop has the bare system path only; nvm,
//! asdf, homebrew and the like put theirs in place in the shell's start files.

use std::ffi::OsString;

/// The search path as the login shell has it; asked once. None where we were started from a terminal, and so have it
/// already, or where the shell did not tell.
pub(super) async fn search_path() -> Option<OsString> {
    #[cfg(unix)]
    {
        unix::FOUND.get_or_init(unix::ask).await.clone()
    }
    // The desktop of Windows has the person's path itself.
    #[cfg(not(unix))]
    {
        std::future::ready(None).await
    }
}

#[cfg(unix)]
mod unix {
    use std::ffi::{OsStr, OsString};
    use std::io::IsTerminal as _;
    use std::os::unix::ffi::OsStrExt as _;
    use std::process::Stdio;
    use std::time::Duration;

    use process_wrap::tokio::{CommandWrap, ProcessGroup};
    use tokio::io::AsyncReadExt as _;
    use tokio::process::Command;
    use tokio::sync::OnceCell;

    /// How long the shell may take in all (fixed); some people's start files do a lot.
    const LIMIT: Duration = Duration::from_secs(3);
    /// How much it may print (fixed).
    const OUTPUT: u64 = 256 * 1024;

    pub(super) static FOUND: OnceCell<Option<OsString>> = OnceCell::const_new();

    pub(super) async fn ask() -> Option<OsString> {
        if std::io::stdin().is_terminal() || std::io::stderr().is_terminal() {
            return None;
        }
        let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty())?;
        // nvm and others are set up for interactive shells only, and not every shell can be one without a terminal.
        for options in [&["-l", "-i"][..], &["-l"]] {
            match tokio::time::timeout(LIMIT / 2, of_shell(&shell, options)).await {
                Ok(Some(path)) => return Some(path),
                Ok(None) => {}
                Err(_) => tracing::info!(shell = %shell.display(), ?options, "the login shell did not tell its search path in time"),
            }
        }
        None
    }

    /// Runs the shell; it and what it started are killed with this future, and in any case after it has answered.
    pub(super) async fn of_shell(shell: &OsStr, options: &[&str]) -> Option<OsString> {
        let mut command = Command::new(shell);
        // `env` reads the same from every shell, whatever its own language looks like.
        let _ = command.args(options).args(["-c", "/usr/bin/env"]).kill_on_drop(true);
        let _ = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut command = CommandWrap::from(command);
        let _ = command.wrap(ProcessGroup::leader());
        let mut child = command.spawn().ok()?;
        let _group = Killed(super::super::group::Group::led_by(child.id()?)?);
        let stdout = child.stdout().take()?;
        let mut printed = Vec::new();
        let _ = stdout.take(OUTPUT).read_to_end(&mut printed).await.ok()?;
        // The start files may print, too; env comes last.
        let path = printed.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"PATH=")).next_back()?;
        (!path.is_empty()).then(|| OsStr::from_bytes(path).to_owned())
    }

    /// The group is killed while its leader is not collected yet: its number is still its own.
    struct Killed(super::super::group::Group);

    impl Drop for Killed {
        fn drop(&mut self) {
            self.0.kill();
        }
    }

    #[cfg(test)]
    mod tests {
        use std::os::unix::fs::PermissionsExt as _;

        use super::*;
        use crate::mcp::process::census;

        fn shell(folder: &std::path::Path, text: &str) -> OsString {
            let path = folder.join("shell");
            std::fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path.into()
        }

        #[tokio::test]
        async fn the_path_is_read_behind_a_banner_and_a_shell_that_hangs_is_killed() {
            let folder = tempfile::tempdir().unwrap();
            let noisy = shell(folder.path(), "echo welcome; echo PATH=/no; export PATH=/my/bin:$PATH; exec sh -c \"$3\"");
            let found = of_shell(&noisy, &["-l"]).await.unwrap().into_string().unwrap();
            assert!(found.starts_with("/my/bin:"), "{found}");

            let pid = folder.path().join("pid");
            let hangs = shell(folder.path(), &format!("trap '' TERM; sleep 600 & echo $! > {}; sleep 600", pid.display()));
            assert!(tokio::time::timeout(Duration::from_millis(700), of_shell(&hangs, &["-l"])).await.is_err());
            let pid: u32 = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
            for _ in 0..500 {
                if !census::look(pid).is_some_and(|seen| seen.running) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            panic!("what the shell started is still there");
        }
    }
}
