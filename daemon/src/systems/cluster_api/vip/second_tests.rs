use fipd_crds::cluster_api::Cluster;
use serde_json::{Value, json};

use super::*;
use crate::{
    controller::meta::Meta,
    systems::cluster_api::vip::{
        ClassView,
        plan::{VipPlan, plan as plan_both},
    },
};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn given(text: &str) -> ClaimState {
    ClaimState::Fulfilled(ip(text))
}

fn absent() -> ClaimState {
    ClaimState::Absent(Ok(()))
}

fn missing() -> ClaimState {
    ClaimState::Absent(Err("no matching ip pool".into()))
}

/// What is planned for a Cluster of two families with these fields, its first states and its second ones.
fn planned(
    rest: &Value,
    declares_second_vip: bool,
    [control_plane, ingress, second, front]: [ClaimState; 4],
) -> VipPlan {
    let mut object = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": { "name": "c", "namespace": "ns", "uid": "u" },
        "spec": {
            "clusterNetwork": { "services": { "cidrBlocks": ["10.96.0.0/12", "fd00:96::/112"] } },
            "topology": { "classRef": { "name": "rke2" } },
        },
    });
    crate::controller::fake_api_tests::merge(&mut object, rest);
    let cluster: Cluster = serde_json::from_value(object).expect("a Cluster");
    let cluster = CapiClusterView::of(cluster);
    assert!(cluster.families.is_some_and(|all| all.second.is_some()));
    let class = ClassView {
        meta: Meta::default(),
        declares_vip: true,
        reads_vip: false,
        reads_annotation: false,
        declares_second_vip,
    };
    plan_both(&VipFacts {
        cluster: &cluster,
        class: Some(&class),
        control_plane,
        ingress,
        replaced: None,
        second: Some(SecondFacts {
            control_plane: second,
            ingress: front,
        }),
        default_port: 6443,
    })
}

fn reason(plan: &VipPlan, kind: &str) -> Option<&'static str> {
    let found = plan.conditions.iter().find(|one| one.kind == kind);
    found.map(|one| one.reason)
}

/// E-15: neither family waits for the other.
#[test]
fn e_15_a_dual_stack_cluster_gets_an_address_of_each_family() {
    let fresh = json!({});
    let (plane, front) = (given("10.0.0.15"), given("10.0.0.101"));
    let plan = planned(&fresh, true, [plane, front, absent(), missing()]);
    assert!(plan.differs && plan.apply.endpoint.is_some() && plan.apply.ingress.is_some());
    assert_eq!(plan.second.control_plane, VipStep::Claim);
    assert_eq!(plan.second.ingress, VipStep::Nothing);
    assert!(!plan.second.differs);
    assert_eq!(
        reason(&plan, SECOND_ENDPOINT_READY),
        None,
        "it is under way"
    );
    assert_eq!(reason(&plan, SECOND_INGRESS_READY), Some("PoolNotFound"));

    let (plane, front) = (given("fd00::15"), given("fd00::101"));
    let plan = planned(&fresh, true, [missing(), missing(), plane, front]);
    assert!(!plan.differs && plan.second.differs);
    let apply = SecondApply {
        control_plane: Some(ip("fd00::15")),
        variable: true,
        ingress: Some(ip("fd00::101")),
    };
    assert_eq!(plan.second.apply, apply);
    assert_eq!(plan.conditions.len(), 4);
}

#[test]
fn what_is_lost_of_the_second_family_is_written_again() {
    let annotations = |endpoint: &str, ingress: &str| {
        json!({
            "fipd.io/second-control-plane-vip": endpoint, "fipd.io/second-ingress-vip": ingress,
        })
    };
    let both = annotations("fd00::15", "fd00::101");
    let variable = |value: &str| json!([{ "name": "clusterSecondVip", "value": value }]);
    for (annotations, variables, declares, differs) in [
        (both.clone(), variable("fd00::15"), true, false),
        (both.clone(), variable(""), true, true),
        (both.clone(), json!([]), true, true),
        (both, json!([]), false, false),
        (annotations("", "fd00::101"), json!([]), false, true),
        (annotations("fd00::15", ""), json!([]), false, true),
    ] {
        let rest = json!({
            "metadata": { "annotations": annotations },
            "spec": { "topology": { "variables": variables } },
        });
        let states = [
            given("10.0.0.15"),
            given("10.0.0.101"),
            given("fd00::15"),
            given("fd00::101"),
        ];
        let plan = planned(&rest, declares, states);
        assert_eq!(plan.second.differs, differs, "{rest}");
    }
}

/// E-5, of the second family.
#[test]
fn e_5_beside_an_address_given_by_hand_none_is_claimed() {
    let by_hand = json!({
        "metadata": { "annotations": { "vip.capi.gorizond.io/ingress-vip": "10.2.0.21" } },
        "spec": { "controlPlaneEndpoint": { "host": "api.example", "port": 6443 } },
    });
    let plan = planned(&by_hand, true, [absent(), absent(), absent(), absent()]);
    assert_eq!(plan.second, SecondPlan::default());
    assert_eq!(reason(&plan, SECOND_ENDPOINT_READY), None);
    assert_eq!(reason(&plan, SECOND_INGRESS_READY), None);

    let second =
        json!({ "metadata": { "annotations": { "fipd.io/second-control-plane-vip": "fd00::9" } } });
    let plan = planned(&second, true, [absent(), absent(), absent(), absent()]);
    assert_eq!(plan.second.control_plane, VipStep::Reserve(ip("fd00::9")));
    assert_eq!(plan.second.ingress, VipStep::Claim);
    assert_eq!(reason(&plan, SECOND_ENDPOINT_READY), Some("AddressGiven"));
    assert!(!plan.second.differs);
}

#[test]
fn a_cluster_without_ingress_has_none_of_either_family() {
    let off = json!({ "metadata": { "annotations": { "vip.capi.gorizond.io/ingress-enabled": "false" } } });
    let plan = planned(&off, true, [absent(), absent(), absent(), absent()]);
    assert_eq!(plan.second.control_plane, VipStep::Claim);
    assert_eq!(plan.second.ingress, VipStep::Nothing);
    assert_eq!(reason(&plan, SECOND_INGRESS_READY), None);
}
