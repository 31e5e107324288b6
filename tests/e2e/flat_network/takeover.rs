//! Taking over a site as the original operator leaves it.

use fipd_tests::flat_network::FlatObjects;
use fipd_tests::stock::{definition, restore};
use fipd_tests::testbed::{ControlPlane, ControlPlaneOptions};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::{Api, api::ListParams};

use super::*;

/// Two complete lists, a minute apart.
const SWEPT: Duration = Duration::from_secs(150);

/// Defects 1 and 2 of g.1. Addresses are adopted before the first new one; of two pods with one address one contends; what the chart leaves is named and
/// goes only in the real run.
#[tokio::test]
async fn g1_1_2_the_addresses_of_the_original_are_adopted_and_its_leftovers_go_when_asked() {
    let mut bed = PodBed::prepare("", &["taken"]).await.unwrap();
    let spec =
        json!({ "flatMode": "macvlan", "master": "eth0", "vlan": 220, "cidr": "10.220.0.0/24" });
    bed.objects
        .make(SUBNET, &subnet("taken"), json!({ "spec": spec }))
        .await
        .unwrap();
    let status = json!({
        "phase": "Active", "usedIPCount": 4,
        "usedIP": [{ "from": "10.220.0.1", "to": "10.220.0.2" }, { "from": "10.220.0.8", "to": "10.220.0.9" }],
    });
    bed.objects
        .merge_status(SUBNET, &subnet("taken"), status)
        .await
        .unwrap();
    for (name, address) in [
        ("a", "10.220.0.1"),
        ("b", "10.220.0.2"),
        ("twin", "10.220.0.2"),
    ] {
        let path = format!("taken/{name}");
        let made = bed
            .objects
            .make_original(&path, "taken", address, "02:00:00:00:00:01");
        made.await.unwrap();
    }
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "rancher-flat-network-multus", "namespace": SUBNETS },
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "rancher-flat-network-multus" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": "rancher-flat-network-multus", "namespace": SUBNETS }],
    });
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "rancher-flat-network-subnets-validating-config" },
    });
    let labels = json!({ "app": "multus" });
    let pod = json!({
        "serviceAccountName": "rancher-flat-network-multus",
        "containers": [{ "name": "multus", "image": "mirror/cni", "command": ["/thin_entrypoint"] }],
    });
    let multus = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "multus-ds", "namespace": SUBNETS },
        "spec": { "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": pod } },
    });
    let template = json!({ "spec": {
        "serviceAccountName": "rancher-flat-network-multus", "restartPolicy": "OnFailure",
        "containers": [{ "name": "rollout", "image": "none" }],
    } });
    let meta = json!({ "name": "rancher-flat-network-tls-rollout", "namespace": SUBNETS });
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": { "template": template },
    });
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta,
        "spec": { "schedule": "0 0 1 * *", "jobTemplate": { "spec": { "template": template } } },
    });
    for object in [&account, &binding, &webhook, &multus, &job, &cron] {
        bed.cluster.0.apply(&object.to_string()).await.unwrap();
    }
    bed.objects
        .pod("taken/new", "taken", "auto", json!({}))
        .await
        .unwrap();
    bed.restart().await.unwrap();
    assert_eq!(
        bed.objects.wait_address("taken/new").await.unwrap(),
        "10.220.0.3"
    );
    let leases = bed.leases("10.220.").await.unwrap();
    assert_eq!(leases.len(), 5, "{leases:?}");
    assert!(leases["10.220.0.1"].ends_with("taken/a"), "{leases:?}");
    // Leaked, and held until it is proven that nobody has them.
    let leaked = ["10.220.0.8", "10.220.0.9"];
    for address in leaked {
        let owner = format!("{SUBNETS}/taken.used-ip.{address}");
        assert!(leases[address].ends_with(&owner), "{leases:?}");
    }
    for name in ["a", "b", "twin"] {
        let pod = bed.objects.get("Pod", &format!("taken/{name}")).await;
        assert!(pod.unwrap().is_some(), "nobody deletes the pod {name}");
    }

    let dry = ["adopt", "flat-network", "--cluster", "pods", "--dry-run"];
    let report = bed.fipd.cli(dry).await.unwrap().success().unwrap();
    for says in [
        "ClusterRoleBinding rancher-flat-network-multus",
        "ServiceAccount",
        "that of",
        "CronJob rancher-flat-network-tls-rollout",
        "Job rancher-flat-network-tls-rollout",
        "has 2 addresses that no FlatNetworkIP has",
        "DaemonSet cattle-flat-network/multus-ds",
        "it goes with the chart",
    ] {
        assert!(report.contains(says), "{says}: {report}");
    }
    let client = &bed.objects.client;
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let webhook = async || {
        let found = webhooks
            .get_opt("rancher-flat-network-subnets-validating-config")
            .await;
        found.unwrap().is_some()
    };
    let rollout = format!("{SUBNETS}/rancher-flat-network-tls-rollout");
    let renewed = async |kind| bed.objects.get(kind, &rollout).await.unwrap();
    assert!(webhook().await, "a dry run changes nothing");
    for kind in ["Job", "CronJob"] {
        assert!(renewed(kind).await.is_some(), "{kind}");
    }
    let real = ["adopt", "flat-network", "--cluster", "pods"];
    bed.fipd.cli(real).await.unwrap().success().unwrap();
    assert!(!webhook().await);
    for kind in ["Job", "CronJob"] {
        bed.objects.wait_gone(kind, &rollout).await.unwrap();
    }
    let binding = bindings
        .get_opt("rancher-flat-network-multus")
        .await
        .unwrap();
    assert!(binding.is_some(), "the nodes use it");
    wait_until("what nobody has is free", SWEPT, || async {
        let left = bed.leases("10.220.").await.unwrap();
        let leaked = leaked.iter().any(|address| left.contains_key(*address));
        (!leaked).then_some(()).ok_or(format!("{left:?}"))
    })
    .await
    .unwrap();
    let counted = |one: &Value| one["status"]["usedIPCount"] == 3;
    bed.objects
        .wait(SUBNET, &subnet("taken"), "lost what nobody has", counted)
        .await
        .unwrap();
}

