//! What is kept of the objects that are followed.

use std::{collections::BTreeMap, net::IpAddr};

use fipd_core::{Text, Timestamp};
use fipd_crds::ip_rule::{
    APPLIED_PREFIX, AgentSpec, AgentStatus, CLEANUP_PREFIX, CONFIG_FINALIZER, IPRuleConfig,
    IPRuleConfigSpec, IPRuleConfigStatus, IPRuleSpec, IPRuleStatus, MANAGED_BY, OPERATOR, PRESENT,
    RULE_FINALIZER,
};
use k8s_openapi::{
    api::{
        core::v1::{Node as RawNode, Service},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};

use super::names::of_node;
use crate::controller::meta::{Meta, ObjectView, View, created};

/// Start of the annotations that are the operator's.
const OPERATORS: &str = "iprule.operator.brtrm.dev/";

/// An IPRule.
pub type Rule = ObjectView<IPRuleSpec, IPRuleStatus>;
/// An Agent.
pub type Agent = ObjectView<AgentSpec, AgentStatus>;

/// An IPRuleConfig.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    pub meta: Meta,
    /// It has the operator's label.
    pub labelled: bool,
    /// The operator's and the nodes'.
    pub annotations: BTreeMap<String, String>,
    pub owners: Vec<Owner>,
    pub spec: IPRuleConfigSpec,
    pub status: IPRuleConfigStatus,
}

/// The IPRule that something is because of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    pub name: Text,
    pub uid: Text,
    pub controller: bool,
}

/// A Service with load balancer addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Svc {
    pub vips: Vec<IpAddr>,
    pub cluster_ips: Vec<IpAddr>,
}

/// Pods behind a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    pub service: ServiceName,
    pub addresses: Vec<IpAddr>,
}

/// Namespace and name of a Service.
pub type ServiceName = (Text, Text);

/// A Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub labels: BTreeMap<String, String>,
    /// Since when it is not ready.
    pub unready: Option<Timestamp>,
    /// What its kubelet says of the machine.
    pub machine: Machine,
}

/// What tells machines apart; empty where it is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// `/etc/machine-id`.
    pub id: String,
    /// `/proc/sys/kernel/random/boot_id`, another one after each boot.
    pub boot: String,
}

impl Machine {
    /// This one.
    pub fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            id: read("/etc/machine-id").trim().to_owned(),
            boot: read("/proc/sys/kernel/random/boot_id").trim().to_owned(),
        }
    }

    /// Whether it is certainly another one: both are known of both, and neither is the same.
    pub fn is_other(&self, other: &Self) -> bool {
        let differs = |one: &str, other: &str| !one.is_empty() && !other.is_empty() && one != other;
        differs(&self.id, &other.id) && differs(&self.boot, &other.boot)
    }
}

impl Rule {
    pub fn is_protected(&self) -> bool {
        self.meta.has_finalizer(RULE_FINALIZER)
    }
}

impl Config {
    /// Whether it is the operator's: that one of its two marks was taken off by hand changes nothing.
    pub fn is_ours(&self) -> bool {
        self.labelled || self.is_protected()
    }

    pub fn is_protected(&self) -> bool {
        self.meta.has_finalizer(CONFIG_FINALIZER)
    }

    pub fn is_present(&self) -> bool {
        self.spec.state == PRESENT
    }

    /// The IPRule that it is because of.
    pub fn owner(&self) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.controller)
    }

    pub fn source(&self) -> Option<IpAddr> {
        self.spec.service_ip.parse().ok()
    }

    /// The annotations of nodes with this prefix.
    pub fn of_nodes<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a String, &'a String)> {
        let from = self.annotations.range(prefix.to_owned()..);
        from.take_while(move |(key, _)| key.starts_with(prefix))
    }
}

impl View for Config {
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
}

pub fn config(object: IPRuleConfig) -> Config {
    let mut meta = object.metadata;
    let labels = meta.labels.take().unwrap_or_default();
    let annotations = meta.annotations.take().unwrap_or_default().into_iter();
    let ours = [OPERATORS, CLEANUP_PREFIX, APPLIED_PREFIX];
    let owners = meta.owner_references.take().unwrap_or_default();
    Config {
        labelled: labels
            .get(MANAGED_BY)
            .is_some_and(|value| value == OPERATOR),
        annotations: annotations
            .filter(|(key, _)| ours.iter().any(|prefix| key.starts_with(prefix)))
            .collect(),
        owners: owners.into_iter().map(owner).collect(),
        meta: Meta::of(&meta),
        spec: object.spec,
        status: object.status.unwrap_or_default(),
    }
}

/// As one node needs it: without what others say on it, so that their words are no news.
pub fn config_on(object: IPRuleConfig, node: &str) -> Config {
    let mut config = config(object);
    let own = [APPLIED_PREFIX, CLEANUP_PREFIX].map(|prefix| of_node(prefix, node));
    (config.annotations)
        .retain(|key, _| key.starts_with(OPERATORS) || own.iter().any(|one| one == key));
    config.meta.version = String::new();
    config.status = IPRuleConfigStatus::default();
    config
}

/// Without what this node says on it.
pub fn without_reports(config: &Config) -> Config {
    let mut config = config.clone();
    (config.annotations).retain(|key, _| key.starts_with(OPERATORS));
    config
}

fn owner(reference: OwnerReference) -> Owner {
    Owner {
        name: reference.name.into(),
        uid: reference.uid.into(),
        controller: reference.controller == Some(true),
    }
}

