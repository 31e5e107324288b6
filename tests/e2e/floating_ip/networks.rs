//! Pools on networks of a Harvester cluster, which fipd reaches by the kubeconfig that Rancher keeps, with the rights of the
//! package's roles.

use fipd_crds::network_attachment::NetworkAttachmentDefinition;
use fipd_tests::scenario::{config_of, write_kubeconfig};
use fipd_tests::testbed::{ControlPlane, RESTRICTED_USER};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::*;

const CRD: &str = include_str!("../../crds/network_attachments.yaml");
const CRD_NAME: &str = "network-attachment-definitions.k8s.cni.cncf.io";
const RULES: &str = r#"
[[network]]
name = "blue"
match = [{ vlan = 7, interface = "mgmt" }]
[[network]]
name = "green"
match = [{ vlan = 8 }]
"#;
const VLAN_7: &str = r#"{"cniVersion":"0.3.1","type":"bridge","bridge":"mgmt-br","vlan":7}"#;
const ROLES: &str = include_str!("../../../packaging/rbac/rancher-fip-management.yaml");
const GUEST_ROLES: &str = include_str!("../../../packaging/rbac/rancher-fip-guest.yaml");

/// Makes the cluster a Harvester cluster.
async fn label(scenario: &Scenario) {
    let harvester = scenario.site.cluster("harvester").unwrap();
    let label = json!({
        "apiVersion": "management.cattle.io/v3", "kind": "Cluster",
        "metadata": { "name": harvester.id, "labels": { "provider.cattle.io": "harvester" } },
        "spec": { "displayName": "harvester" },
    });
    let rancher = &scenario.site.rancher;
    rancher.apply(&label.to_string()).await.unwrap();
}

/// fipd runs, and may not read the networks of the Harvester cluster yet.
async fn start() -> Rancher {
    let mut rancher = prepare().await;
    rancher.restart().await;
    rancher
}

/// The same before the first start of fipd.
async fn prepare() -> Rancher {
    let scenario = Scenario::prepare(&SiteOptions::of(&["harvester"])).await;
    let mut scenario = scenario.unwrap();
    let rancher = &scenario.site.rancher;
    rancher.apply(ROLES).await.unwrap();
    let roles = [
        ("fipd-rancher-fip-management", None),
        (
            "fipd-rancher-fip-harvester-kubeconfigs",
            Some("fleet-default"),
        ),
    ];
    for (role, namespace) in roles {
        rancher.bind_role(role, namespace).await.unwrap();
    }
    rancher.grant_identity().await.unwrap();
    let kubeconfig = rancher.kubeconfig_of(RESTRICTED_USER);
    write_kubeconfig(&scenario.fipd, "rancher", &kubeconfig).unwrap();
    label(&scenario).await;
    let harvester = scenario.site.cluster("harvester").unwrap();
    let client = rancher.client().await.unwrap();
    let kubeconfig = harvester.plane.kubeconfig_of(RESTRICTED_USER);
    let publish = scenario
        .site
        .publish_kubeconfig(&client, &harvester.id, &kubeconfig);
    publish.await.unwrap();
    let (pools, fips) = (Api::all(client.clone()), Api::namespaced(client, NAMESPACE));
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    rancher.apply(&namespace.to_string()).await.unwrap();
    let config = format!("{}{RULES}", config_of(&scenario.site, &[], ""));
    scenario.fipd.write_config(&config).unwrap();
    Rancher {
        scenario,
        pools,
        fips,
    }
}

impl Rancher {
    async fn restart(&mut self) {
        let fipd = &mut self.scenario.fipd;
        fipd.restart().await.unwrap();
        fipd.wait_ready(DEADLINE).await.unwrap();
    }

    fn harvester_plane(&mut self) -> &mut ControlPlane {
        let site = &mut self.scenario.site;
        &mut site.cluster_mut("harvester").unwrap().plane
    }

