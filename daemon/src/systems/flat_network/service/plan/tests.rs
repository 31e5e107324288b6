use k8s_openapi::api::core::v1::Service;

use super::*;

fn service(metadata: Value, spec: Value) -> FlatServiceView {
    let object: Service =
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
    FlatServiceView::of(object)
}

fn web() -> FlatServiceView {
    service(
        json!({ "name": "web", "uid": "s" }),
        json!({
            "type": "NodePort", "clusterIP": "10.43.0.7", "selector": { "app": "web" },
            "ports": [
                { "name": "http", "port": 80, "targetPort": "web", "protocol": "TCP", "nodePort": 30080 },
                { "name": "admin", "port": 9000, "protocol": "TCP" },
            ],
        }),
    )
}

fn unselecting() -> FlatServiceView {
    let mut service = web();
    service.selector.clear();
    service
}

fn pod(change: impl FnOnce(&mut FlatPodView)) -> (Key, Arc<FlatPodView>) {
    let mut pod = FlatPodView {
        is_flat: true,
        is_alive: true,
        ..FlatPodView::default()
    };
    change(&mut pod);
    (Key::new("shop", "web-0"), Arc::new(pod))
}

fn planned(
    name: &str,
    original: &FlatServiceView,
    found: Option<&FlatServiceView>,
    pods: &[(Key, Arc<FlatPodView>)],
) -> CompanionPlan {
    plan(&CompanionFacts {
        original: (&Key::new("shop", name), original),
        name: &format!("{name}-flat-network"),
        found,
        pods,
    })
}

/// The companion as the API server has it once fipd has made it.
fn made() -> FlatServiceView {
    let CompanionPlan::Create(mut body) = planned("web", &web(), None, &[pod(|_| {})]) else {
        panic!("it is made");
    };
    body["metadata"]["uid"] = json!("c");
    body["metadata"]["resourceVersion"] = json!("7");
    FlatServiceView::of(serde_json::from_value(body).unwrap())
}

/// Row 59.
#[test]
fn a_service_of_flat_pods_gets_a_headless_one() {
    let CompanionPlan::Create(body) = planned("web", &web(), None, &[pod(|_| {})]) else {
        panic!("it is made");
    };
    let spec = &body["spec"];
    assert_eq!(
        (&spec["type"], &spec["clusterIP"]),
        (&json!("ClusterIP"), &json!("None"))
    );
    assert_eq!(spec["clusterIPs"], json!(["None"]));
    assert_eq!(
        spec.get("selector"),
        None,
        "the stock controllers leave it alone"
    );
    assert_eq!(
        spec["ports"],
        json!([
            { "name": "http", "port": 80, "targetPort": "web", "protocol": "TCP" },
            { "name": "admin", "port": 9000, "targetPort": 9000, "protocol": "TCP" },
        ])
    );
    let metadata = &body["metadata"];
    assert_eq!(metadata["annotations"], json!({ NETWORKS: ATTACHMENT }));
    assert_eq!(metadata["labels"], json!({ MANAGED_BY: FIELD_MANAGER }));
    let owner = json!([{ "apiVersion": "v1", "kind": "Service", "name": "web", "uid": "s" }]);
    assert_eq!(metadata["ownerReferences"], owner);
    assert!(made().is_companion("web-flat-network"));
}

