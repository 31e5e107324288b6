use fipd_crds::cluster_api::Cluster;
use serde_json::{Value, json};

use super::*;
use crate::{
    controller::store::Key,
    systems::cluster_api::vip::write::{addresses, manager},
};

fn cluster(rest: &Value) -> CapiClusterView {
    let mut object = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": { "name": "c", "namespace": "ns", "uid": "u" },
        "spec": { "topology": { "classRef": { "name": "rke2" }, "version": "v1.35.0" } },
    });
    crate::controller::fake_api_tests::merge(&mut object, rest);
    let object: Cluster = serde_json::from_value(object).expect("a Cluster");
    CapiClusterView::of(object)
}

fn class(declares_vip: bool) -> ClassView {
    ClassView {
        meta: crate::controller::meta::Meta::default(),
        declares_vip,
        reads_vip: false,
        reads_annotation: false,
        declares_second_vip: false,
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn given(text: &str) -> ClaimState {
    ClaimState::Fulfilled(ip(text))
}

fn absent() -> ClaimState {
    ClaimState::Absent(Err("no matching ip pool".into()))
}

struct Case<'a> {
    cluster: &'a Value,
    declares: Option<bool>,
    control_plane: ClaimState,
    ingress: ClaimState,
}

fn planned(case: Case<'_>) -> VipPlan {
    let (cluster, class) = (cluster(case.cluster), case.declares.map(class));
    plan(&VipFacts {
        cluster: &cluster,
        class: class.as_ref(),
        control_plane: case.control_plane,
        ingress: case.ingress,
        replaced: None,
        second: None,
        default_port: 6443,
    })
}

fn says<'a>(plan: &'a VipPlan, kind: &str) -> &'a ConditionUpdate {
    let found = plan.conditions.iter().find(|one| one.kind == kind);
    found.expect("a condition")
}

/// Rows 67, 69 to 71 and 73, E-5.
#[test]
fn e_5_an_endpoint_given_by_hand_is_reserved_and_no_claim_is_made() {
    let by_hand =
        json!({ "spec": { "controlPlaneEndpoint": { "host": "10.2.0.20", "port": 6443 } } });
    let plan = planned(Case {
        cluster: &by_hand,
        declares: Some(true),
        control_plane: ClaimState::Absent(Ok(())),
        ingress: absent(),
    });
    assert_eq!(plan.control_plane, VipStep::Reserve(ip("10.2.0.20")), "67");
    assert_eq!(plan.apply.endpoint, None);
    assert_eq!(says(&plan, ENDPOINT_READY).reason, "EndpointGiven");
    let name =
        json!({ "spec": { "controlPlaneEndpoint": { "host": "api.example", "port": 6443 } } });
    let plan = planned(Case {
        cluster: &name,
        declares: None,
        control_plane: absent(),
        ingress: absent(),
    });
    assert_eq!(plan.control_plane, VipStep::Nothing, "a name is no address");

    let fresh = json!({});
    for (declares, port, cluster) in [
        (Some(false), 6443, &fresh),
        (None, 6443, &fresh),
        (Some(true), 6443, &fresh),
        (
            Some(true),
            7443,
            &json!({ "spec": { "controlPlaneEndpoint": { "port": 7443 } } }),
        ),
    ] {
        let class = declares.map(class);
        let facts = VipFacts {
            cluster: &self::cluster(cluster),
            class: class.as_ref(),
            control_plane: given("10.0.0.15"),
            ingress: absent(),
            replaced: None,
            second: None,
            default_port: 6443,
        };
        let plan = super::plan(&facts);
        assert_eq!(
            plan.apply.endpoint,
            Some(("10.0.0.15".to_owned(), port)),
            "69, 71"
        );
        let variable = (declares == Some(true)).then(|| ip("10.0.0.15"));
        assert_eq!(plan.apply.variable, variable, "70");
        assert!(plan.differs);
    }
}

