//! Files of rows, taken whole or not at all.

use serde_json::json;

use crate::harness::Daemon;

#[test]
fn a_file_is_previewed_row_by_row_and_taken_whole_or_not_at_all() {
    let fipd = Daemon::start();
    let file = fipd.home().path().join("rows.csv");
    let path = file.to_str().unwrap();
    fipd.json("pool create vips --cidr 10.0.0.0/16");
    let line = |at: usize| format!("10.0.{}.{},fipd/Host/lab/h{at},vips\n", at / 250, at % 250);
    let mut text = "address,owner,pool\n".to_owned();
    text.extend((0..999).map(line));
    std::fs::write(&file, format!("{text}10.0.0.x,fipd/Host/lab/bad,vips\n")).unwrap();
    for arguments in [vec!["import", path], vec!["import", path, "--dry-run"]] {
        let refused = fipd.args(&arguments);
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(
            refused
                .err
                .contains("1 of 1000 rows are refused; nothing is written"),
            "{}",
            refused.err
        );
        let row = refused
            .out
            .lines()
            .find(|line| line.starts_with("1000 "))
            .unwrap();
        assert!(row.contains("error") && row.contains("10.0.0.x"), "{row}");
    }
    assert_eq!(fipd.json("lease list")["leases"], json!([]));

    std::fs::write(&file, &text).unwrap();
    let preview = fipd.json(&format!("import {path} --dry-run"));
    assert_eq!(
        (&preview["written"], &preview["created"]),
        (&json!(false), &json!(999))
    );
    let began = std::time::Instant::now();
    let report = fipd.json(&format!("import {path}"));
    println!("999 rows took {:?}", began.elapsed());
    assert_eq!(
        (&report["written"], &report["created"]),
        (&json!(true), &json!(999))
    );
    assert_eq!(fipd.json(&format!("import {path}"))["same"], 999);
    let lease = fipd.json("lease show 10.0.1.7");
    assert_eq!(lease["owner"], "fipd/Host/lab/h257");

    let held = fipd.home().path().join("held.jsonl");
    std::fs::write(
        &held,
        "{\"address\":\"10.0.1.7\",\"owner\":\"fipd/Host/lab/z\"}\n",
    )
    .unwrap();
    let refused = fipd.args(&["import", held.to_str().unwrap()]);
    assert!(
        refused.out.contains("held by fipd/Host/lab/h257"),
        "{}",
        refused.out
    );
    let operator = fipd.rest(Some(&fipd.token("operator", "operator")));
    operator
        .post("/api/v1/import", json!({ "name": "blue" }))
        .problem(403, "forbidden");
    let audit = fipd.json("audit");
    let imported =
        (audit["entries"].as_array().unwrap().iter()).find(|entry| entry["action"] == "imported");
    assert!(imported.is_some(), "{audit}");
    assert_eq!(fipd.json("check")["ok"], true);
}

#[test]
fn a_file_gives_a_tenant_more_than_its_quota_only_by_force_and_may_be_large() {
    let fipd = Daemon::start();
    let tenant = "t".repeat(250);
    fipd.json("pool create vips --cidr 10.0.0.0/16");
    fipd.json(&format!(
        "quota set --tenant {tenant} --pool vips --limit 5000"
    ));
    let file = fipd.home().path().join("leases.jsonl");
    let path = file.to_str().unwrap();
    let line = |at: usize| {
        let address = format!("10.0.{}.{}", at / 250, at % 250 + 1);
        // What is large about it is said nowhere else.
        let space = " ".repeat(2_000);
        json!({ "address": address, "owner": format!("fipd/Host/lab/h{at}"), "tenant": tenant })
            .to_string()
            + &space
            + "\n"
    };
    let text: String = (0..5_001).map(line).collect();
    assert!(text.len() > 8 << 20);
    std::fs::write(&file, text).unwrap();
    let refused = fipd.args(&["import", path]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.out.contains("quota exceeded"), "{}", refused.err);
    assert_eq!(fipd.json("lease list")["leases"], json!([]));
    let forced = fipd.json(&format!("import {path} --force"));
    assert_eq!(
        (&forced["written"], &forced["created"]),
        (&json!(true), &json!(5_001))
    );
}

#[test]
fn what_is_exported_of_networks_and_pools_is_imported_as_it_was() {
    let (here, there) = (Daemon::start(), Daemon::start());
    here.json("network create blue");
    here.json("pool create plain --cidr 10.0.0.0/24");
    here.json("pool create chosen --cidr 10.1.0.0/24 --network blue");
    here.args(&["network", "separate", "default", "blue"]);
    let export = |fipd: &Daemon| {
        ["networks", "separations", "pools"].map(|what| {
            let text = fipd.args(&["export", "--what", what]);
            assert_eq!(text.code, 0, "{}", text.err);
            text.out
        })
    };
    let [networks, separations, pools] = export(&here);
    assert!(
        separations.contains(r#""kind":"separation""#),
        "{separations}"
    );
    let file = here.home().path().join("all.jsonl");
    std::fs::write(&file, networks + &separations + &pools).unwrap();
    let report = there.json(&format!("import {}", file.display()));
    assert_eq!(report["written"], true, "{report}");
    let told = |fipd: &Daemon, pool: &str| {
        fipd.json(&format!("pool show {pool}"))["network_by_default"].clone()
    };
    for (pool, by_default) in [("plain", true), ("chosen", false)] {
        assert_eq!(told(&there, pool), by_default, "{pool}");
    }
    assert_eq!(export(&there)[1], separations);
}