/// Row 59, and what b.5 leaves out.
#[test]
fn only_services_that_select_flat_pods_get_one() {
    let flat = [pod(|_| {})];
    type Pods<'a> = &'a [(Key, Arc<FlatPodView>)];
    let cases: [(&str, FlatServiceView, Pods<'_>); 6] = [
        ("no pod is selected", web(), &[]),
        ("none is flat", web(), &[pod(|pod| pod.is_flat = false)]),
        (
            "the only one ends",
            web(),
            &[pod(|pod| pod.is_alive = false)],
        ),
        (
            "one opts out",
            web(),
            &[pod(|_| {}), pod(|pod| pod.is_opted_out = true)],
        ),
        ("it has no selector", unselecting(), &flat),
        (
            "it is a name only",
            FlatServiceView {
                is_external: true,
                ..web()
            },
            &flat,
        ),
    ];
    for (why, original, pods) in cases {
        assert_eq!(
            planned("web", &original, None, pods),
            CompanionPlan::Leave,
            "{why}"
        );
    }
    let of_ingress = service(
        json!({ "name": "ingress-1", "uid": "i", "ownerReferences": [
            { "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "a", "uid": "b" },
        ] }),
        json!({ "selector": { "app": "web" } }),
    );
    assert_eq!(
        planned("ingress-1", &of_ingress, None, &flat),
        CompanionPlan::Leave
    );
    assert_eq!(
        planned("web-flat-network", &made(), None, &flat),
        CompanionPlan::Leave
    );
    let v1 = service(
        json!({ "name": "web-macvlan", "uid": "v", "annotations": { NETWORKS: "static-macvlan-cni-attach" } }),
        json!({ "clusterIP": "None", "selector": { "app": "web" } }),
    );
    assert_eq!(
        planned("web-macvlan", &v1, None, &flat),
        CompanionPlan::Leave
    );
}

#[test]
fn what_is_as_it_should_be_is_left_alone() {
    let companion = made();
    for pods in [Vec::new(), vec![pod(|_| {})]] {
        assert_eq!(
            planned("web", &web(), Some(&companion), &pods),
            CompanionPlan::Leave
        );
    }
}

/// A companion of the original: with a selector, the Service's owners, shifted ports, or the network of 2024.
#[test]
fn a_companion_of_the_original_is_put_right() {
    let deployment =
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d" });
    let service_of =
        |uid: &str| json!({ "apiVersion": "v1", "kind": "Service", "name": "web", "uid": uid });
    let other = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x" });
    let original = service(
        json!({ "name": "web", "uid": "s", "ownerReferences": [deployment] }),
        json!({ "clusterIP": "None", "selector": { "app": "web" }, "ports": [{ "port": 42, "protocol": "TCP" }] }),
    );
    let found = service(
        json!({
            "name": "web-flat-network", "uid": "c", "resourceVersion": "7",
            "annotations": { NETWORKS: "rancher-flat-network-cni" },
            "ownerReferences": [deployment, service_of("old"), service_of("s"), other, service_of("s")],
        }),
        json!({
            "type": "ClusterIP", "clusterIP": "None", "selector": { "app": "web" },
            "ports": [{ "port": 43, "targetPort": 43, "protocol": "TCP" }],
        }),
    );
    let CompanionPlan::Refresh(patch) = planned("web", &original, Some(&found), &[]) else {
        panic!("it is put right");
    };
    assert_eq!(
        patch,
        json!({
            "metadata": {
                "uid": "c", "resourceVersion": "7",
                "annotations": { NETWORKS: ATTACHMENT, SELECTOR_BEFORE: r#"{"app":"web"}"# },
                "ownerReferences": [service_of("s"), other],
            },
            "spec": {
                "selector": null,
                "ports": [{ "port": 42, "targetPort": 42, "protocol": "TCP" }],
            },
        })
    );
}

/// Defect g1-15.
#[test]
fn g1_15_ports_of_a_headless_service_are_kept_and_named_target_ports_too() {
    let mut original = web();
    original.is_headless = true;
    let CompanionPlan::Create(body) = planned("web", &original, None, &[pod(|_| {})]) else {
        panic!("it is made");
    };
    let ports = &body["spec"]["ports"];
    assert_eq!(
        (&ports[0]["port"], &ports[0]["targetPort"]),
        (&json!(80), &json!("web"))
    );
    assert_eq!(ports[1]["port"], 9000);
}

#[test]
fn a_companion_goes_where_nothing_is_selected_or_a_pod_opts_out() {
    let companion = made();
    let gone = CompanionPlan::Delete("c".into());
    let opted_out = [pod(|pod| pod.is_opted_out = true)];
    assert_eq!(planned("web", &web(), Some(&companion), &opted_out), gone);
    assert_eq!(planned("web", &unselecting(), Some(&companion), &[]), gone);
    let mut dying = companion;
    dying.meta.deleted = Some(fipd_core::Timestamp(1));
    assert_eq!(
        planned("web", &unselecting(), Some(&dying), &[]),
        CompanionPlan::Leave
    );
    assert_eq!(
        planned("web", &web(), Some(&dying), &[]),
        CompanionPlan::Leave
    );
}

#[test]
fn a_service_of_somebody_else_keeps_its_name() {
    let other = service(
        json!({ "name": "web-flat-network", "uid": "o" }),
        json!({ "type": "ClusterIP", "clusterIP": "10.43.0.9", "selector": { "app": "x" } }),
    );
    assert_eq!(
        planned("web", &web(), Some(&other), &[pod(|_| {})]),
        CompanionPlan::Taken
    );
    assert_eq!(
        planned("web", &web(), Some(&other), &[]),
        CompanionPlan::Leave
    );
    assert_eq!(
        planned("web", &unselecting(), Some(&other), &[]),
        CompanionPlan::Leave
    );
}

#[test]
fn a_companion_that_lost_its_annotation_gets_it_back() {
    let mut companion = made();
    companion.networks = None;
    let CompanionPlan::Refresh(patch) = planned("web", &web(), Some(&companion), &[]) else {
        panic!("it is put right");
    };
    let metadata =
        json!({ "uid": "c", "resourceVersion": "7", "annotations": { NETWORKS: ATTACHMENT } });
    assert_eq!(patch, json!({ "metadata": metadata }));
}
