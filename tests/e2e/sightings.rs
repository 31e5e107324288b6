//! Addresses of fipd's pools that other load balancers use, against real API servers.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::BTreeMap;
use std::time::Duration;

use fipd_crds::floating_ip::FloatingIPPool;
use fipd_tests::scenario::{Scenario, create_services, wait_assigned, write_kubeconfig};
use fipd_tests::testbed::{ANNOUNCER_CRDS, RESTRICTED_USER, SiteOptions, wait_until};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(60);
const POOL: &str = "net";
const METALLB: Option<&str> = Some("metallb.io/metallb");
const ROLES: [(&str, &str, &str); 3] = [
    (
        "rancher",
        "fipd-rancher-fip-management",
        include_str!("../../packaging/rbac/rancher-fip-management.yaml"),
    ),
    (
        "a",
        "fipd-rancher-fip-downstream",
        include_str!("../../packaging/rbac/rancher-fip-downstream.yaml"),
    ),
    (
        "b",
        "fipd-rancher-fip-downstream",
        include_str!("../../packaging/rbac/rancher-fip-downstream.yaml"),
    ),
];

/// Two clusters that fipd serves with the rights of the package's roles, and a pool; fipd is not started.
async fn prepare() -> Scenario {
    let scenario = Scenario::prepare(&SiteOptions::of(&["a", "b"]).kept())
        .await
        .unwrap();
    scenario
        .add_pool(POOL, "10.60.0.0/24", "10.60.0.1", "10.60.0.30")
        .await
        .unwrap();
    for (name, role, text) in ROLES {
        let plane = match name {
            "rancher" => &scenario.site.rancher,
            name => &scenario.site.cluster(name).unwrap().plane,
        };
        plane.apply(text).await.unwrap();
        plane.bind_role(role, None).await.unwrap();
        plane.grant_identity().await.unwrap();
        let kubeconfig = plane.kubeconfig_of(RESTRICTED_USER);
        write_kubeconfig(&scenario.fipd, name, &kubeconfig).unwrap();
    }
    for name in ["a", "b"] {
        let cluster = scenario.site.cluster(name).unwrap();
        cluster.add_namespace("apps").await.unwrap();
    }
    scenario
}

async fn services(scenario: &Scenario, cluster: &str) -> Api<Service> {
    Api::namespaced(scenario.client(cluster).await.unwrap(), "apps")
}

/// A Service that another load balancer gave an address, or whose owner wrote one.
async fn add_foreign(api: &Api<Service>, name: &str, class: Option<&str>, address: &str) {
    let external = name == "external";
    let kind = if external {
        "ClusterIP"
    } else {
        "LoadBalancer"
    };
    let object: Service = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "type": kind, "loadBalancerClass": class, "ports": [{ "port": 80 }],
            "externalIPs": external.then_some([address]),
        },
    }))
    .unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    if !external {
        let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address }] } } });
        let merge = Patch::Merge(&status);
        api.patch_status(name, &PatchParams::default(), &merge)
            .await
            .unwrap();
    }
}

async fn json_of(scenario: &Scenario, command: &[&str]) -> Value {
    let mut command = command.to_vec();
    command.extend(["-o", "json"]);
    scenario.fipd.cli(command).await.unwrap().json().unwrap()
}

/// The owner of each address that is in use.
async fn owners(scenario: &Scenario) -> BTreeMap<String, String> {
    let list = json_of(scenario, &["lease", "list"]).await;
    let leases = list["leases"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    leases
        .map(|lease| (text(&lease["address"]), text(&lease["owner"])))
        .collect()
}

/// What `fipd clusters show` says of sightings, once it has counted so many as held and contended.
async fn wait_sightings(scenario: &Scenario, cluster: &str, held: u64, contended: u64) -> Value {
    let what = format!("cluster {cluster} has {held} held and {contended} contended");
    wait_until(&what, DEADLINE, || async {
        let view = json_of(scenario, &["clusters", "show", cluster]).await;
        let shown = &view["sightings"];
        match shown["held"] == held && shown["contended"] == contended {
            true => Ok(view),
            false => Err(view.to_string()),
        }
    })
    .await
    .unwrap()
}

/// The message of the pool's condition `SharedRange`.
async fn wait_shared(rancher: &Client) -> String {
    let api: Api<FloatingIPPool> = Api::all(rancher.clone());
    wait_until("the pool shows SharedRange", DEADLINE, || async {
        let pool = api.get(POOL).await.map_err(|error| error.to_string())?;
        let status = pool.status.unwrap_or_default();
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|one| one.type_ == "SharedRange" && one.status == "True");
        found
            .map(|one| one.message.clone())
            .ok_or_else(|| json!(status.conditions).to_string())
    })
    .await
    .unwrap()
}

