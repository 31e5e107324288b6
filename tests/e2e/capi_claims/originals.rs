//! A site that both originals filled, taken over from one after the other in either order, and left again: what stays fits the
//! definitions of the originals.
//!
//! Core's definitions are those of its release; those of the in-cluster pools are stand-ins with the fields of the contract.

use fipd_tests::stock::{definition, restore};
use fipd_tests::testbed::ControlPlaneOptions;
use fipd_tests::testbed::cluster_api::{ApiVersion, install_definitions};
use kube::api::ListParams;

use super::*;

const CLASS: &str = "rke2";
const CLUSTER: &str = "Cluster";
const ROLE: &str = "vip.capi.gorizond.io/role";
const INGRESS_VIP: &str = "vip.capi.gorizond.io/ingress-vip";
const INGRESS_ENABLED: &str = "vip.capi.gorizond.io/ingress-enabled";
const VIPS: (&str, &str) = (GLOBAL, "vips");
/// All kinds of which something stays.
const KINDS: [&str; 5] = [POOL, GLOBAL, CLAIM, ADDRESS, CLUSTER];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// The in-cluster provider; capi-vip-allocator runs on.
    Provider,
    Allocator,
}

impl First {
    /// What fipd serves while the other original runs on.
    fn settings(self) -> &'static str {
        match self {
            Self::Provider => "vips = false",
            Self::Allocator => "in-cluster-kinds = \"leave\"",
        }
    }
}

struct TwoOriginals {
    fipd: Fipd,
    objects: IpamObjects,
}

impl TwoOriginals {
    /// The site as the originals leave it. fipd does not run.
    async fn prepare(plane: &ControlPlane) -> Self {
        let objects = IpamObjects {
            client: plane.client().await.unwrap(),
            version: "v1beta2",
        };
        objects.remove_all().await.unwrap();
        let fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
        let kubeconfig = plane.kubeconfig_of(RESTRICTED_USER);
        write_kubeconfig(&fipd, "management", &kubeconfig).unwrap();
        let site = Self { fipd, objects };
        site.pools().await;
        let worker =
            json!({ "metadata": { "labels": { "cluster.x-k8s.io/cluster-name": "edge" } } });
        let claimed = site
            .objects
            .claim_with("default/worker", (POOL, "nodes"), worker);
        claimed.await.unwrap();
        let served = site.objects.fulfil("default/worker", "10.0.0.12");
        served.await.unwrap();
        let edge = json!({
            "annotations": { INGRESS_VIP: "10.0.2.10" }, "labels": { INGRESS_VIP: "10.0.2.10" },
        });
        site.cluster("edge", edge, "10.0.1.11").await;
        site.vip_claim("edge", "control-plane", VIPS).await;
        site.fulfil("vip-cp-edge", "10.0.1.11").await;
        site.vip_claim("edge", "ingress", (GLOBAL, "ingress")).await;
        site.fulfil("vip-ingress-edge", "10.0.2.10").await;
        // Somebody deleted its claim; the original never looks again.
        site.cluster("lost", without_ingress(), "10.0.1.13").await;
        // Given by hand, and the original burnt an address beside it.
        site.cluster("manual", without_ingress(), "10.0.1.14").await;
        site.vip_claim("manual", "control-plane", VIPS).await;
        site.fulfil("vip-cp-manual", "10.0.1.12").await;
        site
    }

    async fn pools(&self) {
        let nodes =
            json!({ "addresses": ["10.0.0.10-10.0.0.20"], "prefix": 24, "gateway": "10.0.0.1" });
        self.objects.pool("default/nodes", nodes).await.unwrap();
        for (name, role, range) in [
            ("vips", "control-plane", "10.0.1.10-10.0.1.20"),
            ("ingress", "ingress", "10.0.2.10-10.0.2.20"),
        ] {
            let labels = json!({ "vip.capi.gorizond.io/cluster-class": CLASS, ROLE: role });
            let spec = json!({ "addresses": [range], "prefix": 24 });
            let pool = json!({ "metadata": { "labels": labels }, "spec": spec });
            self.objects.make(GLOBAL, name, pool).await.unwrap();
        }
    }

