use kube::Resource;
use serde_json::{Value, json};

use super::*;
use crate::testing::same_again;

pub(super) fn object(version: &str, kind: &str, rest: &Value) -> Value {
    let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "a", "namespace": "n" } });
    let fields = rest.as_object().unwrap().clone();
    object.as_object_mut().unwrap().extend(fields);
    object
}

const TIME: &str = "2026-05-04T03:02:01Z";

fn old_condition() -> Value {
    json!({
        "type": "Ready", "status": "False", "severity": "Error", "reason": "Old", "message": "m",
        "lastTransitionTime": TIME,
    })
}

fn new_condition() -> Value {
    json!({
        "type": "Ready", "status": "True", "observedGeneration": 3, "reason": "AddressAllocated", "message": "",
        "lastTransitionTime": TIME,
    })
}

fn claim_spec() -> Value {
    json!({
        "clusterName": "c",
        "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p" },
    })
}

#[test]
fn a_claim_of_v1beta2_reads_and_writes_the_same() {
    let status = json!({
        "addressRef": { "name": "a" }, "conditions": [new_condition()],
        "deprecated": { "v1beta1": { "conditions": [old_condition()] } },
    });
    let rest = json!({ "spec": claim_spec(), "status": status });
    let claim: IPAddressClaim = same_again(&object(
        "ipam.cluster.x-k8s.io/v1beta2",
        "IPAddressClaim",
        &rest,
    ));
    assert!(!claim.is_v1beta1());
    assert_eq!(claim.address_name(), Some("a"));
    let ready = claim.ready_conditions();
    assert_eq!(ready.len(), 1);
    assert_eq!(serde_json::to_value(&ready[0]).unwrap(), new_condition());
    let again = AnyCondition::from(ready[0].clone());
    assert_eq!(serde_json::to_value(again).unwrap(), new_condition());
}

#[test]
fn a_claim_of_v1beta1_reads_and_writes_the_same() {
    let status = json!({
        "addressRef": { "name": "a" }, "conditions": [old_condition(), { "type": "Bare", "status": "True" }],
        "v1beta2": { "conditions": [new_condition()] },
    });
    let rest = json!({ "spec": claim_spec(), "status": status });
    let claim: IPAddressClaim = same_again(&object(
        "ipam.cluster.x-k8s.io/v1beta1",
        "IPAddressClaim",
        &rest,
    ));
    assert!(claim.is_v1beta1());
    assert_eq!(claim.ready_conditions()[0].reason, "AddressAllocated");
    let status = claim.status.unwrap();
    assert_eq!(status.conditions[0].severity.as_deref(), Some("Error"));
}

/// v1beta1 always writes the reference and may have a null group; v1beta2 takes neither.
#[test]
fn an_empty_reference_and_a_null_group_count_as_absent() {
    for status in [
        json!({ "addressRef": { "name": "" } }),
        json!({ "addressRef": null, "conditions": null }),
        json!({}),
        Value::Null,
    ] {
        let spec = json!({ "poolRef": { "apiGroup": null, "kind": "K", "name": "p" } });
        let rest = json!({ "spec": spec, "status": status });
        let claim = object("ipam.cluster.x-k8s.io/v1beta1", "IPAddressClaim", &rest);
        let claim: IPAddressClaim = serde_json::from_value(claim).unwrap();
        assert_eq!(
            (claim.address_name(), claim.ready_conditions()),
            (None, vec![])
        );
        let written = serde_json::to_value(&claim).unwrap();
        assert_eq!(written.get("status"), None);
        assert_eq!(
            written["spec"],
            json!({ "poolRef": { "kind": "K", "name": "p" } })
        );
    }
}

#[test]
fn an_address_of_either_version_reads_and_writes_the_same() {
    let pool = claim_spec()["poolRef"].clone();
    for version in [
        "ipam.cluster.x-k8s.io/v1beta1",
        "ipam.cluster.x-k8s.io/v1beta2",
    ] {
        let spec = json!({ "claimRef": { "name": "a" }, "poolRef": pool, "address": "10.0.0.5", "prefix": 24 });
        let rest = json!({ "spec": spec });
        let address: IPAddress = same_again(&object(version, "IPAddress", &rest));
        assert_eq!(address.spec.prefix, Some(24));
        assert_eq!(address.spec.gateway, "");
        let mut rest = rest;
        rest["spec"]["gateway"] = json!("10.0.0.1");
        let address: IPAddress = same_again(&object(version, "IPAddress", &rest));
        assert_eq!(address.is_v1beta1(), version.ends_with("v1beta1"));
    }
}

