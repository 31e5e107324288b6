//! A site as the in-cluster provider and capi-vip-allocator leave it, taken over and left again. Neither program can be had
//! here: its objects are written as the contract has them.

use fipd_tests::testbed::keep_renewing;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};

use super::*;

const OLDER: &str = "v1alpha1";
const PLURAL: &str = "inclusterippools.ipam.cluster.x-k8s.io";
const VALIDATING: &str = "capi-ipam-in-cluster-validating-webhook-configuration";
const ALLOCATOR_LEASE: &str = "capi-vip-allocator.gorizond.io";
/// System and cluster.
const TAKEOVER: (&str, &str) = ("cluster-api", "management");

/// The definition of the pools as the provider has it: two versions and a conversion webhook that nobody answers.
async fn stock_definition(plane: &ControlPlane, only_older: bool) {
    let all = fipd_crds::all();
    let ours = all
        .iter()
        .find(|crd| crd.metadata.name.as_deref() == Some(PLURAL));
    let mut crd = json!(ours.unwrap());
    let open = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let older = json!({
        "name": OLDER, "served": true, "storage": only_older, "schema": open, "subresources": { "status": {} },
    });
    let newer = crd["spec"]["versions"][0].clone();
    crd["spec"]["versions"] = if only_older {
        json!([older])
    } else {
        json!([newer, older])
    };
    if !only_older {
        crd["spec"]["conversion"] = json!({ "strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": { "service": { "namespace": "capi-ipam-in-cluster-system", "name": "gone", "path": "/convert" } },
        } });
    }
    // Nobody answers the conversion, so that only the older form alone is seen to be served.
    match only_older {
        true => plane.install_crds(&crd.to_string()).await.unwrap(),
        false => plane.apply(&crd.to_string()).await.unwrap(),
    }
}

fn webhook(kind: &str, name: &str) -> String {
    let rule = json!({
        "apiGroups": ["ipam.cluster.x-k8s.io"], "apiVersions": ["v1alpha2"],
        "operations": ["CREATE", "UPDATE"], "resources": ["inclusterippools", "globalinclusterippools"],
    });
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": name },
        "webhooks": [{
            "name": "stock.ipam.cluster.x-k8s.io", "rules": [rule], "failurePolicy": "Fail", "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "clientConfig": { "service": { "namespace": "capi-ipam-in-cluster-system", "name": "gone", "path": "/x" } },
        }],
    })
    .to_string()
}

/// A pool, asked for in the older version.
async fn older_pool(plane: &ControlPlane, name: &str) -> kube::Result<Value> {
    let gvk = GroupVersionKind::gvk("ipam.cluster.x-k8s.io", OLDER, POOL);
    let resource = ApiResource::from_gvk(&gvk);
    let client = plane.client().await.unwrap();
    let api: Api<DynamicObject> = Api::namespaced_with(client, "default", &resource);
    Ok(json!(api.get(name).await?))
}

/// Pools are read and written in both versions, and nothing of either is lost.
async fn converts(plane: &ControlPlane, objects: &IpamObjects) {
    let older = json!({
        "apiVersion": format!("ipam.cluster.x-k8s.io/{OLDER}"), "kind": POOL,
        "metadata": { "name": "older", "namespace": "default" },
        "spec": { "subnet": "10.6.0.0/24", "gateway": "10.6.0.1" },
    });
    let made = wait_until("a pool is made in the older version", DEADLINE, || async {
        let made = plane.apply(&older.to_string()).await;
        made.map_err(|error| format!("{error:#}"))
    });
    made.await.unwrap();
    let newer = objects.get(POOL, "default/older").await.unwrap().unwrap();
    assert_eq!(newer["spec"]["addresses"], json!(["10.6.0.1-10.6.0.254"]));
    let excluded = json!({ "spec": { "excludedAddresses": ["10.6.0.7"] } });
    objects
        .merge(POOL, "default/older", excluded)
        .await
        .unwrap();
    let shown = older_pool(plane, "older").await.unwrap();
    assert_eq!(shown["spec"], older["spec"], "{shown}");
    plane.apply(&older.to_string()).await.unwrap();
    let newer = objects.get(POOL, "default/older").await.unwrap().unwrap();
    assert_eq!(
        newer["spec"]["excludedAddresses"],
        json!(["10.6.0.7"]),
        "{newer}"
    );
    // One that was stored in the newer form, and one that makes no sense.
    let old = older_pool(plane, "old").await.unwrap();
    assert_eq!(
        old["spec"]["addresses"],
        json!(["10.5.0.10-10.5.0.20"]),
        "{old}"
    );
    let mut wrong = older.clone();
    wrong["metadata"]["name"] = json!("wrong");
    wrong["spec"]["subnet"] = json!("10.6.0.0");
    let refused = plane.apply(&wrong.to_string()).await.unwrap_err();
    assert!(
        format!("{refused:#}").contains("spec.subnet"),
        "{refused:#}"
    );
}

