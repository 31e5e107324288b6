//! Starting, living side by side, reloading, stopping.

use std::{
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    sync::Arc,
    time::Duration,
};

use http::{Method, header};
use http_body_util::{BodyExt as _, Full};
use nix::sys::signal::Signal;

use crate::{
    harness::{Daemon, PATIENCE, run, serve},
    systemd::Running,
};

#[test]
fn it_stops_in_time_and_cleans_up() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut fipd = Daemon::start();
        fipd.json("pool create p --cidr 10.0.0.0/24");
        // Connections that say nothing must not hold it up.
        let idle = std::os::unix::net::UnixStream::connect(fipd.socket()).unwrap();
        let address = fipd.url().strip_prefix("https://").unwrap().to_owned();
        let silent = std::net::TcpStream::connect(address).unwrap();
        fipd.signal(signal);
        fipd.told("STOPPING=1");
        let (status, took) = fipd.wait();
        assert!(status.success(), "{status}\n{}", fipd.log());
        assert!(took < Duration::from_secs(10), "{took:?}\n{}", fipd.log());
        assert!(!fipd.socket().exists() && !fipd.data_dir().join("listen").exists());
        drop((idle, silent));
        let offline = fipd.args(&["check", "--data-dir", fipd.data_dir().to_str().unwrap()]);
        assert_eq!(offline.code, 0, "{offline:?}");
    }
}

/// By hand or as a static pod it has what the shell or the container runtime gives it.
#[test]
fn a_low_limit_of_open_files_is_raised() {
    let home = Arc::new(tempfile::tempdir().unwrap());
    let serve = serve(home.path());
    let mut low = std::process::Command::new("sh");
    low.args(["-c", "ulimit -Sn 256 && exec \"$0\" \"$@\""])
        .arg(serve.get_program())
        .args(serve.get_args());
    let fipd = Daemon::start_as(home, low);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", fipd.pid())).unwrap();
    let open = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let mut words = open.unwrap().split_whitespace().skip(3);
    let mut limit = || words.next().unwrap().parse::<u64>().unwrap();
    let (soft, hard) = (limit(), limit());
    assert_eq!(soft, hard.min(65_536), "{limits}\n{}", fipd.log());
}

#[test]
fn a_listen_file_that_cannot_be_written_is_a_warning() {
    let home = Arc::new(tempfile::tempdir().unwrap());
    // Nothing can be renamed over a directory that holds something.
    let in_the_way = home.path().join("data/listen/x");
    std::fs::create_dir_all(&in_the_way).unwrap();
    let mut fipd = Daemon::start_in(home, &["--log-format", "json"]);
    let log = fipd.logged("tools do not find the listener by themselves");
    let warning = log
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect(line))
        .find(|record| record["message"] == "tools do not find the listener by themselves")
        .expect(&log);
    assert_eq!(warning["level"], "WARN", "{warning}");
    assert!(
        warning["error"].as_str().unwrap().contains("data/listen"),
        "{warning}"
    );
    assert!(
        warning["url"]
            .as_str()
            .unwrap()
            .starts_with("https://127.0.0.1:"),
        "{warning}"
    );
    fipd.json("pool create p --cidr 10.0.0.0/24");
    fipd.signal(Signal::SIGTERM);
    let (status, _) = fipd.wait();
    assert!(status.success(), "{status}");
    assert!(in_the_way.exists(), "what is not its own is left alone");
}

#[test]
fn the_audit_log_is_as_long_as_the_configuration_says() {
    let fipd = Daemon::configured("[audit]\nkeep = 1000\n");
    fipd.json("pool create p --cidr 10.0.0.0/16");
    fipd.json("lease allocate --pool p --owner fipd/Host/lab/a --count 1000");
    fipd.json("lease release --owner fipd/Host/lab/a");
    let log = fipd.cli("export --what audit").out;
    let kept = log.lines().count();
    assert!((1_000..1_100).contains(&kept), "{kept}");
    assert_eq!(fipd.json("check")["ok"], true);
}

