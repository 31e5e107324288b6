//! Subnets: what they become, and what is refused.

use fipd_tests::alerts::{alerts, holding};
use fipd_tests::testbed::wait_until;

use super::*;

/// Rows 27 and 43, a.3, and defect 11 of g.1: a subnet is a pool, with its labels, its network address and its gateway in use.
#[tokio::test]
async fn g1_11_a_subnet_becomes_a_pool_and_its_gateway_is_counted() {
    let bed = PodBed::share(&[]).await.unwrap();
    let rest = json!({ "vlan": 100, "gateway": "10.100.0.1" });
    bed.objects
        .subnet("first", "10.100.0.7/24", rest)
        .await
        .unwrap();
    let is_active = |one: &Value| {
        condition(one, "Ready")["status"] == "True" && one["spec"]["cidr"] == "10.100.0.0/24"
    };
    let path = subnet("first");
    let made = bed
        .objects
        .wait(SUBNET, &path, "is active", is_active)
        .await
        .unwrap();
    let labels = &made["metadata"]["labels"];
    assert_eq!(
        (
            &labels["master"],
            &labels["vlan"],
            &labels["flatMode"],
            &labels["mode"]
        ),
        (
            &json!("eth0"),
            &json!("100"),
            &json!("macvlan"),
            &json!("bridge")
        )
    );
    let finalizers = json!(["wrangler.cattle.io/rancher-flat-network-subnet-remove"]);
    assert_eq!(made["metadata"]["finalizers"], finalizers);
    let status = &made["status"];
    assert_eq!(
        (&status["gateway"], &status["usedIPCount"]),
        (&json!("10.100.0.1"), &json!(1))
    );
    assert_eq!(
        status["usedIP"],
        json!([{ "from": "10.100.0.1", "to": "10.100.0.1" }])
    );
    assert_eq!(status["phase"], "Active");
    let pools = bed
        .fipd
        .cli(["pool", "list", "-o", "json"])
        .await
        .unwrap()
        .success()
        .unwrap();
    assert!(
        pools.contains("flat-network/pods/cattle-flat-network/first"),
        "{pools}"
    );
}

/// The spelling of 2024 is served and written back in the current one.
#[tokio::test]
async fn the_spelling_of_2024_is_written_back_once() {
    let bed = PodBed::share(&[]).await.unwrap();
    let old = json!({
        "vlan": 101, "ranges": [{ "from": "10.101.0.10", "end": "10.101.0.20" }],
        "routes": [{ "destination": "10.0.0.0/8", "gateway": "10.101.0.1", "interface": "eth1" }],
        "podDefaultGateway": { "enable": true, "serviceCIDR": "10.43.0.0/16" },
    });
    bed.objects
        .subnet("old", "10.101.0.0/24", old)
        .await
        .unwrap();
    let is_current = |one: &Value| {
        one["spec"]["ranges"][0]["to"] == "10.101.0.20" && one["status"]["phase"] == "Active"
    };
    let now = bed
        .objects
        .wait(SUBNET, &subnet("old"), "is current", is_current)
        .await
        .unwrap();
    let spec = &now["spec"];
    assert_eq!(
        spec["ranges"],
        json!([{ "from": "10.101.0.10", "to": "10.101.0.20" }])
    );
    assert_eq!(
        spec["routes"],
        json!([{ "dev": "eth1", "dst": "10.0.0.0/8", "via": "10.101.0.1" }])
    );
    assert_eq!(
        spec["routeSettings"],
        json!({ "addServiceCIDR": true, "flatNetworkDefaultGateway": true })
    );
    assert_eq!(spec["podDefaultGateway"], Value::Null);
}

