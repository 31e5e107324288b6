//! Addresses of control planes and ingresses: fipd beside the real core manager of Cluster API, with the rights of
//! packaging/rbac/cluster-api.yaml.
//!
//! Most tests share a management cluster and a fipd at the same time; each has a namespace and addresses of its own, and its
//! Clusters and pools have its name. Those that kill fipd or need other settings have the cluster alone for a while, with a
//! fipd and a store of their own. Numbers of rows and of defects are those of the contract.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "capi_vip/absence.rs"]
mod absence;
#[path = "capi_vip/claims.rs"]
mod claims;
#[path = "capi_vip/drift.rs"]
mod drift;
#[path = "capi_vip/endpoint.rs"]
mod endpoint;
#[path = "capi_vip/examples.rs"]
mod examples;
#[path = "capi_vip/families.rs"]
mod families;
#[path = "capi_vip/ingress.rs"]
mod ingress;
#[path = "capi_vip/kill.rs"]
mod kill;
#[path = "capi_vip/left.rs"]
mod left;
#[path = "capi_vip/ownership.rs"]
mod ownership;
#[path = "capi_vip/pools.rs"]
mod pools;
#[path = "capi_vip/versions.rs"]
mod versions;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use fipd_tests::cluster_api::IpamObjects;
use fipd_tests::scenario::write_kubeconfig;
use fipd_tests::testbed::cluster_api::{
    ApiVersion, CLUSTER_VIP, Class, ClusterApiObjects, CoreManager, INGRESS_VIP, StandIn,
    StandInProviders, Versions, condition, install_definitions, install_stand_ins,
};
use fipd_tests::testbed::{
    ClustersOfTest, ControlPlane, ControlPlaneOptions, Fipd, FipdOptions, RESTRICTED_USER,
    SharedClusters, SharedSite, TestFipd, wait_object, wait_until,
};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(60);
/// Less than the minute after which fipd looks again at a Cluster that waits: what shows up within it was not left to the clock.
const PROMPT: Duration = Duration::from_secs(40);

const CLAIM: &str = "IPAddressClaim";
const ADDRESS: &str = "IPAddress";
const GLOBAL: &str = "GlobalInClusterIPPool";
const CLUSTER: &str = "Cluster";
const PAUSED: &str = "cluster.x-k8s.io/paused";
const CLUSTER_CLASS: &str = "vip.capi.gorizond.io/cluster-class";
const ROLE: &str = "vip.capi.gorizond.io/role";
const INGRESS_ENABLED: &str = "vip.capi.gorizond.io/ingress-enabled";
const CONTROL_PLANE: &str = "control-plane";
const INGRESS: &str = "ingress";
const ENDPOINT_READY: &str = "fipd.io/EndpointReady";
const INGRESS_READY: &str = "fipd.io/IngressReady";
/// A finalizer that nobody but a test removes.
const HELD: &str = "fipd.test/held";

static MANAGEMENT: SharedSite<Management> = SharedSite::new();

struct Management {
    // Dropped in this order: clients end before the API server.
    _providers: StandInProviders,
    _manager: CoreManager,
    plane: ControlPlane,
}

impl SharedClusters for Management {
    async fn start() -> anyhow::Result<Self> {
        let mut plane = ControlPlane::start("management", ControlPlaneOptions::default()).await?;
        install_definitions(&plane, Versions::Both).await?;
        install_stand_ins(&plane).await?;
        plane.give_cluster_api_to_fipd().await?;
        let manager = CoreManager::start(&plane).await?;
        Ok(Self {
            _providers: StandInProviders::start(&plane)?,
            _manager: manager,
            plane,
        })
    }

    async fn clean(&self) -> anyhow::Result<()> {
        clean(&self.plane, ApiVersion::V1Beta2).await
    }

    async fn prepare_fipd(&self, settings: &str) -> anyhow::Result<Fipd> {
        let mut fipd = Fipd::prepare(FipdOptions::default()).await?;
        let kubeconfig = self.plane.kubeconfig_of(RESTRICTED_USER);
        write_kubeconfig(&fipd, "management", &kubeconfig)?;
        let text = config(&["management"]);
        fipd.write_config(&format!("{text}[cluster.cluster-api]\n{settings}\n"))?;
        Ok(fipd)
    }
}

/// For a fipd with an empty store.
async fn clean(plane: &ControlPlane, version: ApiVersion) -> anyhow::Result<()> {
    let ipam = IpamObjects {
        client: plane.client().await?,
        version: version.name(),
    };
    ipam.remove_all().await?;
    plane.forget_leaders().await
}