/// A fipd that may adopt, before its first start.
async fn prepare(plane: &ControlPlane) -> Fipd {
    let role = plane.bind_role("fipd-cluster-api-adopt", None);
    role.await.unwrap();
    let fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
    let kubeconfig = plane.kubeconfig_of(RESTRICTED_USER);
    write_kubeconfig(&fipd, "management", &kubeconfig).unwrap();
    fipd
}

async fn start(fipd: &mut Fipd, config: &str) {
    fipd.write_config(config).unwrap();
    fipd.restart().await.unwrap();
    fipd.wait_ready(DEADLINE).await.unwrap();
}

#[tokio::test]
async fn adopting_is_refused_while_an_original_is_to_run() {
    let plane = ManagementPlane::with("refused", Versions::OnlyV1Beta2);
    let plane = plane.await.unwrap();
    let stock = webhook("ValidatingWebhookConfiguration", VALIDATING);
    plane.apply(&stock).await.unwrap();
    let client = plane.client().await.unwrap();
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let is_there = async || webhooks.get_opt(VALIDATING).await.unwrap().is_some();
    let leases: Api<Lease> = Api::namespaced(client, "capi-system");
    let renewing = tokio::spawn(keep_renewing(leases, ALLOCATOR_LEASE));
    let mut fipd = prepare(&plane).await;
    let config = management_config(&fipd, "");
    start(&mut fipd, &config).await;
    let texts = [ALLOCATOR_LEASE, "stop that program"];
    fipd.wait_adopt_refused(TAKEOVER, &texts).await.unwrap();
    renewing.abort();
    for (namespace, name) in [
        (
            "capi-ipam-in-cluster-system",
            "capi-ipam-in-cluster-controller-manager",
        ),
        ("capi-system", "capi-vip-allocator"),
    ] {
        plane.scale_original(namespace, name, 1).await.unwrap();
        let program = format!("Deployment {namespace}/{name}");
        let next = format!("kubectl -n {namespace} scale deployment {name} --replicas=0");
        let texts = [&*program, &*next];
        fipd.wait_adopt_refused(TAKEOVER, &texts).await.unwrap();
        assert!(is_there().await, "{name} runs on: nothing is changed");
        plane.scale_original(namespace, name, 0).await.unwrap();
    }
    fipd.wait_adopted(TAKEOVER).await.unwrap();
    assert!(!is_there().await, "nobody answers it any more");
}

