use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::*;
use crate::validation::flat_network::interfaces::InterfaceId;

fn key() -> Key {
    Key::new("ns", "web-0")
}

fn at(second: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(second).expect("a time")
}

/// All clocks say this.
fn now(second: i64) -> PodClock {
    PodClock {
        wall: at(second),
        book: at(second),
    }
}

fn pod_with(uid: &str, owner: &str, change: &Value) -> PodView {
    let mut pod = json!({
        "metadata": {
            "name": "web-0", "namespace": "ns", "uid": uid,
            "annotations": { IP_ANNOTATION: "auto", SUBNET: "lab" },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": owner, "name": "web", "uid": "w", "controller": true,
            }],
        },
        "spec": { "containers": [], "nodeName": "n1" },
    });
    merge(&mut pod, change);
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    let mut all = PodView::all_of(&pod);
    all.remove("web-0").expect("a pod on a flat network")
}

const IP_ANNOTATION: &str = crate::systems::flat_network::names::IP;

fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change.clone(),
    }
}

fn pod(uid: &str) -> PodView {
    pod_with(uid, "ReplicaSet", &json!({}))
}

fn facts() -> PodFacts {
    PodFacts {
        flat_mode: Some("macvlan".to_owned()),
        pending_limit: Some(Duration::from_secs(300)),
        ..PodFacts::default()
    }
}

/// The address as the API server has it once it was made for the pod.
fn made(pod: &PodView, facts: &PodFacts, status: Value) -> FlatIpView {
    let PodPlan::Create(object) = plan(&key(), Some(pod), None, facts, now(0)) else {
        panic!("an address is made");
    };
    let mut object = *object;
    object.metadata.uid = Some("i".to_owned());
    object.status = Some(serde_json::from_value(status).expect("a status"));
    FlatIpView::of(object)
}

fn active() -> Value {
    json!({ "phase": "Active", "addr": "10.0.0.5", "mac": "02:00:00:00:00:01",
        "allocatedTimeStamp": "1970-01-01T00:00:00Z" })
}

fn planned(pod: Option<&PodView>, ip: Option<&FlatIpView>) -> PodPlan {
    plan(&key(), pod, ip, &facts(), now(1_000))
}

/// Row 54 of the contract.
#[test]
fn a_pod_gets_an_address_object_and_then_its_labels() {
    let pod = pod("p1");
    let ip = made(&pod, &facts(), json!({}));
    assert_eq!((&*ip.spec.subnet, &*ip.spec.pod_id), ("lab", "p1"));
    assert_eq!(ip.labels["subnet"], "lab");
    assert_eq!(ip.labels[IP_TYPE], "auto");
    assert_eq!(ip.meta.finalizers, [IP_REMOVE]);
    assert_eq!((&*ip.owners[0].kind, &*ip.owners[0].uid), ("Pod", "p1"));
    assert_eq!(
        planned(Some(&pod), Some(&ip)),
        PodPlan::Nothing,
        "it has no address yet"
    );
    let ip = made(&pod, &facts(), active());
    let PodPlan::Label(labels) = planned(Some(&pod), Some(&ip)) else {
        panic!("the pod gets labels");
    };
    let labels = &labels["metadata"]["labels"];
    assert_eq!(labels[SELECTED_IP], "10.0.0.5");
    assert_eq!(
        (&labels[SUBNET], &labels[FLAT_MODE]),
        (&json!("lab"), &json!("macvlan"))
    );
    assert!(labels.get(SELECTED_MAC).is_none(), "nobody named one");
    let labelled = pod_with(
        "p1",
        "ReplicaSet",
        &json!({ "metadata": { "labels": labels } }),
    );
    assert_eq!(planned(Some(&labelled), Some(&ip)), PodPlan::Nothing);
}

/// Defects 2 and 4 of g.1: an address is that of one pod, by its UID.
#[test]
fn g1_4_the_address_of_a_predecessor_is_given_back_and_never_used() {
    let before = made(&pod("p0"), &facts(), active());
    let now = pod("p1");
    assert_eq!(
        planned(Some(&now), Some(&before)),
        PodPlan::Release(Why::Over)
    );
    let mut ends = before.clone();
    ends.meta.deleted = Some(fipd_core::Timestamp(1));
    assert_eq!(
        planned(Some(&now), Some(&ends)),
        PodPlan::Nothing,
        "it is waited for"
    );
}

