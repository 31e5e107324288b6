//! What is kept of Services and of the namespaces they live in.

use std::{collections::BTreeMap, net::IpAddr};

use fipd_core::{Family, Text, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::core::ObjectMeta;

use crate::{
    controller::meta::{Meta, View, created},
    systems::rancher_fip::names::{
        FINALIZER, FLOATING_IP, HOLDER, KUBE_VIP_ADDRESSES, PROJECT, PURELB_GROUP, RANCHER_PROJECT,
        SERVICE_LABEL, SERVICE_NAMESPACE_LABEL, STATIC_IP, STATIC_NETWORK,
    },
};

/// How many families a Service asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stack {
    #[default]
    Single,
    PreferDual,
    RequireDual,
}

/// A Service, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Svc {
    pub uid: Text,
    pub created: Timestamp,
    pub terminating: bool,
    pub finalizers: Vec<String>,
    /// `spec.type` is `LoadBalancer`.
    pub balanced: bool,
    pub class: Option<String>,
    /// In the order of `spec.ipFamilies`.
    pub families: Vec<Family>,
    pub stack: Stack,
    /// Annotations and labels that are ours to read or write.
    pub marks: BTreeMap<&'static str, String>,
    /// Addresses in `status.loadBalancer.ingress`; an entry without address is an empty text.
    pub ingress: Vec<String>,
}

/// What is kept of a namespace: its project by either mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Projects {
    /// Label of the rancher-fip family.
    pub own: Option<String>,
    /// Rancher's mark.
    pub rancher: Option<String>,
}

const ANNOTATIONS: [&str; 6] = [
    STATIC_IP,
    STATIC_NETWORK,
    FLOATING_IP,
    HOLDER,
    KUBE_VIP_ADDRESSES,
    PURELB_GROUP,
];
const LABELS: [&str; 2] = [SERVICE_LABEL, SERVICE_NAMESPACE_LABEL];

impl Svc {
    pub fn mark(&self, key: &str) -> Option<&str> {
        self.marks.get(key).map(String::as_str)
    }

    /// The addresses that it shows, and those that another program of the family noted on it.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let noted = self.mark(FLOATING_IP).unwrap_or("").split(',');
        let texts = self.ingress.iter().map(String::as_str).chain(noted);
        texts.filter_map(|text| text.trim().parse().ok()).collect()
    }

    /// Whether the address is one of those.
    pub fn shows(&self, address: IpAddr) -> bool {
        self.addresses().contains(&address)
    }

    /// Whether the address is in its status, which its owner may not write.
    pub fn is_given(&self, address: IpAddr) -> bool {
        let mut ingress = self.ingress.iter();
        ingress.any(|text| text.parse() == Ok(address))
    }

    pub fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|one| one == FINALIZER)
    }

    /// Whether it is a load balancer or carries anything of ours.
    pub fn matters(&self) -> bool {
        self.balanced || self.has_finalizer() || self.marks.contains_key(HOLDER)
    }

    /// Whether it carries what only fipd writes.
    pub fn is_marked(&self) -> bool {
        self.has_finalizer() && self.marks.contains_key(HOLDER)
    }
}

impl View for Svc {
    /// As far as it is kept: a version would be another with every change of somebody.
    fn meta(&self) -> Meta {
        Meta {
            uid: Text::clone(&self.uid),
            created: self.created,
            deleted: self.terminating.then(Timestamp::default),
            finalizers: self.finalizers.clone(),
            ..Meta::default()
        }
    }
}

/// Keeps what matters of a Service; nothing of one that is no load balancer and carries nothing of ours.
pub fn view(service: Service) -> Option<Svc> {
    Some(all(service)).filter(Svc::matters)
}

/// What matters of any Service.
pub fn all(service: Service) -> Svc {
    let meta = service.metadata;
    let spec = service.spec.unwrap_or_default();
    let stack = match spec.ip_family_policy.as_deref() {
        Some("PreferDualStack") => Stack::PreferDual,
        Some("RequireDualStack") => Stack::RequireDual,
        Some(_) | None => Stack::Single,
    };
    let ingress = service
        .status
        .and_then(|status| status.load_balancer)
        .and_then(|balancer| balancer.ingress);
    Svc {
        marks: marks(&meta),
        uid: meta.uid.unwrap_or_default().into(),
        created: created(meta.creation_timestamp.as_ref()),
        terminating: meta.deletion_timestamp.is_some(),
        finalizers: meta.finalizers.unwrap_or_default(),
        balanced: spec.type_.as_deref() == Some("LoadBalancer"),
        class: spec.load_balancer_class,
        families: spec
            .ip_families
            .iter()
            .flatten()
            .filter_map(|family| parse(family))
            .collect(),
        stack,
        ingress: ingress
            .into_iter()
            .flatten()
            .map(|one| one.ip.unwrap_or_default())
            .collect(),
    }
}

/// The project marks of a namespace.
pub fn projects(meta: &ObjectMeta) -> Projects {
    let filled = |marks: &Option<BTreeMap<String, String>>, key: &str| {
        let mark = marks.as_ref()?.get(key);
        mark.filter(|value| !value.is_empty()).cloned()
    };
    let labels = &meta.labels;
    Projects {
        own: filled(labels, PROJECT),
        // The annotation names the cluster too.
        rancher: filled(&meta.annotations, RANCHER_PROJECT)
            .or_else(|| filled(labels, RANCHER_PROJECT)),
    }
}

/// For the watch of namespaces.
pub fn slim_namespace(namespace: Namespace) -> Option<Projects> {
    Some(projects(&namespace.metadata))
}

fn marks(meta: &ObjectMeta) -> BTreeMap<&'static str, String> {
    let annotation = |key| Some((key, meta.annotations.as_ref()?.get(key)?.clone()));
    let label = |key| Some((key, meta.labels.as_ref()?.get(key)?.clone()));
    let annotations = ANNOTATIONS.into_iter().filter_map(annotation);
    let labels = LABELS.into_iter().filter_map(label);
    annotations.chain(labels).collect()
}

fn parse(family: &str) -> Option<Family> {
    match family {
        "IPv4" => Some(Family::V4),
        "IPv6" => Some(Family::V6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ServiceSpec;

    use super::*;

    fn service(kind: &str, meta: ObjectMeta) -> Service {
        Service {
            metadata: meta,
            spec: Some(ServiceSpec {
                type_: Some(kind.into()),
                ..ServiceSpec::default()
            }),
            ..Service::default()
        }
    }

    #[test]
    fn only_load_balancers_and_what_carries_our_marks_are_kept() {
        let plain = ObjectMeta::default;
        assert!(view(service("LoadBalancer", plain())).is_some());
        assert!(view(service("ClusterIP", plain())).is_none());
        let finalizer = ObjectMeta {
            finalizers: Some(vec![FINALIZER.into()]),
            ..plain()
        };
        assert!(view(service("ClusterIP", finalizer)).is_some());
        let holder = ObjectMeta {
            annotations: Some(BTreeMap::from([(HOLDER.into(), "x".into())])),
            ..plain()
        };
        assert!(view(service("NodePort", holder)).is_some());
    }
}
