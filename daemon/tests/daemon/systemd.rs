//! What a service manager does with the daemon: sockets that it passes, and a configuration that is read again.

use std::{
    io::{Read as _, Write as _},
    os::{
        fd::AsRawFd as _,
        unix::net::{UnixDatagram, UnixListener, UnixStream},
    },
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::signal::Signal,
};

use crate::harness::{Daemon, PATIENCE, program, run};

/// The sockets as systemd holds them, over any number of starts.
struct Manager {
    home: Arc<tempfile::TempDir>,
    admin: UnixListener,
    cni: UnixListener,
}

impl Manager {
    fn new() -> Self {
        let home = Arc::new(tempfile::tempdir().unwrap());
        let bind = |name: &str| {
            let socket = UnixListener::bind(home.path().join(name)).unwrap();
            fcntl(&socket, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
            socket
        };
        Self {
            admin: bind("fipd.sock"),
            cni: bind("cni.sock"),
            home,
        }
    }

    /// Starts the daemon and waits until it is ready.
    fn start(&self) -> Running {
        let notify = self.home.path().join("notify");
        let _ = std::fs::remove_file(&notify);
        let told = UnixDatagram::bind(&notify).unwrap();
        told.set_read_timeout(Some(PATIENCE)).unwrap();
        let fipd = program().get_program().to_owned();
        // Only the process itself knows its number; descriptors 3 and 4 are where they are expected.
        let script = format!(
            "exec 3<&{} 4<&{}; export LISTEN_PID=$$; exec \"$@\"",
            self.admin.as_raw_fd(),
            self.cni.as_raw_fd()
        );
        let running = Running(
            Command::new("bash")
                .args(["-c", &script, "bash"])
                .arg(fipd)
                .args(["serve", "--listen", "127.0.0.1:0"])
                .arg("--data-dir")
                .arg(self.home.path().join("data"))
                .arg("--socket")
                .arg(self.home.path().join("elsewhere"))
                .env("LISTEN_FDS", "2")
                .env("LISTEN_FDNAMES", "admin:cni")
                .env("NOTIFY_SOCKET", &notify)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
        );
        let mut buffer = [0; 4096];
        loop {
            let length = told.recv(&mut buffer).unwrap();
            if String::from_utf8_lossy(&buffer[..length]).contains("READY=1") {
                return running;
            }
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.home.path().join(name)
    }
}

pub struct Running(pub Child);

impl Running {
    fn stop(mut self, signal: Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.0.id()).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks as the plugin does, without waiting for the answer.
fn call(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let text = br#"{"command":"ADD","containerId":"c","config":{"cniVersion":"1.1.0","name":"n"}}"#;
    stream.write_all(text).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    stream
}

fn answer(mut stream: UnixStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn calls_that_are_made_while_the_daemon_is_down_are_answered_after_its_start() {
    let manager = Manager::new();
    let expected = if nix::unistd::geteuid().is_root() {
        "CNI_ARGS needs"
    } else {
        "only uid 0"
    };
    let first = manager.start();
    assert!(answer(call(&manager.path("cni.sock"))).contains(expected));
    let listed = run(program()
        .arg("--socket")
        .arg(manager.path("fipd.sock"))
        .args(["pool", "list"]));
    assert_eq!(listed.code, 0, "{listed:?}");
    assert!(!manager.path("elsewhere").exists());
    let mut running = first;
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        running.stop(signal);
        let waits = call(&manager.path("cni.sock"));
        running = manager.start();
        assert!(answer(waits).contains(expected), "after {signal}");
    }
    running.stop(Signal::SIGTERM);
    assert!(manager.path("fipd.sock").exists() && manager.path("cni.sock").exists());
}

#[test]
fn a_configuration_that_is_read_again_says_what_came_of_it() {
    let fipd = Daemon::configured("");
    let file = fipd.config();
    let done = fipd.json("reload");
    assert_eq!(
        done,
        serde_json::json!({ "applied": [], "needs_restart": [] })
    );
    let text = "log-level = \"fipd=debug\"\n[backup]\nkeep = 2\n[helm]\nat-once = 1\n";
    std::fs::write(&file, text).unwrap();
    let done = fipd.json("reload");
    assert_eq!(done["needs_restart"], serde_json::json!(["helm"]), "{done}");
    let page = fipd
        .rest(Some(&fipd.token("eye", "viewer")))
        .get("/api/v1/reload");
    assert_eq!(page.json()["needs_restart"], serde_json::json!(["helm"]));
    std::fs::write(&file, "[backup]\nkeep = 2\nkept = 3\n").unwrap();
    let failed = fipd.cli("reload");
    failed.fails(2, &["stays as it was", "fipd.toml", "line 3", "kept"]);
    let metrics = fipd
        .rest(Some(&fipd.token("look", "viewer")))
        .get("/metrics")
        .body;
    let metrics = String::from_utf8(metrics.to_vec()).unwrap();
    assert!(metrics.contains("fipd_config_reload_failed 1"), "{metrics}");
    std::fs::write(&file, "").unwrap();
    assert_eq!(fipd.json("reload")["needs_restart"], serde_json::json!([]));
}
