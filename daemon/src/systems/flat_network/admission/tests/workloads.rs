use fipd_core::LeaseState;
use serde_json::{Value, json};

use super::{
    super::{
        kinds::{CRON_JOB, DAEMON_SET, DEPLOYMENT, IP, JOB, POD, STATEFUL_SET},
        sample::Lab,
        *,
    },
    create, refused, update, why,
};

const ASKED_IP: &str = "flatnetwork.pandaria.io/ip";
const ASKED_SUBNET: &str = "flatnetwork.pandaria.io/subnet";
const ASKED_MAC: &str = "flatnetwork.pandaria.io/mac";
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

fn annotations(ip: &str, mac: &str) -> Value {
    json!({ ASKED_IP: ip, ASKED_SUBNET: "lab", ASKED_MAC: mac, NETWORKS: "rancher-flat-network@eth1" })
}

fn template(annotations: &Value) -> Value {
    json!({ "template": { "metadata": { "annotations": annotations } } })
}

fn deployment(ip: &str) -> Value {
    json!({ "metadata": {}, "spec": template(&annotations(ip, "")) })
}

/// Rows 45 to 53, W1 to W12.
#[test]
fn workloads_are_judged_by_the_template_of_their_pods() {
    let lab = Lab::new().mac("02:00:00:00:00:01", "web-1");
    let ask = |ip: &str| create(&lab, &DEPLOYMENT, "new", deployment(ip));
    assert_eq!(ask("auto"), Verdict::allowed());
    assert_eq!(ask("10.2.3.100"), Verdict::allowed());
    for (ip, word) in [
        ("10.2.3.1a3", "IP address"),
        ("10.2.3.100-10.2.3.100", "twice"),
        ("10.2.3.1", "gateway"),
        ("10.2.3.0", "first or the last"),
        ("10.2.3.255", "first or the last"),
        ("10.9.9.9", "outside"),
        ("10.2.3.99", "ranges"),
        ("10.2.3.150", "in use by Deployment/ns/web"),
        ("10.2.3.160", "reserved by Deployment/ns/kept"),
    ] {
        let field = "spec.template.metadata.annotations[flatnetwork.pandaria.io/ip]";
        refused(ask(ip), &[field, word]);
    }
    let macs = |mac: &str| {
        let object = json!({ "metadata": {}, "spec": template(&annotations("auto", mac)) });
        create(&lab, &DEPLOYMENT, "new", object)
    };
    assert_eq!(macs("02:00:00:00:00:02"), Verdict::allowed());
    refused(
        macs("02:00:00:00:00:01"),
        &[ASKED_MAC, "in use by pod ns/web-1"],
    );
    refused(macs("01:00:00:00:00:01"), &["multicast"]);
    let mut missing = deployment("auto");
    missing["spec"]["template"]["metadata"]["annotations"][ASKED_SUBNET] = json!("other");
    let denied = create(&lab, &DEPLOYMENT, "new", missing).denied.unwrap();
    assert!(
        denied.may_pass && denied.message.contains("no FlatNetworkSubnet"),
        "{}",
        denied.message
    );
}

/// Extensions: what is asked for on a further interface, and of the other family.
#[test]
fn each_interface_is_judged() {
    let lab = Lab::new();
    let ask = |more: Value| {
        let mut object = deployment("auto");
        let annotations = &mut object["spec"]["template"]["metadata"]["annotations"];
        for (key, value) in more.as_object().unwrap() {
            annotations[key] = value.clone();
        }
        create(&lab, &DEPLOYMENT, "new", object)
    };
    let further =
        |entry: Value| ask(json!({ "fipd.io/additional-interfaces": json!([entry]).to_string() }));
    let on = |ip: &str| further(json!({ "interface": "eth2", "subnet": "lab", "ip": ip }));
    assert_eq!(on("auto"), Verdict::allowed());
    assert_eq!(on("10.2.3.100"), Verdict::allowed());
    let field = "spec.template.metadata.annotations[fipd.io/additional-interfaces][0]";
    refused(on("10.2.3.1"), &[&format!("{field}.ip"), "gateway"]);
    refused(
        on("10.2.3.150"),
        &[&format!("{field}.ip"), "in use by Deployment/ns/web"],
    );
    refused(
        further(json!({ "interface": "eth2", "subnet": "other" })),
        &[&format!("{field}.subnet"), "no FlatNetworkSubnet"],
    );
    refused(
        ask(json!({ "fipd.io/dual-stack": "true" })),
        &["[fipd.io/dual-stack]", "spec.partner"],
    );
}