#[test]
fn a_new_object_is_written_in_the_current_version() {
    let written = serde_json::to_value(IPAddress::default()).unwrap();
    assert_eq!(written["apiVersion"], "ipam.cluster.x-k8s.io/v1beta2");
    assert_eq!(written["kind"], "IPAddress");
    let written = serde_json::to_value(ExtensionConfig::default()).unwrap();
    assert_eq!(written["apiVersion"], "runtime.cluster.x-k8s.io/v1beta2");
}

#[test]
fn foreign_kinds_are_found_under_their_paths() {
    fn path<K: Resource<DynamicType = ()>>(namespace: Option<&str>) -> String {
        K::url_path(&(), namespace)
    }
    let ipam = "/apis/ipam.cluster.x-k8s.io/v1beta2/namespaces/n";
    assert_eq!(
        path::<IPAddressClaim>(Some("n")),
        format!("{ipam}/ipaddressclaims")
    );
    assert_eq!(path::<IPAddress>(Some("n")), format!("{ipam}/ipaddresses"));
    assert_eq!(
        path::<Cluster>(None),
        "/apis/cluster.x-k8s.io/v1beta2/clusters"
    );
    assert_eq!(
        path::<ClusterClass>(None),
        "/apis/cluster.x-k8s.io/v1beta2/clusterclasses"
    );
    assert_eq!(
        path::<ExtensionConfig>(None),
        "/apis/runtime.cluster.x-k8s.io/v1beta2/extensionconfigs"
    );
    let installed = crate::all();
    let foreign = [
        "IPAddressClaim",
        "IPAddress",
        "Cluster",
        "ClusterClass",
        "ExtensionConfig",
    ];
    assert!(
        installed
            .iter()
            .all(|crd| !foreign.contains(&&*crd.spec.names.kind))
    );
}

#[test]
fn a_cluster_of_either_version_names_its_class() {
    let v1beta1 = json!({
        "spec": {
            "paused": true, "controlPlaneEndpoint": { "host": "", "port": 0 },
            "infrastructureRef": { "apiVersion": "i/v1", "kind": "I", "name": "i", "namespace": "n" },
            "topology": {
                "class": "k", "variables": [{ "name": "clusterVip", "value": "", "definitionFrom": "x" }],
            },
        },
        "status": {
            "phase": "Provisioned", "infrastructureReady": true, "controlPlaneReady": false,
            "conditions": [old_condition()], "v1beta2": { "conditions": [new_condition()] },
        },
    });
    let old: Cluster = same_again(&object("cluster.x-k8s.io/v1beta1", "Cluster", &v1beta1));
    assert_eq!(old.class(), Some(("n".to_owned(), "k".to_owned())));
    assert!(old.is_paused() && old.is_topology() && old.is_infrastructure_ready());
    assert_eq!(old.endpoint(), None);
    assert_eq!(old.variable("clusterVip"), Some(&json!("")));
    let v1beta2 = json!({
        "spec": {
            "clusterNetwork": {
                "pods": { "cidrBlocks": ["10.244.0.0/16"] },
                "services": { "cidrBlocks": ["fd00:96::/112", "10.96.0.0/12"] },
            },
            "controlPlaneEndpoint": { "host": "10.0.0.5", "port": 7443 },
            "controlPlaneRef": { "apiGroup": "c", "kind": "C", "name": "c" },
            "topology": {
                "classRef": { "name": "k", "namespace": "classes" },
                "variables": [{ "name": "replicas", "value": { "min": 1 } }],
            },
        },
        "status": {
            "initialization": { "infrastructureProvisioned": true, "controlPlaneInitialized": false },
            "conditions": [new_condition()],
        },
    });
    let new: Cluster = same_again(&object("cluster.x-k8s.io/v1beta2", "Cluster", &v1beta2));
    assert_eq!(new.class(), Some(("classes".to_owned(), "k".to_owned())));
    assert!(!new.is_paused() && new.is_infrastructure_ready());
    assert_eq!(new.endpoint().unwrap().port, 7443);
    assert_eq!(new.variable("clusterVip"), None);
    let blocks: Vec<_> = new.blocks().collect();
    assert_eq!(blocks, ["fd00:96::/112", "10.96.0.0/12", "10.244.0.0/16"]);
    assert_eq!(old.blocks().count(), 0);
    assert_eq!(old.ready_conditions(), new.ready_conditions());
}

