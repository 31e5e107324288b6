//! Pods whose node does not do what it should, and what leads to the CNI plugin.

use k8s_openapi::api::{core::v1::Node, events::v1::Event};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};

use super::*;

const ATTACHMENTS: &str = include_str!("../../crds/network_attachments.yaml");
const ATTACHMENT: &str = "NetworkAttachmentDefinition";
/// The shortest limits, and some more.
const LIMITED: Duration = Duration::from_secs(90);

/// A pod on a node that nobody runs, which has its address; that.
async fn lone_pod(bed: &PodBed, path: &str, node: &str, grace: u8) -> String {
    let annotations = json!({
        "flatnetwork.pandaria.io/ip": "auto", "flatnetwork.pandaria.io/subnet": "nodes",
    });
    let object = json!({
        "metadata": { "annotations": annotations },
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": grace,
            "containers": [{ "name": "c", "image": "none" }],
        },
    });
    bed.objects.make_pod(path, &object).await.unwrap();
    bed.objects.wait_address(path).await.unwrap()
}

/// Row 56, and defect 21 of g.1: a pod that does not get to use its address is deleted in time, and one on a dead node gives it back
/// once the Node is gone or the declared time is over, not before. A node that is ready has its pods end themselves.
#[tokio::test]
async fn row_56_g1_21_a_pod_that_its_node_fails_keeps_its_address_for_the_declared_time() {
    let settings = "pending-limit = \"30s\"\ndead-node-limit = \"30s\"";
    let bed = PodBed::alone(settings, &["nodes"]).await.unwrap();
    let objects = &bed.objects;
    let made = objects.subnet("nodes", "10.144.0.0/24", json!({ "vlan": 144 }));
    made.await.unwrap();
    let path = subnet("nodes");
    objects.wait_phase(SUBNET, &path, "Active").await.unwrap();
    for node in ["silent", "removed", "ready"] {
        bed.node(node).await.unwrap();
    }
    let nodes: Api<Node> = Api::all(objects.client.clone());
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    let (params, ready) = (PatchParams::default(), Patch::Merge(ready));
    let patched = nodes.patch_status("ready", &params, &ready);
    patched.await.unwrap();
    let stuck = lone_pod(&bed, "nodes/stuck", "silent", 0).await;
    let mut held = BTreeMap::new();
    for node in ["silent", "removed", "ready"] {
        let path = format!("nodes/{node}");
        held.insert(node, lone_pod(&bed, &path, node, 1).await);
        objects.attach(&path).await.unwrap();
        objects.delete("Pod", &path).await.unwrap();
        let goes = |ip: &Value| !ip["metadata"]["deletionTimestamp"].is_null();
        objects.wait(IP, &path, "goes", goes).await.unwrap();
    }
    let leases = bed.leases("10.144.").await.unwrap();
    assert_eq!(
        leases.len(),
        4,
        "nobody knows that the pods are gone: {leases:?}"
    );
    bed.remove_node("removed").await.unwrap();
    let left = async |address: &str| {
        let what = format!("{address} is free");
        let gone = wait_until(&what, LIMITED, || async {
            let leases = bed.leases("10.144.").await?;
            anyhow::ensure!(!leases.contains_key(address), "{leases:?}");
            Ok(leases)
        });
        gone.await.unwrap()
    };
    let leases = left(&held["removed"]).await;
    assert!(leases.contains_key(&held["silent"]), "{leases:?}");
    let leases = left(&held["silent"]).await;
    assert!(leases.contains_key(&held["ready"]), "{leases:?}");
    let now = DeleteParams::default().grace_period(0);
    let pods = objects.of("Pod", "nodes");
    pods.delete("ready", &now).await.unwrap();
    left(&held["ready"]).await;
    for node in ["removed", "silent"] {
        let path = format!("nodes/{node}");
        let note = objects.wait_event(&path, "NodeLost").await.unwrap();
        assert!(note.contains(node), "{note}");
        let pod = objects.get("Pod", &path).await.unwrap();
        assert!(pod.is_some(), "nobody has said that it is gone");
        let now = DeleteParams::default().grace_period(0);
        let pods = objects.of("Pod", "nodes");
        pods.delete(node, &now).await.unwrap();
    }
    left(&stuck).await;
    objects.wait_gone("Pod", "nodes/stuck").await.unwrap();
    // Among those from before it had an address.
    let events: Api<Event> = Api::namespaced(objects.client.clone(), "nodes");
    wait_until("an Event about the deletion", LIMITED, || async {
        let all = events.list(&ListParams::default()).await?;
        let errors = all
            .iter()
            .filter(|event| event.reason.as_deref() == Some(IP_ERROR));
        let notes: Vec<String> = errors.filter_map(|event| event.note.clone()).collect();
        let is_deletion = |note: &String| note.contains(&stuck) && note.contains("is deleted");
        anyhow::ensure!(notes.iter().any(is_deletion), "{notes:?}");
        Ok(())
    })
    .await
    .unwrap();
    for node in ["silent", "ready"] {
        bed.remove_node(node).await.unwrap();
    }
}

/// Row 63 and c.1: each namespace has the attachment; an edited one is repaired, and a foreign one left alone.
#[tokio::test]
async fn row_63_each_namespace_has_the_attachment() {
    let mut bed = PodBed::prepare("cni-version = \"0.3.1\"", &["older"])
        .await
        .unwrap();
    bed.cluster.0.install_crds(ATTACHMENTS).await.unwrap();
    let foreign = json!({ "spec": { "config": "{\"cniVersion\":\"1.0.0\",\"type\":\"bridge\"}" } });
    let path = "older/rancher-flat-network";
    bed.objects
        .make(ATTACHMENT, path, foreign.clone())
        .await
        .unwrap();
    bed.restart().await.unwrap();
    bed.cluster.make_namespace("newer").await.unwrap();
    let wanted = json!({
        "cniVersion": "0.3.1", "type": "rancher-flat-network-cni", "dns": {},
        "ipam": { "type": "static-ipam" },
        "flatNetwork": {
            "mtu": 1500, "clusterCIDR": "10.42.0.0/16", "serviceCIDR": "10.43.0.0/16",
            "arpPolicy": "arp_notify", "proxyARP": false,
        },
    });
    let config = |one: &Value| -> Value {
        let text = one["spec"]["config"].as_str().unwrap_or_default();
        serde_json::from_str(text).unwrap_or_default()
    };
    let is_wanted = |one: &Value| config(one) == wanted;
    let (objects, newer) = (&bed.objects, "newer/rancher-flat-network");
    let made = objects.wait(ATTACHMENT, newer, "says what the plugin reads", is_wanted);
    let owner = made.await.unwrap()["metadata"]["ownerReferences"][0].take();
    assert_eq!(
        (&owner["kind"], &owner["name"]),
        (&json!("Namespace"), &json!("newer"))
    );
    let edit = json!({ "spec": { "config": "{\"type\":\"rancher-flat-network-cni\"}" } });
    objects.merge(ATTACHMENT, newer, edit).await.unwrap();
    let repaired = objects.wait(ATTACHMENT, newer, "is repaired", is_wanted);
    repaired.await.unwrap();
    let left = objects.get(ATTACHMENT, path).await.unwrap().unwrap();
    assert_eq!(left["spec"], foreign["spec"]);
}