#[test]
fn what_would_refuse_every_pod_is_refused_at_once() {
    let mut object = deployment("auto");
    let annotations = &mut object["spec"]["template"]["metadata"]["annotations"];
    annotations["fipd.io/keep-address-seconds"] = json!("1h");
    refused(
        create(&Lab::new(), &STATEFUL_SET, "db", object.clone()),
        &["fipd.io/keep-address-seconds", "\"1h\""],
    );
    let before = deployment("auto");
    refused(
        update(&Lab::new(), &STATEFUL_SET, "db", &before, &object),
        &["\"1h\""],
    );
}

#[test]
fn a_workload_has_what_its_own_pods_have() {
    let set = WorkloadRef::new("StatefulSet", "ns", "db");
    let lab = Lab::new()
        .pod("db-0", Some(set))
        .lease(170, "FlatNetworkIP/ns/db-0", LeaseState::Allocated)
        .lease(171, "FlatNetworkIP/ns/db-1", LeaseState::Reserved)
        .lease(172, "FlatNetworkIP/ns/db-2", LeaseState::Quarantined)
        .lease_of(
            173,
            "rancher-fip/x/Service/ns/secret",
            LeaseState::Allocated,
        );
    let ask = |kind: &ReviewedKind, name: &str, ip: &str| create(&lab, kind, name, deployment(ip));
    assert_eq!(ask(&DEPLOYMENT, "web", "10.2.3.150"), Verdict::allowed());
    assert_eq!(ask(&DEPLOYMENT, "kept", "10.2.3.160"), Verdict::allowed());
    let all = "10.2.3.170-10.2.3.171-10.2.3.172";
    assert_eq!(ask(&STATEFUL_SET, "db", all), Verdict::allowed());
    refused(
        ask(&DAEMON_SET, "db", "10.2.3.170"),
        &["in use by StatefulSet/ns/db"],
    );
    refused(ask(&JOB, "db", "10.2.3.171"), &["reserved by pod ns/db-1"]);
    let text = why(ask(&JOB, "db", "10.2.3.173"));
    assert!(
        text.contains("another system or cluster") && !text.contains("secret"),
        "{text}"
    );
}

/// Defect g1-13.
#[test]
fn g1_13_cron_jobs_are_judged_by_the_inner_template() {
    let lab = Lab::new();
    let wrong = annotations("10.2.3.1", "");
    let inner = json!({ "metadata": {}, "spec": { "jobTemplate": { "spec": template(&wrong) } } });
    refused(
        create(&lab, &CRON_JOB, "night", inner),
        &[
            "spec.jobTemplate.spec.template.metadata.annotations",
            "gateway",
        ],
    );
    let outer = json!({ "metadata": {}, "spec": { "jobTemplate": { "metadata": { "annotations": wrong } } } });
    assert_eq!(create(&lab, &CRON_JOB, "night", outer).denied, None);
}

/// Defect g1-10.
#[test]
fn g1_10_no_label_switches_a_rule_off() {
    let lab = Lab::new();
    let old = deployment("auto");
    let mut new = deployment("10.2.3.1");
    let labels = json!({ "flatnetwork.pandaria.io/subnet": "other", "flatnetwork.pandaria.io/flatNetworkIPType": "auto" });
    new["metadata"]["labels"] = labels;
    refused(update(&lab, &DEPLOYMENT, "new", &old, &new), &["gateway"]);
    let bare = json!({ "metadata": { "annotations": annotations("10.2.3.150", "") }, "spec": {} });
    refused(
        create(&lab, &POD, "bare", bare),
        &["metadata.annotations[", "in use by"],
    );
    let address = json!({ "metadata": {}, "spec": { "subnet": "lab", "addrs": ["10.2.3.150"] } });
    refused(
        create(&lab, &IP, "bare", address.clone()),
        &["spec.addrs", "in use by"],
    );
    assert_eq!(create(&lab, &IP, "web-1", address), Verdict::allowed());
}

