//! What keeps rules and their objects together, whatever happens to either.

use super::*;

async fn whole(nodes: &[&'static str]) -> Bench {
    let bench = Bench::start(nodes).await;
    bench
        .rule("lb", json!({ "cidr": "203.0.113.0/24", "table": 100 }))
        .await;
    bench.service("web", &["10.96.23.17"]).await;
    bench.vips("web", &["203.0.113.45"]).await;
    let count = nodes.len();
    bench
        .config(CONFIG, "all nodes have it", |config| {
            config["status"]["applied"] == count
        })
        .await;
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_4_the_garbage_collector_takes_nothing_before_the_nodes_have() {
    let bench = whole(&["n1"]).await;
    bench.hosts["n1"].works.send_replace(false);
    // Dependents first, as an eager admin would have it.
    bench
        .rules
        .delete("lb", &DeleteParams::foreground())
        .await
        .unwrap();
    bench
        .config(CONFIG, "is absent", |config| {
            config["spec"]["state"] == "absent"
        })
        .await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    bench.config(CONFIG, "is still there", |_| true).await;
    assert!(bench.rules.get_opt("lb").await.unwrap().is_some());
    bench.hosts["n1"].works.send_replace(true);
    bench.gone(CONFIG).await;
    absent(&bench.rules, "lb").await;
    assert!(bench.hosts["n1"].wants().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_12_objects_that_are_edited_or_deleted_by_hand_are_put_right_and_no_rule_goes_meanwhile()
 {
    let bench = whole(&["n1"]).await;
    let good = bench.config(CONFIG, "is there", |_| true).await;
    let source: IpAddr = "10.96.23.17".parse().unwrap();
    // The node wants the same all the time.
    let mut changes = bench.hosts["n1"].board.changes();
    changes.borrow_and_update();
    for edit in [
        json!({ "spec": { "table": 7 } }),
        json!({ "spec": { "priority": 5, "failClosed": true } }),
        json!({ "metadata": { "labels": null } }),
        json!({ "metadata": { "annotations": null } }),
        json!({ "metadata": { "finalizers": null, "ownerReferences": null } }),
    ] {
        patch(&bench.configs, CONFIG, edit.clone()).await;
        let what = format!("is put right after {edit}");
        let right = bench.config(CONFIG, &what, |config| {
            let same = |path: &str| config.pointer(path) == good.pointer(path);
            [
                "/spec",
                "/metadata/labels",
                "/metadata/finalizers",
                "/metadata/ownerReferences",
            ]
            .iter()
            .all(|path| same(path))
                && config["metadata"]["annotations"]["iprule.operator.brtrm.dev/spec-hash"]
                    == good["metadata"]["annotations"]["iprule.operator.brtrm.dev/spec-hash"]
        });
        right.await;
    }
    bench.wants("n1", &["10.96.23.17 100"]).await;

    // Deleted: made anew, and the node has its rule all the time.
    delete(&bench.configs, CONFIG).await;
    let uid = &good["metadata"]["uid"];
    bench
        .config(CONFIG, "is made anew", |config| {
            config["metadata"]["uid"] != *uid && config["status"]["applied"] == 1
        })
        .await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(
        !changes.has_changed().unwrap(),
        "something else was wanted for a while"
    );
    assert!(bench.hosts["n1"].wants().contains_key(&source));

    // So are the finalizers of IPRules.
    patch(
        &bench.rules,
        "lb",
        json!({ "metadata": { "finalizers": null } }),
    )
    .await;
    wait(&bench.rules, "lb", "is protected", |rule| {
        rule["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|all| all.len() == 1)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_9_and_conformance_36_dead_nodes_keep_no_object() {
    let bench = whole(&["n1", "n2"]).await;
    let long = format!("{}.example.net", "n".repeat(60));
    // One that is long dead, and one that nobody has heard of.
    bench.node(&long).await;
    bench.node("silent").await;
    let dead = json!({ "status": { "conditions": [{
        "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] } });
    let patch = Patch::Strategic(dead);
    bench
        .nodes
        .patch_status(&long, &PatchParams::default(), &patch)
        .await
        .unwrap();
    bench
        .config(CONFIG, "counts them", |config| {
            condition(config, "Applied")["reason"] == "Progressing"
        })
        .await;
    // The second node has the rule and dies without a word.
    bench.hosts["n2"].works.send_replace(false);
    bench.vips("web", &[]).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    bench
        .config(CONFIG, "waits for n2", |config| {
            config["spec"]["state"] == "absent"
        })
        .await;
    delete(&bench.nodes, "n2").await;
    bench.gone(CONFIG).await;
    // Back again, it has cleaned itself: nothing is wanted of it.
    bench.node("n2").await;
    bench.hosts["n2"].works.send_replace(true);
    bench.wants("n2", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_stay_while_the_api_is_away_and_nothing_goes_by_a_restart_of_the_decider() {
    let mut bench = whole(&["n1", "n2"]).await;
    bench.plane.kill_api().unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    for node in ["n1", "n2"] {
        assert_eq!(
            bench.hosts[node].wants_text(),
            ["10.96.23.17 100"],
            "{node}"
        );
    }
    bench.plane.restart_api().await.unwrap();
    let before = bench.config(CONFIG, "is there", |_| true).await;
    drop(bench.hosts.remove("n1"));
    let host = Host::start(&bench.plane, RESTRICTED_USER, "n1", true).await;
    bench.hosts.insert("n1", host);
    bench.wants("n1", &["10.96.23.17 100"]).await;
    let after = bench.config(CONFIG, "is there", |_| true).await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["spec"], before["spec"]);
    // It leads again, as the same holder of the original's Lease.
    bench.vips("web", &["203.0.114.45"]).await;
    bench.gone(CONFIG).await;
}
