//! fipd dies between two of its steps.

use super::*;

const POLICY: &str = "fipd-test-no-writes-of-clusters";

/// Killed after the claim was made and before it had an address.
#[tokio::test(flavor = "multi_thread")]
async fn killed_before_the_claim_has_an_address_fipd_goes_on_with_that_claim() {
    let mut bed = Bed::alone(Class::with_cluster_vip("killed"), "").await;
    bed.pool("killed", CONTROL_PLANE, &["10.71.0.15-10.71.0.19"])
        .await;
    bed.annotate_pool("killed", PAUSED, json!("")).await;
    bed.cluster("killed").await;
    let claim = bed.wait_claim("vip-cp-killed", "is there", |_| true).await;
    bed.own_fipd().kill9().unwrap();
    bed.annotate_pool("killed", PAUSED, Value::Null).await;
    bed.restart().await;
    let seen = bed.wait_endpoint("killed", "10.71.0.15").await;
    bed.wait("killed", "has the variable", |one| {
        variable(one, CLUSTER_VIP) == "10.71.0.15"
    })
    .await;
    assert_eq!(endpoint(&seen)["port"], 6443);
    assert_eq!(bed.claims().await, ["vip-cp-killed"]);
    let same = bed.claim("vip-cp-killed").await.unwrap();
    assert_eq!(same["metadata"]["uid"], claim["metadata"]["uid"]);
    assert_eq!(bed.leases().await.len(), 1, "{:?}", bed.leases().await);
}

/// Whether fipd's user may write Clusters now.
async fn may_write(bed: &Bed, cluster: &str) -> Result<bool, String> {
    let client = bed.management.plane.client_of(RESTRICTED_USER).await;
    let client = client.map_err(|error| format!("{error:#}"))?;
    let core = ClusterApiObjects {
        client,
        namespace: bed.core.namespace.clone(),
    };
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "fipd.test/tried": "" } } }));
    let clusters = core.clusters(ApiVersion::V1Beta2);
    match clusters.patch(cluster, &params, &patch).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.message.contains(POLICY) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

async fn wait_may_write(bed: &Bed, wanted: bool) {
    let what = format!("fipd may write Clusters: {wanted}");
    wait_until(&what, DEADLINE, || async {
        match may_write(bed, "decoy").await? {
            may if may == wanted => Ok(()),
            may => Err(may.to_string()),
        }
    })
    .await
    .unwrap();
}

/// Killed after the address was allocated and before it was written into the Cluster, which an admission policy refuses.
#[tokio::test(flavor = "multi_thread")]
async fn killed_between_address_and_endpoint_fipd_writes_the_endpoint() {
    let mut bed = Bed::alone(Class::with_cluster_vip("cut"), "").await;
    bed.cluster_with("decoy", json!({ "spec": { "paused": true } }))
        .await;
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": POLICY },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": ["cluster.x-k8s.io"], "apiVersions": ["*"], "resources": ["clusters"],
                "operations": ["UPDATE"],
            }] },
            "matchConditions": [{ "name": "fipd", "expression": format!("request.userInfo.username == '{RESTRICTED_USER}'") }],
            "validations": [{ "expression": "false", "message": POLICY }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": POLICY }, "spec": { "policyName": POLICY, "validationActions": ["Deny"] },
    });
    let plane = &bed.management.plane;
    plane
        .apply(&format!("{policy}\n---\n{binding}"))
        .await
        .unwrap();
    wait_may_write(&bed, false).await;
    bed.pool("cut", CONTROL_PLANE, &["10.72.0.15-10.72.0.19"])
        .await;
    bed.cluster("cut").await;
    let allocated = bed.ipam.wait_address("cut/vip-cp-cut").await.unwrap();
    assert_eq!(allocated, "10.72.0.15");
    let claim = bed.claim("vip-cp-cut").await.unwrap();
    bed.own_fipd().kill9().unwrap();
    let seen = json!(bed.clusters().get("cut").await.unwrap());
    assert_eq!(endpoint(&seen), &Value::Null, "{seen}");
    remove_policy(&bed).await;
    wait_may_write(&bed, true).await;
    bed.restart().await;
    bed.wait_endpoint("cut", "10.72.0.15").await;
    bed.wait("cut", "has the variable", |one| {
        variable(one, CLUSTER_VIP) == "10.72.0.15"
    })
    .await;
    assert_eq!(bed.claims().await, ["vip-cp-cut"]);
    let same = bed.claim("vip-cp-cut").await.unwrap();
    assert_eq!(same["metadata"]["uid"], claim["metadata"]["uid"]);
}

async fn remove_policy(bed: &Bed) {
    use k8s_openapi::api::admissionregistration::v1::{
        ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    };
    let client = bed.management.plane.client().await.unwrap();
    let params = DeleteParams::default();
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    bindings.delete(POLICY, &params).await.unwrap();
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client);
    policies.delete(POLICY, &params).await.unwrap();
}

/// Killed again and again while several Clusters get both of their addresses.
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_time_each_cluster_has_one_claim_and_one_address_of_each_role() {
    const CLUSTERS: usize = 6;
    let mut bed = Bed::alone(Class::with_cluster_vip("many"), "").await;
    bed.pool("many", CONTROL_PLANE, &["10.73.0.1-10.73.0.50"])
        .await;
    bed.pool("many-ingress", INGRESS, &["10.73.0.101-10.73.0.150"])
        .await;
    let names: Vec<_> = (0..CLUSTERS)
        .map(|number| format!("many-{number}"))
        .collect();
    for (number, name) in names.iter().enumerate() {
        bed.cluster(name).await;
        if number % 2 == 1 {
            // At whatever step the one before has come to.
            bed.own_fipd().kill9().unwrap();
            bed.restart().await;
        }
    }
    let mut hosts = Vec::new();
    for name in &names {
        let seen = bed
            .wait(name, "has both addresses", |one| {
                endpoint(one)["host"].is_string()
                    && one["metadata"]["annotations"][INGRESS_VIP].is_string()
            })
            .await;
        let host = endpoint(&seen)["host"].as_str().unwrap().to_owned();
        bed.wait(name, "has the variable", |one| {
            variable(one, CLUSTER_VIP) == &*host
        })
        .await;
        hosts.push(host);
        hosts.push(
            seen["metadata"]["annotations"][INGRESS_VIP]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    hosts.sort();
    hosts.dedup();
    assert_eq!(hosts.len(), 2 * CLUSTERS, "no address twice: {hosts:?}");
    let held: Vec<_> = bed.leases().await.into_keys().collect();
    assert_eq!(held, hosts, "and none beside");
    assert_eq!(bed.claims().await.len(), 2 * CLUSTERS);
}
