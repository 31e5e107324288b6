use fipd_core::LeaseState;
use serde_json::{Value, json};

use super::{
    super::{
        kinds::{IP, SUBNET},
        sample::{Lab, subnet},
        *,
    },
    create, refused, update, why,
};

fn delete(lab: &Lab, kind: &ReviewedKind, name: &str, more: Value) -> Verdict {
    let mut fields = json!({ "name": name, "object": null, "oldObject": { "metadata": {} } });
    for (key, value) in more.as_object().into_iter().flatten() {
        fields[key] = value.clone();
    }
    lab.ask(kind, "DELETE", &fields)
}

/// Rows 31 to 37 and S8 to S10.
#[test]
fn a_new_subnet_must_not_clash_with_others() {
    let lab = Lab::new();
    let new = |fields: Value| create(&lab, &SUBNET, "new", subnet(&fields));
    let beside = json!([{ "from": "10.2.3.10", "to": "10.2.3.20" }]);
    assert_eq!(new(json!({ "ranges": beside })), Verdict::allowed());
    refused(
        new(json!({ "flatMode": "ipvlan", "cidr": "10.9.0.0/24", "gateway": "", "ranges": [] })),
        &[
            "spec.flatMode",
            "already using master iface [eth0.10]",
            "\"lab\"",
        ],
    );
    refused(
        new(json!({ "ranges": [] })),
        &["spec.cidr", "CIDR conflict", "\"lab\""],
    );
    let over = json!([{ "from": "10.2.3.190", "to": "10.2.3.210" }]);
    refused(
        new(json!({ "ranges": over })),
        &["spec.ranges", "10.2.3.190-10.2.3.200", "range conflict"],
    );
    refused(
        new(json!({ "cidr": "x" })),
        &["spec.cidr: \"x\" is not allowed"],
    );
}

#[test]
fn subnets_count_in_the_namespace_of_the_settings() {
    let lab = Lab::new().in_namespace("kube-system");
    let fields = json!({ "cidr": "10.9.0.0/24", "vlan": 9, "gateway": "", "ranges": [] });
    let made_in = |namespace: &str| {
        let object = subnet(&fields);
        let fields = json!({ "name": "new", "namespace": namespace, "object": object });
        lab.ask(&SUBNET, "CREATE", &fields)
    };
    assert_eq!(made_in("kube-system"), Verdict::allowed());
    refused(made_in("cattle-flat-network"), &["kube-system"]);
}

/// Pools of the network count, whatever system they are of and whatever VLAN says that they are apart.
#[test]
fn g1_9_a_subnet_must_not_give_what_other_pools_of_the_network_give() {
    let lab = Lab::new().own_pool("office", "10.7.0.0/24");
    let fields = json!({ "vlan": 7, "cidr": "10.7.0.0/16", "gateway": "", "ranges": [] });
    refused(
        create(&lab, &SUBNET, "new", subnet(&fields)),
        &["other pools of the network", "office"],
    );
    let apart = json!({
        "vlan": 7, "cidr": "10.7.0.0/16", "gateway": "", "ranges": [], "exclusions": ["10.7.0.0/24"],
    });
    assert_eq!(
        create(&lab, &SUBNET, "new", subnet(&apart)),
        Verdict::allowed()
    );
}

/// The pool of an unused subnet goes to the network of its new VLAN, and may clash there with all of its addresses.
#[test]
fn an_edited_vlan_of_an_unused_subnet_is_judged_by_the_network_it_leads_to() {
    let spare =
        |vlan: u16| json!({ "vlan": vlan, "cidr": "10.8.0.0/16", "gateway": "", "ranges": [] });
    let lab = || {
        let lab = Lab::new().own_pool("office", "10.8.0.0/24").on_vlan(8);
        lab.subnet("spare", &spare(9))
    };
    let (old, new) = (subnet(&spare(9)), subnet(&spare(8)));
    let followed = lab().by_default();
    refused(
        update(&followed, &SUBNET, "spare", &old, &new),
        &["other pools of the network", "office"],
    );
    let elsewhere = subnet(&spare(11));
    assert_eq!(
        update(&followed, &SUBNET, "spare", &old, &elsewhere),
        Verdict::allowed()
    );
    // Somebody chose the network, where it stays.
    assert_eq!(
        update(&lab(), &SUBNET, "spare", &old, &new),
        Verdict::allowed()
    );
}

/// The addresses that pods of an earlier subnet of the name have are in the network of its VLAN.
#[test]
fn a_subnet_made_anew_while_its_addresses_are_in_use_stays_on_its_vlan() {
    let lab = Lab::new().by_default();
    let made = |vlan: u16| create(&lab, &SUBNET, "lab", subnet(&json!({ "vlan": vlan })));
    refused(made(20), &["spec.vlan: \"20\"", "network default"]);
    assert_eq!(made(0), Verdict::allowed());
    let chosen = subnet(&json!({ "vlan": 20 }));
    assert_eq!(
        create(&Lab::new(), &SUBNET, "lab", chosen),
        Verdict::allowed(),
        "somebody chose the network"
    );
}

