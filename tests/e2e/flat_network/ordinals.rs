//! An ordinal of a StatefulSet between two of its pods.

use kube::api::DeleteParams;

use super::*;

const POD: &str = "forced/db-0";
/// For how long the template has the address kept.
const KEPT: Duration = Duration::from_secs(10);
const NODE: &str = "forced";

/// Takes the pod away at once, as `kubectl delete --force` does, or its node once its containers have ended.
async fn force_delete(bed: &PodBed) {
    let (namespace, name) = POD.split_once('/').unwrap();
    let now = DeleteParams::default().grace_period(0);
    let pods = bed.objects.of("Pod", namespace);
    pods.delete(name, &now).await.unwrap();
}

/// Scales the StatefulSet down. Its pod waits for its node, which nobody runs.
async fn scale_down(bed: &PodBed) {
    scale(bed, 0).await;
    let goes = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
    bed.objects.wait("Pod", POD, "goes", goes).await.unwrap();
    force_delete(bed).await;
    bed.objects.wait_gone("Pod", POD).await.unwrap();
}

async fn scale(bed: &PodBed, replicas: u8) {
    let replicas = json!({ "spec": { "replicas": replicas } });
    let scaled = bed.objects.merge("StatefulSet", "forced/db", replicas);
    scaled.await.unwrap();
}

/// Waits until another pod than that of this UID has the address; the UID of that one.
async fn successor(bed: &PodBed, before: &Value, address: &str) -> Value {
    let own = |ip: &Value| ip["spec"]["podId"] != *before && ip["status"]["phase"] == "Pending";
    let ip = bed.objects.wait(IP, POD, "is of another pod", own).await;
    let ip = ip.unwrap();
    assert_eq!(ip["status"]["addr"], address, "{ip}");
    bed.objects.attach(POD).await.unwrap();
    ip["spec"]["podId"].clone()
}

/// Over a force delete and a short scale-down the address stays; once nobody has come for the declared time it is free.
#[tokio::test]
async fn g1_21_an_ordinal_loses_its_address_only_after_the_declared_time() {
    let bed = PodBed::share(&["forced"]).await.unwrap();
    let made = bed
        .objects
        .subnet("forced", "10.207.0.0/24", json!({ "vlan": 207 }));
    made.await.unwrap();
    bed.node(NODE).await.unwrap();
    let template = json!({
        "metadata": { "labels": { "a": "b" }, "annotations": {
            "flatnetwork.pandaria.io/ip": "auto", "flatnetwork.pandaria.io/subnet": "forced",
            "fipd.io/keep-address-seconds": KEPT.as_secs().to_string(),
        } },
        "spec": {
            "nodeName": NODE, "terminationGracePeriodSeconds": 600,
            "containers": [{ "name": "c", "image": "none" }],
        },
    });
    let set = json!({ "spec": {
        "serviceName": "db", "selector": { "matchLabels": { "a": "b" } }, "template": template,
    } });
    let made = bed.objects.make("StatefulSet", "forced/db", set);
    made.await.unwrap();
    let first = successor(&bed, &Value::Null, "10.207.0.1").await;
    force_delete(&bed).await;
    let second = successor(&bed, &first, "10.207.0.1").await;
    scale_down(&bed).await;
    let other = bed.objects.pod("forced/other", "forced", "auto", json!({}));
    other.await.unwrap();
    let other = bed.objects.wait_address("forced/other").await.unwrap();
    assert_ne!(other, "10.207.0.1");
    scale(&bed, 1).await;
    successor(&bed, &second, "10.207.0.1").await;
    let down = Instant::now();
    scale_down(&bed).await;
    // The pod is missed twice, a minute apart; the time counts from the first.
    let free = wait_until("nobody has the address", 3 * DEADLINE, || async {
        let left = bed.leases("10.207.0.1").await?;
        anyhow::ensure!(left.is_empty(), "{left:?}");
        Ok(())
    });
    free.await.unwrap();
    assert!(down.elapsed() >= KEPT, "{:?}", down.elapsed());
    bed.objects.wait_gone(IP, POD).await.unwrap();
    bed.objects
        .delete("StatefulSet", "forced/db")
        .await
        .unwrap();
    bed.remove_node(NODE).await.unwrap();
}
