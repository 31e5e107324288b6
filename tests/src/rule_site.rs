//! An API server, a Node of it, and the fipd of that Node, whose rules are those of the network namespace in which it is started.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use fipd_crds::ip_rule::{IPRule, IPRuleConfig};
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::netlink::{Netlink, RawRule, Told};
use crate::testbed::{
    ControlPlane, ControlPlaneOptions, Fipd, FipdOptions, RESTRICTED_USER, wait_until,
};

pub const NODE: &str = "n1";
/// The protocol of fipd's rules.
pub const TAG: u8 = 200;
const LEASES_IN: &str = "ip-rule-operator-system";
const ROLES: &str = include_str!("../../packaging/rbac/ip-rule.yaml");
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long after a change the kernel may be behind, at the worst: fipd has just been killed, and rules were deleted by hand so
/// often that they are mended at longer intervals.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

/// The running site.
pub struct RuleSite {
    plane: ControlPlane,
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

impl RuleSite {
    /// The namespace is to be one of its own: see [`crate::namespace`].
    pub async fn start() -> Result<Self> {
        let options = ControlPlaneOptions {
            controller_manager: true,
            ..ControlPlaneOptions::default()
        };
        let plane = ControlPlane::start("c", options).await?;
        plane.install_crds(&definitions()).await?;
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": LEASES_IN } });
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE, "labels": { "lb": "true" } },
        });
        let objects = format!("{ROLES}\n---\n{namespace}\n---\n{node}");
        plane.apply(&objects).await?;
        for role in ["fipd-ip-rule", "fipd-ip-rule-node"] {
            plane.bind_role(role, None).await?;
        }
        let lease = plane.bind_role("fipd-ip-rule-lease", Some(LEASES_IN));
        lease.await?;
        let config = format!(
            "[host]\nnode = \"{NODE}\"\n[[cluster]]\nname = \"c\"\nkubeconfig = \"c.kubeconfig\"\nsystems = [\"ip-rule\"]\n"
        );
        let options = FipdOptions {
            config: Some(config),
            ..FipdOptions::default()
        };
        let mut fipd = Fipd::prepare(options).await?;
        let kubeconfig = plane.kubeconfig_of(RESTRICTED_USER);
        fipd.write_file("c.kubeconfig", &kubeconfig)?;
        fipd.restart().await?;
        fipd.wait_ready(READY_WITHIN).await?;
        let client = plane.client().await?;
        Ok(Self {
            plane,
            fipd,
            kernel: Netlink::open()?,
            rules: Api::all(client.clone()),
            configs: Api::all(client.clone()),
            services: Api::namespaced(client, "default"),
        })
    }

    /// A client with all rights.
    pub async fn client(&self) -> Result<Client> {
        self.plane.client().await
    }

    /// Gives fipd a role for the whole cluster, by the text that defines it.
    pub async fn allow(&self, definition: &str, role: &str) -> Result<()> {
        self.plane.apply(definition).await?;
        self.plane.bind_role(role, None).await
    }

    /// fipd's rules in the kernel, sorted, each as often as it is there.
    pub async fn own(&self) -> Result<Vec<RawRule>> {
        own(&self.kernel).await
    }

    /// The rules of others whole, in the kernel's order.
    pub async fn foreign(&self) -> Result<Vec<Told>> {
        let mut all = self.kernel.dump().await?;
        all.retain(|rule| rule.protocol() != TAG);
        Ok(all)
    }

    /// Until fipd's rules are these.
    pub async fn settles(&self, what: &str, expected: &[RawRule]) -> Result<()> {
        let look = || async {
            match self.own().await {
                Ok(seen) if seen == expected => Ok(()),
                Ok(seen) => Err(differences(&seen, expected)),
                Err(error) => Err(format!("{error:#}")),
            }
        };
        let settled = wait_until(what, SETTLED_WITHIN, look).await;
        settled.with_context(|| self.fipd.log_tail())
    }

    pub async fn apply_rule(&self, name: &str, spec: &Value) -> Result<()> {
        let object = json!({
            "apiVersion": "api.operator.brtrm.dev/v1alpha1", "kind": "IPRule", "metadata": { "name": name }, "spec": spec,
        });
        let patch = Patch::Apply(object);
        let by = PatchParams::apply("admin").force();
        self.rules.patch(name, &by, &patch).await?;
        Ok(())
    }

    /// A Service with these addresses of its own.
    pub async fn create_service(&self, name: &str, cluster_ips: &[IpAddr]) -> Result<()> {
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
        let object = serde_json::from_value(object)?;
        let by = PostParams::default();
        self.services.create(&by, &object).await?;
        Ok(())
    }

    /// What a load balancer writes.
    pub async fn set_vips(&self, name: &str, vips: &[IpAddr]) -> Result<()> {
        let ingress: Vec<Value> = vips.iter().map(|ip| json!({ "ip": ip })).collect();
        let status = json!({ "status": { "loadBalancer": { "ingress": ingress } } });
        let patch = Patch::Merge(status);
        let by = PatchParams::default();
        self.services.patch_status(name, &by, &patch).await?;
        Ok(())
    }

    /// Takes a Service's addresses, and waits until neither a rule nor an IPRuleConfig is left.
    pub async fn clear_vips(&self, name: &str) -> Result<()> {
        self.set_vips(name, &[]).await?;
        self.settles("no rule is left", &[]).await?;
        self.no_config("no IPRuleConfig is left").await
    }

    async fn no_config(&self, what: &str) -> Result<()> {
        let all = ListParams::default();
        let gone = wait_until(what, SETTLED_WITHIN, || async {
            let configs = self.configs.list(&all).await?;
            match configs.items.is_empty() {
                true => Ok(()),
                false => Err(anyhow!(json!(configs.items))),
            }
        });
        gone.await.with_context(|| self.fipd.log_tail())
    }

    /// Deletes all objects, and waits until nothing of them is left anywhere.
    pub async fn clear(&self) -> Result<()> {
        let all = ListParams::default();
        let services = self.services.list(&all).await?;
        let own = services
            .iter()
            .filter_map(|service| service.metadata.name.as_deref());
        for name in own.filter(|name| *name != "kubernetes") {
            delete(&self.services, name).await?;
        }
        for rule in self.rules.list(&all).await? {
            let name = rule.metadata.name.context("a name")?;
            delete(&self.rules, &name).await?;
        }
        self.settles("no rule is left", &[]).await?;
        self.no_config("no IPRuleConfig is left, so none has a finalizer")
            .await?;
        let what = "no IPRule is left, so none has a finalizer";
        let gone = wait_until(what, SETTLED_WITHIN, || async {
            let rules = self.rules.list(&all).await?;
            match rules.items.is_empty() {
                true => Ok(()),
                false => Err(anyhow!(json!(rules.items))),
            }
        });
        gone.await.with_context(|| self.fipd.log_tail())
    }
}

async fn own(kernel: &Netlink) -> Result<Vec<RawRule>> {
    let all = kernel.dump().await?;
    let own = all.iter().filter(|rule| rule.protocol() == TAG);
    let mut own: Vec<RawRule> = own.map(Told::rule).collect();
    own.sort();
    Ok(own)
}

/// It may be gone, or on its way.
pub async fn delete<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => Ok(deleted.map(drop)?),
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
