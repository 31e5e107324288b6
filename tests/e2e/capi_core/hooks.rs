//! The hook BeforeClusterCreate, and the fate of fields that are written while it is called.

use std::collections::BTreeSet;

use fipd_tests::testbed::cluster_api::{
    ApiVersion, CLUSTER_VIP, Class, HOOKS, INGRESS_VIP, RuntimeExtension, condition,
};
use kube::api::{Api, DeleteParams, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use super::{Bed, FIPD, variable, vip_fields};

const HANDLER: &str = "fipd-vip";

pub(super) fn extension_configs(bed: &Bed) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("runtime.cluster.x-k8s.io", "v1beta2", "ExtensionConfig");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "extensionconfigs");
    Api::all_with(bed.objects.client.clone(), &resource)
}

/// Starts an extension and waits until the core manager has discovered its handler.
async fn discovered(bed: &Bed, name: &str) -> RuntimeExtension {
    let authority = bed.management.plane.foundation().authority();
    let handlers = json!([{
        "name": HANDLER, "requestHook": { "apiVersion": HOOKS, "hook": "BeforeClusterCreate" },
        "timeoutSeconds": 5, "failurePolicy": "Fail",
    }]);
    let extension = RuntimeExtension::start(name, handlers, authority);
    let extension = extension.await.unwrap();
    let configs = extension_configs(bed);
    let config = extension.config(&bed.objects.namespace);
    bed.objects.create(&configs, config).await.unwrap();
    let is_discovered = |config: &Value| {
        let handlers = &config["status"]["handlers"];
        condition(config, "Discovered")["status"] == "True"
            && handlers[0]["name"] == format!("{HANDLER}.{name}")
    };
    let discovered = bed
        .objects
        .wait("is discovered", (&configs, name), is_discovered);
    discovered.await.unwrap();
    extension
}

fn response(message: &str, retry_after: u32) -> Value {
    json!({
        "apiVersion": HOOKS, "kind": "BeforeClusterCreateResponse", "status": "Success",
        "message": message, "retryAfterSeconds": retry_after,
    })
}