    /// Waits until the pool is in the network.
    async fn wait_network(&self, pool: &str, network: &str) {
        let what = format!("pool {pool} goes to network {network}");
        wait_until(&what, DEADLINE, || async {
            let is = self.network(pool).await;
            if is == network { Ok(()) } else { Err(is) }
        })
        .await
        .unwrap();
    }

    async fn harvester(&self) -> Client {
        self.scenario.client("harvester").await.unwrap()
    }

    async fn pool_on(&self, name: &str, network: &str, third: u8) {
        let part = |last: u8| format!("10.{third}.0.{last}");
        let range = json!({ "start": part(1), "end": part(9) });
        let spec = json!({
            "ipConfig": { "subnet": format!("{}/24", part(0)), "pool": range },
            "targetCluster": "harvester", "targetNetwork": network, "targetNetworkInterface": "eth1",
        });
        let pool = json!({ "metadata": { "name": name }, "spec": spec });
        self.apply("FloatingIPPool", pool).await;
    }

    /// Makes or replaces a definition.
    async fn define(&self, name: &str, config: &str) {
        let labels = json!({ "network.harvesterhci.io/clusternetwork": "mgmt" });
        let definition = json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": { "name": name, "namespace": "default", "labels": labels },
            "spec": { "config": config },
        });
        let plane = &self.scenario.site.cluster("harvester").unwrap().plane;
        plane.apply(&definition.to_string()).await.unwrap();
    }

    async fn remove_definition(&self, name: &str) {
        let all: Api<NetworkAttachmentDefinition> =
            Api::namespaced(self.harvester().await, "default");
        all.delete(name, &DeleteParams::default()).await.unwrap();
    }

    async fn network(&self, pool: &str) -> String {
        let shown = self.scenario.fipd.cli(["pool", "list", "-o", "json"]).await;
        let shown = shown.unwrap().json().unwrap();
        let pools = shown["pools"].as_array().unwrap().clone();
        let suffix = format!("/{pool}");
        let named = |one: &Value| {
            let name = one["name"].as_str().unwrap_or_default();
            name == pool || name.ends_with(&suffix)
        };
        let found = pools.iter().find(|one| named(one));
        found.map_or_else(
            || format!("none: {shown}"),
            |one| one["network"].as_str().unwrap().to_owned(),
        )
    }

    /// Waits until the pool has no condition of this kind.
    async fn wait_no_condition(&self, pool: &str, kind: &str) {
        let what = format!("pool {pool} has no condition {kind}");
        wait_until(&what, DEADLINE, || async {
            let pool = self.pools.get(pool).await;
            let status = pool.map_err(|error| error.to_string())?.status;
            let conditions = status.unwrap_or_default().conditions;
            match conditions.iter().any(|one| one.type_ == kind) {
                true => Err(json!(conditions).to_string()),
                false => Ok(()),
            }
        })
        .await
        .unwrap();
    }

    /// The pool is in `blue` with its address, whatever is known of its VLAN.
    async fn nothing_is_lost(&self) {
        assert_eq!(self.network("web").await, "blue");
        self.wait_address("used", "10.61.0.5").await;
        self.fip("more", "web", "").await;
        let more = self
            .wait_fip("more", "has an address", |fip| {
                fip["status"]["state"] == "Allocated"
            })
            .await;
        let address = more["status"]["ipAddr"].as_str().unwrap();
        assert!(address.starts_with("10.61.0."), "{address}");
        self.delete_fip("more").await;
    }
}

