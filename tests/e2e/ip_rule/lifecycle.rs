//! What keeps rules and their objects together, whatever happens to either.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::DynamicObject;
use kube::core::ApiResource;

use super::*;

const APPLIED: &str = "applied.iprule.agent.brtrm.dev";

async fn whole(nodes: &[&'static str]) -> Bench {
    whole_with(nodes, SETTINGS).await
}

async fn whole_with(nodes: &[&'static str], settings: &str) -> Bench {
    let bench = Bench::start_with(nodes, settings).await;
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
    let host = Host::start(&bench.plane, RESTRICTED_USER, "n1", Some(SETTINGS)).await;
    bench.hosts.insert("n1", host);
    bench.wants("n1", &["10.96.23.17 100"]).await;
    let after = bench.config(CONFIG, "is there", |_| true).await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["spec"], before["spec"]);
    // It leads again, as the same holder of the original's Lease.
    bench.vips("web", &["203.0.114.45"]).await;
    bench.gone(CONFIG).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conformance_34_and_defect_10_who_leaves_with_its_rules_is_not_waited_for() {
    let mut bench = whole(&["n1", "n2"]).await;
    bench.hosts.remove("n2").unwrap().leave();
    let left = bench.config(CONFIG, "n2 says nothing any more", |config| {
        config["metadata"]["annotations"][format!("{APPLIED}/n2")].is_null()
    });
    let left = left.await;
    assert!(left["metadata"]["annotations"][format!("{APPLIED}/n1")].is_string());
    assert_eq!(left["spec"]["state"], "present");
    bench.vips("web", &[]).await;
    bench.gone(CONFIG).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_9_a_living_node_without_fipd_is_named_when_it_is_waited_for_no_longer() {
    let settings = "node-timeout = \"2s\"\nsilent-timeout = \"10s\"\n";
    let mut bench = whole_with(&["n1", "n2"], settings).await;
    // As after a crash, or a removed package.
    drop(bench.hosts.remove("n2"));
    bench.vips("web", &[]).await;
    bench
        .config(CONFIG, "n1 has confirmed", |config| {
            config["metadata"]["annotations"][format!("{CLEANUP}/n1")] == "done"
        })
        .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.config(CONFIG, "waits for n2", |_| true).await;
    bench.gone(CONFIG).await;
    let event = bench.events("lb", "NodeSilent").await;
    let note = event["note"].as_str().unwrap();
    assert!(
        note.contains("n2 had the rule of") && note.contains("fipd is back there"),
        "{note}"
    );
    // Back again, it wants nothing: its tag tells the engine what to remove.
    let host = Host::start(&bench.plane, NODE_USER, "n2", None).await;
    let said = wait_until("n2 says what it wants", DEADLINE, || async {
        let wanted: Vec<_> = host.board.wanted().wishes.into_iter().collect();
        match wanted.as_slice() {
            [(_, sets)] => Ok(sets.len()),
            _ => Err(format!("{wanted:?}")),
        }
    });
    assert_eq!(said.await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_13_what_does_not_fit_its_schema_keeps_what_it_had_and_can_be_deleted() {
    let bench = whole(&["n1"]).await;
    // As with the definitions of another version.
    let definitions: Api<CustomResourceDefinition> = Api::all(bench.client.clone());
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let place = "/spec/versions/0/schema/openAPIV3Schema";
    for kind in ["iprules", "ipruleconfigs"] {
        let loose = json!([{ "op": "replace", "path": place, "value": any }]);
        let loose: Patch<()> = Patch::Json(serde_json::from_value(loose).unwrap());
        let name = format!("{kind}.api.operator.brtrm.dev");
        definitions
            .patch(&name, &PatchParams::default(), &loose)
            .await
            .unwrap();
    }
    let edit = async |resource: ApiResource, name: &str, spec: Value| {
        let api: Api<DynamicObject> = Api::all_with(bench.client.clone(), &resource);
        let body = Patch::Merge(json!({ "spec": spec }));
        wait_until("any text is taken", DEADLINE, || async {
            let edited = api.patch(name, &PatchParams::default(), &body).await;
            match edited {
                Ok(object) if object.data["spec"]["mode"] == spec["mode"] => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
    };
    let rule = ApiResource::erase::<IPRule>(&());
    let config = ApiResource::erase::<IPRuleConfig>(&());
    edit(rule, "lb", json!({ "mode": { "odd": true } })).await;
    bench.events("lb", "Malformed").await;
    edit(config.clone(), CONFIG, json!({ "mode": { "odd": true } })).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(bench.hosts["n1"].wants_text(), ["10.96.23.17 100"]);
    edit(config, CONFIG, json!({ "mode": null })).await;
    bench
        .config(CONFIG, "is as it was", |config| {
            config["spec"]["state"] == "present"
        })
        .await;
    let rules: Api<DynamicObject> =
        Api::all_with(bench.client.clone(), &ApiResource::erase::<IPRule>(&()));
    delete(&rules, "lb").await;
    bench.gone(CONFIG).await;
    absent(&rules, "lb").await;
    bench.wants("n1", &[]).await;
}