/// Nothing of one that no load balancer has given an address to.
pub fn service(object: Service) -> Option<Svc> {
    let spec = object.spec.unwrap_or_default();
    if spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    let balancer = object.status.and_then(|status| status.load_balancer);
    let ingress = balancer.and_then(|balancer| balancer.ingress);
    let texts = ingress.into_iter().flatten().filter_map(|one| one.ip);
    let vips: Vec<IpAddr> = texts.filter_map(|text| text.parse().ok()).collect();
    if vips.is_empty() {
        return None;
    }
    let texts = spec.cluster_ips.unwrap_or_default();
    // One of an API server without dual stack. A headless one says `None`, which is no address.
    let texts = match texts.is_empty() {
        true => spec.cluster_ip.into_iter().collect(),
        false => texts,
    };
    let cluster_ips = texts.iter().filter_map(|text| text.parse().ok());
    Some(Svc {
        vips,
        cluster_ips: cluster_ips.collect(),
    })
}

/// Nothing of one that is of no Service.
pub fn slice(object: EndpointSlice) -> Option<Slice> {
    let meta = object.metadata;
    let labels = meta.labels.unwrap_or_default();
    let service = labels.get("kubernetes.io/service-name")?;
    let serves = |conditions: &k8s_openapi::api::discovery::v1::EndpointConditions| {
        conditions.ready != Some(false) || conditions.serving == Some(true)
    };
    let endpoints = object.endpoints.into_iter().flatten();
    let endpoints = endpoints.filter(|one| one.conditions.as_ref().is_none_or(serves));
    let addresses = endpoints.flat_map(|one| one.addresses);
    Some(Slice {
        service: (
            meta.namespace.unwrap_or_default().into(),
            service.as_str().into(),
        ),
        addresses: addresses.filter_map(|text| text.parse().ok()).collect(),
    })
}

pub fn node(object: RawNode) -> Node {
    let status = object.status.unwrap_or_default();
    let info = status.node_info.unwrap_or_default();
    let ready = status
        .conditions
        .into_iter()
        .flatten()
        .find(|one| one.type_ == "Ready");
    let unready = ready.filter(|one| one.status != "True");
    Node {
        labels: object.metadata.labels.unwrap_or_default(),
        unready: unready.map(|one| created(one.last_transition_time.as_ref())),
        machine: Machine {
            id: info.machine_id,
            boot: info.boot_id,
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn svc(spec: Value, ingress: Value) -> Option<Svc> {
        let object = json!({ "metadata": {}, "spec": spec, "status": { "loadBalancer": { "ingress": ingress } } });
        service(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn conformance_13_headless_external_and_hostname_only_services_have_no_source() {
        let vip = || json!([{ "ip": "203.0.113.45" }]);
        let headless = svc(
            json!({ "clusterIP": "None", "clusterIPs": ["None"] }),
            vip(),
        )
        .unwrap();
        assert!(headless.cluster_ips.is_empty());
        assert_eq!(
            svc(
                json!({ "type": "ExternalName", "externalName": "a" }),
                vip()
            ),
            None
        );
        assert_eq!(
            svc(
                json!({ "clusterIP": "10.96.0.1" }),
                json!([{ "hostname": "lb.example.net" }])
            ),
            None
        );
        let dual = json!({ "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"] });
        assert_eq!(svc(dual, vip()).unwrap().cluster_ips.len(), 2);
    }

    #[test]
    fn the_higher_version_is_the_later_one_and_so_is_what_was_made_anew() {
        let meta = |uid: &str, version: &str| Meta {
            uid: uid.into(),
            version: version.into(),
            ..Meta::default()
        };
        assert!(meta("u", "10").is_after(&meta("u", "9")));
        assert!(!meta("u", "9").is_after(&meta("u", "9")));
        assert!(meta("u", "9").is_after(&meta("other", "10")), "made anew");
        assert!(meta("u", "").is_after(&meta("u", "")), "not comparable");
    }

    #[test]
    fn pods_that_still_serve_are_behind_their_service() {
        let object = json!({
            "metadata": { "namespace": "shop", "labels": { "kubernetes.io/service-name": "web" } }, "addressType": "IPv4",
            "endpoints": [
                { "addresses": ["10.42.0.5"], "conditions": { "ready": true } }, { "addresses": ["10.42.0.6"] },
                { "addresses": ["10.42.0.7"], "conditions": { "ready": false, "serving": true, "terminating": true } },
                { "addresses": ["10.42.0.8"], "conditions": { "ready": false } },
            ],
        });
        let found = slice(serde_json::from_value(object).unwrap()).unwrap();
        assert_eq!((found.addresses.len(), &*found.service.1), (3, "web"));
    }

    #[test]
    fn a_node_is_unready_since_its_condition_turned() {
        let with = |status: &str| {
            let at = "2026-01-01T00:00:00Z";
            let condition = json!({ "type": "Ready", "status": status, "lastTransitionTime": at });
            node(
                serde_json::from_value(
                    json!({ "metadata": {}, "status": { "conditions": [condition] } }),
                )
                .unwrap(),
            )
        };
        assert_eq!(with("True").unready, None);
        assert_eq!(with("Unknown").unready, with("False").unready);
        assert!(with("Unknown").unready.is_some());
        assert_eq!(
            node(RawNode::default()).unready,
            None,
            "one that nobody has told anything of is not dead"
        );
    }
}