async fn assigned(api: &Api<Service>, name: &str) -> String {
    let given = wait_assigned(api, 1, DEADLINE).await.unwrap();
    given[name][0].to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_other_load_balancers_use_is_not_given_away_and_the_rest_of_a_shared_range_is() {
    let mut scenario = prepare().await;
    let (a, b) = (
        services(&scenario, "a").await,
        services(&scenario, "b").await,
    );
    add_foreign(&a, "metal", METALLB, "10.60.0.1").await;
    add_foreign(&a, "plain", None, "10.60.0.2").await;
    add_foreign(&a, "external", None, "10.60.0.3").await;
    add_foreign(&a, "elsewhere", METALLB, "192.0.2.7").await;
    let cluster = scenario.site.cluster("a").unwrap();
    cluster.plane.install_crds(ANNOUNCER_CRDS).await.unwrap();
    let range = json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
        "metadata": { "namespace": "apps", "name": "public" },
        "spec": { "addresses": ["10.60.0.0/24"] },
    });
    cluster.plane.apply(&range.to_string()).await.unwrap();
    scenario.fipd.restart().await.unwrap();
    scenario.fipd.wait_ready(DEADLINE).await.unwrap();

    create_services(&b, &["web".to_owned()], POOL)
        .await
        .unwrap();
    assert_eq!(assigned(&b, "web").await, "10.60.0.4");
    let known = owners(&scenario).await;
    for (address, name) in [
        ("10.60.0.1", "metal"),
        ("10.60.0.2", "plain"),
        ("10.60.0.3", "external"),
    ] {
        let owner = &known[address];
        assert!(owner.starts_with("foreign/"), "{owner}");
        assert!(owner.ends_with(&format!("/Service/apps/{name}")), "{owner}");
    }
    assert_eq!(known.len(), 4, "{known:?}");

    // The range is shown at the pool, and by REST and the command line.
    let rancher = scenario.site.rancher.client().await.unwrap();
    let message = wait_shared(&rancher).await;
    let range = "10.60.0.1-10.60.0.30 with IPAddressPool apps/public of cluster a";
    assert!(message.contains(range), "{message}");
    let pools = json_of(&scenario, &["pool", "list"]).await;
    let name = pools["pools"][0]["name"].as_str().unwrap().to_owned();
    let pool = json_of(&scenario, &["pool", "show", &name]).await;
    assert_eq!(pool["shared"][0]["object"], "IPAddressPool apps/public");
    let view = wait_sightings(&scenario, "a", 3, 0).await;
    assert_eq!(
        view["last_error"],
        Value::Null,
        "the roles are enough: {view}"
    );
    assert_eq!(view["sightings"]["reported"], 0);

    // An admin who asks for such an address is told who has it.
    let ask = [
        "lease",
        "allocate",
        "--pool",
        &name,
        "--owner",
        "fipd/host/lab/x",
        "--address",
        "10.60.0.1",
    ];
    let refused = scenario.fipd.cli(ask).await.unwrap();
    assert!(refused.clone().success().is_err(), "{refused:?}");
    assert!(
        refused.stderr.contains("/Service/apps/metal"),
        "{refused:?}"
    );
    assert_eq!(owners(&scenario).await, known);
}

