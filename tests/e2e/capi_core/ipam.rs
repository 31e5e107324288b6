//! IPAddressClaims and IPAddresses under core's webhooks, and values that labels cannot have.

use fipd_tests::testbed::cluster_api::{
    ApiVersion, ClusterApiObjects, INGRESS_VIP, StandIn, Versions, install_definitions,
};
use fipd_tests::testbed::{ControlPlane, ControlPlaneOptions};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::Bed;

const POOL: (&str, &str) = ("InClusterIPPool", "pool");

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_written_in_one_version_and_read_in_the_other() {
    let bed = Bed::start("claims").await;
    let objects = &bed.objects;
    let (old, new) = (ApiVersion::V1Beta1, ApiVersion::V1Beta2);
    let mut claim = old.claim("one", POOL);
    claim["spec"]["clusterName"] = json!("cluster");
    let claim = objects.create(&objects.claims(old), claim).await.unwrap();
    let seen = json!(objects.claims(new).get("one").await.unwrap());
    assert_eq!(seen["apiVersion"], "ipam.cluster.x-k8s.io/v1beta2");
    assert_eq!(seen["metadata"]["uid"], claim["metadata"]["uid"]);
    assert_eq!(seen["spec"], claim["spec"]);

    let status = json!({ "status": { "addressRef": { "name": "one" } } });
    let status = Patch::Merge(status);
    let params = PatchParams::default();
    let claims = objects.claims(new);
    claims.patch_status("one", &params, &status).await.unwrap();
    let seen = json!(objects.claims(old).get("one").await.unwrap());
    assert_eq!(seen["status"]["addressRef"]["name"], "one", "{seen}");
}

