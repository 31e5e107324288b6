use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::{
    guests::clusters::{ClusterMark, ManagedCluster},
    systems::rancher_fip::settings::ClusterManager,
};

fn pool(name: &str, target: &str, network: &str, nic: &str) -> (Key, Arc<FloatingIPPool>) {
    marked(name, target, network, nic, json!({}))
}

fn marked(
    name: &str,
    target: &str,
    network: &str,
    nic: &str,
    annotations: Value,
) -> (Key, Arc<FloatingIPPool>) {
    let object = json!({
        "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIPPool",
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "targetCluster": target, "targetNetwork": network, "targetNetworkInterface": nic },
    });
    let object = serde_json::from_value(object).unwrap();
    (Key::new("", name), Arc::new(object))
}

fn project(id: &str, namespace: &str) -> Project {
    Project {
        id: id.into(),
        namespace: namespace.into(),
    }
}

fn on_harvester(networks: &[&str]) -> Result<RunsOn, GuestWait> {
    Ok(RunsOn::Harvester {
        id: "c-h".into(),
        display_name: "hv".into(),
        networks: networks.iter().map(|name| (*name).to_owned()).collect(),
        project: Ok("p-1".into()),
    })
}

/// A guest "c-m-g", displayed "guest", that asks at "https://fipd/v1".
struct Case {
    home: Result<RunsOn, GuestWait>,
    pools: Vec<(Key, Arc<FloatingIPPool>)>,
    projects: Vec<Project>,
    quotas: Vec<&'static str>,
    url: Option<&'static str>,
    cluster: RancherCluster,
}

impl Case {
    fn new(home: Result<RunsOn, GuestWait>) -> Self {
        Self {
            home,
            pools: vec![],
            projects: vec![project("p-1", "c-h"), project("p-2", "c-m-g")],
            quotas: vec!["p-1", "p-2"],
            url: Some("https://fipd"),
            cluster: RancherCluster {
                managed: ManagedCluster {
                    display_name: "guest".into(),
                    ..ManagedCluster::default()
                },
                switch: ClusterMark::Known(true),
                ..RancherCluster::default()
            },
        }
    }

    fn plan(&self) -> GuestPlan {
        let settings = Settings::new(None, &ClusterManager::default(), self.url);
        plan(&GuestFacts {
            id: "c-m-g",
            cluster: &self.cluster,
            home: &self.home,
            pools: &self.pools,
            projects: &self.projects,
            has_quota: &|project| self.quotas.contains(&project),
            settings: &settings,
            ca: "PEM",
        })
    }

    fn wait(&self) -> &'static str {
        self.plan().wait.map_or("", |wait| wait.reason())
    }
}

#[test]
fn a_guest_on_harvester_gets_project_pool_and_mappings_of_the_harvester_cluster() {
    let mut case = Case::new(on_harvester(&["vlan-1"]));
    case.pools = vec![
        pool("hv--vlan-1", "hv", "vlan-1", "eth1"),
        pool("other--vlan-1", "other", "vlan-1", "eth9"),
    ];
    let GuestPlan { desired, wait } = case.plan();
    assert_eq!(wait, None);
    let expected = GuestContents {
        namespace: "rancher-fip-manager".into(),
        ca: Some("PEM".into()),
        mappings: Some([("hv--vlan-1".to_owned(), "eth1".to_owned())].into()),
        label: Some("p-1".into()),
        access: vec![ProjectAccess {
            project: project("p-1", "c-h"),
            api_url: "https://fipd/v1".into(),
            cluster: "c-m-g".into(),
            pool: "hv--vlan-1".into(),
            load_balancer: LoadBalancer::PureLb,
        }],
        releases: vec![],
    };
    assert_eq!(desired, expected);
}

#[test]
fn defect_24_a_pool_that_names_its_cluster_by_id_is_mapped_and_the_last_one_leaves_an_empty_map() {
    for home in [on_harvester(&["vlan-1"]), Ok(RunsOn::BareMetal)] {
        let (id, display) = match &home {
            Ok(RunsOn::Harvester { .. }) => ("c-h", "hv"),
            _ => ("c-m-g", "guest"),
        };
        let mut case = Case::new(home);
        case.pools = vec![
            pool("a", id, "vlan-1", "eth1"),
            pool("b", display, "vlan-2", "eth2"),
        ];
        let expected = [("a", "eth1"), ("b", "eth2")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(case.plan().desired.mappings, Some(expected.into()));
        case.pools.clear();
        assert_eq!(case.plan().desired.mappings, Some(BTreeMap::new()));
    }
}

#[test]
fn defect_33_the_first_network_with_a_pool_counts_and_its_real_name_is_given() {
    let mut case = Case::new(on_harvester(&["management", "vlan-7"]));
    let given = |case: &Case| case.plan().desired.access[0].pool.clone();
    assert_eq!(
        given(&case),
        "hv--management",
        "by convention, as long as there is none"
    );
    case.pools = vec![pool("tenants", "c-h", "vlan-7", "eth1")];
    assert_eq!(given(&case), "tenants");
    case.pools.push(pool("hv--vlan-7", "hv", "vlan-7", "eth1"));
    assert_eq!(
        given(&case),
        "hv--vlan-7",
        "of two the one named as is usual"
    );
}

#[test]
fn bare_metal_needs_a_default_pool_and_a_quota_in_any_order() {
    let mut case = Case::new(Ok(RunsOn::BareMetal));
    case.quotas = vec!["p-1"];
    assert_eq!(case.wait(), "NoDefaultPool");
    let default = json!({ "rancher-fip-default-network": "true" });
    case.pools = vec![
        pool("a", "guest", "vlan-1", "eth1"),
        marked("guest--vlan-2", "c-m-g", "vlan-2", "eth2", default),
    ];
    assert_eq!(
        case.wait(),
        "NoQuota",
        "p-1 is a project of another cluster"
    );
    case.quotas.push("p-2");
    let GuestPlan { desired, wait } = case.plan();
    assert_eq!(
        (wait, desired.label),
        (None, None),
        "its namespace is not marked"
    );
    let access = &desired.access[0];
    assert_eq!(
        (&*access.project.id, &*access.pool),
        ("p-2", "guest--vlan-2")
    );
}

#[test]
fn what_is_missing_is_named_and_the_rest_is_there() {
    let mut case = Case::new(on_harvester(&["vlan-1"]));
    case.quotas.clear();
    assert_eq!(case.wait(), "NoQuota");
    assert_eq!(case.plan().desired.label.as_deref(), Some("p-1"));
    case.projects.clear();
    assert_eq!(case.wait(), "UnknownProject");
    let mut case = Case::new(on_harvester(&["vlan-1"]));
    case.url = None;
    assert_eq!(case.wait(), "NoApiUrl");
    assert!(case.plan().desired.access.is_empty());
    let case = Case::new(Err(GuestUnready::NoControlPlanePool.into()));
    let GuestPlan { desired, wait } = case.plan();
    assert_eq!(wait, Some(GuestUnready::NoControlPlanePool.into()));
    assert_eq!(
        (desired.mappings, desired.ca.as_deref()),
        (None, Some("PEM"))
    );
}

#[test]
fn defect_21_every_wait_ends_by_itself() {
    let waits: [GuestWait; 3] = [
        GuestUnready::NoControlPlanePool.into(),
        GuestWait::NoQuotas,
        GuestUnready::StillDeploying("x".into()).into(),
    ];
    for wait in waits {
        assert!(wait.pause() <= Duration::from_secs(120) && !wait.pause().is_zero());
    }
}