/// The original's definitions, by a.1 to a.4 of the contract: they know no other fields, and anything may be null.
fn definitions() -> [Value; 2] {
    let kind = |name: &str| json!({ "type": name, "nullable": true });
    let (text, number, yes) = (kind("string"), kind("integer"), kind("boolean"));
    let object =
        |fields: Value| json!({ "type": "object", "nullable": true, "properties": fields });
    let many = |one: &Value| json!({ "type": "array", "nullable": true, "items": one });
    let range = many(&object(json!({ "from": text, "to": text })));
    let routes = many(&object(json!({
        "dev": text, "dst": text, "src": text, "via": text, "priority": number,
    })));
    let settings = object(json!({
        "addClusterCIDR": yes, "addServiceCIDR": yes, "addNodeCIDR": yes, "addPodIPToHost": yes,
        "flatNetworkDefaultGateway": yes,
    }));
    let subnet = object(json!({
        "flatMode": text, "master": text, "vlan": number, "cidr": text, "mode": text,
        "ipvlanFlag": text, "gateway": text, "ranges": range, "routes": routes,
        "routeSettings": settings,
    }));
    let reserved = json!({ "type": "object", "nullable": true, "additionalProperties": range });
    let of_subnet = object(json!({
        "phase": text, "failureMessage": text, "gateway": text, "usedIP": range,
        "usedIPCount": number, "usedMac": many(&text), "reservedIP": reserved,
    }));
    let ip = object(json!({
        "subnet": text, "addrs": many(&text), "macs": many(&text), "podId": text,
    }));
    let of_ip = object(json!({
        "phase": text, "failureMessage": text, "allocatedTimeStamp": text, "addr": text,
        "mac": text,
    }));
    [(SUBNET, subnet, of_subnet), (IP, ip, of_ip)].map(|(kind, spec, status)| {
        definition(
            ("flatnetwork.pandaria.io", "v1"),
            (kind, "Namespaced"),
            &spec,
            &status,
        )
    })
}

/// That an API server which has never seen fipd stores the objects, by the definitions of the original.
async fn fit_the_original(all: &[Value]) {
    let plane = ControlPlane::start("judge", ControlPlaneOptions::default());
    let plane = plane.await.unwrap();
    for definition in definitions() {
        plane.install_crds(&definition.to_string()).await.unwrap();
    }
    let objects = FlatObjects {
        client: plane.client().await.unwrap(),
    };
    for object in all {
        let (kind, metadata) = (object["kind"].as_str().unwrap(), &object["metadata"]);
        let namespace = metadata["namespace"].as_str().unwrap();
        let made =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        plane.apply(&made.to_string()).await.unwrap();
        // fipd's own, which the original's server drops.
        let mut status = object["status"].clone();
        for own in ["conditions", "accepted"] {
            status.as_object_mut().unwrap().remove(own);
        }
        let api = objects.of(kind, namespace);
        restore(&api, object, Some(&status)).await.unwrap();
    }
}