/// Row 81, E-8.
#[test]
fn e_8_the_variable_is_asserted_again_whenever_it_is_lost() {
    let with = |variables: Value| {
        json!({ "spec": {
            "controlPlaneEndpoint": { "host": "10.0.0.15", "port": 6443 },
            "topology": { "variables": variables },
        } })
    };
    let plan = |variables: Value, declares| {
        planned(Case {
            cluster: &with(variables),
            declares: Some(declares),
            control_plane: given("10.0.0.15"),
            ingress: absent(),
        })
    };
    let there = plan(
        json!([{ "name": "clusterVip", "value": "10.0.0.15" }]),
        true,
    );
    assert!(!there.differs && there.apply.variable.is_some());
    for lost in [
        json!([]),
        json!([{ "name": "clusterVip", "value": "" }]),
        json!([{ "name": "other", "value": 1 }]),
    ] {
        assert!(plan(lost.clone(), true).differs, "{lost}");
        let without = plan(lost, false);
        assert!(!without.differs, "a class without it asks for none");
        let said = says(&without, ENDPOINT_READY);
        assert!(said.status && said.message.contains("no variable clusterVip"));
    }
}

fn planned_for(class: &ClassView, cluster: &Value) -> VipPlan {
    plan(&VipFacts {
        cluster: &self::cluster(cluster),
        class: Some(class),
        control_plane: given("10.0.0.15"),
        ingress: absent(),
        replaced: None,
        second: None,
        default_port: 6443,
    })
}

/// Ordinary progress is no failure: a condition that is false, and its Event, would cost a write each.
#[test]
fn of_a_claim_that_is_under_way_nothing_is_said() {
    let fresh = json!({});
    for (state, step) in [
        (ClaimState::Absent(Ok(())), VipStep::Claim),
        (ClaimState::Underway, VipStep::Nothing),
    ] {
        let plan = planned(Case {
            cluster: &fresh,
            declares: Some(true),
            control_plane: state.clone(),
            ingress: state,
        });
        assert_eq!((&plan.control_plane, &plan.ingress), (&step, &step));
        assert_eq!((plan.conditions, plan.differs), (Vec::new(), false));
    }
}

/// The lines are those of the examples that packages carry.
#[test]
fn a_class_that_reads_the_variable_and_lacks_it_is_told_which_lines_to_add() {
    let reads = ClassView {
        reads_vip: true,
        ..class(false)
    };
    let plan = planned_for(&reads, &json!({}));
    assert_eq!(plan.apply.endpoint, Some(("10.0.0.15".to_owned(), 6443)));
    assert_eq!(plan.apply.variable, None, "it would be refused");
    let said = says(&plan, ENDPOINT_READY);
    assert_eq!((said.status, said.reason), (false, "VariableMissing"));
    let (text, lines) = said.message.split_once('\n').expect("lines");
    assert!(text.ends_with("of ClusterClass rke2 read the variable clusterVip, which the class does not declare: add to its spec.variables:"), "{text}");
    let indented = |spaces: &str| {
        let all = lines.lines().map(|line| format!("{spaces}{line}\n"));
        all.collect::<String>()
    };
    for example in [
        include_str!("../../../../../../packaging/examples/cluster-api/rke2-variable.yaml"),
        include_str!("../../../../../../packaging/examples/cluster-api/kubeadm-variable.yaml"),
    ] {
        let expected = format!("  variables:\n{}", indented("    "));
        assert!(example.contains(&expected), "{expected}");
    }
    let declared = ClassView {
        declares_vip: true,
        ..reads
    };
    let plan = planned_for(&declared, &json!({}));
    let said = says(&plan, ENDPOINT_READY);
    assert!(said.status && said.message == "10.0.0.15 is the endpoint");
}