/// Row 42, and the webhook's own name of it.
#[test]
fn a_subnet_counts_in_one_namespace_only() {
    let lab = Lab::new();
    let elsewhere = json!({ "name": "new", "namespace": "default", "object": subnet(&json!({})) });
    refused(
        lab.ask(&SUBNET, "CREATE", &elsewhere),
        &[
            "metadata.namespace: \"default\"",
            "invalid subnet namespace",
        ],
    );
}

#[test]
fn g1_20_a_subnet_in_use_keeps_what_its_pods_rest_on() {
    let lab = Lab::new();
    let old = subnet(&json!({}));
    let edit = |fields: Value| update(&lab, &SUBNET, "lab", &old, &subnet(&fields));
    for (field, value) in [
        ("master", json!("eth1")),
        ("vlan", json!(11)),
        ("flatMode", json!("ipvlan")),
    ] {
        let text = why(edit(json!({ field: value })));
        assert!(text.starts_with(&format!("spec.{field}: ")), "{text}");
        assert!(text.contains("such as by Deployment/ns/web"), "{text}");
    }
    refused(
        edit(json!({ "cidr": "10.2.0.0/16" })),
        &["spec.cidr", "stays 10.2.3.0/24"],
    );
    let smaller = json!([{ "from": "10.2.3.100", "to": "10.2.3.149" }]);
    refused(
        edit(json!({ "ranges": smaller })),
        &[
            "spec.ranges",
            "10.2.3.150, 10.2.3.160",
            "delete their pods first",
        ],
    );
    refused(
        edit(json!({ "exclusions": ["10.2.3.150"] })),
        &["10.2.3.150"],
    );
    let fine = json!([{ "from": "10.2.3.90", "to": "10.2.3.200" }]);
    assert_eq!(edit(json!({ "ranges": fine })), Verdict::allowed());
    assert_eq!(
        edit(json!({ "routeSettings": { "addNodeCIDR": true } })),
        Verdict::allowed()
    );
    let refused_before = subnet(&json!({ "vlan": 11 }));
    assert_eq!(
        update(&lab, &SUBNET, "lab", &refused_before, &old),
        Verdict::allowed(),
        "it is in force"
    );
    let unused = Lab::new().subnet(
        "idle",
        &json!({ "vlan": 20, "cidr": "10.3.0.0/24", "gateway": "", "ranges": [] }),
    );
    let fields = json!({ "vlan": 21, "cidr": "10.3.1.0/24", "gateway": "", "ranges": [] });
    let old = subnet(&json!({ "vlan": 20, "cidr": "10.3.0.0/24", "gateway": "", "ranges": [] }));
    assert_eq!(
        update(&unused, &SUBNET, "idle", &old, &subnet(&fields)),
        Verdict::allowed()
    );
}

/// What cools after many pods went has no holder, and comes before those who have addresses.
#[test]
fn g1_20_what_cools_hides_nobody_who_has_an_address() {
    let fields = json!({ "ranges": [] });
    let lab = (2..=249).fold(Lab::bare().subnet("lab", &fields), |lab, last| {
        lab.lease(last, "FlatNetworkIP/ns/gone", LeaseState::Quarantined)
    });
    let fixed = ["spec.vlan", "such as by a pod"];
    let (old, new) = (subnet(&json!({})), subnet(&json!({ "vlan": 11 })));
    assert_eq!(delete(&lab, &SUBNET, "lab", json!({})), Verdict::allowed());
    assert_eq!(update(&lab, &SUBNET, "lab", &old, &new), Verdict::allowed());
    let used = lab.lease(250, "FlatNetworkIP/ns/web-1", LeaseState::Allocated);
    refused(delete(&used, &SUBNET, "lab", json!({})), &["in use: 1 of"]);
    refused(update(&used, &SUBNET, "lab", &old, &new), &fixed);
}

#[test]
fn g1_20_what_is_in_use_is_deleted_by_nobody_but_the_cluster() {
    let lab = Lab::new();
    refused(
        delete(&lab, &SUBNET, "lab", json!({})),
        &[
            "10.2.3.150 by Deployment/ns/web",
            "10.2.3.160 by Deployment/ns/kept",
        ],
    );
    refused(
        delete(&lab, &IP, "web-1", json!({})),
        &["pod ns/web-1", "delete the pod"],
    );
    assert_eq!(delete(&lab, &IP, "gone", json!({})), Verdict::allowed());
    assert_eq!(
        delete(&lab, &SUBNET, "other", json!({})),
        Verdict::allowed()
    );
    let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
    for more in [
        json!({ "userInfo": { "username": collector } }),
        json!({ "options": { "preconditions": { "uid": "u" } } }),
        json!({ "oldObject": { "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } } }),
    ] {
        for (kind, name) in [(&SUBNET, "lab"), (&IP, "web-1")] {
            assert_eq!(
                delete(&lab, kind, name, more.clone()),
                Verdict::allowed(),
                "{more}"
            );
        }
    }
}