    /// A Cluster with this endpoint, or with none.
    async fn cluster(&self, name: &str, metadata: Value, host: &str) {
        let mut cluster = ApiVersion::V1Beta2.cluster(name, CLASS);
        cluster["metadata"] = metadata;
        if !host.is_empty() {
            cluster["spec"]["controlPlaneEndpoint"] = json!({ "host": host, "port": 6443 });
        }
        let path = format!("default/{name}");
        self.objects.make(CLUSTER, &path, cluster).await.unwrap();
    }

    /// The claim of a Cluster as capi-vip-allocator makes it.
    async fn vip_claim(&self, cluster: &str, role: &str, pool: (&str, &str)) {
        let owner = self.get(CLUSTER, cluster).await;
        let metadata = json!({
            "labels": { ROLE: role },
            "ownerReferences": [{
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": CLUSTER, "name": cluster,
                "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
            }],
        });
        let short = if role == "ingress" { "ingress" } else { "cp" };
        let path = format!("default/vip-{short}-{cluster}");
        let rest = json!({ "metadata": metadata });
        self.objects.claim_with(&path, pool, rest).await.unwrap();
    }

    async fn fulfil(&self, claim: &str, address: &str) {
        let path = format!("default/{claim}");
        self.objects.fulfil(&path, address).await.unwrap();
    }

    async fn get(&self, kind: &str, name: &str) -> Value {
        let path = format!("default/{name}");
        self.objects.get(kind, &path).await.unwrap().unwrap()
    }

    async fn start(&mut self, settings: &str) {
        let config = management_config(&self.fipd, settings);
        self.fipd.write_config(&config).unwrap();
        self.fipd.restart().await.unwrap();
        self.fipd.wait_ready(DEADLINE).await.unwrap();
    }

    async fn adopt(&self, more: &[&str]) -> String {
        let adopt = ["adopt", "cluster-api", "--cluster", "management"];
        wait_until("the cluster is reached", DEADLINE, || async {
            let done = self.fipd.cli(adopt.iter().chain(more)).await;
            let done = done.map_err(|error| format!("{error:#}"))?;
            let said = format!("{}{}", done.stdout, done.stderr);
            match said.contains("is not reached at the moment") {
                true => Err(said),
                false => Ok(said),
            }
        })
        .await
        .unwrap()
    }

    async fn wait_host(&self, cluster: &str, host: &str) {
        let path = format!("default/{cluster}");
        wait_until(&format!("endpoint of {cluster}"), DEADLINE, || async {
            let seen = self.objects.get(CLUSTER, &path).await;
            let seen = seen.map_err(|error| format!("{error:#}"))?;
            let seen = seen.unwrap_or_default();
            match seen["spec"]["controlPlaneEndpoint"]["host"] == host {
                true => Ok(()),
                false => Err(format!("{seen}\n{}", self.fipd.log_tail())),
            }
        })
        .await
        .unwrap();
    }

    /// Kind and name of who holds each address.
    async fn holders(&self) -> BTreeMap<String, String> {
        let listed = self.fipd.cli(["lease", "list", "-o", "json"]).await;
        let listed = listed.unwrap().json().unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = listed["leases"].as_array().unwrap().iter();
        let holder = |lease: &Value| {
            let owner = text(&lease["owner"]);
            let parts: Vec<_> = owner.rsplitn(4, '/').collect();
            (
                text(&lease["address"]),
                format!("{}/{}", parts[2], parts[0]),
            )
        };
        all.map(holder).collect()
    }

    /// All objects of the originals' kinds.
    async fn all(&self) -> Vec<(&'static str, Value)> {
        let mut all = Vec::new();
        for kind in KINDS {
            let api = self.objects.of(kind, None);
            let listed = api.list(&ListParams::default()).await.unwrap();
            let objects = listed.items.into_iter();
            all.extend(objects.map(|object| (kind, json!(object))));
        }
        all
    }
}

fn without_ingress() -> Value {
    json!({ "annotations": { INGRESS_ENABLED: "false" } })
}

