//! The data directory of one host under a fipd of another. A host is a mount namespace with a machine id of its own.

use std::{path::Path, process::Command, sync::Arc};

use nix::sys::{
    signal::Signal,
    statfs::{OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, statfs},
};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    harness::{Daemon, program, run, serve},
    scan::{Browser, html},
};

/// Whether machine ids can be made up here: fipd believes none on a file system that does not last.
fn has_hosts(home: &Path) -> bool {
    let transient = [TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC];
    let lasts = !transient.contains(&statfs(home).unwrap().filesystem_type());
    nix::unistd::geteuid().is_root() && lasts && Path::new("/etc/machine-id").exists()
}

/// The same command on the host of this digit.
fn on_host(home: &Path, digit: char, command: &Command) -> Command {
    let id = home.join(format!("machine-id-{digit}"));
    std::fs::write(&id, digit.to_string().repeat(32) + "\n").unwrap();
    let mut there = Command::new("unshare");
    let script = "mount --bind \"$0\" /etc/machine-id && exec \"$@\"";
    there.args(["--mount", "sh", "-c", script]).arg(id);
    there.arg(command.get_program()).args(command.get_args());
    there
}

fn start(home: &Arc<TempDir>, digit: char, arguments: &[&str]) -> Daemon {
    let mut command = serve(home.path());
    command.args(arguments);
    let command = on_host(home.path(), digit, &command);
    Daemon::start_as(Arc::clone(home), command)
}

fn stop(mut fipd: Daemon) {
    fipd.signal(Signal::SIGTERM);
    assert!(fipd.wait().0.success());
}

const NOT_HERE: &[&str] = &["belongs to another host", "fipd host claim --reason TEXT"];

#[test]
fn another_host_shows_the_book_and_decides_nothing_until_it_claims_it() {
    let home = Arc::new(tempfile::tempdir().unwrap());
    if !has_hosts(home.path()) {
        println!("skipped: needs root, /etc/machine-id and a disk that lasts below the home");
        return;
    }
    let fipd = start(&home, 'a', &[]);
    fipd.json("pool create p --cidr 10.0.0.0/24");
    let ask = |name: &str| format!("lease allocate --pool p --owner fipd/Host/lab/{name}");
    let given = fipd.json(&ask("web"));
    let token = fipd.token("script", "viewer");
    let data_dir = fipd.data_dir();
    stop(fipd);

    // It names what another fipd may be at; none of it is touched.
    let config = home.path().join("fipd.toml");
    let text = "[[cluster]]\nname = \"c\"\nkubeconfig = \"missing\"\nsystems = [\"rancher-fip\"]\n[backup]\nevery = \"1m\"\n[host]\n";
    std::fs::write(&config, text).unwrap();
    let fipd = start(&home, 'b', &["--config", config.to_str().unwrap()]);
    let rest = fipd.rest(Some(&token));
    let ready = rest.get("/readyz");
    assert_eq!(ready.status, 503);
    let ready = String::from_utf8(ready.body.to_vec()).unwrap();
    assert!(
        NOT_HERE.iter().all(|words| ready.contains(words)),
        "{ready}"
    );
    assert_eq!(rest.get("/healthz").status, 200);
    let first = std::fs::read_to_string(data_dir.join("initial-admin")).unwrap();
    let password = first.lines().nth(1).unwrap();
    let page = html(&Browser::sign_in(&fipd, "admin", password).get("/ui/"));
    assert!(
        page.contains("belongs to another host") && page.contains("fipd host claim"),
        "{page}"
    );
    assert_eq!(
        rest.get("/api/v1/leases").json()["leases"][0]["address"],
        given["leases"][0]["address"]
    );
    assert_eq!(fipd.json("clusters list")["clusters"], json!([]));
    // Not even what the copy has: the other host may have given it to somebody else.
    fipd.cli(&ask("web")).fails(1, NOT_HERE);
    fipd.cli(&ask("other")).fails(1, NOT_HERE);
    fipd.cli("lease release --owner fipd/Host/lab/web")
        .fails(1, NOT_HERE);
    let check = fipd.cli("check");
    assert!(
        check.code != 0 && check.out.contains(NOT_HERE[0]),
        "{check:?}"
    );
    fipd.signal(Signal::SIGHUP);
    fipd.logged("the configuration was read again");
    assert_eq!(fipd.json("clusters list")["clusters"], json!([]));
    let claim = |digit: char, reason: &str| {
        let mut command = program();
        command.args([
            "host",
            "claim",
            "-o",
            "json",
            "--reason",
            reason,
            "--data-dir",
        ]);
        run(&mut on_host(home.path(), digit, command.arg(&data_dir)))
    };
    claim('b', "moved").fails(1, &["in use by another fipd"]);
    stop(fipd);

    claim('b', " ").fails(2, &["reason", "not allowed"]);
    claim('a', "moved").fails(2, &["belongs to this host already", "nothing to claim"]);
    let claimed = claim('b', "the old host is scrap").json();
    assert_eq!(claimed["epoch"], 1);
    assert!(claimed["held_until"].is_string(), "{claimed}");
    let fipd = start(&home, 'b', &[]);
    assert_eq!(fipd.rest(None).get("/readyz").status, 200);
    assert_eq!(fipd.json(&ask("web"))["leases"], given["leases"]);
    fipd.cli(&ask("other")).fails(1, &["fipd hold lift"]);
    let audit = fipd.json("audit")["entries"].to_string();
    assert!(audit.contains("the old host is scrap"), "{audit}");
    stop(fipd);
    let fipd = start(&home, 'a', &[]);
    fipd.cli("lease release --owner fipd/Host/lab/web")
        .fails(1, NOT_HERE);
}
