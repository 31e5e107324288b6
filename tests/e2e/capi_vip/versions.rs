//! Servers with one version of Cluster API each, in one fipd, which the tests share. They have no core manager: nobody but fipd
//! writes Clusters, so no change of theirs covers up one that fipd overlooks.

use super::*;

static SERVERS: SharedSite<Servers> = SharedSite::new();

/// A server, and the objects of one namespace on it.
pub(super) struct Server {
    name: &'static str,
    pub(super) version: ApiVersion,
    pub(super) ipam: IpamObjects,
    pub(super) core: ClusterApiObjects,
}

const SERVED: [(&str, Versions, ApiVersion); 2] = [
    ("older", Versions::OnlyV1Beta1, ApiVersion::V1Beta1),
    ("newer", Versions::OnlyV1Beta2, ApiVersion::V1Beta2),
];

pub(super) struct Servers(Vec<ControlPlane>);

impl SharedClusters for Servers {
    async fn start() -> anyhow::Result<Self> {
        let options = ControlPlaneOptions::default();
        let names = SERVED.map(|(name, _, _)| name);
        let mut planes = ControlPlane::start_many(&names, &options).await?;
        for (plane, (_, versions, _)) in planes.iter_mut().zip(SERVED) {
            install_definitions(plane, versions).await?;
            plane.give_cluster_api_to_fipd().await?;
        }
        Ok(Self(planes))
    }

    async fn clean(&self) -> anyhow::Result<()> {
        for (plane, (_, _, version)) in self.0.iter().zip(SERVED) {
            clean(plane, version).await?;
        }
        Ok(())
    }

    async fn prepare_fipd(&self, _settings: &str) -> anyhow::Result<Fipd> {
        let mut fipd = Fipd::prepare(FipdOptions::default()).await?;
        for plane in &self.0 {
            let kubeconfig = plane.kubeconfig_of(RESTRICTED_USER);
            write_kubeconfig(&fipd, plane.name(), &kubeconfig)?;
        }
        fipd.write_config(&config(&SERVED.map(|(name, _, _)| name)))?;
        Ok(fipd)
    }
}

/// What a test has of them. Dropped in this order: fipd before its servers.
pub(super) struct ServersBed {
    pub(super) fipd: TestFipd,
    /// In the order of [`SERVED`].
    pub(super) servers: Vec<Server>,
    _planes: ClustersOfTest<Servers>,
}

pub(super) async fn start(namespace: &str) -> ServersBed {
    let (fipd, planes) = SERVERS.share("").await.unwrap();
    let mut servers = Vec::new();
    for (plane, (name, _, version)) in planes.0.iter().zip(SERVED) {
        servers.push(Server::of(plane, namespace, (name, version)).await);
    }
    ServersBed {
        fipd,
        servers,
        _planes: planes,
    }
}

impl Server {
    pub(super) async fn of(
        plane: &ControlPlane,
        namespace: &str,
        (name, version): (&'static str, ApiVersion),
    ) -> Self {
        let ipam = IpamObjects {
            client: plane.client().await.unwrap(),
            version: version.name(),
        };
        Self {
            name,
            version,
            ipam,
            core: ClusterApiObjects::of(plane, namespace).await.unwrap(),
        }
    }

    /// A class with `clusterVip`, which nobody checks here.
    async fn class(&self, name: &str) {
        let class = match self.version {
            ApiVersion::V1Beta2 => Class::with_cluster_vip(name).objects().pop().unwrap(),
            ApiVersion::V1Beta1 => json!({
                "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "ClusterClass", "metadata": { "name": name },
                "spec": { "variables": [{
                    "name": CLUSTER_VIP, "required": false,
                    "schema": { "openAPIV3Schema": { "type": "string", "default": "" } },
                }] },
            }),
        };
        let classes = self.core.classes(self.version);
        self.core.create(&classes, class).await.unwrap();
    }

    pub(super) async fn cluster(&self, name: &str, class: &str, fields: Value) -> Value {
        let mut cluster = self.version.cluster(name, class);
        merge(&mut cluster, &fields);
        let clusters = self.core.clusters(self.version);
        self.core.create(&clusters, cluster).await.unwrap()
    }

    pub(super) async fn pool(&self, name: &str, class: &str, role: &str, addresses: &[&str]) {
        let labels = json!({ CLUSTER_CLASS: class, ROLE: role });
        self.labelled_pool(name, labels, addresses).await;
    }

    async fn labelled_pool(&self, name: &str, labels: Value, addresses: &[&str]) {
        let spec = json!({ "addresses": addresses, "prefix": 24 });
        let pool = json!({ "metadata": { "labels": labels }, "spec": spec });
        self.ipam.make(GLOBAL, name, pool).await.unwrap();
    }

    pub(super) async fn wait(
        &self,
        name: &str,
        what: &str,
        test: impl Fn(&Value) -> bool,
    ) -> Value {
        let clusters = self.core.clusters(self.version);
        let what = format!("{}: Cluster {name} {what}", self.name);
        wait_object(&what, PROMPT, (&clusters, name), test)
            .await
            .unwrap()
    }

    /// A condition of the form of `metav1.Condition`, wherever the version has those.
    pub(super) fn says<'a>(&self, cluster: &'a Value, kind: &str) -> &'a Value {
        let status = &cluster["status"];
        let all = match self.version {
            ApiVersion::V1Beta1 => &status["v1beta2"]["conditions"],
            ApiVersion::V1Beta2 => &status["conditions"],
        };
        let mut all = all.as_array().into_iter().flatten();
        all.find(|one| one["type"] == kind).unwrap_or(&Value::Null)
    }
}

