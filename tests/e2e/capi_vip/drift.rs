//! An endpoint without a claim that somebody changes: its lease is that of the Cluster itself.

use super::*;

fn at(host: &str) -> Value {
    json!({ "spec": { "controlPlaneEndpoint": { "host": host, "port": 6443 } } })
}

/// The same of a Cluster without an ingress.
fn without_ingress(mut cluster: Value) -> Value {
    cluster["metadata"]["annotations"][INGRESS_ENABLED] = json!("false");
    cluster
}

impl Bed {
    /// Waits until certificates carry the endpoint of a Cluster.
    async fn wait_provisioned(&self, name: &str) {
        self.wait(name, "is provisioned", |one| {
            one["status"]["initialization"]["infrastructureProvisioned"] == true
        })
        .await;
    }

    /// Waits until the endpoint counts as one that differs from its lease, or until it does not.
    async fn wait_alarm(&self, name: &str, is_on: bool) {
        let of = format!("name=\"{name}\"");
        let differs = |line: &str| {
            line.starts_with("fipd_cluster_api_endpoint_differs{") && line.contains(&of)
        };
        let what = format!("{name} has an alarm: {is_on}");
        let seen = wait_until(&what, PROMPT, || async {
            let series = self.fipd.get("/metrics").await;
            let series = series.map_err(|error| format!("{error:#}"))?.body;
            match series.lines().any(differs) == is_on {
                true => Ok(()),
                false => Err(series),
            }
        });
        self.explained(seen.await);
    }
}

/// One is chosen by hand, the other was claimed, and its claim is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_differs_from_the_lease_of_its_cluster_is_alarmed_and_stays() {
    let bed = Bed::start(Class::with_cluster_vip("drift")).await;
    bed.pool("drift", CONTROL_PLANE, &["10.58.0.15-10.58.0.29"])
        .await;
    bed.cluster_with("chosen", without_ingress(at("10.58.0.20")))
        .await;
    bed.cluster_with("claimed", without_ingress(json!({})))
        .await;
    bed.wait_endpoint("claimed", "10.58.0.15").await;
    bed.wait_lease("10.58.0.15", CLAIM, "vip-cp-claimed").await;
    bed.ipam
        .delete(CLAIM, "drift/vip-cp-claimed")
        .await
        .unwrap();
    for (name, first, then) in [
        ("chosen", "10.58.0.20", "10.58.0.21"),
        ("claimed", "10.58.0.15", "10.58.0.22"),
    ] {
        bed.wait_lease(first, CLUSTER, name).await;
        bed.wait_provisioned(name).await;
        bed.wait_says(name, ENDPOINT_READY, "True", "EndpointGiven")
            .await;
        bed.wait_alarm(name, false).await;
        bed.edit(name, at(then)).await;
        let said = bed
            .wait_says(name, ENDPOINT_READY, "False", "EndpointDiffers")
            .await;
        assert!(said.contains(first) && said.contains(then), "{said}");
        let path = bed.path(name);
        let event = bed.ipam.wait_event(CLUSTER, &path, "EndpointDiffers");
        assert_eq!(event.await.unwrap(), said);
        bed.wait_alarm(name, true).await;
        // Nobody else gets either.
        bed.wait_lease(then, CLUSTER, name).await;
        bed.wait_lease(first, CLUSTER, name).await;
        let seen = json!(bed.clusters().get(name).await.unwrap());
        assert_eq!(endpoint(&seen)["host"], then, "{seen}");
    }
    // fipd writes the rest of what it has there, and the alarm stays.
    let none =
        json!({ "spec": { "topology": { "variables": [{ "name": CLUSTER_VIP, "value": "" }] } } });
    bed.edit("chosen", none).await;
    let seen = bed
        .wait("chosen", "has its variable again", |one| {
            variable(one, CLUSTER_VIP) == "10.58.0.21"
        })
        .await;
    let said = condition(&seen, ENDPOINT_READY);
    assert_eq!(said["reason"], "EndpointDiffers", "{said}");
    // Put back, it is what it was.
    bed.edit("chosen", at("10.58.0.20")).await;
    bed.wait_says("chosen", ENDPOINT_READY, "True", "EndpointGiven")
        .await;
    bed.wait_alarm("chosen", false).await;
    // Nor does an address count that the Cluster does not hold any more. Any change has fipd look at it.
    let release = ["lease", "release", "10.58.0.15"];
    bed.fipd.cli(release).await.unwrap().success().unwrap();
    let looked = json!({ "metadata": { "annotations": { "fipd.test/looked": "" } } });
    bed.edit("claimed", looked).await;
    bed.wait_says("claimed", ENDPOINT_READY, "True", "EndpointGiven")
        .await;
    bed.wait_alarm("claimed", false).await;
}

/// Nothing carries the endpoint of a Cluster whose infrastructure is not there.
#[tokio::test(flavor = "multi_thread")]
async fn before_it_is_provisioned_an_endpoint_may_be_chosen_again() {
    let bed = Bed::start(Class::without_endpoint("early-choice")).await;
    bed.pool("early-choice", CONTROL_PLANE, &["10.58.1.20-10.58.1.29"])
        .await;
    let mut cluster = without_ingress(at("10.58.1.20"));
    cluster["apiVersion"] = json!("cluster.x-k8s.io/v1beta2");
    cluster["kind"] = json!(CLUSTER);
    cluster["metadata"]["name"] = json!("bare");
    cluster["metadata"]["annotations"][CLUSTER_CLASS] = json!("early-choice");
    cluster["spec"]["infrastructureRef"] = json!({
        "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": StandIn::Cluster.kind(), "name": "none",
    });
    let clusters = bed.clusters();
    bed.core.create(&clusters, cluster).await.unwrap();
    bed.wait_lease("10.58.1.20", CLUSTER, "bare").await;
    bed.edit("bare", at("10.58.1.21")).await;
    bed.wait_lease("10.58.1.21", CLUSTER, "bare").await;
    let what = "says that its new endpoint is given";
    bed.wait("bare", what, |one| {
        let said = condition(one, ENDPOINT_READY);
        let message = said["message"].as_str().unwrap_or_default();
        said["reason"] == "EndpointGiven" && message.contains("10.58.1.21")
    })
    .await;
    bed.wait_alarm("bare", false).await;
}
