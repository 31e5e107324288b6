//! How full a pool was.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{Daemon, PATIENCE};

#[test]
fn a_pool_has_a_history_from_its_first_start_on() {
    let fipd = Daemon::start();
    fipd.json("pool create vips --cidr 192.0.2.0/24");
    assert_eq!(
        fipd.json("pool show vips")["forecast"],
        json!({ "outcome": "too-little-history" })
    );
    assert!(
        fipd.cli("pool show vips")
            .out
            .contains("too little history")
    );
    // The hour before is noted at each start, after a kill as well.
    let mut fipd = fipd;
    fipd.signal(nix::sys::signal::Signal::SIGKILL);
    fipd.wait();
    let fipd = Daemon::start_in(fipd.home(), &[]);
    let rest = fipd.rest(Some(&fipd.token("test", "viewer")));
    let ask = |query: &str| rest.get(&format!("/api/v1/pools/vips/history{query}"));
    let until = Instant::now() + PATIENCE;
    let page = loop {
        let page = ask("").json();
        if page["rows"][0].is_object() {
            break page;
        }
        assert!(Instant::now() < until, "{page}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let row = &page["rows"][0];
    let figures = (&row["size"], &row["used"], &row["given"]);
    assert_eq!(figures, (&json!(254), &json!(0), &json!(0)), "{page}");
    let none = json!(null);
    assert_eq!((&page["before"], &page["next"]), (&none, &none));
    let at = row["at"].as_str().unwrap();
    assert!(at.ends_with(":00:00.000Z"), "{at}");
    let daily = fipd.json("pool history vips --step day");
    assert!(
        daily["rows"][0]["at"]
            .as_str()
            .unwrap()
            .ends_with("T00:00:00.000Z")
    );
    let table = fipd.cli("pool history vips").out;
    assert!(table.starts_with("AT") && table.contains("254"), "{table}");
    for (query, field) in [
        ("?step=week", "step"),
        ("?from=yesterday", "from"),
        ("?to=2026-01-01", "to"),
        ("?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "from"),
    ] {
        let problem = ask(query);
        problem.problem(422, "invalid");
        assert_eq!(problem.json()["field"], field, "{query}");
    }
    ask("?cursor=zz").problem(400, "invalid");
    fipd.cli("pool history nothing").fails(3, &["nothing"]);
}
