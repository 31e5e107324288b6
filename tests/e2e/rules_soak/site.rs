//! An API server, a Node of it, and the fipd of that Node.

use std::net::IpAddr;
use std::time::Duration;

use fipd_crds::ip_rule::{IPRule, IPRuleConfig};
use fipd_tests::netlink::{Netlink, RawRule, Told};
use fipd_tests::testbed::{
    ControlPlane, ControlPlaneOptions, Fipd, FipdOptions, RESTRICTED_USER, wait_until,
};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub const NODE: &str = "n1";
/// The protocol of fipd's rules.
pub const TAG: u8 = 200;
const LEASES_IN: &str = "ip-rule-operator-system";
const ROLES: &str = include_str!("../../../packaging/rbac/ip-rule.yaml");
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long after a change the kernel may be behind, at the worst: fipd has just been killed, and rules were deleted by hand so
/// often that they are mended at longer intervals.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

pub struct Site {
    _plane: ControlPlane,
    pub fipd: Fipd,
    /// The namespace in which fipd is.
    pub kernel: Netlink,
    pub rules: Api<IPRule>,
    pub configs: Api<IPRuleConfig>,
    pub services: Api<Service>,
}

fn definitions() -> String {
    let texts = fipd_crds::MANIFESTS.iter();
    let own = texts.filter(|(name, _)| name.starts_with("api.operator.brtrm.dev_"));
    own.map(|(_, text)| format!("---\n{text}")).collect()
}

