//! The definitions fipd installs, against a real API server: what it makes of them is what counts.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::time::Duration;

use fipd_crds::floating_ip::{FloatingIP, FloatingIPPool, FloatingIPProjectQuota, PoolStatus};
use fipd_crds::{MANIFESTS, all};
use fipd_tests::testbed::{
    ControlPlane, ControlPlaneOptions, Fipd, FipdOptions, RESTRICTED_USER, wait_until,
};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

#[path = "crds/guests.rs"]
mod guests;
#[path = "crds/own.rs"]
mod own;
#[path = "crds/versions.rs"]
mod versions;

const NAMESPACE: &str = "c-m-4x2bq";
const SOON: Duration = Duration::from_secs(60);
const GROUP: &str = "rancher.k8s.binbash.org";

fn manifests() -> String {
    let texts = MANIFESTS.map(|(_, text)| text);
    texts.join("---\n")
}

/// A cluster with a project namespace and without our definitions.
async fn cluster(name: &str) -> (ControlPlane, Client) {
    let plane = ControlPlane::start(name, ControlPlaneOptions::default())
        .await
        .unwrap();
    let client = plane.client().await.unwrap();
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    (plane, client)
}

/// The objects of a kind as the API server sees them, without our types in between.
fn raw(client: &Client, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, version, kind));
    if kind == "FloatingIP" {
        Api::namespaced_with(client.clone(), NAMESPACE, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    }
}

fn object<T: DeserializeOwned>(version: &str, kind: &str, name: &str, rest: &Value) -> T {
    let mut whole = json!({
        "apiVersion": format!("{GROUP}/{version}"), "kind": kind, "metadata": {"name": name},
    });
    whole
        .as_object_mut()
        .unwrap()
        .extend(rest.as_object().unwrap().clone());
    serde_json::from_value(whole).unwrap()
}

async fn create(
    client: &Client,
    version: &str,
    kind: &str,
    name: &str,
    rest: &Value,
) -> Result<DynamicObject, kube::Error> {
    let object = object::<DynamicObject>(version, kind, name, rest);
    raw(client, version, kind)
        .create(&PostParams::default(), &object)
        .await
}

async fn set_status(
    client: &Client,
    version: &str,
    kind: &str,
    name: &str,
    status: &Value,
) -> Result<DynamicObject, kube::Error> {
    let patch = Patch::Merge(json!({"status": status}));
    raw(client, version, kind)
        .patch_status(name, &PatchParams::default(), &patch)
        .await
}

fn good_pool() -> Value {
    json!({"spec": {
        "ipConfig": {"family": "IPv4", "subnet": "192.0.2.0/24", "pool": {"start": "192.0.2.10", "end": "192.0.2.50"}},
        "targetCluster": "rke2-bm-aio", "targetNetwork": "public-vlan-1", "targetNetworkInterface": "enp2s0",
    }})
}

fn ready() -> Value {
    json!({
        "type": "Ready", "status": "True", "reason": "IPAssigned", "message": "",
        "lastTransitionTime": "2026-04-02T10:00:00Z",
    })
}

#[tokio::test]
async fn installing_twice_changes_nothing() {
    let (plane, client) = cluster("twice").await;
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    plane.install_crds(&manifests()).await.unwrap();
    let mut first = Vec::new();
    for crd in all() {
        let name = crd.name_any();
        let what = format!("{name} is settled");
        let settled = wait_until(&what, Duration::from_secs(30), || async {
            let crd = api.get(&name).await.map_err(|error| error.to_string())?;
            let conditions = crd
                .status
                .as_ref()
                .and_then(|status| status.conditions.as_ref());
            let seen: Vec<String> = conditions
                .into_iter()
                .flatten()
                .map(|condition| format!("{}={}", condition.type_, condition.status))
                .collect();
            let wanted = ["NamesAccepted=True", "Established=True"];
            if wanted
                .iter()
                .all(|text| seen.iter().any(|have| have == text))
            {
                Ok((crd.resource_version(), seen))
            } else {
                Err(seen.join(", "))
            }
        });
        let (revision, seen) = settled.await.unwrap();
        assert!(
            !seen
                .iter()
                .any(|text| text.starts_with("NonStructuralSchema")),
            "{name}: {seen:?}"
        );
        first.push(revision);
    }
    plane.install_crds(&manifests()).await.unwrap();
    for (crd, before) in all().iter().zip(first) {
        let after = api.get(&crd.name_any()).await.unwrap().resource_version();
        assert_eq!(after, before, "{} was written again", crd.name_any());
    }
}