#[test]
fn a_cluster_without_class_or_spec_is_read() {
    for spec in [
        json!({}),
        json!({ "topology": {} }),
        json!({ "topology": { "class": "" } }),
        Value::Null,
    ] {
        let rest = json!({ "spec": spec });
        let cluster = object("cluster.x-k8s.io/v1beta2", "Cluster", &rest);
        let cluster: Cluster = serde_json::from_value(cluster).unwrap();
        assert!(!cluster.is_topology() && !cluster.is_paused(), "{spec}");
    }
    let annotations = json!({ "annotations": { "cluster.x-k8s.io/paused": "false" } });
    let cluster: Cluster = serde_json::from_value(json!({ "metadata": annotations })).unwrap();
    assert!(cluster.is_paused());
}

#[test]
fn a_class_declares_its_own_variables_and_those_of_extensions() {
    let rest = json!({
        "spec": { "variables": [{ "name": "clusterVip" }] },
        "status": { "variables": [{ "name": "extra", "definitions": [{ "from": "patch" }] }] },
    });
    let class: ClusterClass =
        same_again(&object("cluster.x-k8s.io/v1beta1", "ClusterClass", &rest));
    assert!(class.declares("clusterVip") && class.declares("extra") && !class.declares("cluster"));
}

#[test]
fn a_class_reads_what_its_patches_evaluate() {
    let class = |patch: Value| -> ClusterClass {
        let rest = json!({ "spec": { "patches": [patch] } });
        same_again(&object("cluster.x-k8s.io/v1beta2", "ClusterClass", &rest))
    };
    let from = |source: Value| {
        let patch = json!({ "op": "add", "path": "/spec/template/spec/a", "valueFrom": source });
        class(json!({ "name": "clusterVip", "definitions": [{ "jsonPatches": [patch] }] }))
    };
    for (template, reads) in [
        ("{{ .clusterVip }}", true),
        ("{{ if contains \":\" .clusterVip }}128{{ end }}", true),
        ("{{ .clusterVipPool }} {{ .other }}", false),
        ("{{ .clusterVipPool }} {{ .clusterVip }}", true),
    ] {
        let class = from(json!({ "template": template }));
        assert_eq!(class.reads("clusterVip"), reads, "{template}");
        assert!(!class.declares("clusterVip"));
    }
    for (variable, reads) in [
        ("clusterVip", true),
        ("clusterVip.host", true),
        ("clusterVips", false),
        ("builtin.cluster.name", false),
    ] {
        let class = from(json!({ "variable": variable }));
        assert_eq!(class.reads("clusterVip"), reads, "{variable}");
    }
    let class = class(json!({
        "name": "a", "description": "without .clusterVip",
        "enabledIf": "{{ index .builtin.cluster.metadata.annotations \"fipd.io/control-plane-vip\" }}",
    }));
    assert!(class.reads_annotation("fipd.io/control-plane-vip") && !class.reads("clusterVip"));
}

#[test]
fn an_extension_config_reads_and_writes_the_same() {
    let rest = json!({
        "spec": {
            "clientConfig": {
                "service": { "namespace": "fipd", "name": "hooks", "path": "/h", "port": 443 }, "caBundle": "UEVN",
            },
            "namespaceSelector": { "matchLabels": { "a": "b" } },
            "settings": { "cluster": "lab" },
        },
        "status": { "conditions": [new_condition()] },
    });
    let version = "runtime.cluster.x-k8s.io/v1beta2";
    let config: ExtensionConfig = same_again(&object(version, "ExtensionConfig", &rest));
    assert_eq!(config.spec.client_config.ca_bundle.unwrap().0, b"PEM");
}

/// One object that does not decode would hide all the others of its list.
#[test]
fn odd_values_spoil_no_list() {
    let spec =
        json!({ "address": 5, "prefix": 99_999_999_999_u64, "poolRef": "p", "claimRef": null });
    let address: IPAddressSpec = serde_json::from_value(spec).unwrap();
    assert_eq!(address, IPAddressSpec::default());
    let condition = json!({ "type": "Ready", "status": "True", "lastTransitionTime": "yesterday" });
    let condition: AnyCondition = same_again(&condition);
    assert_eq!(condition.to_condition(), None);
}
