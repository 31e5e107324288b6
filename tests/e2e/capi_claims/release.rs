//! Releases that the API server refuses for a while.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::api::{Api, DeleteParams, Patch, PatchParams};

use super::*;

const POLICY: &str = "fipd-test-no-release";

/// Refuses fipd's writes of IPAddresses until the policy is deleted.
async fn refuse(plane: &ControlPlane) {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": POLICY },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": ["ipam.cluster.x-k8s.io"], "apiVersions": ["*"], "resources": ["ipaddresses"],
                "operations": ["UPDATE", "DELETE"],
            }] },
            "matchConditions": [{ "name": "fipd", "expression": format!("request.userInfo.username == '{RESTRICTED_USER}'") }],
            "validations": [{ "expression": "false", "message": POLICY }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": POLICY }, "spec": { "policyName": POLICY, "validationActions": ["Deny"] },
    });
    let both = format!("{policy}\n---\n{binding}");
    plane.apply(&both).await.unwrap();
}

async fn refuse_no_more(plane: &ControlPlane) {
    let (client, params) = (plane.client().await.unwrap(), DeleteParams::default());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    bindings.delete(POLICY, &params).await.unwrap();
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client);
    policies.delete(POLICY, &params).await.unwrap();
}

/// Waits until the API server refuses fipd's writes.
async fn wait_refused(bed: &Bed, path: &str) {
    let objects = IpamObjects {
        client: bed.plane.0.client_of(RESTRICTED_USER).await.unwrap(),
        version: "v1beta2",
    };
    let (namespace, name) = path.split_once('/').unwrap();
    let api = objects.of(ADDRESS, Some(namespace));
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "fipd.test/tried": "" } } }));
    wait_until("fipd may not write IPAddresses", DEADLINE, || async {
        match api.patch(name, &params, &patch).await {
            Ok(_) => Err("it may".to_owned()),
            Err(error) if error.to_string().contains(POLICY) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await
    .unwrap();
}

/// Waits until work on claims has failed more than once since fipd started.
async fn wait_tried(bed: &Bed) {
    let series =
        r#"fipd_reconcile_total{system="cluster-api",controller="ipaddressclaim",result="error"} "#;
    wait_until("fipd tries again", DEADLINE, || async {
        let metrics = bed.fipd.get("/metrics").await;
        let metrics = metrics.map_err(|error| format!("{error:#}"))?.body;
        let count = metrics.lines().find_map(|line| line.strip_prefix(series));
        let count = count.unwrap_or("0").to_owned();
        let tried = count.parse::<u32>().is_ok_and(|count| count > 1);
        tried.then_some(()).ok_or(count)
    })
    .await
    .unwrap();
}

/// E-29: the Infoblox provider logs that a release failed and lets the claim go, so the record stays for ever; and a claim whose
/// pool is missing never goes.
#[tokio::test]
async fn e_29_a_release_that_fails_is_tried_until_it_is_done() {
    let mut bed = Bed::alone("").await.unwrap();
    bed.pool("one/net", &["10.0.0.10"], 24, "").await.unwrap();
    bed.claim("one/a", (POOL, "net")).await.unwrap();
    assert_eq!(bed.address("one/a").await.unwrap(), "10.0.0.10");
    refuse(&bed.plane.0).await;
    wait_refused(&bed, "one/a").await;
    bed.objects.delete(CLAIM, "one/a").await.unwrap();
    bed.claim("one/b", (POOL, "net")).await.unwrap();
    for _ in 0..2 {
        // It is tried again, and nothing of the claim goes: neither in this life of fipd nor in the next.
        wait_tried(&bed).await;
        let claim = bed.objects.get(CLAIM, "one/a").await.unwrap().unwrap();
        assert_ne!(claim["metadata"]["finalizers"], Value::Null, "{claim}");
        bed.refused("one/b", "PoolExhausted", "PoolExhausted")
            .await
            .unwrap();
        assert!(bed.leases("").await.unwrap()["10.0.0.10"].ends_with("one/a"));
        bed.fipd.own().unwrap().kill9().unwrap();
        bed.restart().await.unwrap();
    }
    refuse_no_more(&bed.plane.0).await;
    bed.objects.wait_gone(CLAIM, "one/a").await.unwrap();
    assert_eq!(bed.address("one/b").await.unwrap(), "10.0.0.10");

    // Its pool vanishes first, while fipd cannot protect it.
    bed.fipd.own().unwrap().kill9().unwrap();
    let none = json!({ "metadata": { "finalizers": null } });
    bed.objects.merge(POOL, "one/net", none).await.unwrap();
    bed.objects.delete(POOL, "one/net").await.unwrap();
    bed.objects.wait_gone(POOL, "one/net").await.unwrap();
    bed.restart().await.unwrap();
    bed.objects.delete(CLAIM, "one/b").await.unwrap();
    for kind in [CLAIM, ADDRESS] {
        bed.objects.wait_gone(kind, "one/b").await.unwrap();
    }
    wait_until("no lease is left", DEADLINE, || async {
        let left = bed.leases("").await.unwrap();
        left.is_empty()
            .then_some(())
            .ok_or_else(|| format!("{left:?}"))
    })
    .await
    .unwrap();
}