/// A pool says why its VLAN is not known until fipd may read it, and the kind and the object are there; then it moves.
async fn wait_for_vlan(rancher: &Rancher) {
    let says = |part: &'static str| rancher.wait_condition("web", "VlanUnknown", "True", part);
    rancher.pool_on("web", "vlan7", 61).await;
    says("cannot get").await;
    rancher.wait_condition("web", "Ready", "True", "").await;
    assert_eq!(rancher.network("web").await, "default");
    let plane = &rancher.scenario.site.cluster("harvester").unwrap().plane;
    let older = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "older" },
        "rules": [{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"] }],
    });
    plane.apply(&older.to_string()).await.unwrap();
    plane.bind_role("older", None).await.unwrap();
    says("cannot list").await;
    plane.apply(GUEST_ROLES).await.unwrap();
    let role = "fipd-rancher-fip-harvester";
    plane.bind_role(role, None).await.unwrap();
    says("serves none").await;
    plane.install_crds(CRD).await.unwrap();
    says("does not exist").await;
    rancher.define("vlan7", VLAN_7).await;
    rancher.wait_no_condition("web", "VlanUnknown").await;
    rancher.wait_network("web", "blue").await;
    rancher.wait_condition("web", "Ready", "True", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_vlan_of_a_harvester_network_chooses_the_network() {
    let mut rancher = start().await;
    wait_for_vlan(&rancher).await;
    assert_eq!(rancher.network("web").await, "blue");
    rancher.fip("used", "web", "10.61.0.5").await;
    rancher.wait_address("used", "10.61.0.5").await;

    // Without a rule, and untagged.
    rancher.define("vlan9", r#"{"vlan":9}"#).await;
    rancher.define("untagged", "{}").await;
    rancher.pool_on("nine", "vlan9", 62).await;
    rancher.pool_on("plain", "untagged", 63).await;
    for (pool, network) in [("nine", "vlan-9"), ("plain", "default")] {
        rancher.wait_condition(pool, "Ready", "True", "").await;
        assert_eq!(rancher.network(pool).await, network);
        rancher.wait_no_condition(pool, "VlanUnknown").await;
    }

    // Another VLAN, of another rule: a pool with leases stays in its network, and one without moves.
    rancher.define("vlan7", r#"{"vlan":8}"#).await;
    rancher.define("vlan9", r#"{"vlan":8}"#).await;
    let refused = "move-network";
    rancher
        .wait_condition("web", "Ready", "False", refused)
        .await;
    rancher.nothing_is_lost().await;
    rancher.wait_network("nine", "green").await;

    break_definitions(&rancher).await;
    rancher.scenario.fipd.kill9().unwrap();
    rancher.restart().await;
    rancher.nothing_is_lost().await;
    let gone = "does not exist";
    rancher
        .wait_condition("web", "VlanUnknown", "True", gone)
        .await;
    remove_kind(&rancher).await;
    rancher.nothing_is_lost().await;
    assert_eq!(rancher.network("nine").await, "green");

    let plane = &rancher.scenario.site.cluster("harvester").unwrap().plane;
    plane.install_crds(CRD).await.unwrap();
    rancher.define("vlan7", VLAN_7).await;
    rancher.wait_no_condition("web", "VlanUnknown").await;
    rancher.wait_condition("web", "Ready", "True", "").await;
    rancher.nothing_is_lost().await;

    // A start while the Harvester cluster is down.
    rancher.harvester_plane().stop_api().await.unwrap();
    rancher.scenario.fipd.kill9().unwrap();
    rancher.restart().await;
    rancher
        .wait_condition("web", "VlanUnknown", "True", "cannot be read")
        .await;
    rancher.nothing_is_lost().await;
    rancher.harvester_plane().restart_api().await.unwrap();
    rancher.wait_no_condition("web", "VlanUnknown").await;
    rancher.nothing_is_lost().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_harvester_cluster_that_fipd_serves_is_read_with_its_own_kubeconfig() {
    let scenario = Scenario::start(&SiteOptions::of(&["harvester"])).await;
    let scenario = scenario.unwrap();
    label(&scenario).await;
    let client = scenario.site.rancher.client().await.unwrap();
    let publish = scenario
        .site
        .publish_kubeconfig(&client, "c-m-harvester", "nothing");
    publish.await.unwrap();
    let plane = &scenario.site.cluster("harvester").unwrap().plane;
    plane.install_crds(CRD).await.unwrap();
    let (pools, fips) = (Api::all(client.clone()), Api::namespaced(client, NAMESPACE));
    let rancher = Rancher {
        scenario,
        pools,
        fips,
    };
    rancher.define("vlan7", VLAN_7).await;
    rancher.pool_on("web", "vlan7", 61).await;
    rancher.wait_condition("web", "Ready", "True", "").await;
    rancher.wait_no_condition("web", "VlanUnknown").await;
    assert_eq!(rancher.network("web").await, "vlan-7");
}

/// A site of the original, taken over while its Harvester cluster is down.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_adopted_before_its_vlan_is_known_is_given_once() {
    let mut rancher = prepare().await;
    rancher.pool_on("web", "vlan7", 61).await;
    rancher.fip("used", "web", "").await;
    let given = json!({ "status": { "ipAddr": "10.61.0.1", "state": "Allocated" } });
    let (params, given) = (PatchParams::default(), Patch::Merge(&given));
    let given = rancher.fips.patch_status("used", &params, &given).await;
    given.unwrap();
    let plane = rancher.harvester_plane();
    plane.apply(GUEST_ROLES).await.unwrap();
    let role = "fipd-rancher-fip-harvester";
    plane.bind_role(role, None).await.unwrap();
    plane.install_crds(CRD).await.unwrap();
    rancher.define("vlan7", VLAN_7).await;
    rancher.harvester_plane().stop_api().await.unwrap();
    rancher.restart().await;
    rancher
        .wait_condition("web", "VlanUnknown", "True", "cannot be read")
        .await;
    rancher.wait_address("used", "10.61.0.1").await;
    rancher.fip("second", "web", "").await;
    rancher.wait_address("second", "10.61.0.2").await;
    assert_eq!(rancher.network("web").await, "default");

    // The VLAN becomes known: addresses stay, and the admin moves the pool with them.
    rancher.harvester_plane().restart_api().await.unwrap();
    rancher
        .wait_condition("web", "Ready", "False", "move-network")
        .await;
    assert_eq!(rancher.network("web").await, "default");
    let moved = ["pool", "move-network", "web", "blue"];
    let moved = rancher.scenario.fipd.cli(moved).await.unwrap();
    moved.success().unwrap();
    rancher.wait_condition("web", "Ready", "True", "").await;
    assert_eq!(rancher.network("web").await, "blue");
    rancher.fip("third", "web", "").await;
    rancher.wait_address("third", "10.61.0.3").await;
    for (name, address) in [("used", "10.61.0.1"), ("second", "10.61.0.2")] {
        rancher.wait_address(name, address).await;
    }
}

/// The definition of a pool with leases is broken in several ways, and removed.
async fn break_definitions(rancher: &Rancher) {
    let unknown = |part: &'static str| rancher.wait_condition("web", "VlanUnknown", "True", part);
    let huge = format!(r#"{{"vlan":8,"x":"{}"}}"#, "x".repeat(100 << 10));
    let deep = "[".repeat(60 << 10);
    for (config, says) in [
        ("{\"vlan\":", "not JSON"),
        (r#"{"vlan":"7; DROP TABLE"}"#, "not a number"),
        (&*huge, "more than"),
        (&*deep, "not JSON"),
    ] {
        rancher.define("vlan7", config).await;
        unknown(says).await;
        rancher.wait_condition("web", "Ready", "True", "").await;
    }
    rancher.nothing_is_lost().await;
    rancher.remove_definition("vlan7").await;
    unknown("does not exist").await;
    rancher.nothing_is_lost().await;
}

/// Removes all definitions with their kind.
async fn remove_kind(rancher: &Rancher) {
    let crds: Api<CustomResourceDefinition> = Api::all(rancher.harvester().await);
    let params = DeleteParams::default();
    crds.delete(CRD_NAME, &params).await.unwrap();
    rancher
        .wait_condition("nine", "VlanUnknown", "True", "")
        .await;
    wait_until("the kind is gone", DEADLINE, || async {
        match crds.get_opt(CRD_NAME).await {
            Ok(None) => Ok(()),
            other => Err(format!("{:?}", other.map(|one| one.map(|one| one.status)))),
        }
    })
    .await
    .unwrap();
}
