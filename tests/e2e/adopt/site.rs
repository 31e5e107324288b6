//! A site as the original programs leave it, with the residues that they are known for.

use fipd_crds::floating_ip::FloatingIP;
use fipd_tests::scenario::{Scenario, write_kubeconfig};
use fipd_tests::testbed::{ControlPlane, RESTRICTED_USER, SiteOptions, renew_lease};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

pub const APP: &str = "rancher-fip-manager";
pub const GROUP: &str = "rancher.k8s.binbash.org";
pub const CLUSTER: &str = "c-m-guest";
pub const PROJECT: &str = "p-guest";
pub const POOL: &str = "guest--net";
pub const API_SERVICE: &str = "rancher-fip-api-server";
/// Made for this test, and of no other use.
pub const JWT_KEY: &str = include_str!("jwt-private-key.pem");
/// Where the original API server was.
pub const OLD_URL: &str = "https://old.example.net/v1";
pub const WEBHOOK: &str = "rancher-fip-manager-webhook";
pub const MANAGEMENT_ROLES: &str =
    include_str!("../../../packaging/rbac/rancher-fip-management.yaml");
pub const ADOPT_ROLES: &str = include_str!("../../../packaging/rbac/rancher-fip-adopt.yaml");

/// The site, fipd beside it (not started), and a client of Rancher.
pub struct Bed {
    pub scenario: Scenario,
    pub rancher: Client,
    pub fips: Api<FloatingIP>,
    pub leases: Api<Lease>,
}

/// What fipd does beside taking over; it has the roles that an admin is told to bind for that, and no other.
#[derive(Clone, Copy, Default)]
pub struct Duties {
    /// Controllers of guests ask it for addresses.
    pub clients: bool,
    pub cluster_manager: bool,
    pub api_service: bool,
}

impl Duties {
    /// Roles of the manifests, with the namespace in which each is bound.
    fn roles(self) -> Vec<(&'static str, Option<&'static str>)> {
        let mut roles = vec![
            ("management", None),
            ("adopt", None),
            ("adopt-app", Some(APP)),
        ];
        if self.clients {
            roles.push(("api", None));
        }
        if self.cluster_manager {
            roles.extend([
                ("cluster-manager", None),
                ("cluster-manager-fleet", Some("fleet-default")),
                ("cluster-manager-app", Some(APP)),
            ]);
        }
        if self.api_service {
            roles.push(("api-service", Some(APP)));
        }
        roles
    }

    /// Lines of `[cluster.rancher-fip]`.
    fn config(self) -> String {
        format!(
            "api-service = {}\n[cluster.rancher-fip.cluster-manager]\nenabled = {}\n",
            self.api_service, self.cluster_manager
        )
    }
}

impl Bed {
    /// `url` is where others reach fipd (its own URL if that is empty).
    pub async fn prepare(duties: Duties, url: &str, more: &str) -> Self {
        let mut scenario = Scenario::prepare(&SiteOptions::of(&["guest"]))
            .await
            .unwrap();
        let rancher = scenario.site.rancher.client().await.unwrap();
        namespace(&scenario.site.rancher, APP).await;
        restrict(&scenario, &rancher, duties).await;
        let own = scenario.fipd.url();
        let url = if url.is_empty() { &own } else { url };
        let config = format!(
            "[api]\nadvertise = \"{url}\"\n{more}[[cluster]]\nname = \"rancher\"\nkubeconfig = \"rancher.kubeconfig\"\n\
             systems = [\"rancher-fip\"]\n[cluster.rancher-fip]\n{}",
            duties.config()
        );
        scenario.fipd.write_config(&config).unwrap();
        let bed = Self {
            fips: Api::namespaced(rancher.clone(), CLUSTER),
            leases: Api::namespaced(rancher.clone(), APP),
            rancher,
            scenario,
        };
        bed.leave_objects().await;
        bed.leave_programs().await;
        bed.leave_guest().await;
        bed
    }

    pub async fn apply(&self, object: Value) {
        let rancher = &self.scenario.site.rancher;
        rancher.apply(&object.to_string()).await.unwrap();
    }