const ROLE: &str = include_str!("../../packaging/rbac/crds.yaml");

/// First with the right to see which cluster it is and nothing else, then with the role of the manifest alone.
#[tokio::test(flavor = "multi_thread")]
async fn fipd_installs_them_with_the_rights_of_the_manifest() {
    let (plane, client) = cluster("installs").await;
    let api = Api::<CustomResourceDefinition>::all(client);
    let identity = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "identity" },
        "rules": [{ "apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"] }],
    });
    plane.apply(&identity.to_string()).await.unwrap();
    plane.bind_role("identity", None).await.unwrap();
    let config = "[[cluster]]\nname = \"c\"\nkubeconfig = \"c.kubeconfig\"\nsystems = []\n";
    let mut fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
    let kubeconfig = plane.kubeconfig_of(RESTRICTED_USER);
    fipd.write_file("c.kubeconfig", &kubeconfig).unwrap();
    fipd.write_config(config).unwrap();
    fipd.restart().await.unwrap();
    let install = || fipd.cli(["crds", "install", "--cluster", "c"]);

    let refused = wait_until("refused for its rights", SOON, || async {
        let done = install().await.map_err(|error| format!("{error:#}"))?;
        if done.stderr.contains("fipd-crds") {
            Ok(done)
        } else {
            Err(format!("{done:?}"))
        }
    });
    let refused = refused.await.unwrap();
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("orbidden"), "{refused:?}");

    plane
        .client()
        .await
        .map(Api::<ClusterRoleBinding>::all)
        .unwrap()
        .delete("identity", &DeleteParams::default())
        .await
        .unwrap();
    plane.apply(ROLE).await.unwrap();
    plane.bind_role("fipd-crds", None).await.unwrap();
    let installed = wait_until("installed", SOON, || async {
        let done = install().await.map_err(|error| format!("{error:#}"))?;
        if done.code == 0 {
            Ok(done.stdout)
        } else {
            Err(done.stderr)
        }
    });
    let told = installed.await.unwrap();
    let mut specs = Vec::new();
    for crd in all() {
        let name = crd.name_any();
        assert!(told.contains(&name), "{told}");
        specs.push(api.get(&name).await.unwrap().spec);
    }
    // An existing definition is patched, which is another right than making it.
    assert_eq!(install().await.unwrap().code, 0);
    for (crd, before) in all().iter().zip(specs) {
        assert_eq!(api.get(&crd.name_any()).await.unwrap().spec, before);
    }
}

