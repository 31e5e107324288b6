//! A server with only the deprecated version of Cluster API, and who else may serve its pools.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::Api;

use super::*;

/// fipd serves the cluster, with these lines in `[cluster.cluster-api]`.
async fn serve(fipd: &mut Fipd, plane: &ControlPlane, settings: &str) {
    write_kubeconfig(fipd, "management", &plane.kubeconfig_of(RESTRICTED_USER)).unwrap();
    fipd.write_config(&management_config(fipd, settings))
        .unwrap();
    fipd.restart().await.unwrap();
    fipd.wait_ready(DEADLINE).await.unwrap();
}

#[tokio::test]
async fn a_server_with_only_v1beta1_is_served() {
    let plane = ManagementPlane::with("older", Versions::OnlyV1Beta1)
        .await
        .unwrap();
    let objects = IpamObjects {
        client: plane.client().await.unwrap(),
        version: "v1beta1",
    };
    let mut fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
    serve(&mut fipd, &plane, "").await;
    let spec = json!({ "addresses": ["10.0.0.10"], "prefix": 24 });
    objects.pool("default/net", spec).await.unwrap();
    for name in ["default/a", "default/b"] {
        objects.claim(name, (POOL, "net")).await.unwrap();
        if name == "default/a" {
            assert_eq!(objects.wait_address(name).await.unwrap(), "10.0.0.10");
        }
    }
    objects
        .wait_reason(CLAIM, "default/b", "PoolExhausted")
        .await
        .unwrap();
    let claim = objects.get(CLAIM, "default/b").await.unwrap().unwrap();
    let ready = &claim["status"]["conditions"][0];
    assert_eq!(
        (&ready["severity"], &ready["reason"]),
        (&json!("Warning"), &json!("PoolExhausted"))
    );
    objects.delete(CLAIM, "default/a").await.unwrap();
    objects.wait_gone(ADDRESS, "default/a").await.unwrap();
    assert_eq!(
        objects.wait_address("default/b").await.unwrap(),
        "10.0.0.10"
    );
}

/// The stock provider leads: fipd does nothing until its Lease is free.
#[tokio::test]
async fn the_lease_of_the_stock_provider_is_waited_for() {
    let mut bed = Bed::prepare("").await.unwrap();
    let held = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "7bb7acb4.ipam.cluster.x-k8s.io", "namespace": "capi-ipam-in-cluster-system" },
        "spec": {
            "holderIdentity": "stock", "leaseDurationSeconds": 3600, "leaseTransitions": 0,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2126-01-01T00:00:00.000000Z",
        },
    });
    bed.plane.0.apply(&held.to_string()).await.unwrap();
    bed.fipd.own().unwrap().restart().await.unwrap();
    bed.pool("one/net", &["10.0.0.10"], 24, "").await.unwrap();
    bed.claim("one/a", (POOL, "net")).await.unwrap();
    wait_until("waiting for the Lease", DEADLINE, || async {
        let shown = bed.fipd.cli(["clusters", "list", "-o", "json"]).await;
        let shown = shown
            .map_err(|e| e.to_string())?
            .json()
            .map_err(|e| e.to_string())?;
        let text = shown.to_string();
        if text.contains("7bb7acb4") {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await
    .unwrap();
    let claim = bed.objects.get(CLAIM, "one/a").await.unwrap().unwrap();
    assert_eq!(claim["metadata"]["finalizers"], Value::Null);
    let free = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "7bb7acb4.ipam.cluster.x-k8s.io", "namespace": "capi-ipam-in-cluster-system" },
        "spec": { "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z" },
    });
    bed.plane.0.apply(&free.to_string()).await.unwrap();
    assert_eq!(bed.address("one/a").await.unwrap(), "10.0.0.10");
}

/// `in-cluster-kinds = "leave"`, with the roles for that alone, and beside a provider without pools of prefixes: its pools stay as
/// they are, and fipd's own pools serve claims. Once fipd serves the kinds, it says which are missing and serves the others, and it
/// judges the pools for as long as it does.
#[tokio::test]
async fn left_to_the_stock_provider_its_pools_are_not_touched() {
    let plane = ManagementPlane::with("left", Versions::OnlyV1Beta2)
        .await
        .unwrap();
    let objects = IpamObjects {
        client: plane.client().await.unwrap(),
        version: "v1beta2",
    };
    plane.unbind_role("fipd-cluster-api-pools").await.unwrap();
    for plural in ["inclusterprefixpools", "globalinclusterprefixpools"] {
        let name = format!("{plural}.ipam.cluster.x-k8s.io");
        objects.delete_definition(&name).await.unwrap();
    }
    let mut fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
    let settings = "in-cluster-kinds = \"leave\"\npools = [\"lab\"]";
    serve(&mut fipd, &plane, settings).await;
    fipd.cli(["pool", "create", "lab", "--cidr", "10.8.0.0/30"])
        .await
        .unwrap()
        .success()
        .unwrap();
    let spec = json!({ "addresses": ["10.0.0.10"], "prefix": 24 });
    objects.pool("default/net", spec).await.unwrap();
    let theirs = "default/theirs";
    objects.claim(theirs, (POOL, "net")).await.unwrap();
    objects
        .claim("default/ours", ("Pool", "lab"))
        .await
        .unwrap();
    assert_eq!(
        objects.wait_address("default/ours").await.unwrap(),
        "10.8.0.1"
    );
    let claim = objects.get(CLAIM, theirs).await.unwrap().unwrap();
    assert_eq!(claim["metadata"]["finalizers"], Value::Null);
    let pool = objects.get(POOL, "default/net").await.unwrap().unwrap();
    assert_eq!(
        (&pool["metadata"]["finalizers"], &pool["status"]),
        (&Value::Null, &Value::Null)
    );

    plane
        .bind_role("fipd-cluster-api-pools", None)
        .await
        .unwrap();
    serve(&mut fipd, &plane, "").await;
    assert_eq!(objects.wait_address(theirs).await.unwrap(), "10.0.0.10");
    wait_until("the missing definitions are shown", DEADLINE, || async {
        let shown = fipd.cli(["clusters", "list", "-o", "json"]).await;
        let shown = shown.map_err(|e| e.to_string())?;
        let text = shown.json().map_err(|e| e.to_string())?.to_string();
        let missing = ["InClusterPrefixPool", "GlobalInClusterPrefixPool"];
        let all = missing
            .iter()
            .all(|kind| text.contains(&format!("there is no {kind} ")));
        all.then_some(()).ok_or(text)
    })
    .await
    .unwrap();
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(objects.client.clone());
    let wait_webhook = async |wanted: bool| {
        let what = format!("fipd's webhook is there: {wanted}");
        wait_until(&what, DEADLINE, || async {
            match webhooks.get_opt("fipd-cluster-api-validator").await {
                Ok(found) if found.is_some() == wanted => Ok(()),
                found => Err(format!("{found:?}")),
            }
        })
        .await
        .unwrap();
    };
    wait_webhook(true).await;
    serve(&mut fipd, &plane, settings).await;
    wait_webhook(false).await;
}