/// One original is taken over, the other serves on; then that one too.
async fn take_over(site: &mut TwoOriginals, first: First) {
    site.start(first.settings()).await;
    let done = site.adopt(&[]).await;
    site.cluster("young", without_ingress(), "").await;
    let claim = "default/vip-cp-young";
    match first {
        First::Provider => {
            // The allocator claims, fipd serves, the allocator writes.
            site.vip_claim("young", "control-plane", VIPS).await;
            let host = site.objects.wait_address(claim).await.unwrap();
            let endpoint =
                json!({ "spec": { "controlPlaneEndpoint": { "host": host, "port": 6443 } } });
            let written = site.objects.merge(CLUSTER, "default/young", endpoint);
            written.await.unwrap();
        }
        First::Allocator => {
            let burnt = "the claim vip-cp-manual keeps 10.0.1.12 for nothing";
            assert!(done.contains(burnt), "{done}");
            // fipd claims, the provider serves, fipd writes.
            wait_until("fipd's claim", DEADLINE, || async {
                let seen = site.objects.get(CLAIM, claim).await;
                let seen = seen.map_err(|error| format!("{error:#}"))?;
                seen.map(drop).ok_or_else(|| site.fipd.log_tail())
            })
            .await
            .unwrap();
            site.objects.fulfil(claim, "10.0.1.10").await.unwrap();
        }
    }
    site.wait_host("young", "10.0.1.10").await;
    let ended = site.fipd.terminate(Duration::from_secs(10)).await;
    ended.unwrap_or_else(|error| unreachable!("{error:#}\n{done}"));
    // It waits for its address before fipd knows who has which.
    site.objects.claim("default/waiting", VIPS).await.unwrap();
    site.start("").await;
    let preview = site.adopt(&["--dry-run"]).await;
    for text in ["10.0.1.12", "vip-cp-manual", "10.0.1.13", "10.0.1.14"] {
        assert!(preview.contains(text), "{text}: {preview}");
    }
    site.adopt(&[]).await;
    let waiting = site.objects.wait_address("default/waiting").await;
    assert_eq!(waiting.unwrap(), "10.0.1.15", "{first:?}");
    site.cluster("fresh", without_ingress(), "").await;
    site.wait_host("fresh", "10.0.1.16").await;
}

#[tokio::test]
async fn both_originals_are_taken_over_in_either_order_and_what_stays_is_theirs() {
    let management = ManagementPlane::with("both", Versions::OnlyV1Beta2);
    let management = management.await.unwrap();
    management
        .bind_role("fipd-cluster-api-adopt", None)
        .await
        .unwrap();
    let judge = Judge::start().await;
    for first in [First::Provider, First::Allocator] {
        management.forget_leaders().await.unwrap();
        let mut site = TwoOriginals::prepare(&management).await;
        take_over(&mut site, first).await;
        let wanted = [
            ("10.0.0.12", "IPAddressClaim/worker"),
            ("10.0.1.10", "IPAddressClaim/vip-cp-young"),
            ("10.0.1.11", "IPAddressClaim/vip-cp-edge"),
            ("10.0.1.12", "IPAddressClaim/vip-cp-manual"),
            ("10.0.1.13", "Cluster/lost"),
            ("10.0.1.14", "Cluster/manual"),
            ("10.0.1.15", "IPAddressClaim/waiting"),
            ("10.0.1.16", "IPAddressClaim/vip-cp-fresh"),
            ("10.0.2.10", "IPAddressClaim/vip-ingress-edge"),
        ];
        let wanted = wanted.map(|(address, holder)| (address.to_owned(), holder.to_owned()));
        assert_eq!(site.holders().await, BTreeMap::from(wanted), "{first:?}");
        let before = site.all().await;
        let detached = site.fipd.cli(["clusters", "detach", "management"]).await;
        detached.unwrap().success().unwrap();
        let after = site.all().await;
        unchanged(&before, &after);
        for (kind, object) in &after {
            judge.judge(kind, object).await;
        }
    }
}