fn config(clusters: &[&str]) -> String {
    let cluster = |name: &&str| {
        format!(
            "[[cluster]]\nname = \"{name}\"\nkubeconfig = \"{name}.kubeconfig\"\nsystems = [\"cluster-api\"]\n"
        )
    };
    clusters.iter().map(cluster).collect()
}

struct Bed {
    // Dropped in this order: fipd ends before another test has the server.
    fipd: TestFipd,
    ipam: IpamObjects,
    core: ClusterApiObjects,
    management: ClustersOfTest<Management>,
}

impl Bed {
    /// With the fipd of all tests. The namespace has nothing but its class, which has the same name.
    async fn start(class: Class) -> Self {
        let (fipd, management) = MANAGEMENT.share("").await.unwrap();
        Self::of(class, fipd, management).await
    }

    /// With a fipd of its own, which runs, and these lines in `[cluster.cluster-api]`.
    async fn alone(class: Class, settings: &str) -> Self {
        let (fipd, management) = MANAGEMENT.alone(settings).await.unwrap();
        let mut bed = Self::of(class, fipd, management).await;
        bed.restart().await;
        bed
    }

    async fn of(class: Class, fipd: TestFipd, management: ClustersOfTest<Management>) -> Self {
        let plane = &management.plane;
        let ipam = IpamObjects {
            client: plane.client().await.unwrap(),
            version: "v1beta2",
        };
        let core = ClusterApiObjects::of(plane, &class.name).await.unwrap();
        core.make_class(&class).await.unwrap();
        Self {
            fipd,
            ipam,
            core,
            management,
        }
    }

    async fn restart(&mut self) {
        self.own_fipd().restart().await.unwrap();
        self.fipd.wait_ready(DEADLINE).await.unwrap();
    }

    /// That of a test that has the site alone.
    fn own_fipd(&mut self) -> &mut Fipd {
        self.fipd.own().unwrap()
    }