#[test]
fn what_was_given_is_there_after_kill_and_restart() {
    let mut fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/24");
    let before = fipd.json("lease allocate --pool p --owner fipd/Host/lab/a --count 10");
    fipd.signal(Signal::SIGKILL);
    fipd.wait();
    assert!(fipd.socket().exists(), "nobody was there to remove it");
    let again = Daemon::start_in(fipd.home(), &[]);
    assert_eq!(
        again.json("lease allocate --pool p --owner fipd/Host/lab/a --count 10"),
        before
    );
}

#[test]
fn daemons_live_side_by_side_and_never_share_a_store() {
    let (first, second) = (Daemon::start(), Daemon::start());
    first.json("pool create p --cidr 10.0.0.0/24");
    second.cli("pool show p").fails(3, &["p"]);
    assert_ne!(first.url(), second.url());
    let elsewhere = tempfile::tempdir().unwrap();
    let same_store = run(serve(elsewhere.path())
        .arg("--data-dir")
        .arg(first.data_dir()));
    assert_eq!(
        same_store.code, 2,
        "an option given twice is refused: {same_store:?}"
    );
    let same_store = run(crate::harness::program()
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(first.data_dir())
        .arg("--socket")
        .arg(elsewhere.path().join("sock")));
    same_store.fails(1, &["in use by another fipd"]);
    let same_socket = run(crate::harness::program()
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(elsewhere.path().join("data"))
        .arg("--socket")
        .arg(first.socket()));
    assert_eq!(same_socket.code, 1, "{same_socket:?}");
    assert!(
        same_socket.err.contains("another fipd is listening"),
        "{same_socket:?}"
    );
    let port = first.url().strip_prefix("https://").unwrap().to_owned();
    let same_port = run(crate::harness::program()
        .args(["serve", "--listen", &port, "--data-dir"])
        .arg(elsewhere.path().join("data2"))
        .arg("--socket")
        .arg(elsewhere.path().join("sock2")));
    assert_eq!(same_port.code, 1, "{same_port:?}");
    assert!(same_port.err.contains(&port), "{same_port:?}");
    assert_eq!(
        first.json("pool show p")["name"],
        "p",
        "the first is untouched"
    );
}

#[test]
fn the_first_password_is_private_and_made_once() {
    let mut fipd = Daemon::start();
    let file = fipd.data_dir().join("initial-admin");
    let meta = std::fs::metadata(&file).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    assert_eq!(meta.uid(), nix::unistd::geteuid().as_raw());
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (2, "admin"));
    assert!(lines[1].len() >= 20);
    assert!(
        !fipd.log().contains(lines[1]),
        "the password is not in the log"
    );
    fipd.signal(Signal::SIGTERM);
    fipd.wait();
    let again = Daemon::start_in(fipd.home(), &[]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    let private = [
        "data",
        "data/fipd.redb",
        "data/tls/ca.key",
        "data/tls/server.key",
    ];
    for path in private.map(|path| again.home().path().join(path)) {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
    }
    assert_eq!(
        std::fs::metadata(again.socket())
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o660
    );
}

#[test]
fn a_wrong_configuration_is_refused_with_its_place() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("fipd.toml");
    let cases: &[(&str, &[&str])] = &[
        (
            "role = \"standalone\"\nrole-playing = true\n",
            &["line 2", "column 1", "role-playing"],
        ),
        (
            "[api]\nlisten = \"127.0.0.1:0\"\nspeed = 3\n",
            &["line 3", "column 1", "speed"],
        ),
        ("role = \"server\"\n", &["line 1", "server", "standalone"]),
        ("[api]\nlisten = \"nowhere\"\n", &["line 2", "listen"]),
        ("this is no TOML", &["line 1"]),
        (
            "[[cluster]]\nname = \"rancher\"\nin-cluster = true\nsystems = [\"rancher-fip\"]\n\
             [cluster.rancher-fip.webhook]\nenabled = true\n",
            &["rancher", "enabled = true", "[api] advertise"],
        ),
    ];
    for (text, words) in cases {
        std::fs::write(&file, text).unwrap();
        let done = run(serve(home.path()).arg("--config").arg(&file));
        done.fails(2, &[&["fipd.toml"], *words].concat());
        let mut check = crate::harness::program();
        let checked = run(check
            .args(["--socket", "/nonexistent", "check", "--config"])
            .arg(&file));
        checked.fails(2, words);
    }
    assert!(!home.path().join("data").exists(), "nothing was made");
    run(serve(home.path()).args(["--config", "/nonexistent.toml"]))
        .fails(2, &["/nonexistent.toml"]);
    run(serve(home.path()).args(["--log-level", "loud"])).fails(2, &["log level", "loud", "debug"]);
}

