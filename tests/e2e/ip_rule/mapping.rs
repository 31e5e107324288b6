//! Which sources have a rule.

use super::*;

const WEB: &str = "10.96.23.17";

#[tokio::test(flavor = "multi_thread")]
async fn conformance_1_to_3_and_defect_2_a_rule_from_its_service_to_its_end_on_every_node() {
    let bench = Bench::start(&["n1", "n2"]).await;
    bench
        .rule(
            "lb",
            json!({ "cidr": "203.0.113.0/24", "table": 100, "priority": 1000 }),
        )
        .await;
    bench.service("web", &[WEB]).await;
    bench.service("outside", &["10.96.23.18"]).await;
    bench.vips("outside", &["203.0.114.45"]).await;
    bench.vips("web", &["203.0.113.45"]).await;

    let config = bench
        .config(CONFIG, "both nodes have it", |config| {
            config["status"]["applied"] == 2
        })
        .await;
    let spec = json!({ "serviceIP": WEB, "table": 100, "priority": 1000, "state": "present" });
    assert_eq!(config["spec"], spec);
    assert_eq!(
        config["metadata"]["labels"]["managed-by"],
        "ip-rule-operator"
    );
    assert_eq!(config["metadata"]["ownerReferences"][0]["controller"], true);
    assert_eq!(config["status"]["nodes"], json!(["n1", "n2"]));
    assert_eq!(condition(&config, "Applied")["status"], "True");
    for node in ["n1", "n2"] {
        let wants = bench.hosts[node].wants();
        assert_eq!(
            wants,
            BTreeMap::from([(WEB.parse().unwrap(), (100, Some(1000)))]),
            "{node}"
        );
    }
    let rule = wait(&bench.rules, "lb", "is active", |rule| {
        condition(rule, "Ready")["reason"] == "Active"
    })
    .await;
    assert_eq!(rule["status"]["rules"], 1);
    assert_eq!(
        bench
            .configs
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        1,
        "none of the one outside"
    );
    // Nothing is written without need.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let later = bench.config(CONFIG, "is there", |_| true).await;
    assert_eq!(
        later["metadata"]["resourceVersion"],
        config["metadata"]["resourceVersion"]
    );

    // The second node does not get to it: the object stays.
    bench.hosts["n2"].works.send_replace(false);
    bench.vips("web", &[]).await;
    bench.wants("n1", &[]).await;
    let one = bench.config(CONFIG, "n1 has confirmed", |config| {
        config["metadata"]["annotations"][format!("{CLEANUP}/n1")] == "done"
    });
    let one = one.await;
    assert_eq!(one["spec"]["state"], "absent");
    assert_eq!(
        one["metadata"]["annotations"]["iprule.operator.brtrm.dev/spec-hash"],
        Value::Null
    );
    // It never says that it is gone as long as it is there; 4 s is how long dead nodes are waited for.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let still = bench.config(CONFIG, "is there", |_| true).await;
    assert_eq!(
        still["metadata"]["annotations"][format!("{CLEANUP}/n2")],
        Value::Null
    );

    // Defect 8: it comes back, and the words of before do not count.
    bench.vips("web", &["203.0.113.46"]).await;
    let back = bench
        .config(CONFIG, "is present", |config| {
            config["spec"]["state"] == "present"
        })
        .await;
    assert_eq!(
        back["metadata"]["annotations"][format!("{CLEANUP}/n1")],
        Value::Null
    );
    bench.wants("n1", &["10.96.23.17 100"]).await;
    bench.vips("web", &[]).await;
    bench
        .config(CONFIG, "is absent", |config| {
            config["spec"]["state"] == "absent"
        })
        .await;
    bench.hosts["n2"].works.send_replace(true);
    bench.gone(CONFIG).await;
    bench.wants("n2", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conformance_4_to_8_defect_5_and_6_the_most_specific_wins_and_families_are_apart() {
    let bench = Bench::start(&["n1"]).await;
    bench
        .rule("wide", json!({ "cidr": "203.0.0.0/16", "table": 100 }))
        .await;
    bench
        .rule(
            "narrow",
            json!({ "cidrs": ["203.0.113.0/24", "2001:db8::/64"], "table": 200 }),
        )
        .await;
    bench.service("web", &[WEB, "fd00:96::17"]).await;
    bench
        .vips("web", &["203.0.113.45", "203.0.5.5", "2001:db8::45"])
        .await;
    bench
        .wants("n1", &["10.96.23.17 200", "fd00:96::17 200"])
        .await;
    let six = "iprc-fd00-0096-0000-0000-0000-0000-0000-0017";
    bench
        .config(six, "is present", |config| {
            config["spec"]["serviceIP"] == "fd00:96::17"
        })
        .await;
    let wide = wait(&bench.rules, "wide", "lost", |rule| {
        condition(rule, "Conflict")["reason"] == "MoreSpecific"
    })
    .await;
    assert!(
        condition(&wide, "Conflict")["message"]
            .as_str()
            .unwrap()
            .contains("IPRule narrow"),
        "{wide}"
    );
    bench.events("wide", "MoreSpecific").await;

    // As long: the lesser name wins, and the other is told.
    patch(
        &bench.rules,
        "wide",
        json!({ "spec": { "cidr": "203.0.113.0/24" } }),
    )
    .await;
    wait(&bench.rules, "wide", "clashes", |rule| {
        condition(rule, "Conflict")["reason"] == "SameRange"
    })
    .await;
    bench
        .wants("n1", &["10.96.23.17 200", "fd00:96::17 200"])
        .await;

    // Defect 3: another table is another rule, and the object stays the same one.
    let before = bench.config(CONFIG, "is there", |_| true).await;
    patch(
        &bench.rules,
        "narrow",
        json!({ "spec": { "table": 300, "failClosed": true } }),
    )
    .await;
    bench
        .wants("n1", &["10.96.23.17 300", "fd00:96::17 300"])
        .await;
    let after = bench
        .config(CONFIG, "is applied", |config| {
            config["status"]["applied"] == 1 && config["spec"]["table"] == 300
        })
        .await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);

    // Without the narrow one the other has what is left for it.
    delete(&bench.rules, "narrow").await;
    bench.wants("n1", &["10.96.23.17 100"]).await;
    bench.gone(six).await;
    absent(&bench.rules, "narrow").await;
    let moved = bench
        .config(CONFIG, "is the other's", |config| {
            config["metadata"]["ownerReferences"][0]["name"] == "wide"
        })
        .await;
    assert_eq!(moved["metadata"]["uid"], before["metadata"]["uid"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn conformance_9_to_13_defect_13_what_is_wrong_is_told_and_takes_nothing_away() {
    let bench = Bench::start(&["n1"]).await;
    bench.rule("good", json!({ "cidr": "203.0.113.0/24", "cidrs": ["203.0.114.0/24"], "table": 4_294_967_295_u32, "nodeSelectorLabel": "lb" })).await;
    bench
        .rule("foo", json!({ "cidr": "foo", "table": 100 }))
        .await;
    for (name, table) in [("zero", 0_i64), ("minus", -1), ("large", 1 << 32)] {
        bench
            .rule(name, json!({ "cidr": "203.0.115.0/24", "table": table }))
            .await;
    }
    bench.service("web", &[WEB]).await;
    bench.vips("web", &["203.0.114.45"]).await;
    bench.wants("n1", &["10.96.23.17 4294967295"]).await;
    for (name, field) in [
        ("foo", "spec.cidr: \"foo\""),
        ("zero", "spec.table: \"0\""),
        ("minus", "spec.table: \"-1\""),
        ("large", "spec.table: \"4294967296\""),
    ] {
        let rule = wait(&bench.rules, name, "is told", |rule| {
            condition(rule, "Ready")["reason"] == "Invalid"
        })
        .await;
        let message = condition(&rule, "Ready")["message"].as_str().unwrap();
        assert!(
            message.contains(field) && message.contains("allowed is"),
            "{message}"
        );
    }
    bench.events("foo", "Invalid").await;
    bench.events("good", "Questionable").await;

    // A rule that becomes wrong keeps what it had.
    patch(&bench.rules, "good", json!({ "spec": { "table": 0 } })).await;
    wait(&bench.rules, "good", "is told", |rule| {
        condition(rule, "Ready")["reason"] == "Refused"
    })
    .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let kept = bench.config(CONFIG, "is there", |_| true).await;
    assert_eq!(
        (&kept["spec"]["state"], &kept["spec"]["table"]),
        (&json!("present"), &json!(4_294_967_295_u32))
    );
    assert_eq!(bench.hosts["n1"].wants_text(), ["10.96.23.17 4294967295"]);
    patch(&bench.rules, "good", json!({ "spec": { "table": 7 } })).await;
    bench.wants("n1", &["10.96.23.17 7"]).await;

    // Out of scope.
    patch(
        &bench.rules,
        "good",
        json!({ "spec": { "nodeSelectorLabel": "lb=other" } }),
    )
    .await;
    bench.wants("n1", &[]).await;
    patch(
        &bench.nodes,
        "n1",
        json!({ "metadata": { "labels": { "lb": "other" } } }),
    )
    .await;
    bench.wants("n1", &["10.96.23.17 7"]).await;

    // A hostname is no address.
    let named =
        json!({ "status": { "loadBalancer": { "ingress": [{ "hostname": "lb.example.net" }] } } });
    bench
        .services
        .patch_status("web", &PatchParams::default(), &Patch::Merge(named))
        .await
        .unwrap();
    bench.gone(CONFIG).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sources_are_the_addresses_themselves_or_the_pods_where_a_rule_says_so() {
    let bench = Bench::start(&["n1"]).await;
    bench.rule("lb", json!({ "cidr": "203.0.113.0/24", "table": 100, "source": "vip", "reconcileInterval": "1s" })).await;
    bench.service("web", &[WEB]).await;
    bench.vips("web", &["203.0.113.45"]).await;
    bench.wants("n1", &["203.0.113.45 100"]).await;
    let slices: Api<EndpointSlice> = Api::namespaced(bench.client.clone(), "default");
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": "web-1", "labels": { "kubernetes.io/service-name": "web" } },
        "endpoints": [{ "addresses": ["10.42.0.5"] }, { "addresses": ["10.42.1.5"] }], "ports": [],
    });
    create(&slices, slice).await;
    patch(
        &bench.rules,
        "lb",
        json!({ "spec": { "source": "endpoints" } }),
    )
    .await;
    bench.wants("n1", &["10.42.0.5 100", "10.42.1.5 100"]).await;
    patch(
        &slices,
        "web-1",
        json!({ "endpoints": [{ "addresses": ["10.42.1.5"] }] }),
    )
    .await;
    bench.wants("n1", &["10.42.1.5 100"]).await;
    bench.gone("iprc-10-42-0-5").await;
}