/// The original's CNI plugin goes by the name of a pod: what it gave a successor while fipd was away is the successor's.
#[test]
fn g1_4_an_address_that_a_successor_uses_is_its_own() {
    let before = made(&pod("p0"), &facts(), active());
    let status = r#"[{"name":"ns/rancher-flat-network","interface":"eth1","ips":["10.0.0.5"]}]"#;
    let uses =
        json!({ "metadata": { "annotations": { "k8s.v1.cni.cncf.io/network-status": status } } });
    let now = pod_with("p1", "ReplicaSet", &uses);
    let PodPlan::Correct(patch) = planned(Some(&now), Some(&before)) else {
        panic!("it is the successor's");
    };
    assert_eq!(patch["spec"]["podId"], "p1");
}

/// Rows 57 and 21 of g.1.
#[test]
fn g1_21_an_address_goes_with_its_pod_and_at_once_with_a_finished_one() {
    let pod = pod("p1");
    let ip = made(&pod, &facts(), active());
    assert_eq!(planned(None, Some(&ip)), PodPlan::Release(Why::Absent));
    let finished = json!({ "status": { "phase": "Succeeded" } });
    let finished = pod_with("p1", "Job", &finished);
    assert_eq!(
        planned(Some(&finished), Some(&ip)),
        PodPlan::Release(Why::Over)
    );
    assert_eq!(
        planned(Some(&finished), None),
        PodPlan::Nothing,
        "it gets no other"
    );
    let ends = json!({ "metadata": { "deletionTimestamp": "1970-01-01T00:00:09Z" } });
    let ends = pod_with("p1", "ReplicaSet", &ends);
    assert_eq!(planned(Some(&ends), Some(&ip)), PodPlan::Release(Why::Over));
    assert_eq!(planned(None, None), PodPlan::Nothing);
}

#[test]
fn an_ordinal_keeps_its_address_for_as_long_as_is_declared() {
    let facts = PodFacts {
        sticky: Some(600),
        ..facts()
    };
    let plan = |pod: Option<&PodView>, ip: &FlatIpView, second| {
        plan(&key(), pod, Some(ip), &facts, now(second))
    };
    let first = pod_with("p1", "StatefulSet", &json!({}));
    let mut ip = made(&first, &facts, active());
    assert_eq!((&*ip.owners[0].kind, ip.keeps), ("StatefulSet", Some(600)));
    let ends = json!({ "metadata": { "deletionTimestamp": "1970-01-01T00:00:09Z" } });
    let ends = pod_with("p1", "StatefulSet", &ends);
    assert_eq!(plan(Some(&ends), &ip, 1_000), PodPlan::Nothing);
    assert_eq!(plan(None, &ip, 1_000), PodPlan::Keep);
    let kept = kept_from(at(1_060))["metadata"]["annotations"][KEPT_SINCE].clone();
    let why = "its pod was first missed a minute before the look that counts";
    assert_eq!(kept, at(1_000).to_string(), "{why}");
    ip.kept_since = Some(at(1_000));
    assert_eq!(
        plan(None, &ip, 1_400),
        PodPlan::Look(Duration::from_secs(200))
    );
    assert_eq!(
        plan(None, &ip, 1_600),
        PodPlan::Release(Why::KeptLongEnough)
    );
    let ahead = PodClock {
        wall: at(999_999),
        book: at(1_400),
    };
    assert_eq!(
        super::plan(&key(), None, Some(&ip), &facts, ahead),
        PodPlan::Look(Duration::from_secs(200)),
        "the host's clock jumped"
    );
    let second = pod_with("p2", "StatefulSet", &json!({}));
    let PodPlan::TakeOver(patch) = plan(Some(&second), &ip, 1_400) else {
        panic!("the successor gets it");
    };
    assert_eq!(patch["spec"]["podId"], "p2");
    assert_eq!(patch["metadata"]["annotations"][KEPT_SINCE], Value::Null);
    // It has a while to use it, and is not made anew at once.
    let told: fipd_crds::flat_network::FlatNetworkIPStatus =
        serde_json::from_value(pending(at(1_400))["status"].clone()).expect("a status");
    let mut taken = made(&second, &facts, active());
    taken.status.phase.clone_from(&told.phase);
    taken.status.allocated_time_stamp = told.allocated_time_stamp;
    let looks = plan(Some(&second), &taken, 1_401);
    assert_eq!(looks, PodPlan::Look(Duration::from_secs(300)));
    // One that is evicted has a successor as well.
    let evicted = json!({ "status": { "phase": "Failed" } });
    let evicted = pod_with("p1", "StatefulSet", &evicted);
    assert_eq!(plan(Some(&evicted), &ip, 1_000), PodPlan::Nothing);
    // A successor on another subnet gets an address of that.
    let moved = json!({ "metadata": { "annotations": { SUBNET: "other" } } });
    let moved = pod_with("p2", "StatefulSet", &moved);
    assert_eq!(plan(Some(&moved), &ip, 1_400), PodPlan::Release(Why::Over));
    // Without a word about it an ordinal keeps nothing.
    let plain = made(
        &first,
        &PodFacts {
            sticky: None,
            ..facts.clone()
        },
        active(),
    );
    assert_eq!(plan(None, &plain, 1_000), PodPlan::Release(Why::Absent));
}