#[test]
fn the_annotation_is_written_and_asserted_again_where_the_class_reads_it() {
    let reads = ClassView {
        reads_annotation: true,
        ..class(false)
    };
    let with = |annotation: &str| {
        json!({
            "metadata": { "annotations": { "fipd.io/control-plane-vip": annotation } },
            "spec": { "controlPlaneEndpoint": { "host": "10.0.0.15", "port": 6443 } },
        })
    };
    for (cluster, differs) in [
        (with("10.0.0.15"), false),
        (with(""), true),
        (with("10.0.0.16"), true),
        (json!({}), true),
    ] {
        let plan = planned_for(&reads, &cluster);
        assert!(
            plan.apply.annotation.is_some() && plan.differs == differs,
            "{cluster}"
        );
        let key = Key::new("ns", "c");
        let body = addresses("v", &key, &self::cluster(&cluster), &plan.apply);
        let annotations = json!({ "fipd.io/control-plane-vip": "10.0.0.15" });
        assert_eq!(body["metadata"]["annotations"], annotations);
    }
    let plan = planned_for(&class(true), &with("10.0.0.15"));
    assert_eq!(plan.apply.annotation, None, "nobody reads it");
}

/// What differs from its lease once certificates carry it is said, and never rewritten.
#[test]
fn an_endpoint_that_differs_from_its_claim_is_not_rewritten() {
    let other = json!({ "spec": { "controlPlaneEndpoint": { "host": "10.0.0.9", "port": 6443 } } });
    let plan = planned(Case {
        cluster: &other,
        declares: Some(true),
        control_plane: given("10.0.0.15"),
        ingress: absent(),
    });
    assert_eq!(says(&plan, ENDPOINT_READY).reason, "EndpointDiffers");
    assert_eq!(plan.control_plane, VipStep::Reserve(ip("10.0.0.9")));
    assert_eq!(plan.apply.endpoint, None);
    let filled = Some(ip("10.0.0.9"));
    assert_eq!(plan.apply.variable, filled, "that of the endpoint");
}

/// What is planned for a Cluster without claims.
fn planned_given(class: Option<&ClassView>, cluster: &CapiClusterView) -> VipPlan {
    plan(&VipFacts {
        cluster,
        class,
        control_plane: absent(),
        ingress: absent(),
        replaced: None,
        second: None,
        default_port: 6443,
    })
}

/// Without a claim the Cluster itself has the lease, whoever chose the endpoint first.
#[test]
fn an_endpoint_that_differs_from_the_lease_of_its_cluster_is_not_rewritten() {
    let class = class(true);
    for (host, provisioned, replaced, reason) in [
        ("10.0.0.9", true, Some("10.0.0.5"), "EndpointDiffers"),
        ("api.example", true, Some("10.0.0.5"), "EndpointDiffers"),
        ("10.0.0.9", false, Some("10.0.0.5"), "EndpointGiven"),
        ("10.0.0.9", true, None, "EndpointGiven"),
    ] {
        let cluster = cluster(&json!({
            "spec": { "controlPlaneEndpoint": { "host": host, "port": 6443 } },
            "status": { "initialization": { "infrastructureProvisioned": provisioned } },
        }));
        let case = format!("{host} {provisioned} {replaced:?}");
        for control_plane in [absent(), ClaimState::Absent(Ok(())), ClaimState::Underway] {
            let plan = plan(&VipFacts {
                cluster: &cluster,
                class: Some(&class),
                control_plane,
                ingress: absent(),
                replaced: replaced.map(ip),
                second: None,
                default_port: 6443,
            });
            let said = says(&plan, ENDPOINT_READY);
            let differs = reason == "EndpointDiffers";
            assert_eq!((said.status, said.reason), (!differs, reason), "{case}");
            let named = said.message.contains(host) && said.message.contains("10.0.0.5");
            assert!(named || !differs, "{}", said.message);
            assert_eq!(plan.apply.endpoint, None, "{case}");
            let reserved = host.parse().map_or(VipStep::Nothing, VipStep::Reserve);
            assert_eq!(plan.control_plane, reserved, "{case}");
        }
    }
}