#[tokio::test]
async fn both_versions_show_the_same_objects() {
    let (plane, client) = cluster("versions").await;
    plane.install_crds(&manifests()).await.unwrap();

    create(
        &client,
        "v1beta1",
        "FloatingIPPool",
        "rke2-bm-aio--public-vlan-1",
        &good_pool(),
    )
    .await
    .unwrap();
    let quota = json!({"spec": {"displayName": "shop", "floatingIPQuota": {"rke2-bm-aio--public-vlan-1": 5}}});
    create(
        &client,
        "v1beta1",
        "FloatingIPProjectQuota",
        "p-abcde",
        &quota,
    )
    .await
    .unwrap();
    let fip = json!({"spec": {"floatingIPPool": "rke2-bm-aio--public-vlan-1"}, "status": {"ipAddr": "192.0.2.99"}});
    let made = create(&client, "v1beta1", "FloatingIP", "fip-old", &fip)
        .await
        .unwrap();
    assert_eq!(made.data.get("status"), None, "status is a subresource");

    let pools = Api::<FloatingIPPool>::all(client.clone());
    let new = pools.get("rke2-bm-aio--public-vlan-1").await.unwrap();
    let old = raw(&client, "v1beta1", "FloatingIPPool");
    let old = old.get("rke2-bm-aio--public-vlan-1").await.unwrap();
    assert_eq!(new.spec, old.try_parse::<FloatingIPPool>().unwrap().spec);
    let quotas = Api::<FloatingIPProjectQuota>::all(client.clone());
    assert_eq!(
        quotas.get("p-abcde").await.unwrap().spec.floating_ip_quota["rke2-bm-aio--public-vlan-1"],
        5
    );

    // The one Service of a v1beta1 status is gone once it was written and read as what is stored.
    let status = json!({
        "ipAddr": "192.0.2.10", "state": "Allocated", "conditions": [ready(), ready()],
        "assigned": {"clusterName": NAMESPACE, "projectName": "p-abcde", "serviceNamespace": "shop", "serviceName": "web"},
    });
    set_status(&client, "v1beta1", "FloatingIP", "fip-old", &status)
        .await
        .unwrap();
    let fips = Api::<FloatingIP>::namespaced(client.clone(), NAMESPACE);
    let read = fips.get("fip-old").await.unwrap().status.unwrap();
    assert_eq!(
        (read.ip_addr.as_str(), read.conditions.len()),
        ("192.0.2.10", 2)
    );
    assert_eq!(read.assigned.unwrap().services, []);

    // And what only v1beta2 knows is not shown to a v1beta1 client.
    let status = json!({
        "floatingipGroup": "dead", "sharedKey": "dead",
        "assigned": {"services": [{"serviceNamespace": "shop", "serviceName": "web"}], "floatingIPGroup": "g", "sharedKey": "k"},
    });
    let written = set_status(&client, "v1beta2", "FloatingIP", "fip-old", &status)
        .await
        .unwrap();
    assert_eq!(written.data["status"]["assigned"]["sharedKey"], "k");
    assert_eq!(written.data["status"]["floatingipGroup"], "dead");
    let old = raw(&client, "v1beta1", "FloatingIP")
        .get("fip-old")
        .await
        .unwrap();
    assert_eq!(
        old.data["status"]["assigned"],
        json!({"clusterName": NAMESPACE, "projectName": "p-abcde"})
    );

    conditions_are_applied_by_type(&pools).await;
    columns_appear(&client).await;
}

/// Two writers may each have their condition on a pool.
async fn conditions_are_applied_by_type(pools: &Api<FloatingIPPool>) {
    let name = "rke2-bm-aio--public-vlan-1";
    for (manager, kind) in [("one", "Ready"), ("two", "Exhausted")] {
        let mut condition = ready();
        condition["type"] = json!(kind);
        let status: PoolStatus =
            serde_json::from_value(json!({"conditions": [condition]})).unwrap();
        let patch = json!({"apiVersion": format!("{GROUP}/v1beta2"), "kind": "FloatingIPPool", "status": status});
        let params = PatchParams::apply(manager);
        pools
            .patch_status(name, &params, &Patch::Apply(&patch))
            .await
            .unwrap();
    }
    let conditions = pools.get(name).await.unwrap().status.unwrap().conditions;
    let types: Vec<&str> = conditions
        .iter()
        .map(|condition| condition.type_.as_str())
        .collect();
    assert_eq!(types, ["Ready", "Exhausted"]);
}