/// Row 84 and E-12.
#[tokio::test(flavor = "multi_thread")]
async fn e_12_rows_71_and_84_either_version_alone_is_served() {
    let bed = start("alone").await;
    for (number, server) in bed.servers.iter().enumerate() {
        server.class("alone").await;
        let (host, ingress) = (format!("10.8{number}.0.15"), format!("10.8{number}.0.101"));
        let made = server.cluster("alone", "alone", json!({})).await;
        server
            .wait("alone", "says that it has no pool", |one| {
                server.says(one, ENDPOINT_READY)["reason"] == "PoolNotFound"
            })
            .await;
        server.pool("alone", "alone", CONTROL_PLANE, &[&host]).await;
        server
            .pool("alone-ingress", "alone", INGRESS, &[&ingress])
            .await;
        let seen = server
            .wait("alone", "has both addresses", |one| {
                endpoint(one)["host"] == *host
                    && variable(one, CLUSTER_VIP) == &*host
                    && one["metadata"]["annotations"][INGRESS_VIP] == *ingress
            })
            .await;
        assert_eq!(endpoint(&seen)["port"], 6443, "84: {seen}");
        assert_eq!(seen["metadata"]["labels"][INGRESS_VIP], *ingress);
        for kind in [ENDPOINT_READY, INGRESS_READY] {
            server
                .wait("alone", "says that it has them", |one| {
                    server.says(one, kind)["reason"] == "AddressAllocated"
                })
                .await;
        }
        let claim = server
            .ipam
            .get(CLAIM, "alone/vip-cp-alone")
            .await
            .unwrap()
            .unwrap();
        let owner = &claim["metadata"]["ownerReferences"][0];
        assert_eq!(owner["uid"], made["metadata"]["uid"]);
        assert_eq!(owner["apiVersion"], made["apiVersion"]);
    }
    // Row 71 in either form.
    for (number, server) in bed.servers.iter().enumerate() {
        let port = json!({ "spec": { "controlPlaneEndpoint": match server.version {
            ApiVersion::V1Beta1 => json!({ "host": "", "port": 7443 }),
            ApiVersion::V1Beta2 => json!({ "port": 7443 }),
        } } });
        let second = format!("10.8{number}.1.15");
        server
            .pool("alone-two", "alone", CONTROL_PLANE, &[&second])
            .await;
        server.cluster("alone-two", "alone", port).await;
        let seen = server
            .wait("alone-two", "has its endpoint", |one| {
                endpoint(one)["host"] == *second
            })
            .await;
        assert_eq!(endpoint(&seen)["port"], 7443, "71: {seen}");
    }
}

/// E-6. The change of the labels is all that tells fipd.
#[tokio::test(flavor = "multi_thread")]
async fn e_6_a_pool_that_gets_its_labels_serves_the_cluster_that_waits() {
    let bed = start("labelled").await;
    for (number, server) in bed.servers.iter().enumerate() {
        let host = format!("10.10{number}.0.15");
        server.labelled_pool("labelled", json!({}), &[&host]).await;
        server.cluster("labelled", "labelled", json!({})).await;
        server
            .wait("labelled", "says that it has no pool", |one| {
                server.says(one, ENDPOINT_READY)["reason"] == "PoolNotFound"
            })
            .await;
        let events = server.ipam.wait_event(CLUSTER, "labelled", "PoolNotFound");
        events.await.unwrap();
        let labels = json!({ CLUSTER_CLASS: "labelled", ROLE: CONTROL_PLANE });
        let labels = json!({ "metadata": { "labels": labels } });
        server.ipam.merge(GLOBAL, "labelled", labels).await.unwrap();
        server
            .wait("labelled", "has its endpoint", |one| {
                endpoint(one)["host"] == *host
            })
            .await;
    }
}

/// A claim that waits on a full pool moves to another one when an address of that becomes free.
#[tokio::test(flavor = "multi_thread")]
async fn e_14_a_claim_that_waits_moves_to_a_pool_with_an_address_that_became_free() {
    let bed = start("freed").await;
    let server = &bed.servers[1];
    for (pool, address) in [("freed-a", "10.110.1.1"), ("freed-b", "10.110.2.1")] {
        server.pool(pool, "freed", CONTROL_PLANE, &[address]).await;
        let path = format!("freed/{pool}");
        server.ipam.claim(&path, (GLOBAL, pool)).await.unwrap();
        server.ipam.wait_address(&path).await.unwrap();
    }
    server.cluster("freed", "freed", json!({})).await;
    let why = server
        .ipam
        .wait_reason(CLAIM, "freed/vip-cp-freed", "PoolExhausted");
    let why = why.await.unwrap();
    server
        .wait("freed", "says why it waits", |one| {
            server.says(one, ENDPOINT_READY)["message"] == *why
        })
        .await;
    let waiting = server.ipam.get(CLAIM, "freed/vip-cp-freed").await.unwrap();
    let pool = &waiting.unwrap()["spec"]["poolRef"]["name"];
    assert_eq!(pool, "freed-a");
    server.ipam.delete(CLAIM, "freed/freed-b").await.unwrap();
    server
        .wait("freed", "has its endpoint", |one| {
            endpoint(one)["host"] == "10.110.2.1"
        })
        .await;
    let moved = server.ipam.get(CLAIM, "freed/vip-cp-freed").await.unwrap();
    assert_eq!(moved.unwrap()["spec"]["poolRef"]["name"], "freed-b");
}