    async fn status(&self, kind: &str, name: &str, status: Value) {
        let gvk = GroupVersionKind::gvk(GROUP, "v1beta2", kind);
        let resource =
            ApiResource::from_gvk_with_plural(&gvk, &format!("{}s", kind.to_lowercase()));
        let api: Api<DynamicObject> = match kind {
            "FloatingIP" => Api::namespaced_with(self.rancher.clone(), CLUSTER, &resource),
            _ => Api::all_with(self.rancher.clone(), &resource),
        };
        let patch = json!({ "status": status });
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    /// A FloatingIP as the original left it: with its finalizer, and the address in its status where it has one.
    async fn fip(&self, name: &str, version: &str, pool: &str, address: &str, labels: Value) {
        let mut all = json!({ format!("{GROUP}/project-name"): PROJECT });
        for (key, value) in labels.as_object().unwrap() {
            all[format!("{GROUP}/{key}")] = value.clone();
        }
        let mut spec = json!({ "floatingIPPool": pool });
        if !address.is_empty() {
            spec["ipAddr"] = json!(address);
        }
        self.apply(json!({
            "apiVersion": format!("{GROUP}/{version}"), "kind": "FloatingIP",
            "metadata": {
                "name": name, "namespace": CLUSTER, "labels": all,
                "finalizers": [format!("{GROUP}/floatingip-cleanup")],
            },
            "spec": spec,
        }))
        .await;
        let status = match address {
            "" => json!({ "state": "Error" }),
            address => json!({ "state": "Allocated", "ipAddr": address }),
        };
        self.status("FloatingIP", name, status).await;
    }

    async fn leave_objects(&self) {
        let pool = json!({ "start": "10.70.0.10", "end": "10.70.0.20", "exclude": ["10.70.0.16"] });
        self.apply(json!({
            "apiVersion": format!("{GROUP}/v1beta1"), "kind": "FloatingIPPool",
            "metadata": { "name": POOL, "annotations": { "rancher-fip-default-network": "true" } },
            "spec": {
                "ipConfig": { "family": "IPv4", "subnet": "10.70.0.0/24", "pool": pool },
                "targetCluster": "guest", "targetNetwork": "net", "targetNetworkInterface": "eth1",
            },
        }))
        .await;
        let allocated = json!({ "10.70.0.16": "excluded", "10.70.0.19": "p-gone [Gone]" });
        self.status(
            "FloatingIPPool",
            POOL,
            json!({ "allocated": allocated, "used": 9 }),
        )
        .await;
        self.quota(5).await;
        let drifted =
            json!({ "fips": { POOL: { "used": 9, "allocated": { "10.70.0.19": "c-m-gone" } } } });
        self.status("FloatingIPProjectQuota", PROJECT, drifted)
            .await;
        let first =
            json!({ "cluster-name": CLUSTER, "service-name": "old", "service-namespace": "shop" });
        self.fip("fip-first", "v1beta1", POOL, "10.70.0.10", first)
            .await;
        let second = json!({ "cluster-name": CLUSTER, "service-0-name": "new", "service-0-namespace": "shop" });
        self.fip("fip-second", "v1beta2", POOL, "10.70.0.11", second)
            .await;
        let ghost = json!({ "service-2-name": "ghost", "service-2-namespace": "shop", "floatingip-group": "g" });
        self.fip("fip-ghost", "v1beta2", POOL, "10.70.0.12", ghost)
            .await;
        let orphan = json!({ "cluster-name": "c-m-gone", "service-0-name": "x", "service-0-namespace": "y" });
        self.fip("fip-orphan", "v1beta2", POOL, "10.70.0.13", orphan)
            .await;
        self.fip("fip-error", "v1beta2", POOL, "", json!({})).await;
        self.fip("fip-lost", "v1beta2", "gone", "", json!({})).await;
    }

    pub async fn quota(&self, limit: u32) {
        self.apply(json!({
            "apiVersion": format!("{GROUP}/v1beta2"), "kind": "FloatingIPProjectQuota",
            "metadata": { "name": PROJECT },
            "spec": { "displayName": "Shop", "floatingIPQuota": { POOL: limit } },
        }))
        .await;
    }

    async fn leave_programs(&self) {
        for project in [PROJECT, "p-gone"] {
            let data = json!({ "project": project, "clientSecret": super::secret(project) });
            self.secret(CLUSTER, &format!("rancher-fip-config-{project}"), data)
                .await;
        }
        self.secret(APP, "jwt-private-key", json!({ "key": JWT_KEY }))
            .await;
        self.secret(
            APP,
            "rancher-fip-manager-webhook-tls",
            json!({ "tls.crt": "x", "tls.key": "y" }),
        )
        .await;
        self.secret(APP, "cacerts", json!({ "ca.crt": super::SITE_CA }))
            .await;
        self.guests_at(OLD_URL).await;
        for name in ["rancher-fip-manager", API_SERVICE, WEBHOOK] {
            self.deployment(name, 0).await;
        }
        self.renew("rancher-fip-manager-lock", "dead").await;
        self.apply(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": API_SERVICE, "namespace": APP },
            "spec": {
                "type": "NodePort", "selector": { "app": API_SERVICE },
                "ports": [
                    { "name": "http", "port": 8080, "targetPort": 8080 },
                    { "name": "tls", "port": 8443, "targetPort": 8443, "nodePort": 30001 },
                ],
            },
        }))
        .await;
        self.apply(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": WEBHOOK, "namespace": APP },
            "spec": { "selector": { "app": WEBHOOK }, "ports": [{ "port": 8443 }] },
        }))
        .await;
        let hook = |kind: &str, scope: &str| {
            json!({
                "name": format!("{kind}-{WEBHOOK}.{APP}.svc"),
                "clientConfig": { "service": {
                    "namespace": APP, "name": WEBHOOK, "path": format!("/validate-{kind}"), "port": 8443,
                } },
                "rules": [{
                    "apiGroups": [GROUP], "apiVersions": ["v1beta2", "v1beta1"], "operations": ["CREATE", "UPDATE"],
                    "resources": [format!("{kind}s")], "scope": scope,
                }],
                "admissionReviewVersions": ["v1"], "sideEffects": "None",
            })
        };
        self.apply(json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": "rancher-fip-manager-validator" },
            "webhooks": [hook("floatingip", "Namespaced"), hook("floatingippool", "Cluster")],
        }))
        .await;
    }

    /// What the original cluster manager is told.
    pub async fn guests_at(&self, url: &str) {
        self.apply(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "rancher-fip-config", "namespace": APP },
            "data": { "RancherFipApiServerURL": url },
        }))
        .await;
    }

    pub async fn deployment(&self, name: &str, replicas: i32) {
        let rancher = &self.scenario.site.rancher;
        let scaled = rancher.scale_original(APP, name, replicas);
        scaled.await.unwrap();
    }

    async fn secret(&self, namespace: &str, name: &str, data: Value) {
        self.apply(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": namespace },
            "stringData": data,
        }))
        .await;
    }

    /// What the original cluster manager wrote once into the guest, and what has become stale.
    async fn leave_guest(&self) {
        let plane = &self.scenario.site.cluster("guest").unwrap().plane;
        namespace(plane, APP).await;
        let data = json!({
            "apiUrl": "https://old.example.net/v1", "cluster": CLUSTER, "project": PROJECT,
            "clientSecret": super::secret(PROJECT), "floatingIPPool": POOL,
        });
        for (name, data) in [
            (format!("rancher-fip-config-{PROJECT}"), data),
            ("cacerts".to_owned(), json!({ "ca.crt": super::SITE_CA })),
        ] {
            let object = json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": APP },
                "stringData": data,
            });
            plane.apply(&object.to_string()).await.unwrap();
        }
        let mappings = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "network-interface-mappings", "namespace": APP },
            "data": { "guest--gone": "eth9" },
        });
        plane.apply(&mappings.to_string()).await.unwrap();
    }

    /// An original program renews its Lease.
    pub async fn renew(&self, lease: &str, holder: &str) {
        renew_lease(&self.leases, lease, holder).await.unwrap();
    }
}

