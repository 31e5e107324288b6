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
