//! The port that a server declares must be free: what an orphan of ours holds is taken back, and anybody else is named.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use super::census::{self, Seen};
use super::instance::Instance;
use super::{ending, reap};

/// What an orphan gets between being asked to end and being killed.
const GRACE: Duration = Duration::from_millis(300);

/// Makes sure that the port is free for this server. Blocks.
pub(super) fn free(port: u16, server: &str, instance: &Instance) -> Result<(), String> {
    if !held(port) {
        return Ok(());
    }
    let Some((pid, name)) = holder(port) else {
        // Without a name it belongs to another person, or let go meanwhile.
        return if held(port) { Err(format!("its port {port} is held by a process that this system does not name")) } else { Ok(()) };
    };
    let foreign =
        || Err(format!("its port {port} is held by the process '{name}' (process id {pid}); end that, or give the server another port"));
    let Some(seen) = census::look(pid) else {
        return Ok(());
    };
    let marker = census::marker(pid);
    let group = || census::all().into_iter().filter(|member| member.running && member.pid == seen.pid).collect::<Vec<Seen>>();
    if let Some((start, owner)) = instance.owner(&seen, marker.as_deref()) {
        if owner != server {
            return Err(format!("its port {port} is held by the server '{owner}' (process '{name}', process id {pid})"));
        }
        // The remains of an earlier start of this server.
        let _ = ending::end(|| census::marked(|marker| marker == start.marker), GRACE);
    } else {
        match marker.and_then(|marker| reap::instance_ended(instance.folder(), &marker)) {
            Some(true) => drop(ending::end(group, GRACE)),
            Some(false) => {
                return Err(format!(
                    "its port {port} is held by a server of another running Handrail (process '{name}', process id {pid})"
                ));
            }
            None => return foreign(),
        }
    }
    if held(port) { foreign() } else { Ok(()) }
}

/// Servers listen at the loopback address or at all of them; either makes this fail.
fn held(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
}

fn holder(port: u16) -> Option<(u32, String)> {
    let all = listeners::get_all().ok()?;
    let found = all.into_iter().find(|listener| {
        listener.socket.port() == port && listener.protocol == listeners::Protocol::TCP && listener.state == listeners::SocketState::Listen
    });
    found.map(|listener| (listener.process.pid, listener.process.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_is_free_and_a_foreign_holder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let instance = Instance::open(folder.path(), None);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let error = free(port, "s", &instance).unwrap_err();
        assert!(error.contains(&port.to_string()) && error.contains(&format!("process id {}", std::process::id())), "{error}");
        drop(listener);
        free(port, "s", &instance).unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn an_orphan_of_ours_lets_go_and_another_running_handrail_is_named() {
        use std::collections::BTreeMap;
        use std::process::{Command, Stdio};

        use super::super::instance::{Record, host};

        const HOLD: &str = "import signal, socket, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); s = socket.socket(); \
            s.bind(('127.0.0.1', int(sys.argv[1]))); s.listen(); print('held', flush=True); time.sleep(600)";
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let instance = Instance::open(folder.path(), None);
        let record = |instance: &str| Record {
            instance: instance.to_owned(),
            pid: 1,
            started: u64::MAX,
            boot: census::boot(),
            host: host(),
            children: BTreeMap::new(),
        };
        let lock = reap::claim(&run, "live").unwrap();
        reap::write(&run, &record("live")).unwrap();
        reap::write(&run, &record("dead")).unwrap();
        for (marker, ends) in [("live.1", false), ("dead.1", true), ("unknown.1", false)] {
            let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let port = probe.local_addr().unwrap().port();
            drop(probe);
            let mut holder = Command::new("python3");
            let _ = holder.args(["-c", HOLD, &port.to_string()]).env(census::MARKER, marker).stdout(Stdio::piped());
            let mut holder = holder.spawn().unwrap();
            let _ = std::io::Read::read(holder.stdout.as_mut().unwrap(), &mut [0; 1]).unwrap();
            let freed = free(port, "s", &instance);
            let gone = !census::look(holder.id()).is_some_and(|seen| seen.running);
            assert_eq!((freed.is_ok(), gone), (ends, ends), "{marker}: {freed:?}");
            if marker == "live.1" {
                assert!(freed.unwrap_err().contains("another running Handrail"));
            }
            let _ = holder.kill();
            let _ = holder.wait().unwrap();
        }
        drop(lock);
    }
}