async fn unregister(bed: &Bed, name: &str) {
    let configs = extension_configs(bed);
    configs
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hook_holds_a_cluster_back_until_its_address_is_written() {
    let bed = Bed::start("hooks").await;
    let extension = discovered(&bed, "before-create").await;
    bed.class(Class::with_cluster_vip("hooks")).await;
    let made = bed.cluster("one", "hooks").await;

    let call = extension.next().await.unwrap();
    assert_eq!(
        call.path,
        format!("/{HOOKS}/beforeclustercreate/{HANDLER}?timeout=5s")
    );
    let fields: BTreeSet<&str> = call
        .body
        .as_object()
        .unwrap()
        .keys()
        .map(|key| &**key)
        .collect();
    assert_eq!(fields, BTreeSet::from(["apiVersion", "cluster", "kind"]));
    assert_eq!(call.body["apiVersion"], HOOKS);
    assert_eq!(call.body["kind"], "BeforeClusterCreateRequest");
    let cluster = &call.body["cluster"];
    assert_eq!(
        cluster["metadata"]["uid"], made["metadata"]["uid"],
        "{cluster}"
    );
    assert_eq!(cluster["spec"]["topology"]["classRef"]["name"], "hooks");
    assert_eq!(variable(cluster, CLUSTER_VIP), "");
    call.answer(response("no address yet", 1));
    let seen = bed
        .wait_cluster("one", "says why it waits", |cluster| {
            let why = condition(cluster, "TopologyReconciled");
            why["message"]
                .as_str()
                .is_some_and(|why| why.contains("no address yet"))
        })
        .await;
    assert!(seen["spec"]["infrastructureRef"].is_null(), "{seen}");

    // Written while the manager waits for the answer. It does not overwrite variables that the webhook defaulted.
    let call = extension.next().await.unwrap();
    bed.apply_vip("one", "10.20.3.5").await;
    call.answer(response("", 0));
    let (infrastructure, _) = bed.objects.wait_rendered("one").await.unwrap();
    bed.wait_infrastructure(&infrastructure, "has the address", |one| {
        one["spec"]["controlPlaneEndpoint"]["host"] == "10.20.3.5"
    })
    .await;
    let seen = bed.wait_cluster("one", "is there", |_| true).await;
    assert_eq!(variable(&seen, CLUSTER_VIP), "10.20.3.5");
    unregister(&bed, "before-create").await;
}

/// The topology controller sets the references by a merge patch that also says `annotations: null`, unless the Cluster
/// already had annotations when its reconciliation began.
#[tokio::test(flavor = "multi_thread")]
async fn annotations_written_before_a_cluster_is_rendered_can_get_lost() {
    let bed = Bed::start("annotations").await;
    let extension = discovered(&bed, "annotations").await;
    bed.class(Class::with_cluster_vip("annotations")).await;
    let annotated = |name: &str| {
        let mut vip = vip_fields(name, "10.20.5.5");
        vip["metadata"]["annotations"] = json!({ INGRESS_VIP: "10.20.5.6" });
        vip
    };
    let clusters = bed.objects.clusters(ApiVersion::V1Beta2);
    let mut lost = Vec::new();
    for (name, annotations) in [("bare", json!({})), ("noted", json!({ "team": "one" }))] {
        let mut cluster = ApiVersion::V1Beta2.cluster(name, "annotations");
        cluster["metadata"]["annotations"] = annotations;
        bed.objects.create(&clusters, cluster).await.unwrap();
        let call = extension.next().await.unwrap();
        let applied = bed.objects.apply(&clusters, FIPD, annotated(name)).await;
        let applied = applied.unwrap();
        assert_eq!(applied["metadata"]["annotations"][INGRESS_VIP], "10.20.5.6");
        call.answer(response("", 0));
        let (infrastructure, _) = bed.objects.wait_rendered(name).await.unwrap();
        let seen = bed.wait_cluster(name, "is there", |_| true).await;
        if seen["metadata"]["annotations"][INGRESS_VIP].is_null() {
            lost.push(name);
            bed.objects
                .apply(&clusters, FIPD, annotated(name))
                .await
                .unwrap();
        }
        bed.wait_infrastructure(&infrastructure, "has both addresses", |one| {
            one["spec"]["ingressVip"] == "10.20.5.6"
                && one["spec"]["controlPlaneEndpoint"]["host"] == "10.20.5.5"
        })
        .await;
    }
    assert_eq!(lost, ["bare"]);
    unregister(&bed, "annotations").await;
}

/// A Cluster created before its class has no defaults. The topology controller adds them to the variables it read at the
/// beginning of its reconciliation, and writes the whole list at the end.
#[tokio::test(flavor = "multi_thread")]
async fn the_topology_controller_blanks_a_variable_of_a_cluster_older_than_its_class() {
    let bed = Bed::start("late").await;
    let extension = discovered(&bed, "late-class").await;
    let clusters = bed.objects.clusters(ApiVersion::V1Beta2);
    let mut cluster = ApiVersion::V1Beta2.cluster("one", "late");
    // Every write through the webhook adds the defaults, also that of core's finalizer, which must not come first.
    cluster["metadata"]["finalizers"] = json!(["cluster.cluster.x-k8s.io"]);
    let made = bed.objects.create(&clusters, cluster).await.unwrap();
    assert!(variable(&made, CLUSTER_VIP).is_null(), "{made}");
    let vip = "10.20.4.5";
    let early = bed.objects.apply(&clusters, FIPD, vip_fields("one", vip));
    let refused = format!("{:#}", early.await.unwrap_err());
    assert!(
        refused.contains("ClusterClass late/late not found"),
        "{refused}"
    );

    bed.class(Class::with_cluster_vip("late")).await;
    let call = extension.next().await.unwrap();
    let applied = bed.apply_vip("one", vip).await;
    assert_eq!(variable(&applied, CLUSTER_VIP), vip, "{applied}");
    call.answer(response("soon", 1));
    let is_blank = |cluster: &Value| variable(cluster, CLUSTER_VIP) == "";
    let seen = bed
        .wait_cluster("one", "has an empty variable", is_blank)
        .await;
    let host = &seen["spec"]["controlPlaneEndpoint"]["host"];
    assert_eq!(host, vip, "only the variables are lost: {seen}");

    // With the defaults stored, the list is not written again.
    let call = extension.next().await.unwrap();
    bed.apply_vip("one", vip).await;
    call.answer(response("", 0));
    let (infrastructure, _) = bed.objects.wait_rendered("one").await.unwrap();
    bed.wait_infrastructure(&infrastructure, "has the address", |one| {
        one["spec"]["controlPlaneEndpoint"]["host"] == vip
    })
    .await;
    let seen = bed.wait_cluster("one", "is there", |_| true).await;
    assert_eq!(variable(&seen, CLUSTER_VIP), vip, "{seen}");
    unregister(&bed, "late-class").await;
}
