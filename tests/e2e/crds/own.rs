//! fipd's own kinds: what an API server takes, refuses and shows of them.

use fipd_crds::fipd_io::{AddressClaim, NamespacedPool, Pool};
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{NAMESPACE, cluster, manifests, table};

/// As the API server takes it, without our types in between.
async fn create(client: &Client, kind: &str, name: &str, spec: &Value) -> Result<Value, String> {
    let plural = format!("{}s", kind.to_lowercase());
    let path = if kind == "Pool" {
        format!("/apis/fipd.io/v1alpha1/{plural}")
    } else {
        format!("/apis/fipd.io/v1alpha1/namespaces/{NAMESPACE}/{plural}")
    };
    let body = json!({
        "apiVersion": "fipd.io/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec,
    });
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&body).unwrap())
        .unwrap();
    let made = client.request::<Value>(request).await;
    made.map_err(|error| error.to_string())
}

async fn set<K>(api: &Api<K>, name: &str, patch: Value) -> Result<K, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
}

#[tokio::test]
async fn own_kinds_take_what_makes_sense_and_name_what_does_not() {
    let (plane, client) = cluster("own").await;
    plane.install_crds(&manifests()).await.unwrap();
    let full = json!({
        "addresses": ["10.0.0.0/24", "10.0.1.5-10.0.1.9", "10.0.2.1"], "exclusions": ["10.0.0.7"],
        "gateway": "10.0.0.1", "prefixLength": 24, "network": "lab",
        "reservedEnds": { "first": 2, "last": 0, "of": "EachCidr" }, "quarantineSeconds": 60, "closed": true,
    });
    for kind in ["Pool", "NamespacedPool"] {
        for (name, spec) in [
            ("full", full.clone()),
            (
                "six",
                json!({ "addresses": ["2001:db8::/64"], "prefixLength": 64 }),
            ),
        ] {
            create(&client, kind, name, &spec).await.unwrap();
        }
        let wrong = [
            (json!({}), "spec.addresses"),
            (json!({ "addresses": [] }), "spec.addresses"),
            (json!({ "addresses": ["any"] }), "spec.addresses[0]"),
            (
                json!({ "addresses": ["10.0.0.1", "2001:db8::1"] }),
                "one family",
            ),
            (
                json!({ "addresses": ["10.0.0.1"], "gateway": "10.0.0" }),
                "spec.gateway",
            ),
            (
                json!({ "addresses": ["10.0.0.1"], "prefixLength": 129 }),
                "spec.prefixLength",
            ),
            (
                json!({ "addresses": ["10.0.0.1"], "quarantineSeconds": -1 }),
                "spec.quarantineSeconds",
            ),
            (
                json!({ "addresses": ["10.0.0.1"], "reservedEnds": { "of": "Net" } }),
                "spec.reservedEnds.of",
            ),
        ];
        for (spec, named) in wrong {
            let refused = create(&client, kind, "wrong", &spec).await.unwrap_err();
            assert!(refused.contains(named), "{kind} {spec}: {refused}");
        }
    }
    assert!(
        create(&client, "Pool", "none", &Value::Null)
            .await
            .unwrap_err()
            .contains("spec")
    );

    for (name, spec) in [
        ("any", json!({})),
        (
            "named",
            json!({ "poolRef": { "name": "full" }, "address": "10.0.0.9" }),
        ),
        (
            "own",
            json!({ "poolRef": { "kind": "NamespacedPool", "name": "six" } }),
        ),
    ] {
        create(&client, "AddressClaim", name, &spec).await.unwrap();
    }
    for (spec, named) in [
        (json!({ "address": "10.0.0.256" }), "spec.address"),
        (json!({ "poolRef": {} }), "spec.poolRef.name"),
        (
            json!({ "poolRef": { "kind": "FloatingIPPool", "name": "p" } }),
            "spec.poolRef.kind",
        ),
    ] {
        let refused = create(&client, "AddressClaim", "wrong", &spec)
            .await
            .unwrap_err();
        assert!(refused.contains(named), "{spec}: {refused}");
    }
    a_claim_cannot_be_changed(&client).await;
    they_show_their_columns(&client).await;
}

async fn a_claim_cannot_be_changed(client: &Client) {
    let claims: Api<AddressClaim> = Api::namespaced(client.clone(), NAMESPACE);
    for spec in [
        json!({ "address": "10.0.0.10" }),
        json!({ "address": null }),
        json!({ "poolRef": { "kind": "Pool" } }),
    ] {
        let refused = set(&claims, "named", json!({ "spec": spec })).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("make another one"), "{spec}: {refused}");
    }
    set(
        &claims,
        "any",
        json!({ "spec": { "address": "10.0.0.10" } }),
    )
    .await
    .unwrap_err();
    set(&claims, "any", json!({ "spec": null }))
        .await
        .unwrap_err();
    let labels =
        json!({ "metadata": { "labels": { "a": "b" } }, "status": { "address": "10.0.0.9" } });
    let labelled = set(&claims, "named", labels).await.unwrap();
    assert_eq!(labelled.status, None, "the status is a subresource");
}

async fn they_show_their_columns(client: &Client) {
    let ready = json!([{
        "type": "Ready", "status": "True", "reason": "Allocated", "message": "", "lastTransitionTime": "2026-04-02T10:00:00Z",
    }]);
    let claims: Api<AddressClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let status = json!({ "status": {
        "address": "10.0.0.9", "prefixLength": 24, "pool": "full", "since": "2026-04-02T10:00:00Z", "conditions": ready,
    } });
    let params = PatchParams::default();
    claims
        .patch_status("any", &params, &Patch::Merge(&status))
        .await
        .unwrap();
    let path = format!("/apis/fipd.io/v1alpha1/namespaces/{NAMESPACE}/addressclaims");
    let (names, row) = table(client, &path).await;
    assert_eq!(
        names,
        [
            "Name",
            "Address",
            "Pool",
            "Ready",
            "Reason",
            "Requested",
            "Age"
        ]
    );
    assert_eq!(
        row[..6],
        *json!(["any", "10.0.0.9", "full", "True", "Allocated", null])
            .as_array()
            .unwrap()
    );

    let status = json!({ "status": {
        "total": 9, "used": 2, "free": 7, "reserved": 0, "quarantined": 1, "conditions": ready,
    } });
    let pools: Api<Pool> = Api::all(client.clone());
    pools
        .patch_status("full", &params, &Patch::Merge(&status))
        .await
        .unwrap();
    let (names, row) = table(client, "/apis/fipd.io/v1alpha1/pools").await;
    assert_eq!(
        names,
        [
            "Name",
            "Network",
            "Total",
            "Used",
            "Free",
            "Ready",
            "Addresses",
            "Age"
        ]
    );
    assert_eq!(
        row[..6],
        *json!(["full", "lab", 9, 2, 7, "True"]).as_array().unwrap()
    );

    let pools: Api<NamespacedPool> = Api::namespaced(client.clone(), NAMESPACE);
    let mut pool = pools.get("six").await.unwrap();
    pool.metadata = ObjectMeta {
        name: Some("seven".into()),
        ..ObjectMeta::default()
    };
    pool.spec.pool.addresses = vec!["10.0.7.0/24".into()];
    pool.spec.pool.prefix_length = None;
    pools.create(&PostParams::default(), &pool).await.unwrap();
}