/// Detaching takes fipd's finalizers, and neither an object nor an address.
fn unchanged(before: &[(&str, Value)], after: &[(&str, Value)]) {
    let specs = |all: &[(&str, Value)]| -> BTreeMap<String, Value> {
        let named = all.iter().map(|(kind, object)| {
            let name = format!("{kind} {}", object["metadata"]["name"]);
            (name, object["spec"].clone())
        });
        named.collect()
    };
    assert_eq!(specs(before), specs(after));
    for (kind, object) in after {
        let finalizers = &object["metadata"]["finalizers"];
        let ours = finalizers.to_string().contains("ipam.cluster.x-k8s.io/");
        assert!(!ours, "{kind}: {object}");
        if *kind == ADDRESS {
            let claim = after.iter().find(|(kind, one)| {
                *kind == CLAIM && one["metadata"]["name"] == object["spec"]["claimRef"]["name"]
            });
            let (_, claim) = claim.unwrap();
            // What the stock provider compares before it takes an IPAddress for the answer to a claim.
            assert_eq!(object["spec"]["poolRef"], claim["spec"]["poolRef"]);
            assert_eq!(object["metadata"]["name"], claim["metadata"]["name"]);
            let owner = &object["metadata"]["ownerReferences"][0];
            assert_eq!(owner["uid"], claim["metadata"]["uid"], "{object}");
            assert_eq!(owner["controller"], true, "{object}");
        }
    }
}

/// An API server that has never seen fipd, with the definitions of the originals.
struct Judge {
    objects: IpamObjects,
    _plane: ControlPlane,
}

impl Judge {
    async fn start() -> Self {
        let plane = ControlPlane::start("judge", ControlPlaneOptions::default());
        let plane = plane.await.unwrap();
        install_definitions(&plane, Versions::OnlyV1Beta2)
            .await
            .unwrap();
        let pools = [(POOL, "Namespaced"), (GLOBAL, "Cluster")].map(stock_pools);
        let [one, two] = pools.map(|definition| definition.to_string());
        plane
            .install_crds(&format!("{one}\n---\n{two}"))
            .await
            .unwrap();
        let client = plane.client().await.unwrap();
        let objects = IpamObjects {
            client,
            version: "v1beta2",
        };
        Self {
            objects,
            _plane: plane,
        }
    }

    /// Stores an object and its status as a restore does, and refuses what the definition does not know.
    async fn judge(&self, kind: &str, object: &Value) {
        let api = self
            .objects
            .of(kind, object["metadata"]["namespace"].as_str());
        let mut status = object.get("status").cloned();
        if kind == POOL || kind == GLOBAL {
            // The stock pools have counts alone; their server drops the conditions.
            let counts = &object["status"]["ipAddresses"];
            assert!(counts.is_object(), "{object}");
            status = Some(json!({ "ipAddresses": counts }));
        }
        let stored = restore(&api, object, status.as_ref()).await;
        stored.unwrap_or_else(|error| unreachable!("{kind}: {error:#}"));
    }
}

/// The definition of an address pool of the in-cluster provider, v1alpha2.
fn stock_pools((kind, scope): (&str, &str)) -> Value {
    let text = json!({ "type": "string" });
    let texts = json!({ "type": "array", "items": text });
    let count = json!({ "type": "integer" });
    let spec = json!({
        "type": "object", "required": ["addresses", "prefix"],
        "properties": {
            "addresses": texts, "excludedAddresses": texts, "gateway": text,
            "prefix": { "type": "integer", "minimum": 0, "maximum": 128 },
            "allocateReservedIPAddresses": { "type": "boolean" },
            "addressReuseGracePeriodSeconds": { "type": "integer", "format": "int32", "minimum": 0 },
        },
    });
    let counts = json!({
        "type": "object", "required": ["free", "outOfRange", "total", "used"],
        "properties": { "free": count, "outOfRange": count, "total": count, "used": count },
    });
    let status = json!({ "type": "object", "properties": { "ipAddresses": counts } });
    definition(
        ("ipam.cluster.x-k8s.io", "v1alpha2"),
        (kind, scope),
        &spec,
        &status,
    )
}