/// 10.0.0.1 with a prefix of 24 bits for the claim `one`, but for these fields.
fn address(version: ApiVersion, fields: &Value) -> Value {
    let mut spec = json!({
        "address": "10.0.0.1", "prefix": 24, "claimRef": { "name": "one" },
        "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": POOL.0, "name": POOL.1 },
    });
    for (name, value) in fields.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    json!({
        "apiVersion": version.of("ipam.cluster.x-k8s.io"), "kind": "IPAddress",
        "metadata": { "name": "one" }, "spec": spec,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn row_58_neither_a_claim_nor_an_address_changes() {
    let bed = Bed::start("immutable").await;
    let objects = &bed.objects;
    let version = ApiVersion::V1Beta2;
    let (claims, addresses) = (objects.claims(version), objects.addresses(version));
    let claim = version.claim("one", POOL);
    objects.create(&claims, claim).await.unwrap();
    let made = objects.create(&addresses, address(version, &json!({})));
    made.await.unwrap();
    for (api, spec) in [
        (&claims, json!({ "clusterName": "other" })),
        (&claims, json!({ "poolRef": { "name": "other" } })),
        (&addresses, json!({ "address": "10.0.0.2" })),
        (&addresses, json!({ "prefix": 25 })),
        (&addresses, json!({ "gateway": "10.0.0.254" })),
    ] {
        let other = Patch::Merge(json!({ "spec": spec }));
        let params = PatchParams::default();
        let refused = api.patch("one", &params, &other).await.unwrap_err();
        assert!(
            refused.to_string().contains("immutable"),
            "{spec}: {refused}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_59_an_address_with_a_wrong_field_or_pool_is_refused() {
    let bed = Bed::start("addresses").await;
    let objects = &bed.objects;
    let version = ApiVersion::V1Beta2;
    let claims = objects.claims(version);
    let claim = version.claim("one", POOL);
    objects.create(&claims, claim).await.unwrap();
    // The schema of v1beta2 checks the bounds of IPv6, the webhook those of IPv4; v1beta1 has only the webhook.
    let (old, new) = (ApiVersion::V1Beta1, version);
    let no_address = "not a valid IP address";
    let other = json!({ "apiGroup": "ipam.cluster.x-k8s.io", "kind": POOL.0, "name": "other" });
    for (version, fields, why) in [
        (
            new,
            json!({ "prefix": 33 }),
            "prefix is too large for an IPv4 address",
        ),
        (
            old,
            json!({ "prefix": 33 }),
            "prefix is too large for an IPv4 address",
        ),
        (
            new,
            json!({ "address": "fd00::1", "prefix": 129 }),
            "should be less than or equal to 128",
        ),
        (
            old,
            json!({ "address": "fd00::1", "prefix": 129 }),
            "spec.prefix",
        ),
        (new, json!({ "prefix": -1 }), "spec.prefix"),
        (old, json!({ "prefix": -1 }), "spec.prefix"),
        (new, json!({ "address": "10.0.0.300" }), no_address),
        (new, json!({ "gateway": "10.0.0.300" }), no_address),
        (new, json!({ "poolRef": other }), "poolRef"),
    ] {
        let api = objects.addresses(version);
        let made = objects.create(&api, address(version, &fields)).await;
        let refused = format!("{:#}", made.unwrap_err());
        assert!(refused.contains(why), "{fields}: {refused}");
    }
    // It has no gateway.
    let api = objects.addresses(new);
    let good = address(new, &json!({}));
    objects.create(&api, good).await.unwrap();
}

/// The original selects pools by these labels and writes the ingress address as a label of the Cluster.
#[tokio::test(flavor = "multi_thread")]
async fn labels_hold_neither_lists_nor_ipv6_addresses() {
    let bed = Bed::start("labels").await;
    let objects = &bed.objects;
    let pool = |role: &str| {
        json!({
            "apiVersion": StandIn::Cluster.api_version(), "kind": StandIn::Cluster.kind(),
            "metadata": { "name": "pool", "labels": { "vip.capi.gorizond.io/role": role } },
        })
    };
    let pools = objects.stand_ins(StandIn::Cluster);
    let refused = objects.create(&pools, pool("control-plane,ingress")).await;
    let refused = format!("{:#}", refused.unwrap_err());
    let rule = "a valid label must be an empty string or consist of alphanumeric characters";
    assert!(refused.contains(rule), "{refused}");
    objects.create(&pools, pool("control-plane")).await.unwrap();

    bed.class(super::Class::without_endpoint("labels")).await;
    bed.cluster("one", "labels").await;
    bed.objects.wait_rendered("one").await.unwrap();
    let clusters = objects.clusters(ApiVersion::V1Beta2);
    for (address, is_allowed) in [("10.20.0.8", true), ("fd00:20::8", false)] {
        let both = json!({ INGRESS_VIP: address });
        let patch = json!({ "metadata": { "annotations": both, "labels": both } });
        let patch = Patch::Merge(patch);
        let patched = clusters.patch("one", &PatchParams::default(), &patch).await;
        match patched {
            Ok(_) => assert!(is_allowed, "{address}"),
            Err(refused) => {
                assert!(
                    !is_allowed && refused.to_string().contains(rule),
                    "{refused}"
                );
            }
        }
    }
    let seen = clusters.get("one").await.unwrap();
    let annotations = seen.metadata.annotations.unwrap();
    assert_eq!(
        annotations[INGRESS_VIP], "10.20.0.8",
        "the refused patch changes nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_version_alone_is_served_without_a_manager() {
    let options = ControlPlaneOptions::default();
    let planes = ControlPlane::start_many(&["old", "new"], &options);
    let planes = planes.await.unwrap();
    let cases = [
        (Versions::OnlyV1Beta1, ApiVersion::V1Beta1),
        (Versions::OnlyV1Beta2, ApiVersion::V1Beta2),
    ];
    for (plane, (versions, served)) in planes.iter().zip(cases) {
        install_definitions(plane, versions).await.unwrap();
        let objects = ClusterApiObjects::of(plane, "alone").await.unwrap();
        for version in [ApiVersion::V1Beta1, ApiVersion::V1Beta2] {
            let claims = objects.claims(version);
            let made = objects.create(&claims, version.claim("one", POOL)).await;
            assert_eq!(made.is_ok(), version == served, "{made:?}");
        }
        let clusters = objects.clusters(served);
        let cluster = served.cluster("one", "none");
        objects.create(&clusters, cluster).await.unwrap();
    }
}
