//! Copies of the store that the daemon keeps, and whether they could be restored.

use serde_json::json;

use crate::harness::Daemon;

#[test]
fn copies_are_made_listed_and_handed_out_to_admins() {
    let fipd = Daemon::configured("[backup]\nevery = \"off\"\nkeep = 2\n");
    fipd.cli("backup drill")
        .fails(3, &["no backup", "data/backups"]);
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(fipd.json("backup now")["name"].clone());
    }
    let list = fipd.json("backup list");
    let names: Vec<_> = (list["backups"].as_array().unwrap().iter())
        .map(|copy| copy["name"].clone())
        .collect();
    assert_eq!(names, [made[2].clone(), made[1].clone()]);
    assert_eq!((&list["keep"], &list["every"]), (&json!(2), &json!(null)));
    assert_eq!(list["error"], json!(null));

    let admin = fipd.rest(Some(&fipd.token("admin", "admin")));
    let name = made[2].as_str().unwrap();
    let copy = admin.get(&format!("/api/v1/backups/{name}"));
    assert_eq!(copy.status, 200);
    let file = fipd.home().path().join("copy.redb");
    std::fs::write(&file, &copy.body).unwrap();
    let gone = made[0].as_str().unwrap();
    for name in [gone, "fipd.redb", "..%2Ffipd.redb"] {
        admin
            .get(&format!("/api/v1/backups/{name}"))
            .problem(404, "not-found");
    }
    let operator = fipd.rest(Some(&fipd.token("operator", "operator")));
    operator.get("/api/v1/backups").problem(403, "forbidden");
    operator
        .post("/api/v1/backups", json!(null))
        .problem(403, "forbidden");
    let metrics = String::from_utf8_lossy(&operator.get("/metrics").body).into_owned();
    let last = "fipd_backup_last_success_timestamp_seconds 1";
    assert!(metrics.contains(last), "{metrics}");
    assert!(metrics.contains("fipd_backup_failed 0"), "{metrics}");
    let interval = "\nfipd_backup_interval_seconds ";
    assert!(!metrics.contains(interval), "no alert where none is due");
}

#[test]
fn a_drill_tells_what_a_restore_would_bring_back_and_changes_nothing() {
    let mut fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/24");
    fipd.json("lease allocate --pool p --count 3 --owner fipd/Host/lab/a");
    let made = fipd.json("backup now");
    fipd.json("lease allocate --pool p --count 2 --owner fipd/Host/lab/b");
    let before = fipd.json("backup list")["store"].clone();
    let drill = fipd.json("backup drill");
    assert_eq!(drill["ok"], true, "{drill}");
    assert_eq!(drill["problems"], json!([]));
    assert_eq!(drill["backup"], made["name"]);
    assert_eq!(
        (&drill["restored"]["leases"], &drill["running"]["leases"]),
        (&json!(3), &json!(5))
    );
    assert_eq!(drill["running"], before, "nothing is changed");
    let revision = |of: &str| drill[of]["revision"].as_u64().unwrap();
    assert!(revision("restored") < revision("running"), "{drill}");
    let table = fipd.cli("backup drill").out;
    assert!(
        table.contains("leases") && table.contains("are in order"),
        "{table}"
    );

    let file = fipd
        .data_dir()
        .join("backups")
        .join(made["name"].as_str().unwrap());
    fipd.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(fipd.wait().0.success());
    let alone = fipd.json(&format!("backup drill {}", file.display()));
    assert_eq!(
        (&alone["ok"], &alone["running"]),
        (&json!(true), &json!(null))
    );
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes.truncate(middle);
    let broken = fipd.home().path().join("broken");
    std::fs::write(&broken, bytes).unwrap();
    let broken = fipd.cli(&format!("backup drill {}", broken.display()));
    broken.fails(1, &["cannot be restored"]);
}