/// Rows 38 to 42: what breaks a rule is no pool, and says which field, and what to do.
#[tokio::test]
async fn a_subnet_that_breaks_a_rule_says_so_and_is_served_once_it_is_mended() {
    let bed = PodBed::share(&["other-place"]).await.unwrap();
    for (name, rest, says) in [
        ("flag", json!({ "ipvlanFlag": "bridge" }), "ipvlanFlag"),
        ("mode", json!({ "mode": "l4" }), "spec.mode"),
        ("gate", json!({ "gateway": "10.9.9.9" }), "spec.gateway"),
        (
            "range",
            json!({ "ranges": [{ "from": "10.102.0.9", "to": "10.102.0.1" }] }),
            "spec.ranges[0]",
        ),
        ("vlan", json!({ "vlan": 4095 }), "spec.vlan"),
        ("master", json!({ "master": "" }), "spec.master"),
        (
            "route",
            json!({ "routes": [{ "dev": "", "dst": "1.2.3.4" }] }),
            "spec.routes[0]",
        ),
    ] {
        let mut fields = json!({ "vlan": 102 });
        for (key, value) in rest.as_object().unwrap() {
            fields[key] = value.clone();
        }
        bed.objects
            .subnet(name, "10.102.0.0/24", fields)
            .await
            .unwrap();
        let path = subnet(name);
        let failed = bed
            .objects
            .wait_phase(SUBNET, &path, "Failed")
            .await
            .unwrap();
        let message = failed["status"]["failureMessage"].as_str().unwrap();
        assert!(message.contains(says), "{name}: {message}");
        assert_eq!(condition(&failed, "Ready")["status"], "False");
        let event = bed.objects.wait_event(&path, "Invalid").await.unwrap();
        assert!(event.contains(says), "{event}");
        bed.objects.delete(SUBNET, &path).await.unwrap();
        bed.objects.wait_gone(SUBNET, &path).await.unwrap();
    }
    let spec = json!({ "spec": { "flatMode": "macvlan", "master": "eth0", "vlan": 103, "cidr": "10.103.0.0/24" } });
    bed.objects
        .make(SUBNET, "other-place/lost", spec)
        .await
        .unwrap();
    let lost = bed
        .objects
        .wait_phase(SUBNET, "other-place/lost", "Failed")
        .await
        .unwrap();
    let message = lost["status"]["failureMessage"].as_str().unwrap();
    assert!(message.starts_with("invalid subnet namespace"), "{message}");
    bed.objects
        .subnet("mended", "10.104.0.0/240", json!({ "vlan": 104 }))
        .await
        .unwrap();
    bed.objects
        .wait_phase(SUBNET, &subnet("mended"), "Failed")
        .await
        .unwrap();
    let patch = json!({ "spec": { "cidr": "10.104.0.0/24" } });
    bed.objects
        .merge(SUBNET, &subnet("mended"), patch)
        .await
        .unwrap();
    let mended = bed
        .objects
        .wait_phase(SUBNET, &subnet("mended"), "Active")
        .await
        .unwrap();
    assert_eq!(mended["status"]["failureMessage"], "");
}

/// Rows 31 to 37, and defect 9 of g.1: what clashes with an older subnet is refused, by what both say and not by labels.
#[tokio::test]
async fn g1_9_a_subnet_that_clashes_with_an_older_one_is_refused() {
    let bed = PodBed::share(&[]).await.unwrap();
    let range = |from: u8, to: u8| json!([{ "from": format!("10.105.0.{from}"), "to": format!("10.105.0.{to}") }]);
    let make = async |name: &str, rest: Value, phase: &str, says: &str| {
        let mut fields = json!({ "vlan": 105 });
        for (key, value) in rest.as_object().unwrap() {
            fields[key] = value.clone();
        }
        bed.objects
            .subnet(name, "10.105.0.0/24", fields)
            .await
            .unwrap();
        let seen = bed
            .objects
            .wait_phase(SUBNET, &subnet(name), phase)
            .await
            .unwrap();
        let message = seen["status"]["failureMessage"]
            .as_str()
            .unwrap_or_default();
        assert!(message.contains(says), "{name}: {message}");
        if phase == "Failed" {
            bed.objects.delete(SUBNET, &subnet(name)).await.unwrap();
            bed.objects.wait_gone(SUBNET, &subnet(name)).await.unwrap();
        }
    };
    make("low", json!({ "ranges": range(10, 20) }), "Active", "").await;
    make("high", json!({ "ranges": range(100, 200) }), "Active", "").await;
    make("whole", json!({}), "Failed", "CIDR conflict").await;
    // The first neighbour has other addresses; the second one has not.
    make(
        "third",
        json!({ "ranges": range(150, 160) }),
        "Failed",
        "range conflict",
    )
    .await;
    make(
        "ipvlan",
        json!({ "flatMode": "ipvlan", "ranges": range(30, 40) }),
        "Failed",
        "eth0.105",
    )
    .await;
    make(
        "lane",
        json!({ "vlan": 106, "ranges": range(10, 20) }),
        "Active",
        "",
    )
    .await;
}