/// Anybody may name fipd's field manager.
#[test]
fn only_fipds_own_user_writes_addresses_unasked() {
    let lab = Lab::new();
    let ask = |user: &str, manager: &str| {
        let fields = json!({
            "name": "bare", "userInfo": { "username": user }, "options": { "fieldManager": manager },
            "object": { "metadata": {}, "spec": { "subnet": "lab", "addrs": ["10.2.3.150"] } },
        });
        lab.ask(&IP, "CREATE", &fields)
    };
    assert_eq!(ask("fipd", "fipd"), Verdict::allowed());
    refused(ask("somebody", "fipd"), &["spec.addrs", "in use by"]);
    refused(ask("fipd", "kubectl"), &["spec.addrs", "in use by"]);
}

#[test]
fn other_changes_and_pods_of_workloads_are_not_held_up() {
    let lab = Lab::new();
    let mut broken = deployment("10.2.3.1");
    let old = broken.clone();
    broken["spec"]["replicas"] = json!(9);
    assert_eq!(
        update(&lab, &DEPLOYMENT, "new", &old, &broken),
        Verdict::allowed()
    );
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true }]);
    let pod = |ip: &str, subnet: &str| {
        let mut asked = annotations(ip, "");
        asked[ASKED_SUBNET] = json!(subnet);
        let metadata = json!({ "annotations": asked, "ownerReferences": owner });
        create(&lab, &POD, "", json!({ "metadata": metadata, "spec": {} }))
    };
    assert_eq!(pod("10.2.3.150", "lab"), Verdict::allowed());
    assert_eq!(pod("auto", "other").denied, None);
    assert_eq!(pod("auto", "other").warnings.len(), 1);
    refused(pod("10.2.3.1", "lab"), &["gateway"]);
}

/// Row 53.
#[test]
fn what_multus_is_not_told_of_is_allowed_with_a_warning() {
    let lab = Lab::new();
    let ask = |annotations: Value| {
        let object = json!({ "metadata": {}, "spec": template(&annotations) });
        let verdict = create(&lab, &DEPLOYMENT, "new", object);
        assert_eq!(verdict.denied, None);
        verdict.warnings.join(" ")
    };
    let text = ask(json!({ ASKED_IP: "10.2.3.1", ASKED_SUBNET: "lab" }));
    assert!(text.contains("nothing was checked"), "{text}");
    let text = ask(json!({ ASKED_SUBNET: "lab", NETWORKS: "rancher-flat-network" }));
    assert!(text.contains("takes both"), "{text}");
    let text = ask(json!({ ASKED_IP: "auto", ASKED_SUBNET: "lab", NETWORKS: "other" }));
    assert!(text.contains("no interface for it"), "{text}");
    let mut many = deployment("10.2.3.100");
    many["spec"]["replicas"] = json!(3);
    let warned = create(&lab, &DEPLOYMENT, "new", many).warnings.join(" ");
    assert!(
        warned.contains("1 addresses are named for 3 pods"),
        "{warned}"
    );
}

#[test]
fn a_pod_keeps_the_address_that_its_object_shows() {
    let lab = Lab::new();
    let object = |addresses: Value, subnet: &str| {
        json!({
            "metadata": {}, "spec": { "subnet": subnet, "addrs": addresses }, "status": { "addr": "10.2.3.150" },
        })
    };
    let old = object(json!([]), "lab");
    let edit = |new: Value| update(&lab, &IP, "web-1", &old, &new);
    refused(
        edit(object(json!(["10.2.3.101"]), "lab")),
        &["spec.addrs", "has 10.2.3.150"],
    );
    refused(
        edit(object(json!([]), "other")),
        &["spec.subnet", "has 10.2.3.150"],
    );
    let both = json!(["10.2.3.101", "10.2.3.150"]);
    assert_eq!(edit(object(both, "lab")), Verdict::allowed());
}