#[test]
fn a_good_configuration_is_used_and_checked() {
    let text = "data-dir = \"elsewhere\"\n[api]\nlisten = \"127.0.0.1:1\"\nadvertise = \"https://fipd.example.net\"\n";
    let fipd = Daemon::configured(text);
    let file = fipd.config();
    let config = file.to_str().unwrap();
    assert!(
        fipd.data_dir().exists() && !fipd.home().path().join("elsewhere").exists(),
        "the command line wins"
    );
    let checked = fipd
        .args(&["check", "--config", config, "-o", "json"])
        .json();
    assert_eq!(checked["ok"], true);
    assert_eq!(checked["checks"][0]["what"], "config");
    fipd.signal(Signal::SIGHUP);
    let told = fipd.told("RELOADING=1");
    // Without it systemd takes the reload for one that it did not ask for (sd_notify(3)).
    let time = told
        .lines()
        .find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
    let time: u64 = time.unwrap_or_else(|| panic!("{told}")).parse().unwrap();
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
    let since = Duration::from(now).checked_sub(Duration::from_micros(time));
    assert!(since.is_some_and(|since| since < PATIENCE), "{told}");
    fipd.told("READY=1");
    std::fs::write(&file, "nonsense").unwrap();
    fipd.signal(Signal::SIGHUP);
    fipd.told("RELOADING=1");
    fipd.told("READY=1");
    fipd.logged("the configuration stays as it was");
    assert_eq!(fipd.cli("pool list").code, 0);
}