/// Defect 20 of g.1: what a subnet in use is may not change, and it stays until nobody uses it.
#[tokio::test]
async fn g1_20_a_subnet_in_use_keeps_what_it_is_and_stays() {
    let bed = PodBed::share(&["in-use"]).await.unwrap();
    bed.objects
        .subnet("used", "10.107.0.0/24", json!({ "vlan": 107 }))
        .await
        .unwrap();
    let path = subnet("used");
    bed.objects
        .wait_phase(SUBNET, &path, "Active")
        .await
        .unwrap();
    bed.objects
        .pod("in-use/a", "used", "auto", json!({}))
        .await
        .unwrap();
    let address = bed.objects.wait_address("in-use/a").await.unwrap();
    assert_eq!(address, "10.107.0.1");
    for (field, value, named) in [
        ("vlan", json!(108), "spec.vlan"),
        ("master", json!("eth7"), "spec.master"),
        ("flatMode", json!("ipvlan"), "spec.flatMode"),
        ("cidr", json!("10.108.0.0/24"), "spec.cidr"),
        (
            "ranges",
            json!([{ "from": "10.107.0.9", "to": "10.107.0.20" }]),
            "10.107.0.1",
        ),
    ] {
        let before = bed.objects.get(SUBNET, &path).await.unwrap().unwrap()["spec"][field].clone();
        bed.objects
            .merge(SUBNET, &path, json!({ "spec": { field: value } }))
            .await
            .unwrap();
        let says = |one: &Value| {
            let ready = condition(one, "Ready");
            let message = ready["message"].as_str().unwrap_or_default();
            ready["status"] == "False" && message.contains(named)
        };
        bed.objects
            .wait(SUBNET, &path, &format!("{field} is refused"), says)
            .await
            .unwrap();
        assert_eq!(bed.leases("10.107.").await.unwrap().len(), 1);
        bed.objects
            .merge(SUBNET, &path, json!({ "spec": { field: before } }))
            .await
            .unwrap();
        let says = |one: &Value| condition(one, "Ready")["status"] == "True";
        bed.objects
            .wait(SUBNET, &path, &format!("{field} is as it was"), says)
            .await
            .unwrap();
    }
    bed.objects.delete(SUBNET, &path).await.unwrap();
    bed.objects
        .wait(SUBNET, &path, "goes", |one| {
            !one["metadata"]["deletionTimestamp"].is_null()
        })
        .await
        .unwrap();
    bed.objects
        .pod("in-use/late", "used", "auto", json!({}))
        .await
        .unwrap();
    bed.objects
        .wait_event("in-use/late", IP_ERROR)
        .await
        .unwrap();
    assert!(
        bed.objects.get(SUBNET, &path).await.unwrap().is_some(),
        "it is in use"
    );
    bed.objects.delete("Pod", "in-use/a").await.unwrap();
    bed.objects.delete("Pod", "in-use/late").await.unwrap();
    bed.objects.wait_gone(SUBNET, &path).await.unwrap();
}

