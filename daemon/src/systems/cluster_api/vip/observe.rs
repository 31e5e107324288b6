//! What is kept of Clusters and of their classes.

use std::net::IpAddr;

use fipd_crds::cluster_api::{Cluster, ClusterClass, Endpoint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{choose::VipSlot, families::ClusterFamilies};
use crate::{
    controller::{
        meta::{Meta, View},
        store::Key,
    },
    systems::cluster_api::names::{
        CLUSTER_CLASS, CLUSTER_VIP, CONTROL_PLANE_VIP, INGRESS_ENABLED, INGRESS_VIP,
        SECOND_CLUSTER_VIP, SECOND_CONTROL_PLANE_VIP, SECOND_INGRESS_VIP, WATCH_FILTER,
    },
};

/// A Cluster, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CapiClusterView {
    pub meta: Meta,
    /// By its specification or annotation.
    pub paused: bool,
    /// Value of the label that shards providers.
    pub filter: Option<String>,
    /// Its ClusterClass.
    pub class: Option<Key>,
    /// The class of its pools, where it has no ClusterClass; an annotation says it.
    pub named_class: Option<String>,
    pub endpoint: Option<Endpoint>,
    /// The port of its endpoint, be it without a host.
    pub port: Option<i32>,
    /// Value of the variable `clusterVip`.
    pub variable: Option<String>,
    /// The address of the control plane by the annotation.
    pub annotated: Option<String>,
    pub ingress: IngressView,
    /// The families of its networks; `None`: it names no networks.
    pub families: Option<ClusterFamilies>,
    pub second: SecondView,
    /// Its infrastructure is there: certificates carry the endpoint.
    pub is_provisioned: bool,
    /// It was read in the deprecated version.
    pub is_v1beta1: bool,
    /// Of the form of `metav1.Condition`, wherever its version has them.
    pub conditions: Vec<Condition>,
}

/// What a Cluster says of its ingress.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IngressView {
    pub disabled: bool,
    /// Its address by the annotation.
    pub address: Option<String>,
    /// The same by the label.
    pub label: Option<String>,
}

/// What a dual-stack Cluster says of the addresses of its second family.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SecondView {
    /// That of the control plane, by its annotation.
    pub control_plane: Option<String>,
    /// The same by its variable.
    pub variable: Option<String>,
    /// That of the ingress, by its annotation.
    pub ingress: Option<String>,
}

impl View for CapiClusterView {
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
}

impl CapiClusterView {
    pub fn of(cluster: Cluster) -> Self {
        let meta = &cluster.metadata;
        let annotation = |key: &str| {
            let text = meta.annotations.as_ref()?.get(key)?;
            (!text.is_empty()).then(|| text.clone())
        };
        let variable = |name| Some(cluster.variable(name)?.as_str()?.to_owned());
        Self {
            paused: cluster.is_paused(),
            filter: meta
                .labels
                .as_ref()
                .and_then(|all| all.get(WATCH_FILTER).cloned()),
            class: (cluster.class()).map(|(namespace, name)| Key::new(&namespace, &name)),
            named_class: annotation(CLUSTER_CLASS),
            endpoint: cluster.endpoint().cloned(),
            port: (cluster.spec.control_plane_endpoint.as_ref())
                .map(|endpoint| endpoint.port)
                .filter(|port| *port > 0),
            variable: variable(CLUSTER_VIP),
            annotated: annotation(CONTROL_PLANE_VIP),
            ingress: IngressView {
                disabled: annotation(INGRESS_ENABLED).as_deref() == Some("false"),
                address: annotation(INGRESS_VIP),
                label: meta
                    .labels
                    .as_ref()
                    .and_then(|all| all.get(INGRESS_VIP).cloned()),
            },
            families: ClusterFamilies::of(cluster.blocks()),
            second: SecondView {
                control_plane: annotation(SECOND_CONTROL_PLANE_VIP),
                variable: variable(SECOND_CLUSTER_VIP),
                ingress: annotation(SECOND_INGRESS_VIP),
            },
            is_provisioned: cluster.is_infrastructure_ready(),
            is_v1beta1: cluster.is_v1beta1(),
            conditions: cluster.ready_conditions(),
            meta: Meta::of(meta),
        }
    }

    /// Name of the class that pools name; `None`: the Cluster gets no addresses.
    pub fn class_name(&self) -> Option<&str> {
        let class = self.class.as_ref().map(|class| &*class.name);
        class.or(self.named_class.as_deref())
    }

    /// The addresses that it shows, whoever chose them.
    pub fn shown(&self) -> impl Iterator<Item = (VipSlot, IpAddr)> {
        let second = |text: &Option<String>| text.as_ref()?.parse().ok();
        let shown = [
            (VipSlot::ENDPOINT, self.host()),
            (VipSlot::INGRESS, self.ingress_host()),
            (VipSlot::SECOND_ENDPOINT, second(&self.second.control_plane)),
            (VipSlot::SECOND_INGRESS, second(&self.second.ingress)),
        ];
        let shown = shown.into_iter();
        shown.filter_map(|(slot, address): (_, Option<IpAddr>)| {
            Some((slot, address?.to_canonical()))
        })
    }

    /// Whether it shows the address, as whatever.
    pub fn shows(&self, address: IpAddr) -> bool {
        self.shown().any(|(_, shown)| shown == address)
    }

    /// The address of its ingress.
    pub fn ingress_host(&self) -> Option<IpAddr> {
        let address: IpAddr = self.ingress.address.as_ref()?.parse().ok()?;
        Some(address.to_canonical())
    }

    /// The address of its endpoint.
    pub fn host(&self) -> Option<IpAddr> {
        let host: IpAddr = self.endpoint.as_ref()?.host.parse().ok()?;
        Some(host.to_canonical())
    }
}

/// A ClusterClass, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassView {
    pub meta: Meta,
    /// It declares the variable `clusterVip`.
    pub declares_vip: bool,
    /// Its patches read that variable.
    pub reads_vip: bool,
    /// Its patches read the annotation with the address of the control plane.
    pub reads_annotation: bool,
    /// It declares the variable `clusterSecondVip`.
    pub declares_second_vip: bool,
}

impl View for ClassView {
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
}

impl ClassView {
    pub fn of(class: ClusterClass) -> Self {
        Self {
            declares_vip: class.declares(CLUSTER_VIP),
            reads_vip: class.reads(CLUSTER_VIP),
            reads_annotation: class.reads_annotation(CONTROL_PLANE_VIP),
            declares_second_vip: class.declares(SECOND_CLUSTER_VIP),
            meta: Meta::of(&class.metadata),
        }
    }
}