/// The finalizers of an object, by their names.
fn finalizers(object: &Value) -> Vec<&str> {
    let all = object["metadata"]["finalizers"].as_array();
    all.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

#[tokio::test]
async fn adopting_is_refused_while_the_original_is_to_run_and_detaching_leaves_all_addresses() {
    let mut bed = PodBed::prepare("", &["left"]).await.unwrap();
    bed.objects
        .subnet("left", "10.221.0.0/24", json!({ "vlan": 221 }))
        .await
        .unwrap();
    let original = bed
        .objects
        .make_original("left/a", "left", "10.221.0.7", "02:00:00:00:00:07");
    original.await.unwrap();
    let plane = &bed.cluster.0;
    let operator = "rancher-flat-network-operator";
    plane.scale_original(SUBNETS, operator, 1).await.unwrap();
    bed.restart().await.unwrap();
    let adopt = ("flat-network", "pods");
    let refused = bed.fipd.wait_adopt_refused(adopt, &["--replicas=0"]);
    refused.await.unwrap();
    let plane = &bed.cluster.0;
    plane.scale_original(SUBNETS, operator, 0).await.unwrap();
    bed.fipd.wait_adopted(adopt).await.unwrap();
    bed.objects
        .pod("left/new", "left", "auto", json!({}))
        .await
        .unwrap();
    bed.objects.wait_address("left/new").await.unwrap();
    let all = [
        (SUBNET, subnet("left")),
        (IP, "left/a".to_owned()),
        (IP, "left/new".to_owned()),
    ];
    let look = async || {
        let looks = all.iter().map(|(kind, path)| bed.objects.get(kind, path));
        let found = futures::future::try_join_all(looks).await.unwrap();
        let found: Vec<Value> = found.into_iter().flatten().collect();
        found
    };
    let before = look().await;
    assert!(before.iter().all(|one| !finalizers(one).is_empty()));
    let detach = bed.fipd.cli(["clusters", "detach", "pods"]).await.unwrap();
    detach.success().unwrap();
    let after = look().await;
    assert_eq!(after.len(), all.len(), "nothing is deleted");
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(finalizers(after), [""; 0], "{after}");
        assert_eq!(after["spec"], before["spec"]);
        for field in ["addr", "mac", "phase"] {
            assert_eq!(after["status"][field], before["status"][field], "{after}");
        }
    }
    fit_the_original(&after).await;
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(bed.objects.client.clone());
    let ours = ListParams::default().labels("app.kubernetes.io/managed-by=fipd");
    let ours = webhooks.list(&ours).await.unwrap().items;
    assert!(ours.is_empty(), "{ours:?}");
    let operator = format!("{SUBNETS}/{operator}");
    bed.objects.delete("Deployment", &operator).await.unwrap();
}

/// A status lists ten thousand addresses, and says where there are more.
#[tokio::test]
async fn a_status_says_that_it_lists_not_all_of_many_addresses() {
    let mut bed = PodBed::prepare("", &["many"]).await.unwrap();
    bed.objects
        .subnet("many", "10.222.0.0/16", json!({ "vlan": 222 }))
        .await
        .unwrap();
    let status = json!({
        "phase": "Active", "usedIPCount": 10_001,
        "usedIP": [{ "from": "10.222.0.1", "to": "10.222.39.17" }],
    });
    let path = subnet("many");
    bed.objects
        .merge_status(SUBNET, &path, status)
        .await
        .unwrap();
    let original = bed
        .objects
        .make_original("many/a", "many", "10.222.0.1", "02:00:00:00:00:01");
    original.await.unwrap();
    bed.restart().await.unwrap();
    let is_cut = |one: &Value| condition(one, "Truncated")["status"] == "True";
    let seen = bed.objects.wait(SUBNET, &path, "is cut", is_cut);
    let seen = seen.await.unwrap();
    let message = condition(&seen, "Truncated")["message"].as_str().unwrap();
    assert!(message.contains("10000 of 10001"), "{message}");
    assert_eq!(seen["status"]["usedIPCount"], 10_001, "{message}");
    let listed = json!([{ "from": "10.222.0.1", "to": "10.222.39.16" }]);
    assert_eq!(seen["status"]["usedIP"], listed);
}