#[test]
fn names_that_the_configuration_adds_are_in_the_certificate_without_a_signal() {
    let fipd = Daemon::configured("");
    let rest = fipd.rest(None);
    assert!(rest.goes_by("localhost") && !rest.goes_by("fipd.example.net"));
    std::fs::write(fipd.config(), "[api]\nnames = [\"fipd.example.net\"]\n").unwrap();
    let end = std::time::Instant::now() + PATIENCE;
    while !rest.goes_by("fipd.example.net") {
        assert!(std::time::Instant::now() < end, "{}", fipd.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(rest.goes_by("localhost"));
}

#[test]
fn a_certificate_that_cannot_be_made_leaves_all_as_it_was() {
    let fipd = Daemon::configured("");
    let rest = fipd.rest(Some(&fipd.token("eye", "viewer")));
    // Nobody, root included, can write there now.
    let record = fipd.data_dir().join("tls/server.json");
    std::fs::remove_file(&record).unwrap();
    std::fs::create_dir(&record).unwrap();
    let text = "[api]\nnames = [\"fipd.example.net\"]\n[backup]\nkeep = 2\n";
    std::fs::write(fipd.config(), text).unwrap();
    let failed = fipd.cli("reload");
    failed.fails(2, &["stays as it was", "server.json"]);
    let standing = rest.get("/api/v1/reload").json();
    let failed = standing["failed"].as_str().expect("why");
    assert!(failed.contains("server.json"), "{standing}");
    assert_eq!(fipd.json("backup list")["keep"], 7);
    assert!(!rest.goes_by("fipd.example.net"));
    std::fs::remove_dir(&record).unwrap();
    let done = fipd.json("reload");
    let applied = serde_json::json!(["backup", "api.names"]);
    assert_eq!(done["applied"], applied, "{done}");
    assert!(rest.goes_by("fipd.example.net"));
}

#[test]
fn other_files_of_a_certificate_are_for_who_comes_next_and_end_no_connection() {
    let home = Arc::new(tempfile::tempdir().unwrap());
    let make = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (before, after) = (make(), make());
    let put = |made: &rcgen::CertifiedKey<rcgen::KeyPair>| {
        std::fs::write(home.path().join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(
            home.path().join("key.pem"),
            made.signing_key.serialize_pem(),
        )
        .unwrap();
    };
    put(&before);
    let file = home.path().join("fipd.toml");
    std::fs::write(&file, "[api]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n").unwrap();
    let fipd = Daemon::start_in(
        Arc::clone(&home),
        &["--config", file.to_str().expect("text")],
    );
    let token = fipd.token("root", "admin");
    let old = fipd.rest_trusting(&before.cert.pem(), Some(&token));
    let new = fipd.rest_trusting(&after.cert.pem(), None);
    assert!(old.goes_by("localhost") && !new.goes_by("localhost"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut listens = runtime.block_on(old.open());
    let stream = old
        .request(Method::GET, "/api/v1/changes")
        .header(header::ACCEPT, "text/event-stream")
        .body(Full::default())
        .unwrap();
    let stream = runtime.block_on(listens.send_request(stream)).unwrap();
    assert_eq!(stream.status(), 200);
    let mut stream = stream.into_body();
    let mut kept = runtime.block_on(old.open());
    let mut ask = || {
        let request = old.request(Method::GET, "/api/v1/pools");
        let request = request.body(Full::default()).unwrap();
        let work = async {
            kept.ready().await.unwrap();
            let answer = kept.send_request(request).await.unwrap();
            let status = answer.status();
            // Once all is read it is there for the next.
            answer.into_body().collect().await.unwrap();
            status
        };
        runtime
            .block_on(async { tokio::time::timeout(PATIENCE, work).await })
            .unwrap()
    };
    assert_eq!(ask(), 200);
    put(&after);
    assert_eq!(fipd.cli("reload").code, 0);
    assert_eq!(ask(), 200, "on the connection of before");
    assert!(new.goes_by("localhost") && !old.goes_by("localhost"));
    fipd.json("pool create told-of --cidr 10.0.0.0/24");
    let listen = async {
        let mut told = String::new();
        while !told.contains("told-of") {
            let frame = stream.frame().await.expect("it goes on").unwrap();
            told.push_str(&String::from_utf8_lossy(frame.data_ref().unwrap()));
        }
    };
    runtime
        .block_on(async { tokio::time::timeout(PATIENCE, listen).await })
        .unwrap();
    // Nobody misses files that the next start is without.
    std::fs::remove_file(home.path().join("cert.pem")).unwrap();
    std::fs::write(&file, "[backup]\nkeep = 2\n").unwrap();
    let done = fipd.json("reload");
    assert_eq!(done["applied"], serde_json::json!(["backup"]), "{done}");
    assert!(new.goes_by("localhost"));
}

#[test]
fn a_certificate_that_has_ended_is_told_by_the_check() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("fipd.toml");
    std::fs::write(&file, "[api]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n").unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    std::fs::write(home.path().join("key.pem"), key.serialize_pem()).unwrap();
    let check = |last_year: i32| {
        let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(last_year, 2, 3);
        let made = params.self_signed(&key).unwrap();
        std::fs::write(home.path().join("cert.pem"), made.pem()).unwrap();
        let mut check = crate::harness::program();
        run(check
            .args(["--socket", "/nonexistent", "check", "--config"])
            .arg(&file))
    };
    let ended = check(2020);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(
        ended
            .out
            .contains("cert.pem: it ended at 2020-02-03T00:00:00.000Z"),
        "{ended:?}"
    );
    let fine = check(2100);
    assert_eq!(fine.code, 0, "{fine:?}");
}

#[test]
fn the_log_is_json_where_asked_for() {
    let home = Arc::new(tempfile::tempdir().unwrap());
    let fipd = Daemon::start_in(home, &["--log-format", "json", "--log-level", "debug"]);
    let log = fipd.logged("fipd is ready");
    let ready = log
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect(line))
        .find(|record| record["message"] == "fipd is ready")
        .expect(&log);
    assert_eq!(ready["level"], "INFO");
    assert_eq!(ready["url"], fipd.url());
}

/// In a mount namespace whose journal is this test.
#[test]
fn each_event_is_one_record_of_the_journal() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: a mount namespace needs root");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let journal_dir = home.path().join("journal");
    std::fs::create_dir(&journal_dir).unwrap();
    let journal = std::os::unix::net::UnixDatagram::bind(journal_dir.join("socket")).unwrap();
    journal.set_read_timeout(Some(PATIENCE)).unwrap();
    let script = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && \
                  mount --bind \"$0\" /run/systemd/journal && exec \"$@\"";
    let serve = serve(home.path());
    let child = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(&journal_dir)
        .arg(serve.get_program())
        .args(serve.get_args())
        .args(["--log-format", "journal"])
        .spawn()
        .unwrap();
    let _running = Running(child);
    let mut buffer = vec![0; 65_536];
    let ready = loop {
        let length = journal
            .recv(&mut buffer)
            .expect("a record that says that it is ready");
        let record = fields(&buffer[..length]);
        if record
            .get("MESSAGE")
            .is_some_and(|message| message.starts_with("fipd is ready"))
        {
            break record;
        }
    };
    let asked = |line: &str| {
        let socket = home.path().join("fipd.sock");
        let mut command = crate::harness::program();
        command.arg("--socket").arg(socket);
        let done = run(command.args(line.split_whitespace()));
        assert_eq!(done.code, 0, "{done:?}");
    };
    asked("pool create vips --cidr 10.0.0.0/24");
    asked("lease allocate --pool vips --owner fipd/Host/lab/web");
    let given = loop {
        let length = journal
            .recv(&mut buffer)
            .expect("a record that says that it is given");
        let record = fields(&buffer[..length]);
        if record
            .get("FIPD_ACTION")
            .is_some_and(|action| action == "allocated")
        {
            break record;
        }
    };
    for (name, value) in [
        ("FIPD_POOL", "vips"),
        ("FIPD_NETWORK", "default"),
        ("FIPD_ADDRESS", "10.0.0.1"),
        ("FIPD_LEASE", "default/10.0.0.1"),
        ("FIPD_OWNER", "fipd/Host/lab/web"),
        ("TARGET", "fipd::decision"),
    ] {
        assert_eq!(
            given.get(name).map(String::as_str),
            Some(value),
            "{given:?}"
        );
    }
    let message = given.get("MESSAGE").unwrap();
    assert_eq!(message, "allocated: 10.0.0.1, fipd/Host/lab/web");
    let field = |name: &str| ready.get(name).map(String::as_str);
    assert_eq!(field("PRIORITY"), Some("5"), "{ready:?}");
    let message = field("MESSAGE").unwrap();
    assert!(
        message.contains(" socket="),
        "what belongs to it follows: {message}"
    );
    assert_eq!(field("SYSLOG_IDENTIFIER"), Some("fipd"), "{ready:?}");
    assert_eq!(field("TARGET"), Some("fipd::app"), "{ready:?}");
    assert!(
        field("FIPD_URL").is_some_and(|url| url.starts_with("https://127.0.0.1:")),
        "{ready:?}"
    );
    assert_eq!(
        field("FIPD_DATA_DIR"),
        home.path().join("data").to_str(),
        "{ready:?}"
    );
}

/// Reads the journal's native protocol: `NAME=value` lines, or `NAME`, a length of 8 bytes and the value.
fn fields(mut record: &[u8]) -> std::collections::BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut fields = std::collections::BTreeMap::new();
    while let Some(end) = record.iter().position(|byte| *byte == b'\n') {
        let line = &record[..end];
        record = &record[end + 1..];
        match line.iter().position(|byte| *byte == b'=') {
            Some(middle) => {
                fields.insert(text(&line[..middle]), text(&line[middle + 1..]));
            }
            None => {
                let (length, value) = record.split_first_chunk().unwrap();
                let length = usize::try_from(u64::from_le_bytes(*length)).unwrap();
                fields.insert(text(line), text(&value[..length]));
                record = &value[length + 1..];
            }
        }
    }
    fields
}