/// What the owner gets of the pool of prefixes: its first address and length.
async fn allocate_block(scenario: &Scenario, owner: &str) -> (Value, Value) {
    let command = format!("lease allocate --pool blocks --owner {owner} -o json");
    // The first waits for the network to be adopted.
    let granted = wait_until("a block is given", DEADLINE, || async {
        let done = scenario.fipd.cli(command.split(' ')).await;
        let granted = done.and_then(|done| done.json());
        granted.map_err(|error| error.to_string())
    });
    let lease = granted.await.unwrap()["leases"][0].clone();
    (lease["address"].clone(), lease["length"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_use_inside_a_prefix_contends_for_it_or_keeps_it_from_being_given() {
    let mut scenario = prepare().await;
    scenario.fipd.restart().await.unwrap();
    scenario.fipd.wait_ready(DEADLINE).await.unwrap();
    let blocks = "pool create blocks --cidr 10.60.1.0/26 --allocation-length 28";
    let created = scenario.fipd.cli(blocks.split(' ')).await.unwrap();
    created.success().unwrap();
    let given = allocate_block(&scenario, "fipd/node/lab/one").await;
    assert_eq!(given, (json!("10.60.1.0"), json!(28)));

    let a = services(&scenario, "a").await;
    add_foreign(&a, "inside", METALLB, "10.60.1.7").await;
    add_foreign(&a, "free", None, "10.60.1.20").await;
    // The next list may be minutes away; the first one of a start sees them.
    scenario.fipd.kill9().unwrap();
    scenario.fipd.restart().await.unwrap();
    scenario.fipd.wait_ready(DEADLINE).await.unwrap();
    wait_sightings(&scenario, "a", 1, 1).await;
    let lease = json_of(&scenario, &["lease", "show", "10.60.1.7"]).await;
    assert_eq!(
        (&lease["address"], &lease["length"]),
        (&json!("10.60.1.0"), &json!(28))
    );
    let contender = lease["contenders"][0].to_string();
    assert!(contender.contains("/Service/apps/inside"), "{lease}");
    assert_eq!(lease["contenders"][0]["uses"], json!(["10.60.1.7"]));
    let given = allocate_block(&scenario, "fipd/node/lab/two").await;
    assert_eq!(given, (json!("10.60.1.32"), json!(28)), "beside 10.60.1.20");

    // It gets what it shows, and nothing beside it.
    scenario.fipd.kill9().unwrap();
    scenario.fipd.restart().await.unwrap();
    scenario.fipd.wait_ready(DEADLINE).await.unwrap();
    let release = "lease release --owner fipd/node/lab/one";
    let released = scenario.fipd.cli(release.split(' ')).await.unwrap();
    released.success().unwrap();
    let lease = json_of(&scenario, &["lease", "show", "10.60.1.7"]).await;
    let owner = lease["owner"].as_str().unwrap();
    assert!(owner.ends_with("/Service/apps/inside"), "{lease}");
    assert_eq!(
        (&lease["address"], &lease["length"], &lease["contenders"]),
        (&json!("10.60.1.7"), &Value::Null, &json!([]))
    );
    let given = allocate_block(&scenario, "fipd/node/lab/three").await;
    assert_eq!(given, (json!("10.60.1.48"), json!(28)), "beside both");

    let checked = scenario.fipd.cli(["check"]).await.unwrap();
    checked.success().unwrap();
}

/// Ingresses, and Services of others, that all show one address.
async fn add_users(scenario: &Scenario, cluster: &str, address: &str, count: usize) {
    let client = scenario.client(cluster).await.unwrap();
    let ingresses: Api<Ingress> = Api::namespaced(client, "apps");
    let users = stream::iter(0..count).map(|number| {
        let ingresses = ingresses.clone();
        async move {
            let name = format!("user-{number}");
            let object: Ingress = serde_json::from_value(json!({
                "metadata": { "name": name },
                "spec": { "defaultBackend": { "service": { "name": "web", "port": { "number": 80 } } } },
            }))
            .unwrap();
            ingresses.create(&PostParams::default(), &object).await?;
            let status =
                json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address }] } } });
            let merge = Patch::Merge(&status);
            let params = PatchParams::default();
            ingresses.patch_status(&name, &params, &merge).await
        }
    });
    users
        .buffer_unordered(16)
        .try_collect::<Vec<_>>()
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_use_has_no_contenders_in_its_cluster_and_one_in_another() {
    let mut scenario = prepare().await;
    let (a, b) = (
        services(&scenario, "a").await,
        services(&scenario, "b").await,
    );
    scenario.fipd.restart().await.unwrap();
    scenario.fipd.wait_ready(DEADLINE).await.unwrap();
    create_services(&a, &["web".to_owned()], POOL)
        .await
        .unwrap();
    let address = assigned(&a, "web").await;
    add_users(&scenario, "a", &address, 500).await;
    add_foreign(&a, "copy", METALLB, &address).await;
    add_foreign(&b, "other", METALLB, &address).await;
    add_foreign(&b, "again", None, &address).await;
    // The first lists of this start see them.
    scenario.fipd.kill9().unwrap();
    scenario.fipd.restart().await.unwrap();
    scenario.fipd.wait_ready(DEADLINE).await.unwrap();
    wait_sightings(&scenario, "b", 0, 1).await;
    wait_sightings(&scenario, "a", 0, 0).await;
    let known = owners(&scenario).await;
    assert_eq!(known.len(), 1, "{known:?}");
    assert!(known[&address].starts_with("rancher-fip/"), "{known:?}");
    let lease = json_of(&scenario, &["lease", "show", &address]).await;
    let contenders = lease["contenders"].as_array().unwrap();
    assert_eq!(contenders.len(), 1, "{lease}");
    assert!(contenders[0].to_string().contains("foreign/"), "{lease}");
}