/// Whoever may edit it does not keep it for good.
#[test]
fn an_address_is_kept_for_a_year_at_the_most() {
    let pod = pod_with("p1", "StatefulSet", &json!({}));
    let PodPlan::Create(object) = plan(&key(), Some(&pod), None, &facts(), now(0)) else {
        panic!("an address is made");
    };
    for (seconds, kept) in [("31536000", true), ("31536001", false)] {
        let mut object = (*object).clone();
        let annotations = object.metadata.annotations.get_or_insert_default();
        annotations.insert(KEEP_SECONDS.to_owned(), seconds.to_owned());
        let keeps = keeps(&FlatIpView::of(object));
        assert_eq!(keeps.is_some(), kept, "{seconds}");
    }
}

/// Row 56 of the contract.
#[test]
fn a_pod_that_does_not_use_its_address_in_time_is_made_anew() {
    let pod = pod("p1");
    let mut pending = active();
    pending["phase"] = json!("Pending");
    let ip = made(&pod, &facts(), pending);
    let plan = |second| plan(&key(), Some(&pod), Some(&ip), &facts(), now(second));
    assert_eq!(plan(299), PodPlan::Look(Duration::from_secs(300)));
    assert_eq!(plan(300), PodPlan::Restart);
    let condition = json!({
        "type": "PodScheduled", "status": "True", "lastTransitionTime": at(200).to_string(),
    });
    let late = json!({ "status": { "conditions": [condition] } });
    let late = pod_with("p1", "ReplicaSet", &late);
    let planned = |second| super::plan(&key(), Some(&late), Some(&ip), &facts(), now(second));
    assert_eq!(planned(499), PodPlan::Look(Duration::from_secs(300)));
    assert_eq!(planned(500), PodPlan::Restart, "it waited for a node");
    let for_ever = PodFacts {
        pending_limit: None,
        ..facts()
    };
    let plan = super::plan(&key(), Some(&pod), Some(&ip), &for_ever, now(9_999));
    assert_eq!(plan, PodPlan::Nothing);
    let runs = PodView {
        uses: vec!["10.0.0.5".parse().expect("an address")],
        ..pod
    };
    let plan = super::plan(&key(), Some(&runs), Some(&ip), &facts(), now(9_999));
    assert_ne!(
        plan,
        PodPlan::Restart,
        "Multus says that it has the address"
    );
}

#[test]
fn annotations_without_sense_change_nothing_of_what_the_pod_has() {
    let odd = json!({ "metadata": { "annotations": { IP_ANNOTATION: "10.0.0.1a3" } } });
    let odd = pod_with("p1", "ReplicaSet", &odd);
    assert!(odd.wants.is_err());
    let ip = made(&pod("p1"), &facts(), active());
    assert_eq!(planned(Some(&odd), Some(&ip)), PodPlan::Nothing);
    assert_eq!(planned(Some(&odd), None), PodPlan::Nothing);
}

#[test]
fn what_is_not_as_it_is_to_be_is_corrected_and_what_others_wrote_stays() {
    let pod = pod("p1");
    let mut ip = made(&pod, &facts(), active());
    ip.labels.insert("other".to_owned(), "x".to_owned());
    assert!(matches!(planned(Some(&pod), Some(&ip)), PodPlan::Label(_)));
    ip.labels.remove("subnet");
    ip.spec.addrs = vec!["10.0.0.9".to_owned()];
    let PodPlan::Correct(patch) = planned(Some(&pod), Some(&ip)) else {
        panic!("it is corrected");
    };
    assert_eq!(patch["metadata"]["labels"], json!({ "subnet": "lab" }));
    assert_eq!(patch["spec"]["addrs"], Value::Null, "it names none");
}

#[test]
fn each_pod_gets_the_first_mac_that_nobody_has() {
    let macs = ["a", "b", "c"].map(str::to_owned);
    let chosen =
        |has: Option<&str>, taken: &[&str]| choose_mac(&macs, has, |mac| taken.contains(&mac));
    assert_eq!(chosen(None, &[]).as_deref(), Some("a"));
    assert_eq!(chosen(None, &["a"]).as_deref(), Some("b"));
    assert_eq!(chosen(Some("c"), &["a"]).as_deref(), Some("c"));
    assert_eq!(chosen(Some("z"), &["a", "b"]).as_deref(), Some("c"));
    assert_eq!(chosen(None, &["a", "b", "c"]), None);
}