async fn columns_appear(client: &Client) {
    let status = json!({"used": 3, "available": 38});
    set_status(
        client,
        "v1beta2",
        "FloatingIPPool",
        "rke2-bm-aio--public-vlan-1",
        &status,
    )
    .await
    .unwrap();
    let (names, row) = table(
        client,
        "/apis/rancher.k8s.binbash.org/v1beta2/floatingippools",
    )
    .await;
    assert_eq!(
        names,
        [
            "Name",
            "Subnet",
            "Used",
            "Available",
            "Cluster",
            "Network",
            "Start",
            "End",
            "Interface",
            "Age",
        ]
    );
    let wanted = json!([
        "rke2-bm-aio--public-vlan-1",
        "192.0.2.0/24",
        3,
        38,
        "rke2-bm-aio",
        "public-vlan-1",
        "192.0.2.10",
        "192.0.2.50",
        "enp2s0",
    ]);
    assert_eq!(row[..9], wanted.as_array().unwrap()[..]);

    let path = format!("/apis/rancher.k8s.binbash.org/v1beta2/namespaces/{NAMESPACE}/floatingips");
    let (names, row) = table(client, &path).await;
    assert_eq!(
        names,
        [
            "Name",
            "Address",
            "Pool",
            "State",
            "Project",
            "Cluster",
            "Group",
            "Requested",
            "Age"
        ]
    );
    let wanted = json!([
        "fip-old",
        "192.0.2.10",
        "rke2-bm-aio--public-vlan-1",
        "Allocated",
        "p-abcde",
        NAMESPACE,
        "g",
        null
    ]);
    assert_eq!(row[..8], wanted.as_array().unwrap()[..]);

    let (names, row) = table(
        client,
        "/apis/rancher.k8s.binbash.org/v1beta1/floatingipprojectquotas",
    )
    .await;
    assert_eq!(names, ["Name", "Display Name", "Quota", "Age"]);
    assert_eq!(
        row[..3],
        json!(["p-abcde", "shop", r#"{"rke2-bm-aio--public-vlan-1":5}"#])
            .as_array()
            .unwrap()[..]
    );
}

/// Column names and the first row, as `kubectl get` asks for them.
async fn table(client: &Client, path: &str) -> (Vec<String>, Vec<Value>) {
    let request = http::Request::get(path)
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    let table: Value = client.request(request).await.unwrap();
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let names = columns
        .map(|column| column["name"].as_str().unwrap().to_owned())
        .collect();
    (names, table["rows"][0]["cells"].as_array().unwrap().clone())
}

fn pool(subnet: &str, start: &str, end: &str, exclude: &Value) -> Value {
    json!({"spec": {"ipConfig": {"subnet": subnet, "pool": {"start": start, "end": end, "exclude": exclude}}}})
}

/// Objects that the originals' schema and webhook let pass, or that a site without the webhook's rules can hold.
fn once_valid() -> Vec<(&'static str, Value)> {
    let mut found = vec![
        ("FloatingIPPool", json!({})),
        ("FloatingIPPool", json!({"spec": {}})),
        (
            "FloatingIPPool",
            json!({"spec": {"targetCluster": "", "targetNetwork": "ns/with slash", "unknown": 1}}),
        ),
        ("FloatingIPProjectQuota", json!({})),
        (
            "FloatingIPProjectQuota",
            json!({"spec": {"floatingIPQuota": {"Not A Pool": -1, "huge": i64::MAX}}}),
        ),
        (
            "FloatingIPProjectQuota",
            json!({"spec": {"floatingIPQuota": {}}}),
        ),
        (
            "FloatingIP",
            json!({"spec": {"floatingIPPool": "p", "ipAddr": ""}}),
        ),
        (
            "FloatingIP",
            json!({"spec": {"floatingIPPool": "p", "ipAddr": "192.0.2.255"}}),
        ),
        (
            "FloatingIP",
            json!({"spec": {"floatingIPPool": "p", "ipAddr": "2001:DB8:0:0::0001"}}),
        ),
        (
            "FloatingIP",
            json!({"spec": {"floatingIPPool": "p", "ipAddr": "::ffff:192.0.2.1"}}),
        ),
    ];
    let pools = [
        ("192.0.2.77/24", "192.0.2.0", "192.0.2.255"),
        ("0.0.0.0/0", "0.0.0.0", "255.255.255.255"),
        ("192.0.2.1/32", "192.0.2.1", "192.0.2.1"),
        ("192.0.2.0/024", "192.0.2.1", "192.0.2.9"),
        ("2001:DB8:0:0::/64", "2001:db8::0001", "2001:0DB8::FFFF"),
        ("2001:db8::/0128", "2001:db8::", "2001:db8::"),
        ("::/0", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        (
            "::ffff:192.0.2.0/120",
            "::ffff:192.0.2.1",
            "::FFFF:192.0.2.9",
        ),
        (
            "64:ff9b::192.0.2.0/120",
            "64:ff9b::192.0.2.1",
            "64:ff9b::c000:209",
        ),
    ];
    for (subnet, start, end) in pools {
        found.push((
            "FloatingIPPool",
            pool(subnet, start, end, &json!([start, start])),
        ));
    }
    let mut free_family = good_pool();
    free_family["spec"]["ipConfig"]["family"] = json!("v4 (office)");
    found.push(("FloatingIPPool", free_family));
    found
}

/// What no original ever worked with.
fn nonsense() -> Vec<(&'static str, Value)> {
    let mut found = vec![
        ("FloatingIPPool", json!({"spec": {"ipConfig": {}}})),
        (
            "FloatingIPPool",
            json!({"spec": {"ipConfig": {"subnet": "192.0.2.0/24", "pool": {}}}}),
        ),
        (
            "FloatingIPPool",
            json!({"spec": {"ipConfig": "192.0.2.0/24"}}),
        ),
        ("FloatingIPPool", json!({"spec": {"targetCluster": 7}})),
        (
            "FloatingIPProjectQuota",
            json!({"spec": {"floatingIPQuota": {"p": "5"}}}),
        ),
        (
            "FloatingIPProjectQuota",
            json!({"spec": {"floatingIPQuota": {"p": 1.5}}}),
        ),
        (
            "FloatingIPProjectQuota",
            json!({"spec": {"floatingIPQuota": [5]}}),
        ),
        ("FloatingIP", json!({"spec": {}})),
        ("FloatingIP", json!({"spec": {"floatingIPPool": ""}})),
        (
            "FloatingIP",
            json!({"spec": {"floatingIPPool": "p".repeat(254)}}),
        ),
    ];
    for address in [
        "any",
        "192.0.2",
        "192.0.2.256",
        "192.0.2.1/32",
        "192.0.2.01",
        " 192.0.2.1",
        "192.0.2.1\n",
        "fe80::1%eth0",
        "db8",
    ] {
        found.push((
            "FloatingIP",
            json!({"spec": {"floatingIPPool": "p", "ipAddr": address}}),
        ));
        found.push((
            "FloatingIPPool",
            pool("192.0.2.0/24", address, "192.0.2.9", &json!([])),
        ));
        found.push((
            "FloatingIPPool",
            pool("192.0.2.0/24", "192.0.2.1", "192.0.2.9", &json!([address])),
        ));
    }
    for subnet in [
        "",
        "192.0.2.0",
        "192.0.2.0/33",
        "192.0.2.0/99",
        "192.0.2.0/",
        "192.0.2/24",
        "2001:db8::/129",
        "/24",
        "10.0.0.0-10.0.0.9",
    ] {
        found.push((
            "FloatingIPPool",
            pool(subnet, "192.0.2.1", "192.0.2.9", &json!([])),
        ));
    }
    found
}

#[tokio::test]
async fn once_valid_objects_pass_and_nonsense_does_not() {
    let (plane, client) = cluster("rules").await;
    plane.install_crds(&manifests()).await.unwrap();
    for version in ["v1beta2", "v1beta1"] {
        for (number, (kind, rest)) in once_valid().iter().enumerate() {
            let name = format!("odd-{version}-{number}");
            let made = create(&client, version, kind, &name, rest).await;
            assert!(made.is_ok(), "{version} {kind} {rest}: {:?}", made.err());
            decodes(&client, kind, &name).await;
            let status = json!({"conditions": [ready()]});
            let written = set_status(&client, version, kind, &name, &status).await;
            assert!(
                written.is_ok(),
                "status of {kind} {rest}: {:?}",
                written.err()
            );
        }
        for (kind, rest) in nonsense() {
            let refused = create(&client, version, kind, "nonsense", &rest).await;
            let Err(kube::Error::Api(status)) = refused else {
                panic!("{version} {kind} {rest} was taken: {refused:?}");
            };
            assert_eq!(status.code, 422, "{kind} {rest}: {}", status.message);
            assert!(
                status.message.contains("spec."),
                "{kind} {rest}: {}",
                status.message
            );
        }
    }
}

async fn decodes(client: &Client, kind: &str, name: &str) {
    let object = raw(client, "v1beta2", kind).get(name).await.unwrap();
    let value = serde_json::to_value(&object).unwrap();
    let decoded = match kind {
        "FloatingIPPool" => serde_json::from_value::<FloatingIPPool>(value).map(drop),
        "FloatingIPProjectQuota" => {
            serde_json::from_value::<FloatingIPProjectQuota>(value).map(drop)
        }
        other => {
            serde_json::from_value::<FloatingIP>(value).map(|_| assert_eq!(other, "FloatingIP"))
        }
    };
    assert!(decoded.is_ok(), "{kind} {name}: {decoded:?}");
}

/// A stand-in for a definition of the family's first release: one version, no rules on values, no columns.
fn first_release(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.metadata.labels = None;
    crd.spec.names.short_names = None;
    crd.spec.names.categories = None;
    crd.spec
        .versions
        .retain(|version| version.name == "v1beta1");
    for version in &mut crd.spec.versions {
        version.storage = true;
        version.deprecated = None;
        version.deprecation_warning = None;
        version.additional_printer_columns = None;
        let schema = version.schema.as_mut().unwrap();
        without_rules(schema.open_api_v3_schema.as_mut().unwrap());
    }
    crd
}

fn without_rules(schema: &mut JSONSchemaProps) {
    let mut value = serde_json::to_value(&*schema).unwrap();
    strip(&mut value);
    *schema = serde_json::from_value(value).unwrap();
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for key in ["pattern", "minLength", "maxLength"] {
                map.remove(key);
            }
            map.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[tokio::test]
async fn our_definitions_replace_those_of_the_first_release() {
    let (plane, client) = cluster("upgrade").await;
    let olds: Vec<Value> = all()
        .into_iter()
        .filter(|crd| crd.spec.group == GROUP)
        .map(|crd| serde_json::to_value(first_release(crd)).unwrap())
        .collect();
    let text: Vec<String> = olds.iter().map(ToString::to_string).collect();
    plane.install_crds(&text.join("\n---\n")).await.unwrap();

    create(&client, "v1beta1", "FloatingIPPool", "good", &good_pool())
        .await
        .unwrap();
    // Taken only while the webhook was away; it must stay readable and able to carry a condition.
    let broken = pool("not a subnet", "", "", &json!(["?"]));
    create(&client, "v1beta1", "FloatingIPPool", "broken", &broken)
        .await
        .unwrap();
    let fip = json!({"spec": {"floatingIPPool": "", "ipAddr": "somewhere"}});
    create(&client, "v1beta1", "FloatingIP", "broken", &fip)
        .await
        .unwrap();

    plane.install_crds(&manifests()).await.unwrap();
    let pools = Api::<FloatingIPPool>::all(client.clone());
    let read = pools.list(&kube::api::ListParams::default()).await.unwrap();
    let names: Vec<String> = read.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["broken", "good"]);
    assert_eq!(
        read.items[0].spec.ip_config.as_ref().unwrap().subnet,
        "not a subnet"
    );

    let status = json!({"conditions": [ready()]});
    set_status(&client, "v1beta2", "FloatingIPPool", "broken", &status)
        .await
        .unwrap();
    set_status(&client, "v1beta2", "FloatingIP", "broken", &status)
        .await
        .unwrap();
    let finalizer = json!({"metadata": {"finalizers": [fipd_crds::labels::FLOATINGIP_CLEANUP]}});
    let fips = raw(&client, "v1beta2", "FloatingIP");
    fips.patch("broken", &PatchParams::default(), &Patch::Merge(&finalizer))
        .await
        .unwrap();

    let worse = json!({"spec": {"ipConfig": {"subnet": "not a subnet either"}}});
    let refused = raw(&client, "v1beta2", "FloatingIPPool")
        .patch("broken", &PatchParams::default(), &Patch::Merge(&worse))
        .await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 422));
}
