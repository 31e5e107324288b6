//! An old backup takes the place of the store.

use std::{process::Stdio, time::Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::harness::{Daemon, Done, program, run};

fn backup(fipd: &Daemon) -> String {
    let file = fipd.home().path().join("backup");
    let file = file.to_str().unwrap().to_owned();
    assert_eq!(fipd.cli(&format!("backup {file}")).code, 0);
    file
}

fn restore(fipd: &Daemon, arguments: &[&str]) -> Done {
    let mut command = program();
    command.args(["restore", "--data-dir"]).arg(fipd.data_dir());
    run(command.args(["-o", "json"]).args(arguments))
}

fn stop(fipd: &mut Daemon) {
    fipd.signal(Signal::SIGTERM);
    assert!(fipd.wait().0.success());
}

const HELD: &[&str] = &["a backup was restored", "until about 20", "fipd hold lift"];

#[test]
fn after_a_restore_nothing_free_is_given_until_the_hold_is_lifted() {
    let mut fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/24");
    let ask = |name: &str| format!("lease allocate --pool p --owner fipd/Host/lab/{name}");
    let old = fipd.json(&ask("old"));
    let file = backup(&fipd);
    fipd.json(&ask("newer"));
    restore(&fipd, &[&file]).fails(1, &["in use by a running fipd", "stop"]);
    stop(&mut fipd);

    let done = restore(&fipd, &[&file]).json();
    assert_eq!(done["epoch"], 1);
    assert!(done["held_until"].is_string() && done["backup_of"].is_string());
    let kept = done["kept"].as_str().unwrap();
    assert!(kept.contains("fipd.redb.before-restore-"), "{kept}");
    assert!(std::path::Path::new(kept).exists());

    let fipd = Daemon::start_in(fipd.home(), &[]);
    fipd.logged("restored from a backup");
    assert_eq!(fipd.json(&ask("old"))["leases"], old["leases"]);
    fipd.cli(&ask("third")).fails(1, HELD);
    fipd.cli(&format!("{} --address 10.0.0.9", ask("third")))
        .fails(1, HELD);
    fipd.cli("lease reserve --pool p --owner fipd/Host/lab/r")
        .fails(1, HELD);
    let hold = fipd.json("hold show");
    assert_eq!((&hold["held"], &hold["epoch"]), (&json!(true), &json!(1)));
    let networks = fipd.json("network list");
    assert_eq!(networks["networks"][0]["held_until"], hold["until"]);

    let viewer = fipd.rest(Some(&fipd.token("viewer", "viewer")));
    let lift = json!({ "reason": "x" });
    viewer
        .post("/api/v1/restore-hold/lift", lift)
        .problem(403, "forbidden");
    let metrics = viewer.get("/metrics").body;
    let metrics = String::from_utf8_lossy(&metrics);
    assert!(metrics.contains("fipd_store_epoch 1"), "{metrics}");
    assert!(metrics.contains("fipd_restore_hold_seconds 8"), "{metrics}");
    fipd.args(&["hold", "lift", "--reason", " "])
        .fails(2, &["reason"]);
    let lifted = fipd.args(&["hold", "lift", "--reason", "all is known"]);
    assert_eq!(lifted.code, 0, "{lifted:?}");
    fipd.json(&ask("third"));
    let audit = fipd.json("audit");
    let said = |at: usize| audit["entries"][at]["action"].as_str().unwrap().to_owned();
    assert_eq!(
        [said(0), said(1)],
        ["allocated".to_owned(), "restore-hold-ended".to_owned()]
    );
    assert_eq!(audit["entries"][1]["detail"], "all is known");
    assert_eq!(fipd.json("check")["ok"], true);
}

#[test]
fn without_a_hold_a_reason_is_asked_for() {
    let mut fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/24");
    let file = backup(&fipd);
    stop(&mut fipd);
    restore(&fipd, &[&file, "--no-hold"]).fails(2, &["--reason"]);
    restore(&fipd, &[&file, "--no-hold", "--reason", ""]).fails(2, &["reason"]);
    restore(&fipd, &["/nonexistent"]).fails(3, &["/nonexistent"]);
    let done = restore(&fipd, &[&file, "--no-hold", "--reason", "it was a drill"]).json();
    assert_eq!(done["held_until"], json!(null));
    let fipd = Daemon::start_in(fipd.home(), &[]);
    fipd.json("lease allocate --pool p --owner fipd/Host/lab/a");
    let audit = fipd.cli("audit").out;
    assert!(audit.contains("it was a drill"), "{audit}");
    assert_eq!(fipd.json("hold show")["held"], false);
}

#[test]
fn a_backup_of_the_daemon_is_restored_by_the_name_that_its_list_shows() {
    let mut fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/24");
    fipd.json("backup now");
    let list = fipd.json("backup list");
    let name = list["backups"][0]["name"].as_str().unwrap().to_owned();
    fipd.json("pool create newer --cidr 10.1.0.0/24");
    stop(&mut fipd);
    restore(&fipd, &["fipd-none.redb"]).fails(3, &["fipd-none.redb", "data/backups"]);
    assert_eq!(restore(&fipd, &[&name]).json()["epoch"], 1);
    let fipd = Daemon::start_in(fipd.home(), &[]);
    let pools = fipd.cli("pool list").out;
    assert!(!pools.contains("newer"), "{pools}");
}

#[test]
fn a_restore_that_is_killed_leaves_the_old_store_or_the_new_one() {
    let mut fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/16");
    for name in ["a", "b", "c", "d"] {
        fipd.json(&format!(
            "lease allocate --pool p --count 1000 --owner fipd/Host/lab/{name}"
        ));
    }
    let file = backup(&fipd);
    fipd.json("lease allocate --pool p --owner fipd/Host/lab/newer");
    stop(&mut fipd);
    let store = fipd.data_dir().join("fipd.redb");
    let old = std::fs::read(&store).unwrap();
    let began = Instant::now();
    assert_eq!(restore(&fipd, &[&file]).code, 0);
    let whole = began.elapsed();
    let rounds: u32 =
        std::env::var("FIPD_RESTORE_ROUNDS").map_or(24, |rounds| rounds.parse().unwrap());
    let (mut olds, mut news) = (0, 0);
    // On a busy machine a restore takes longer than the one that was timed.
    for part in 0..60.max(rounds) {
        if part >= rounds && news > 0 {
            break;
        }
        std::fs::write(&store, &old).unwrap();
        let mut command = program();
        command.args(["restore", &file, "--data-dir"]);
        command.arg(fipd.data_dir());
        command.stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(whole * part / 20);
        child.kill().unwrap();
        child.wait().unwrap();
        let dir = fipd.data_dir();
        let check = run(program().args(["check", "--data-dir"]).arg(&dir));
        assert_eq!(check.code, 0, "{part}: {check:?}");
        if std::fs::read(&store).unwrap() == old {
            olds += 1;
        } else {
            news += 1;
        }
    }
    assert!(olds > 0 && news > 0, "{olds} old, {news} new");
    let fipd = Daemon::start_in(fipd.home(), &[]);
    assert_eq!(fipd.json("check")["ok"], true);
}