#[tokio::test]
async fn a_site_of_the_stock_provider_is_taken_over_and_left_again() {
    let plane = ManagementPlane::with("stock", Versions::OnlyV1Beta2)
        .await
        .unwrap();
    let objects = IpamObjects {
        client: plane.client().await.unwrap(),
        version: "v1beta2",
    };
    // One pool is stored in the older form.
    objects.delete_definition(PLURAL).await.unwrap();
    stock_definition(&plane, true).await;
    let older = json!({
        "apiVersion": format!("ipam.cluster.x-k8s.io/{OLDER}"), "kind": POOL,
        "metadata": { "name": "old", "namespace": "default" },
        "spec": { "subnet": "10.5.0.0/24", "gateway": "10.5.0.1", "start": "10.5.0.10", "end": "10.5.0.20" },
    });
    plane.apply(&older.to_string()).await.unwrap();
    stock_definition(&plane, false).await;
    let spec = json!({ "addresses": ["10.0.0.10-10.0.0.12"], "prefix": 24 });
    // The API server serves the newer form a moment after it has taken the definition.
    wait_until("the newer form is served", DEADLINE, || async {
        let made = objects.pool("default/net", spec.clone()).await;
        made.map_err(|error| format!("{error:#}"))
    })
    .await
    .unwrap();
    for path in ["default/a", "default/double"] {
        let served = objects.fulfilled(path, (POOL, "net"), "10.0.0.11");
        served.await.unwrap();
    }
    for (kind, name) in [
        ("ValidatingWebhookConfiguration", VALIDATING),
        (
            "MutatingWebhookConfiguration",
            "capi-ipam-in-cluster-mutating-webhook-configuration",
        ),
    ] {
        plane.apply(&webhook(kind, name)).await.unwrap();
    }

    let mut fipd = prepare(&plane).await;
    let config = management_config(&fipd, "").replace("advertise", "# advertise");
    start(&mut fipd, &config).await;
    let adopt = ["adopt", "cluster-api", "--cluster", "management"];
    let preview = fipd
        .cli(adopt.into_iter().chain(["--dry-run"]))
        .await
        .unwrap();
    let preview = preview.success().unwrap();
    for text in [PLURAL, VALIDATING] {
        assert!(preview.contains(text), "{preview}");
    }
    let definition = objects.definition(PLURAL).await.unwrap();
    assert_eq!(
        definition["spec"]["conversion"]["strategy"], "Webhook",
        "nothing is changed"
    );
    // Without [api] advertise fipd's own webhook is not in force: those of the original stay, and refuse the rewriting.
    let done = fipd.cli(adopt).await.unwrap();
    assert!(done.stderr.contains("[api] advertise"), "{done:?}");
    let definition = objects.definition(PLURAL).await.unwrap();
    assert_eq!(
        definition["spec"]["conversion"]["strategy"], "Webhook",
        "nothing is half done: {done:?}"
    );
    let config = management_config(&fipd, "");
    start(&mut fipd, &config).await;
    let done = fipd.wait_adopted(TAKEOVER).await.unwrap();
    // Somebody writes pools in the older version: fipd converts them.
    let definition = objects.definition(PLURAL).await.unwrap();
    let client = &definition["spec"]["conversion"]["webhook"]["clientConfig"];
    let url = client["url"].as_str().unwrap_or_default();
    assert!(
        url.ends_with("/hooks/management/pools/convert"),
        "{done}: {client}"
    );
    assert_eq!(
        definition["status"]["storedVersions"],
        json!(["v1alpha2"]),
        "{done}"
    );
    let old = objects.get(POOL, "default/old").await.unwrap().unwrap();
    assert_eq!(old["spec"]["addresses"], json!(["10.5.0.10-10.5.0.20"]));
    assert_eq!(
        (&old["spec"]["prefix"], &old["spec"]["start"]),
        (&json!(24), &Value::Null)
    );

    converts(&plane, &objects).await;
    // Once nobody does the older version ends.
    let none = json!({ "metadata": { "managedFields": [{}] } });
    for path in ["default/old", "default/older"] {
        objects.merge(POOL, path, none.clone()).await.unwrap();
    }
    fipd.cli(adopt).await.unwrap().success().unwrap();
    let definition = objects.definition(PLURAL).await.unwrap();
    assert_eq!(definition["spec"]["conversion"]["strategy"], "None");
    assert!(older_pool(&plane, "old").await.is_err());

    // What was in use stays with who has it; of two with one address one contends.
    objects.claim("default/new", (POOL, "net")).await.unwrap();
    assert_eq!(
        objects.wait_address("default/new").await.unwrap(),
        "10.0.0.10"
    );
    objects
        .claim("default/from-old", (POOL, "old"))
        .await
        .unwrap();
    assert_eq!(
        objects.wait_address("default/from-old").await.unwrap(),
        "10.5.0.10"
    );
    wait_until("a contender", DEADLINE, || async {
        let leases = fipd.cli(["lease", "list", "-o", "json"]).await;
        let leases = leases
            .map_err(|e| e.to_string())?
            .json()
            .map_err(|e| e.to_string())?;
        let all = leases["leases"].as_array().cloned().unwrap_or_default();
        let of = |lease: &&Value| lease["address"] == "10.0.0.11";
        let lease = all.iter().find(of).cloned().unwrap_or_default();
        match lease["contenders"].as_array().map(Vec::len) {
            Some(1) => Ok(()),
            _ => Err(leases.to_string()),
        }
    })
    .await
    .unwrap();

    let detach = fipd
        .cli(["clusters", "detach", "management"])
        .await
        .unwrap();
    detach.success().unwrap();
    for path in ["default/a", "default/new"] {
        let claim = objects.get(CLAIM, path).await.unwrap().unwrap();
        assert_eq!(claim["metadata"]["finalizers"], Value::Null, "{claim}");
        let there = objects.get(ADDRESS, path).await.unwrap().unwrap();
        assert!(there["spec"]["address"].is_string(), "{there}");
    }
}