async fn namespace(plane: &ControlPlane, name: &str) {
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    plane.apply(&object.to_string()).await.unwrap();
}

async fn restrict(scenario: &Scenario, rancher: &Client, duties: Duties) {
    let site = &scenario.site;
    for manifest in [
        MANAGEMENT_ROLES,
        include_str!("../../../packaging/rbac/rancher-fip-cluster-manager.yaml"),
        ADOPT_ROLES,
    ] {
        site.rancher.apply(manifest).await.unwrap();
    }
    for (role, namespace) in duties.roles() {
        bind(&site.rancher, role, namespace).await;
    }
    let guest = site.cluster("guest").unwrap();
    let role = include_str!("../../../packaging/rbac/rancher-fip-guest.yaml");
    guest.plane.apply(role).await.unwrap();
    bind(&guest.plane, "guest", None).await;
    let kubeconfig = guest.plane.kubeconfig_of(RESTRICTED_USER);
    site.publish_kubeconfig(rancher, CLUSTER, &kubeconfig)
        .await
        .unwrap();
    let kubeconfig = site.rancher.kubeconfig_of(RESTRICTED_USER);
    write_kubeconfig(&scenario.fipd, "rancher", &kubeconfig).unwrap();
}

/// Binds a role of the manifests to the user without rights, in one namespace or everywhere.
async fn bind(plane: &ControlPlane, role: &str, namespace: Option<&str>) {
    let role = format!("fipd-rancher-fip-{role}");
    plane.bind_role(&role, namespace).await.unwrap();
}