/// Defects g1-8 and g1-13: an address says what its pod is of, which decides what is kept for it.
#[test]
fn g1_13_an_address_says_the_workload_of_its_pod() {
    let pod = pod_with("p1", "Job", &json!({}));
    let facts = PodFacts {
        workload: Some(WorkloadRef::new("CronJob", "ns", "nightly")),
        ..facts()
    };
    let ip = made(&pod, &facts, active());
    assert_eq!(ip.workload, facts.workload);
    let label = ip.labels.get(WORKLOAD_SELECTOR).map(String::as_str);
    assert_eq!(label, Some("cronjob-ns-nightly"));
    let mut old = ip.clone();
    old.workload = None;
    let PodPlan::Correct(patch) = plan(&key(), Some(&pod), Some(&old), &facts, now(0)) else {
        panic!("it is corrected");
    };
    assert_eq!(
        patch,
        json!({ "metadata": { "annotations": { WORKLOAD: "CronJob/nightly" } } })
    );
}

/// An extension: an address on a further interface, whose object is not called like the pod.
#[test]
fn a_further_address_names_its_interface_and_leaves_the_labels_alone() {
    let interface = InterfaceId {
        name: "eth2".to_owned(),
        is_partner: false,
    };
    let pod = PodView {
        interface,
        ..pod("p1")
    };
    let ip = made(&pod, &facts(), active());
    assert_eq!(ip.interface.as_deref(), Some("eth2"));
    assert_eq!(&*ip.owners[0].name, "web-0");
    assert_eq!(planned(Some(&pod), Some(&ip)), PodPlan::Nothing, "no label");
    let mut edited = ip.clone();
    edited.interface = None;
    let PodPlan::Correct(patch) = planned(Some(&pod), Some(&edited)) else {
        panic!("somebody else's edit is taken back");
    };
    let name = &patch["metadata"]["annotations"][INTERFACE];
    assert_eq!(name, "eth2", "{patch}");
    assert_eq!(planned(None, Some(&ip)), PodPlan::Release(Why::Absent));
}

/// What a pod asks for may not be known for a moment.
#[test]
fn an_address_that_waits_for_the_next_pod_is_kept_although_annotations_make_no_sense() {
    let sticky = PodFacts {
        sticky: Some(60),
        ..facts()
    };
    let ends = json!({ "metadata": { "deletionTimestamp": "2024-01-01T00:00:00Z" } });
    let wrong = crate::validation::Wrong::new("field", "value", "allowed");
    for (owner, expected) in [
        ("StatefulSet", PodPlan::Nothing),
        ("ReplicaSet", PodPlan::Release(Why::Over)),
    ] {
        let ip = made(&pod_with("p1", owner, &json!({})), &sticky, active());
        let pod = PodView {
            wants: Err(wrong.clone()),
            ..pod_with("p1", owner, &ends)
        };
        assert_eq!(planned(Some(&pod), Some(&ip)), expected, "{owner}");
    }
}

/// It is not kept for good by a pod of the name of which nobody knows what it asks for.
#[test]
fn what_an_earlier_pod_left_waits_for_its_time_although_annotations_make_no_sense() {
    let sticky = PodFacts {
        sticky: Some(60),
        ..facts()
    };
    let next = PodView {
        wants: Err(crate::validation::Wrong::new("field", "value", "allowed")),
        ..pod_with("p2", "StatefulSet", &json!({}))
    };
    let left = |facts: &PodFacts| made(&pod_with("p1", "StatefulSet", &json!({})), facts, active());
    let mut kept = left(&sticky);
    assert_eq!(planned(Some(&next), Some(&kept)), PodPlan::Keep);
    kept.kept_since = Some(at(990));
    let rest = PodPlan::Look(Duration::from_secs(50));
    assert_eq!(planned(Some(&next), Some(&kept)), rest);
    kept.kept_since = Some(at(900));
    let over = PodPlan::Release(Why::KeptLongEnough);
    assert_eq!(planned(Some(&next), Some(&kept)), over);
    let expected = PodPlan::Release(Why::Over);
    assert_eq!(planned(Some(&next), Some(&left(&facts()))), expected);
    let mut own = left(&sticky);
    own.spec.pod_id = "p2".to_owned();
    assert_eq!(planned(Some(&next), Some(&own)), PodPlan::Nothing);
}