/// A subnet goes under its pods where somebody strips its finalizer: one that is made anew on another VLAN gets neither them nor the
/// network of theirs.
#[tokio::test]
async fn a_subnet_made_anew_while_its_addresses_are_in_use_stays_on_its_vlan() {
    let bed = PodBed::share(&["anew"]).await.unwrap();
    let make = async |vlan: u16| {
        let made = bed
            .objects
            .subnet("anew", "10.110.0.0/24", json!({ "vlan": vlan }));
        made.await.unwrap();
    };
    let path = subnet("anew");
    make(110).await;
    bed.objects
        .wait_phase(SUBNET, &path, "Active")
        .await
        .unwrap();
    bed.objects
        .pod("anew/a", "anew", "auto", json!({}))
        .await
        .unwrap();
    bed.objects.wait_address("anew/a").await.unwrap();
    bed.objects.delete(SUBNET, &path).await.unwrap();
    let strip = json!({ "metadata": { "finalizers": null } });
    bed.objects.merge(SUBNET, &path, strip).await.unwrap();
    bed.objects.wait_gone(SUBNET, &path).await.unwrap();
    make(111).await;
    let refused = bed
        .objects
        .wait_phase(SUBNET, &path, "Failed")
        .await
        .unwrap();
    let message = refused["status"]["failureMessage"].as_str().unwrap();
    assert!(
        message.contains("spec.vlan") && message.contains("vlan-110"),
        "{message}"
    );
    assert!(refused["status"]["accepted"].is_null(), "{refused}");
    assert_eq!(bed.leases("10.110.").await.unwrap().len(), 1);
    let back = json!({ "spec": { "vlan": 110 } });
    bed.objects.merge(SUBNET, &path, back).await.unwrap();
    bed.objects
        .wait_phase(SUBNET, &path, "Active")
        .await
        .unwrap();
    // Once nobody uses its addresses it is served without another edit.
    let again = json!({ "spec": { "vlan": 111 } });
    bed.objects.merge(SUBNET, &path, again).await.unwrap();
    bed.objects
        .wait_phase(SUBNET, &path, "Failed")
        .await
        .unwrap();
    bed.objects.delete("Pod", "anew/a").await.unwrap();
    let served = bed
        .objects
        .wait_phase(SUBNET, &path, "Active")
        .await
        .unwrap();
    assert_eq!(served["status"]["accepted"]["vlan"], 111);
    bed.objects.delete(SUBNET, &path).await.unwrap();
    bed.objects.wait_gone(SUBNET, &path).await.unwrap();
}

/// The alerts on flat networks fire by what fipd serves.
#[tokio::test]
async fn a_subnet_that_is_full_and_a_pod_that_waits_for_it_are_alerted() {
    let bed = PodBed::share(&["alerts"]).await.unwrap();
    bed.objects
        .subnet("narrow", "10.109.0.0/30", json!({ "vlan": 109 }))
        .await
        .unwrap();
    for path in ["alerts/a", "alerts/b"] {
        bed.objects
            .pod(path, "narrow", "auto", json!({}))
            .await
            .unwrap();
        bed.objects.wait_address(path).await.unwrap();
    }
    bed.objects
        .pod("alerts/late", "narrow", "auto", json!({}))
        .await
        .unwrap();
    let all = alerts("FipdFlat").unwrap();
    assert_eq!(all.len(), 2);
    for (alert, says) in [
        ("FipdFlatSubnetNearlyFull", "subnet=\"narrow\""),
        ("FipdFlatPodsWaiting", "phase=\"Failed\""),
    ] {
        wait_until(&format!("{alert} fires"), DEADLINE, || async {
            let now = bed.fipd.get("/metrics").await.unwrap().body;
            let holds = holding(&all[alert], "", &now).unwrap();
            let fires = holds.iter().any(|one| one.contains(says));
            fires.then_some(()).ok_or(now)
        })
        .await
        .unwrap();
    }
}