impl Site {
    pub async fn start() -> Self {
        let options = ControlPlaneOptions {
            controller_manager: true,
            ..ControlPlaneOptions::default()
        };
        let plane = ControlPlane::start("c", options).await.unwrap();
        plane.install_crds(&definitions()).await.unwrap();
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": LEASES_IN } });
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE, "labels": { "lb": "true" } },
        });
        let objects = format!("{ROLES}\n---\n{namespace}\n---\n{node}");
        plane.apply(&objects).await.unwrap();
        for role in ["fipd-ip-rule", "fipd-ip-rule-node"] {
            plane.bind_role(role, None).await.unwrap();
        }
        let lease = plane.bind_role("fipd-ip-rule-lease", Some(LEASES_IN));
        lease.await.unwrap();
        let config = format!(
            "[host]\nnode = \"{NODE}\"\n[[cluster]]\nname = \"c\"\nkubeconfig = \"c.kubeconfig\"\nsystems = [\"ip-rule\"]\n"
        );
        let options = FipdOptions {
            config: Some(config),
            ..FipdOptions::default()
        };
        let mut fipd = Fipd::prepare(options).await.unwrap();
        let kubeconfig = plane.kubeconfig_of(RESTRICTED_USER);
        fipd.write_file("c.kubeconfig", &kubeconfig).unwrap();
        fipd.restart().await.unwrap();
        fipd.wait_ready(READY_WITHIN).await.unwrap();
        let client = plane.client().await.unwrap();
        Self {
            _plane: plane,
            fipd,
            kernel: Netlink::open().unwrap(),
            rules: Api::all(client.clone()),
            configs: Api::all(client.clone()),
            services: Api::namespaced(client, "default"),
        }
    }

    /// fipd's rules in the kernel, sorted, each as often as it is there.
    pub fn own(&mut self) -> Vec<RawRule> {
        own(&mut self.kernel)
    }

    /// The rules of others, in the kernel's order and bytes.
    pub fn foreign(&mut self) -> Vec<Told> {
        let mut all = self.kernel.dump().unwrap();
        all.retain(|rule| rule.protocol() != TAG);
        all
    }

    /// Until fipd's rules are these.
    pub async fn settles(&mut self, what: &str, expected: &[RawRule]) {
        let kernel = &mut self.kernel;
        let look = || {
            let seen = own(kernel);
            std::future::ready(if seen == expected {
                Ok(())
            } else {
                Err(differences(&seen, expected))
            })
        };
        let settled = wait_until(what, SETTLED_WITHIN, look).await;
        settled.unwrap_or_else(|error| panic!("{error}\n{}", self.fipd.log_tail()));
    }

    pub async fn apply_rule(&self, name: &str, spec: &Value) {
        let object = json!({
            "apiVersion": "api.operator.brtrm.dev/v1alpha1", "kind": "IPRule", "metadata": { "name": name }, "spec": spec,
        });
        let patch = Patch::Apply(object);
        let by = PatchParams::apply("admin").force();
        self.rules.patch(name, &by, &patch).await.unwrap();
    }

    /// A Service with these addresses of its own.
    pub async fn create_service(&self, name: &str, cluster_ips: &[IpAddr]) {
        let families = cluster_ips.iter().map(|ip| match ip {
            IpAddr::V4(_) => "IPv4",
            IpAddr::V6(_) => "IPv6",
        });
        let families: Vec<&str> = families.collect();
        let policy = match families.len() {
            1 => "SingleStack",
            _ => "RequireDualStack",
        };
        let object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": "test/none", "clusterIP": cluster_ips.first(), "clusterIPs": cluster_ips,
                "ipFamilies": families, "ipFamilyPolicy": policy, "ports": [{ "port": 80 }],
            },
        });
        let object = serde_json::from_value(object).unwrap();
        let by = PostParams::default();
        self.services.create(&by, &object).await.unwrap();
    }

    /// What a load balancer writes.
    pub async fn set_vips(&self, name: &str, vips: &[IpAddr]) {
        let ingress: Vec<Value> = vips.iter().map(|ip| json!({ "ip": ip })).collect();
        let status = json!({ "status": { "loadBalancer": { "ingress": ingress } } });
        let patch = Patch::Merge(status);
        let by = PatchParams::default();
        self.services.patch_status(name, &by, &patch).await.unwrap();
    }

    /// Deletes all objects, and waits until nothing of them is left anywhere.
    pub async fn clear(&mut self) {
        let all = ListParams::default();
        let services = self.services.list(&all).await.unwrap();
        let own = services
            .iter()
            .filter_map(|service| service.metadata.name.as_deref());
        for name in own.filter(|name| *name != "kubernetes") {
            delete(&self.services, name).await;
        }
        for rule in self.rules.list(&all).await.unwrap() {
            let name = rule.metadata.name.unwrap();
            delete(&self.rules, &name).await;
        }
        self.settles("no rule is left", &[]).await;
        let what = "neither an IPRule nor an IPRuleConfig is left, so no finalizer is";
        let gone = wait_until(what, SETTLED_WITHIN, || async {
            let rules = self.rules.list(&all).await?;
            let configs = self.configs.list(&all).await?;
            if rules.items.is_empty() && configs.items.is_empty() {
                return Ok(());
            }
            Err(anyhow::anyhow!(json!([rules.items, configs.items])))
        });
        gone.await
            .unwrap_or_else(|error| panic!("{error}\n{}", self.fipd.log_tail()));
    }
}

fn own(kernel: &mut Netlink) -> Vec<RawRule> {
    let all = kernel.dump().unwrap();
    let own = all.iter().filter(|rule| rule.protocol() == TAG);
    let mut own: Vec<RawRule> = own.map(Told::rule).collect();
    own.sort();
    own
}

/// It may be gone, or on its way.
pub async fn delete<K>(api: &Api<K>, name: &str)
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        deleted => drop(deleted.unwrap()),
    }
}

fn differences(seen: &[RawRule], expected: &[RawRule]) -> String {
    let without = |all: &[RawRule], others: &[RawRule]| {
        let some = all.iter().filter(|rule| !others.contains(rule));
        some.take(5).map(|rule| format!("{rule:?}")).collect()
    };
    let missing: Vec<String> = without(expected, seen);
    let more: Vec<String> = without(seen, expected);
    format!(
        "{} rules instead of {}; missing: {missing:#?}, too many: {more:#?}",
        seen.len(),
        expected.len()
    )
}