/// Both addresses are written in one apply where they come at about the same time.
#[test]
fn half_of_the_addresses_waits_for_a_claim_that_was_just_made() {
    let fresh = json!({});
    let host = json!({ "spec": { "controlPlaneEndpoint": { "host": "10.0.0.15", "port": 6443 } } });
    let with = |key: &str, value: &str| json!({ "metadata": { "annotations": { key: value } } });
    let off = with("vip.capi.gorizond.io/ingress-enabled", "false");
    let front = with("vip.capi.gorizond.io/ingress-vip", "10.0.0.101");
    let (vip, ingress) = (|| given("10.0.0.15"), || given("10.0.0.101"));
    let (made, underway) = (|| ClaimState::Absent(Ok(())), || ClaimState::Underway);
    let full = || ClaimState::Pending("the pool is full".into());
    for (cluster, control_plane, ingress, is_half) in [
        (&fresh, vip(), underway(), true),
        (&fresh, vip(), made(), true),
        (&fresh, underway(), ingress(), true),
        (&fresh, vip(), ingress(), false),
        (&fresh, underway(), underway(), false),
        // Nobody knows when that comes.
        (&fresh, vip(), absent(), false),
        (&fresh, vip(), full(), false),
        (&fresh, full(), ingress(), false),
        // One of them is there.
        (&host, vip(), underway(), false),
        (&front, vip(), ingress(), false),
        (&front, vip(), underway(), false),
        (&off, vip(), underway(), false),
    ] {
        let case = format!("{cluster} {control_plane:?} {ingress:?}");
        let plan = planned(Case {
            cluster,
            declares: None,
            control_plane,
            ingress,
        });
        assert_eq!(plan.is_half, is_half, "{case}");
    }
}

/// E-5 and E-8: the hook waits for the variable, and patches read both.
#[test]
fn e_5_8_an_endpoint_without_a_claim_fills_what_is_empty() {
    let reads = ClassView {
        reads_annotation: true,
        ..class(true)
    };
    let empty = json!([{ "name": "clusterVip", "value": "" }]);
    let own = json!([{ "name": "clusterVip", "value": "10.9.9.9" }]);
    let full = json!([{ "name": "clusterVip", "value": "10.2.0.20" }]);
    let vip = || Some(ip("10.2.0.20"));
    for (host, variables, annotated, wanted, differs) in [
        ("10.2.0.20", &empty, "", (vip(), vip()), true),
        ("10.2.0.20", &json!([]), "", (vip(), vip()), true),
        ("10.2.0.20", &full, "", (vip(), vip()), true),
        ("10.2.0.20", &full, "10.2.0.20", (vip(), vip()), false),
        ("10.2.0.20", &own, "10.9.9.9", (None, None), false),
        ("10.2.0.20", &empty, "10.9.9.9", (vip(), None), true),
        ("api.example", &empty, "", (None, None), false),
    ] {
        let cluster = json!({
            "metadata": { "annotations": { "fipd.io/control-plane-vip": annotated } },
            "spec": {
                "controlPlaneEndpoint": { "host": host, "port": 6443 },
                "topology": { "variables": variables },
            },
        });
        let cluster = self::cluster(&cluster);
        let plan = planned_given(Some(&reads), &cluster);
        let case = format!("{host} {variables} {annotated:?}");
        let apply = &plan.apply;
        assert_eq!((apply.variable, apply.annotation), wanted, "{case}");
        assert_eq!((&apply.endpoint, plan.differs), (&None, differs), "{case}");
        // Nobody reads them.
        let other = class(false);
        for class in [None, Some(&other)] {
            let plan = planned_given(class, &cluster);
            assert_eq!((plan.apply, plan.differs), (VipApply::default(), false));
        }
    }
}

#[test]
fn a_given_host_without_a_port_gets_the_default_port() {
    for host in ["10.0.0.9", "api.example", "fd00:0:0::9"] {
        let given = json!({ "spec": { "controlPlaneEndpoint": { "host": host } } });
        let plan = planned_given(None, &cluster(&given));
        assert_eq!(plan.apply.endpoint, Some((host.to_owned(), 6443)));
        assert!(plan.differs);
        assert_eq!(says(&plan, ENDPOINT_READY).reason, "EndpointGiven");
        let whole = json!({ "spec": { "controlPlaneEndpoint": { "host": host, "port": 7443 } } });
        let plan = planned_given(None, &cluster(&whole));
        assert_eq!((plan.apply.endpoint, plan.differs), (None, false));
    }
}