    /// Namespace and name of an object of the test.
    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.core.namespace)
    }

    /// A pool of this name for the role of Clusters of the test's class.
    async fn pool(&self, name: &str, role: &str, addresses: &[&str]) {
        let labels = json!({ CLUSTER_CLASS: self.core.namespace, ROLE: role });
        self.pool_with(name, json!({ "labels": labels }), addresses)
            .await;
    }

    /// A pool with these metadata.
    async fn pool_with(&self, name: &str, metadata: Value, addresses: &[&str]) {
        let prefix = if addresses.iter().any(|one| one.contains(':')) {
            120
        } else {
            24
        };
        let spec = json!({ "addresses": addresses, "prefix": prefix });
        let pool = json!({ "metadata": metadata, "spec": spec });
        self.ipam.make(GLOBAL, name, pool).await.unwrap();
    }

    /// A claim of nobody's on a pool.
    async fn plain_claim(&self, name: &str, pool: &str) {
        let path = self.path(name);
        self.ipam.claim(&path, (GLOBAL, pool)).await.unwrap();
    }

    /// A Cluster of the test's class.
    async fn cluster(&self, name: &str) -> Value {
        self.cluster_with(name, json!({})).await
    }

    /// The same with these fields beside.
    async fn cluster_with(&self, name: &str, fields: Value) -> Value {
        let mut cluster = ApiVersion::V1Beta2.cluster(name, &self.core.namespace);
        merge(&mut cluster, &fields);
        let clusters = self.clusters();
        self.core.create(&clusters, cluster).await.unwrap()
    }

    fn clusters(&self) -> Api<DynamicObject> {
        self.core.clusters(ApiVersion::V1Beta2)
    }

    /// Merges fields into a Cluster as a person would with `kubectl patch`.
    async fn edit(&self, name: &str, patch: Value) {
        let path = self.path(name);
        self.ipam.merge(CLUSTER, &path, patch).await.unwrap();
    }

    async fn annotate_pool(&self, name: &str, key: &str, value: Value) {
        self.ipam.annotate(GLOBAL, name, key, value).await.unwrap();
    }

    /// Waits until a Cluster passes a test, for less than fipd's own clock would take.
    async fn wait(&self, name: &str, what: &str, test: impl Fn(&Value) -> bool) -> Value {
        let clusters = self.clusters();
        let what = format!("Cluster {name}: {what}");
        let seen = wait_object(&what, PROMPT, (&clusters, name), test).await;
        self.explained(seen)
    }

    /// Waits until a Cluster has an endpoint; the Cluster then.
    async fn wait_endpoint(&self, name: &str, host: &str) -> Value {
        let what = format!("has the endpoint {host}");
        self.wait(name, &what, |cluster| endpoint(cluster)["host"] == host)
            .await
    }

    /// Waits until a condition of a Cluster says this; its message.
    async fn wait_says(&self, name: &str, kind: &str, status: &str, reason: &str) -> String {
        let what = format!("{kind} is {status} for {reason}");
        let says = |cluster: &Value| {
            let one = condition(cluster, kind);
            one["status"] == status && one["reason"] == reason
        };
        let seen = self.wait(name, &what, says).await;
        let message = condition(&seen, kind)["message"].as_str();
        message.unwrap_or_default().to_owned()
    }

    async fn claim(&self, name: &str) -> Option<Value> {
        self.ipam.get(CLAIM, &self.path(name)).await.unwrap()
    }

    /// Waits until a claim passes a test.
    async fn wait_claim(&self, name: &str, what: &str, test: impl Fn(&Value) -> bool) -> Value {
        let path = self.path(name);
        let seen = wait_until(&format!("claim {name}: {what}"), PROMPT, || async {
            let seen = self.ipam.get(CLAIM, &path).await;
            match seen.map_err(|error| format!("{error:#}"))? {
                Some(claim) if test(&claim) => Ok(claim),
                Some(claim) => Err(claim.to_string()),
                None => Err("there is none".to_owned()),
            }
        })
        .await;
        self.explained(seen)
    }

    /// The names of all claims of the namespace.
    async fn claims(&self) -> Vec<String> {
        let api = self.core.claims(ApiVersion::V1Beta2);
        let all = api.list(&ListParams::default()).await.unwrap().items;
        let names = all.into_iter().filter_map(|claim| claim.metadata.name);
        names.collect()
    }

    async fn infrastructure(&self, cluster: &str) -> (Api<DynamicObject>, String) {
        let (name, _) = self.core.wait_rendered(cluster).await.unwrap();
        (self.core.stand_ins(StandIn::Cluster), name)
    }

    /// Waits until the infrastructure that core renders for a Cluster passes a test.
    async fn wait_rendered(&self, cluster: &str, what: &str, test: impl Fn(&Value) -> bool) {
        let (api, name) = self.infrastructure(cluster).await;
        let what = format!("infrastructure of {cluster}: {what}");
        let seen = wait_object(&what, DEADLINE, (&api, &name), test).await;
        self.explained(seen);
    }

    /// The owner of each address.
    async fn leases(&self) -> BTreeMap<String, String> {
        leases(&self.fipd).await
    }

    /// Waits until an address is held by an object of this kind and name, or, with an empty kind, by nobody.
    async fn wait_lease(&self, address: &str, kind: &str, name: &str) {
        let seen = wait_lease(&self.fipd, (address, kind, name), PROMPT).await;
        self.explained(seen);
    }

    /// A failure with what fipd logged.
    fn explained<T>(&self, seen: anyhow::Result<T>) -> T {
        seen.with_context(|| format!("fipd: {}", self.fipd.log_tail()))
            .unwrap()
    }
}

async fn leases(fipd: &Fipd) -> BTreeMap<String, String> {
    let listed = fipd.cli(["lease", "list", "-o", "json"]).await;
    let listed = listed.unwrap().json().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let leases = listed["leases"].as_array().unwrap().iter();
    leases
        .map(|lease| (text(&lease["address"]), text(&lease["owner"])))
        .collect()
}

/// Waits until an address is held by an object of this kind and name, or, with an empty kind, by nobody.
async fn wait_lease(
    fipd: &Fipd,
    (address, kind, name): (&str, &str, &str),
    deadline: Duration,
) -> anyhow::Result<()> {
    let what = format!("{address} held by {kind} {name}");
    wait_until(&what, deadline, || async {
        let all = leases(fipd).await;
        let right = match all.get(address) {
            Some(owner) => !kind.is_empty() && owner.contains(kind) && owner.ends_with(name),
            None => kind.is_empty(),
        };
        if right {
            Ok(())
        } else {
            Err(format!("{all:?}"))
        }
    })
    .await
}

/// RFC 7386, without removals.
fn merge(object: &mut Value, patch: &Value) {
    match patch.as_object() {
        Some(fields) => fields
            .iter()
            .for_each(|(name, value)| merge(&mut object[name], value)),
        None => object.clone_from(patch),
    }
}

fn endpoint(cluster: &Value) -> &Value {
    &cluster["spec"]["controlPlaneEndpoint"]
}

/// The value of a variable; `Null` if the Cluster does not have it.
fn variable<'a>(cluster: &'a Value, name: &str) -> &'a Value {
    let all = cluster["spec"]["topology"]["variables"].as_array();
    let mut all = all.into_iter().flatten();
    all.find(|one| one["name"] == name)
        .map_or(&Value::Null, |one| &one["value"])
}