/// What a field manager leaves out of an apply is removed.
#[test]
fn each_manager_always_has_the_same_fields() {
    let cluster = cluster(&json!({}));
    let (address, key) = (ip("10.0.0.15"), Key::new("ns", "c"));
    let mut managers = std::collections::BTreeMap::new();
    for choice in 0..16_u8 {
        let chosen = |bit: u8| (choice & bit != 0).then_some(address);
        let apply = VipApply {
            endpoint: chosen(1).map(|address| (address.to_string(), 6443)),
            variable: chosen(2),
            annotation: chosen(4),
            ingress: chosen(8),
        };
        let body = addresses("v", &key, &cluster, &apply);
        let endpoint = body["spec"]["controlPlaneEndpoint"].is_object();
        let front = body["metadata"]["labels"].is_object();
        assert_eq!(endpoint, apply.endpoint.is_some(), "{body}");
        let fields = (endpoint, front);
        if choice != 0 {
            let known = managers.insert(manager(&apply), fields);
            assert!(known.is_none_or(|known| known == fields), "{apply:?}");
        }
    }
}

/// Rows 77 to 79, E-2, E-3 and E-4.
#[test]
fn e_3_4_the_ingress_never_holds_up_the_control_plane() {
    let fresh = json!({});
    let plan = planned(Case {
        cluster: &fresh,
        declares: None,
        control_plane: given("10.0.0.15"),
        ingress: absent(),
    });
    assert!(plan.apply.endpoint.is_some() && plan.differs, "79");
    assert_eq!(says(&plan, INGRESS_READY).reason, "PoolNotFound");
    let plan = planned(Case {
        cluster: &fresh,
        declares: None,
        control_plane: ClaimState::Absent(Ok(())),
        ingress: given("10.0.0.101"),
    });
    assert_eq!(plan.control_plane, VipStep::Claim);
    assert_eq!(
        (plan.apply.ingress, plan.differs),
        (Some(ip("10.0.0.101")), true),
        "77"
    );
    let off = json!({ "metadata": { "annotations": { "vip.capi.gorizond.io/ingress-enabled": "false" } } });
    let plan = planned(Case {
        cluster: &off,
        declares: None,
        control_plane: absent(),
        ingress: ClaimState::Absent(Ok(())),
    });
    assert_eq!((plan.ingress, plan.conditions.len()), (VipStep::Nothing, 1));
    let by_hand = json!({ "metadata": { "annotations": { "vip.capi.gorizond.io/ingress-vip": "10.0.0.7" } } });
    let plan = planned(Case {
        cluster: &by_hand,
        declares: None,
        control_plane: absent(),
        ingress: ClaimState::Absent(Ok(())),
    });
    assert_eq!(plan.ingress, VipStep::Reserve(ip("10.0.0.7")));
    assert!(!plan.differs);
}

#[test]
fn e_2_an_ipv6_address_of_the_ingress_is_no_label() {
    let annotated =
        json!({ "metadata": { "annotations": { "vip.capi.gorizond.io/ingress-vip": "fd00::5" } } });
    let plan = planned(Case {
        cluster: &annotated,
        declares: None,
        control_plane: absent(),
        ingress: given("fd00::5"),
    });
    assert!(!plan.differs, "nothing is missing");
    let four = json!({ "metadata": { "annotations": { "vip.capi.gorizond.io/ingress-vip": "10.0.0.5" } } });
    let plan = planned(Case {
        cluster: &four,
        declares: None,
        control_plane: absent(),
        ingress: given("10.0.0.5"),
    });
    assert!(plan.differs, "the label is missing");
}

/// E-11 and E-14.
#[test]
fn a_foreign_claim_is_refused_and_a_full_pool_is_left() {
    let fresh = json!({});
    let plan = planned(Case {
        cluster: &fresh,
        declares: None,
        control_plane: ClaimState::Foreign("it is of another".into()),
        ingress: ClaimState::Misplaced("pool b has room".into()),
    });
    assert_eq!(plan.control_plane, VipStep::Nothing);
    assert_eq!(says(&plan, ENDPOINT_READY).reason, "ClaimTaken");
    assert_eq!(plan.ingress, VipStep::ClaimAnew);
}
